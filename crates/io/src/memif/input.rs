//! A shared-memory connection as an input.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use thalweg_packet::{Batch, DropCounts, Pool};

use super::endpoint::Ends;
use super::receiver::{Receiver, Sink};
use super::registry::{Direction, Lease};
use super::settings::{MAX_RING_SIZE, MemifSettings};
use super::shared::{Bell, Channel, Share, Shared};
use crate::clock::now;
use crate::intake::Intake;
use crate::port::{Input, IoError, Received, Shortfall};

/// Receives packets by shared memory (memif).
///
/// It has packets while a peer is connected, and waits for the next peer otherwise. Packets are copied
/// into frames, unless the peer has put them into frames itself
/// ([zero copy](MemifSettings::with_zero_copy)), and have the time at which they were received. One that is longer than a frame is
/// dropped as [`FrameTooSmall`](thalweg_packet::DropReason::FrameTooSmall), one that is shorter than
/// an Ethernet header as [`Malformed`](thalweg_packet::DropReason::Malformed).
///
/// It is one queue of several; each has some of the rings.
pub struct MemifInput {
    lease: Arc<Lease>,
    share: Share,
    rings: Ends<Receiver>,
    /// The ring that is next.
    turn: usize,
    /// Readable when the peer interrupts, or comes or goes.
    events: OwnedFd,
    /// The rings whose peer `events` hears.
    heard: Vec<Arc<Bell>>,
    /// Whether the peer was asked for interrupts.
    is_asleep: Cell<bool>,
    intake: Intake,
    /// The packets that were copied: all of them, or with zero copy those in several buffers.
    copied: u64,
    /// The calls that may still receive what a peer has sent that has gone.
    last_calls: u32,
}

/// The calls that receive what a peer has sent that has gone: enough for the longest ring, and not
/// without end, since it may not have let go of the memory.
const LAST_CALLS: u32 = 1 << MAX_RING_SIZE;

impl MemifInput {
    /// Opens the input of a connection, for frames of `pool`, with up to `most` queues; does not wait
    /// for its peer.
    ///
    /// # Errors
    /// If the socket cannot be had, or the connection has an input in this program; with zero copy, if
    /// the memory of the pool is not [shared](thalweg_packet::PacketMemory::shared), or too small or
    /// too large.
    pub fn open(
        settings: &MemifSettings,
        pool: &Arc<Pool>,
        most: usize,
    ) -> Result<Vec<Self>, IoError> {
        let lease = Arc::new(Lease::open(settings, Direction::Input, pool)?);
        let queues = most.clamp(1, settings.queues.into());
        Share::each(queues).map(|share| Self::queue(lease.clone(), share)).collect()
    }

    fn queue(lease: Arc<Lease>, share: Share) -> Result<Self, IoError> {
        let failed = |e: rustix::io::Errno| {
            let what = format!("cannot wait for packets: {e}");
            IoError::Port { port: lease.endpoint().settings.title(), what }
        };
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        hear(&events, &lease.endpoint().news).map_err(failed)?;
        Ok(Self {
            lease,
            share,
            rings: Ends::new(),
            turn: 0,
            events,
            heard: Vec::new(),
            is_asleep: Cell::new(false),
            intake: Intake::default(),
            copied: 0,
            last_calls: 0,
        })
    }

    /// Looks whether a peer came or went, and hears its interrupts then. What a peer has sent before
    /// it went is received first.
    fn look(&mut self) -> Option<Arc<Shared>> {
        if self.rings.is_past(self.lease.endpoint()) && self.last_calls > 0 && self.has_packets() {
            self.last_calls -= 1;
            return self.rings.shared().cloned();
        }
        self.last_calls = LAST_CALLS;
        let (events, heard, share) = (&self.events, &mut self.heard, self.share);
        self.rings.look(self.lease.endpoint(), |shared| {
            for bell in heard.drain(..) {
                let _ = epoll::delete(events, &*bell);
            }
            for channel in share.of(&shared.receive) {
                // Otherwise the run finds packets without an interrupt, some milliseconds later.
                if hear(events, &channel.bell).is_ok() {
                    heard.push(channel.bell.clone());
                }
            }
            let open = |channel| {
                let mut end = Receiver::new(channel);
                end.replenish(channel);
                end
            };
            share.of(&shared.receive).map(open).collect()
        })
    }

    /// Declines interrupts after a sleep.
    fn wake(&self) {
        if self.is_asleep.replace(false) {
            self.ask_for_interrupts(false);
            let mut events = Vec::with_capacity(self.heard.len() + 1);
            let _ =
                epoll::wait(&self.events, spare_capacity(&mut events), Some(&Timespec::default()));
        }
    }

    /// The rings of this queue.
    fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.rings.shared().into_iter().flat_map(|shared| self.share.of(&shared.receive))
    }

    fn ask_for_interrupts(&self, wanted: bool) {
        self.channels().for_each(|channel| channel.ring.decline(!wanted));
    }

    /// Whether a ring has packets, or a fault that [`receive`](Input::receive) is to find.
    fn has_packets(&self) -> bool {
        let mut ends = self.channels().zip(&self.rings.ends);
        ends.any(|(channel, end)| end.available(channel) != Ok(0))
    }
}

/// Adds an eventfd to those whose next ringing is heard. It is not read: another program may have made
/// reads wait.
fn hear(events: &OwnedFd, bell: &Bell) -> rustix::io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(events, bell, epoll::EventData::new_u64(0), flags)
}

impl Input for MemifInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        self.wake();
        let mut received = Received::default();
        let Some(shared) = self.look() else { return Ok(received) };
        if !self.has_packets() {
            let channels = self.share.of(&shared.receive);
            self.rings.ends.iter_mut().zip(channels).for_each(|(end, of)| end.replenish(of));
            return Ok(received);
        }
        let (now, rings) = (now(), self.rings.ends.len());
        self.turn %= rings;
        for _ in 0..rings {
            let intake = &mut self.intake;
            let received = &mut received;
            let mut sink = Sink { batch, drops, received, intake, most, now };
            let end = &mut self.rings.ends[self.turn];
            let outcome = end.receive(self.share.get(&shared.receive, self.turn), &mut sink);
            self.copied += std::mem::take(&mut end.copied);
            if let Err(fault) = outcome {
                self.rings.accuse(self.lease.endpoint(), fault);
                break;
            }
            self.turn = (self.turn + 1) % rings;
            if sink.received.packets >= most || sink.batch.is_full() {
                break;
            }
        }
        Ok(received)
    }

    fn shortfall(&self) -> Shortfall {
        self.intake.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.is_asleep.set(true);
        self.ask_for_interrupts(true);
        // What came before the peer could know.
        if self.has_packets() {
            self.lease.endpoint().news.ring();
        }
        Some(self.events.as_fd())
    }
}
