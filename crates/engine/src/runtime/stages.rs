//! The stages of a run on several threads.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_chain::{Plan, Routing};
use thalweg_packet::BATCH;

use super::generation::Generation;
use super::panics;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::session::Session;
use crate::burst::Burst;
use crate::classification::Classification;
use crate::control::Control;
use crate::counters::Former;
use crate::course::{Course, transmit};
use crate::gate::Gate;
use crate::guard::{self, Confinement};
use crate::parts::Parts;
use crate::published::Published;
use crate::station::Station;
use crate::tally::Run;
use crate::turn::InTurn;
use crate::visit::Clock;
use crate::watch::Watch;

/// All stages of a run, shared by its threads.
pub(super) struct Stages<'a> {
    pub(super) plan: &'a Arc<Plan>,
    pub(super) control: &'a Control,
    /// The counts of each worker.
    pub(super) workers: Arc<[Published]>,
    pub(super) routing: Arc<Routing>,
    pub(super) intake: Mutex<Intake<'a>>,
    /// The worker that has the intake waits for packets.
    rests: AtomicBool,
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
    /// Closed when no more packets are received, by this generation at least.
    pub(super) gate: Gate,
    /// A thread has panicked: bursts under way do not end.
    pub(super) broken: AtomicBool,
    /// All workers have ended.
    pub(super) end: AtomicBool,
    failures: Mutex<Vec<String>>,
    former: Arc<Former>,
    confinement: Option<Arc<dyn Confinement>>,
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
pub(super) struct Intake<'a> {
    pub(super) inputs: Inputs,
    pub(super) reloads: &'a mut Reloads,
    run: Run,
    reached: &'a mut Clock,
    /// The number of the next burst.
    next: u64,
}

impl Intake<'_> {
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
        burst.flush = control.take_export();
        let audience = control.observers.audience(&self.run.plan);
        for round in &mut burst.rounds {
            let before = control.packets_in();
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
        let asked = control.take_asked();
        if !asked.is_empty() {
            burst.begin_tally(asked, &self.run, self.inputs.counters());
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
        plan: &'a Arc<Plan>,
        generation: Generation,
        session: &'a mut Session<'_>,
    ) -> Self {
        let is_pinned = |station: &Station| {
            station.members().iter().any(|member| plan.nfs[usize::from(member.nf.0)].pinned)
        };
        let pinned = generation.course.stations.iter().map(is_pinned).collect();
        let (workers, control) = (session.workers.clone(), session.control);
        let confinement = session.confinement.clone();
        let run = generation.run(workers.clone(), session.began);
        let Generation { inputs, course, outputs, former, .. } = generation;
        let Session { reloads, reached, .. } = session;
        let Course { routing, classification, stations, parts } = course;
        Self {
            plan,
            control,
            routing,
            intake: Mutex::new(Intake { inputs, reloads, run, reached, next: 0 }),
            rests: AtomicBool::new(false),
            classification: InTurn::new(classification),
            stations: stations.into_iter().map(InTurn::new).collect(),
            parts,
            pinned,
            outputs: InTurn::new(outputs),
            slots: (0..BURSTS * workers.len()).map(|_| Slot::default()).collect(),
            share: Share::of(plan.pool.frames(), workers.len()),
            gate: Gate::new(),
            broken: AtomicBool::new(false),
            end: AtomicBool::new(false),
            failures: Mutex::new(Vec::new()),
            former,
            confinement,
            workers,
        }
    }

    /// The core of the thread of a pinned station; `None` for any.
    pub(super) fn core_of_station(&self, station: usize) -> Option<u32> {
        let station = self.stations[station].peek()?;
        station.members().iter().find_map(|member| self.plan.nfs[usize::from(member.nf.0)].core)
    }

    /// Waits for packets, for a while at most. No burst is under way.
    pub(super) fn rest(&self, intake: &mut Intake<'_>) {
        self.rests.store(true, Ordering::Relaxed);
        intake.inputs.rest();
        self.rests.store(false, Ordering::Relaxed);
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
        self.gate.under_way(self.outputs.next())
    }

    /// Whether all packets are received and through.
    pub(super) fn are_over(&self) -> bool {
        self.gate.is_over(|| self.outputs.next())
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
    pub(super) fn settle(&self, station: &mut Station, burst: &mut Burst) {
        station.settle(&self.routing, burst);
        self.flush(station, burst);
    }

    fn flush(&self, station: &mut Station, burst: &mut Burst) {
        let mut failures = Vec::new();
        station.flush(burst, &mut failures);
        if !failures.is_empty() {
            self.fail(failures);
        }
    }

    /// Sends the packets of a burst whose turn it is at the outputs.
    pub(super) fn send(&self, outputs: &mut Outputs, burst: &mut Burst, watch: &mut Watch) {
        let control = self.control;
        outputs.check(control);
        transmit(burst, watch, |output, round, lanes| outputs.send(output, round, lanes, control));
        outputs.export(burst, self.plan, control);
        burst.count(|tally| outputs.count(tally));
        burst.answer();
        control.dropped(burst.drops);
    }

    fn fail(&self, more: impl IntoIterator<Item = String>) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }

    /// Confines the calling thread, which is about to process packets; ends the run, and returns
    /// false, if that cannot be done.
    pub(super) fn confine(&self) -> bool {
        let Err(failure) = guard::confine(self.confinement.as_deref()) else { return true };
        self.fail([failure]);
        self.broken.store(true, Ordering::Release);
        self.control.stop();
        false
    }

    /// Ends the run because `who` panicked with `cause`.
    pub(super) fn break_off(&self, who: &str, cause: &(dyn Any + Send)) {
        let nf = self.stations.iter().find_map(|station| station.peek()?.at_work);
        let nf = nf.or_else(|| self.parts.iter().flatten().find_map(Parts::panicked));
        self.fail([panics::failure(self.plan, who, nf, cause)]);
        self.broken.store(true, Ordering::Release);
        self.control.stop();
    }

    /// The generation when its threads have ended, and its failures.
    pub(super) fn end(self) -> (Generation, Vec<String>) {
        let course = Course {
            routing: self.routing,
            classification: self.classification.into_inner(),
            stations: self.stations.into_iter().map(InTurn::into_inner).collect(),
            parts: self.parts,
        };
        let failures = self.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        let intake = self.intake.into_inner().unwrap_or_else(PoisonError::into_inner);
        let generation = Generation {
            plan: self.plan.clone(),
            inputs: intake.inputs,
            course,
            outputs: self.outputs.into_inner(),
            former: self.former,
        };
        (generation, failures)
    }
}

/// The most batches that a worker receives at once.
const BATCHES: usize = 4;
/// The bursts under way, for each worker.
pub(super) const BURSTS: usize = 16;

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

    /// The bursts that a worker begins with: those that are `there`, and new ones. Called by the
    /// worker, so that their memory is near its core.
    pub(super) fn bursts(&self, plan: &Plan, mut there: Vec<Burst>) -> Vec<Burst> {
        let burst = || Burst::new(&plan.routing, &plan.pool, self.batches, self.recycles);
        there.resize_with(BURSTS, burst);
        there
    }
}
