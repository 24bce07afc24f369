//! Receiving into frames, and sending out of them: as a client whose memory is the pool's.
//!
//! The peer can write to a frame at any time, also while its packet is processed: only a peer that is
//! trusted as this program is has frames. What it writes into a ring is checked nevertheless, so that
//! its mistakes end the connection and not this program.

use std::collections::VecDeque;

use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, Batch, DropReason, Frame, HEADROOM, Pool};

use super::Fault;
use super::loans::Loans;
use super::receiver::{Receiver, Sink};
use super::sender::{Put, Sender};
use super::shared::{Channel, Part};
use crate::intake::Taken;

/// Frames that are offered at once: fewer would take the lock of the pool too often.
const REFILL: usize = BATCH;

impl Receiver {
    /// Takes out packets with their frames, and offers others in their place.
    pub(super) fn receive_frames(
        &mut self,
        channel: &Channel,
        loans: &Loans,
        sink: &mut Sink<'_>,
    ) -> Result<(), Fault> {
        let available = self.available(channel)?;
        let mut frames = loans.frames();
        self.parts.clear();
        let (start, mut taken) = (self.position, 0);
        let outcome = loop {
            if taken >= usize::from(available) || !sink.has_room() {
                break Ok(true);
            }
            match self.find_end(channel, taken, available) {
                Ok(Some(end)) => {
                    self.deliver(loans.pool(), &mut frames, taken..end, sink);
                    taken = end;
                }
                Ok(None) => break Ok(false),
                Err(fault) => break Err(fault),
            }
        };
        self.position = start.wrapping_add(taken as u16);
        channel.set_position(self.position);
        let is_full = frames.len() + REFILL > usize::from(channel.ring.slots());
        self.offer(channel, loans, &mut frames);
        if !self.spare.is_empty() {
            loans.pool().give_back(self.spare.drain(..));
        }
        // A packet that has all frames, and no end, has none later either.
        match outcome {
            Ok(false) if taken == 0 && self.parts.len() == frames.len() && is_full => {
                Err(Receiver::endless())
            }
            outcome => outcome.map(drop),
        }
    }

    /// Puts a packet into the batch in the frame of its first part. The bytes of other parts are copied
    /// to its end.
    #[inline]
    fn deliver(
        &mut self,
        pool: &Pool,
        frames: &mut VecDeque<Frame>,
        parts: std::ops::Range<usize>,
        sink: &mut Sink<'_>,
    ) {
        let parts = &self.parts[parts];
        let measures = sink.measure(parts);
        let mut frame = frames.pop_front();
        if parts.len() > 1 && measures.len <= sink.batch.capacity() {
            let mut end = HEADROOM + parts[0].len;
            for (part, next) in parts[1..].iter().zip(frames.iter()) {
                let bytes = &pool.bytes(next)[HEADROOM..HEADROOM + part.len];
                let first = frame.as_mut().expect("a descriptor that is filled has a frame");
                pool.bytes_mut(first)[end..end + part.len].copy_from_slice(bytes);
                end += part.len;
            }
            self.copied += 1;
        }
        self.spare.extend(frames.drain(..parts.len() - 1));
        if measures.len < header_len::ETHERNET {
            sink.refuse(measures);
        } else {
            let push = |batch: &mut Batch| {
                let packet = pool.packet(frame.take()?, HEADROOM, measures.len);
                let packet = packet.expect("the frame has the packet");
                Some(batch.push(packet).expect("the batch has an empty lane"))
            };
            let Sink { batch, drops, received, intake, .. } = sink;
            let taken = intake.take_by(push, measures, batch, drops, received);
            debug_assert_eq!(taken, Taken::Settled, "it needs no other frame");
        }
        self.spare.extend(frame);
    }

    /// Offers frames in the free slots of a ring, if its buffers are frames.
    pub(super) fn replenish(&mut self, channel: &Channel) {
        if let Some(loans) = channel.loans() {
            self.offer(channel, loans, &mut loans.frames());
        }
    }

    /// Offers frames in the free slots: those that came back without a packet, and others of the pool.
    fn offer(&mut self, channel: &Channel, loans: &Loans, frames: &mut VecDeque<Frame>) {
        let (slots, before) = (usize::from(channel.ring.slots()), frames.len());
        let free = slots - before;
        if free < REFILL.min(slots / 2) {
            return;
        }
        let pool = loans.pool();
        let of_spare = self.spare.len().min(free);
        frames.extend(self.spare.drain(..of_spare));
        pool.take_many(free - of_spare, |frame| frames.push_back(frame));
        let mut position = self.position.wrapping_add(before as u16);
        for frame in frames.range(before..) {
            let offset = pool.offset_of(frame) + HEADROOM;
            channel.describe(position, Part::of_frame(offset, loans.room()));
            position = position.wrapping_add(1);
        }
        channel.ring.set_head(position);
    }
}

impl Sender {
    /// Returns the frames that the peer has read to the pool.
    ///
    /// # Errors
    /// If it claims to have read more than there are.
    #[inline]
    pub(super) fn reap(
        &mut self,
        channel: &Channel,
        loans: &Loans,
        frames: &mut VecDeque<Frame>,
    ) -> Result<(), Fault> {
        let first = self.position.wrapping_sub(frames.len() as u16);
        let read = usize::from(channel.ring.tail().wrapping_sub(first));
        if read > frames.len() {
            let what = format!("{read} packets taken out of a ring with {}", frames.len());
            return Err(Fault::new(what));
        }
        if read > 0 {
            loans.pool().give_back(frames.drain(..read));
        }
        Ok(())
    }

    /// Puts the packet of a lane into the ring: its frame itself, which leaves its lane empty.
    pub(super) fn put_frame(
        &mut self,
        channel: &Channel,
        loans: &Loans,
        batch: &mut Batch,
        lane: usize,
    ) -> Result<Put, Fault> {
        let mut frames = loans.frames();
        if !self.has_slot(channel, loans, &mut frames)? {
            return Ok(Put::Full);
        }
        let pool = loans.pool();
        let Some(packet) = batch.take(lane) else { return Ok(Put::Refused(DropReason::Malformed)) };
        let (place, len) = (packet.offset(), packet.len());
        let frame = packet.into_frame();
        if pool.locate(pool.offset_of(&frame)).is_some() {
            self.lend(channel, pool, &mut frames, frame, place, len);
            return Ok(Put::Done);
        }
        // A packet that has become short in a large frame.
        let fits = len <= loans.room();
        let copied = fits.then(|| copy(pool, &pool.bytes(&frame)[place..place + len]));
        pool.give_back([frame]);
        let Some(copied) = copied else { return Ok(Put::TooBig) };
        Ok(self.put_new(channel, pool, &mut frames, copied, len))
    }

    /// Puts a copy of a packet into the ring, in a frame of its own.
    pub(super) fn put_copy(
        &mut self,
        channel: &Channel,
        loans: &Loans,
        bytes: &[u8],
    ) -> Result<Put, Fault> {
        let mut frames = loans.frames();
        if !self.has_slot(channel, loans, &mut frames)? {
            return Ok(Put::Full);
        }
        if bytes.len() > loans.room() {
            return Ok(Put::TooBig);
        }
        let copied = copy(loans.pool(), bytes);
        Ok(self.put_new(channel, loans.pool(), &mut frames, copied, bytes.len()))
    }

    /// Whether the ring has an empty slot.
    #[inline]
    fn has_slot(
        &mut self,
        channel: &Channel,
        loans: &Loans,
        frames: &mut VecDeque<Frame>,
    ) -> Result<bool, Fault> {
        let slots = usize::from(channel.ring.slots());
        if frames.len() == slots {
            self.reap(channel, loans, frames)?;
        }
        Ok(frames.len() < slots)
    }

    fn put_new(
        &mut self,
        channel: &Channel,
        pool: &Pool,
        frames: &mut VecDeque<Frame>,
        frame: Option<Frame>,
        len: usize,
    ) -> Put {
        let Some(frame) = frame else { return Put::Refused(DropReason::PoolExhausted) };
        self.copied += 1;
        self.lend(channel, pool, frames, frame, HEADROOM, len);
        Put::Done
    }

    /// Lends a frame with a packet to the peer; there must be an empty slot.
    #[inline]
    fn lend(
        &mut self,
        channel: &Channel,
        pool: &Pool,
        frames: &mut VecDeque<Frame>,
        frame: Frame,
        place: usize,
        len: usize,
    ) {
        let offset = pool.offset_of(&frame) + place;
        channel.describe(self.position, Part::of_frame(offset, len));
        self.position = self.position.wrapping_add(1);
        frames.push_back(frame);
    }
}

/// A new frame with a packet, which fits in one, at its usual place; `None` if there is no frame.
fn copy(pool: &Pool, bytes: &[u8]) -> Option<Frame> {
    let mut frame = pool.take()?;
    pool.bytes_mut(&mut frame)[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    Some(frame)
}
