//! An input at the end of a modelled link.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Packet, Pool};

use super::{LinkModel, LinkState};
use crate::clock::now as date;
use crate::port::{Input, IoError, Received, Shortfall};

/// The batches that are taken in at most before packets are handed on.
const BATCHES: usize = 8;

/// An input whose packets arrive by a [link that is modelled](LinkModel).
///
/// Packets that are under way stay in their frames, up to the model's `queue`; further ones are dropped
/// as [`ReceiveRingFull`](DropReason::ReceiveRingFull). Packets have the time at which they were received
/// from the link. While some are under way, the thread of the input does not sleep, so that they are
/// received in time.
pub struct ModelledInput {
    input: Box<dyn Input>,
    link: ModelledLink,
    /// The present time in picoseconds.
    clock: Box<dyn FnMut() -> u64 + Send>,
    /// Packets that have arrived from the input.
    arrived: Batch,
    pool: Arc<Pool>,
    /// Packets under way, with the time at which they are received.
    under_way: VecDeque<(u64, Packet)>,
    has_ended: bool,
}

/// A link, which all queues of an input share.
#[derive(Clone)]
pub(crate) struct ModelledLink {
    model: LinkModel,
    state: Arc<Mutex<LinkState>>,
}

impl ModelledLink {
    pub(crate) fn new(model: LinkModel) -> Self {
        Self { model, state: Arc::default() }
    }
}

impl ModelledInput {
    /// The end of a link at which `input`, whose packets are of `pool`, receives them.
    pub fn new(input: Box<dyn Input>, model: LinkModel, pool: Arc<Pool>) -> Self {
        Self::by(input, ModelledLink::new(model), pool)
    }

    /// The end of a queue of a link.
    pub(crate) fn by(input: Box<dyn Input>, link: ModelledLink, pool: Arc<Pool>) -> Self {
        let began = Instant::now();
        let clock = move || {
            let elapsed = began.elapsed();
            elapsed.as_secs() * 1_000_000_000_000 + u64::from(elapsed.subsec_nanos()) * 1000
        };
        Self::with_clock(input, link, pool, clock)
    }

    pub(super) fn with_clock(
        input: Box<dyn Input>,
        link: ModelledLink,
        pool: Arc<Pool>,
        clock: impl FnMut() -> u64 + Send + 'static,
    ) -> Self {
        let queue = link.model.queue as usize;
        Self {
            input,
            link,
            clock: Box::new(clock),
            arrived: Batch::new(pool.clone()),
            pool,
            under_way: VecDeque::with_capacity(queue),
            has_ended: false,
        }
    }

    /// Takes in what has arrived; counts what finds no room.
    fn take_in(&mut self, drops: &mut DropCounts, received: &mut Received) -> Result<(), IoError> {
        let queue = self.link.model.queue as usize;
        for _ in 0..BATCHES {
            if self.has_ended {
                break;
            }
            let before = drops.total();
            let arrived = self.input.receive(&mut self.arrived, BATCH, drops)?;
            self.has_ended = arrived.ended;
            received.passed_over.merge(&arrived.passed_over);
            let lost = (drops.total() - before) as usize;
            let now = (self.clock)();
            let (mut bytes, lanes) = (arrived.bytes, self.arrived.lanes());
            for lane in lanes {
                let wire_len = self.arrived.meta.wire_len[lane];
                if self.under_way.len() >= queue {
                    drops.add(DropReason::ReceiveRingFull, 1);
                    received.packets += 1;
                    continue;
                }
                // Counted when it is received.
                bytes = bytes.saturating_sub(wire_len.into());
                let mut state = self.link.state.lock().unwrap_or_else(PoisonError::into_inner);
                let due = state.pass(&self.link.model, now, wire_len as usize);
                self.under_way.extend(self.arrived.take(lane).map(|packet| (due, packet)));
            }
            self.arrived.release(Lanes::ALL);
            received.packets += lost;
            received.bytes += bytes;
            if arrived.packets == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Input for ModelledInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received::default();
        self.take_in(drops, &mut received)?;
        let now = (self.clock)();
        let mut date_of_batch = None;
        for _ in 0..most {
            if batch.is_full() || self.under_way.front().is_none_or(|(due, _)| *due > now) {
                break;
            }
            let Some((_, mut packet)) = self.under_way.pop_front() else { break };
            packet.timestamp = *date_of_batch.get_or_insert_with(date);
            received.packets += 1;
            received.bytes += u64::from(packet.wire_len);
            if let Err(packet) = batch.push(packet) {
                // The batch has room, as was seen.
                self.pool.give_back([packet.into_frame()]);
            }
        }
        received.ended = self.has_ended && self.under_way.is_empty();
        Ok(received)
    }

    fn share(&self) -> Option<f64> {
        self.input.share()
    }

    fn shortfall(&self) -> Shortfall {
        self.input.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        self.input.copied()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // While packets are under way, their time is waited for, and when others arrive is noticed.
        if self.under_way.is_empty() { self.input.descriptor() } else { None }
    }
}

impl Drop for ModelledInput {
    fn drop(&mut self) {
        self.pool.give_back(self.under_way.drain(..).map(|(_, packet)| packet.into_frame()));
    }
}
