//! The thread that reads the inputs, spreads packets over the workers, and
//! writes the outputs.

use std::sync::atomic::Ordering;

use rtrb::Consumer;
use thalweg_packet::{Batch, Lanes, Packet, address_hash};

use super::drops::Published;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use super::rings::{Idle, RING, Sender, Shared};
use super::worker_thread::Outgoing;
use crate::config::Plan;
use crate::control::Control;
use thalweg_cpu::cycles;

/// The dispatcher's ends of a worker's rings.
pub(super) struct WorkerEnds {
    pub(super) to: Sender<Packet>,
    pub(super) from: Consumer<Outgoing>,
}

/// The work of the calling thread: inputs, spreading, outputs.
pub(super) struct Dispatch<'a> {
    pub(super) plan: &'a Plan,
    pub(super) control: &'a Control,
    pub(super) inputs: Inputs,
    pub(super) outputs: Outputs,
    pub(super) ends: Vec<WorkerEnds>,
    pub(super) batch: Batch,
    pub(super) outgoing: Vec<Batch>,
    pub(super) reserve: usize,
    /// Whether flows are spread by their addresses alone.
    pub(super) by_addresses: bool,
    /// Cycles spent on packets, without waiting.
    pub(super) busy_cycles: u64,
}

impl Dispatch<'_> {
    /// Receives a batch and spreads it over the workers by flow; returns whether
    /// anything arrived. Nothing is received while a ring is full, so that packets
    /// wait in their file and not in memory, nor while frames are short.
    fn receive(&mut self) -> bool {
        let behind = self.ends.iter().any(|ends| !ends.to.queue.is_empty());
        if behind || self.plan.pool.available() < self.reserve {
            return false;
        }
        if !self.inputs.receive(&mut self.batch, self.control) {
            return false;
        }
        let lanes = self.batch.lanes();
        self.batch.parse(lanes, self.plan.routing.decapsulate);
        for lane in lanes {
            let hash = if self.by_addresses {
                address_hash(&self.batch.key(lane))
            } else {
                self.batch.flow_hash(lane)
            };
            let worker = hash as usize % self.ends.len();
            if let Some(packet) = self.batch.take(lane) {
                self.ends[worker].to.send(packet);
            }
        }
        true
    }

    /// Pushes the packets that wait for workers, and writes those that came from them.
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

    /// Reads and writes until the inputs have ended and no packet is under way.
    pub(super) fn serve(&mut self, shared: &Shared, reloads: &mut Reloads<'_, '_>) {
        let mut idle = Idle::default();
        let mut drops = Published::default();
        let mut last = cycles::now();
        loop {
            self.outputs.check(self.control);
            let ended = self.inputs.ended(self.control);
            let mut worked = !ended && self.receive();
            worked |= self.transmit();
            drops.publish(shared.drops.load(Ordering::Relaxed), &self.control.drops);
            reloads.poll(self.control);
            if self.control.take_export() {
                shared.exports.fetch_add(1, Ordering::Relaxed);
                self.outputs.flush(self.control);
            }
            let now = cycles::now();
            self.busy_cycles += if worked { now.wrapping_sub(last) } else { 0 };
            // Every packet under way holds a frame, on whatever thread it is.
            let settled = !worked && self.plan.pool.in_use() == 0;
            if settled && ended || shared.end.load(Ordering::Acquire) {
                return;
            }
            if !settled || !self.inputs.rest() {
                idle.worked(worked);
            }
            // The wait is no work of the next round.
            last = if worked { now } else { cycles::now() };
        }
    }
}
