//! The stages of a run on several threads.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_chain::{Plan, Routing};
use thalweg_packet::BATCH;

use super::at_device::AtDevice;
use super::generation::Generation;
use super::line::{BURSTS, Intake, Line, MOST_BURSTS};
use super::panics;
use super::ports::Outputs;
use super::session::Session;
use crate::burst::Burst;
use crate::classification::Classification;
use crate::control::Control;
use crate::counters::{Former, PortTotals};
use crate::course::{Course, transmit};
use crate::guard::{self, Confinement};
use crate::parts::Parts;
use crate::published::Published;
use crate::station::Station;
use crate::tally::Tally;
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
    /// Worker `n` belongs to line `n` modulo their number.
    pub(super) lines: Vec<Line<'a>>,
    pub(super) classification: InTurn<Classification>,
    pub(super) stations: Vec<InTurn<Station>>,
    /// By station: the parts of its NF, if that is divided.
    pub(super) parts: Vec<Option<Parts>>,
    /// By station: the device that has packets of its NF while others come.
    pub(super) devices: Vec<Option<AtDevice>>,
    /// By station: whether it has a thread of its own.
    pub(super) pinned: Vec<bool>,
    pub(super) share: Share,
    /// Whether stages are timed.
    pub(super) timed: bool,
    /// The lines whose inputs have ended.
    ended: AtomicUsize,
    /// No line receives packets any more, by this generation at least.
    is_closing: AtomicBool,
    /// No line receives packets until a snapshot is taken.
    is_pausing: AtomicBool,
    /// A burst has found no frames.
    is_short: AtomicBool,
    /// Devices that failed have kept nearly all frames.
    is_out_of_frames: AtomicBool,
    /// A thread has panicked: bursts under way do not end.
    pub(super) broken: AtomicBool,
    /// All workers have ended.
    pub(super) end: AtomicBool,
    failures: Mutex<Vec<String>>,
    former: Arc<Former>,
    confinement: Option<Arc<dyn Confinement>>,
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
        let count = inputs.len();
        session.reached = Clock::divide(&session.reached, count);
        let timed = session.watch.timed;
        let Session { reloads, reached, .. } = session;
        let mut reloads = Some(reloads);
        let devices = course.overlapping_devices(plan).into_iter();
        let devices = devices.map(|device| Some(AtDevice::new(device?, count)));
        let devices: Vec<_> = devices.collect();
        let at_devices = devices.iter().flatten().map(AtDevice::capacity).sum();
        let share = Share::of(plan.pool.frames_left(), workers.len(), at_devices);
        let ports = inputs.into_iter().zip(outputs).zip(reached).enumerate();
        let line = |(number, ((inputs, outputs), reached)): (usize, ((_, _), _))| {
            // Of the workers that remain after an even division, the first lines have one more each.
            let workers = (workers.len() - number).div_ceil(count);
            let intake = Intake::new((number, count), inputs, reloads.take(), run.clone(), reached);
            Line::new(intake, outputs, share.bursts * workers)
        };
        let lines: Vec<_> = ports.map(line).collect();
        let Course { routing, mut classification, stations, mut parts } = course;
        if timed {
            classification.classifier.take_time();
        }
        parts.iter_mut().flatten().for_each(|parts| parts.begin(count));
        Self {
            plan,
            control,
            routing,
            lines,
            classification: InTurn::new(classification, count),
            stations: stations.into_iter().map(|s| InTurn::new(s, count)).collect(),
            parts,
            devices,
            pinned,
            share,
            timed,
            ended: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
            is_pausing: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            is_out_of_frames: AtomicBool::new(false),
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

    /// Whether a line may receive packets, whose `intake` the caller has. If none may any more, closes
    /// the gate of that line.
    pub(super) fn may_receive(&self, line: &Line<'_>, intake: &mut Intake<'_>) -> bool {
        // A snapshot that has begun is taken first: then all lines still wait for each other.
        if self.is_pausing.load(Ordering::Acquire) {
            return false;
        }
        let (plan, control) = (self.plan, self.control);
        if !intake.has_ended && intake.inputs.ended(control) {
            intake.has_ended = true;
            if self.ended.fetch_add(1, Ordering::Relaxed) + 1 == self.lines.len() {
                self.close();
            }
        }
        let is_ready = intake.reloads.as_mut().is_some_and(|reloads| reloads.poll(plan, control));
        if is_ready {
            self.close();
        }
        if self.is_closing.load(Ordering::Acquire) {
            line.gate.close();
            return false;
        }
        if intake.is_one_of_several && intake.reloads.is_some() && control.is_asked() {
            self.is_pausing.store(true, Ordering::Release);
            self.lines.iter().for_each(Line::wake);
            return false;
        }
        !intake.has_ended
    }

    /// Lets no line receive packets any more.
    fn close(&self) {
        if !self.is_closing.swap(true, Ordering::AcqRel) {
            self.lines.iter().for_each(Line::wake);
        }
    }

    /// Takes a snapshot for which all lines wait, if no burst is under way any more.
    pub(super) fn take_snapshot(&self) {
        if !self.is_pausing.load(Ordering::Acquire) {
            return;
        }
        // Whoever has all intakes is alone, and no burst gets in meanwhile.
        let intakes = self.lines.iter().map(|line| line.intake.try_lock().ok());
        let Some(intakes) = intakes.collect::<Option<Vec<_>>>() else { return };
        if !self.lines.iter().all(|line| line.under_way().is_empty())
            || !self.is_pausing.load(Ordering::Acquire)
        {
            return;
        }
        let Some(tally) = self.tally(&intakes) else { return };
        tally.answer(self.control.take_asked());
        self.is_pausing.store(false, Ordering::Release);
    }

    /// The counts of all stages, of which no burst is under way; `None` if a thread looks at one.
    fn tally(&self, intakes: &[MutexGuard<'_, Intake<'_>>]) -> Option<Tally> {
        let mut inputs = PortTotals::new(self.plan.inputs.len());
        intakes.iter().for_each(|intake| intake.inputs.count_ports(&mut inputs));
        let mut tally = Tally::new(&intakes[0].run, inputs);
        tally.add_classification(&*self.classification.peek()?);
        for station in &self.stations {
            tally.add_station(&*station.peek()?);
        }
        for parts in self.parts.iter().flatten() {
            parts.count(&mut tally)?;
        }
        for line in &self.lines {
            line.outputs.peek()?.count(&mut tally);
        }
        Some(tally)
    }

    /// Packets that did not get through, because a thread panicked.
    pub(super) fn unfinished(&self) -> u64 {
        self.lines.iter().map(Line::unfinished).sum()
    }

    /// Whether bursts must not keep frames: devices that failed have kept some on which the bursts of this
    /// generation count, or a worker [found none](Self::check_frames).
    pub(super) fn is_short_of_frames(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) || self.has_lost_frames()
    }

    fn has_lost_frames(&self) -> bool {
        self.plan.pool.frames_left() < self.share.frames
    }

    /// Lets bursts of all workers keep no frames any more, if the pool had none for `burst`, with which
    /// nothing was received: ports have more in their rings than bursts leave.
    pub(super) fn check_frames(&self, burst: &Burst) {
        if burst.is_starved()
            && self.plan.pool.available() == 0
            && !self.is_short.swap(true, Ordering::Relaxed)
        {
            self.lines.iter().for_each(Line::wake);
        }
    }

    /// Whether enough frames are free to receive packets of a line whose `intake` the caller has.
    ///
    /// Frames of bursts under way come back. With none of them under way, those that are not free are in
    /// rings of ports or lost, and there is nothing to wait for.
    pub(super) fn has_frames(&self, line: &Line<'_>) -> bool {
        let (pool, share) = (&self.plan.pool, &self.share);
        if share.recycles && !self.has_lost_frames() {
            return true;
        }
        let reserve = share.reserve.min(pool.frames_left() / 2);
        pool.available() >= reserve || line.under_way().is_empty()
    }

    /// Lets the NFs of a station process a burst whose turn it is there.
    pub(super) fn serve(&self, station: &mut Station, burst: &mut Burst, watch: &mut Watch) {
        station.serve(&self.routing, burst, watch);
        self.check_devices(station);
        self.flush(station, burst);
    }

    /// Ends the run if a device has failed whose NF does not go on without it, or if devices that failed
    /// keep so many frames that the rest is less than a batch.
    pub(super) fn check_devices(&self, station: &Station) {
        let mut failures = Vec::new();
        let mut ends = station.check_devices(self.plan, self.control, &mut failures);
        let (left, frames) = (self.plan.pool.frames_left(), self.plan.pool.frames());
        if left < BATCH && !self.is_out_of_frames.swap(true, Ordering::Relaxed) {
            let lost = frames - left;
            failures.push(format!(
                "devices that failed keep {lost} of {frames} frames, which leaves too few to receive \
                 packets; expected more frames in [memory]"
            ));
            ends = true;
        }
        if ends {
            self.fail(failures);
            self.control.stop();
        }
    }

    /// Ends the visit of a burst to an NF whose parts have served it.
    pub(super) fn settle(&self, station: &mut Station, burst: &mut Burst) {
        station.settle(&self.routing, burst);
        self.flush(station, burst);
    }

    pub(super) fn flush(&self, station: &mut Station, burst: &mut Burst) {
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
        let (inputs, outputs) = self.lines.into_iter().map(Line::end).unzip();
        let (plan, workers, former) = (self.plan.clone(), self.workers.len(), self.former);
        (Generation { plan, inputs, course, outputs, workers, former }, failures)
    }
}

/// The most batches that a worker receives at once.
const BATCHES: usize = 4;
/// The bursts under way that a worker receives at first; further ones when these wait for long.
const FEW: usize = 2;

/// How the frames of the pool are divided.
pub(super) struct Share {
    /// Those that are divided.
    frames: usize,
    /// The bursts under way, for each worker.
    pub(super) bursts: usize,
    /// Those that a worker receives at first, so that their packets stay in its cache; further ones when
    /// these wait for long.
    pub(super) few: usize,
    /// Batches of a burst.
    batches: usize,
    /// Whether bursts keep their frames.
    recycles: bool,
    /// Frames that must be free before packets are received, if bursts do not keep theirs.
    reserve: usize,
}

impl Share {
    /// All bursts have at most half of the frames, if there are enough; the others are for packets
    /// that NFs generate. For each worker, devices need this many packets `at_devices`.
    fn of(frames: usize, workers: usize, at_devices: usize) -> Self {
        let needed = at_devices.div_ceil(BATCHES * BATCH);
        let most = (frames / 2 / (BATCH * workers)).clamp(BURSTS, MOST_BURSTS);
        let bursts = (needed + FEW).clamp(BURSTS, most);
        let batches = (frames / 2 / (BATCH * bursts * workers)).clamp(1, BATCHES);
        let few = at_devices.div_ceil(batches * BATCH) + FEW;
        let recycles = batches * BATCH * bursts * workers <= frames / 2;
        let reserve = 2 * BATCH * (1 + workers);
        Self { frames, bursts, few, batches, recycles, reserve }
    }

    /// The bursts that a worker begins with: those that are `there`, and new ones. Called by the
    /// worker, so that their memory is near its core.
    pub(super) fn bursts(&self, plan: &Plan, mut there: Vec<Burst>) -> Vec<Burst> {
        let burst = || Burst::new(&plan.routing, &plan.pool, self.batches, self.recycles);
        // A generation with devices has more bursts, which may be smaller.
        there.retain(|burst| burst.is_for(self.batches, self.recycles));
        there.resize_with(self.bursts, burst);
        there
    }
}
