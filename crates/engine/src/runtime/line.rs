//! A line: the queues of ports that the same workers use, from its inputs to its outputs.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::waker::Waker;
use crate::burst::{Burst, Flush};
use crate::control::Control;
use crate::gate::Gate;
use crate::published::Published;
use crate::tally::Run;
use crate::turn::InTurn;
use crate::visit::Clock;

/// The bursts under way, for each worker; more where a device needs more packets.
pub(super) const BURSTS: usize = 16;
/// The most of them.
pub(super) const MOST_BURSTS: usize = 256;

/// What the workers of a line share, and those of other lines do not; in cache lines of its own.
#[repr(align(128))]
pub(super) struct Line<'a> {
    pub(super) intake: Mutex<Intake<'a>>,
    /// The worker that has the intake waits for packets.
    rests: AtomicBool,
    /// Wakes it; `None` if there is one line, or if the system has no descriptor left: then it wakes by
    /// itself after a while.
    waker: Option<Waker>,
    pub(super) outputs: InTurn<Outputs>,
    /// Burst `n` is in the slot `n` modulo their number.
    slots: Vec<Slot>,
    /// Closed when no more packets are received, by this generation at least.
    pub(super) gate: Gate,
}

/// The place of a burst under way.
#[derive(Default)]
pub(super) struct Slot {
    /// The worker that received it.
    pub(super) owner: AtomicUsize,
    burst: Mutex<Option<Burst>>,
}

impl Slot {
    /// The content of the slot, unless another thread has it at this moment.
    pub(super) fn open(&self) -> Option<MutexGuard<'_, Option<Burst>>> {
        self.burst.try_lock().ok()
    }
}

/// The first stage of a line, where bursts get their numbers.
pub(super) struct Intake<'a> {
    /// The number of the line.
    line: usize,
    pub(super) inputs: Inputs,
    /// Whether its inputs were found ended.
    pub(super) has_ended: bool,
    /// The first line begins reloads and exports.
    pub(super) reloads: Option<&'a mut Reloads>,
    /// What is counted in a snapshot; with one line, a burst carries it.
    pub(super) run: Run,
    /// Whether there are other lines.
    pub(super) is_one_of_several: bool,
    reached: &'a mut Clock,
    /// The number of the next burst.
    next: u64,
}

impl<'a> Intake<'a> {
    /// The intake of line number `line` of `lines`.
    pub(super) fn new(
        (line, lines): (usize, usize),
        inputs: Inputs,
        reloads: Option<&'a mut Reloads>,
        run: Run,
        reached: &'a mut Clock,
    ) -> Self {
        let (is_one_of_several, has_ended) = (lines > 1, false);
        Self { line, inputs, has_ended, reloads, run, is_one_of_several, reached, next: 0 }
    }

    /// The number of the next burst.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Fills `burst` (empty) with the packets that are there, whose bytes are left to be copied;
    /// returns whether anything arrived or an input ended. A burst with packets or a request gets its
    /// number, and is counted as received by `worker`.
    pub(super) fn receive(
        &mut self,
        burst: &mut Burst,
        control: &Control,
        worker: &Published,
    ) -> bool {
        let mut came = false;
        burst.line = self.line;
        // An export visits the NFs in the order of one line.
        burst.flush = if self.line == 0 { control.take_export() } else { Flush::No };
        let audience = control.observers.audience(&self.run.plan);
        for round in &mut burst.rounds {
            let before = audience.as_ref().map_or(0, |_| control.packets_in());
            came |= self.inputs.claim(round, control);
            round.clock = self.reached.batch(&round.batch);
            round.observe(audience.as_ref(), before);
            if !round.batch.is_full() || self.inputs.ended(control) {
                break;
            }
        }
        let packets = burst.packets();
        if packets > 0 {
            worker.received(packets);
        }
        if !self.is_one_of_several {
            let asked = control.take_asked();
            if !asked.is_empty() {
                burst.begin_tally(asked, &self.run, self.inputs.counters(&self.run.plan));
            }
        }
        if !burst.is_empty() {
            (burst.number, burst.is_through) = (self.next, false);
            self.next += 1;
        }
        came
    }
}

impl<'a> Line<'a> {
    /// A line with room for this many bursts.
    pub(super) fn new(intake: Intake<'a>, outputs: Outputs, bursts: usize) -> Self {
        let waker = if intake.is_one_of_several { Waker::new().ok() } else { None };
        Self {
            intake: Mutex::new(intake),
            rests: AtomicBool::new(false),
            waker,
            outputs: InTurn::new(outputs, 1),
            slots: (0..bursts).map(|_| Slot::default()).collect(),
            gate: Gate::new(),
        }
    }

    /// Waits for packets, for a while at most. No burst of the line is under way.
    pub(super) fn rest(&self, intake: &mut Intake<'_>) {
        self.rests.store(true, Ordering::Relaxed);
        if intake.inputs.rest(self.waker.as_ref().map(Waker::descriptor)) {
            self.waker.iter().for_each(Waker::rest);
        }
        self.rests.store(false, Ordering::Relaxed);
    }

    /// Wakes the worker that waits for packets.
    pub(super) fn wake(&self) {
        self.waker.iter().for_each(Waker::wake);
    }

    /// Waits until the worker that has the intake leaves it, if that waits for packets: before, there
    /// is no work. Returns whether it waited.
    pub(super) fn rest_too(&self) -> bool {
        let rests = self.rests.load(Ordering::Relaxed);
        if rests {
            drop(self.intake.lock());
        }
        rests
    }

    /// The place of burst `number`.
    pub(super) fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }

    /// The numbers of the bursts that are not through.
    pub(super) fn under_way(&self) -> Range<u64> {
        self.gate.under_way(self.outputs.next(0))
    }

    /// Whether all packets are received and through.
    pub(super) fn is_over(&self) -> bool {
        self.gate.is_over(|| self.outputs.next(0))
    }

    /// Packets that did not get through, because a thread panicked.
    pub(super) fn unfinished(&self) -> u64 {
        let slots = self.slots.iter().map(|slot| slot.burst.lock());
        let packets = |burst: &Option<Burst>| burst.as_ref().map_or(0, Burst::packets);
        slots.map(|burst| packets(&burst.unwrap_or_else(PoisonError::into_inner))).sum()
    }

    /// Its inputs and outputs, when its threads have ended.
    pub(super) fn end(self) -> (Inputs, Outputs) {
        let intake = self.intake.into_inner().unwrap_or_else(PoisonError::into_inner);
        (intake.inputs, self.outputs.into_inner())
    }
}
