//! Controlling and observing a run from outside.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_chain::{Difference, MAX_WORKERS, Plan};
use thalweg_source::Stop;

use crate::burst::Flush;
use crate::failed_devices::{DeviceFailure, FailedDevices};
use crate::mailbox::{Mailbox, Refusal};
use crate::observe::Observers;
use crate::published::add_alone;
use crate::reload::{MOST_WAITING, Reload, ReloadError, UnderWay, Waiting};
use crate::report::Report;
use crate::tally::{Asked, Tally};

/// Controls a run, from the thread of signals or a test.
#[derive(Debug, Default)]
pub struct Control {
    stop: Stop,
    export: AtomicBool,
    /// NFs have not written all that the last export requested.
    exports: AtomicBool,
    passed: Passed,
    drops: AtomicU64,
    snapshots: Mailbox<Sender<Tally>>,
    reloads: Mailbox<Waiting>,
    reloads_begun: AtomicU64,
    reloads_ended: Arc<AtomicU64>,
    /// The bits of the share of the work that is done; 0 if it is unknown.
    share: AtomicU64,
    running: Mutex<Running>,
    pub(crate) observers: Arc<Observers>,
    pub(crate) failed_devices: FailedDevices,
}

/// What each line has received and sent.
struct Passed([LinePassed; MAX_WORKERS]);

/// What a line has received and sent: one thread at a time counts each, in cache lines of their own
/// (processors fetch them in pairs).
#[derive(Default)]
#[repr(align(128))]
struct LinePassed {
    packets_in: AtomicU64,
    bytes_in: AtomicU64,
    packets_out: AtomicU64,
}

impl Default for Passed {
    fn default() -> Self {
        Self(std::array::from_fn(|_| LinePassed::default()))
    }
}

impl Passed {
    /// The sum of a count over all lines.
    fn sum(&self, count: impl Fn(&LinePassed) -> &AtomicU64) -> u64 {
        // One line may have lost what another one has sent.
        self.0.iter().map(|line| count(line).load(Relaxed)).fold(0, u64::wrapping_add)
    }
}

impl std::fmt::Debug for Passed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passed").finish_non_exhaustive()
    }
}

/// The plan that packets take now; none before the run and after it.
#[derive(Default)]
struct Running(Option<Arc<Plan>>);

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// The reloads of a run so far, whatever their outcome; without those that change nothing by
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Those that have begun.
    pub begun: u64,
    /// Those that have ended: packets take the new chain, or the old one still.
    pub ended: u64,
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

    /// Requests a reload of the chain file, whose outcome is logged, and is a warning of the report
    /// if it was refused.
    pub fn request_reload(&self) {
        // One that waits already will see the files as they are then.
        let wanted = |all: &VecDeque<Waiting>| all.iter().all(|waiting| waiting.asker.is_some());
        let _ = self.reloads.put(Waiting::new(Reload::default(), None), wanted);
    }

    /// Reloads the chain file: loads it whole and builds all that is new, while packets pass. Then
    /// all packets received so far take the old chain to its end, and those after them the new one.
    /// What is the same stays as it is, and NFs that change keep their state. Returns what has
    /// changed, when no packet is in the old chain any more.
    ///
    /// # Errors
    /// Why nothing was changed: everything is, or nothing.
    pub fn reload(&self, reload: Reload) -> Result<Difference, ReloadError> {
        let (ask, answer) = mpsc::channel();
        let waiting = Waiting::new(reload, Some(ask));
        match self.reloads.put(waiting, |all| all.len() < MOST_WAITING) {
            Ok(()) => {}
            Err(Refusal::Unwanted) => return Err(ReloadError::Busy),
            Err(Refusal::Closed) => return Err(ReloadError::Ended),
        }
        answer.recv().unwrap_or(Err(ReloadError::Ended))
    }

    /// The plan that packets take now, after the last reload; `None` before the run and after it.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The failures of devices after number `last`, at most the newest hundred.
    pub fn device_failures(&self, last: u64) -> Vec<DeviceFailure> {
        self.failed_devices.since(last)
    }

    /// Sets the plan that packets take; returns the one before it, to be freed where no packet
    /// waits.
    pub(crate) fn set_plan(&self, plan: Option<Arc<Plan>>) -> Option<Arc<Plan>> {
        std::mem::replace(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner).0, plan)
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
        // Of a closed mailbox, the channel is closed, too.
        let _ = self.snapshots.put(ask, |_| true);
        answer
    }

    pub(crate) fn take_asked(&self) -> Asked {
        self.snapshots.take_all()
    }

    /// Whether snapshots are requested.
    pub(crate) fn is_asked(&self) -> bool {
        self.snapshots.has_some()
    }

    /// What the next burst requests of NFs and outputs.
    pub(crate) fn take_export(&self) -> Flush {
        if self.export.load(Relaxed) && self.export.swap(false, Relaxed) {
            Flush::Begin
        } else if self.exports.load(Relaxed) {
            Flush::GoOn
        } else {
            Flush::No
        }
    }

    /// Notes whether a burst has found an export complete, whose turn it was at the outputs. Returns
    /// whether it was incomplete before.
    pub(crate) fn exported(&self, is_complete: bool) -> bool {
        self.exports.swap(!is_complete, Relaxed)
    }

    /// The reloads so far.
    pub fn reloads(&self) -> ReloadCounts {
        // In this order: what has ended had begun before.
        let ended = self.reloads_ended.load(SeqCst);
        ReloadCounts { begun: self.reloads_begun.load(SeqCst), ended }
    }

    /// The reload that waits longest, which begins.
    pub(crate) fn take_reload(&self) -> Option<Waiting> {
        let mut waiting = self.reloads.take()?;
        if !waiting.reload.dry_run {
            self.reloads_begun.fetch_add(1, SeqCst);
            waiting.under_way = Some(UnderWay(self.reloads_ended.clone()));
        }
        Some(waiting)
    }

    /// Closes all mailboxes: later requests get no answer.
    pub(crate) fn end(&self) {
        self.snapshots.close();
        self.reloads.close();
        self.observers.close();
        drop(self.set_plan(None));
    }

    /// The progress of the run; about a batch late.
    pub fn progress(&self) -> Progress {
        Progress {
            packets_in: self.packets_in(),
            bytes_in: self.passed.sum(|line| &line.bytes_in),
            packets_out: self.passed.sum(|line| &line.packets_out),
            drops: self.drops.load(Relaxed),
            share: Some(f64::from_bits(self.share.load(Relaxed))).filter(|share| *share > 0.0),
        }
    }

    /// The packets received so far.
    pub(crate) fn packets_in(&self) -> u64 {
        self.passed.sum(|line| &line.packets_in)
    }

    /// Counts packets of the inputs of a line, which one thread has at a time.
    #[inline]
    pub(crate) fn received(&self, line: usize, packets: u64, bytes: u64) {
        let passed = &self.passed.0[line];
        add_alone(&passed.packets_in, packets);
        add_alone(&passed.bytes_in, bytes);
    }

    /// Counts packets of the outputs of a line, which one thread has at a time.
    #[inline]
    pub(crate) fn sent(&self, line: usize, packets: u64) {
        add_alone(&self.passed.0[line].packets_out, packets);
    }

    /// Counts packets of the outputs of a line that were counted as sent as dropped.
    pub(crate) fn lost(&self, line: usize, packets: u64) {
        add_alone(&self.passed.0[line].packets_out, packets.wrapping_neg());
        self.dropped(packets);
    }

    /// Counts dropped packets, which any thread may have.
    #[inline]
    pub(crate) fn dropped(&self, packets: u64) {
        // Most batches have none, which a branch finds out sooner than a locked addition takes.
        if packets > 0 {
            self.drops.fetch_add(packets, Relaxed);
        }
    }

    pub(crate) fn set_share(&self, share: Option<f64>) {
        self.share.store(share.unwrap_or(0.0).to_bits(), Relaxed);
    }
}
