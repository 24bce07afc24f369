//! The half of a queue that receives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use thalweg_cpu::prefetch;
use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Frame, Nanoseconds};

use super::lent::Lent;
use super::ring::{Consumer, Producer};
use super::settings::Obtained;
use super::socket::{Statistics, XdpSocket};
use crate::intake::count;
use crate::offload::complete_partial;
use crate::port::{Received, Shortfall};

/// Frames that are lent at once: fewer would take the lock of the pool too often.
const REFILL: usize = BATCH;
/// A byte of the second cache line of a packet: its headers may reach into it.
const SECOND_LINE: usize = 63;

/// Receives packets in the frames where the kernel or the driver has put them.
pub(super) struct Receiver {
    socket: Arc<XdpSocket>,
    fill: Producer<u64>,
    ring: Consumer<libc::xdp_desc>,
    lent: Lent,
    completes_checksums: bool,
    /// Frames that came back without a packet, to be lent again.
    spare: Vec<Frame>,
    gathered: Gathered,
    /// Whether the pool had too few frames when some were last lent.
    is_starved: bool,
    counted: Statistics,
    copied: u64,
    shortfall: Shortfall,
    has_warned: bool,
}

/// A packet of several buffers, as far as they have arrived.
enum Gathered {
    None,
    /// It fits in the frame of its first buffer so far.
    Whole {
        frame: Frame,
        place: usize,
        len: usize,
    },
    /// It does not fit, or a buffer of it was refused.
    Lost {
        len: usize,
    },
}

/// The destination of packets.
pub(super) struct Sink<'a> {
    pub(super) batch: &'a mut Batch,
    pub(super) drops: &'a mut DropCounts,
    pub(super) received: &'a mut Received,
    pub(super) now: Nanoseconds,
}

impl Sink<'_> {
    fn lose(&mut self, reason: DropReason, len: usize) {
        self.drops.add(reason, 1);
        count(self.received, len as u32);
    }
}

impl Receiver {
    pub(super) fn new(
        socket: Arc<XdpSocket>,
        fill: Producer<u64>,
        ring: Consumer<libc::xdp_desc>,
        lent: Lent,
        obtained: Obtained,
    ) -> Self {
        Self {
            socket,
            completes_checksums: obtained.completes_checksums,
            fill,
            ring,
            lent,
            spare: Vec::new(),
            gathered: Gathered::None,
            is_starved: false,
            counted: Statistics::default(),
            copied: 0,
            shortfall: Shortfall::default(),
            has_warned: false,
        }
    }

    /// Whether no buffer has arrived.
    #[inline]
    pub(super) fn is_empty(&mut self) -> bool {
        self.ring.is_empty()
    }

    /// Takes in up to `most` packets, as far as the batch has empty lanes; returns whether no more
    /// have arrived.
    #[inline]
    pub(super) fn receive(&mut self, most: usize, sink: &mut Sink<'_>) -> bool {
        let before = sink.batch.lanes();
        let mut is_empty = false;
        while sink.received.packets < most && !sink.batch.is_full() && !is_empty {
            is_empty = !self.take(sink);
        }
        if self.completes_checksums {
            // After all were taken, since their bytes are on their way into the cache.
            let lanes = sink.batch.lanes().without(before);
            sink.batch.each_mut(lanes).for_each(|(_, bytes)| _ = complete_partial(bytes));
        }
        is_empty
    }

    /// Takes in the next buffer that has arrived; returns whether there was one.
    #[inline]
    fn take(&mut self, sink: &mut Sink<'_>) -> bool {
        let Some(descriptor) = self.ring.take() else { return false };
        let len = descriptor.len as usize;
        let continues = descriptor.options & libc::XDP_PKT_CONTD != 0;
        let Some((frame, place)) = self.lent.reclaim(descriptor.addr, descriptor.len) else {
            self.refuse(len, continues, sink);
            return true;
        };
        match (&self.gathered, continues) {
            (Gathered::None, false) => self.deliver(frame, place, len, sink),
            _ => self.gather(frame, place, len, continues, sink),
        }
        true
    }

    /// Puts a packet into the batch, which has an empty lane.
    #[inline]
    fn deliver(&mut self, frame: Frame, place: usize, len: usize, sink: &mut Sink<'_>) {
        let fits = len <= sink.batch.capacity();
        let reason = if fits { DropReason::Malformed } else { DropReason::FrameTooSmall };
        if !fits || len < header_len::ETHERNET {
            if !fits {
                self.shortfall.longest = self.shortfall.longest.max(len);
            }
            sink.lose(reason, len);
            self.spare.push(frame);
            return;
        }
        let packet = self.lent.pool().packet(frame, place, len);
        let mut packet = packet.expect("the frame has the packet");
        packet.timestamp = sink.now;
        let lane = sink.batch.push(packet).expect("the batch has an empty lane");
        // Another processor has written it.
        let bytes = sink.batch.bytes(lane);
        prefetch::read(bytes, 0);
        prefetch::read(bytes, SECOND_LINE);
        count(sink.received, len as u32);
    }

    /// Adds a buffer to a packet of several, which is copied to the end of the first one.
    fn gather(
        &mut self,
        frame: Frame,
        place: usize,
        len: usize,
        continues: bool,
        sink: &mut Sink<'_>,
    ) {
        let pool = self.lent.pool();
        self.gathered = match std::mem::replace(&mut self.gathered, Gathered::None) {
            Gathered::None => Gathered::Whole { frame, place, len },
            Gathered::Whole { frame: mut first, place: start, len: before } => {
                let end = start + before;
                let room = pool.size_of(&first) - end;
                if len <= room {
                    let bytes = &pool.bytes(&frame)[place..place + len];
                    pool.bytes_mut(&mut first)[end..end + len].copy_from_slice(bytes);
                    self.spare.push(frame);
                    self.copied += u64::from(!continues);
                    Gathered::Whole { frame: first, place: start, len: before + len }
                } else {
                    self.spare.extend([first, frame]);
                    Gathered::Lost { len: before + len }
                }
            }
            Gathered::Lost { len: before } => {
                self.spare.push(frame);
                Gathered::Lost { len: before + len }
            }
        };
        if !continues {
            self.end_gathered(sink);
        }
    }

    fn end_gathered(&mut self, sink: &mut Sink<'_>) {
        match std::mem::replace(&mut self.gathered, Gathered::None) {
            Gathered::None => {}
            Gathered::Whole { frame, place, len } => self.deliver(frame, place, len, sink),
            Gathered::Lost { len } => {
                self.shortfall.longest = self.shortfall.longest.max(len);
                sink.lose(DropReason::FrameTooSmall, len);
            }
        }
    }

    /// Counts a descriptor that names no bytes of a lent frame.
    fn refuse(&mut self, len: usize, continues: bool, sink: &mut Sink<'_>) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("the receive ring of an AF_XDP socket names frames that it does not have");
        }
        match std::mem::replace(&mut self.gathered, Gathered::None) {
            Gathered::Whole { frame, len: before, .. } => {
                self.spare.push(frame);
                self.gathered = Gathered::Lost { len: before };
            }
            Gathered::None if !continues => sink.lose(DropReason::Malformed, len),
            Gathered::None => self.gathered = Gathered::Lost { len },
            lost @ Gathered::Lost { .. } => self.gathered = lost,
        }
        if !continues {
            self.end_gathered(sink);
        }
    }

    /// Ends a turn: returns slots to the kernel, and lends it frames in place of those that came back.
    #[inline]
    pub(super) fn refill(&mut self) {
        self.ring.give_back();
        let wanted = (self.fill.size() as usize).saturating_sub(self.lent.count());
        // Before the kernel's index, which it changes for each packet.
        if wanted < REFILL && !self.is_starved {
            return;
        }
        let wanted = wanted.min(self.fill.room() as usize);
        if wanted < REFILL && !self.is_starved {
            return;
        }
        let Self { lent, fill, spare, .. } = self;
        let pool = lent.pool().clone();
        let kept = spare.len().saturating_sub(wanted);
        pool.give_back(spare.drain(..kept));
        let from_pool = wanted - spare.len();
        let mut lend = |frame| match lent.lend(frame, 1) {
            Ok(address) => fill.put(address),
            Err(large) => pool.give_back([large]),
        };
        spare.drain(..).for_each(&mut lend);
        let mut frames = Vec::new();
        std::mem::swap(&mut frames, spare);
        let taken = pool.take_many(from_pool, |frame| frames.push(frame));
        frames.drain(..).for_each(lend);
        *spare = frames;
        self.is_starved = taken < from_pool;
        self.fill.publish();
        if self.fill.needs_wakeup() {
            let _ = self.socket.wake_receive();
        }
    }

    /// Has the driver look for packets.
    pub(super) fn wake(&self) -> io::Result<()> {
        self.socket.wake_receive()
    }

    /// Counts the packets that were lost since the last call. The kernel counts one that found the fill
    /// ring empty twice.
    pub(super) fn count_lost(&mut self, drops: &mut DropCounts, received: &mut Received) {
        let (now, before) = (self.socket.statistics(), self.counted);
        self.counted = now;
        let since = |of: fn(&Statistics) -> u64| of(&now).saturating_sub(of(&before));
        let (full, dropped) = (since(|s| s.receive_full), since(|s| s.dropped));
        let unfilled = dropped.min(since(|s| s.fill_empty));
        let starved = if self.is_starved { unfilled } else { 0 };
        for (reason, packets) in [
            (DropReason::ReceiveRingFull, full + unfilled - starved),
            (DropReason::PoolExhausted, starved),
            (DropReason::FrameTooSmall, dropped - unfilled),
        ] {
            drops.add(reason, packets);
            received.packets += packets as usize;
        }
        if since(|s| s.invalid_fill) > 0 && !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("the kernel refuses frames of the fill ring of an AF_XDP socket");
        }
    }

    /// The packets whose bytes were copied on our side: those of several buffers.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    pub(super) fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        (*self.socket).as_fd()
    }

    /// Ends it; what it has lent can be given back once the socket is closed.
    pub(super) fn into_lent(mut self) -> Lent {
        if let Gathered::Whole { frame, .. } = std::mem::replace(&mut self.gathered, Gathered::None)
        {
            self.spare.push(frame);
        }
        self.lent.pool().give_back(self.spare.drain(..));
        self.lent
    }
}
