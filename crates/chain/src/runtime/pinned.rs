//! An NF on its own thread, between rings from and to each worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rtrb::Consumer;
use thalweg_nf::{Emitted, NetworkFunction};
use thalweg_packet::{Batch, Decapsulate, Packet, Pool};

use super::drops::Published;
use super::rings::{Alarm, Idle, Sender, Shared, fill};
use super::state::StateFolders;
use crate::counters::NfCounters;
use crate::route_decider::NfIndex;
use crate::visit::{Clock, Visit, end_nf, process};
use thalweg_cpu::cycles;

/// An NF on its own worker.
pub(super) struct PinnedThread {
    pub(super) nf: NfIndex,
    pub(super) function: Box<dyn NetworkFunction>,
    pub(super) pool: Arc<Pool>,
    pub(super) shared: Arc<Shared>,
    pub(super) decapsulate: Decapsulate,
    /// From and to each worker.
    pub(super) rings: Vec<(Consumer<Packet>, Sender<Packet>)>,
}

/// An NF whose thread has ended, and its counts.
pub(super) struct PinnedEnd {
    pub(super) nf: NfIndex,
    function: Box<dyn NetworkFunction>,
    counters: NfCounters,
    pub(super) busy_cycles: u64,
}

impl PinnedEnd {
    /// Ends the NF: it writes what it holds, and returns its counts; `is_left` if its state was
    /// exported for another run.
    pub(super) fn end(mut self, is_left: bool, failures: &mut Vec<String>) -> NfCounters {
        end_nf(&mut *self.function, is_left, failures);
        self.counters.figures = self.function.figures();
        self.counters
    }
}

impl PinnedThread {
    /// Runs until all packets are out; returns the NF, which has written its state.
    pub(super) fn run(mut self, state: &StateFolders<'_>) -> PinnedEnd {
        let _alarm = Alarm(self.shared.clone());
        let mut counters = NfCounters::new();
        let mut batch = Batch::new(self.pool.clone());
        let mut emitted = Emitted::new(self.pool.clone());
        let mut clock = Clock::default();
        let (mut idle, mut drops) = (Idle::default(), Published::default());
        let (mut exports, mut busy_cycles) = (0, 0);
        while !self.shared.end.load(Ordering::Acquire) {
            let start = cycles::now();
            let mut worked = false;
            for ring in 0..self.rings.len() {
                if fill(&mut batch, &mut self.rings[ring].0) {
                    worked = true;
                    self.serve(&mut batch, &mut emitted, &mut clock, &mut counters);
                    drops.publish(counters.drops.total(), &self.shared.drops);
                    let to = &mut self.rings[ring].1;
                    let mut send = |packets: &mut Batch| to.send_from(packets, packets.lanes());
                    send(&mut batch);
                    emitted.hand_over(send);
                }
                worked |= self.rings[ring].1.push();
            }
            if worked {
                busy_cycles += cycles::now().wrapping_sub(start);
            }
            if self.shared.requests_export(&mut exports) {
                self.flush();
            }
            idle.worked(worked);
        }
        if let Err(e) = state.export(self.nf, 0, &*self.function) {
            self.shared.fail(vec![e.to_string()]);
        }
        PinnedEnd { nf: self.nf, function: self.function, counters, busy_cycles }
    }

    /// Lets the NF process a batch; the packets that it drops are released.
    fn serve(
        &mut self,
        batch: &mut Batch,
        emitted: &mut Emitted,
        clock: &mut Clock,
        counters: &mut NfCounters,
    ) {
        let lanes = batch.lanes();
        batch.parse(lanes, self.decapsulate);
        clock.batch(batch);
        let visit = &mut Visit { batch, lanes, clock: clock.before, emitted, trace: None };
        let served = process(&mut *self.function, visit, counters);
        batch.release(lanes.without(served.passed));
    }

    fn flush(&mut self) {
        if let Err(e) = self.function.flush() {
            self.shared.fail(vec![e.to_string()]);
        }
    }
}
