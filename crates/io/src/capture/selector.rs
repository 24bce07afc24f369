//! Which records of a capture are received.

use super::link::to_ethernet;
use super::record::Record;
use crate::selection::{PassedOver, Selection};

/// Applies a selection to records.
#[derive(Default)]
pub(crate) struct Selector {
    selection: Selection,
    /// A packet of another link type as Ethernet.
    converted: Vec<u8>,
}

impl Selector {
    pub(crate) fn new(selection: Selection) -> Self {
        Self { selection, converted: Vec::new() }
    }

    /// Whether a record, whose captured bytes are `data`, is selected; one that is not is counted.
    #[inline]
    pub(crate) fn takes(
        &mut self,
        record: &Record,
        data: &[u8],
        passed_over: &mut PassedOver,
    ) -> bool {
        if !self.selection.times.contains(record.timestamp) {
            passed_over.outside += 1;
            return false;
        }
        if !self.matches(record, data) {
            passed_over.filtered += 1;
            return false;
        }
        true
    }

    fn matches(&mut self, record: &Record, data: &[u8]) -> bool {
        let Some(filter) = &self.selection.filter else { return true };
        // One that cannot become Ethernet is received, so that its drop is reported.
        let Ok(converted) = to_ethernet(record.link, data) else { return true };
        let wire_len = converted.wire_len(record.wire_len);
        if converted.header().is_empty() {
            return filter.matches(converted.rest(data), wire_len);
        }
        self.converted.clear();
        self.converted.extend_from_slice(converted.header());
        self.converted.extend_from_slice(converted.rest(data));
        filter.matches(&self.converted, wire_len)
    }
}
