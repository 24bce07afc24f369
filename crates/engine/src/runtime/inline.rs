//! Runs the whole chain on the calling thread.

use std::panic::{self, AssertUnwindSafe};

use thalweg_cpu::cycles;
use thalweg_packet::DropReason;

use super::generation::Generation;
use super::panics;
use super::placing::keep_on;
use super::session::Session;
use crate::batch_times::BatchTimes;
use crate::burst::Burst;
use crate::course::transmit;
use crate::guard;
use crate::visit::Clock;

/// Takes packets through `generation` until no more arrive, or the next generation is ready.
pub(super) fn serve(mut generation: Generation, session: &mut Session<'_>) -> Generation {
    let _core = keep_on(generation.plan.cores.first().copied(), "the worker");
    if session.watch.timed {
        generation.course.classification.classifier.take_time();
    }
    let (routing, pool) = (&generation.plan.routing, &generation.plan.pool);
    let burst = session.bursts.pop();
    let mut burst = burst.unwrap_or_else(|| Burst::new(routing, pool, 1, true));
    if let Err(failure) = guard::confine(session.confinement.as_deref()) {
        session.failures.push(failure);
        session.is_broken = true;
        return generation;
    }
    let before = session.watch.busy_cycles;
    let served = AssertUnwindSafe(|| serve_all(&mut generation, session, &mut burst));
    let busy = panic::catch_unwind(served).unwrap_or_else(|cause| {
        let course = &mut generation.course;
        let nf = course.stations.iter().find_map(|station| station.at_work);
        let failure = panics::failure(&generation.plan, "the worker", nf, &*cause);
        let unfinished = burst.packets();
        course.classification.lost.add(DropReason::Unfinished, unfinished);
        session.control.dropped(burst.drops + unfinished);
        session.failures.push(failure);
        session.is_broken = true;
        0
    });
    session.port_cycles += busy.saturating_sub(session.watch.busy_cycles - before);
    if !session.is_broken {
        session.bursts.push(burst);
    }
    generation
}

/// Returns the cycles of the rounds that had a batch.
fn serve_all(generation: &mut Generation, session: &mut Session<'_>, burst: &mut Burst) -> u64 {
    let control = session.control;
    let workers = session.workers.clone();
    session.reached = Clock::divide(&session.reached, 1);
    let worker = &workers[0];
    let mut busy = 0;
    let mut last = cycles::now();
    session.batch_times.iter_mut().for_each(BatchTimes::begin);
    while !generation.inputs[0].ended(control) {
        generation.outputs[0].check(control);
        burst.flush = control.take_export();
        let audience = control.observers.audience(&generation.plan);
        let before = audience.as_ref().map_or(0, |_| control.packets_in());
        let round = &mut burst.rounds[0];
        let came = generation.inputs[0].receive(round, control);
        round.clock = session.reached[0].batch(&round.batch);
        round.observe(audience.as_ref(), before);
        let packets = round.batch.len() as u64;
        if packets > 0 {
            worker.received(packets);
        }
        let asked = control.take_asked();
        if !asked.is_empty() {
            let run = generation.run(session.workers.clone(), session.began);
            burst.begin_tally(asked, &run, generation.inputs[0].counters(&generation.plan));
        }
        if came || !burst.is_empty() {
            through(generation, session, burst);
        } else {
            generation.inputs[0].rest(None);
        }
        let now = cycles::now();
        if came {
            busy += now.wrapping_sub(last);
            worker.worked(now.wrapping_sub(last));
        }
        last = now;
        guard::check();
        session.batch_times.iter_mut().for_each(|times| times.next(came));
        if session.reloads.poll(&generation.plan, control) {
            break;
        }
    }
    busy
}

/// Takes a burst from the inputs to the outputs.
fn through(generation: &mut Generation, session: &mut Session<'_>, burst: &mut Burst) {
    let Generation { plan, course, outputs, .. } = generation;
    let outputs = &mut outputs[0];
    let Session { control, watch, failures, .. } = session;
    let start = if watch.timed { cycles::now() } else { 0 };
    course.serve(burst, watch);
    transmit(burst, watch, |output, round, lanes| outputs.send(output, round, lanes, control));
    for station in &mut course.stations {
        station.flush(burst, failures);
    }
    outputs.export(burst, plan, control);
    burst.count(|tally| outputs.count(tally));
    burst.answer();
    control.dropped(burst.drops);
    burst.clear();
    watch.busy_cycles += if watch.timed { cycles::now().wrapping_sub(start) } else { 0 };
}
