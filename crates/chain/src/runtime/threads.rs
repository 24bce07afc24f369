//! Runs the chain on several threads.
//!
//! The calling thread reads the inputs and writes the outputs. Each worker has
//! a ring from it and a ring to it; each NF on its own worker has a ring from and
//! a ring to each worker. All rings are lock-free with one producer and one
//! consumer.
//!
//! No thread waits for room in a ring: packets that do not fit stay in a queue before
//! it. Those queues are bounded by the pool, since each packet holds a frame, and
//! the reader receives only while enough frames are free. So no cycle of full
//! rings can block, no packet is lost, and when all frames are back, no packet is
//! under way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, ScopedJoinHandle};

use thalweg_packet::{BATCH, Batch};

use super::dispatch::{Dispatch, WorkerEnds};
use super::error::RunError;
use super::options::RunOptions;
use super::pinned::PinnedThread;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::rings::{Shared, ring};
use super::state::StateFolders;
use super::worker_thread::{RingExit, WorkerThread};
use super::workers::{begin_worker, end_worker, leave_state};
use crate::config::Plan;
use crate::control::Control;
use crate::counters::WorkerCounters;
use crate::report::{Report, Totals};
use crate::route_decider::NfIndex;
use thalweg_cpu::cycles::Clock;

/// The data of the worker threads, of the NF threads, and of the calling thread.
type Threads = (Vec<WorkerThread>, Vec<PinnedThread>, Vec<WorkerEnds>);

/// Creates all rings and the data of the threads.
fn build(
    plan: &Plan,
    workers: usize,
    shared: &Arc<Shared>,
    state: &StateFolders<'_>,
) -> Result<Threads, RunError> {
    let mut pinned: Vec<PinnedThread> = Vec::new();
    for (i, nf) in plan.nfs.iter().enumerate() {
        if nf.has_own_worker(workers) {
            let (nf, mut function) = (NfIndex(i as u16), nf.blueprint.instance(0));
            state.import(nf, 0, &mut *function)?;
            pinned.push(PinnedThread {
                nf,
                function,
                pool: plan.pool.clone(),
                shared: shared.clone(),
                decapsulate: plan.routing.decapsulate,
                rings: Vec::new(),
            });
        }
    }
    let (mut threads, mut ends) = (Vec::new(), Vec::new());
    for number in 0..workers {
        let (to, from_reader) = ring();
        let (to_writer, from) = ring();
        let mut exit = RingExit { to_writer, to_pinned: Vec::new() };
        let mut from_pinned = Vec::new();
        for nf in &mut pinned {
            let (there, arrives) = ring();
            let (back, returns) = ring();
            nf.rings.push((arrives, back));
            exit.to_pinned.push((nf.nf, there));
            from_pinned.push((nf.nf, returns));
        }
        threads.push(WorkerThread {
            worker: begin_worker(plan, number, workers, state)?,
            number,
            pool: plan.pool.clone(),
            shared: shared.clone(),
            from_reader,
            exit,
            from_pinned,
        });
        ends.push(WorkerEnds { to, from });
    }
    Ok((threads, pinned, ends))
}

/// The counts of all threads but the calling one.
struct Counted {
    counters: WorkerCounters,
    busy_cycles: u64,
    duration_s: f64,
    warnings: Vec<String>,
}

pub(super) fn run(
    plan: &Plan,
    workers: usize,
    options: &RunOptions,
    state: &StateFolders<'_>,
    control: &Control,
) -> Result<Report, RunError> {
    let shared = Arc::new(Shared::new());
    let inputs = Inputs::open(plan, options)?;
    let (threads, pinned, ends) = build(plan, workers, &shared, state)?;
    // Last, because it empties files.
    let outputs = Outputs::open(plan, options, control)?;
    // Frames reserved for packets that NFs generate and for batches being filled.
    let reserve = (2 * BATCH * (1 + workers + pinned.len())).min(plan.pool.frames() / 2);
    let mut dispatch = Dispatch {
        control,
        inputs,
        outputs,
        ends,
        batch: Batch::new(plan.pool.clone()),
        outgoing: plan.outputs.iter().map(|_| Batch::new(plan.pool.clone())).collect(),
        reserve,
        by_addresses: plan.spreads_by_addresses(),
        busy_cycles: 0,
        plan,
    };
    let clock = Clock::start();
    let mut counted = serve(&mut dispatch, threads, pinned, state, &shared, &clock)?;
    for nf in plan.nfs.iter().filter(|nf| nf.has_own_worker(workers) && !nf.pinned) {
        let name = &nf.name;
        counted
            .warnings
            .push(format!("NF '{name}' allows only one instance; it runs on its own worker"));
    }
    dispatch.outputs.flush(control);
    let Dispatch { inputs, outputs, batch, outgoing, ends, busy_cycles, .. } = dispatch;
    drop((batch, outgoing, ends));
    let mut failures = shared.take_failures();
    let (inputs, failed) = inputs.finish();
    let outputs = outputs.finish();
    failures.extend(failed);
    failures.extend(outputs.failures);
    let totals = Totals {
        workers,
        duration_s: counted.duration_s,
        stages: false,
        nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
        port_cycles: busy_cycles + counted.busy_cycles,
        inputs,
        outputs: outputs.counters,
        counters: counted.counters,
        latency: outputs.latency,
        leaked_frames: plan.pool.in_use(),
        warnings: counted.warnings,
        failures,
    };
    Ok(Report::new(plan, totals))
}

/// Starts all threads, serves the ports until the end, and joins the threads.
fn serve(
    dispatch: &mut Dispatch<'_>,
    threads: Vec<WorkerThread>,
    pinned: Vec<PinnedThread>,
    state: &StateFolders<'_>,
    shared: &Shared,
    clock: &Clock,
) -> Result<Counted, RunError> {
    let plan = dispatch.plan;
    let mut counters = WorkerCounters::new(plan.nfs.len(), plan.types.len());
    let mut pinned_cycles = 0;
    thread::scope(|scope| {
        let (mut workers, mut nfs) = (Vec::new(), Vec::new());
        let started = (|| {
            for (i, thread) in threads.into_iter().enumerate() {
                let builder = thread::Builder::new().name(format!("worker {i}"));
                workers.push(builder.spawn_scoped(scope, move || thread.run(state))?);
            }
            for thread in pinned {
                let builder = thread::Builder::new().name(format!("nf {}", thread.nf.0));
                nfs.push(builder.spawn_scoped(scope, move || thread.run(state))?);
            }
            Ok(())
        })();
        let mut reloads = Reloads::new(scope, plan);
        if started.is_ok() {
            dispatch.serve(shared, &mut reloads);
        }
        let duration_s = clock.elapsed().as_secs_f64();
        shared.end.store(true, Ordering::Release);
        let mut failures = Vec::new();
        let workers = join_all(workers, "a worker panicked", &mut failures);
        let nfs = join_all(nfs, "the worker of an NF panicked", &mut failures);
        let warnings = reloads.finish();
        started.map_err(RunError::Thread)?;
        // After all of them: whether another run can import the flows is known when all is written.
        let is_left = leave_state(state, &mut failures);
        for worker in workers {
            counters.merge(&end_worker(worker, is_left, &mut failures));
        }
        for nf in nfs {
            let at = usize::from(nf.nf.0);
            pinned_cycles += nf.busy_cycles;
            counters.nfs[at].merge(&nf.end(is_left, &mut failures));
        }
        shared.fail(failures);
        Ok(Counted { counters, busy_cycles: pinned_cycles, duration_s, warnings })
    })
}

/// Waits for threads; returns the results of those that did not panic.
fn join_all<T>(
    threads: Vec<ScopedJoinHandle<'_, T>>,
    died: &str,
    failures: &mut Vec<String>,
) -> Vec<T> {
    let joined = threads.into_iter().map(ScopedJoinHandle::join);
    let or_say = |end: thread::Result<T>| end.map_err(|_| failures.push(died.into())).ok();
    joined.filter_map(or_say).collect()
}
