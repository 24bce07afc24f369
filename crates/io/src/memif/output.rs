//! A shared-memory connection as an output.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use thalweg_packet::wire::header_len;
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes};

use super::endpoint::Ends;
use super::registry::{Direction, Lease};
use super::sender::{Put, Sender};
use super::settings::MemifSettings;
use super::shared::{Share, Shared};
use crate::port::{IoError, Output, OutputFailure, PATIENCE, Shortfall};

/// Sends packets by shared memory (memif).
///
/// While the ring is full the sender waits; after a second, packets are dropped as
/// [`TransmitQueueFull`](DropReason::TransmitQueueFull), without further waiting until there is room
/// again. While there is no peer, packets are dropped as [`NoPeer`](DropReason::NoPeer). Those longer
/// than all buffers of the ring are dropped as [`TooBig`](DropReason::TooBig), those shorter than an
/// Ethernet header as [`Malformed`](DropReason::Malformed). Of several rings, all packets of a flow
/// have the same one. It is one queue of several; each has some of the rings.
pub struct MemifOutput {
    lease: Arc<Lease>,
    share: Share,
    rings: Ends<Sender>,
    /// Whether a ring was full for longer than packets wait.
    is_stuck: bool,
    /// The longest packet dropped because it is longer than all buffers, in bytes.
    longest: usize,
}

impl MemifOutput {
    /// Opens the output of a connection, with up to `most` queues; does not wait for its peer.
    ///
    /// # Errors
    /// If the socket cannot be had, or the connection has an output in this program.
    pub fn open(settings: &MemifSettings, most: usize) -> Result<Vec<Self>, IoError> {
        let lease = Arc::new(Lease::open(settings, Direction::Output)?);
        let queue = |share| Self {
            lease: lease.clone(),
            share,
            rings: Ends::new(),
            is_stuck: false,
            longest: 0,
        };
        Ok(Share::each(most.clamp(1, settings.queues.into())).map(queue).collect())
    }

    fn look(&mut self) -> Option<Arc<Shared>> {
        let share = self.share;
        self.rings.look(self.lease.endpoint(), |shared| {
            share.of(&shared.transmit).map(Sender::new).collect()
        })
    }

    /// Puts a packet into a ring, and waits for room; returns why it was dropped otherwise.
    fn put(&mut self, shared: &Shared, ring: usize, packet: &[u8]) -> Result<(), DropReason> {
        let channel = self.share.get(&shared.transmit, ring);
        let mut since = None;
        loop {
            // It is gone if a fault was found before.
            let sender = self.rings.ends.get_mut(ring).ok_or(DropReason::NoPeer)?;
            match sender.put(channel, packet) {
                Ok(Put::Done) => {
                    self.is_stuck = false;
                    return Ok(());
                }
                Ok(Put::TooBig) => {
                    self.longest = self.longest.max(packet.len());
                    return Err(DropReason::TooBig);
                }
                Ok(Put::Full) => sender.publish(channel),
                Err(fault) => {
                    self.rings.accuse(self.lease.endpoint(), fault);
                    return Err(DropReason::NoPeer);
                }
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            self.is_stuck |= waited >= PATIENCE;
            if self.is_stuck {
                return Err(DropReason::TransmitQueueFull);
            }
            if self.rings.is_past(self.lease.endpoint()) {
                return Err(DropReason::NoPeer);
            }
            thread::yield_now();
        }
    }
}

impl Output for MemifOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let lanes = lanes.and(batch.lanes());
        let shared = self.look();
        let rings = self.rings.ends.len();
        let Some(shared) = shared.filter(|_| rings > 0) else {
            drops.add(DropReason::NoPeer, lanes.count() as u64);
            return Ok(Lanes::NONE);
        };
        let mut sent = Lanes::NONE;
        for lane in lanes {
            let packet = batch.bytes(lane);
            let ring = if rings == 1 { 0 } else { batch.flow_hash(lane) as usize % rings };
            let outcome = if packet.len() < header_len::ETHERNET {
                Err(DropReason::Malformed)
            } else {
                self.put(&shared, ring, packet)
            };
            match outcome {
                Ok(()) => sent.insert(lane),
                Err(reason) => drops.add(reason, 1),
            }
        }
        for (sender, channel) in self.rings.ends.iter_mut().zip(self.share.of(&shared.transmit)) {
            sender.publish(channel);
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        Ok(())
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }
}
