//! A TAP device as an input.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_packet::{Batch, DropCounts, DropReason, Pool};

use super::device::{Lease, TapSettings};
use super::kind::mode;
use super::place::Place;
use super::queue::Queue;
use crate::clock::now;
use crate::intake::{Taken, count};
use crate::interface::{Arrivals, Sink, may_be_fragmented, removed};
use crate::links::DeviceCounts;
use crate::offload::Offload;
use crate::port::{Input, IoError, Received, Shortfall};
use crate::silence::Silence;

/// Bytes after which no more packets are received at once: a few super-packets fill the cache.
const MOST: u64 = 512 << 10;

/// Receives what the host sends by a TAP device. It is one queue of several.
///
/// Packets wait in the queue of the device (`txqueuelen`, 1000 unless set); those that find no room are
/// lost, as [`ReceiveRingFull`](DropReason::ReceiveRingFull): of all queues at the first one, since the
/// kernel counts them for the device. Packets have the time at which they were received.
/// Missing checksums are filled in, and packets that need segmentation stay whole as super-packets if
/// packet memory has large frames.
pub(super) struct TapInput {
    lease: Arc<Lease>,
    queue: Arc<Queue>,
    place: Place,
    arrivals: Arrivals,
    /// What counts the packets that the kernel had no room for; of the first queue.
    missed: Option<Missed>,
    ended: bool,
}

/// The least time between looks at the counts without packets: all interfaces are in one text.
const PAUSE: Duration = Duration::from_millis(100);

/// The packets that the kernel had no room for.
struct Missed {
    counts: DeviceCounts,
    /// As many as are counted already.
    counted: u64,
    /// Calls that received packets since the counts were last read.
    calls: u32,
    silence: Silence,
}

impl Missed {
    /// From now on; `None` if the system shows no counts.
    fn of(name: &str) -> Option<Self> {
        let counts = DeviceCounts::open().ok()?;
        let counted = counts.read(name)?.sent;
        Some(Self { counts, counted, calls: 0, silence: Silence::new(PAUSE) })
    }

    /// Whether the counts are due, after a call that has received packets or not.
    fn is_due(&mut self, has_received: bool) -> bool {
        const CALLS: u32 = 256;
        self.calls += u32::from(has_received);
        let is_quiet = self.silence.is_call_due(!has_received, Instant::now);
        let is_due = is_quiet || self.calls >= CALLS;
        if is_due {
            self.calls = 0;
        }
        is_due
    }

    /// The packets lost since the last call; none while the device is gone or has another name.
    fn take(&mut self, name: &str) -> u64 {
        let Some(now) = self.counts.read(name) else { return 0 };
        // One that was made anew begins at 0.
        let missed = now.sent.checked_sub(self.counted).unwrap_or(now.sent);
        self.counted = now.sent;
        missed
    }
}

impl TapInput {
    /// Opens a device, which is made if there is none, with up to `most` queues; returns also how
    /// packets pass, in a few words.
    ///
    /// # Errors
    /// [`IoError::Interface`] if there can be no such device, or the system does not permit it.
    pub(super) fn open(
        settings: &TapSettings,
        most: usize,
        pool: &Arc<Pool>,
    ) -> Result<(Vec<Self>, String), IoError> {
        let (lease, queues) = Lease::open(settings, most)?;
        let (lease, mut left) = (Arc::new(lease), "");
        for queue in &queues {
            left = queue.set_offloads(pool.large_frames() > 0).map_err(|error| {
                let what = format!("cannot set its offloads: {error}");
                IoError::Interface { name: settings.name.clone(), what }
            })?;
        }
        let mut missed = Missed::of(&settings.name);
        let input = |queue| Self {
            lease: lease.clone(),
            queue,
            place: Place::new(pool),
            arrivals: Arrivals::default(),
            missed: missed.take(),
            ended: false,
        };
        let inputs: Vec<_> = queues.into_iter().map(input).collect();
        let chosen = match (inputs.len(), lease.is_by_flow) {
            (1, _) => "",
            (_, true) => ", queues by flow",
            (_, false) => ", queues as the kernel chooses",
        };
        let mode = mode(inputs.len(), left) + chosen;
        Ok((inputs, mode))
    }

    /// Counts the packets that the kernel had no room for, if that is due.
    fn count_missed(&mut self, drops: &mut DropCounts, received: &mut Received) {
        let Some(missed) = &mut self.missed else { return };
        if missed.is_due(received.packets > 0) {
            let packets = missed.take(self.lease.name());
            drops.add(DropReason::ReceiveRingFull, packets);
            received.packets += packets as usize;
        }
    }

    /// Takes in the packet that was received.
    fn take(&mut self, sink: &mut Sink<'_>) -> Taken {
        let offload = Offload::read(self.place.offload());
        if offload.cuts() && self.take_frame(offload, sink) {
            return Taken::Settled;
        }
        self.arrivals.take(None, self.place.slot(), sink)
    }

    /// Takes in a super-packet in the frame in which it was received, if it can be.
    fn take_frame(
        &mut self,
        offload: Offload,
        Sink { batch, received, .. }: &mut Sink<'_>,
    ) -> bool {
        let bytes = self.place.slot().bytes;
        let form = (!may_be_fragmented(bytes, offload)).then(|| offload.division(bytes)).flatten();
        let lane = form.and_then(|_| self.place.hand_over(batch));
        let (Some(lane), Some(form)) = (lane, form) else { return false };
        form.set(&mut batch.meta, lane);
        count(received, batch.meta.wire_len[lane]);
        true
    }

    /// What a failure to receive means.
    fn failed(&mut self, error: &io::Error) -> Result<(), IoError> {
        if self.queue.has_device() {
            log::warn!("TAP device {}: {error}", self.lease.name());
            return Ok(());
        }
        self.ended = true;
        Err(removed(self.lease.name()))
    }
}

impl Input for TapInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { ended: self.ended, ..Received::default() };
        while received.packets < most && received.bytes < MOST && !batch.is_full() && !self.ended {
            let sink = &mut Sink { batch, drops, received: &mut received };
            if self.arrivals.is_cutting() {
                if self.arrivals.take_cut(sink) == Taken::Later {
                    break;
                }
                continue;
            }
            match self.place.fill(&self.queue, now) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if received.packets == 0 => {
                    self.failed(&error)?;
                    break;
                }
                // The next call returns it.
                Err(_) => break,
            }
            if self.take(sink) == Taken::Later {
                break;
            }
            self.place.clear();
        }
        self.count_missed(drops, &mut received);
        Ok(received)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn shortfall(&self) -> Shortfall {
        self.arrivals.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.arrivals.copied())
    }
}
