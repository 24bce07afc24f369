//! The chain on several threads.
//!
//! The calling thread reads the inputs and writes the outputs. Each worker has
//! a ring from it and a ring to it; each NF on a worker of its own has a ring
//! from and a ring to each worker. All rings are lock-free with one producer
//! and one consumer.
//!
//! Nobody waits for room in a ring: what finds none stays in a queue before it.
//! Those queues are bounded by the pool, since each packet holds a frame, and
//! the reader receives only while enough frames are free. So no cycle of full
//! rings can block, nothing is lost, and when all frames are back nothing is
//! under way any more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rtrb::{Consumer, Producer, RingBuffer};
use thalweg_packet::{BATCH, Batch, Decapsulate, Lanes, Nanoseconds, Packet, Pool};

use super::ports::{Inputs, Outputs, reload};
use super::{RunError, RunOptions, build_worker};
use crate::config::Plan;
use crate::control::Control;
use crate::counters::{NfCounters, WorkerCounters};
use crate::cycles::{self, Clock};
use crate::report::{Report, Totals};
use crate::route_decider::NfIndex;
use crate::worker::{Exit, Visit, Worker, process};

/// Packets a ring holds.
const RING: usize = 1024;
/// How often a thread looks for work in vain before it lets others run.
const SPINS: u32 = 64;

/// A ring's sending end, with the queue before it.
struct Sender<T> {
    ring: Producer<T>,
    queue: VecDeque<T>,
}

impl<T> Sender<T> {
    fn send(&mut self, item: T) {
        self.queue.push_back(item);
    }

    /// Moves what fits from the queue into the ring; whether anything moved.
    fn push(&mut self) -> bool {
        let mut moved = false;
        while let Some(item) = self.queue.pop_front() {
            match self.ring.push(item) {
                Ok(()) => moved = true,
                Err(rtrb::PushError::Full(item)) => {
                    self.queue.push_front(item);
                    break;
                }
            }
        }
        moved
    }
}

fn ring<T>() -> (Sender<T>, Consumer<T>) {
    let (ring, consumer) = RingBuffer::new(RING);
    (Sender { ring, queue: VecDeque::new() }, consumer)
}

/// What the threads share beside rings.
struct Shared {
    end: AtomicBool,
    /// Raised by one for each request to write out.
    exports: AtomicU32,
    drops: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Shared {
    fn fail(&self, more: Vec<String>) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.extend(more);
    }
}

/// Ends the run when the thread that holds it dies, instead of leaving the
/// others to wait for its packets.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end.store(true, Ordering::Release);
        }
    }
}

/// Waits a little longer the longer there is nothing to do.
#[derive(Default)]
struct Idle(u32);

impl Idle {
    fn worked(&mut self, worked: bool) {
        if worked {
            self.0 = 0;
        } else {
            self.0 += 1;
            if self.0 < SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// A packet on its way out: by which output.
type Outgoing = (u16, Packet);

/// A worker's ends of its rings.
struct WorkerThread {
    worker: Worker,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    from_reader: Consumer<Packet>,
    exit: RingExit,
    from_pinned: Vec<(NfIndex, Consumer<Packet>)>,
}

struct RingExit {
    to_writer: Sender<Outgoing>,
    to_pinned: Vec<(NfIndex, Sender<Packet>)>,
}

impl Exit for RingExit {
    fn transmit(&mut self, output: usize, batch: &mut Batch, lanes: Lanes) {
        for packet in lanes.into_iter().filter_map(|lane| batch.take(lane)) {
            self.to_writer.send((output as u16, packet));
        }
    }

    fn to_pinned(&mut self, nf: NfIndex, batch: &mut Batch, lanes: Lanes) {
        let ring = self.to_pinned.iter_mut().find(|(i, _)| *i == nf);
        let (_, ring) = ring.expect("each pinned NF has a ring from each worker");
        for packet in lanes.into_iter().filter_map(|lane| batch.take(lane)) {
            ring.send(packet);
        }
    }
}

/// Fills `batch` (empty) from a ring; whether there was anything.
fn fill(batch: &mut Batch, ring: &mut Consumer<Packet>) -> bool {
    while batch.vacant().is_some() {
        let Ok(packet) = ring.pop() else { break };
        if batch.push(packet).is_err() {
            unreachable!("the batch has an empty lane");
        }
    }
    !batch.is_empty()
}

impl WorkerThread {
    fn run(mut self) -> WorkerCounters {
        let _alarm = Alarm(self.shared.clone());
        let mut batch = Batch::new(self.pool.clone());
        let mut idle = Idle::default();
        let (mut exports, mut dropped) = (0, 0);
        while !self.shared.end.load(Ordering::Acquire) {
            let mut worked = false;
            for (nf, ring) in &mut self.from_pinned {
                if fill(&mut batch, ring) {
                    self.worker.resume(&mut batch, *nf, &mut self.exit);
                    worked = true;
                }
            }
            if fill(&mut batch, &mut self.from_reader) {
                self.worker.ingress(&mut batch, &mut self.exit);
                worked = true;
            }
            worked |= self.exit.to_writer.push();
            for (_, ring) in &mut self.exit.to_pinned {
                worked |= ring.push();
            }
            if worked {
                let drops = self.worker.drops();
                self.shared.drops.fetch_add(drops - dropped, Ordering::Relaxed);
                dropped = drops;
            }
            let asked = self.shared.exports.load(Ordering::Relaxed);
            if asked != exports {
                exports = asked;
                let mut failures = Vec::new();
                self.worker.flush(&mut failures);
                self.shared.fail(failures);
            }
            idle.worked(worked);
        }
        let mut failures = Vec::new();
        let counters = self.worker.finish(&mut failures);
        self.shared.fail(failures);
        counters
    }
}

/// An NF on a worker of its own.
struct PinnedThread {
    nf: NfIndex,
    function: Box<dyn thalweg_nf::NetworkFunction>,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    decapsulate: Decapsulate,
    /// From and to each worker.
    rings: Vec<(Consumer<Packet>, Sender<Packet>)>,
}

impl PinnedThread {
    fn run(mut self) -> (NfIndex, NfCounters) {
        let _alarm = Alarm(self.shared.clone());
        let mut counters = NfCounters::new();
        let mut batch = Batch::new(self.pool.clone());
        let mut emitted = Batch::new(self.pool.clone());
        let mut now = Nanoseconds::default();
        let (mut idle, mut exports) = (Idle::default(), 0);
        while !self.shared.end.load(Ordering::Acquire) {
            let mut worked = false;
            for (from, to) in &mut self.rings {
                if fill(&mut batch, from) {
                    worked = true;
                    let lanes = batch.lanes();
                    batch.parse(lanes, self.decapsulate);
                    let times = lanes.into_iter().map(|l| batch.meta.timestamp[l]);
                    now = now.max(times.max().unwrap_or_default());
                    let visit = &mut Visit {
                        batch: &mut batch,
                        lanes,
                        now,
                        emitted: &mut emitted,
                        trace: None,
                    };
                    let dropped = counters.drops.total();
                    let served = process(&mut *self.function, visit, &mut counters);
                    let dropped = counters.drops.total() - dropped;
                    self.shared.drops.fetch_add(dropped, Ordering::Relaxed);
                    for packet in served.passed.into_iter().filter_map(|l| batch.take(l)) {
                        to.send(packet);
                    }
                    batch.release(Lanes::ALL);
                    for packet in emitted.lanes().into_iter().filter_map(|l| emitted.take(l)) {
                        to.send(packet);
                    }
                }
                worked |= to.push();
            }
            let asked = self.shared.exports.load(Ordering::Relaxed);
            if asked != exports {
                exports = asked;
                self.flush();
            }
            idle.worked(worked);
        }
        self.flush();
        counters.figures = self.function.figures();
        (self.nf, counters)
    }

    fn flush(&mut self) {
        if let Err(e) = self.function.flush() {
            self.shared.fail(vec![e.to_string()]);
        }
    }
}

/// The reader's and writer's ends of a worker's rings.
struct WorkerEnds {
    to: Sender<Packet>,
    from: Consumer<Outgoing>,
}

/// Makes all rings and threads' belongings.
fn build(
    plan: &Plan,
    workers: usize,
    shared: &Arc<Shared>,
) -> (Vec<WorkerThread>, Vec<PinnedThread>, Vec<WorkerEnds>) {
    let mut pinned: Vec<PinnedThread> = Vec::new();
    for (i, nf) in plan.nfs.iter().enumerate() {
        if plan.is_pinned(nf, workers) {
            pinned.push(PinnedThread {
                nf: NfIndex(i as u16),
                function: nf.blueprint.instance(0),
                pool: plan.pool.clone(),
                shared: shared.clone(),
                decapsulate: plan.routing.decapsulate,
                rings: Vec::new(),
            });
        }
    }
    let (mut threads, mut ends) = (Vec::new(), Vec::new());
    for number in 0..workers {
        let (to, from_reader) = ring();
        let (to_writer, from) = ring();
        let mut exit = RingExit { to_writer, to_pinned: Vec::new() };
        let mut from_pinned = Vec::new();
        for nf in &mut pinned {
            let (there, arrives) = ring();
            let (back, returns) = ring();
            nf.rings.push((arrives, back));
            exit.to_pinned.push((nf.nf, there));
            from_pinned.push((nf.nf, returns));
        }
        threads.push(WorkerThread {
            worker: build_worker(plan, number, workers),
            pool: plan.pool.clone(),
            shared: shared.clone(),
            from_reader,
            exit,
            from_pinned,
        });
        ends.push(WorkerEnds { to, from });
    }
    (threads, pinned, ends)
}

/// The calling thread's work: inputs, spreading, outputs.
struct Ports<'a> {
    plan: &'a Plan,
    control: &'a Control,
    inputs: Inputs,
    outputs: Outputs,
    ends: Vec<WorkerEnds>,
    batch: Batch,
    outgoing: Vec<Batch>,
    reserve: usize,
}

impl Ports<'_> {
    /// Receives a batch, when there are frames to spare, and spreads it over
    /// the workers by flow; whether anything came.
    fn receive(&mut self) -> bool {
        if self.plan.pool.available() < self.reserve {
            return false;
        }
        self.inputs.receive(&mut self.batch, self.control);
        let lanes = self.batch.lanes();
        self.batch.parse(lanes, self.plan.routing.decapsulate);
        for lane in lanes {
            let worker = self.batch.meta.flow_hash[lane] as usize % self.ends.len();
            if let Some(packet) = self.batch.take(lane) {
                self.ends[worker].to.send(packet);
            }
        }
        true
    }

    /// Pushes what waits for workers, and writes what came from them.
    fn transmit(&mut self) -> bool {
        let mut worked = false;
        for ends in &mut self.ends {
            worked |= ends.to.push();
            for _ in 0..RING {
                let Ok((output, packet)) = ends.from.pop() else { break };
                worked = true;
                let batch = &mut self.outgoing[usize::from(output)];
                if batch.push(packet).is_err() {
                    unreachable!("a full batch is written at once");
                }
                if batch.is_full() {
                    self.outputs.send(usize::from(output), batch, Lanes::ALL, self.control);
                    batch.release(Lanes::ALL);
                }
            }
        }
        for (output, batch) in self.outgoing.iter_mut().enumerate() {
            let lanes = batch.lanes();
            if !lanes.is_empty() {
                self.outputs.send(output, batch, lanes, self.control);
                batch.release(lanes);
            }
        }
        worked
    }

    /// Reads and writes until nothing comes and nothing is under way.
    fn serve(&mut self, shared: &Shared, warnings: &mut Vec<String>) {
        let mut idle = Idle::default();
        let mut drops = 0;
        loop {
            let ended = self.inputs.ended(self.control);
            let mut worked = !ended && self.receive();
            worked |= self.transmit();
            let now = shared.drops.load(Ordering::Relaxed);
            self.control.drops.fetch_add(now - drops, Ordering::Relaxed);
            drops = now;
            if self.control.take_reload() {
                reload(self.plan, warnings);
            }
            if self.control.take_export() {
                shared.exports.fetch_add(1, Ordering::Relaxed);
                self.outputs.flush(self.control);
            }
            let done = ended && !worked && self.plan.pool.in_use() == 0;
            if done || shared.end.load(Ordering::Acquire) {
                return;
            }
            idle.worked(worked);
        }
    }
}

pub(super) fn run(
    plan: Plan,
    workers: usize,
    options: &RunOptions,
    control: &Control,
) -> Result<Report, RunError> {
    let shared = Arc::new(Shared {
        end: AtomicBool::new(false),
        exports: AtomicU32::new(0),
        drops: AtomicU64::new(0),
        failures: Mutex::new(Vec::new()),
    });
    let inputs = Inputs::open(&plan, options)?;
    let outputs = Outputs::open(&plan)?;
    let (threads, pinned, ends) = build(&plan, workers, &shared);
    let mut warnings = Vec::new();
    for nf in plan.nfs.iter().filter(|nf| plan.is_pinned(nf, workers) && !nf.pinned) {
        warnings.push(format!("NF '{}' has one instance; it runs on a worker of its own", nf.name));
    }
    // Frames left for packets that NFs make and for batches being filled.
    let reserve = (2 * BATCH * (1 + workers + pinned.len())).min(plan.pool.frames() / 2);
    let mut ports = Ports {
        control,
        inputs,
        outputs,
        ends,
        batch: Batch::new(plan.pool.clone()),
        outgoing: plan.outputs.iter().map(|_| Batch::new(plan.pool.clone())).collect(),
        reserve,
        plan: &plan,
    };
    let clock = Clock::start();
    let start = cycles::now();
    let mut counters = WorkerCounters::new(plan.nfs.len(), plan.types.len());
    let (mut port_cycles, mut duration_s) = (0, 0.0);
    thread::scope(|scope| -> Result<(), RunError> {
        let mut handles = Vec::new();
        let mut pinned_handles = Vec::new();
        let started = (|| {
            for (i, thread) in threads.into_iter().enumerate() {
                let builder = thread::Builder::new().name(format!("worker {i}"));
                handles.push(builder.spawn_scoped(scope, move || thread.run())?);
            }
            for thread in pinned {
                let builder = thread::Builder::new().name(format!("nf {}", thread.nf.0));
                pinned_handles.push(builder.spawn_scoped(scope, move || thread.run())?);
            }
            Ok(())
        })();
        if started.is_ok() {
            ports.serve(&shared, &mut warnings);
        }
        port_cycles = cycles::now().wrapping_sub(start);
        duration_s = clock.elapsed().as_secs_f64();
        shared.end.store(true, Ordering::Release);
        for handle in handles {
            match handle.join() {
                Ok(more) => counters.merge(&more),
                Err(_) => shared.fail(vec!["a worker died".into()]),
            }
        }
        for handle in pinned_handles {
            match handle.join() {
                Ok((nf, more)) => counters.nfs[usize::from(nf.0)].merge(&more),
                Err(_) => shared.fail(vec!["an NF's worker died".into()]),
            }
        }
        started.map_err(RunError::Thread)
    })?;
    ports.outputs.flush(control);
    let Ports { inputs, outputs, batch, outgoing, .. } = ports;
    drop((batch, outgoing));
    let mut failures =
        std::mem::take(&mut *shared.failures.lock().unwrap_or_else(PoisonError::into_inner));
    failures.extend(inputs.failures);
    failures.extend(outputs.failures);
    let totals = Totals {
        workers,
        duration_s,
        nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
        port_cycles,
        inputs: inputs.counters,
        outputs: outputs.counters,
        counters,
        latency: outputs.latency,
        leaked_frames: plan.pool.in_use(),
        warnings,
        failures,
    };
    Ok(Report::new(&plan, totals))
}
