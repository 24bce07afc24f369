//! Reading a source from its file, which may be compressed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::{Source, SourceError};

/// The first bytes of a gzip file, which no UTF-8 text begins with (RFC 1952 §2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The most bytes of text in a compressed file: a few kilobytes of gzip can hold gigabytes. The
/// routes of the whole Internet are 50 MiB.
const MOST: u64 = 256 << 20;

impl Source {
    /// Reads the file at `path`, which gzip may have compressed whatever its name is.
    ///
    /// # Errors
    /// When the file cannot be read or is not UTF-8; the error shows the first
    /// bad byte's place.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, SourceError> {
        Self::read_at_most(path, u64::MAX)
    }

    /// As [`read`](Self::read), if the text has at most `most` bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when it has more.
    pub fn read_at_most(path: impl Into<PathBuf>, most: u64) -> Result<Self, SourceError> {
        let path = path.into();
        String::from_utf8(bytes(&path, most)?).map(|text| Self::new(path.clone(), text)).map_err(
            |e| {
                let good = e.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(e.as_bytes()).into_owned();
                Self::new(path, text).error(good..good, "the text is not UTF-8", "UTF-8 text")
            },
        )
    }

    /// As [`read`](Self::read), with a sign in the place of each byte that is not UTF-8.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_lossy(path: impl Into<PathBuf>) -> Result<Self, SourceError> {
        let path = path.into();
        let text = String::from_utf8_lossy(&bytes(&path, u64::MAX)?).into_owned();
        Ok(Self::new(path, text))
    }
}

/// The bytes of the text in a file, at most `most`.
fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, SourceError> {
    let error = |message, expected: &str| Source::new(path, "").error(0..0, message, expected);
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(|e| error(format!("cannot read the file: {e}"), "a readable text file"))?;
    if bytes.len() as u64 > most {
        let message = format!("the file has more than {} MiB", most >> 20);
        return Err(error(message, "at most that"));
    }
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let most = most.min(MOST);
    let text = decompress(&bytes, most)
        .map_err(|e| error(format!("cannot decompress the file: {e}"), "a whole gzip file"))?;
    text.ok_or_else(|| {
        let message = format!("the compressed text has more than {} MiB", most >> 20);
        error(message, "at most that, or a file that is not compressed")
    })
}

/// The content of a gzip file, which may have several members; `None` if it has more than `most`
/// bytes.
fn decompress(bytes: &[u8], most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes).take(most + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= most).then_some(text))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Source, SourceError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        std::fs::write(&path, bytes).unwrap();
        Source::read(path)
    }

    #[test]
    fn compressed_text_is_read_like_plain_text_with_its_lines() {
        let source = read(&gzip(b"one\ntwo\n")).unwrap();
        assert_eq!(source.text(), read(b"one\ntwo\n").unwrap().text());
        let (line, text) = source.lines().nth(1).unwrap();
        assert_eq!((source.error(line, "", "").line(), text), (2, "two"));
        // As `cat a.gz b.gz` makes it.
        let members = [gzip(b"one\n"), gzip(b"two\n")].concat();
        assert_eq!(read(&members).unwrap().text(), "one\ntwo\n");
        let error = read(&gzip(b"one\nt\xffo\n")).unwrap_err();
        assert_eq!(
            (error.line(), error.column(), error.message()),
            (2, 2, "the text is not UTF-8")
        );
    }

    #[test]
    fn a_truncated_or_damaged_file_is_an_error() {
        let whole = gzip(&b"a line of text\n".repeat(100));
        let mut damaged = whole.clone();
        let crc = damaged.len() - 8;
        damaged[crc] ^= 1;
        for bytes in [&whole[..2], &whole[..12], &whole[..whole.len() - 1], &damaged] {
            let error = read(bytes).unwrap_err();
            assert!(error.message().starts_with("cannot decompress the file: "), "{error}");
            assert!(error.text().is_empty(), "{error}");
        }
    }

    #[test]
    fn a_text_may_have_so_many_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for text in [vec![b'x'; 1 << 20], gzip(&vec![b'x'; 1 << 20])] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Source::read_at_most(&path, 1 << 20).unwrap().text().len(), 1 << 20);
            let error = Source::read_at_most(&path, (1 << 20) - 1).unwrap_err();
            assert!(error.message().ends_with(" has more than 0 MiB"), "{error}");
        }
        let endless = Source::read_at_most("/dev/zero", 1 << 20).unwrap_err();
        assert_eq!(endless.message(), "the file has more than 1 MiB");
    }

    #[test]
    fn a_bomb_is_refused_before_it_fills_the_memory() {
        assert_eq!(decompress(&gzip(b"four"), 4).unwrap().as_deref(), Some(&b"four"[..]));
        assert_eq!(decompress(&gzip(b"five!"), 4).unwrap(), None);
        let piece = gzip(&vec![b'\n'; 16 << 20]);
        let error = read(&piece.repeat(17)).unwrap_err();
        assert_eq!(error.message(), "the compressed text has more than 256 MiB");
    }
}
