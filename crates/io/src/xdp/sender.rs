//! The half of a queue that sends.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use thalweg_packet::{Batch, DropReason, Frame, HEADROOM};

use super::lent::Lent;
use super::ring::{Consumer, Producer};
use super::settings::{Obtained, XdpMode};
use super::socket::XdpSocket;
use crate::port::{Lost, PATIENCE};

/// The most descriptors of a packet: a kernel's packet has at most 17 pages besides its first bytes.
const MOST_DESCRIPTORS: usize = 17;

/// Sends packets out of their frames, which it returns to the pool once the kernel has sent them.
pub(super) struct Sender {
    socket: Arc<XdpSocket>,
    ring: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    lent: Lent,
    /// The bytes that a descriptor can have.
    chunk: usize,
    obtained: Obtained,
    /// For each slot of the ring, the length of the packet of which it is the last descriptor.
    ends: Vec<u32>,
    /// The position after all descriptors that were put.
    head: u32,
    /// Whether the ring was full for longer than packets wait.
    is_stuck: bool,
    copied: u64,
}

/// What came of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// The kernel has taken packets, or needs no call.
    Done,
    /// It has no room at this time.
    Full,
}

impl Sender {
    pub(super) fn new(
        socket: Arc<XdpSocket>,
        ring: Producer<libc::xdp_desc>,
        completion: Consumer<u64>,
        lent: Lent,
        chunk: u32,
        obtained: Obtained,
    ) -> Self {
        let ends = vec![0; ring.size() as usize];
        let chunk = chunk as usize;
        let (head, is_stuck, copied) = (0, false, 0);
        Self { socket, ring, completion, lent, chunk, obtained, ends, head, is_stuck, copied }
    }

    /// Puts the packet of a lane into the ring: its frame itself, which leaves its lane empty.
    pub(super) fn put_frame(&mut self, batch: &mut Batch, lane: usize) -> Result<(), DropReason> {
        let len = batch.packet_len(lane);
        self.make_room(len)?;
        let packet = batch.take(lane).ok_or(DropReason::Malformed)?;
        let place = packet.offset();
        match self.lend(packet.into_frame(), place, len) {
            Ok(()) => Ok(()),
            // A packet that has become short in a large frame.
            Err(large) => {
                let bytes = &self.lent.pool().bytes(&large)[place..place + len];
                let copied = copy(&self.lent, bytes);
                self.lent.pool().give_back([large]);
                self.put_new(copied?, len)
            }
        }
    }

    /// Puts a copy of a packet into the ring.
    pub(super) fn put_copy(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        self.make_room(bytes.len())?;
        let frame = copy(&self.lent, bytes)?;
        self.put_new(frame, bytes.len())
    }

    fn put_new(&mut self, frame: Frame, len: usize) -> Result<(), DropReason> {
        self.copied += 1;
        self.lend(frame, HEADROOM, len).map_err(|frame| {
            self.lent.pool().give_back([frame]);
            DropReason::OutputFailed
        })
    }

    /// Lends a frame with a packet to the kernel; there must be room.
    #[inline]
    fn lend(&mut self, frame: Frame, place: usize, len: usize) -> Result<(), Frame> {
        let descriptors = len.div_ceil(self.chunk);
        let start = self.lent.lend(frame, descriptors as u8)? + place as u64;
        for at in 0..descriptors {
            let from = at * self.chunk;
            let is_last = at + 1 == descriptors;
            self.ring.put(libc::xdp_desc {
                addr: start + from as u64,
                len: (len - from).min(self.chunk) as u32,
                options: if is_last { 0 } else { libc::XDP_PKT_CONTD },
            });
            let slot = self.head as usize & (self.ends.len() - 1);
            self.ends[slot] = if is_last { len as u32 } else { 0 };
            self.head = self.head.wrapping_add(1);
        }
        Ok(())
    }

    /// Makes room for a packet in the ring; waits for it for up to a second.
    #[inline]
    fn make_room(&mut self, len: usize) -> Result<(), DropReason> {
        let descriptors = len.div_ceil(self.chunk);
        let most = if self.obtained.multi_buffer { MOST_DESCRIPTORS } else { 1 };
        if descriptors > most {
            return Err(DropReason::TooBig);
        }
        if self.ring.has_room(descriptors) {
            return Ok(());
        }
        self.ring.publish();
        let since = Instant::now();
        loop {
            // What keeps it from sending shows when the batch is complete.
            let _ = self.kick();
            self.reap();
            if self.ring.has_room(descriptors) {
                self.is_stuck = false;
                return Ok(());
            }
            self.is_stuck |= since.elapsed() >= PATIENCE;
            if self.is_stuck {
                return Err(DropReason::TransmitQueueFull);
            }
            thread::yield_now();
        }
    }

    /// Has the kernel send what is in the ring. When it copies packets it does so in calls of ours;
    /// then it has taken all of them after this, unless it has had no room for a second.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.ring.publish();
        if self.obtained.mode == XdpMode::ZeroCopy {
            return self.kick().map(drop);
        }
        let (mut since, mut left) = (None, self.ring.waiting());
        while left > 0 {
            let kick = self.kick()?;
            let now = self.ring.waiting();
            if now < left {
                (left, since, self.is_stuck) = (now, None, false);
                continue;
            }
            if kick == Kick::Done {
                // The kernel has refused descriptors, or there is nothing for it to do.
                return Ok(());
            }
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            self.is_stuck |= since.elapsed() >= PATIENCE;
            if self.is_stuck {
                return Ok(());
            }
            self.reap();
            thread::yield_now();
        }
        Ok(())
    }

    /// Calls the kernel to send, if it needs to be called.
    pub(super) fn kick(&mut self) -> io::Result<Kick> {
        if !self.ring.needs_wakeup() && self.obtained.busy_poll_us == 0 {
            return Ok(Kick::Done);
        }
        match self.socket.wake_transmit() {
            Ok(()) => Ok(Kick::Done),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(Kick::Full),
                _ => Err(error),
            },
        }
    }

    /// Whether packets wait in the ring.
    pub(super) fn is_waiting(&mut self) -> bool {
        self.ring.waiting() > 0
    }

    /// The position after all descriptors that the kernel may take.
    #[cfg(any(test, fuzzing))]
    pub(super) fn published(&self) -> u32 {
        self.head
    }

    /// Returns the frames of packets that were sent to the pool.
    #[inline]
    pub(super) fn reap(&mut self) {
        let Self { completion, lent, .. } = self;
        let pool = lent.pool().clone();
        let mut frames = std::iter::from_fn(|| completion.take())
            .filter_map(|address| lent.reclaim(address, 0))
            .map(|(frame, _)| frame)
            .peekable();
        if frames.peek().is_some() {
            pool.give_back(frames);
        }
        self.completion.give_back();
    }

    /// Gives up the packets that the kernel has not taken out of the ring. Each is returned once.
    pub(super) fn give_up(&mut self) -> Lost {
        let mut lost = Lost::default();
        for back in 1..=self.ring.waiting() {
            let slot = self.head.wrapping_sub(back) as usize & (self.ends.len() - 1);
            let len = std::mem::take(&mut self.ends[slot]);
            lost.packets += u64::from(len > 0);
            lost.bytes += u64::from(len);
        }
        lost
    }

    /// The packets that were copied on our side.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Ends it; what it has lent can be given back once the socket is closed.
    pub(super) fn into_lent(mut self) -> Lent {
        self.reap();
        self.lent
    }
}

/// A new frame with a packet at its usual place.
fn copy(lent: &Lent, bytes: &[u8]) -> Result<Frame, DropReason> {
    let pool = lent.pool();
    if bytes.len() > pool.frame_size() - HEADROOM {
        return Err(DropReason::TooBig);
    }
    let mut frame = pool.take().ok_or(DropReason::PoolExhausted)?;
    pool.bytes_mut(&mut frame)[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    Ok(frame)
}
