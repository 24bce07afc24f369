//! A device as an output.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use arrayvec::ArrayVec;
use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Frame, HEADROOM, Lanes, Pool};

use super::binding::{Leaving, Purse};
use super::device::{Device, Direction, Lease};
use super::settings::DpdkSettings;
use crate::links::LinkEvents;
use crate::outgoing::{Packets, link_len};
use crate::port::{IoError, Lost, Output, OutputFailure, PATIENCE, Shortfall};

/// Sends packets by a queue of a device, out of their frames.
///
/// While its descriptors are in use the sender waits; after a second, packets are dropped, as
/// [`TransmitQueueFull`](DropReason::TransmitQueueFull), without further waiting until one is sent
/// again. Packets longer than the MTU are dropped as [`TooBig`](DropReason::TooBig), and those that are
/// shorter than an Ethernet header as [`Malformed`](DropReason::Malformed).
pub(super) struct DpdkOutput {
    purse: Purse,
    lease: Arc<Lease>,
    queue: u16,
    /// The longest packet that was dropped because of its length, in bytes.
    longest: usize,
    /// Packets that were copied: those that the caller keeps.
    copied: u64,
    /// Whether the descriptors were in use for longer than packets wait.
    is_stuck: bool,
    is_gone: bool,
}

impl DpdkOutput {
    /// Opens a device, or shares the one that an input has, with up to `most` of its queues.
    ///
    /// # Errors
    /// As [`DpdkInput::open`](super::input::DpdkInput::open).
    pub(super) fn open(
        settings: &DpdkSettings,
        pool: &Arc<Pool>,
        most: usize,
    ) -> Result<Vec<Self>, IoError> {
        let lease = Arc::new(Lease::take(settings, pool, Direction::Output)?);
        let output = |queue| {
            let purse = Purse::new(&lease.device().mbufs).map_err(|e| IoError::Port {
                port: settings.title(),
                what: format!("memory of its queues: {e}"),
            })?;
            let (longest, copied, is_stuck, is_gone) = (0, 0, false, false);
            let lease = lease.clone();
            Ok(Self { purse, lease, queue, longest, copied, is_stuck, is_gone })
        };
        (0..settings.queues).take(most.max(1)).map(output).collect()
    }

    /// How packets are sent, in a few words.
    pub(super) fn mode(&self) -> String {
        self.device().mode()
    }

    /// The events and counters of the device, of all queues.
    pub(super) fn events(&self) -> Option<LinkEvents> {
        self.lease.events()
    }

    fn device(&self) -> &Device {
        self.lease.device()
    }

    /// Sends packets; fails if the device was removed.
    fn transmit(
        &mut self,
        packets: &mut Packets<'_>,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let lanes = lanes.and(packets.batch().lanes());
        if self.is_gone
            && let Err(error) = self.device().check()
        {
            drops.add(DropReason::OutputFailed, lanes.count() as u64);
            return Err(OutputFailure { error, sent: Lanes::NONE, lost: Lost::default() });
        }
        let mut leaving = ArrayVec::new();
        let mut sent = Lanes::NONE;
        for lane in lanes {
            match self.prepare(packets, lane) {
                Ok(packet) => {
                    leaving.push(packet);
                    sent.insert(lane);
                }
                Err(reason) => drops.add(reason, 1),
            }
        }
        self.hand_over(&mut leaving);
        let pool = packets.batch().pool().clone();
        for Leaving { lane, frame, .. } in leaving {
            sent.remove(lane);
            drops.add(DropReason::TransmitQueueFull, 1);
            pool.give_back([frame]);
        }
        // What the driver has returned.
        self.purse.give_back(0);
        Ok(sent)
    }

    /// Hands packets to the driver; those are left that it has not taken within a second.
    fn hand_over(&mut self, leaving: &mut ArrayVec<Leaving, BATCH>) {
        let place = (self.device().port(), self.queue);
        let mut since = None;
        while !leaving.is_empty() {
            let before = leaving.len();
            self.purse.send(place, leaving);
            if leaving.len() < before {
                (since, self.is_stuck) = (None, false);
                continue;
            }
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            self.is_stuck |= since.elapsed() >= PATIENCE;
            if self.is_stuck {
                return;
            }
            thread::yield_now();
        }
    }

    /// The packet of a lane, to be sent: in its own frame, which is taken out of the batch, or in a copy.
    #[inline]
    fn prepare(&mut self, packets: &mut Packets<'_>, lane: usize) -> Result<Leaving, DropReason> {
        let bytes = packets.batch().bytes(lane);
        let len = bytes.len();
        if len < header_len::ETHERNET {
            return Err(DropReason::Malformed);
        }
        if len > self.device().mtu() + link_len(bytes) {
            self.longest = self.longest.max(len);
            return Err(DropReason::TooBig);
        }
        let batch = match packets {
            Packets::Kept(batch) => return self.copy(batch.pool(), lane, batch.bytes(lane)),
            Packets::Given(batch) => batch,
        };
        let packet = batch.take(lane).ok_or(DropReason::Malformed)?;
        let place = packet.offset();
        let (frame, pool) = (packet.into_frame(), batch.pool());
        if pool.size_of(&frame) == pool.frame_size() {
            return Ok(Leaving { lane, frame, place, len });
        }
        // A packet that has become short in a large frame.
        let copied = self.copy(pool, lane, &pool.bytes(&frame)[place..place + len]);
        pool.give_back([frame]);
        copied
    }

    fn copy(&mut self, pool: &Pool, lane: usize, bytes: &[u8]) -> Result<Leaving, DropReason> {
        let (place, len) = (HEADROOM, bytes.len());
        if len > pool.frame_size() - place {
            self.longest = self.longest.max(len);
            return Err(DropReason::TooBig);
        }
        let mut frame: Frame = pool.take().ok_or(DropReason::PoolExhausted)?;
        pool.bytes_mut(&mut frame)[place..place + len].copy_from_slice(bytes);
        self.copied += 1;
        Ok(Leaving { lane, frame, place, len })
    }
}

impl Output for DpdkOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        self.transmit(&mut Packets::Kept(batch), lanes, drops)
    }

    fn send_frames(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        self.transmit(&mut Packets::Given(batch), lanes, drops)
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        let place = (self.device().port(), self.queue);
        self.purse.reap(place);
        self.purse.give_back(0);
        self.purse.mbufs().give_strays_back();
        Ok(())
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }

    fn check(&mut self) -> Result<(), IoError> {
        let outcome = self.device().check();
        self.is_gone = outcome.is_err();
        outcome
    }
}
