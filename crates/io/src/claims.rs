//! Packets that are received now, and copied into their frames later.

use std::sync::Arc;

use thalweg_packet::Batch;

use crate::capture::ReadAhead;

/// What is left to do for packets after [`Input::claim`](crate::Input::claim) has received them.
///
/// Inputs are used by one worker at a time. A file finds its packets in that time, and leaves the
/// rest, which takes longer, to be done by several workers at once: copying bytes into frames, and
/// reading further parts of the file.
#[derive(Debug, Default)]
pub struct Claims {
    packets: Vec<Claim>,
    /// The buffers of the packets.
    buffers: Vec<Arc<Vec<u8>>>,
    reads: Vec<ReadAhead>,
}

/// The end of a packet, which lies in a buffer.
#[derive(Clone, Copy, Debug)]
struct Claim {
    lane: usize,
    /// The buffer, as an index into `buffers`.
    buffer: usize,
    start: usize,
    len: usize,
}

/// Bytes from `start` on in a buffer that does not change while it is shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) buffer: &'a Arc<Vec<u8>>,
    pub(crate) start: usize,
}

impl Claims {
    /// Leaves the last `len` bytes of the packet in `lane` to be copied.
    #[inline]
    pub(crate) fn add(&mut self, lane: usize, from: Shared<'_>, len: usize) {
        let Shared { buffer, start } = from;
        // Packets that follow each other usually lie in the same buffer.
        if self.buffers.last().is_none_or(|last| !Arc::ptr_eq(last, buffer)) {
            self.buffers.push(buffer.clone());
        }
        self.packets.push(Claim { lane, buffer: self.buffers.len() - 1, start, len });
    }

    /// Leaves a part of a file to be read.
    pub(crate) fn read_later(&mut self, read: Option<ReadAhead>) {
        self.reads.extend(read);
    }

    /// How many packets are left to be copied.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Copies the bytes of the packets into their frames in `batch`, the one that they were received
    /// into. Before, the content of these frames is unspecified.
    ///
    /// # Panics
    /// When a packet is no longer in its lane.
    pub fn copy(&mut self, batch: &mut Batch) {
        for Claim { lane, buffer, start, len } in self.packets.drain(..) {
            batch.write_end(lane, &self.buffers[buffer][start..start + len]);
        }
        self.buffers.clear();
    }

    /// Moves the parts of files that are left to be read to the end of `reads`.
    pub fn take_reads(&mut self, reads: &mut Vec<ReadAhead>) {
        reads.append(&mut self.reads);
    }
}
