//! A worker: takes a batch through classification and all its NFs on one core.
//!
//! Packets do not move while they are on the worker: they stay in their batch, and a set of lanes
//! for each NF holds the packets that wait for it. Packet forwarding fills these sets.

use std::sync::Arc;

use thalweg_classify::{Classifier, Lookup};
use thalweg_nf::{Emitted, NetworkFunction};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropReason, Lanes, PacketType, Pool};

use crate::counters::WorkerCounters;
use crate::forwarding::{Exit, Queues, Routing};
use crate::route_decider::NfIndex;
use crate::trace::Tracer;
use crate::visit::{Clock, Served, Visit, end_nf, process};
use thalweg_cpu::cycles;

/// The most NFs that a packet may pass; beyond that it is in a loop.
const MAX_HOPS: usize = 64;

pub(crate) struct Worker {
    routing: Arc<Routing>,
    classifier: Classifier,
    /// The NFs that run here; `None` for those on their own workers.
    nfs: Vec<Option<Box<dyn NetworkFunction>>>,
    pool: Arc<Pool>,
    // Reused, so that a batch needs no allocation.
    spare: Vec<Emitted>,
    spare_rounds: Vec<Round>,
    clock: Clock,
    pub(crate) counters: WorkerCounters,
    pub(crate) tracer: Option<Tracer>,
    /// Whether each stage is timed.
    timed: bool,
}

/// The pass of a batch from its current stage to its ends.
struct Round {
    queues: Queues,
    /// The packets that NFs generated for it, in the order of their visits. They are forwarded
    /// after the batch, so that later fragments do not overtake the first.
    made: Vec<(NfIndex, Emitted)>,
}

impl Worker {
    pub(crate) fn new(
        routing: Arc<Routing>,
        classifier: Classifier,
        nfs: Vec<Option<Box<dyn NetworkFunction>>>,
        pool: Arc<Pool>,
    ) -> Self {
        let counters = WorkerCounters::new(nfs.len(), routing.types);
        Self {
            routing,
            classifier,
            nfs,
            pool,
            spare: Vec::new(),
            spare_rounds: Vec::new(),
            clock: Clock::default(),
            counters,
            tracer: None,
            timed: false,
        }
    }

    /// Enables per-stage timing.
    pub(crate) fn take_time(&mut self) {
        self.timed = true;
        self.classifier.take_time();
    }

    /// Takes received packets through their chains. The batch is empty afterwards.
    pub(crate) fn ingress(&mut self, batch: &mut Batch, exit: &mut dyn Exit) {
        let start = self.reading();
        let lanes = batch.lanes();
        batch.parse(lanes, self.routing.decapsulate);
        self.counters.parse_cycles += self.reading().wrapping_sub(start);
        self.clock.batch(batch);
        if let Some(tracer) = &mut self.tracer {
            tracer.received(batch, &mut self.classifier);
        }
        self.classify(batch, lanes);
        self.forward(batch, lanes, None, 0, exit);
        self.counters.busy_cycles += self.reading().wrapping_sub(start);
    }

    /// The cycle counter if stages are timed, else 0: reading the counter costs as much as parsing
    /// a packet, so other runs do not pay for it.
    #[inline]
    fn reading(&self) -> u64 {
        if self.timed { cycles::now() } else { 0 }
    }

    /// Continues with packets that come back from the pinned NF `nf`.
    pub(crate) fn resume(&mut self, batch: &mut Batch, nf: NfIndex, exit: &mut dyn Exit) {
        let lanes = batch.lanes();
        batch.parse(lanes, self.routing.decapsulate);
        self.forward(batch, lanes, Some(nf), 0, exit);
    }

    fn classify(&mut self, batch: &mut Batch, lanes: Lanes) {
        let mut found = [Lookup::default(); BATCH];
        self.classifier.classify_batch(
            batch.keys(),
            lanes,
            batch.lens(),
            self.clock.before,
            &mut found,
        );
        let Some(first) = lanes.into_iter().next() else { return };
        let packet_type = found[first].packet_type;
        let (mut alike, mut bytes) = (true, 0);
        for lane in lanes {
            batch.meta.packet_type[lane] = found[lane].packet_type;
            alike &= found[lane].packet_type == packet_type;
            bytes += u64::from(batch.lens()[lane]);
        }
        // A batch of one type is counted as a whole, so that its packets do not wait for each
        // other's counts.
        if alike {
            self.count_type(packet_type, lanes.count() as u64, bytes);
            return;
        }
        for lane in lanes {
            self.count_type(found[lane].packet_type, 1, u64::from(batch.lens()[lane]));
        }
    }

    #[inline]
    fn count_type(&mut self, packet_type: PacketType, packets: u64, bytes: u64) {
        if let Some(counts) = self.counters.types.get_mut(usize::from(packet_type.0)) {
            counts.0 += packets;
            counts.1 += bytes;
        }
    }

    /// Takes the packets of `lanes` from the NF `behind`, or from the ingress, to their ends.
    fn forward(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        behind: Option<NfIndex>,
        generation: usize,
        exit: &mut dyn Exit,
    ) {
        let spare = self.spare_rounds.pop();
        let mut round =
            spare.unwrap_or_else(|| Round { queues: Queues::new(&self.routing), made: Vec::new() });
        let mut hops = 0;
        self.route(batch, lanes, behind, &mut round.queues);
        while let Some((nf, lanes)) = round.queues.pop(&self.routing.order) {
            let at = usize::from(nf.0);
            hops += 1;
            if hops > MAX_HOPS * self.nfs.len() {
                self.lose(batch, lanes, DropReason::ChainLoop);
            } else if self.nfs[at].is_some() {
                let passed = self.serve(batch, lanes, nf, &mut round.made);
                self.route(batch, passed, Some(nf), &mut round.queues);
            } else {
                exit.to_pinned(nf, batch, lanes);
            }
        }
        let start = self.reading();
        while let Some((output, lanes)) = round.queues.pop_output() {
            exit.transmit(output, batch, lanes);
            if let Some(tracer) = &mut self.tracer {
                tracer.transmitted(output);
            }
        }
        batch.release(Lanes::ALL);
        self.counters.transmit_cycles += self.reading().wrapping_sub(start);
        for (nf, mut emitted) in round.made.drain(..) {
            emitted.hand_over(|made| self.emitted(made, nf, generation, exit));
            self.spare.push(emitted);
        }
        self.spare_rounds.push(round);
    }

    /// Puts each packet into the queue of its next step.
    fn route(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        behind: Option<NfIndex>,
        queues: &mut Queues,
    ) {
        let lost = queues.forward(&self.routing, batch, lanes, behind);
        self.lose(batch, lost.nowhere, DropReason::NoRoute);
        self.lose(batch, lost.dropped, DropReason::Policy);
    }

    fn lose(&mut self, batch: &mut Batch, lanes: Lanes, reason: DropReason) {
        if lanes.is_empty() {
            return;
        }
        self.counters.chain_drops.add(reason, lanes.count() as u64);
        if let Some(tracer) = &mut self.tracer {
            tracer.lost(reason);
        }
        batch.release(lanes);
    }

    /// Lets an NF process the packets of `lanes`; returns those it passed on, and adds the packets
    /// that it generated to `made`.
    fn serve(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        nf: NfIndex,
        made: &mut Vec<(NfIndex, Emitted)>,
    ) -> Lanes {
        let at = usize::from(nf.0);
        let Some(mut function) = self.nfs[at].take() else { return Lanes::NONE };
        let start = self.reading();
        batch.parse_changed();
        self.counters.parse_cycles += self.reading().wrapping_sub(start);
        let mut emitted = self.spare.pop().unwrap_or_else(|| Emitted::new(self.pool.clone()));
        let trace = self.tracer.as_mut().map(|tracer| tracer.before(batch, nf));
        let Served { passed, verdict } = process(
            &mut *function,
            &mut Visit { batch, lanes, clock: self.clock.before, emitted: &mut emitted, trace },
            &mut self.counters.nfs[at],
        );
        self.nfs[at] = Some(function);
        if let Some(tracer) = &mut self.tracer {
            batch.parse_changed();
            tracer.after(batch, &emitted, verdict);
        }
        batch.release(lanes.without(passed));
        if emitted.is_empty() {
            self.spare.push(emitted);
        } else {
            made.push((nf, emitted));
        }
        passed
    }

    /// Forwards packets that `nf` generated, as coming from it.
    fn emitted(
        &mut self,
        emitted: &mut Batch,
        nf: NfIndex,
        generation: usize,
        exit: &mut dyn Exit,
    ) {
        let lanes = emitted.lanes();
        // Each generation starts further down the chain than the one it was generated for.
        if generation > self.nfs.len() {
            self.lose(emitted, lanes, DropReason::ChainLoop);
            return;
        }
        emitted.parse(lanes, Decapsulate::No);
        let tracer = self.tracer.take();
        self.forward(emitted, lanes, Some(nf), generation + 1, exit);
        self.tracer = tracer;
    }

    /// Packets dropped on this worker so far.
    pub(crate) fn drops(&self) -> u64 {
        let nfs = self.counters.nfs.iter().map(|nf| nf.drops.total());
        self.counters.chain_drops.total() + nfs.sum::<u64>()
    }

    /// Lets the NFs write what they hold.
    pub(crate) fn flush(&mut self, failures: &mut Vec<String>) {
        for function in self.nfs.iter_mut().flatten() {
            if let Err(e) = function.flush() {
                failures.push(e.to_string());
            }
        }
    }

    /// Lets the NFs write what they hold for the last time; `is_left` if their state was exported
    /// for another run.
    pub(crate) fn end(&mut self, is_left: bool, failures: &mut Vec<String>) {
        for function in self.nfs.iter_mut().flatten() {
            end_nf(&mut **function, is_left, failures);
        }
    }

    /// Calls `act` with each NF that runs here, until it fails.
    pub(crate) fn each_nf<E>(
        &mut self,
        mut act: impl FnMut(NfIndex, &mut dyn NetworkFunction) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut all = (0..).zip(&mut self.nfs);
        all.try_for_each(|(at, function)| match function {
            Some(function) => act(NfIndex(at), &mut **function),
            None => Ok(()),
        })
    }

    /// Returns the counts of the worker, whose NFs have ended.
    pub(crate) fn finish(mut self) -> WorkerCounters {
        for (function, counters) in self.nfs.iter().zip(&mut self.counters.nfs) {
            if let Some(function) = function {
                counters.figures = function.figures();
            }
        }
        self.counters.layers = self.classifier.stats();
        self.counters.layer_cycles = self.classifier.layer_cycles();
        self.counters
    }
}
