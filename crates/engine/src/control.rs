//! Controlling and observing a run from outside.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thalweg_source::Stop;

use crate::report::Report;
use crate::tally::{Asked, Tally};

/// Controls a run, from the thread of signals or a test.
#[derive(Debug, Default)]
pub struct Control {
    stop: Stop,
    export: AtomicBool,
    reload: AtomicBool,
    pub(crate) packets_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) packets_out: AtomicU64,
    pub(crate) drops: AtomicU64,
    /// Those who wait for a snapshot, and whether there are any.
    asked: Mutex<Asked>,
    is_asked: AtomicBool,
    /// The bits of the share of the work that is done; 0 if it is unknown.
    share: AtomicU64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets transmitted.
    pub packets_out: u64,
    /// Packets dropped.
    pub drops: u64,
    /// The share of the work that is done, from 0 to 1; `None` if the end is unknown, as with an
    /// interface or a pipe. An estimate with several inputs, or with a compressed one.
    pub share: Option<f64>,
}

impl Control {
    /// Ends the run: no more packets are received, and those under way finish.
    pub fn stop(&self) {
        self.stop.request();
    }

    /// Whether the run should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }

    /// The request to end, for threads that wait for a file.
    pub fn stop_request(&self) -> Stop {
        self.stop.clone()
    }

    /// Requests that NFs and outputs write what they hold.
    pub fn request_export(&self) {
        self.export.store(true, Relaxed);
    }

    /// Requests that rules and the files of NFs are read again.
    pub fn request_reload(&self) {
        self.reload.store(true, Relaxed);
    }

    /// The report of the run up to this moment: of all packets received so far and no others, so
    /// that each is transmitted or dropped in it. `None` if the run ends or does not answer within
    /// `patience`. Packets do not wait for it.
    pub fn snapshot(&self, patience: Duration) -> Option<Report> {
        self.request_snapshot().recv_timeout(patience).ok().map(Tally::report)
    }

    /// Requests a snapshot, which arrives later; not if the run ends before.
    pub(crate) fn request_snapshot(&self) -> mpsc::Receiver<Tally> {
        let (ask, answer) = mpsc::channel();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(ask);
        self.is_asked.store(true, Release);
        answer
    }

    pub(crate) fn take_asked(&self) -> Asked {
        if !self.is_asked.load(Relaxed) || !self.is_asked.swap(false, Acquire) {
            return Asked::new();
        }
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_export(&self) -> bool {
        self.export.load(Relaxed) && self.export.swap(false, Relaxed)
    }

    pub(crate) fn take_reload(&self) -> bool {
        self.reload.load(Relaxed) && self.reload.swap(false, Relaxed)
    }

    /// The progress of the run; about a batch late.
    pub fn progress(&self) -> Progress {
        Progress {
            packets_in: self.packets_in.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            packets_out: self.packets_out.load(Relaxed),
            drops: self.drops.load(Relaxed),
            share: Some(f64::from_bits(self.share.load(Relaxed))).filter(|share| *share > 0.0),
        }
    }

    pub(crate) fn set_share(&self, share: Option<f64>) {
        self.share.store(share.unwrap_or(0.0).to_bits(), Relaxed);
    }
}
