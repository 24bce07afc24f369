//! How long reloads hold packets up.

use std::time::Instant;

use crate::batch_times::{nanoseconds, used};
use crate::counters::Latencies;
use crate::report::PauseReport;

/// The pauses of all reloads for which packets had to wait.
pub(super) struct Pauses {
    /// Nanoseconds in which no packets were received.
    wall: Latencies,
    /// Those in which a processor was busy with the change.
    cpu: Latencies,
    /// Since when no packets are received.
    began: Option<Instant>,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { wall: Latencies::new(), cpu: Latencies::new(), began: None }
    }

    /// No more packets are received.
    pub(super) fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Packets are received again, if they were not.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Some(began) = self.began.take() {
            self.wall.record(nanoseconds(began.elapsed()), 1);
        }
    }

    /// Does `work`, which changes the chain.
    pub(super) fn change<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = used();
        let outcome = work();
        self.cpu.record(nanoseconds(used().saturating_sub(before)), 1);
        outcome
    }

    /// `None` without reloads.
    pub(super) fn report(&self) -> Option<PauseReport> {
        (!self.cpu.histogram().is_empty()).then(|| PauseReport::of(&self.wall, &self.cpu))
    }
}
