//! A station on its own thread.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;

use thalweg_cpu::cycles;

use super::idle::Idle;
use super::stages::Stages;
use crate::burst::Burst;
use crate::guard;
use crate::watch::Watch;

/// A station whose NFs are served by a thread of their own, so that their tables stay in the cache
/// of one core.
pub(super) struct PinnedStation<'a, 'r> {
    stages: &'a Stages<'r>,
    station: usize,
    watch: Watch,
}

impl<'a, 'r> PinnedStation<'a, 'r> {
    pub(super) fn new(stages: &'a Stages<'r>, station: usize) -> Self {
        Self { stages, station, watch: Watch::new(stages.timed) }
    }

    /// Serves bursts until all workers have ended; returns what it observed.
    pub(super) fn run(mut self) -> Watch {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.stages.break_off("the thread of a pinned NF", &*cause);
        }
        self.watch
    }

    fn work(&mut self) {
        if !self.stages.confine() {
            return;
        }
        let mut idle = Idle::default();
        while !self.stages.end.load(Ordering::Acquire) {
            let start = cycles::now();
            let mut worked = false;
            for line in 0..self.stages.lines.len() {
                worked |= self.serve(line);
            }
            guard::check();
            if worked {
                self.watch.busy_cycles += cycles::now().wrapping_sub(start);
            }
            idle.worked(worked);
        }
    }

    /// Serves the burst of a line whose turn it is, if it has come here.
    fn serve(&mut self, line: usize) -> bool {
        let stages = self.stages;
        let turns = &stages.stations[self.station];
        let number = turns.next(line);
        let Some(mut slot) = stages.lines[line].slot(number).open() else { return false };
        let here = |burst: &&mut Burst| burst.number == number && burst.stages == self.station + 1;
        let Some(burst) = slot.as_mut().filter(here) else { return false };
        let Some(mut station) = turns.enter(line, number) else { return false };
        stages.serve(&mut station, burst, &mut self.watch);
        burst.stages += 1;
        true
    }
}
