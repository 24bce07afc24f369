//! A device as an input.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Nanoseconds, Pool};

use super::binding::{Arrived, BAD_CHECKSUM, Counts, Purse, SEVERAL_BUFFERS};
use super::device::{Device, Direction, Lease, RESERVE};
use super::settings::DpdkSettings;
use crate::clock::now;
use crate::intake::count;
use crate::links::LinkEvents;
use crate::offload::complete_partial;
use crate::port::{Input, IoError, Received, Shortfall};

/// For how long no packets come before a thread sleeps between two looks at the device.
const SILENCE: Duration = Duration::from_millis(1);
/// The time between two looks at the device's counters.
const PERIOD: Duration = Duration::from_millis(100);
/// Calls between two looks at the clock while packets come.
const CALLS: u32 = 64;

/// Receives the packets of some queues of a device, in the frames of packet memory where its driver has
/// put them.
///
/// A packet that is longer than a frame is dropped as [`FrameTooSmall`](DropReason::FrameTooSmall), one
/// for which the device had no descriptor as [`ReceiveRingFull`](DropReason::ReceiveRingFull), or its
/// driver no frame as [`PoolExhausted`](DropReason::PoolExhausted), and one that was damaged on its way
/// as [`Malformed`](DropReason::Malformed). Packets have the time at which they were received.
pub(super) struct DpdkInput {
    purse: Purse,
    lease: Arc<Lease>,
    /// The queues, the one that is next first.
    queues: VecDeque<u16>,
    /// Where the device's counters were, if this counts what was lost.
    counted: Option<Counts>,
    looked: Instant,
    /// Calls since then.
    calls: u32,
    /// Since when no packets come.
    silent: Option<Instant>,
    due: Option<Instant>,
    longest: usize,
    ended: bool,
    has_warned: bool,
}

impl DpdkInput {
    /// Opens a device, or shares the one that an output has, with up to `most` inputs for its queues.
    ///
    /// # Errors
    /// [`IoError`] if there is no such device, or it cannot be set up so.
    pub(super) fn open(
        settings: &DpdkSettings,
        pool: &Arc<Pool>,
        most: usize,
    ) -> Result<Vec<Self>, IoError> {
        let lease = Arc::new(Lease::take(settings, pool, Direction::Input)?);
        let inputs = most.clamp(1, settings.queues.into());
        let now = Instant::now();
        let input = |first: usize| {
            let purse = Purse::new(&lease.device().mbufs).map_err(|e| IoError::Port {
                port: settings.title(),
                what: format!("memory of its queues: {e}"),
            })?;
            Ok(Self {
                purse,
                lease: lease.clone(),
                queues: (first as u16..settings.queues).step_by(inputs).collect(),
                counted: (first == 0).then(|| lease.device().counts()),
                looked: now,
                calls: 0,
                silent: None,
                due: None,
                longest: 0,
                ended: false,
                has_warned: false,
            })
        };
        (0..inputs).map(input).collect()
    }

    /// How packets are received, in a few words.
    pub(super) fn mode(&self) -> String {
        self.lease.device().mode()
    }

    /// The events and counters of the device, of all queues.
    pub(super) fn events(&self) -> Option<LinkEvents> {
        self.lease.events()
    }

    fn device(&self) -> &Device {
        self.lease.device()
    }

    /// Takes in the packets of a queue that have arrived, as far as there is room.
    fn take(
        &mut self,
        queue: u16,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
        received: &mut Received,
    ) {
        if self.purse.len() < RESERVE {
            // If the pool has none, the driver counts that.
            self.purse.fill(RESERVE + 2 * BATCH);
        }
        let port = self.device().port();
        let now = now();
        for packet in self.purse.receive((port, queue), most) {
            let len = packet.len;
            if let Err(reason) = self.deliver(packet, now, batch) {
                drops.add(reason, 1);
            }
            count(received, len as u32);
        }
    }

    /// Puts a packet into the batch, which has an empty lane.
    #[inline]
    fn deliver(
        &mut self,
        packet: Arrived,
        now: Nanoseconds,
        batch: &mut Batch,
    ) -> Result<(), DropReason> {
        let Arrived { frame, place, len, flags } = packet;
        let pool = batch.pool().clone();
        let too_long = len > batch.capacity() || flags & SEVERAL_BUFFERS != 0;
        let reason = if too_long {
            self.longest = self.longest.max(len);
            Some(DropReason::FrameTooSmall)
        } else if frame.is_none() {
            self.warn("its driver puts packets elsewhere than in packet memory");
            Some(DropReason::OutputFailed)
        } else if len < header_len::ETHERNET {
            Some(DropReason::Malformed)
        } else if flags & BAD_CHECKSUM != 0 && self.device().settings.drop_bad_checksums {
            Some(DropReason::BadChecksum)
        } else {
            None
        };
        let Some(frame) = frame else { return Err(reason.unwrap_or(DropReason::Malformed)) };
        if let Some(reason) = reason {
            pool.give_back([frame]);
            return Err(reason);
        }
        let mut packet = pool.packet(frame, place, len).map_err(|frame| {
            pool.give_back([frame]);
            DropReason::Malformed
        })?;
        packet.timestamp = now;
        let lane = batch.push(packet).expect("the batch has an empty lane");
        if self.device().completes_checksums {
            complete_partial(batch.bytes_mut(lane));
        }
        Ok(())
    }

    fn warn(&mut self, what: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("{}: {what}", self.device().settings.title());
        }
    }

    /// Notes whether packets come, and when to look at the device again.
    fn wait(&mut self, is_silent: bool) {
        let microseconds = self.device().settings.idle_sleep_us;
        self.due = None;
        if !is_silent {
            self.silent = None;
            return;
        }
        let now = Instant::now();
        let since = *self.silent.get_or_insert(now);
        if microseconds > 0 && now.duration_since(since) >= SILENCE {
            self.due = Some(now + Duration::from_micros(microseconds.into()));
        }
    }

    /// Whether the device's counters are due.
    fn is_look_due(&mut self, is_silent: bool) -> bool {
        self.calls += 1;
        if self.calls < CALLS && !is_silent {
            return false;
        }
        self.calls = 0;
        let now = Instant::now();
        let is_due = now.duration_since(self.looked) >= PERIOD;
        if is_due {
            self.looked = now;
        }
        is_due
    }

    /// Counts what was lost since the last call.
    fn count_lost(&mut self, drops: &mut DropCounts, received: &mut Received) {
        let Some(before) = self.counted else { return };
        let now = self.device().counts();
        self.counted = Some(now);
        let since = |of: fn(&Counts) -> u64| of(&now).saturating_sub(of(&before));
        for (reason, packets) in [
            (DropReason::ReceiveRingFull, since(|c| c.missed)),
            (DropReason::PoolExhausted, since(|c| c.starved)),
            (DropReason::Malformed, since(|c| c.errors)),
        ] {
            drops.add(reason, packets);
            received.packets += packets as usize;
        }
    }
}

impl Input for DpdkInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { ended: self.ended, ..Received::default() };
        for _ in 0..self.queues.len() {
            let room = (BATCH - batch.len()).min(most.saturating_sub(received.packets));
            if room == 0 || self.ended {
                break;
            }
            let queue = self.queues[0];
            self.take(queue, batch, room, drops, &mut received);
            self.queues.rotate_left(1);
        }
        let is_silent = received.packets == 0 && most > 0;
        self.wait(is_silent);
        if self.is_look_due(is_silent) {
            self.count_lost(drops, &mut received);
            if is_silent && let Err(error) = self.device().check() {
                self.ended = true;
                return Err(error);
            }
        }
        Ok(received)
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }

    fn copied(&self) -> Option<u64> {
        Some(0)
    }
}
