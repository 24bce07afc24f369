//! Security associations.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_classify::Match;

use super::replay::ReplayWindow;
use super::suite::Cipher;

/// What both directions have.
pub(super) struct Association {
    pub(super) name: String,
    pub(super) spi: u32,
    pub(super) cipher: Cipher,
    /// Tunnel end points.
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Extended sequence numbers.
    pub(super) extended: bool,
}

/// An association that protects packets, shared by all workers.
pub(super) struct Outbound {
    pub(super) association: Association,
    /// The last sequence number sent.
    sequence: AtomicU64,
    /// Where the IVs of GCM begin: random, since keys are written in a file and
    /// outlive a run, and a nonce must never come twice under one key.
    iv_start: u64,
}

/// An association that checks and opens packets, shared by all workers.
pub(super) struct Inbound {
    pub(super) association: Association,
    /// What the packets inside must look like.
    pub(super) selector: Match,
    /// All packets of an association come from one address pair, and so to one
    /// worker: the lock is not contended.
    window: Mutex<ReplayWindow>,
}

impl Outbound {
    pub(super) fn new(association: Association, iv_start: u64) -> Self {
        Self { association, sequence: AtomicU64::new(0), iv_start }
    }

    /// The next sequence number, and an IV for GCM; `None` when all are used.
    pub(super) fn next(&self) -> Option<(u64, u64)> {
        let last = if self.association.extended { u64::MAX } else { u64::from(u32::MAX) };
        let next = |n: u64| (n < last).then(|| n + 1);
        let before = self.sequence.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let number = before + 1;
        Some((number, self.iv_start.wrapping_add(number)))
    }

    pub(super) fn last_sent(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Goes on behind `number`, never back.
    pub(super) fn resume_after(&self, number: u64) {
        self.sequence.fetch_max(number, Ordering::Relaxed);
    }
}

impl Inbound {
    pub(super) fn new(association: Association, selector: Match) -> Self {
        Self { association, selector, window: Mutex::new(ReplayWindow::default()) }
    }

    pub(super) fn window(&self) -> MutexGuard<'_, ReplayWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
