//! Runs the whole chain on the calling thread.

use thalweg_packet::{Batch, Lanes};

use super::drops::Published;
use super::error::RunError;
use super::options::RunOptions;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::state::StateFolders;
use super::workers::{begin_worker, end_worker, export_state, leave_state};
use crate::config::Plan;
use crate::control::Control;
use crate::forwarding::Exit;
use crate::report::{Report, Totals};
use crate::route_decider::NfIndex;
use crate::worker::Worker;
use thalweg_cpu::cycles::{self, Clock};

struct InlineExit<'a> {
    outputs: Outputs,
    control: &'a Control,
}

impl Exit for InlineExit<'_> {
    fn transmit(&mut self, output: usize, batch: &mut Batch, lanes: Lanes) {
        self.outputs.send(output, batch, lanes, self.control);
    }

    fn to_pinned(&mut self, _nf: NfIndex, _batch: &mut Batch, _lanes: Lanes) {
        unreachable!("a chain with a pinned NF runs on several threads");
    }
}

pub(super) fn run(
    plan: &Plan,
    options: &RunOptions,
    state: &StateFolders<'_>,
    control: &Control,
) -> Result<Report, RunError> {
    let mut inputs = Inputs::open(plan, options)?;
    let mut worker = begin_worker(plan, 0, 1, state)?;
    // Last, because it empties files.
    let mut exit = InlineExit { outputs: Outputs::open(plan, options, control)?, control };
    if options.stages {
        worker.take_time();
    }
    let mut failures = Vec::new();
    let clock = Clock::start();
    let (busy, warnings) = std::thread::scope(|scope| {
        let mut reloads = Reloads::new(scope, plan);
        let busy = serve(plan, &mut inputs, &mut worker, &mut exit, &mut reloads, &mut failures);
        (busy, reloads.finish())
    });
    let duration_s = clock.elapsed().as_secs_f64();
    exit.outputs.flush(control);
    export_state(&mut worker, 0, state, &mut failures);
    let is_left = leave_state(state, &mut failures);
    let counters = end_worker(worker, is_left, &mut failures);
    let (inputs, failed) = inputs.finish();
    let outputs = exit.outputs.finish();
    failures.extend(failed);
    failures.extend(outputs.failures);
    let totals = Totals {
        workers: 1,
        duration_s,
        stages: options.stages,
        nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
        port_cycles: busy.saturating_sub(counters.busy_cycles),
        inputs,
        outputs: outputs.counters,
        counters,
        latency: outputs.latency,
        leaked_frames: plan.pool.in_use(),
        warnings,
        failures,
    };
    Ok(Report::new(plan, totals))
}

/// Takes batch after batch through the chain until the inputs end; returns the cycles of the rounds
/// that had one.
fn serve(
    plan: &Plan,
    inputs: &mut Inputs,
    worker: &mut Worker,
    exit: &mut InlineExit<'_>,
    reloads: &mut Reloads<'_, '_>,
    failures: &mut Vec<String>,
) -> u64 {
    let control = exit.control;
    let mut batch = Batch::new(plan.pool.clone());
    batch.recycle();
    let (mut drops, mut busy) = (Published::default(), 0);
    let mut last = cycles::now();
    while !inputs.ended(control) {
        exit.outputs.check(control);
        let came = inputs.receive(&mut batch, control);
        if came {
            worker.ingress(&mut batch, exit);
        } else {
            inputs.rest();
        }
        drops.publish(worker.drops(), &control.drops);
        reloads.poll(control);
        if control.take_export() {
            worker.flush(failures);
            exit.outputs.flush(control);
        }
        let now = cycles::now();
        busy += if came { now.wrapping_sub(last) } else { 0 };
        last = now;
    }
    busy
}
