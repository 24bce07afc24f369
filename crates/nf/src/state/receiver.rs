//! Receiving a state stream that may be interrupted.

use std::io::Read;

use super::header::{Header, length_of};
use super::{END, Mark, StateError, StateReader, read_frame};

/// Receives a stream, in any number of pieces, and delivers it to an NF when it is complete.
#[derive(Debug)]
pub struct StateReceiver {
    kind: String,
    version: u16,
    /// That of the first piece.
    header: Option<Header>,
    /// The records so far, as they came.
    records: Vec<u8>,
    mark: Mark,
    is_whole: bool,
}

impl StateReceiver {
    /// For a stream of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When `kind` is not the name of a kind.
    pub fn new(kind: &str, version: u16) -> Result<Self, StateError> {
        length_of(kind)?;
        let (kind, records, mark) = (kind.to_owned(), Vec::new(), Mark::default());
        Ok(Self { kind, version, header: None, records, mark, is_whole: false })
    }

    /// Receives the stream, or the rest of it after [`mark`](Self::mark), until its end.
    ///
    /// # Errors
    /// When it is truncated, damaged or another. The records that arrived complete are kept.
    pub fn receive(&mut self, input: &mut dyn Read) -> Result<(), StateError> {
        let header = Header::read(input, &self.kind, self.version)?;
        if header.from != self.mark {
            let (expected, found) = (header.from.records, self.mark.records);
            return Err(StateError::Mark { expected, found });
        }
        let first = *self.header.get_or_insert(header);
        if header.format != first.format {
            return Err(StateError::Format { found: header.format });
        }
        let mut body = Vec::new();
        while !self.is_whole {
            if let Some(checksum) = read_frame(input, &mut self.mark, &mut body)? {
                self.records.extend((body.len() as u32).to_le_bytes());
                self.records.extend(&body);
                self.records.extend(checksum.to_le_bytes());
            } else {
                self.records.extend(END.to_le_bytes());
                self.mark.write(&mut self.records)?;
                self.is_whole = true;
            }
        }
        Ok(())
    }

    /// The position reached in the stream: where the sender resumes.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Passes the stream to `import`, such as an NF's `import_state`.
    ///
    /// # Errors
    /// Those of `import`, and when the stream is not complete.
    pub fn deliver<R>(
        &self,
        import: impl FnOnce(&mut StateReader<'_>) -> Result<R, StateError>,
    ) -> Result<R, StateError> {
        let mut header = Vec::new();
        let first = self.header.unwrap_or_else(|| Header::new(Mark::default()));
        Header { from: Mark::default(), ..first }.write(&mut header, &self.kind, self.version)?;
        let mut stream = header.as_slice().chain(&self.records[..]);
        import(&mut StateReader::new(&mut stream, &self.kind, self.version)?)
    }
}
