//! Super-packets of a batch.
//!
//! A super-packet stands for several packets of one TCP or UDP flow that differ in little more than
//! their payloads: those into which the sender's kernel left it to be segmented, or out of which the
//! receiver's has put it together. It is one packet in a large frame, with the segment size in its
//! metadata. It may be in a tunnel: then the segments are those of the packet inside, each behind a copy
//! of all headers.

use super::Batch;
use crate::lanes::Lanes;
use crate::metadata::PortIndex;
use crate::parse::{Decapsulate, parse};
use crate::pool::MAX_SUPER_PACKET_LEN;
use crate::segments::Segments;

impl Batch {
    /// Puts a super-packet of `len` bytes of unspecified content into the lowest empty lane, with
    /// default metadata otherwise; `None` when the batch is full, no frame for it is free, or it is
    /// longer than [`MAX_SUPER_PACKET_LEN`].
    #[inline]
    pub fn push_super(&mut self, len: usize, segment_size: u16) -> Option<usize> {
        let lane = if len <= self.capacity() {
            self.push_blank(len)?
        } else {
            let lane = self.vacant().filter(|_| len <= MAX_SUPER_PACKET_LEN)?;
            let frame = self.pool.take_large()?;
            self.occupy(lane, frame, len);
            lane
        };
        self.meta.segment_size[lane] = segment_size;
        self.meta.inner_len[lane] = 0;
        Some(lane)
    }

    /// The lanes that hold super-packets.
    #[inline]
    pub fn supers(&self) -> Lanes {
        if self.pool.large_frames() == 0 {
            return Lanes::NONE;
        }
        let sizes = self.meta.segment_size.iter().enumerate();
        let supers = sizes.fold(0, |lanes, (at, size)| lanes | u32::from(*size != 0) << at);
        self.occupied.and(Lanes(supers))
    }

    /// The lanes that hold super-packets in tunnels.
    #[inline]
    pub fn tunnelled_supers(&self) -> Lanes {
        let supers = self.supers();
        if supers.is_empty() {
            return Lanes::NONE;
        }
        let inner = self.meta.inner_len.iter().enumerate();
        supers.and(Lanes(inner.fold(0, |lanes, (at, len)| lanes | u32::from(*len != 0) << at)))
    }

    /// Whether `lane` holds a super-packet.
    #[inline]
    pub fn is_super(&self, lane: usize) -> bool {
        self.meta.segment_size[lane] != 0 && self.occupied.contains(lane)
    }

    /// The number of packets that the packets of `lanes` stand for.
    #[inline]
    pub fn count_segments(&self, lanes: Lanes) -> usize {
        let (lanes, supers) = (lanes.and(self.occupied), self.supers().and(lanes));
        let more = |lane| self.segments(lane).map_or(0, |segments| segments.len() - 1);
        lanes.count() + supers.into_iter().map(more).sum::<usize>()
    }

    /// The packets that the super-packet of `lane` stands for. `None` if it is none, or an NF has made
    /// of it what cannot be segmented.
    #[inline]
    pub fn segments(&self, lane: usize) -> Option<Segments> {
        if !self.is_super(lane) {
            return None;
        }
        let (bytes, size) = (self.bytes(lane), self.meta.segment_size[lane]);
        // Whatever its headers were parsed for: the segments have all of them.
        let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
        match self.meta.inner_len[lane] {
            0 => Segments::of(bytes, &headers, size),
            len => Segments::in_tunnel(bytes, &headers, len, size),
        }
    }

    /// The length of the longest packet that the packet of `lane` stands for: its own unless it is a
    /// super-packet.
    #[inline]
    pub fn segment_len(&self, lane: usize) -> usize {
        let first = self.segments(lane).and_then(|segments| segments.next_len());
        first.unwrap_or_else(|| self.packet_len(lane))
    }

    /// The packets on the wire that the packet of `lane` stands for, and their bytes.
    #[inline]
    pub fn on_wire(&self, lane: usize) -> (u64, u64) {
        let bytes = u64::from(self.meta.wire_len[lane]);
        let Some(segments) = self.segments(lane) else { return (1, bytes) };
        let packets = segments.len() as u64;
        (packets, bytes + (packets - 1) * segments.header_len() as u64)
    }

    /// Writes the next of `segments` into the lowest empty lane, with the metadata of the packet in
    /// lane `at` of `of`, from which they are; returns its lane. `None` when the batch is full or no
    /// frame is free, or there is none.
    pub fn push_segment(&mut self, segments: &mut Segments, of: &Self, at: usize) -> Option<usize> {
        let lane = self.push_blank(segments.next_len()?)?;
        segments.write_next(of.bytes(at), self.bytes_mut(lane));
        self.meta.inherit(lane, &of.meta, at);
        self.meta.out_port[lane] = of.meta.out_port[at];
        Some(lane)
    }

    /// Gives large frames of `lanes` back to the pool; returns the other lanes.
    #[inline]
    pub(super) fn release_large(&mut self, lanes: Lanes) -> Lanes {
        if self.pool.large_frames() == 0 {
            return lanes;
        }
        let (pool, frames) = (&self.pool, &mut self.frames);
        let is_large = |lane: &usize| {
            frames[*lane].as_ref().is_some_and(|frame| pool.size_of(frame) > pool.frame_size())
        };
        let large = lanes.into_iter().filter(is_large).fold(Lanes::NONE, |mut large, lane| {
            large.insert(lane);
            large
        });
        if !large.is_empty() {
            pool.give_back(large.into_iter().filter_map(|lane| frames[lane].take()));
        }
        lanes.without(large)
    }
}
