//! Takes packets out of a ring.

use thalweg_packet::wire::header_len;
use thalweg_packet::{Batch, DropCounts, DropReason, Nanoseconds};

use super::Fault;
use super::shared::{Channel, Part};
use crate::intake::{Intake, Measures, Taken, count};
use crate::port::Received;

/// The receiving end of a ring.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The position after the packets that were taken out.
    position: u16,
    /// The parts of the packet in turn: memory for as many as the ring has.
    parts: Vec<Part>,
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

impl Receiver {
    /// Begins to receive, or goes on.
    pub(super) fn new(channel: &Channel) -> Self {
        let parts = Vec::with_capacity(usize::from(channel.ring.slots()));
        Self { position: channel.position(), parts }
    }

    /// How many descriptors the peer has filled.
    pub(super) fn available(&self, channel: &Channel) -> Result<u16, Fault> {
        let ring = &channel.ring;
        let end = if channel.is_own() { ring.tail() } else { ring.head() };
        let available = end.wrapping_sub(self.position);
        if available > ring.slots() {
            let what = format!("{available} filled descriptors in a ring of {}", ring.slots());
            return Err(Fault::new(what));
        }
        Ok(available)
    }

    /// Takes out packets, as many as there are and fit.
    pub(super) fn receive(&mut self, channel: &Channel, sink: &mut Sink<'_>) -> Result<(), Fault> {
        let available = self.available(channel)?;
        let mut taken = 0;
        let mut outcome = Ok(());
        while taken < available && sink.received.packets < sink.most && !sink.batch.is_full() {
            let start = self.position.wrapping_add(taken);
            match self.gather(channel, start, available - taken) {
                Ok(Some(len)) => {
                    if self.take(channel, len, sink) == Taken::Later {
                        break;
                    }
                    self.unchain(channel, start);
                    taken += self.parts.len() as u16;
                }
                Ok(None) if available < channel.ring.slots() || taken > 0 => break,
                Ok(None) => {
                    outcome = Err(Fault::new("a ring full of one packet without end"));
                    break;
                }
                Err(fault) => {
                    outcome = Err(fault);
                    break;
                }
            }
        }
        if taken > 0 {
            self.release(channel, taken);
        }
        outcome
    }

    /// Finds the parts of the packet that begins at `start`, among `most` descriptors; returns its
    /// length. `None` if its end is not there yet.
    #[inline]
    fn gather(&mut self, channel: &Channel, start: u16, most: u16) -> Result<Option<u64>, Fault> {
        self.parts.clear();
        let mut len = 0;
        for at in 0..most {
            let part = channel.part(start.wrapping_add(at))?;
            len += part.len as u64;
            self.parts.push(part);
            if !part.continues {
                return Ok(Some(len));
            }
        }
        Ok(None)
    }

    /// Copies the packet that was found into the batch, or counts why not.
    #[inline]
    fn take(&self, channel: &Channel, len: u64, sink: &mut Sink<'_>) -> Taken {
        let wire_len = u32::try_from(len).unwrap_or(u32::MAX);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len < header_len::ETHERNET {
            sink.drops.add(DropReason::Malformed, 1);
            count(sink.received, wire_len);
            return Taken::Settled;
        }
        let push = |batch: &mut Batch| {
            let lane = batch.push_blank(len)?;
            let mut rest = batch.bytes_mut(lane);
            for part in &self.parts {
                let (place, after) = rest.split_at_mut(part.len);
                channel.read(*part, place);
                rest = after;
            }
            Some(lane)
        };
        let Sink { batch, drops, received, intake, now, .. } = sink;
        let measures = Measures { len, wire_len, timestamp: *now };
        intake.take_by(push, measures, batch, drops, received)
    }

    /// Takes the mark of a chain from its descriptors: DPDK's sender sets it and never clears it.
    fn unchain(&self, channel: &Channel, start: u16) {
        if channel.is_own() {
            return; // they are written anew
        }
        for at in (0..self.parts.len() as u16).filter(|at| self.parts[usize::from(*at)].continues) {
            channel.ring.unchain(start.wrapping_add(at));
        }
    }

    /// Gives descriptors back to the peer.
    fn release(&mut self, channel: &Channel, taken: u16) {
        let ring = &channel.ring;
        let end = self.position.wrapping_add(taken);
        if channel.is_own() {
            (0..taken).for_each(|at| channel.empty(self.position.wrapping_add(at)));
            ring.set_head(end.wrapping_add(ring.slots()));
        } else {
            ring.set_tail(end);
        }
        self.position = end;
        channel.set_position(end);
    }
}
