//! Replay from memory, for measuring the engine without the file system.

use std::path::Path;

use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Nanoseconds, Pool};

use crate::capture::CaptureInput;
use crate::port::{Input, IoError, Received};

/// A whole capture in memory, replayed as often as asked: receiving a packet
/// is one copy into a frame.
pub struct MemoryInput {
    bytes: Vec<u8>,
    packets: Vec<Stored>,
    next: usize,
    clock: crate::capture::Clock,
    passes: Option<u64>,
}

#[derive(Clone, Copy)]
struct Stored {
    start: usize,
    len: u32,
    wire_len: u32,
    timestamp: Nanoseconds,
}

impl MemoryInput {
    /// Loads the capture at `path`, to be replayed `loops` times (0 = for
    /// ever). Packets that cannot be taken in are counted in `drops`, once.
    ///
    /// # Errors
    /// When the capture cannot be read whole.
    pub fn load(path: &Path, loops: u64, drops: &mut DropCounts) -> Result<Self, IoError> {
        let mut input = CaptureInput::open(path, 1)?;
        let out_of_memory =
            |_| IoError::File { path: path.into(), source: std::io::ErrorKind::OutOfMemory.into() };
        let pool = Pool::anonymous(64, thalweg_packet::MAX_FRAME_SIZE).map_err(out_of_memory)?;
        let mut batch = Batch::new(pool.into());
        let mut memory = Self {
            bytes: Vec::new(),
            packets: Vec::new(),
            next: 0,
            clock: crate::capture::Clock::default(),
            passes: loops.checked_sub(1),
        };
        loop {
            let received = input.receive(&mut batch, BATCH, drops)?;
            for lane in batch.lanes() {
                memory.packets.push(Stored {
                    start: memory.bytes.len(),
                    len: batch.packet_len(lane) as u32,
                    wire_len: batch.meta.wire_len[lane],
                    timestamp: batch.meta.timestamp[lane],
                });
                memory.bytes.extend_from_slice(batch.bytes(lane));
            }
            batch.release(batch.lanes());
            if received.ended {
                return Ok(memory);
            }
        }
    }

    /// How many packets a pass has.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is another packet; begins the next pass where needed.
    fn ready(&mut self) -> bool {
        if self.next < self.packets.len() {
            return true;
        }
        let again = match &mut self.passes {
            None => true,
            Some(0) => false,
            Some(n) => {
                *n -= 1;
                true
            }
        };
        if !again || !self.clock.next_pass() {
            return false;
        }
        self.next = 0;
        true
    }
}

impl Input for MemoryInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { packets: 0, bytes: 0, ended: false };
        while received.packets < most && !batch.is_full() {
            if !self.ready() {
                received.ended = true;
                break;
            }
            let stored = self.packets[self.next];
            let bytes = &self.bytes[stored.start..stored.start + stored.len as usize];
            match crate::capture::push(batch, &[], bytes) {
                Ok(lane) => {
                    batch.meta.wire_len[lane] = stored.wire_len;
                    batch.meta.timestamp[lane] = self.clock.time(stored.timestamp);
                }
                Err(DropReason::PoolExhausted) if !batch.is_empty() => break,
                Err(reason) => drops.add(reason, 1),
            }
            self.clock.passed(stored.timestamp);
            self.next += 1;
            received.packets += 1;
            received.bytes += u64::from(stored.wire_len);
        }
        Ok(received)
    }
}
