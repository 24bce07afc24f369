//! Bodies of HTTP messages, as their receivers see them: with content codings decoded,
//! and files extracted from forms.

use flate2::{Decompress, FlushDecompress, Status};
use serde::{Deserialize, Serialize};

/// Decoding stops once a body has this many bytes.
const DECODED: usize = 1 << 20;
/// The maximum number of codings of one body.
pub(super) const CODINGS: usize = 3;

/// A content coding (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// The coding that a word of `Content-Encoding` names, as leniently as browsers read it.
    pub(super) fn named(word: &[u8]) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let has = |name: &[u8]| memchr::memmem::find(&word, name).is_some();
        match () {
            () if has(b"gzip") => Some(Self::Gzip),
            () if has(b"deflate") => Some(Self::Deflate),
            () => None,
        }
    }
}

/// What the codings of a body hide.
pub(super) struct Decoded {
    pub(super) bytes: Vec<u8>,
    /// The bytes of a coding are not in that coding.
    pub(super) failed: bool,
    /// Only the first bytes were decoded, and they became over 500 times as many.
    pub(super) is_bomb: bool,
}

/// Decodes the codings of a body, the last applied first. Data that does not decode stays as it
/// is, as in receivers.
pub(super) fn decode(body: &[u8], codings: &[Coding]) -> Decoded {
    let mut now = Decoded { bytes: body.to_vec(), failed: false, is_bomb: false };
    for _ in codings {
        // The bytes identify the coding; headers often name the wrong one.
        let coded = &now.bytes;
        let decoded = if let Some(at) = gzip_header(coded) {
            inflate(&coded[at..], false)
        } else {
            let zlib = inflate(coded, true);
            if zlib.bytes.is_empty() {
                let raw = inflate(coded, false);
                Decoded { failed: zlib.failed && raw.failed, ..raw }
            } else {
                zlib
            }
        };
        if decoded.bytes.is_empty() {
            now.failed = decoded.failed;
            break;
        }
        // An error behind the first bytes is not one of the coding.
        now = Decoded { failed: false, ..decoded };
    }
    now
}

/// Where the data after a gzip header begins (RFC 1952, section 2.3); ignores reserved flags.
fn gzip_header(bytes: &[u8]) -> Option<usize> {
    const CRC: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    let [0x1f, 0x8b, _, flags, ..] = *bytes else { return None };
    let mut at = 10;
    if flags & EXTRA != 0 {
        let length = bytes.get(at..)?.first_chunk::<2>()?;
        at += 2 + usize::from(u16::from_le_bytes(*length));
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            at += bytes.get(at..)?.iter().position(|b| *b == 0)? + 1;
        }
    }
    if flags & CRC != 0 {
        at += 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// Decompresses `bytes` up to the first error in them, if there is one.
fn inflate(bytes: &[u8], zlib: bool) -> Decoded {
    let mut inflater = Decompress::new(zlib);
    let mut out = Vec::with_capacity(bytes.len().saturating_mul(4).clamp(256, DECODED));
    loop {
        let (taken, made) = (inflater.total_in(), inflater.total_out());
        let rest = &bytes[taken as usize..];
        let status = inflater.decompress_vec(rest, &mut out, FlushDecompress::None);
        let stuck = inflater.total_in() == taken && inflater.total_out() == made;
        match status {
            Ok(Status::Ok | Status::BufError) if !stuck || out.len() == out.capacity() => {
                if out.len() >= DECODED {
                    let is_bomb = out.len() / 500 > inflater.total_in() as usize;
                    return Decoded { bytes: out, failed: false, is_bomb };
                }
                if out.len() == out.capacity() {
                    out.reserve(out.len());
                }
            }
            _ => return Decoded { bytes: out, failed: status.is_err(), is_bomb: false },
        }
    }
}

/// The files in a form (`multipart/form-data`, RFC 7578), concatenated; `None` if `content_type`
/// is not that of a form.
pub(super) fn files(content_type: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let lower = content_type.to_ascii_lowercase();
    if !lower.starts_with(b"multipart/form-data") {
        return None;
    }
    let at = memchr::memmem::find(&lower, b"boundary=")? + "boundary=".len();
    let boundary = content_type[at..].split(|b| *b == b';').next()?.trim_ascii();
    let boundary = boundary.strip_prefix(b"\"").unwrap_or(boundary);
    let boundary = boundary.strip_suffix(b"\"").unwrap_or(boundary);
    let delimiter = [b"--", boundary].concat();
    let mut files = Vec::new();
    let starts: Vec<usize> = memchr::memmem::find_iter(body, &delimiter).collect();
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(body.len());
        let part = &body[start + delimiter.len()..end];
        let Some(head) = memchr::memmem::find(part, b"\r\n\r\n") else { continue };
        if memchr::memmem::find(&part[..head].to_ascii_lowercase(), b"filename=").is_some() {
            let content = &part[head + 4..];
            files.extend_from_slice(content.strip_suffix(b"\r\n").unwrap_or(content));
        }
    }
    Some(files)
}
