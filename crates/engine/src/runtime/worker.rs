//! A worker: takes bursts from the inputs to the outputs.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;

use thalweg_cpu::cycles;
use thalweg_io::ReadAhead;

use super::idle::Idle;
use super::line::Line;
use super::stages::Stages;
use crate::burst::Burst;
use crate::course::parse;
use crate::guard;
use crate::published::Published;
use crate::watch::Watch;

/// A worker on its own thread.
pub(super) struct Worker<'a, 'r> {
    stages: &'a Stages<'r>,
    line: &'a Line<'r>,
    number: usize,
    /// Bursts without packets; the last one used is the next, because it is in the cache.
    spare: Vec<Burst>,
    /// Whether these keep no frames any more.
    shares: bool,
    /// The bursts under way that it received.
    own: usize,
    counts: &'a Published,
    watch: Watch,
    /// Parts of files that it is about to read; empty, reused.
    reads: Vec<ReadAhead>,
}

impl<'a, 'r> Worker<'a, 'r> {
    /// Begins with `bursts`, on the thread that will [`run`](Self::run).
    pub(super) fn new(stages: &'a Stages<'r>, number: usize, bursts: Vec<Burst>) -> Self {
        let spare = stages.share.bursts(stages.plan, bursts);
        let counts = &stages.workers[number];
        let line = &stages.lines[number % stages.lines.len()];
        let (watch, reads) = (Watch::new(stages.timed), Vec::new());
        Self { stages, line, number, spare, shares: false, own: 0, counts, watch, reads }
    }

    /// Works until no more packets are received and none is under way; returns what it observed, and
    /// its bursts.
    pub(super) fn run(mut self) -> (Watch, Vec<Burst>) {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.stages.break_off(&format!("worker {}", self.number), &*cause);
        }
        (self.watch, self.spare)
    }

    fn work(&mut self) {
        if !self.stages.confine() {
            return;
        }
        let mut idle = Idle::default();
        while !self.stages.broken.load(Ordering::Relaxed) {
            let start = cycles::now();
            // The packets of its own bursts are in its cache: others only after a vain wait.
            let waits = idle.is_long();
            let came_back = self.stages.poll_devices(self.number, waits);
            let worked = self.advance(true)
                || (self.own < self.stages.share.few || waits) && self.receive()
                || waits && self.advance(false)
                || came_back;
            guard::check();
            if worked {
                let cycles = cycles::now().wrapping_sub(start);
                self.watch.busy_cycles += cycles;
                self.counts.worked(cycles);
            } else if self.line.is_over() {
                return;
            } else {
                self.stages.take_snapshot();
            }
            // Polling would keep a core busy.
            if waits && !worked && self.line.rest_too() {
                continue;
            }
            idle.worked(worked);
        }
    }

    /// Takes each burst of the line that no other thread has at this moment as far as it gets, the oldest first,
    /// or only each of its `own`; returns whether one got further.
    fn advance(&mut self, own: bool) -> bool {
        let (mut worked, mut owned) = (false, 0);
        for number in self.line.under_way() {
            let slot = self.line.slot(number);
            let is_own = slot.owner.load(Ordering::Relaxed) == self.number;
            owned += usize::from(is_own);
            if (is_own || !own)
                && let Some(mut slot) = slot.open()
                && let Some(burst) = slot.as_mut().filter(|burst| burst.number == number)
            {
                let Walk { moved, waits } =
                    walk(self.stages, self.line, self.number, burst, &mut self.watch);
                if moved {
                    worked = true;
                    if waits {
                        self.counts.waits();
                    }
                    if !is_own {
                        self.counts.took_over();
                    }
                }
                self.spare.extend(slot.take_if(|burst| burst.is_through));
            }
        }
        self.own = owned;
        worked
    }

    /// Receives a burst, if no other worker of the line does and there is room; returns whether anything
    /// arrived.
    fn receive(&mut self) -> bool {
        let Self { stages, line, number, spare, shares, watch, counts, reads, .. } = self;
        if stages.is_short_of_frames() && !std::mem::replace(shares, true) {
            spare.iter_mut().for_each(Burst::stop_recycling);
        }
        let Ok(mut intake) = line.intake.try_lock() else { return false };
        let place = line.slot(intake.next());
        let Some(mut slot) = place.open().filter(|slot| slot.is_none()) else { return false };
        if !stages.may_receive(line, &mut intake) {
            return false;
        }
        if !stages.has_frames(line) {
            return false;
        }
        let Some(mut burst) = spare.pop() else { return false };
        let came = watch.receive(|| intake.receive(&mut burst, stages.control, counts));
        if burst.is_empty() {
            burst.settle_claims(reads);
            stages.check_frames(&burst);
            spare.push(burst);
            if !came && line.under_way().is_empty() {
                line.rest(&mut intake);
                if let Some(mut outputs) = line.outputs.peek() {
                    outputs.check(stages.control);
                }
            }
            drop((slot, intake));
            reads.drain(..).for_each(ReadAhead::run);
            return came;
        }
        place.owner.store(*number, Ordering::Relaxed);
        let burst = slot.insert(burst);
        line.gate.enter(intake.next());
        drop(intake);
        burst.settle_claims(reads);
        parse(&stages.routing, burst, watch);
        if walk(stages, line, *number, burst, watch).waits {
            counts.waits();
        }
        spare.extend(slot.take_if(|burst| burst.is_through));
        drop(slot);
        // After the burst, for whose turn other bursts wait; nothing waits for what is read ahead.
        reads.drain(..).for_each(ReadAhead::run);
        true
    }
}

/// How far a burst got.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// Whether it got any further.
    moved: bool,
    /// Whether it waits for its turn.
    waits: bool,
}

/// Takes a burst through all stages whose turn it is, for worker number `worker`.
fn walk(
    stages: &Stages<'_>,
    line: &Line<'_>,
    worker: usize,
    burst: &mut Burst,
    watch: &mut Watch,
) -> Walk {
    let mut moved = false;
    if burst.stages == 0 {
        let Some(mut classification) = stages.classification.enter(burst.line, burst.number) else {
            return Walk { moved, waits: true };
        };
        classification.serve(&stages.routing, burst);
        burst.stages += 1;
        moved = true;
    }
    while let Some(station) = stages.stations.get(burst.stages - 1) {
        let at = burst.stages - 1;
        if stages.pinned[at] {
            return Walk { moved, waits: false };
        }
        if let Some(device) = &stages.devices[at] {
            let way = stages.visit_device(at, device, burst, worker, watch);
            moved |= way.moved;
            if !way.is_through {
                return Walk { moved, waits: way.waits };
            }
            burst.stages += 1;
            continue;
        }
        let parts = stages.parts[at].as_ref();
        if let Some(parts) = parts {
            let (some, all) = parts.serve(&stages.routing, burst, watch);
            moved |= some;
            if !all {
                return Walk { moved, waits: true };
            }
        }
        let Some(mut station) = station.enter(burst.line, burst.number) else {
            return Walk { moved, waits: true };
        };
        match parts {
            Some(_) => stages.settle(&mut station, burst),
            None => stages.serve(&mut station, burst, watch),
        }
        burst.stages += 1;
        moved = true;
    }
    let Some(mut outputs) = line.outputs.enter(0, burst.number) else {
        return Walk { moved, waits: true };
    };
    stages.send(&mut outputs, burst, watch);
    burst.clear();
    if stages.is_short_of_frames() {
        burst.stop_recycling();
    }
    burst.is_through = true;
    Walk { moved: true, waits: false }
}
