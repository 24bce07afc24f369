//! An NF whose work a device does in part.

mod halves;
mod line;
mod start;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use thalweg_nf::device::DeviceLine;
use thalweg_nf::{Context, NetworkFunction};
use thalweg_packet::{Batch, Lanes};

use crate::burst::{Burst, Round};
use crate::counters::DeviceTotals;
use line::Line;

pub(crate) use halves::Halves;
pub(crate) use start::{NextDevice, Renewed, overlapping, renew, start};

/// The way of an NF's packets to its device.
///
/// Each worker uses a line of its own, or shares one if the NF has fewer work-groups than there are
/// workers. While a worker has a line, it has no other lock but perhaps that of the NF's station.
pub(crate) struct Device {
    lines: Box<[Mutex<Line>]>,
    /// Whether the NF goes on without it when it has failed.
    falls_back: bool,
    /// What it did when it failed.
    fault: OnceLock<Arc<str>>,
    /// Whether the fault was [taken](Self::take_fault).
    is_reported: AtomicBool,
}

impl Device {
    fn new(lines: Vec<Box<dyn DeviceLine>>, falls_back: bool) -> Self {
        let lines = lines.into_iter().map(|line| Mutex::new(Line::new(line))).collect();
        Self { lines, falls_back, fault: OnceLock::new(), is_reported: AtomicBool::new(false) }
    }

    /// The number of the line of a worker.
    fn of(&self, worker: usize) -> usize {
        worker % self.lines.len()
    }

    fn line(&self, number: usize) -> MutexGuard<'_, Line> {
        self.lines[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the NF goes on without the device.
    fn is_over(&self) -> bool {
        self.falls_back && self.fault.get().is_some()
    }

    /// Whether the NF goes on without it when it has failed.
    pub(crate) fn falls_back(&self) -> bool {
        self.falls_back
    }

    /// How many packets keep the device busy, through each line.
    pub(crate) fn capacity(&self) -> usize {
        (0..self.lines.len()).map(|number| self.line(number).capacity()).max().unwrap_or(0)
    }

    /// What went through all lines so far, and what became of the device.
    pub(crate) fn totals(&self) -> DeviceTotals {
        let mut totals = DeviceTotals { failed: self.fault.get().cloned(), ..Default::default() };
        for number in 0..self.lines.len() {
            let line = self.line(number);
            totals.counts.merge(line.counts());
            totals.kept_frames += line.kept_frames();
        }
        totals
    }

    /// Whether more packets of a worker would not only wait.
    pub(crate) fn has_room(&self, worker: usize) -> bool {
        self.line(self.of(worker)).has_room()
    }

    /// Submits the packets of a burst for which the NF has jobs; returns the number of their line.
    pub(crate) fn submit(&self, worker: usize, burst: &mut Burst) -> usize {
        let number = self.of(worker);
        let mut line = self.line(number);
        for Round { batch, halves, .. } in &mut burst.rounds {
            if let Some(halves) = halves
                && !halves.jobs.is_empty()
            {
                halves.visit = Some(line.submit(batch, &halves.jobs));
            }
        }
        number
    }

    /// Takes back the packets of a burst that were submitted to this line, if all are back; returns
    /// whether they are.
    pub(crate) fn collect(&self, line: usize, burst: &mut Burst) -> bool {
        let visits = |round: &Round| round.halves.as_ref().and_then(|halves| halves.visit);
        let mut line = self.line(line);
        if !burst.rounds.iter().filter_map(visits).all(|visit| line.is_back(visit)) {
            return false;
        }
        for Round { batch, halves, observed, .. } in &mut burst.rounds {
            if let Some(halves) = halves
                && let Some(visit) = halves.visit.take()
            {
                let is_whole = line.collect(visit, batch, &halves.jobs, &mut halves.results);
                if !is_whole && let Some(observed) = observed.take() {
                    // Its packets cannot be read any more.
                    observed.end();
                }
            }
        }
        true
    }

    /// Takes packets back from the device for a worker, or `for_all`, and gives the device what waits;
    /// returns whether any came back.
    pub(crate) fn poll(&self, worker: usize, for_all: bool) -> bool {
        if !for_all {
            return self.poll_line(&mut self.line(self.of(worker)));
        }
        let mut some = false;
        for mut line in self.lines.iter().filter_map(|line| line.try_lock().ok()) {
            some |= self.poll_line(&mut line);
        }
        some
    }

    fn poll_line(&self, line: &mut Line) -> bool {
        let (some, fault) = line.poll();
        if let Err(fault) = fault {
            // The first one counts.
            let _ = self.fault.set(fault.0.into());
        }
        some
    }

    /// Lets an NF process packets, and the device do its part, and waits for that: for an NF that must
    /// decide about these packets before it sees others.
    pub(crate) fn process(
        &self,
        function: &mut dyn NetworkFunction,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let nf = if self.is_over() { None } else { function.on_device() };
        let Some(nf) = nf else { return function.process(batch, lanes, context) };
        let mut line = self.line(0);
        let (mut jobs, mut results) = line.take_lists();
        nf.begin(batch, lanes, context, &mut jobs);
        if !jobs.is_empty() {
            let visit = line.submit(batch, &jobs);
            let mut waits = 0u32;
            while !line.is_back(visit) {
                if self.poll_line(&mut line) {
                    waits = 0;
                    continue;
                }
                // Where a device's threads share cores with ours, it has to get one.
                waits += 1;
                if waits < 64 { std::hint::spin_loop() } else { thread::yield_now() }
            }
            line.collect(visit, batch, &jobs, &mut results);
            nf.finish(batch, &results, context);
        }
        line.put_lists(jobs, results);
    }

    /// What the device did when it failed; once.
    pub(crate) fn take_fault(&self) -> Option<&Arc<str>> {
        let fault = self.fault.get()?;
        (!self.is_reported.swap(true, Ordering::Relaxed)).then_some(fault)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("fault", &self.fault).finish_non_exhaustive()
    }
}
