//! A worker: takes bursts from the inputs to the outputs.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;

use thalweg_cpu::cycles;

use super::idle::Idle;
use super::pinned::Exchange;
use super::stages::Stages;
use crate::burst::Burst;
use crate::course::parse;
use crate::watch::Watch;

/// A worker on its own thread.
pub(super) struct Worker<'a> {
    stages: &'a Stages<'a>,
    number: usize,
    /// The bursts under way here, the oldest first.
    bursts: VecDeque<Box<Burst>>,
    /// Bursts without packets.
    idle: Vec<Box<Burst>>,
    /// By station: the exchange with its thread, if it has one of its own.
    exchanges: Vec<Option<Exchange>>,
    /// Packets are received only while this many frames are free.
    reserve: usize,
    pub(super) watch: Watch,
}

/// How far a burst has come.
enum Way {
    /// It waits for its turn.
    Waits,
    /// It goes to the thread of this station.
    Leaves(usize),
    /// It is through.
    Through,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        stages: &'a Stages<'a>,
        number: usize,
        bursts: Vec<Box<Burst>>,
        exchanges: Vec<Option<Exchange>>,
        reserve: usize,
    ) -> Self {
        let (idle, bursts) = (bursts, VecDeque::new());
        Self { stages, number, bursts, idle, exchanges, reserve, watch: Watch::default() }
    }

    /// Works until no more packets arrive and none is under way; returns itself.
    pub(super) fn run(mut self) -> Self {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.stages.break_off(&format!("worker {}", self.number), &*cause);
        }
        self
    }

    /// Packets that did not get through, because a thread panicked.
    pub(super) fn unfinished(&mut self) -> u64 {
        self.take_back();
        self.bursts.iter().map(|burst| burst.packets()).sum()
    }

    fn work(&mut self) {
        let mut idle = Idle::default();
        while !self.stages.broken.load(Ordering::Relaxed) {
            let start = cycles::now();
            let worked = self.take_back() | self.advance() || self.receive();
            if worked {
                self.watch.busy_cycles += cycles::now().wrapping_sub(start);
            } else if self.is_done() {
                return;
            }
            idle.worked(worked);
        }
    }

    fn is_done(&self) -> bool {
        self.stages.drained.load(Ordering::Acquire)
            && self.bursts.is_empty()
            && self.exchanges.iter().flatten().all(Exchange::is_empty)
    }

    /// Takes back the bursts that stations on their own threads have served; returns whether there
    /// were any.
    fn take_back(&mut self) -> bool {
        let mut any = false;
        for exchange in self.exchanges.iter_mut().flatten() {
            while let Some(burst) = exchange.take_back() {
                let at = self.bursts.partition_point(|other| other.number < burst.number);
                self.bursts.insert(at, burst);
                any = true;
            }
        }
        any
    }

    /// Takes each burst as far as it gets; returns whether one got further.
    fn advance(&mut self) -> bool {
        let (mut at, mut worked) = (0, false);
        while let Some(burst) = self.bursts.get_mut(at) {
            let before = burst.stages;
            let way = walk(self.stages, &self.exchanges, burst, &mut self.watch);
            worked |= burst.stages > before;
            match way {
                Way::Waits => at += 1,
                Way::Leaves(station) => {
                    let exchange = self.exchanges[station].as_mut();
                    if let Some((exchange, burst)) = exchange.zip(self.bursts.remove(at)) {
                        exchange.give(burst);
                    }
                    worked = true;
                }
                Way::Through => {
                    if let Some(mut burst) = self.bursts.remove(at) {
                        burst.clear();
                        self.idle.push(burst);
                    }
                }
            }
        }
        worked
    }

    /// Receives a burst, if no other worker does and there are enough frames; returns whether
    /// anything arrived.
    fn receive(&mut self) -> bool {
        let Self { stages, idle, bursts, watch, .. } = self;
        let Ok(mut intake) = stages.intake.try_lock() else { return false };
        let Some(mut burst) = idle.pop() else { return false };
        if intake.inputs.ended(stages.control) {
            stages.drained.store(true, Ordering::Release);
        } else if stages.plan.pool.available() >= self.reserve {
            let came = intake.receive(&mut burst, stages.control);
            if !burst.is_empty() {
                drop(intake);
                parse(&stages.routing, &mut burst, watch);
                bursts.push_back(burst);
                return true;
            }
            if !came && bursts.is_empty() {
                intake.inputs.rest();
                if let Some(mut outputs) = stages.outputs.peek() {
                    outputs.check(stages.control);
                }
            }
            idle.push(burst);
            return came;
        }
        idle.push(burst);
        false
    }
}

/// Takes a burst through all stages whose turn it is.
fn walk(
    stages: &Stages<'_>,
    exchanges: &[Option<Exchange>],
    burst: &mut Burst,
    watch: &mut Watch,
) -> Way {
    if burst.stages == 0 {
        let Some(mut classification) = stages.classification.enter(burst.number) else {
            return Way::Waits;
        };
        classification.serve(&stages.routing, burst, watch);
        burst.stages += 1;
    }
    while let Some(station) = stages.stations.get(burst.stages - 1) {
        if exchanges[burst.stages - 1].is_some() {
            return Way::Leaves(burst.stages - 1);
        }
        let Some(mut station) = station.enter(burst.number) else { return Way::Waits };
        stages.serve(&mut station, burst, watch);
        burst.stages += 1;
    }
    let Some(mut outputs) = stages.outputs.enter(burst.number) else { return Way::Waits };
    stages.send(&mut outputs, burst, watch);
    burst.stages += 1;
    Way::Through
}
