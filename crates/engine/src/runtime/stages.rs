//! The stages of a run on several threads.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_chain::{Plan, Routing};
use thalweg_packet::BATCH;

use super::panics;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use crate::burst::Burst;
use crate::classification::Classification;
use crate::control::Control;
use crate::course::{Course, transmit};
use crate::parts::Parts;
use crate::station::Station;
use crate::tally::{Run, Tally};
use crate::turn::InTurn;
use crate::visit::Clock;
use crate::watch::Watch;

/// All stages of a run, shared by its threads.
pub(super) struct Stages<'a> {
    pub(super) plan: &'a Plan,
    pub(super) control: &'a Control,
    pub(super) routing: Arc<Routing>,
    pub(super) intake: Mutex<Intake>,
    pub(super) classification: InTurn<Classification>,
    pub(super) stations: Vec<InTurn<Station>>,
    /// By station: the parts of its NF, if that is divided.
    pub(super) parts: Vec<Option<Parts>>,
    /// By station: whether it has a thread of its own.
    pub(super) pinned: Vec<bool>,
    pub(super) outputs: InTurn<Outputs>,
    /// Burst `n` is in the slot `n` modulo their number.
    slots: Vec<Slot>,
    pub(super) share: Share,
    /// The number of bursts received.
    pub(super) received: AtomicU64,
    /// No more packets will be received.
    pub(super) drained: AtomicBool,
    /// A thread has panicked: bursts under way do not end.
    pub(super) broken: AtomicBool,
    /// All workers have ended.
    pub(super) end: AtomicBool,
    failures: Mutex<Vec<String>>,
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

/// The first stage, where bursts get their numbers.
pub(super) struct Intake {
    pub(super) inputs: Inputs,
    pub(super) reloads: Reloads,
    run: Run,
    clock: Clock,
    /// The number of the next burst.
    next: u64,
}

impl Intake {
    /// The number of the next burst.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn new(inputs: Inputs, reloads: Reloads, run: Run) -> Self {
        Self { inputs, reloads, run, clock: Clock::default(), next: 0 }
    }

    /// Fills `burst` (empty) with the packets that are there; returns whether anything arrived or
    /// an input ended. A burst with packets or a request gets its number.
    pub(super) fn receive(&mut self, burst: &mut Burst, control: &Control) -> bool {
        let mut came = false;
        self.reloads.poll(control);
        burst.flushes = control.take_export();
        for round in &mut burst.rounds {
            came |= self.inputs.receive(&mut round.batch, control);
            round.clock = self.clock.batch(&round.batch);
            if !round.batch.is_full() || self.inputs.ended(control) {
                break;
            }
        }
        let asked = control.take_asked();
        if !asked.is_empty() {
            burst.tally = Some(Box::new((asked, Tally::new(&self.run, self.inputs.counters()))));
        }
        if !burst.is_empty() {
            (burst.number, burst.is_through) = (self.next, false);
            self.next += 1;
        }
        came
    }
}

impl<'a> Stages<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        control: &'a Control,
        intake: Intake,
        course: Course,
        outputs: Outputs,
        workers: usize,
    ) -> Self {
        let is_pinned = |station: &Station| {
            station.members().iter().any(|member| plan.nfs[usize::from(member.nf.0)].pinned)
        };
        let pinned = course.stations.iter().map(is_pinned).collect();
        let share = Share::of(plan.pool.frames(), workers);
        let Course { routing, classification, stations, parts } = course;
        Self {
            plan,
            control,
            routing,
            intake: Mutex::new(intake),
            classification: InTurn::new(classification),
            stations: stations.into_iter().map(InTurn::new).collect(),
            parts,
            pinned,
            outputs: InTurn::new(outputs),
            slots: (0..BURSTS * workers).map(|_| Slot::default()).collect(),
            share,
            received: AtomicU64::new(0),
            drained: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            end: AtomicBool::new(false),
            failures: Mutex::new(Vec::new()),
        }
    }

    /// The place of burst `number`.
    pub(super) fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }

    /// The numbers of the bursts that are not through.
    pub(super) fn under_way(&self) -> Range<u64> {
        self.outputs.next()..self.received.load(Ordering::Acquire)
    }

    /// Whether all packets are received and through.
    pub(super) fn are_over(&self) -> bool {
        self.drained.load(Ordering::Acquire) && self.under_way().is_empty()
    }

    /// Packets that did not get through, because a thread panicked.
    pub(super) fn unfinished(&self) -> u64 {
        let slots = self.slots.iter().map(|slot| slot.burst.lock());
        let packets = |burst: &Option<Burst>| burst.as_ref().map_or(0, Burst::packets);
        slots.map(|burst| packets(&burst.unwrap_or_else(PoisonError::into_inner))).sum()
    }

    /// Lets the NFs of a station process a burst whose turn it is there.
    pub(super) fn serve(&self, station: &mut Station, burst: &mut Burst, watch: &mut Watch) {
        station.serve(&self.routing, burst, watch);
        self.flush(station, burst);
    }

    /// Ends the visit of a burst to an NF whose parts have served it.
    pub(super) fn settle(&self, station: &mut Station, burst: &mut Burst, watch: &mut Watch) {
        station.settle(&self.routing, burst, watch);
        self.flush(station, burst);
    }

    fn flush(&self, station: &mut Station, burst: &Burst) {
        if burst.flushes {
            let mut failures = Vec::new();
            station.flush(&mut failures);
            self.fail(failures);
        }
    }

    /// Sends the packets of a burst whose turn it is at the outputs.
    pub(super) fn send(&self, outputs: &mut Outputs, burst: &mut Burst, watch: &mut Watch) {
        let control = self.control;
        outputs.check(control);
        transmit(burst, watch, |output, batch, lanes| outputs.send(output, batch, lanes, control));
        if burst.flushes {
            outputs.flush(control);
        }
        burst.count(|tally| outputs.count(tally));
        burst.answer();
        control.drops.fetch_add(burst.drops, Ordering::Relaxed);
    }

    fn fail(&self, more: impl IntoIterator<Item = String>) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }

    /// Ends the run because `who` panicked with `cause`.
    pub(super) fn break_off(&self, who: &str, cause: &(dyn Any + Send)) {
        let nf = self.stations.iter().find_map(|station| station.peek()?.at_work);
        let nf = nf.or_else(|| self.parts.iter().flatten().find_map(Parts::panicked));
        self.fail([panics::failure(self.plan, who, nf, cause)]);
        self.broken.store(true, Ordering::Release);
        self.control.stop();
    }

    /// What the run leaves when its threads have ended: inputs, reloads, course, outputs, failures.
    pub(super) fn into_parts(self) -> (Intake, Course, Outputs, Vec<String>) {
        let Self { routing, intake, classification, stations, parts, .. } = self;
        let (outputs, failures) = (self.outputs, self.failures);
        let course = Course {
            routing,
            classification: classification.into_inner(),
            stations: stations.into_iter().map(InTurn::into_inner).collect(),
            parts,
        };
        let of = |failures: Mutex<Vec<String>>| {
            failures.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        let intake = intake.into_inner().unwrap_or_else(PoisonError::into_inner);
        (intake, course, outputs.into_inner(), of(failures))
    }
}

/// The most batches that a worker receives at once.
const BATCHES: usize = 4;
/// The bursts under way, for each worker.
const BURSTS: usize = 16;

/// How the frames of the pool are divided.
pub(super) struct Share {
    /// Batches of a burst.
    batches: usize,
    /// Whether bursts keep their frames.
    recycles: bool,
    /// Frames that must be free before packets are received.
    pub(super) reserve: usize,
}

impl Share {
    /// All bursts have at most half of the frames, if there are enough; the others are for packets
    /// that NFs generate.
    fn of(frames: usize, workers: usize) -> Self {
        let bursts = BURSTS * workers;
        let batches = (frames / 2 / (BATCH * bursts)).clamp(1, BATCHES);
        let recycles = batches * BATCH * bursts <= frames / 2;
        let reserve = if recycles { 0 } else { (2 * BATCH * (1 + workers)).min(frames / 2) };
        Self { batches, recycles, reserve }
    }

    /// The bursts that a worker begins with.
    pub(super) fn bursts(&self, plan: &Plan) -> Vec<Burst> {
        let burst = |_| Burst::new(&plan.routing, &plan.pool, self.batches, self.recycles);
        (0..BURSTS).map(burst).collect()
    }
}
