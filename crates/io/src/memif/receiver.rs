//! Takes packets out of a ring.

use std::ops::Range;

use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Frame, Nanoseconds};

use super::Fault;
use super::shared::{Channel, Part};
use crate::intake::{Intake, Measures, Taken, count};
use crate::port::Received;

/// The receiving end of a ring.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The position after the packets that were taken out.
    pub(super) position: u16,
    /// The parts of the packets in turn: memory for as many as the ring has.
    pub(super) parts: Vec<Part>,
    /// Frames that came back without a packet, to be offered again.
    pub(super) spare: Vec<Frame>,
    /// The packets whose bytes were copied since its owner has counted them.
    pub(super) copied: u64,
}

/// Where packets go.
pub(super) struct Sink<'a> {
    pub(super) batch: &'a mut Batch,
    pub(super) drops: &'a mut DropCounts,
    pub(super) received: &'a mut Received,
    pub(super) intake: &'a mut Intake,
    /// The most packets of `received`.
    pub(super) most: usize,
    pub(super) now: Nanoseconds,
}

impl Sink<'_> {
    /// The most packets that it takes further.
    #[inline]
    pub(super) fn room(&self) -> u16 {
        self.most.saturating_sub(self.received.packets).min(BATCH - self.batch.len()) as u16
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// What is known of a packet of these parts.
    #[inline]
    pub(super) fn measure(&self, parts: &[Part]) -> Measures {
        let len: u64 = parts.iter().map(|part| part.len as u64).sum();
        let wire_len = u32::try_from(len).unwrap_or(u32::MAX);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Measures { len, wire_len, timestamp: self.now }
    }

    /// Drops a packet that is shorter than an Ethernet header.
    #[cold]
    pub(super) fn refuse(&mut self, measures: Measures) -> Taken {
        self.drops.add(DropReason::Malformed, 1);
        count(self.received, measures.wire_len);
        Taken::Settled
    }
}

impl Receiver {
    /// Begins to receive, or goes on.
    pub(super) fn new(channel: &Channel) -> Self {
        let parts = Vec::with_capacity(usize::from(channel.ring.slots()));
        Self { position: channel.position(), parts, spare: Vec::new(), copied: 0 }
    }

    /// How many descriptors the peer has filled.
    #[inline]
    pub(super) fn available(&self, channel: &Channel) -> Result<u16, Fault> {
        let ring = &channel.ring;
        let end = if channel.is_own() { ring.tail() } else { ring.head() };
        let available = end.wrapping_sub(self.position);
        let most = match channel.loans() {
            Some(loans) => loans.frames().len() as u16,
            None => ring.slots(),
        };
        if available > most { Err(overfull(available, most)) } else { Ok(available) }
    }

    /// Takes out packets, as many as there are and fit.
    pub(super) fn receive(&mut self, channel: &Channel, sink: &mut Sink<'_>) -> Result<(), Fault> {
        if let Some(loans) = channel.loans() {
            return self.receive_frames(channel, loans, sink);
        }
        let available = self.available(channel)?;
        let outcome = self.read_ahead(channel, available, sink);
        let mut taken = 0;
        let outcome = loop {
            if taken >= self.parts.len() || !sink.has_room() {
                break outcome;
            }
            match self.find_end(channel, taken, available) {
                Ok(Some(end)) => {
                    if self.take(channel, taken..end, sink) == Taken::Later {
                        break outcome;
                    }
                    taken = end;
                }
                // What comes after a fault is not looked at, and what is not complete may be later.
                Ok(None) => break outcome.and_then(|()| self.may_end(channel, taken)),
                Err(fault) => break Err(fault),
            }
        };
        if taken > 0 {
            self.release(channel, taken);
        }
        outcome
    }

    /// Reads the descriptors of as many packets as fit in the batch, each once, if they have one each;
    /// and begins to bring the packets into the cache.
    #[inline]
    fn read_ahead(
        &mut self,
        channel: &Channel,
        available: u16,
        sink: &Sink<'_>,
    ) -> Result<(), Fault> {
        self.parts.clear();
        for at in 0..available.min(sink.room()) {
            let part = channel.part(self.position.wrapping_add(at))?;
            channel.prefetch(part);
            self.parts.push(part);
        }
        Ok(())
    }

    /// The number of the descriptor after those of the packet that begins at number `start`; reads
    /// further ones for it. `None` if its end is not there.
    #[inline]
    pub(super) fn find_end(
        &mut self,
        channel: &Channel,
        start: usize,
        available: u16,
    ) -> Result<Option<usize>, Fault> {
        let mut at = start;
        loop {
            let part = match self.parts.get(at) {
                Some(part) => *part,
                None if at < usize::from(available) => {
                    let part = channel.part(self.position.wrapping_add(at as u16))?;
                    self.parts.push(part);
                    part
                }
                None => return Ok(None),
            };
            at += 1;
            if !part.continues {
                return Ok(Some(at));
            }
        }
    }

    /// Whether the packet that begins at number `start` may have its end later: not if it has the whole
    /// ring.
    fn may_end(&self, channel: &Channel, start: usize) -> Result<(), Fault> {
        let is_whole = start == 0 && self.parts.len() >= usize::from(channel.ring.slots());
        if is_whole { Err(Self::endless()) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn endless() -> Fault {
        Fault::new("a ring full of one packet without end")
    }

    /// Copies the packet of these parts into the batch, or counts why not.
    #[inline]
    fn take(&mut self, channel: &Channel, parts: Range<usize>, sink: &mut Sink<'_>) -> Taken {
        let parts = &self.parts[parts];
        let measures = sink.measure(parts);
        if measures.len < header_len::ETHERNET {
            return sink.refuse(measures);
        }
        let push = |batch: &mut Batch| {
            let lane = batch.push_blank(measures.len)?;
            let mut rest = batch.bytes_mut(lane);
            for part in parts {
                let (place, after) = rest.split_at_mut(part.len);
                channel.read(*part, place);
                rest = after;
            }
            Some(lane)
        };
        let Sink { batch, drops, received, intake, .. } = sink;
        let before = batch.len();
        let taken = intake.take_by(push, measures, batch, drops, received);
        self.copied += (batch.len() - before) as u64;
        taken
    }

    /// Gives the first `taken` descriptors that were read back to the peer. Takes the mark of a chain
    /// from its descriptors: DPDK's sender sets it and never clears it.
    fn release(&mut self, channel: &Channel, taken: usize) {
        let (ring, start) = (&channel.ring, self.position);
        self.position = start.wrapping_add(taken as u16);
        if channel.is_own() {
            (0..taken).for_each(|at| channel.empty(start.wrapping_add(at as u16)));
            ring.set_head(self.position.wrapping_add(ring.slots()));
        } else {
            for (at, part) in (0..).zip(&self.parts[..taken]) {
                if part.continues {
                    ring.unchain(start.wrapping_add(at));
                }
            }
            ring.set_tail(self.position);
        }
        channel.set_position(self.position);
    }
}

#[cold]
fn overfull(available: u16, most: u16) -> Fault {
    Fault::new(format!("{available} filled descriptors in a ring of {most}"))
}
