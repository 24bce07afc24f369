//! Puts packets into a ring.

use super::Fault;
use super::shared::{Channel, Part};

/// The sending end of a ring.
#[derive(Debug)]
pub(super) struct Sender {
    /// The position after the packets that were put there.
    position: u16,
    /// Up to where the peer knows of them.
    published: u16,
    /// Buffers for the packet in turn: memory for as many as the ring has.
    parts: Vec<Part>,
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
}

impl Sender {
    pub(super) fn new(channel: &Channel) -> Self {
        let parts = Vec::with_capacity(usize::from(channel.ring.slots()));
        let position = channel.position();
        Self { position, published: position, parts }
    }

    /// How many descriptors are free.
    fn free(&self, channel: &Channel) -> Result<u16, Fault> {
        let (ring, slots) = (&channel.ring, channel.ring.slots());
        let free = if channel.is_own() {
            slots.wrapping_sub(self.position.wrapping_sub(ring.tail()))
        } else {
            ring.head().wrapping_sub(self.position)
        };
        if free > slots {
            return Err(Fault::new(format!("{free} free descriptors in a ring of {slots}")));
        }
        Ok(free)
    }

    /// Puts a packet into the ring; the peer knows of it after [`publish`](Self::publish).
    pub(super) fn put(&mut self, channel: &Channel, packet: &[u8]) -> Result<Put, Fault> {
        let free = self.free(channel)?;
        self.parts.clear();
        let mut left = packet.len();
        for at in 0..free {
            if left == 0 {
                break;
            }
            let room = channel.room(self.position.wrapping_add(at))?;
            let len = room.len.min(left);
            left -= len;
            self.parts.push(room.filled(len, left > 0));
        }
        if left > 0 {
            return Ok(if free == channel.ring.slots() { Put::TooBig } else { Put::Full });
        }
        let mut rest = packet;
        for part in &self.parts {
            let (bytes, after) = rest.split_at(part.len);
            channel.write(*part, bytes);
            channel.describe(self.position, *part);
            (self.position, rest) = (self.position.wrapping_add(1), after);
        }
        Ok(Put::Done)
    }

    /// Lets the peer know of what was put there.
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
