//! The header of a state stream.

use std::io::{Read, Write};

use thalweg_packet::Nanoseconds;

use super::{FORMAT, MAGIC, Mark, OLDEST_FORMAT, Place, StateError, fill, read};

/// What a stream reports ahead of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The version of the framing.
    pub(super) format: u16,
    /// Where the stream resumes.
    pub(super) from: Mark,
    /// The packet time that the exporting NF had reached; 0 if unknown.
    pub(super) clock: Nanoseconds,
    /// The number of records that follow, in this stream and in those after it; 0 if unknown.
    pub(super) expected: u64,
}

impl Header {
    /// The header of a stream that resumes at `from`, in the format of today.
    pub(super) fn new(from: Mark) -> Self {
        Self { format: FORMAT, from, clock: Nanoseconds(0), expected: 0 }
    }

    /// Whether records name their flows.
    pub(super) fn has_names(&self) -> bool {
        self.format > 2
    }

    /// Reads a header, which must be of NF `kind` and records of `version`.
    pub(super) fn read(input: &mut dyn Read, kind: &str, version: u16) -> Result<Self, StateError> {
        let place = Place::Header;
        if read::<4>(input, place)? != MAGIC {
            return Err(StateError::NotState);
        }
        let format = u16::from_le_bytes(read(input, place)?);
        if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
            return Err(StateError::Format { found: format });
        }
        let mut name = vec![0; read::<1>(input, place)?[0] as usize];
        fill(input, &mut name, place)?;
        let found_kind = String::from_utf8_lossy(&name).into_owned();
        let found = u16::from_le_bytes(read(input, place)?);
        if found_kind != kind || found != version {
            let kind = kind.to_owned();
            return Err(StateError::Kind { found_kind, found, kind, expected: version });
        }
        let mut header = Self { format, ..Self::new(Mark::read(input, place)?) };
        if header.has_names() {
            header.clock = Nanoseconds(u64::from_le_bytes(read(input, place)?));
            header.expected = u64::from_le_bytes(read(input, place)?);
            let checksum = crc32fast::hash(&header.bytes(kind, version)?);
            if checksum != u32::from_le_bytes(read(input, place)?) {
                return Err(StateError::Header);
            }
        }
        Ok(header)
    }

    /// Writes the header.
    pub(super) fn write(
        &self,
        out: &mut dyn Write,
        kind: &str,
        version: u16,
    ) -> Result<(), StateError> {
        let bytes = self.bytes(kind, version)?;
        out.write_all(&bytes)?;
        if self.has_names() {
            out.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
        }
        Ok(())
    }

    /// The header without its checksum.
    fn bytes(&self, kind: &str, version: u16) -> Result<Vec<u8>, StateError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.format.to_le_bytes());
        bytes.push(length_of(kind)?);
        bytes.extend(kind.as_bytes());
        bytes.extend(version.to_le_bytes());
        self.from.write(&mut bytes)?;
        if self.has_names() {
            bytes.extend(self.clock.0.to_le_bytes());
            bytes.extend(self.expected.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// The length of the name of a kind.
///
/// # Errors
/// When no kind has such a name.
pub(super) fn length_of(kind: &str) -> Result<u8, StateError> {
    let what = || "NF kind name too long".into();
    u8::try_from(kind.len()).map_err(|_| StateError::Record { index: 0, what: what() })
}
