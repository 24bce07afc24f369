//! A worker on its own thread, between rings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rtrb::Consumer;
use thalweg_cpu::cycles;
use thalweg_packet::{Batch, Lanes, Packet, Pool};

use super::drops::Published;
use super::rings::{Alarm, Idle, Sender, Shared, fill};
use super::state::StateFolders;
use super::workers::export_state;
use crate::forwarding::Exit;
use crate::route_decider::NfIndex;
use crate::worker::Worker;

/// A packet to transmit, with the number of its output.
pub(super) type Outgoing = (u16, Packet);

/// A worker's ends of its rings.
pub(super) struct WorkerThread {
    pub(super) worker: Worker,
    /// Its number, from 0.
    pub(super) number: usize,
    pub(super) pool: Arc<Pool>,
    pub(super) shared: Arc<Shared>,
    pub(super) from_reader: Consumer<Packet>,
    pub(super) exit: RingExit,
    pub(super) from_pinned: Vec<(NfIndex, Consumer<Packet>)>,
}

pub(super) struct RingExit {
    pub(super) to_writer: Sender<Outgoing>,
    pub(super) to_pinned: Vec<(NfIndex, Sender<Packet>)>,
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
        ring.send_from(batch, lanes);
    }
}

impl WorkerThread {
    /// Runs until all packets are out; returns the worker, whose NFs have written their state.
    pub(super) fn run(mut self, state: &StateFolders<'_>) -> Worker {
        let _alarm = Alarm(self.shared.clone());
        let mut batch = Batch::new(self.pool.clone());
        let mut idle = Idle::default();
        let (mut drops, mut exports) = (Published::default(), 0);
        while !self.shared.end.load(Ordering::Acquire) {
            let start = cycles::now();
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
                self.worker.counters.busy_cycles += cycles::now().wrapping_sub(start);
                drops.publish(self.worker.drops(), &self.shared.drops);
            }
            if self.shared.requests_export(&mut exports) {
                let mut failures = Vec::new();
                self.worker.flush(&mut failures);
                self.shared.fail(failures);
            }
            idle.worked(worked);
        }
        let mut failures = Vec::new();
        export_state(&mut self.worker, self.number, state, &mut failures);
        self.shared.fail(failures);
        self.worker
    }
}
