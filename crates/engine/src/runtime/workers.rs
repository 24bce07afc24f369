//! Runs the chain on several threads.
//!
//! A worker receives a burst of packets and takes it through all stages up to the outputs; the
//! packets stay on its core. Inputs, classification, NFs and outputs exist once, and each serves
//! the bursts in the order in which they were received ([`InTurn`](crate::turn::InTurn)). So the
//! workers follow each other through the chain, each at another stage, and every NF and output sees
//! the same packets in the same order as with one worker. A worker whose bursts wait for their
//! turns receives another.
//!
//! No thread waits inside a stage, and the oldest burst under way never waits for another: no
//! circle of waiting threads can form.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, ScopedJoinHandle};

use thalweg_chain::Plan;
use thalweg_cpu::cycles::Clock;
use thalweg_packet::{BATCH, DropReason};

use super::ending::{self, Ending};
use super::error::RunError;
use super::options::RunOptions;
use super::pinned::{Exchange, PinnedStation};
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::stages::{Intake, Stages};
use super::state::StateFolders;
use super::worker::Worker;
use crate::burst::Burst;
use crate::control::Control;
use crate::course::Course;
use crate::report::Report;
use crate::watch::Watch;

/// The most batches that a worker receives at once.
const BATCHES: usize = 8;
/// The most bursts that a worker has under way.
pub(super) const BURSTS: usize = 4;

/// How the frames of the pool are divided.
struct Share {
    /// Batches of a burst.
    batches: usize,
    /// Whether bursts keep their frames.
    recycles: bool,
    /// Frames that must be free before packets are received.
    reserve: usize,
}

impl Share {
    /// The bursts of all workers have at most a quarter of the frames, if there are enough; the
    /// others are for packets that NFs generate.
    fn of(frames: usize, workers: usize) -> Self {
        let all = BATCH * BURSTS * workers;
        let batches = (frames / 4 / all).clamp(1, BATCHES);
        let recycles = batches * all <= frames / 4;
        let reserve = if recycles { 0 } else { (2 * BATCH * (1 + workers)).min(frames / 2) };
        Self { batches, recycles, reserve }
    }
}

pub(super) fn run(
    plan: &Arc<Plan>,
    workers: usize,
    options: &RunOptions,
    state: &StateFolders<'_>,
    control: &Control,
) -> Result<Report, RunError> {
    let inputs = Inputs::open(plan, options)?;
    let mut course = Course::new(plan);
    state.import_all(&mut course)?;
    let is_pinned = |nf| plan.nfs[usize::from(nf)].pinned;
    let pinned = course.stations.iter();
    let pinned: Vec<bool> =
        pinned.map(|station| station.members().iter().any(|m| is_pinned(m.nf.0))).collect();
    // Last, because it empties files.
    let outputs = Outputs::open(plan, options, control)?;
    let intake = Intake::new(inputs, Reloads::new(plan.clone()));
    let clock = Clock::start();
    let stages = Stages::new(plan, control, intake, course, outputs);
    let (watch, unfinished) = serve(&stages, workers, &pinned)?;
    let (intake, mut course, outputs, failures) = stages.into_parts();
    let Intake { inputs, reloads, .. } = intake;
    course.classification.lost.add(DropReason::Unfinished, unfinished);
    control.drops.fetch_add(unfinished, Ordering::Relaxed);
    let warnings = reloads.finish();
    let ending =
        Ending { workers, inputs, course, outputs, watch, port_cycles: 0, warnings, failures };
    Ok(ending::report(plan, ending, state, &clock, control))
}

/// Runs all threads to their ends; returns what they observed, and the packets that did not get
/// through.
fn serve(stages: &Stages<'_>, workers: usize, pinned: &[bool]) -> Result<(Watch, u64), RunError> {
    let share = Share::of(stages.plan.pool.frames(), workers);
    let burst =
        || Box::new(Burst::new(&stages.routing, &stages.plan.pool, share.batches, share.recycles));
    let mut sides: Vec<Vec<_>> = pinned.iter().map(|_| Vec::new()).collect();
    let mut worker = |number| {
        let exchanges = pinned.iter().zip(&mut sides).map(|(is_pinned, sides)| {
            is_pinned.then(|| {
                let (exchange, side) = Exchange::new();
                sides.push(side);
                exchange
            })
        });
        let exchanges = exchanges.collect();
        let bursts = (0..BURSTS).map(|_| burst()).collect();
        Worker::new(stages, number, bursts, exchanges, share.reserve)
    };
    let workers: Vec<Worker<'_>> = (0..workers).map(&mut worker).collect();
    let stations: Vec<PinnedStation<'_>> = (0..)
        .zip(sides)
        .filter(|(_, sides)| !sides.is_empty())
        .map(|(station, sides)| PinnedStation::new(stages, station, sides))
        .collect();
    thread::scope(|scope| {
        let (mut running, mut serving) = (Vec::new(), Vec::new());
        let started = (|| {
            for (n, station) in stations.into_iter().enumerate() {
                let builder = thread::Builder::new().name(format!("pinned {n}"));
                serving.push(builder.spawn_scoped(scope, || station.run())?);
            }
            for (n, worker) in workers.into_iter().enumerate() {
                let builder = thread::Builder::new().name(format!("worker {n}"));
                running.push(builder.spawn_scoped(scope, || worker.run())?);
            }
            Ok(())
        })();
        if started.is_err() {
            stages.broken.store(true, Ordering::Release);
        }
        let mut workers: Vec<_> = running.into_iter().filter_map(joined).collect();
        stages.end.store(true, Ordering::Release);
        let mut stations: Vec<_> = serving.into_iter().filter_map(joined).collect();
        started.map_err(RunError::Thread)?;
        let mut watch = Watch::default();
        workers.iter().for_each(|worker| watch.merge(&worker.watch));
        stations.iter().for_each(|station| watch.merge(&station.watch));
        let of_workers: u64 = workers.iter_mut().map(Worker::unfinished).sum();
        let of_stations: u64 = stations.iter_mut().map(PinnedStation::unfinished).sum();
        Ok((watch, of_workers + of_stations))
    })
}

/// The result of a thread, which reports its panics itself.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Option<T> {
    thread.join().ok()
}
