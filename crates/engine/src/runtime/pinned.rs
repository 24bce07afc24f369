//! A station on its own thread, between rings from and to each worker.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;

use rtrb::{Consumer, Producer, RingBuffer};
use thalweg_cpu::cycles;

use super::idle::Idle;
use super::stages::Stages;
use super::workers::BURSTS;
use crate::burst::Burst;
use crate::watch::Watch;

type Sender = Producer<Box<Burst>>;
type Receiver = Consumer<Box<Burst>>;

/// A worker's side of the rings to and from a station. Each has room for all bursts of the worker.
pub(super) struct Exchange {
    to: Sender,
    from: Receiver,
    /// Bursts at the station.
    away: usize,
}

impl Exchange {
    /// The rings between a worker and a station, and the station's side of them.
    pub(super) fn new() -> (Self, (Receiver, Sender)) {
        let (to, arrives) = RingBuffer::new(BURSTS);
        let (back, from) = RingBuffer::new(BURSTS);
        (Self { to, from, away: 0 }, (arrives, back))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.away == 0
    }

    pub(super) fn give(&mut self, burst: Box<Burst>) {
        self.away += 1;
        send(&mut self.to, burst);
    }

    pub(super) fn take_back(&mut self) -> Option<Box<Burst>> {
        let burst = self.from.pop().ok()?;
        self.away -= 1;
        Some(burst)
    }
}

fn send(ring: &mut Sender, burst: Box<Burst>) {
    let sent = ring.push(burst);
    assert!(sent.is_ok(), "a ring has room for all bursts of its worker");
}

/// A station whose NFs are served by a thread of their own.
pub(super) struct PinnedStation<'a> {
    stages: &'a Stages<'a>,
    station: usize,
    /// From and to each worker.
    rings: Vec<(Receiver, Sender)>,
    /// Bursts that wait for their turn, with the number of their worker.
    waiting: Vec<(Box<Burst>, usize)>,
    pub(super) watch: Watch,
}

impl<'a> PinnedStation<'a> {
    pub(super) fn new(
        stages: &'a Stages<'a>,
        station: usize,
        rings: Vec<(Receiver, Sender)>,
    ) -> Self {
        let waiting = Vec::with_capacity(BURSTS * rings.len());
        Self { stages, station, rings, waiting, watch: Watch::default() }
    }

    /// Serves bursts until all workers have ended; returns itself.
    pub(super) fn run(mut self) -> Self {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.stages.break_off("the thread of a pinned NF", &*cause);
        }
        self
    }

    /// Packets that did not get through, because a thread panicked.
    pub(super) fn unfinished(&mut self) -> u64 {
        self.collect();
        self.waiting.iter().map(|(burst, _)| burst.packets()).sum()
    }

    fn work(&mut self) {
        let mut idle = Idle::default();
        while !self.stages.end.load(Ordering::Acquire) {
            let start = cycles::now();
            let worked = self.collect() | self.serve();
            if worked {
                self.watch.busy_cycles += cycles::now().wrapping_sub(start);
            }
            idle.worked(worked);
        }
    }

    /// Takes the bursts that have arrived.
    fn collect(&mut self) -> bool {
        let before = self.waiting.len();
        for (worker, (arrives, _)) in self.rings.iter_mut().enumerate() {
            while let Ok(burst) = arrives.pop() {
                self.waiting.push((burst, worker));
            }
        }
        self.waiting.len() > before
    }

    /// Serves the burst whose turn it is, if it is here.
    fn serve(&mut self) -> bool {
        let Self { stages, waiting, rings, watch, .. } = self;
        let turns = &stages.stations[self.station];
        for at in 0..waiting.len() {
            let Some(mut station) = turns.enter(waiting[at].0.number) else { continue };
            stages.serve(&mut station, &mut waiting[at].0, watch);
            drop(station);
            let (mut burst, worker) = waiting.swap_remove(at);
            burst.stages += 1;
            send(&mut rings[worker].1, burst);
            return true;
        }
        false
    }
}
