//! Receiving a state stream that may be interrupted.

use std::io::Read;

use super::{END, Mark, StateError, StateReader, read_frame, read_header, write_header};

/// Receives a stream, in any number of pieces, and delivers it to an NF when it is complete.
#[derive(Debug)]
pub struct StateReceiver {
    kind: String,
    version: u16,
    /// The stream so far, without its end.
    stream: Vec<u8>,
    mark: Mark,
    is_whole: bool,
}

impl StateReceiver {
    /// For a stream of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When `kind` is not the name of a kind.
    pub fn new(kind: &str, version: u16) -> Result<Self, StateError> {
        let mut stream = Vec::new();
        write_header(&mut stream, kind, version, Mark::default())?;
        let (kind, mark) = (kind.to_owned(), Mark::default());
        Ok(Self { kind, version, stream, mark, is_whole: false })
    }

    /// Receives the stream, or the rest of it after [`mark`](Self::mark), until its end.
    ///
    /// # Errors
    /// When it is truncated, damaged or another. The records that arrived complete are kept.
    pub fn receive(&mut self, input: &mut dyn Read) -> Result<(), StateError> {
        let from = read_header(input, &self.kind, self.version)?;
        if from != self.mark {
            let (expected, found) = (from.records, self.mark.records);
            return Err(StateError::Mark { expected, found });
        }
        let mut body = Vec::new();
        while !self.is_whole {
            if let Some(checksum) = read_frame(input, &mut self.mark, &mut body)? {
                self.stream.extend((body.len() as u32).to_le_bytes());
                self.stream.extend(&body);
                self.stream.extend(checksum.to_le_bytes());
            } else {
                self.stream.extend(END.to_le_bytes());
                self.mark.write(&mut self.stream)?;
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
        let mut stream = &self.stream[..];
        import(&mut StateReader::new(&mut stream, &self.kind, self.version)?)
    }
}
