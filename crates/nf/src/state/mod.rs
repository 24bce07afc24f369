//! State streams: how per-flow state leaves one NF and enters another.
//!
//! A stream is a header (magic, format version, NF kind, version of the NF's
//! records, mark, packet time, expected records, CRC-32), then records, each with a length, its
//! body and a CRC-32, then an end with the final mark. A body is the flows that the record
//! names, and the bytes of the NF ([`postcard`]). Numbers are little-endian. A truncated or
//! changed stream is refused.
//!
//! Because records name their flows, those of a pattern or of some buckets can be written, or read,
//! without decoding what the NF wrote: [`FlowFilter`], [`Buckets`](crate::Buckets).
//!
//! An interrupted stream can be resumed: [`StateReceiver`] keeps the records that arrived complete,
//! its [`Mark`] identifies them, and [`StateWriter::resume`] writes those after the mark, if those
//! before it are still the same.

mod filter;
mod header;
mod names;
mod reader;
mod receiver;
mod selection;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};

pub use filter::FlowFilter;
pub use reader::StateReader;
pub use receiver::StateReceiver;
pub use writer::StateWriter;

const MAGIC: [u8; 4] = *b"THWS";
/// Version 1 had no marks; version 2, which is still read, no names, packet time and expectation.
const FORMAT: u16 = 3;
const OLDEST_FORMAT: u16 = 2;
const END: u32 = u32::MAX;
/// More than the largest record: a connection of `nids` with heads, bodies and queued segments, or a
/// mapping of `nat` with 100,000 sessions.
const MAX_RECORD: u32 = 1 << 23;

/// Why a state stream was not written or not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The stream could not be read or written.
    #[error("state stream: {0}")]
    Io(#[from] io::Error),
    /// The stream is truncated.
    #[error("state stream ends {0}")]
    Cut(Place),
    /// The file holds more than one stream.
    #[error("unexpected bytes after the end of the state stream")]
    Trailing,
    /// The input does not begin like a stream.
    #[error("not a state stream (bad magic)")]
    NotState,
    /// The header is damaged.
    #[error("checksum mismatch in the header of the state stream")]
    Header,
    /// The stream's format is of another version.
    #[error(
        "state stream has format {found}; this program reads formats {OLDEST_FORMAT} to {FORMAT}"
    )]
    Format {
        /// The version in the stream.
        found: u16,
    },
    /// The stream is of another NF, or of another version of its records.
    #[error("state of '{found_kind}' version {found}, expected '{kind}' version {expected}")]
    Kind {
        /// The NF kind in the stream.
        found_kind: String,
        /// The record version in the stream.
        found: u16,
        /// The NF kind that reads.
        kind: String,
        /// The record version it reads.
        expected: u16,
    },
    /// The stream resumes after records that are missing here, or differ.
    #[error(
        "state stream resumes at record {expected}, but the records before it do not match those \
         present here ({found})"
    )]
    Mark {
        /// The number of records before the resumed stream.
        expected: u64,
        /// The number of records present here.
        found: u64,
    },
    /// The stream is of a format whose records do not name their flows.
    #[error(
        "the records of this state stream do not name their flows; expected one of format {FORMAT}"
    )]
    Nameless,
    /// A record is damaged.
    #[error("state record {index}: {what}")]
    Record {
        /// The record's number, from 0.
        index: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// Where a stream is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Within its header.
    Header,
    /// Within the record of this number, from 0.
    Within(u64),
    /// After this many records, with neither another one nor the stream's end.
    Behind(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => write!(f, "within its header"),
            Self::Within(record) => write!(f, "within record {record}"),
            Self::Behind(records) => {
                let records = thalweg_source::counted(*records as usize, "record");
                write!(f, "after {records}, without its end mark")
            }
        }
    }
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The number of records so far.
    pub records: u64,
    /// A CRC-32 over their CRC-32s.
    pub digest: u32,
}

impl Mark {
    /// Advances past a record with this CRC-32.
    fn pass(&mut self, checksum: u32) {
        let mut digest = crc32fast::Hasher::new_with_initial(self.digest);
        digest.update(&checksum.to_le_bytes());
        *self = Self { records: self.records + 1, digest: digest.finalize() };
    }

    fn read(input: &mut dyn Read, place: Place) -> Result<Self, StateError> {
        let records = u64::from_le_bytes(read(input, place)?);
        Ok(Self { records, digest: u32::from_le_bytes(read(input, place)?) })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.records.to_le_bytes())?;
        out.write_all(&self.digest.to_le_bytes())
    }
}

/// Reads a record's bytes into `body` and advances `mark`; returns its checksum, or `None` at the
/// stream's end, which must be at `mark`.
fn read_frame(
    input: &mut dyn Read,
    mark: &mut Mark,
    body: &mut Vec<u8>,
) -> Result<Option<u32>, StateError> {
    let damaged = |what| StateError::Record { index: mark.records as usize, what };
    let behind = Place::Behind(mark.records);
    let length = u32::from_le_bytes(read(input, behind)?);
    if length == END {
        let end = Mark::read(input, behind)?;
        if end != *mark {
            return Err(damaged(format!("end mark mismatch: it counts {} records", end.records)));
        }
        return Ok(None);
    }
    if length > MAX_RECORD {
        return Err(damaged(format!("length {length} exceeds the maximum of {MAX_RECORD}")));
    }
    body.resize(length as usize, 0);
    let within = Place::Within(mark.records);
    fill(input, body, within)?;
    let checksum = crc32fast::hash(body);
    if checksum != u32::from_le_bytes(read(input, within)?) {
        return Err(damaged("checksum mismatch".into()));
    }
    mark.pass(checksum);
    Ok(Some(checksum))
}

/// Reads bytes; `place` is where the stream is truncated if they are missing.
fn read<const N: usize>(input: &mut dyn Read, place: Place) -> Result<[u8; N], StateError> {
    let mut bytes = [0; N];
    fill(input, &mut bytes, place)?;
    Ok(bytes)
}

/// Fills `bytes`; `place` is where the stream is truncated if they are missing.
fn fill(input: &mut dyn Read, bytes: &mut [u8], place: Place) -> Result<(), StateError> {
    input.read_exact(bytes).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => StateError::Cut(place),
        _ => StateError::Io(e),
    })
}
