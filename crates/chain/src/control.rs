//! Steering and watching a run from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Steers a run, from a signal handler's thread or a test.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    export: AtomicBool,
    reload: AtomicBool,
    pub(crate) packets_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) packets_out: AtomicU64,
    pub(crate) drops: AtomicU64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets transmitted.
    pub packets_out: u64,
    /// Packets dropped.
    pub drops: u64,
}

impl Control {
    /// Ends the run: no packet is received any more, those under way finish.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether the run is to end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Has NFs and outputs write out what they hold.
    pub fn request_export(&self) {
        self.export.store(true, Relaxed);
    }

    /// Has rules and NF tables read again.
    pub fn request_reload(&self) {
        self.reload.store(true, Relaxed);
    }

    pub(crate) fn take_export(&self) -> bool {
        self.export.load(Relaxed) && self.export.swap(false, Relaxed)
    }

    pub(crate) fn take_reload(&self) -> bool {
        self.reload.load(Relaxed) && self.reload.swap(false, Relaxed)
    }

    /// How far the run is; about a batch late.
    pub fn progress(&self) -> Progress {
        Progress {
            packets_in: self.packets_in.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            packets_out: self.packets_out.load(Relaxed),
            drops: self.drops.load(Relaxed),
        }
    }
}
