//! The frames of the pool in the slots of a ring of ours, which a peer that is trusted has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_packet::{Frame, HEADROOM, MAX_PACKET_LEN, Pool};

/// The frames in the slots of one ring, in their order: those that are offered to be filled, or those
/// whose packets the peer has not taken out yet.
///
/// Which frame lies in a slot is never read from the shared memory. The frames return to the pool with
/// the connection.
#[derive(Debug)]
pub(super) struct Loans {
    pool: Arc<Pool>,
    frames: Mutex<VecDeque<Frame>>,
}

impl Loans {
    /// No frames, for a ring of `slots`.
    pub(super) fn new(pool: Arc<Pool>, slots: u16) -> Self {
        Self { pool, frames: Mutex::new(VecDeque::with_capacity(slots.into())) }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The frames. Only one port uses a ring, so that it never waits for another thread.
    pub(super) fn frames(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest packet that is received into a frame, in bytes.
    pub(super) fn room(&self) -> usize {
        (self.pool.frame_size() - HEADROOM).min(MAX_PACKET_LEN)
    }
}

impl Drop for Loans {
    fn drop(&mut self) {
        let frames = self.frames.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.pool.give_back(frames.drain(..));
    }
}
