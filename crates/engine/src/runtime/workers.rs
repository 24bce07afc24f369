//! Runs the chain on several threads.
//!
//! A worker receives a burst of packets and takes it through all stages up to the outputs; the
//! packets stay on its core. Inputs, classification, NFs and outputs exist once, and each serves
//! the bursts in the order in which they were received ([`InTurn`](crate::turn::InTurn)). So the
//! workers follow each other through the chain, each at another stage, and every NF and output sees
//! the same packets in the same order as with one worker. A worker whose bursts wait for their
//! turns receives another, or goes on with one that another worker has received.
//!
//! If all inputs are live and have several queues, there are several [lines](super::line::Line), each
//! with some queues of each port and workers of its own: they receive and transmit without waiting for
//! those of other lines. Classification and NFs still exist once; bursts of different lines pass them
//! in any order, one at a time, and those of one line in theirs. So packets of a flow keep their
//! order, since an input has them all in one queue.
//!
//! A station with a device serves each burst in two halves, each of which has its turns
//! ([`AtDevice`](super::at_device::AtDevice)); between them the device has the packets of several bursts.
//!
//! No thread waits inside a stage, and the oldest burst of a line under way never waits for another,
//! save for one that a stage serves at that moment: no circle of waiting threads can form.

use std::sync::atomic::Ordering;
use std::thread;

use thalweg_packet::DropReason;

use super::error::RunError;
use super::generation::Generation;
use super::pinned::PinnedStation;
use super::placing::keep_on;
use super::session::Session;
use super::stages::Stages;
use super::worker::Worker;
use crate::burst::Burst;
use crate::watch::Watch;

/// Takes packets through `generation` until no more arrive, or the next generation is ready.
pub(super) fn serve(generation: Generation, session: &mut Session<'_>) -> Generation {
    let plan = generation.plan.clone();
    let mut bursts = std::mem::take(&mut session.bursts);
    let mut watch = Watch::default();
    let stages = Stages::new(&plan, generation, session);
    let started = serve_all(&stages, &mut bursts, &mut watch);
    let (unfinished, is_broken) = (stages.unfinished(), stages.broken.load(Ordering::Acquire));
    let (mut generation, failures) = stages.end();
    session.failures.extend(failures);
    session.failures.extend(started.err().map(|e| RunError::Thread(e).to_string()));
    session.watch.merge(&watch);
    (session.bursts, session.is_broken) = (bursts, is_broken);
    generation.course.classification.lost.add(DropReason::Unfinished, unfinished);
    session.control.dropped(unfinished);
    generation
}

/// Runs all threads to their ends; they begin with `bursts`, and leave them.
fn serve_all(
    stages: &Stages<'_>,
    bursts: &mut Vec<Burst>,
    watch: &mut Watch,
) -> std::io::Result<()> {
    thread::scope(|scope| {
        let (mut running, mut serving) = (Vec::new(), Vec::new());
        let started = (|| {
            let pinned = stages.pinned.iter().enumerate().filter(|(_, is_pinned)| **is_pinned);
            for (n, _) in pinned {
                let (station, core) = (PinnedStation::new(stages, n), stages.core_of_station(n));
                let builder = thread::Builder::new().name(format!("pinned {n}"));
                let serve = move || {
                    let _core = keep_on(core, "a pinned NF");
                    station.run()
                };
                serving.push(builder.spawn_scoped(scope, serve)?);
            }
            for n in 0..stages.workers.len() {
                // As they were left: each worker goes on with its own.
                let there = bursts.drain(..stages.share.bursts.min(bursts.len())).collect();
                let core = stages.plan.cores.get(n).copied();
                let builder = thread::Builder::new().name(format!("worker {n}"));
                let work = move || {
                    let _core = keep_on(core, &format!("worker {n}"));
                    Worker::new(stages, n, there).run()
                };
                running.push(builder.spawn_scoped(scope, work)?);
            }
            // A generation before may have had more, which keep frames.
            bursts.clear();
            Ok(())
        })();
        if started.is_err() {
            stages.broken.store(true, Ordering::Release);
        }
        // They report their panics themselves.
        for worker in running {
            let (watched, spare) = worker.join().unwrap_or_default();
            watch.merge(&watched);
            bursts.extend(spare);
        }
        stages.end.store(true, Ordering::Release);
        for station in serving {
            watch.merge(&station.join().unwrap_or_default());
        }
        started
    })
}
