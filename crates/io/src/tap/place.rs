//! Where a packet is received: a large frame, so that a super-packet need not be copied.

use std::io;
use std::sync::Arc;

use thalweg_packet::{Batch, Frame, HEADROOM, MAX_SUPER_PACKET_LEN, Nanoseconds, Packet, Pool};

use super::queue::Queue;
use crate::interface::Slot;
use crate::offload::HEADER;

/// Bytes of a packet without a large frame: all that a device sends.
const LONGEST: usize = 1 << 17;

/// The place of one packet.
pub(super) struct Place {
    pool: Arc<Pool>,
    frame: Option<Frame>,
    /// The packet where no large frame is free, and the end of one that is longer. Its pages are
    /// untouched until a packet needs them.
    spare: Box<[u8]>,
    offload: [u8; HEADER],
    /// The length of the packet that waits here.
    len: Option<usize>,
    timestamp: Nanoseconds,
}

impl Place {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self {
            pool: pool.clone(),
            frame: None,
            spare: vec![0; LONGEST].into(),
            offload: [0; HEADER],
            len: None,
            timestamp: Nanoseconds::default(),
        }
    }

    /// Receives a packet, unless one waits.
    ///
    /// # Errors
    /// The system's, also if none is there.
    pub(super) fn fill(
        &mut self,
        queue: &Queue,
        now: impl FnOnce() -> Nanoseconds,
    ) -> io::Result<()> {
        if self.len.is_some() {
            return Ok(());
        }
        let Self { pool, frame, spare, offload, .. } = self;
        if frame.is_none() {
            *frame = pool.take_large();
        }
        let first = frame.as_mut().map(|frame| &mut pool.bytes_mut(frame)[HEADROOM..]);
        let len = queue.receive(offload, [first.unwrap_or(&mut []), spare])?;
        (self.len, self.timestamp) = (Some(len), now());
        Ok(())
    }

    /// Gives the packet up.
    pub(super) fn clear(&mut self) {
        self.len = None;
    }

    pub(super) fn offload(&self) -> [u8; HEADER] {
        self.offload
    }

    /// The packet, for what takes in packets of the kernel.
    pub(super) fn slot(&mut self) -> Slot<'_> {
        let Self { pool, frame, spare, offload, len, timestamp } = self;
        let len = len.unwrap_or(0);
        let bytes = match frame {
            None => &mut spare[..],
            Some(frame) => {
                let first = &mut pool.bytes_mut(frame)[HEADROOM..];
                if let Some(over) = len.checked_sub(first.len()).filter(|over| *over > 0) {
                    // The whole of it in the spare memory.
                    spare.copy_within(..over.min(LONGEST - first.len()), first.len());
                    spare[..first.len()].copy_from_slice(first);
                    &mut spare[..]
                } else {
                    first
                }
            }
        };
        let here = len.min(bytes.len());
        Slot {
            offload: *offload,
            bytes: &mut bytes[..here],
            vlan: None,
            wire_len: len as u32,
            timestamp: *timestamp,
            outgoing: false,
            long: here < len,
            elsewhere: false,
            losing: false,
        }
    }

    /// Moves the large frame with the packet into a batch; returns its lane. `None` if the packet lies
    /// elsewhere, or fits into any frame.
    pub(super) fn hand_over(&mut self, batch: &mut Batch) -> Option<usize> {
        let len = self.len?;
        let is_large = (batch.capacity() + 1..=MAX_SUPER_PACKET_LEN).contains(&len);
        let frame = self.frame.take_if(|_| is_large && !batch.is_full())?;
        let packet = self.pool.packet(frame, HEADROOM, len);
        let lane = packet.and_then(|packet| batch.push(packet).map_err(Packet::into_frame));
        let lane = lane.map_err(|frame| self.frame = Some(frame)).ok()?;
        batch.meta.timestamp[lane] = self.timestamp;
        Some(lane)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.give_back(self.frame.take());
    }
}
