//! Puts packets of an input into a batch.

use std::time::{Duration, Instant};

use thalweg_packet::{Batch, DropCounts, DropReason, Nanoseconds};

use crate::claims::{Claims, Shared};
use crate::port::{Received, Shortfall};

/// The time for which an input waits for a frame before it drops packets. Packets in
/// flight free frames within microseconds; a second without a free one means that
/// they are all held, and then a run must continue rather than hang.
const PATIENCE: Duration = Duration::from_secs(1);

/// A packet that has arrived, in two parts, so that it is copied only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) header: &'a [u8],
    pub(crate) rest: &'a [u8],
    pub(crate) wire_len: u32,
    pub(crate) timestamp: Nanoseconds,
}

/// What is known of an arrival without its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measures {
    /// The bytes that have arrived.
    pub(crate) len: usize,
    pub(crate) wire_len: u32,
    pub(crate) timestamp: Nanoseconds,
}

impl Arrival<'_> {
    fn measures(&self) -> Measures {
        let len = self.header.len() + self.rest.len();
        Measures { len, wire_len: self.wire_len, timestamp: self.timestamp }
    }
}

/// The result of taking in an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is in the batch, or counted as dropped.
    Settled,
    /// No frame is free now: offer it again in the next call.
    Later,
}

/// Puts arrivals into batches and counts those that cannot be taken in.
///
/// Unlike a NIC, a file does not lose packets when the pool is empty for a moment:
/// the packet is held back.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    starved_since: Option<Instant>,
    shortfall: Shortfall,
    /// Packets that were put into batches, each by one copy unless the caller does without.
    taken: u64,
}

impl Intake {
    /// Takes in `arrival`; the batch must have an empty lane.
    #[inline]
    pub(crate) fn take(
        &mut self,
        arrival: Arrival<'_>,
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> Taken {
        let push = |batch: &mut Batch| push(&arrival, batch);
        self.take_by(push, arrival.measures(), batch, drops, received)
    }

    /// As [`take`](Self::take), but the bytes after the header, which are shared `from` a buffer, are
    /// left to be copied.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        arrival: Arrival<'_>,
        (from, claims): (Shared<'_>, &mut Claims),
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> Taken {
        let push = |batch: &mut Batch| {
            let lane = batch.push_blank(arrival.measures().len)?;
            if !arrival.header.is_empty() {
                batch.bytes_mut(lane)[..arrival.header.len()].copy_from_slice(arrival.header);
            }
            claims.add(lane, from, arrival.rest.len());
            Some(lane)
        };
        self.take_by(push, arrival.measures(), batch, drops, received)
    }

    /// Takes in an arrival by `push`, which copies it into the batch and returns its lane; `None` if
    /// there is no frame.
    #[inline]
    pub(crate) fn take_by(
        &mut self,
        push: impl FnOnce(&mut Batch) -> Option<usize>,
        Measures { len, wire_len, timestamp }: Measures,
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> Taken {
        if len > batch.capacity() {
            drops.add(DropReason::FrameTooSmall, 1);
            self.shortfall.longest = self.shortfall.longest.max(len);
        } else if let Some(lane) = push(batch) {
            if self.starved_since.is_some() {
                self.starved_since = None;
            }
            self.taken += 1;
            batch.meta.wire_len[lane] = wire_len;
            batch.meta.timestamp[lane] = timestamp;
        } else if self.is_worth_waiting(batch) {
            return Taken::Later;
        } else {
            drops.add(DropReason::PoolExhausted, 1);
        }
        count(received, wire_len);
        Taken::Settled
    }

    /// What kept arrivals from being taken in whole.
    pub(crate) fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    /// How many arrivals were put into batches.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Counts an arrival that its capture does not hold whole.
    #[inline]
    pub(crate) fn count_truncated(&mut self) {
        self.shortfall.truncated += 1;
    }

    fn is_worth_waiting(&mut self, batch: &Batch) -> bool {
        if !batch.is_empty() {
            return true; // the caller frees its packets
        }
        self.starved_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }
}

/// Copies a packet into a batch.
#[inline]
fn push(arrival: &Arrival<'_>, batch: &mut Batch) -> Option<usize> {
    if arrival.header.is_empty() {
        return batch.push_bytes(arrival.rest);
    }
    let lane = batch.push_blank(arrival.measures().len)?;
    let (header, rest) = batch.bytes_mut(lane).split_at_mut(arrival.header.len());
    header.copy_from_slice(arrival.header);
    rest.copy_from_slice(arrival.rest);
    Some(lane)
}

/// Counts a packet that arrived, whether it was taken in or dropped.
#[inline]
pub(crate) fn count(received: &mut Received, wire_len: u32) {
    received.packets += 1;
    received.bytes += u64::from(wire_len);
}
