//! The end of a run: state is exported, NFs and ports end, and all counts become the report.

use super::generation::Generation;
use super::ports::{Inputs, Outputs};
use super::session::Session;
use super::state::StateFolders;
use crate::batch_times::BatchTimes;
use crate::published::Published;
use crate::report::{Report, Totals};
use crate::visit::Clock;
use thalweg_io::LinkEvents;

/// Ends a run, in which no packet is under way any more, and reports it.
pub(super) fn report(
    generation: Generation,
    session: Session<'_>,
    state: &StateFolders<'_>,
) -> Report {
    let Session { control, workers, began, reached, watch, port_cycles, mut failures, .. } =
        session;
    let batch_cpu_ns = session.batch_times.as_ref().and_then(BatchTimes::report);
    let duration_s = began.elapsed().as_secs_f64();
    // They hold frames.
    drop(session.bursts);
    let (warnings, failed, reload_pauses_ns) = session.reloads.finish();
    failures.extend(failed);
    let Generation { plan, inputs, course, mut outputs, former, .. } = generation;
    let events = plan.inputs.iter().filter_map(|port| port.events());
    let events = events.chain(plan.outputs.iter().filter_map(|port| port.events()));
    events.for_each(LinkEvents::end);
    outputs.iter_mut().for_each(|line| line.flush(control));
    let is_left = state
        .export_all(&plan, &course, Clock::newest(&reached).unwrap_or_default())
        .unwrap_or_else(|e| {
            failures.push(e.to_string());
            false
        });
    let counters = course.end(is_left, (*former).clone(), &watch, &mut failures);
    let (inputs, failed) = Inputs::finish(inputs, plan.inputs.len());
    let outputs = Outputs::finish(outputs, plan.outputs.len());
    // Each line finds that an interface was removed.
    for failure in failed.into_iter().chain(outputs.failures) {
        if !failures.contains(&failure) {
            failures.push(failure);
        }
    }
    let totals = Totals {
        workers: workers.iter().map(Published::now).collect(),
        duration_s,
        stages: watch.timed,
        nanoseconds_per_cycle: began.nanoseconds_per_cycle(),
        port_cycles,
        inputs,
        outputs: outputs.counters,
        counters,
        latency: outputs.latency,
        batch_cpu_ns,
        reload_pauses_ns,
        leaked_frames: plan.pool.in_use(),
        warnings,
        failures,
    };
    Report::new(&plan, totals)
}
