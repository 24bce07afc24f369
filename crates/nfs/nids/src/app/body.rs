//! Bodies of HTTP messages, as their receivers see them: with content codings decoded,
//! and files extracted from forms.

use serde::{Deserialize, Serialize};

use super::inflate::Inflating;

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
    /// The number of first bytes that the result before had, too.
    pub(super) old: usize,
    /// The bytes of a coding are not in that coding.
    pub(super) failed: bool,
    /// Only the first bytes were decoded, and they became over 500 times as many.
    pub(super) is_bomb: bool,
}

/// The decoding of a body that arrives piece by piece. A copy starts anew, from the first byte of the
/// body.
#[derive(Debug, Default)]
pub(super) struct Decoding {
    inflating: Option<Inflating>,
    /// Bytes of the last result.
    shown: usize,
}

impl Clone for Decoding {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What it remembers makes no difference to results.
impl PartialEq for Decoding {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Decoding {}

impl Decoding {
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.inflating.as_ref().map_or(0, Inflating::memory)
    }

    /// Decodes the `codings` of a body, the last applied first; the body begins with what it was the
    /// last time. Data that does not decode stays as it is, as in receivers.
    pub(super) fn decode(&mut self, body: &[u8], codings: &[Coding]) -> Decoded {
        match codings {
            [] => {
                let old = std::mem::replace(&mut self.shown, body.len()).min(body.len());
                Decoded { old, ..Decoded::as_is(body, false) }
            }
            [_] => self.decode_more(body),
            _ => decode_all(body, codings),
        }
    }

    fn decode_more(&mut self, body: &[u8]) -> Decoded {
        let (inflating, old, is_certain) = match self.inflating.take() {
            Some(mut inflating) => {
                let old = inflating.decoded().len();
                inflating.go_on(body);
                (inflating, old, true)
            }
            None => match decode_one(body) {
                Ok((inflating, is_certain)) => (inflating, 0, is_certain),
                Err(failed) => return Decoded::as_is(body, failed),
            },
        };
        if !is_certain || !inflating.is_small() {
            return Decoded { old, ..Decoded::of(inflating) };
        }
        let (bytes, is_bomb) = (inflating.decoded().to_vec(), inflating.is_bomb());
        self.inflating = Some(inflating);
        Decoded { bytes, old, failed: false, is_bomb }
    }
}

impl Decoded {
    /// A body that does not decode.
    fn as_is(body: &[u8], failed: bool) -> Self {
        Self { bytes: body.to_vec(), old: 0, failed, is_bomb: false }
    }

    /// What has been decompressed. An error behind the first bytes is not one of the coding.
    fn of(inflating: Inflating) -> Self {
        let is_bomb = inflating.is_bomb();
        Self { bytes: inflating.into_decoded(), old: 0, failed: false, is_bomb }
    }
}

/// Decodes several codings.
fn decode_all(body: &[u8], codings: &[Coding]) -> Decoded {
    let mut now = Decoded::as_is(body, false);
    for _ in codings {
        match decode_one(&now.bytes) {
            Ok((inflating, _)) => now = Decoded::of(inflating),
            Err(failed) => {
                now.failed = failed;
                break;
            }
        }
    }
    now
}

/// Decompresses one coding, and returns whether the bytes are certain to be in it, so that more of them
/// can follow; `Err` with whether they are in none if there is nothing decoded yet.
fn decode_one(coded: &[u8]) -> Result<(Inflating, bool), bool> {
    // The bytes identify the coding; headers often name the wrong one.
    let (inflating, failed, is_certain) = if let Some(begin) = gzip_header(coded) {
        let raw = Inflating::new(coded, begin, false);
        let failed = raw.has_failed();
        (raw, failed, true)
    } else {
        let zlib = Inflating::new(coded, 0, true);
        if zlib.decoded().is_empty() {
            let raw = Inflating::new(coded, 0, false);
            let failed = zlib.has_failed() && raw.has_failed();
            (raw, failed, zlib.has_failed())
        } else {
            (zlib, false, true)
        }
    };
    if inflating.decoded().is_empty() { Err(failed) } else { Ok((inflating, is_certain)) }
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;
    use thalweg_testkit::cases;

    use super::*;

    /// `text` in a coding, by number.
    fn coded(text: &[u8], coding: usize) -> Vec<u8> {
        let level = Compression::fast();
        match coding {
            0 => written(GzEncoder::new(Vec::new(), level), text).finish().unwrap(),
            1 => written(ZlibEncoder::new(Vec::new(), level), text).finish().unwrap(),
            2 => written(DeflateEncoder::new(Vec::new(), level), text).finish().unwrap(),
            _ => text.to_vec(),
        }
    }

    fn written<W: Write>(mut encoder: W, text: &[u8]) -> W {
        encoder.write_all(text).unwrap();
        encoder
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let part = (proptest::collection::vec(any::<u8>(), 0..300), 1usize..900);
        let parts = proptest::collection::vec(part, 0..6);
        parts.prop_map(|parts| parts.into_iter().flat_map(|(text, n)| text.repeat(n)).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(48)))]
        #[test]
        fn a_body_in_pieces_decodes_as_the_whole(
            text in text(),
            (outer, inner) in (0usize..4, 0usize..4),
            damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
            after in proptest::collection::vec(any::<u8>(), 0..9),
            codings in prop_oneof![
                1 => Just(vec![]), 6 => Just(vec![Coding::Gzip]), 2 => Just(vec![Coding::Deflate; 2])
            ],
            mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
            early in 0usize..20,
        ) {
            let mut body = coded(&coded(&text, inner), if codings.len() == 2 { outer } else { 3 });
            body.extend(after);
            if let Some((at, byte)) = damage.filter(|_| !body.is_empty()) {
                let at = at.index(body.len());
                body[at] ^= byte;
            }
            cuts.sort_by_key(|cut| cut.index(body.len() + 1));
            let cuts = cuts.iter().map(|cut| cut.index(body.len() + 1)).filter(|cut| *cut > early);
            let mut decoding = Decoding::default();
            let mut before = Vec::new();
            for end in [early.min(body.len())].into_iter().chain(cuts).chain([body.len()]) {
                let now = decoding.decode(&body[..end], &codings);
                let whole = Decoding::default().decode(&body[..end], &codings);
                prop_assert_eq!(&now.bytes, &whole.bytes);
                prop_assert_eq!((now.failed, now.is_bomb), (whole.failed, whole.is_bomb));
                prop_assert!(before.len() >= now.old && now.bytes.starts_with(&before[..now.old]));
                before = now.bytes;
            }
        }
    }
}
