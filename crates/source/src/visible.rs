//! Text of files, packets and arguments in messages: no terminal obeys it, and it is never long.
//!
//! All lengths here are in characters, after escaping.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Marks text that was left out.
const ELLIPSIS: char = '…';

/// The most characters of a value that a message quotes.
pub(crate) const QUOTED: usize = 72;

/// The most characters of a line in a message of the log.
const LOGGED: usize = 1000;

/// The most lines of a message of the log.
const LOGGED_LINES: usize = 40;

/// Whether a terminal shows `c` as itself: it is no control character, it does not reverse or
/// break the text around it, and it is not invisible.
pub fn is_visible(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !is_invisible
}

/// The text, with an escape such as `\x1b` for each character that is not [visible](is_visible),
/// line ends included.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_visible) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push(&mut shown, c));
    shown.into()
}

/// The text, escaped and truncated to `most` characters, the last of which is then an ellipsis.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let (head, fits) = head(text, most);
    if fits { visible(text) } else { head.into() }
}

/// The text, escaped; of a long one only the first `head` and the last `tail` characters, with an
/// ellipsis between them.
pub(crate) fn abridged(text: String, first: usize, last: usize) -> String {
    let most = first + 1 + last;
    if text.len() <= most && text.chars().all(is_visible) {
        return text;
    }
    let (_, fits) = head(&text, most);
    if fits { visible(&text).into_owned() } else { head(&text, first + 1).0 + &end(&text, last) }
}

/// The last `most` characters of the text, escaped; with an ellipsis before them if it has more.
pub(crate) fn tail(text: &str, most: usize) -> Cow<'_, str> {
    let whole = end(text, most);
    if head(text, most).1 {
        whole.into()
    } else {
        format!("{ELLIPSIS}{}", end(text, most - 1)).into()
    }
}

/// A message for the log: escaped except for its line ends, after which lines are indented, so
/// that no line of a file looks like a message.
pub fn message_lines(text: &str) -> String {
    let mut lines = text.trim_end().split('\n');
    let shown: Vec<_> = lines.by_ref().take(LOGGED_LINES).map(|l| shortened(l, LOGGED)).collect();
    let more = lines.count();
    let more = if more > 0 { format!("\n  {ELLIPSIS} ({more} more lines)") } else { String::new() };
    shown.join("\n  ") + &more
}

/// The text, escaped except for its line ends.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| c == '\n' || is_visible(c)) {
        return text.into();
    }
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    lines.join("\n").into()
}

fn push(shown: &mut String, c: char) {
    let escape = match c {
        '\t' => "\\t",
        '\n' => "\\n",
        '\r' => "\\r",
        _ => "",
    };
    // Writing to a string does not fail.
    let _ = match (escape, c) {
        _ if is_visible(c) => shown.write_char(c),
        ("", '\0'..='\x7f') => write!(shown, "\\x{:02x}", c as u32),
        ("", _) => write!(shown, "\\u{{{:x}}}", c as u32),
        _ => shown.write_str(escape),
    };
}

/// The characters that `c` takes.
fn width(c: char) -> usize {
    if is_visible(c) {
        return 1;
    }
    let mut shown = String::new();
    push(&mut shown, c);
    shown.len()
}

/// The start of the text in `most` characters, an ellipsis included, and whether the whole fits.
fn head(text: &str, most: usize) -> (String, bool) {
    let (mut used, mut end) = (0, None);
    for (at, c) in text.char_indices() {
        if used + width(c) > most.saturating_sub(1) && end.is_none() {
            end = Some(at);
        }
        used += width(c);
        if used > most {
            let start = visible(&text[..end.unwrap_or(at)]);
            return (format!("{start}{ELLIPSIS}"), false);
        }
    }
    (String::new(), true)
}

/// The end of the text in `most` characters.
fn end(text: &str, most: usize) -> String {
    let mut used = 0;
    let fits = |(_, c): &(usize, char)| {
        used += width(*c);
        used <= most
    };
    let start = text.char_indices().rev().take_while(fits).last().map_or(text.len(), |(at, _)| at);
    visible(&text[start..]).into_owned()
}

/// A writer of JSON that writes characters that are not [visible](is_visible) as JSON's escapes;
/// JSON itself requires this only of some.
#[derive(Debug)]
pub struct VisibleJson<W>(pub W);

impl<W: Write> Write for VisibleJson<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Most text is ASCII. Serializers write whole characters; other bytes stay as they are.
        let is_plain = bytes.iter().all(|b| *b < 0x7f);
        match if is_plain { None } else { std::str::from_utf8(bytes).ok() } {
            Some(text) => self.write_text(text)?,
            None => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write> VisibleJson<W> {
    fn write_text(&mut self, text: &str) -> io::Result<()> {
        let mut from = 0;
        let is_hidden = |c: char| c >= '\x7f' && !is_visible(c);
        for (at, hidden) in text.match_indices(is_hidden) {
            self.0.write_all(&text.as_bytes()[from..at])?;
            for unit in hidden.encode_utf16() {
                write!(self.0, "\\u{unit:04x}")?;
            }
            from = at + hidden.len();
        }
        self.0.write_all(&text.as_bytes()[from..])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text with many characters that need an escape.
    fn odd() -> impl Strategy<Value = String> {
        let c = prop_oneof![
            prop::char::range('\0', '\u{a0}'),
            prop::char::range('\u{2000}', '\u{2070}'),
            any::<char>(),
        ];
        prop::collection::vec(c, 0..300).prop_map(|text| text.into_iter().collect())
    }

    fn length(text: &str) -> usize {
        text.chars().count()
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let bell =
            "a\x1b]0;owned\x07\x1b[31mred\r\n\tb\x7f\u{9b}31m\u{202e}fdp\u{2066}\u{2028}ü日\\x";
        let shown = "a\\x1b]0;owned\\x07\\x1b[31mred\\r\\n\\tb\\x7f\\u{9b}31m\\u{202e}fdp\\u{2066}\
            \\u{2028}ü日\\x";
        assert_eq!(visible(bell), shown);
        assert!(matches!(visible("plain – text"), Cow::Borrowed(_)));
        assert_eq!(visible_lines("a\tb\nc\x1b\n"), "a\\tb\nc\\x1b\n");
    }

    #[test]
    fn a_log_message_is_indented_and_bounded() {
        let forged = "no such file: x\nerror: all is lost\x1b[2J\r\n";
        assert_eq!(message_lines(forged), "no such file: x\n  error: all is lost\\x1b[2J");
        let long = message_lines(&"y".repeat(1 << 20));
        assert_eq!((length(&long), long.ends_with("y…")), (LOGGED, true));
        let many = message_lines(&"z\n".repeat(100_000));
        assert!(many.ends_with("  z\n  … (99960 more lines)"), "{}", &many[many.len() - 40..]);
    }

    #[test]
    fn long_text_is_truncated_at_its_end_or_in_its_middle() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde…");
        assert_eq!(shortened("abc\x1b\x1b", 6), "abc…", "an escape is not split");
        assert_eq!(abridged("abcdefg".into(), 3, 2), "abc…fg");
        assert_eq!(abridged("abcdef".into(), 3, 2), "abcdef");
        assert_eq!(tail("abcdefg", 4), "…efg");
        assert_eq!(tail("abcd", 4), "abcd");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\"a\":\"\u{9b}31m \u{202e} \u{e0001} é 日 \x7f\"}";
        let mut shown = Vec::new();
        VisibleJson(&mut shown).write_all(text.as_bytes()).unwrap();
        let expected = "{\"a\":\"\\u009b31m \\u202e \\udb40\\udc01 é 日 \\u007f\"}";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_shown_and_nothing_exceeds_its_bound(
            text in odd(), first in 1usize..100, last in 1usize..100,
        ) {
            let whole = visible(&text);
            prop_assert!(whole.chars().all(is_visible));
            prop_assert_eq!(visible(&whole), &*whole, "escaping twice changes nothing");
            let cases = [
                (shortened(&text, first).into_owned(), first),
                (tail(&text, last).into_owned(), last),
                (abridged(text.clone(), first, last), first + 1 + last),
            ];
            for (shown, most) in cases {
                prop_assert!(length(&shown) <= most && shown.chars().all(is_visible), "{shown}");
                prop_assert_eq!(length(&whole) <= most, shown == whole, "{}", shown);
            }
        }
    }
}
