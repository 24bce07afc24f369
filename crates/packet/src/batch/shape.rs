//! The length of a batch's packets: room before and after them, and growing into it.

use super::Batch;
use crate::lanes::BATCH;

impl Batch {
    /// The packet's length in bytes; 0 for an empty lane.
    #[inline]
    pub fn packet_len(&self, lane: usize) -> usize {
        if self.occupied.contains(lane) { self.lens[lane] as usize } else { 0 }
    }

    /// The packets' lengths in bytes; those of empty lanes are unspecified.
    #[inline]
    pub fn lens(&self) -> &[u16; BATCH] {
        &self.lens
    }

    /// Bytes that can be put before the packet.
    #[inline]
    pub fn headroom(&self, lane: usize) -> usize {
        self.offsets[lane] as usize
    }

    /// Bytes that can be put after the packet.
    #[inline]
    pub fn tailroom(&self, lane: usize) -> usize {
        let size = self.frames[lane].as_ref().map_or(0, |frame| self.pool.size_of(frame));
        size.saturating_sub(self.offsets[lane] as usize + self.lens[lane] as usize)
    }

    /// Makes the packet longer by `n` bytes at its front, of unspecified
    /// content; returns `false` and changes nothing when the headroom is too small.
    #[must_use]
    #[inline]
    pub fn grow_front(&mut self, lane: usize, n: usize) -> bool {
        let fits = self.occupied.contains(lane) && n <= self.headroom(lane);
        if fits {
            self.offsets[lane] -= n as u16;
            self.lens[lane] += n as u16;
            self.lengthen(lane, n);
        }
        fits
    }

    /// Makes the packet longer by `n` bytes at its end, of unspecified content;
    /// returns `false` and changes nothing when the tailroom is too small.
    #[must_use]
    #[inline]
    pub fn grow_back(&mut self, lane: usize, n: usize) -> bool {
        let fits = self.occupied.contains(lane) && n <= self.tailroom(lane);
        if fits {
            self.lens[lane] += n as u16;
            self.lengthen(lane, n);
        }
        fits
    }

    /// Makes the packet begin `front` bytes earlier and `len` bytes long; new bytes
    /// have unspecified content. Returns `None` and changes nothing when the frame lacks the room.
    #[inline]
    pub fn reshape(&mut self, lane: usize, front: usize, len: usize) -> Option<&mut [u8]> {
        self.reshape_each(std::iter::once((lane, front, len))).next()?
    }

    /// [`reshape`](Self::reshape) of several packets at once: lane, front and length of each. The
    /// lanes must ascend; the result of one that does not is `None`.
    #[inline]
    pub fn reshape_each<'b>(
        &'b mut self,
        shapes: impl Iterator<Item = (usize, usize, usize)> + 'b,
    ) -> impl Iterator<Item = Option<&'b mut [u8]>> + 'b {
        let (pool, offsets, lens) = (&*self.pool, &mut self.offsets, &mut self.lens);
        let wire_lens = &mut self.meta.wire_len;
        let (mut frames, mut next) = (self.frames.iter_mut(), 0);
        shapes.map(move |(lane, front, len)| {
            let frame = frames.nth(lane.checked_sub(next)?)?;
            next = lane + 1;
            let frame = frame.as_mut()?;
            let offset = (offsets[lane] as usize).checked_sub(front)?;
            let bytes = pool.bytes_mut(frame).get_mut(offset..offset.checked_add(len)?)?;
            let missing = wire_lens[lane].saturating_sub(lens[lane].into());
            wire_lens[lane] = missing.saturating_add(len as u32);
            (offsets[lane], lens[lane]) = (offset as u16, len as u16);
            Some(bytes)
        })
    }

    // A packet truncated by the capture stays truncated by as many bytes.
    fn lengthen(&mut self, lane: usize, n: usize) {
        self.meta.wire_len[lane] = self.meta.wire_len[lane].saturating_add(n as u32);
    }

    fn shorten(&mut self, lane: usize, n: u16) {
        self.lens[lane] -= n;
        self.meta.wire_len[lane] = self.meta.wire_len[lane].saturating_sub(n.into());
    }

    /// Removes `n` bytes (at most all) from the packet's front.
    #[inline]
    pub fn shrink_front(&mut self, lane: usize, n: usize) {
        let n = n.min(self.lens[lane] as usize) as u16;
        self.offsets[lane] += n;
        self.shorten(lane, n);
    }

    /// Truncates the packet to at most `len` bytes.
    #[inline]
    pub fn truncate(&mut self, lane: usize, len: usize) {
        let cut = (self.lens[lane] as usize).saturating_sub(len);
        self.shorten(lane, cut as u16);
    }
}
