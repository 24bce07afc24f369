//! The whole chain on the calling thread.

use std::sync::atomic::Ordering::Relaxed;

use thalweg_packet::{Batch, Lanes};

use super::ports::{Inputs, Outputs, reload};
use super::{RunError, RunOptions, build_worker};
use crate::config::Plan;
use crate::control::Control;
use crate::cycles::{self, Clock};
use crate::report::{Report, Totals};
use crate::route_decider::NfIndex;
use crate::worker::Exit;

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

pub(super) fn run(plan: Plan, options: &RunOptions, control: &Control) -> Result<Report, RunError> {
    let mut inputs = Inputs::open(&plan, options)?;
    let mut exit = InlineExit { outputs: Outputs::open(&plan)?, control };
    let mut worker = build_worker(&plan, 0, 1);
    let mut batch = Batch::new(plan.pool.clone());
    let mut warnings = Vec::new();
    let mut failures = Vec::new();
    let clock = Clock::start();
    let mut dropped = 0;
    let start = cycles::now();
    while !inputs.ended(control) {
        inputs.receive(&mut batch, control);
        worker.ingress(&mut batch, &mut exit);
        let drops = worker.drops();
        control.drops.fetch_add(drops - dropped, Relaxed);
        dropped = drops;
        if control.take_reload() {
            reload(&plan, &mut warnings);
        }
        if control.take_export() {
            worker.flush(&mut failures);
            exit.outputs.flush(control);
        }
    }
    let total = cycles::now().wrapping_sub(start);
    let duration_s = clock.elapsed().as_secs_f64();
    exit.outputs.flush(control);
    let counters = worker.finish(&mut failures);
    drop(batch);
    let outputs = exit.outputs;
    failures.extend(inputs.failures);
    failures.extend(outputs.failures);
    let totals = Totals {
        workers: 1,
        duration_s,
        nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
        port_cycles: total.saturating_sub(counters.busy_cycles),
        inputs: inputs.counters,
        outputs: outputs.counters,
        counters,
        latency: outputs.latency,
        leaked_frames: plan.pool.in_use(),
        warnings,
        failures,
    };
    Ok(Report::new(&plan, totals))
}
