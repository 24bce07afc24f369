//! Writing a state stream.

use std::io::Write;

use serde::Serialize;
use thalweg_packet::FiveTuple;

use super::{END, FlowFilter, MAX_RECORD, Mark, StateError, write_header};

/// The size of a record's length in bytes.
const LENGTH: usize = size_of::<u32>();

/// Writes the records of one NF's state.
pub struct StateWriter<'a> {
    out: &'a mut dyn Write,
    filter: Option<FlowFilter>,
    /// Where the stream resumes.
    from: Mark,
    mark: Mark,
    /// The current record, with its length and its checksum; reused.
    framed: Vec<u8>,
}

impl<'a> StateWriter<'a> {
    /// Begins a stream of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn new(out: &'a mut dyn Write, kind: &str, version: u16) -> Result<Self, StateError> {
        Self::resume(out, kind, version, Mark::default())
    }

    /// Resumes a stream that was interrupted at `mark`: skips the records before it. They must be
    /// the same as before: their NF must not have processed anything since.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn resume(
        out: &'a mut dyn Write,
        kind: &str,
        version: u16,
        mark: Mark,
    ) -> Result<Self, StateError> {
        write_header(out, kind, version, mark)?;
        Ok(Self { out, filter: None, from: mark, mark: Mark::default(), framed: Vec::new() })
    }

    /// Writes only flows that match `filter`.
    #[must_use]
    pub fn only(self, filter: FlowFilter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Appends the record of `flows`: of one, of several that share it, or of none, which no filter
    /// matches.
    ///
    /// # Errors
    /// When the record cannot be encoded or written, or the records so far differ from those before
    /// the mark to resume at.
    pub fn record<T: Serialize>(
        &mut self,
        flows: impl IntoIterator<Item = FiveTuple>,
        record: &T,
    ) -> Result<(), StateError> {
        let has = |filter: FlowFilter| flows.into_iter().any(|flow| filter.has(&flow));
        if !self.filter.is_none_or(has) {
            return Ok(());
        }
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        framed.extend([0; LENGTH]);
        framed = postcard::to_extend(record, framed).map_err(|e| self.refuse(e.to_string()))?;
        let size = framed.len() - LENGTH;
        let length = u32::try_from(size).ok().filter(|l| *l <= MAX_RECORD);
        let length =
            length.ok_or_else(|| self.refuse(format!("{size} bytes exceed {MAX_RECORD}")))?;
        framed[..LENGTH].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&framed[LENGTH..]);
        framed.extend(checksum.to_le_bytes());
        if self.mark.records >= self.from.records {
            self.check_mark()?;
            self.out.write_all(&framed)?;
        }
        self.mark.pass(checksum);
        self.framed = framed;
        Ok(())
    }

    /// Ends the stream; returns the number of its records, skipped ones included.
    ///
    /// # Errors
    /// When `out` fails, or the records differ from those before the mark to resume at.
    pub fn finish(self) -> Result<u64, StateError> {
        self.check_mark()?;
        self.out.write_all(&END.to_le_bytes())?;
        self.mark.write(self.out)?;
        self.out.flush()?;
        Ok(self.mark.records)
    }

    /// Checks that the skipped records are those before the mark.
    fn check_mark(&self) -> Result<(), StateError> {
        let (from, mark) = (self.from, self.mark);
        if mark.records < from.records || (mark.records == from.records && mark != from) {
            return Err(StateError::Mark { expected: from.records, found: mark.records });
        }
        Ok(())
    }

    fn refuse(&self, what: String) -> StateError {
        StateError::Record { index: self.mark.records as usize, what }
    }
}
