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
    let start = cycles::now();
    let (idle, warnings) = std::thread::scope(|scope| {
        let mut reloads = Reloads::new(scope, plan);
        let idle = serve(plan, &mut inputs, &mut worker, &mut exit, &mut reloads, &mut failures);
        (idle, reloads.finish())
    });
    let total = cycles::now().wrapping_sub(start);
    let duration_s = clock.elapsed().as_secs_f64();
    exit.outputs.flush(control);
    export_state(&mut worker, 0, state, &mut failures);
    let is_left = leave_state(state, &mut failures);
    let counters = end_worker(worker, is_left, &mut failures);
    let outputs = exit.outputs;
    failures.extend(inputs.failures);
    failures.extend(outputs.failures);
    let totals = Totals {
        workers: 1,
        duration_s,
        stages: options.stages,
        nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
        port_cycles: total.saturating_sub(idle + counters.busy_cycles),
        inputs: inputs.counters,
        outputs: outputs.counters,
        counters,
        latency: outputs.latency,
        leaked_frames: plan.pool.in_use(),
        warnings,
        failures,
    };
    Ok(Report::new(plan, totals))
}

/// Takes batch after batch through the chain until the inputs end; returns the cycles without a
/// batch.
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
    let (mut drops, mut idle) = (Published::default(), 0);
    while !inputs.ended(control) {
        let begin = cycles::now();
        exit.outputs.check(control);
        if inputs.receive(&mut batch, control) {
            worker.ingress(&mut batch, exit);
        } else {
            inputs.rest();
            idle += cycles::now().wrapping_sub(begin);
        }
        drops.publish(worker.drops(), &control.drops);
        reloads.poll(control);
        if control.take_export() {
            worker.flush(failures);
            exit.outputs.flush(control);
        }
    }
    idle
}
