//! Writing a state stream.

use std::io::Write;

use serde::Serialize;
use thalweg_packet::{FiveTuple, Nanoseconds};

use super::header::{Header, length_of};
use super::selection::Selection;
use super::{END, FlowFilter, MAX_RECORD, Mark, StateError, names};
use crate::steering::Buckets;

/// The size of a record's length in bytes.
const LENGTH: usize = size_of::<u32>();

/// Writes the records of one NF's state.
pub struct StateWriter<'a> {
    out: &'a mut dyn Write,
    kind: String,
    version: u16,
    /// Where the stream resumes, among others.
    header: Header,
    /// Whether the header was written: with the first record, so that the NF may complete it.
    begun: bool,
    selection: Selection,
    mark: Mark,
    /// The current record, with its length and its checksum, and its flows; reused.
    framed: Vec<u8>,
    flows: Vec<FiveTuple>,
}

impl<'a> StateWriter<'a> {
    /// Begins a stream of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When `kind` is not the name of a kind.
    pub fn new(out: &'a mut dyn Write, kind: &str, version: u16) -> Result<Self, StateError> {
        Self::resume(out, kind, version, Mark::default())
    }

    /// Resumes a stream that was interrupted at `mark`: skips the records before it. They must be
    /// the same as before: their NF must not have processed anything since.
    ///
    /// # Errors
    /// When `kind` is not the name of a kind.
    pub fn resume(
        out: &'a mut dyn Write,
        kind: &str,
        version: u16,
        mark: Mark,
    ) -> Result<Self, StateError> {
        length_of(kind)?;
        Ok(Self {
            out,
            kind: kind.to_owned(),
            version,
            header: Header::new(mark),
            begun: false,
            selection: Selection::default(),
            mark: Mark::default(),
            framed: Vec::new(),
            flows: Vec::new(),
        })
    }

    /// Writes only flows that match `filter`.
    #[must_use]
    pub fn only(mut self, filter: FlowFilter) -> Self {
        self.selection.filter = Some(filter);
        self
    }

    /// Writes only records of some buckets.
    #[must_use]
    pub fn within(mut self, buckets: Buckets) -> Self {
        self.selection.buckets = Some(buckets);
        self
    }

    /// Reports the packet time that the NF has reached, so that a receiver with another clock can
    /// compare the two.
    #[must_use]
    pub fn at(mut self, clock: Nanoseconds) -> Self {
        self.header.clock = clock;
        self
    }

    /// Reports about how many records follow, in this stream and in those after it, so that the
    /// receiver makes room once. The first number counts, and none after the first record.
    pub fn expect(&mut self, records: usize) {
        if self.header.expected == 0 {
            self.header.expected = records as u64;
        }
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
        self.flows.clear();
        self.flows.extend(flows);
        if !self.selection.has(&self.flows) {
            return Ok(());
        }
        self.begin()?;
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        framed.extend([0; LENGTH]);
        let named = names::append(&self.flows, framed);
        let whole = named.and_then(|framed| postcard::to_extend(record, framed));
        framed = whole.map_err(|e| self.refuse(e.to_string()))?;
        let size = framed.len() - LENGTH;
        let length = u32::try_from(size).ok().filter(|l| *l <= MAX_RECORD);
        let length =
            length.ok_or_else(|| self.refuse(format!("{size} bytes exceed {MAX_RECORD}")))?;
        framed[..LENGTH].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&framed[LENGTH..]);
        framed.extend(checksum.to_le_bytes());
        if self.mark.records >= self.header.from.records {
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
    pub fn finish(mut self) -> Result<u64, StateError> {
        self.begin()?;
        self.check_mark()?;
        self.out.write_all(&END.to_le_bytes())?;
        self.mark.write(self.out)?;
        self.out.flush()?;
        Ok(self.mark.records)
    }

    /// Writes the header, once.
    fn begin(&mut self) -> Result<(), StateError> {
        if !self.begun {
            self.header.write(self.out, &self.kind, self.version)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Checks that the skipped records are those before the mark.
    fn check_mark(&self) -> Result<(), StateError> {
        let (from, mark) = (self.header.from, self.mark);
        if mark.records < from.records || (mark.records == from.records && mark != from) {
            return Err(StateError::Mark { expected: from.records, found: mark.records });
        }
        Ok(())
    }

    fn refuse(&self, what: String) -> StateError {
        StateError::Record { index: self.mark.records as usize, what }
    }
}
