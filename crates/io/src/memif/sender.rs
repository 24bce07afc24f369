//! Puts packets into a ring.

use thalweg_packet::DropReason;

use super::Fault;
use super::shared::{Channel, Part};

/// The sending end of a ring.
#[derive(Debug)]
pub(super) struct Sender {
    /// The position after the packets that were put there.
    pub(super) position: u16,
    /// Up to where the peer knows of them.
    published: u16,
    /// How many descriptors were free when the peer's index was last looked at, less those that were
    /// used since.
    free: u16,
    /// Buffers for the packet in turn: memory for as many as the ring has.
    parts: Vec<Part>,
    /// The packets whose bytes were copied since its owner has counted them.
    pub(super) copied: u64,
}

/// The result of putting a packet into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is there.
    Done,
    /// There is no room now.
    Full,
    /// There is never room.
    TooBig,
    /// It is to be dropped for a reason.
    Refused(DropReason),
}

impl Sender {
    pub(super) fn new(channel: &Channel) -> Self {
        let parts = Vec::with_capacity(usize::from(channel.ring.slots()));
        let position = channel.position();
        Self { position, published: position, free: 0, parts, copied: 0 }
    }

    /// Looks how many descriptors are free.
    fn look(&mut self, channel: &Channel) -> Result<(), Fault> {
        let (ring, slots) = (&channel.ring, channel.ring.slots());
        let free = if channel.is_own() {
            slots.wrapping_sub(self.position.wrapping_sub(ring.tail()))
        } else {
            ring.head().wrapping_sub(self.position)
        };
        if free > slots {
            return Err(Fault::new(format!("{free} free descriptors in a ring of {slots}")));
        }
        self.free = free;
        Ok(())
    }

    /// Copies a packet into the ring; the peer knows of it after [`publish`](Self::publish).
    #[inline]
    pub(super) fn put(&mut self, channel: &Channel, packet: &[u8]) -> Result<Put, Fault> {
        if self.free == 0 {
            self.look(channel)?;
            if self.free == 0 {
                return Ok(Put::Full);
            }
        }
        let room = channel.room(self.position)?;
        if room.len < packet.len() {
            return self.put_chain(channel, packet);
        }
        let part = room.filled(packet.len(), false);
        channel.write(part, packet);
        channel.describe(self.position, part);
        self.position = self.position.wrapping_add(1);
        self.free -= 1;
        self.copied += 1;
        Ok(Put::Done)
    }

    /// Copies a packet into the buffers of several descriptors.
    fn put_chain(&mut self, channel: &Channel, packet: &[u8]) -> Result<Put, Fault> {
        self.look(channel)?;
        self.parts.clear();
        let mut left = packet.len();
        for at in 0..self.free {
            if left == 0 {
                break;
            }
            let room = channel.room(self.position.wrapping_add(at))?;
            let len = room.len.min(left);
            left -= len;
            self.parts.push(room.filled(len, left > 0));
        }
        if left > 0 {
            return Ok(if self.free == channel.ring.slots() { Put::TooBig } else { Put::Full });
        }
        let mut rest = packet;
        for part in &self.parts {
            let (bytes, after) = rest.split_at(part.len);
            channel.write(*part, bytes);
            channel.describe(self.position, *part);
            (self.position, rest) = (self.position.wrapping_add(1), after);
        }
        self.free -= self.parts.len() as u16;
        self.copied += 1;
        Ok(Put::Done)
    }

    /// Lets the peer know of what was put there.
    #[inline]
    pub(super) fn publish(&mut self, channel: &Channel) {
        if self.published == self.position {
            return;
        }
        if channel.is_own() {
            channel.ring.set_head(self.position);
        } else {
            channel.ring.set_tail(self.position);
        }
        self.published = self.position;
        channel.set_position(self.position);
        if channel.ring.wants_interrupt() {
            channel.bell.ring();
        }
    }
}
