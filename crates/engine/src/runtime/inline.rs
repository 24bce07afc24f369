//! Runs the whole chain on the calling thread.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::ending::{self, Ending};
use super::error::RunError;
use super::options::RunOptions;
use super::panics;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::state::StateFolders;
use crate::burst::Burst;
use crate::control::Control;
use crate::course::{Course, transmit};
use crate::report::Report;
use crate::tally::{Run, Tally};
use crate::visit::Clock;
use crate::watch::Watch;
use thalweg_chain::Plan;
use thalweg_cpu::cycles;
use thalweg_packet::DropReason;

/// What takes part in a run on one thread.
struct Inline<'a> {
    control: &'a Control,
    run: Run,
    inputs: Inputs,
    course: Course,
    outputs: Outputs,
    watch: Watch,
    failures: Vec<String>,
}

pub(super) fn run(
    plan: &Arc<Plan>,
    options: &RunOptions,
    state: &StateFolders<'_>,
    control: &Control,
) -> Result<Report, RunError> {
    let inputs = Inputs::open(plan, options)?;
    let mut course = Course::new(plan, 1);
    state.import_all(&mut course)?;
    // Last, because it empties files.
    let outputs = Outputs::open(plan, options, control)?;
    if options.stages {
        course.classification.classifier.take_time();
    }
    let watch = Watch { timed: options.stages, ..Watch::default() };
    let clock = cycles::Clock::start();
    let run = Run { plan: plan.clone(), workers: 1, clock };
    let failures = Vec::new();
    let mut inline = Inline { control, run, inputs, course, outputs, watch, failures };
    let mut reloads = Reloads::new(plan.clone());
    let mut burst = Burst::new(&plan.routing, &plan.pool, 1, true);
    let served = AssertUnwindSafe(|| inline.serve(&mut burst, &mut reloads));
    let busy = panic::catch_unwind(served).unwrap_or_else(|cause| {
        let nf = inline.course.stations.iter().find_map(|station| station.at_work);
        inline.failures.push(panics::failure(plan, "the worker", nf, &*cause));
        let unfinished = burst.packets();
        inline.course.classification.lost.add(DropReason::Unfinished, unfinished);
        control.drops.fetch_add(burst.drops + unfinished, Relaxed);
        0
    });
    drop(burst);
    let warnings = reloads.finish();
    let Inline { inputs, course, outputs, watch, failures, .. } = inline;
    let port_cycles = busy.saturating_sub(watch.busy_cycles);
    let ending =
        Ending { workers: 1, inputs, course, outputs, watch, port_cycles, warnings, failures };
    Ok(ending::report(plan, ending, state, &clock, control))
}

impl Inline<'_> {
    /// Takes batch after batch through the chain until the inputs end; returns the cycles of the
    /// rounds that had one.
    fn serve(&mut self, burst: &mut Burst, reloads: &mut Reloads) -> u64 {
        let (mut clock, mut busy) = (Clock::default(), 0);
        let mut last = cycles::now();
        while !self.inputs.ended(self.control) {
            self.outputs.check(self.control);
            burst.flushes = self.control.take_export();
            let round = &mut burst.rounds[0];
            let came = self.inputs.receive(&mut round.batch, self.control);
            round.clock = clock.batch(&round.batch);
            let asked = self.control.take_asked();
            if !asked.is_empty() {
                let tally = Tally::new(&self.run, self.inputs.counters());
                burst.tally = Some(Box::new((asked, tally)));
            }
            if came || !burst.is_empty() {
                self.through(burst);
            } else {
                self.inputs.rest();
            }
            reloads.poll(self.control);
            let now = cycles::now();
            busy += if came { now.wrapping_sub(last) } else { 0 };
            last = now;
        }
        busy
    }

    /// Takes a burst from the inputs to the outputs.
    fn through(&mut self, burst: &mut Burst) {
        let Self { control, course, outputs, watch, failures, .. } = self;
        let start = if watch.timed { cycles::now() } else { 0 };
        course.serve(burst, watch);
        transmit(burst, watch, |output, batch, lanes| outputs.send(output, batch, lanes, control));
        if burst.flushes {
            course.stations.iter_mut().for_each(|station| station.flush(failures));
            outputs.flush(control);
        }
        burst.count(|tally| outputs.count(tally));
        burst.answer();
        control.drops.fetch_add(burst.drops, Relaxed);
        burst.clear();
        watch.busy_cycles += if watch.timed { cycles::now().wrapping_sub(start) } else { 0 };
    }
}
