//! Runs the chain on several threads.
//!
//! A worker receives a burst of packets and takes it through all stages up to the outputs; the
//! packets stay on its core. Inputs, classification, NFs and outputs exist once, and each serves
//! the bursts in the order in which they were received ([`InTurn`](crate::turn::InTurn)). So the
//! workers follow each other through the chain, each at another stage, and every NF and output sees
//! the same packets in the same order as with one worker. A worker whose bursts wait for their
//! turns receives another, or goes on with one that another worker has received.
//!
//! No thread waits inside a stage, and the oldest burst under way never waits for another: no
//! circle of waiting threads can form.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, ScopedJoinHandle};

use thalweg_chain::Plan;
use thalweg_cpu::cycles::Clock;
use thalweg_packet::DropReason;

use super::ending::{self, Ending};
use super::error::RunError;
use super::options::RunOptions;
use super::pinned::PinnedStation;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::stages::{Intake, Stages};
use super::state::StateFolders;
use super::worker::Worker;
use crate::control::Control;
use crate::course::Course;
use crate::report::Report;
use crate::tally::Run;
use crate::watch::Watch;

pub(super) fn run(
    plan: &Arc<Plan>,
    workers: usize,
    options: &RunOptions,
    state: &StateFolders<'_>,
    control: &Control,
) -> Result<Report, RunError> {
    let inputs = Inputs::open(plan, options)?;
    let mut course = Course::new(plan, workers);
    state.import_all(&mut course)?;
    // Last, because it empties files.
    let outputs = Outputs::open(plan, options, control)?;
    let clock = Clock::start();
    let run = Run { plan: plan.clone(), workers, clock };
    let intake = Intake::new(inputs, Reloads::new(plan.clone()), run);
    let stages = Stages::new(plan, control, intake, course, outputs, workers);
    let watch = serve(&stages, workers)?;
    let unfinished = stages.unfinished();
    let (intake, mut course, outputs, failures) = stages.into_parts();
    let Intake { inputs, reloads, .. } = intake;
    course.classification.lost.add(DropReason::Unfinished, unfinished);
    control.drops.fetch_add(unfinished, Ordering::Relaxed);
    let warnings = reloads.finish();
    let ending =
        Ending { workers, inputs, course, outputs, watch, port_cycles: 0, warnings, failures };
    Ok(ending::report(plan, ending, state, &clock, control))
}

/// Runs all threads to their ends; returns what they observed.
fn serve(stages: &Stages<'_>, workers: usize) -> Result<Watch, RunError> {
    thread::scope(|scope| {
        let (mut running, mut serving) = (Vec::new(), Vec::new());
        let started = (|| {
            let pinned = stages.pinned.iter().enumerate().filter(|(_, is_pinned)| **is_pinned);
            for (n, _) in pinned {
                let station = PinnedStation::new(stages, n);
                let builder = thread::Builder::new().name(format!("pinned {n}"));
                serving.push(builder.spawn_scoped(scope, || station.run())?);
            }
            for n in 0..workers {
                let worker = Worker::new(stages, n);
                let builder = thread::Builder::new().name(format!("worker {n}"));
                running.push(builder.spawn_scoped(scope, || worker.run())?);
            }
            Ok(())
        })();
        if started.is_err() {
            stages.broken.store(true, Ordering::Release);
        }
        let mut watch = Watch::default();
        // They report their panics themselves.
        let mut join = |thread: ScopedJoinHandle<'_, Watch>| {
            watch.merge(&thread.join().unwrap_or_default());
        };
        running.into_iter().for_each(&mut join);
        stages.end.store(true, Ordering::Release);
        serving.into_iter().for_each(join);
        started.map(|()| watch).map_err(RunError::Thread)
    })
}
