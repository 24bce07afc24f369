//! Lines between messages and within bodies.

use super::SIZE_LINE;
use super::head::{line_end, trim};

/// Whether bytes after which a response may begin are a status line; `None` if they are too few.
pub(super) fn status_line(bytes: &[u8]) -> Option<bool> {
    const WORD: &[u8] = b"HTTP";
    let blank = bytes.iter().take_while(|b| is_blank(**b)).count();
    let begin = &bytes[blank..][..WORD.len().min(bytes.len() - blank)];
    let is = WORD[..begin.len()].eq_ignore_ascii_case(begin);
    (!is || begin.len() == WORD.len()).then_some(is)
}

/// The end of a line that is no status line but has one after it, which receivers skip; 0 if there
/// is none after it, `None` if that is not known yet.
pub(super) fn junk_line(bytes: &[u8]) -> Option<usize> {
    let blank = bytes.iter().take_while(|b| is_blank(**b)).count();
    let end = blank + line_end(&bytes[blank..]);
    if end > SIZE_LINE {
        return Some(0);
    }
    let is_whole = bytes[end - 1] == b'\n';
    status_line(&bytes[end..]).filter(|_| is_whole).map(|is| if is { end } else { 0 })
}

pub(super) fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The size at the beginning of a chunk's size line.
pub(super) fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = trim(line);
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let text = std::str::from_utf8(&line[..digits]).ok()?;
    u64::from_str_radix(text, 16).ok()
}
