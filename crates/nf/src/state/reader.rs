//! Reading a state stream.

use std::io::{self, Read};

use serde::de::DeserializeOwned;
use thalweg_packet::{FiveTuple, Nanoseconds};

use super::header::Header;
use super::selection::Selection;
use super::{FlowFilter, Mark, StateError, names, read_frame};
use crate::steering::Buckets;

/// Reads the records of one NF's state.
pub struct StateReader<'a> {
    input: &'a mut dyn Read,
    header: Header,
    mark: Mark,
    ended: bool,
    selection: Selection,
    /// The current record and its flows; reused.
    body: Vec<u8>,
    flows: Vec<FiveTuple>,
}

impl<'a> StateReader<'a> {
    /// Opens a stream that must be of NF `kind`, records of `version`.
    ///
    /// # Errors
    /// When it is another kind of stream, or resumes another.
    pub fn new(input: &'a mut dyn Read, kind: &str, version: u16) -> Result<Self, StateError> {
        let header = Header::read(input, kind, version)?;
        if header.from != Mark::default() {
            return Err(StateError::Mark { expected: header.from.records, found: 0 });
        }
        let (mark, selection) = (header.from, Selection::default());
        let (body, flows) = (Vec::new(), Vec::new());
        Ok(Self { input, header, mark, ended: false, selection, body, flows })
    }

    /// Reads only records of flows that match `filter`.
    ///
    /// # Errors
    /// When the records do not name their flows: those of format 2, which earlier versions wrote.
    pub fn only(mut self, filter: FlowFilter) -> Result<Self, StateError> {
        self.selection.filter = Some(filter);
        self.check_names().map(|()| self)
    }

    /// Reads only records of some buckets: the share of one of several owners.
    ///
    /// # Errors
    /// As [`only`](Self::only).
    pub fn within(mut self, buckets: Buckets) -> Result<Self, StateError> {
        self.selection.buckets = Some(buckets);
        self.check_names().map(|()| self)
    }

    fn check_names(&self) -> Result<(), StateError> {
        if self.header.has_names() { Ok(()) } else { Err(StateError::Nameless) }
    }

    /// The packet time that the exporting NF had reached, if known. Times in records are packet
    /// times too: a receiver whose packets go by another clock compares the two.
    pub fn clock(&self) -> Option<Nanoseconds> {
        Some(self.header.clock).filter(|clock| clock.0 != 0)
    }

    /// The number of records to make room for, in this stream and in those that follow it; 0 if
    /// unknown. It comes from the sender, so that a receiver applies its own limits to it.
    pub fn expected(&self) -> usize {
        usize::try_from(self.header.expected).unwrap_or(usize::MAX)
    }

    /// The flows of the record that was read last.
    ///
    /// # Errors
    /// When its names are damaged, or the stream's records do not name their flows.
    pub fn flows(&mut self) -> Result<&[FiveTuple], StateError> {
        self.check_names()?;
        let index = (self.mark.records as usize).saturating_sub(1);
        let damaged = |what| StateError::Record { index, what };
        let (names, _) = names::split(&self.body).unwrap_or_default();
        names::read(names, &mut self.flows).map_err(|e| damaged(e.to_string()))?;
        Ok(&self.flows)
    }

    /// The next record that is selected, or `None` after the last.
    ///
    /// # Errors
    /// When the record is damaged or the stream is truncated.
    pub fn record<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StateError> {
        loop {
            let index = self.mark.records as usize;
            if self.ended || read_frame(self.input, &mut self.mark, &mut self.body)?.is_none() {
                self.ended = true;
                return Ok(None);
            }
            if !self.selection.is_all() {
                self.flows()?;
                if !self.selection.has(&self.flows) {
                    continue;
                }
            }
            let damaged = |what| StateError::Record { index, what };
            let bytes = if self.header.has_names() {
                names::split(&self.body).map(|(_, bytes)| bytes)
            } else {
                Some(&self.body[..])
            };
            let bytes = bytes.ok_or_else(|| damaged("too short for its flows".into()))?;
            return postcard::from_bytes(bytes).map(Some).map_err(|e| damaged(e.to_string()));
        }
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
