//! A shared-memory connection as an output.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use thalweg_packet::wire::header_len;
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes, Pool};

use super::endpoint::Ends;
use super::registry::{Direction, Lease};
use super::sender::{Put, Sender};
use super::settings::MemifSettings;
use super::shared::{Channel, Share, Shared};
use crate::outgoing::Packets;
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
    /// The packets that were copied: all of them, or with zero copy those that the caller kept.
    copied: u64,
}

impl MemifOutput {
    /// Opens the output of a connection, for packets of `pool`, with up to `most` queues; does not wait
    /// for its peer.
    ///
    /// # Errors
    /// As [`MemifInput::open`](super::MemifInput::open).
    pub fn open(
        settings: &MemifSettings,
        pool: &Arc<Pool>,
        most: usize,
    ) -> Result<Vec<Self>, IoError> {
        let lease = Arc::new(Lease::open(settings, Direction::Output, pool)?);
        let queue = |share| Self {
            lease: lease.clone(),
            share,
            rings: Ends::new(),
            is_stuck: false,
            longest: 0,
            copied: 0,
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
    #[inline]
    fn put(
        &mut self,
        channel: &Channel,
        ring: usize,
        packets: &mut Packets<'_>,
        lane: usize,
    ) -> Result<(), DropReason> {
        let len = packets.batch().packet_len(lane);
        let mut since = None;
        loop {
            // It is gone if a fault was found before.
            let sender = self.rings.ends.get_mut(ring).ok_or(DropReason::NoPeer)?;
            let put = match (channel.loans(), &mut *packets) {
                (None, packets) => sender.put(channel, packets.batch().bytes(lane)),
                (Some(loans), Packets::Given(batch)) => {
                    sender.put_frame(channel, loans, batch, lane)
                }
                (Some(loans), Packets::Kept(batch)) => {
                    sender.put_copy(channel, loans, batch.bytes(lane))
                }
            };
            self.copied += std::mem::take(&mut sender.copied);
            match put {
                Ok(Put::Done) => {
                    self.is_stuck = false;
                    return Ok(());
                }
                Ok(Put::TooBig) => {
                    self.longest = self.longest.max(len);
                    return Err(DropReason::TooBig);
                }
                Ok(Put::Refused(reason)) => return Err(reason),
                Ok(Put::Full) => self.wait_for_room(channel, ring, &mut since)?,
                Err(fault) => {
                    self.rings.accuse(self.lease.endpoint(), fault);
                    return Err(DropReason::NoPeer);
                }
            }
        }
    }

    /// Lets the peer know of the packets in a full ring, and gives it time to take them out; returns
    /// why the packet is dropped if it has taken too long.
    fn wait_for_room(
        &mut self,
        channel: &Channel,
        ring: usize,
        since: &mut Option<Instant>,
    ) -> Result<(), DropReason> {
        self.rings.ends[ring].publish(channel);
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        self.is_stuck |= waited >= PATIENCE;
        if self.is_stuck {
            return Err(DropReason::TransmitQueueFull);
        }
        if self.rings.is_past(self.lease.endpoint()) {
            return Err(DropReason::NoPeer);
        }
        thread::yield_now();
        Ok(())
    }

    /// Sends packets.
    fn transmit(
        &mut self,
        packets: &mut Packets<'_>,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Lanes {
        let lanes = lanes.and(packets.batch().lanes());
        self.reap();
        let shared = self.look();
        let rings = self.rings.ends.len();
        let Some(shared) = shared.filter(|_| rings > 0) else {
            drops.add(DropReason::NoPeer, lanes.count() as u64);
            return Lanes::NONE;
        };
        let mut sent = Lanes::NONE;
        for lane in lanes {
            let batch = packets.batch();
            let ring = if rings == 1 { 0 } else { batch.flow_hash(lane) as usize % rings };
            let outcome = if batch.packet_len(lane) < header_len::ETHERNET {
                Err(DropReason::Malformed)
            } else {
                self.put(self.share.get(&shared.transmit, ring), ring, packets, lane)
            };
            match outcome {
                Ok(()) => sent.insert(lane),
                Err(reason) => drops.add(reason, 1),
            }
        }
        for (sender, channel) in self.rings.ends.iter_mut().zip(self.share.of(&shared.transmit)) {
            sender.publish(channel);
        }
        sent
    }

    /// Returns the frames that the peer has read to the pool; all of them, if it has gone.
    fn reap(&mut self) {
        if self.lease.endpoint().pool.is_none() {
            return;
        }
        let Some(shared) = self.look() else { return };
        let channels = self.share.of(&shared.transmit);
        let mut ends = self.rings.ends.iter_mut().zip(channels);
        let outcome = ends.try_for_each(|(sender, channel)| match channel.loans() {
            Some(loans) => sender.reap(channel, loans, &mut loans.frames()),
            None => Ok(()),
        });
        if let Err(fault) = outcome {
            self.rings.accuse(self.lease.endpoint(), fault);
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
        Ok(self.transmit(&mut Packets::Kept(batch), lanes, drops))
    }

    fn send_frames(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        Ok(self.transmit(&mut Packets::Given(batch), lanes, drops))
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        self.reap();
        Ok(())
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }

    fn check(&mut self) -> Result<(), IoError> {
        self.reap();
        Ok(())
    }
}
