//! The end of a run: state is exported, NFs and ports end, and all counts become the report.

use super::ports::{Inputs, Outputs};
use super::state::StateFolders;
use crate::control::Control;
use crate::course::Course;
use crate::report::{Report, Totals};
use crate::watch::Watch;
use thalweg_chain::Plan;
use thalweg_cpu::cycles::Clock;

/// What a run leaves when no packet is under way any more.
pub(super) struct Ending {
    pub(super) workers: usize,
    pub(super) inputs: Inputs,
    pub(super) course: Course,
    pub(super) outputs: Outputs,
    pub(super) watch: Watch,
    /// Cycles spent on packets outside the course.
    pub(super) port_cycles: u64,
    pub(super) warnings: Vec<String>,
    pub(super) failures: Vec<String>,
}

/// Ends a run that began with `clock`, and reports it.
pub(super) fn report(
    plan: &Plan,
    ending: Ending,
    state: &StateFolders<'_>,
    clock: &Clock,
    control: &Control,
) -> Report {
    let duration_s = clock.elapsed().as_secs_f64();
    let Ending { workers, inputs, course, mut outputs, watch, port_cycles, .. } = ending;
    let (warnings, mut failures) = (ending.warnings, ending.failures);
    // They get no answer any more.
    drop(control.take_asked());
    outputs.flush(control);
    let is_left = state.export_all(&course).unwrap_or_else(|e| {
        failures.push(e.to_string());
        false
    });
    let counters = course.end(is_left, &watch, &mut failures);
    let (inputs, failed) = inputs.finish();
    let outputs = outputs.finish();
    failures.extend(failed);
    failures.extend(outputs.failures);
    let totals = Totals {
        workers,
        duration_s,
        stages: watch.timed,
        nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
        port_cycles,
        inputs,
        outputs: outputs.counters,
        counters,
        latency: outputs.latency,
        leaked_frames: plan.pool.in_use(),
        warnings,
        failures,
    };
    Report::new(plan, totals)
}
