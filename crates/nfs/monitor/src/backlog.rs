//! Records that have ended, and wait to be written in their order.
//!
//! A sweep or an export ends many flows. Collecting or writing all their records between two batches would
//! take too long. They come in over many batches, leave over many, and are in order meanwhile.

use std::collections::BTreeMap;

use thalweg_packet::Nanoseconds;

use super::record::{Counts, EndReason, FlowId, Record};

/// Where a record is in the order: its round; its first packet and its flow, so that files do not
/// depend on the order of a hash table; and its number, as a flow may end twice at one time.
type Place = (u64, Nanoseconds, FlowId, u64);

/// The records that wait.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    records: BTreeMap<Place, (Counts, EndReason)>,
    round: u64,
    number: u64,
}

impl Backlog {
    /// The bytes of `records` records: nodes of a tree have room for 11, and hold 7 on average.
    pub(super) fn bytes(records: usize) -> usize {
        records.div_ceil(7) * (11 * size_of::<(Place, Counts, EndReason)>() + 16)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether any record waits that is of this round or one before it.
    pub(super) fn has_any(&self, round: u64) -> bool {
        self.records.first_key_value().is_some_and(|(place, _)| place.0 <= round)
    }

    /// Begins a round, whose records follow those of the rounds before.
    pub(super) fn begin(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// Adds a record to a round.
    pub(super) fn add(&mut self, round: u64, Record { flow, counts, reason }: Record) {
        self.number += 1;
        self.records.insert((round, counts.first, flow, self.number), (counts, reason));
    }

    /// Moves the first `most` records to `out`, if they are of rounds before `until`.
    pub(super) fn take(&mut self, until: u64, most: usize, out: &mut Vec<Record>) {
        for _ in 0..most {
            let Some(first) = self.records.first_entry().filter(|first| first.key().0 < until)
            else {
                return;
            };
            let ((_, _, flow, _), (counts, reason)) = first.remove_entry();
            out.push(Record { flow, counts, reason });
        }
    }
}
