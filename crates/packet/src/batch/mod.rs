//! Batches of packets in structure-of-arrays form.

mod parsed;
mod shape;
mod supers;

use std::sync::Arc;

use crate::headers::Headers;
use crate::lanes::{BATCH, Lanes};
use crate::metadata::{Cut, Metadata, Packet, PacketType, PortIndex};
use crate::pool::{Frame, HEADROOM, Pool};
use crate::time::Nanoseconds;
use crate::transposed::TransposedKeys;
use thalweg_cpu::{Avx512, Isa};

/// The longest packet a frame of the largest size holds: 10 KiB.
pub const MAX_PACKET_LEN: usize = 10 * 1024;

/// Up to [`BATCH`] packets in structure-of-arrays form: the unit that every stage
/// accepts and emits.
///
/// A lane is occupied or empty. Parsed headers and keys stand beside the
/// packets and describe the bytes as of the last [`parse`](Self::parse). An NF
/// that changes headers marks the packet ([`mark_changed`](Self::mark_changed)); it
/// is parsed again only where its headers are needed.
///
/// Dropping a batch gives its frames back.
#[derive(Debug)]
pub struct Batch {
    pool: Arc<Pool>,
    occupied: Lanes,
    frames: [Option<Frame>; BATCH],
    offsets: [u16; BATCH],
    lens: [u16; BATCH],
    /// Metadata by lane.
    pub meta: Box<Metadata>,
    headers: [Headers; BATCH],
    keys: Box<TransposedKeys>,
    /// Lanes whose headers have changed since they were parsed.
    changed: Lanes,
    /// Lanes whose last parse found plain packets.
    plain: Lanes,
    #[cfg(target_arch = "x86_64")]
    quick: Option<Avx512>,
    /// Frames taken from the pool ahead of their packets.
    reserve: Vec<Frame>,
    /// Whether released frames go into the reserve.
    recycles: bool,
}

impl Batch {
    /// An empty batch for packets of `pool`.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self::with_isa(pool, Isa::active())
    }

    /// An empty batch that parses with the instructions of `isa`.
    ///
    /// # Panics
    /// When the processor lacks them.
    pub fn with_isa(pool: Arc<Pool>, isa: Isa) -> Self {
        assert!(isa.is_available(), "the processor lacks {isa}");
        Self {
            pool,
            occupied: Lanes::NONE,
            frames: [const { None }; BATCH],
            offsets: [0; BATCH],
            lens: [0; BATCH],
            meta: Box::default(),
            headers: [Headers::default(); BATCH],
            keys: Box::default(),
            changed: Lanes::NONE,
            plain: Lanes::NONE,
            #[cfg(target_arch = "x86_64")]
            quick: isa.avx512(),
            reserve: Vec::with_capacity(BATCH),
            recycles: false,
        }
    }

    /// The pool the packets live in.
    #[inline]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The occupied lanes.
    #[inline]
    pub fn lanes(&self) -> Lanes {
        self.occupied
    }

    /// How many packets the batch holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.occupied.count()
    }

    /// Whether the batch holds no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.occupied.is_empty()
    }

    /// Whether every lane is occupied.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.occupied == Lanes::ALL
    }

    /// The lowest empty lane, or `None` when the batch is full.
    #[inline]
    pub fn vacant(&self) -> Option<usize> {
        let lane = self.occupied.0.trailing_ones() as usize;
        (lane < BATCH).then_some(lane)
    }

    /// Puts `packet` into the lowest empty lane and returns that lane.
    ///
    /// # Errors
    /// Hands the packet back when the batch is full.
    ///
    /// # Panics
    /// When the packet is of another pool.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<usize, Packet> {
        let Some(lane) = self.vacant() else {
            return Err(packet);
        };
        self.pool.assert_own(&packet.frame);
        self.offsets[lane] = packet.offset;
        self.lens[lane] = packet.len;
        self.meta.wire_len[lane] = packet.wire_len;
        self.meta.timestamp[lane] = packet.timestamp;
        self.meta.misdated[lane] = packet.misdated;
        self.meta.received_at[lane] = packet.received_at;
        self.meta.in_port[lane] = packet.in_port;
        self.meta.out_port[lane] = packet.out_port;
        self.meta.packet_type[lane] = packet.packet_type;
        self.meta.cut[lane] = packet.cut;
        self.meta.segment_size[lane] = packet.segment_size;
        self.meta.inner_len[lane] = packet.inner_len;
        self.frames[lane] = Some(packet.frame);
        self.occupied.insert(lane);
        Ok(lane)
    }

    /// Takes the packet out of `lane`, or `None` when the lane is empty.
    #[inline]
    pub fn take(&mut self, lane: usize) -> Option<Packet> {
        let frame = self.frames.get_mut(lane)?.take()?;
        self.occupied.remove(lane);
        self.changed.remove(lane);
        Some(Packet {
            frame,
            offset: self.offsets[lane],
            len: self.lens[lane],
            wire_len: self.meta.wire_len[lane],
            timestamp: self.meta.timestamp[lane],
            misdated: self.meta.misdated[lane],
            received_at: self.meta.received_at[lane],
            in_port: self.meta.in_port[lane],
            out_port: self.meta.out_port[lane],
            packet_type: self.meta.packet_type[lane],
            cut: self.meta.cut[lane],
            segment_size: self.meta.segment_size[lane],
            inner_len: self.meta.inner_len[lane],
        })
    }

    /// Copies `bytes` into a fresh frame in the lowest empty lane, with default
    /// metadata, and returns the lane. `None` when the batch is full, the pool
    /// is exhausted, or the frame is too small.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        let lane = self.push_blank(bytes.len())?;
        copy(bytes, self.bytes_mut(lane));
        Some(lane)
    }

    /// Copies `bytes` over the end of the packet in `lane`.
    ///
    /// # Panics
    /// When the lane is empty, or its packet is shorter.
    #[inline]
    pub fn write_end(&mut self, lane: usize, bytes: &[u8]) {
        let packet = self.bytes_mut(lane);
        let start = packet.len() - bytes.len();
        copy(bytes, &mut packet[start..]);
    }

    /// Copies packets, given as bytes, length on the wire and time, into fresh
    /// frames in empty lanes, with default metadata otherwise. Stops before a packet
    /// for which [`push_bytes`](Self::push_bytes) would return `None`; returns how
    /// many were taken.
    #[inline]
    pub fn push_copies<'a>(
        &mut self,
        packets: impl Iterator<Item = (&'a [u8], u32, Nanoseconds)>,
    ) -> usize {
        if !self.is_empty() {
            return packets.map_while(|packet| self.push_copy(packet)).count();
        }
        self.reset_lanes();
        let capacity = self.capacity();
        // In local variables, so that no packet waits for what the one before it
        // wrote to memory.
        let (mut reserve, mut taken) = (std::mem::take(&mut self.reserve), 0);
        for (bytes, wire_len, timestamp) in packets.take(BATCH) {
            if bytes.len() > capacity {
                break;
            }
            let Some(mut frame) = reserve.pop().or_else(|| self.pool.take()) else { break };
            copy(bytes, &mut self.pool.bytes_mut(&mut frame)[HEADROOM..HEADROOM + bytes.len()]);
            self.frames[taken] = Some(frame);
            self.offsets[taken] = HEADROOM as u16;
            self.lens[taken] = bytes.len() as u16;
            self.meta.wire_len[taken] = wire_len;
            self.meta.timestamp[taken] = timestamp;
            taken += 1;
        }
        self.reserve = reserve;
        self.occupied = Lanes::first(taken);
        taken
    }

    /// Copies one packet of [`push_copies`](Self::push_copies).
    fn push_copy(
        &mut self,
        (bytes, wire_len, timestamp): (&[u8], u32, Nanoseconds),
    ) -> Option<usize> {
        let lane = self.push_bytes(bytes)?;
        self.meta.wire_len[lane] = wire_len;
        self.meta.timestamp[lane] = timestamp;
        Some(lane)
    }

    /// Gives an empty lane the defaults of a packet.
    #[inline]
    fn reset_lane(&mut self, lane: usize) {
        self.meta.timestamp[lane] = Nanoseconds::default();
        self.meta.misdated[lane] = 0;
        self.meta.received_at[lane] = 0;
        self.meta.in_port[lane] = PortIndex::NONE;
        self.meta.out_port[lane] = PortIndex::NONE;
        self.meta.packet_type[lane] = PacketType::default();
        self.meta.cut[lane] = Cut::default();
        self.meta.segment_size[lane] = 0;
        self.headers[lane] = Headers::default();
    }

    /// The same for all lanes.
    fn reset_lanes(&mut self) {
        self.meta.timestamp.fill(Nanoseconds::default());
        self.meta.misdated.fill(0);
        self.meta.received_at.fill(0);
        self.meta.in_port.fill(PortIndex::NONE);
        self.meta.out_port.fill(PortIndex::NONE);
        self.meta.packet_type.fill(PacketType::default());
        self.meta.cut.fill(Cut::default());
        self.meta.segment_size.fill(0);
        self.headers.fill(Headers::default());
    }

    /// Like [`push_bytes`](Self::push_bytes), with `len` bytes of unspecified
    /// content for the caller to write (a receive straight into the frame).
    #[inline]
    pub fn push_blank(&mut self, len: usize) -> Option<usize> {
        let lane = self.vacant()?;
        if len > self.capacity() {
            return None;
        }
        let frame = self.reserve.pop().or_else(|| self.pool.take())?;
        self.occupy(lane, frame, len);
        Some(lane)
    }

    /// Puts a packet of `len` bytes into an empty lane.
    #[inline]
    fn occupy(&mut self, lane: usize, frame: Frame, len: usize) {
        self.offsets[lane] = HEADROOM as u16;
        self.frames[lane] = Some(frame);
        self.lens[lane] = len as u16;
        self.meta.wire_len[lane] = len as u32;
        self.reset_lane(lane);
        self.occupied.insert(lane);
    }

    /// The longest packet [`push_bytes`](Self::push_bytes) takes, in bytes. Only a super-packet may be
    /// longer.
    #[inline]
    pub fn capacity(&self) -> usize {
        (self.pool.frame_size() - HEADROOM).min(MAX_PACKET_LEN)
    }

    /// Gives the frames of `lanes` back to the pool; empty lanes are skipped.
    #[inline]
    pub fn release(&mut self, lanes: Lanes) {
        let lanes = lanes.and(self.occupied);
        if lanes.is_empty() {
            return;
        }
        self.occupied = self.occupied.without(lanes);
        self.changed = self.changed.without(lanes);
        let lanes = self.release_large(lanes);
        let frames = &mut self.frames;
        let released = lanes.into_iter().filter_map(|lane| frames[lane].take());
        if self.recycles && self.reserve.len() + lanes.count() <= BATCH {
            self.reserve.extend(released);
        } else {
            self.pool.give_back(released);
        }
    }

    /// Takes the frame of a packet, whose lane stays occupied, and where the packet is in it: for a
    /// device that works on the bytes, which nothing else can reach meanwhile. `None` when the lane has
    /// no frame.
    #[inline]
    pub fn lend(&mut self, lane: usize) -> Option<(Frame, std::ops::Range<usize>)> {
        let (offset, len) = (self.offsets[lane] as usize, self.lens[lane] as usize);
        Some((self.frames.get_mut(lane)?.take()?, offset..offset + len))
    }

    /// Whether all packets of `lanes` have their frames: none is [lent](Self::lend). Others cannot be read.
    pub fn has_frames(&self, lanes: Lanes) -> bool {
        lanes.into_iter().all(|lane| self.frames.get(lane).is_some_and(Option::is_some))
    }

    /// Puts a frame that was [lent](Self::lend) back into its lane. Without it, the lane is
    /// [released](Self::release) as one whose frame is lost.
    ///
    /// # Panics
    /// When the lane has a frame or no packet, or the frame is of another pool.
    #[inline]
    pub fn restore(&mut self, lane: usize, frame: Frame) {
        self.pool.assert_own(&frame);
        assert!(self.occupied.contains(lane) && self.frames[lane].is_none(), "a frame was lent");
        self.frames[lane] = Some(frame);
    }

    /// The packet's bytes, from the Ethernet header on.
    ///
    /// # Panics
    /// When the lane is empty.
    #[inline]
    pub fn bytes(&self, lane: usize) -> &[u8] {
        let (offset, len) = (self.offsets[lane] as usize, self.lens[lane] as usize);
        let frame = self.frames[lane].as_ref().expect("the lane holds a packet");
        &self.pool.bytes(frame)[offset..offset + len]
    }

    /// The packet's bytes, to be changed in place.
    ///
    /// # Panics
    /// When the lane is empty.
    #[inline]
    pub fn bytes_mut(&mut self, lane: usize) -> &mut [u8] {
        let (offset, len) = (self.offsets[lane] as usize, self.lens[lane] as usize);
        let frame = self.frames[lane].as_mut().expect("the lane holds a packet");
        &mut self.pool.bytes_mut(frame)[offset..offset + len]
    }

    /// The bytes of the packets of `lanes`, with their lanes in order, to be changed in place side
    /// by side; empty lanes are skipped.
    #[inline]
    pub fn each_mut(&mut self, lanes: Lanes) -> impl Iterator<Item = (usize, &mut [u8])> {
        let (pool, offsets, lens) = (&*self.pool, &self.offsets, &self.lens);
        let chosen = self.frames.iter_mut().enumerate().filter(move |(l, _)| lanes.contains(*l));
        chosen.filter_map(move |(lane, frame)| {
            let (offset, len) = (offsets[lane] as usize, lens[lane] as usize);
            Some((lane, &mut pool.bytes_mut(frame.as_mut()?)[offset..offset + len]))
        })
    }

    /// Takes frames for up to `packets` packets from the pool at once, so that
    /// the pushes that follow need not take them one by one.
    /// [`unreserve`](Self::unreserve) gives back the frames that they leave.
    pub fn reserve(&mut self, packets: usize) {
        let room = BATCH - self.len();
        let want = packets.min(room).saturating_sub(self.reserve.len());
        if want > 0 {
            let reserve = &mut self.reserve;
            self.pool.take_many(want, |frame| reserve.push(frame));
        }
    }

    /// Whether a frame is [reserved](Self::reserve).
    pub fn has_reserve(&self) -> bool {
        !self.reserve.is_empty()
    }

    /// Keeps released frames in the reserve, up to a batch of them, instead of giving
    /// them back to the pool: for a batch that is filled repeatedly.
    pub fn recycle(&mut self) {
        self.recycles = true;
    }

    /// Gives frames back to the pool again, those that it keeps included.
    pub fn stop_recycling(&mut self) {
        self.recycles = false;
        self.unreserve();
    }

    /// Gives back the reserved frames that no packet took; a batch that recycles
    /// keeps them.
    pub fn unreserve(&mut self) {
        if !self.recycles && !self.reserve.is_empty() {
            self.pool.give_back(self.reserve.drain(..));
        }
    }
}

/// Copies a packet. Small ones are copied in two pieces that overlap: two moves of
/// a vector, where `memcpy` would first find out the length.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    const PIECE: usize = 32;
    match (from.first_chunk::<PIECE>(), from.last_chunk::<PIECE>()) {
        (Some(first), Some(last)) if from.len() <= 2 * PIECE && from.len() == to.len() => {
            let behind = to.len() - PIECE;
            to[..PIECE].copy_from_slice(first);
            to[behind..].copy_from_slice(last);
        }
        _ => to.copy_from_slice(from),
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.recycles = false;
        self.release(Lanes::ALL);
        self.unreserve();
    }
}

#[cfg(test)]
mod tests;
