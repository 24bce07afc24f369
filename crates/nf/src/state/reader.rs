//! Reading a state stream.

use std::io::{self, Read};

use serde::de::DeserializeOwned;

use super::{Mark, StateError, read_frame, read_header};

/// Reads the records of one NF's state.
pub struct StateReader<'a> {
    input: &'a mut dyn Read,
    mark: Mark,
    ended: bool,
    /// The current record; reused.
    body: Vec<u8>,
}

impl<'a> StateReader<'a> {
    /// Opens a stream that must be of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When it is another kind of stream, or resumes another.
    pub fn new(input: &'a mut dyn Read, kind: &str, version: u16) -> Result<Self, StateError> {
        let from = read_header(input, kind, version)?;
        if from != Mark::default() {
            return Err(StateError::Mark { expected: from.records, found: 0 });
        }
        Ok(Self { input, mark: from, ended: false, body: Vec::new() })
    }

    /// The next record, or `None` after the last.
    ///
    /// # Errors
    /// When the record is damaged or the stream is truncated.
    pub fn record<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StateError> {
        if self.ended {
            return Ok(None);
        }
        let index = self.mark.records as usize;
        if read_frame(self.input, &mut self.mark, &mut self.body)?.is_none() {
            self.ended = true;
            return Ok(None);
        }
        let record = postcard::from_bytes(&self.body);
        record.map(Some).map_err(|e| StateError::Record { index, what: e.to_string() })
    }

    /// All remaining records.
    ///
    /// # Errors
    /// When one of them is damaged or the stream is truncated.
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
        let index = self.mark.records as usize;
        if !self.ended && read_frame(self.input, &mut self.mark, &mut self.body)?.is_some() {
            return Err(StateError::Record { index, what: "this NF keeps no state".into() });
        }
        self.ended = true;
        Ok(0)
    }

    /// Checks that nothing follows the stream, for a file that holds one stream.
    ///
    /// # Errors
    /// When more bytes follow.
    pub fn finish(self) -> Result<(), StateError> {
        match self.input.read_exact(&mut [0]) {
            Ok(()) => Err(StateError::Trailing),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
