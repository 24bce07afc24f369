//! State streams: how per-flow state leaves one NF and enters another.
//!
//! A stream is a header (magic, format version, NF kind, version of the NF's
//! records), then records, each with a length, its bytes ([`postcard`]) and a
//! CRC-32, then an end mark with the number of records. Numbers are
//! little-endian. A cut or changed stream is refused.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: [u8; 4] = *b"THWS";
const FORMAT: u16 = 1;
const END: u32 = u32::MAX;
/// More than the largest: a connection of `nids` with heads, bodies and segments that wait.
const MAX_RECORD: u32 = 1 << 22;

/// Why a state stream was not written or not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The stream could not be read or written.
    #[error("state stream: {0}")]
    Io(#[from] io::Error),
    /// The stream does not begin as one.
    #[error("not a state stream (bad magic)")]
    NotState,
    /// The stream's format is of another version.
    #[error("state stream format {found}, this program reads {FORMAT}")]
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
    /// A record is damaged.
    #[error("state record {index}: {what}")]
    Record {
        /// The record's number, from 0.
        index: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// Writes the records of one NF's state.
pub struct StateWriter<'a> {
    out: &'a mut dyn Write,
    records: u64,
    /// The record at hand, with its length and its checksum; reused.
    framed: Vec<u8>,
}

impl<'a> StateWriter<'a> {
    /// Begins a stream of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn new(out: &'a mut dyn Write, kind: &str, version: u16) -> Result<Self, StateError> {
        let length = u8::try_from(kind.len())
            .map_err(|_| StateError::Record { index: 0, what: "NF kind too long".into() })?;
        out.write_all(&MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        out.write_all(&[length])?;
        out.write_all(kind.as_bytes())?;
        out.write_all(&version.to_le_bytes())?;
        Ok(Self { out, records: 0, framed: Vec::new() })
    }

    /// Appends one record.
    ///
    /// # Errors
    /// When the record cannot be encoded or written.
    pub fn record<T: Serialize>(&mut self, record: &T) -> Result<(), StateError> {
        const LENGTH: usize = size_of::<u32>();
        let index = self.records as usize;
        let fail = |what| StateError::Record { index, what };
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        framed.extend([0; LENGTH]);
        framed = postcard::to_extend(record, framed).map_err(|e| fail(e.to_string()))?;
        let size = framed.len() - LENGTH;
        let length = u32::try_from(size).ok().filter(|l| *l <= MAX_RECORD);
        let length = length.ok_or_else(|| fail(format!("{size} bytes are too long")))?;
        framed[..LENGTH].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&framed[LENGTH..]);
        framed.extend(checksum.to_le_bytes());
        self.out.write_all(&framed)?;
        self.framed = framed;
        self.records += 1;
        Ok(())
    }

    /// Ends the stream; returns the number of records.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn finish(self) -> Result<u64, StateError> {
        self.out.write_all(&END.to_le_bytes())?;
        self.out.write_all(&self.records.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.records)
    }
}

/// Reads the records of one NF's state.
pub struct StateReader<'a> {
    input: &'a mut dyn Read,
    index: usize,
    ended: bool,
    /// The record at hand; reused.
    body: Vec<u8>,
}

impl<'a> StateReader<'a> {
    /// Opens a stream that must be of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When it is another kind of stream.
    pub fn new(input: &'a mut dyn Read, kind: &str, version: u16) -> Result<Self, StateError> {
        if read::<4>(input)? != MAGIC {
            return Err(StateError::NotState);
        }
        let found = u16::from_le_bytes(read(input)?);
        if found != FORMAT {
            return Err(StateError::Format { found });
        }
        let mut name = vec![0; read::<1>(input)?[0] as usize];
        input.read_exact(&mut name)?;
        let found_kind = String::from_utf8_lossy(&name).into_owned();
        let found = u16::from_le_bytes(read(input)?);
        if found_kind != kind || found != version {
            let kind = kind.to_owned();
            return Err(StateError::Kind { found_kind, found, kind, expected: version });
        }
        Ok(Self { input, index: 0, ended: false, body: Vec::new() })
    }

    /// The next record, or `None` after the last.
    ///
    /// # Errors
    /// When the record is damaged or the stream is cut.
    pub fn record<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StateError> {
        if self.ended {
            return Ok(None);
        }
        let length = u32::from_le_bytes(read(self.input)?);
        if length == END {
            let count = u64::from_le_bytes(read(self.input)?);
            self.ended = true;
            if count != self.index as u64 {
                return Err(self.damaged(format!("the stream says it has {count} records")));
            }
            return Ok(None);
        }
        if length > MAX_RECORD {
            return Err(self.damaged(format!("length {length} is over {MAX_RECORD}")));
        }
        self.body.resize(length as usize, 0);
        self.input.read_exact(&mut self.body)?;
        if crc32fast::hash(&self.body) != u32::from_le_bytes(read(self.input)?) {
            return Err(self.damaged("the checksum is wrong".into()));
        }
        let record = postcard::from_bytes(&self.body).map_err(|e| self.damaged(e.to_string()))?;
        self.index += 1;
        Ok(Some(record))
    }

    /// All remaining records.
    ///
    /// # Errors
    /// When one of them is damaged or the stream is cut.
    pub fn records<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, StateError> {
        let mut records = Vec::new();
        while let Some(record) = self.record()? {
            records.push(record);
        }
        Ok(records)
    }

    /// Checks that no record follows; returns 0, the number taken over.
    ///
    /// # Errors
    /// When there is one, for an NF that keeps no state.
    pub fn expect_end(&mut self) -> Result<usize, StateError> {
        let length = u32::from_le_bytes(read(self.input)?);
        if length != END {
            return Err(self.damaged("this NF keeps no state".into()));
        }
        self.ended = true;
        Ok(0)
    }

    fn damaged(&self, what: String) -> StateError {
        StateError::Record { index: self.index, what }
    }
}

fn read<const N: usize>(input: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = StateWriter::new(&mut bytes, "nat", 3).unwrap();
        writer.record(&(1u32, "one".to_owned())).unwrap();
        writer.record(&(2u32, "two".to_owned())).unwrap();
        assert_eq!(writer.finish().unwrap(), 2);
        bytes
    }

    fn read_all(mut bytes: &[u8]) -> Result<Vec<(u32, String)>, StateError> {
        StateReader::new(&mut bytes, "nat", 3)?.records()
    }

    #[test]
    fn records_come_back_as_written() {
        assert_eq!(read_all(&stream()).unwrap(), [(1, "one".into()), (2, "two".into())]);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_refused() {
        let good = stream();
        for cut in 0..good.len() {
            assert!(read_all(&good[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read_all(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_kind_or_version_is_named() {
        let bytes = stream();
        let error = StateReader::new(&mut &bytes[..], "nat", 4).err().unwrap().to_string();
        assert_eq!(error, "state of 'nat' version 3, expected 'nat' version 4");
    }
}
