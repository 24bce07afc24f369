//! The pool of frames.
//!
//! A [`Frame`] is the right to one frame's bytes: the pool hands out each index
//! once, `Frame` cannot be copied, and it remembers its pool. Everything that
//! reads or writes packet bytes holds the `Frame`, so two references to the
//! same bytes cannot exist.
//!
//! `unsafe` here: slices are made from the region's raw pointer.
#![allow(unsafe_code)]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::PacketMemory;
use crate::metadata::Packet;

/// The default size of a frame, in bytes.
pub const DEFAULT_FRAME_SIZE: usize = 2048;

/// The largest frame: a jumbo packet of 10 KiB with its headroom and tailroom.
pub const MAX_FRAME_SIZE: usize = 16 * 1024;

/// Bytes of a large frame, for a super-packet: an odd number of cache lines, and less than 64 KiB, so
/// that offsets and lengths in it have 16 bits.
pub const LARGE_FRAME_SIZE: usize = 1023 * 64;

/// The longest super-packet, in bytes. Linux makes them 300 bytes shorter than 64 KiB at least, unless
/// it has put them together from received ones.
pub const MAX_SUPER_PACKET_LEN: usize = LARGE_FRAME_SIZE - HEADROOM;

/// Bytes left free before a received packet, for headers that NFs add: two cache
/// lines, and 2 bytes more, so that the IP header after an Ethernet header begins
/// on a multiple of 4 and both lie in one cache line.
pub const HEADROOM: usize = 130;

/// The right to use one frame of one [`Pool`].
///
/// Dropping it without giving it back to its pool leaks the frame until the
/// pool is dropped; [`Pool::in_use`] shows such leaks.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "dropping a frame leaks it until its pool is dropped"]
pub struct Frame {
    index: u32,
    pool: NonZeroU32,
}

impl Frame {
    /// The frame's index in its pool: what NIC and GPU queues carry.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// Why a pool could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The frame size is out of range or not a multiple of a cache line.
    #[error("frame size {0} is not a multiple of 64 between 512 and {MAX_FRAME_SIZE}")]
    FrameSize(usize),
    /// The region does not hold a single frame beside the large ones, or more than 2^32.
    #[error("a region of {len} bytes holds no frame of {frame_size} bytes, or more than 2^32")]
    Region {
        /// The region's size in bytes.
        len: usize,
        /// The requested frame size in bytes.
        frame_size: usize,
    },
    /// The system has no memory for the region.
    #[error("cannot map {len} bytes of packet memory: {source}")]
    Map {
        /// The requested size in bytes.
        len: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Equal frames cut from one [`PacketMemory`], shared by all workers; and behind them, if requested,
/// large ones for super-packets.
///
/// Frames are taken and given back up to a batch at a time, so the lock inside
/// is taken once a batch.
#[derive(Debug)]
pub struct Pool {
    memory: PacketMemory,
    frame_size: usize,
    /// Bytes from one frame to the next.
    stride: usize,
    frames: u32,
    /// The large frames, whose indexes follow those of the others.
    large: u32,
    id: NonZeroU32,
    free: Mutex<Vec<u32>>,
    free_large: Mutex<Vec<u32>>,
    /// Of `frames`, those that never come back.
    written_off: AtomicU32,
}

impl Pool {
    /// Bytes of memory for `frames` frames of `frame_size` bytes.
    pub fn region_len(frames: usize, frame_size: usize) -> usize {
        frames.saturating_mul(stride(frame_size))
    }

    /// The same with `large` large frames.
    pub fn region_len_with(frames: usize, frame_size: usize, large: usize) -> usize {
        let large = large.saturating_mul(stride(LARGE_FRAME_SIZE));
        Self::region_len(frames, frame_size).saturating_add(large)
    }

    /// Cuts `memory` into frames of `frame_size` bytes, as many as it holds
    /// ([`region_len`](Self::region_len) returns the length it needs).
    ///
    /// # Errors
    /// [`PoolError`] when the sizes do not fit together.
    pub fn new(memory: PacketMemory, frame_size: usize) -> Result<Self, PoolError> {
        Self::with_large(memory, frame_size, 0)
    }

    /// Cuts `memory` into `large` frames of [`LARGE_FRAME_SIZE`] bytes and as many of `frame_size`
    /// bytes as the rest holds ([`region_len_with`](Self::region_len_with) returns the length it
    /// needs).
    ///
    /// # Errors
    /// [`PoolError`] when the sizes do not fit together.
    pub fn with_large(
        memory: PacketMemory,
        frame_size: usize,
        large: usize,
    ) -> Result<Self, PoolError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        if !(512..=MAX_FRAME_SIZE).contains(&frame_size) || !frame_size.is_multiple_of(64) {
            return Err(PoolError::FrameSize(frame_size));
        }
        let region = || PoolError::Region { len: memory.len(), frame_size };
        let stride = stride(frame_size);
        let of_large = Self::region_len_with(0, frame_size, large);
        let frames = memory.len().saturating_sub(of_large) / stride;
        let all = u32::try_from(frames.saturating_add(large)).map_err(|_| region())?;
        if frames == 0 {
            return Err(region());
        }
        let frames = frames as u32;
        // Low indices come out first, so that a lightly loaded pool stays in cache.
        let free = Mutex::new((0..frames).rev().collect());
        let free_large = Mutex::new((frames..all).rev().collect());
        // After four thousand million pools numbers repeat; 0 never occurs.
        let id =
            NonZeroU32::new(NEXT_ID.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU32::MAX);
        let large = all - frames;
        let written_off = AtomicU32::new(0);
        Ok(Self { memory, frame_size, stride, frames, large, id, free, free_large, written_off })
    }

    /// A pool of `frames` frames over fresh ordinary pages.
    ///
    /// # Errors
    /// [`PoolError`] when the sizes are out of range or memory is short.
    pub fn anonymous(frames: usize, frame_size: usize) -> Result<Self, PoolError> {
        Self::anonymous_with(frames, frame_size, 0)
    }

    /// The same with `large` large frames.
    ///
    /// # Errors
    /// As [`anonymous`](Self::anonymous).
    pub fn anonymous_with(
        frames: usize,
        frame_size: usize,
        large: usize,
    ) -> Result<Self, PoolError> {
        let len = Self::region_len_with(frames, frame_size, large);
        if len == 0 {
            return Err(PoolError::Region { len, frame_size });
        }
        let memory =
            PacketMemory::anonymous(len).map_err(|source| PoolError::Map { len, source })?;
        Self::with_large(memory, frame_size, large)
    }

    /// The memory of the pool's frames.
    pub fn memory(&self) -> &PacketMemory {
        &self.memory
    }

    /// Bytes of one frame that is not large.
    #[inline]
    pub fn frame_size(&self) -> usize {
        self.frame_size
    }

    /// Bytes of this frame.
    #[inline]
    pub fn size_of(&self, frame: &Frame) -> usize {
        if self.is_large(frame.index) { LARGE_FRAME_SIZE } else { self.frame_size }
    }

    /// How many frames the pool has, without the large ones.
    pub fn frames(&self) -> usize {
        self.frames as usize
    }

    /// Records that one frame, not a large one, never comes back: it was dropped because something outside
    /// of the program may still write to it.
    pub fn write_off(&self) {
        self.written_off.fetch_add(1, Ordering::Relaxed);
    }

    /// How many frames the pool has that were not [written off](Self::write_off), without the large ones.
    #[inline]
    pub fn frames_left(&self) -> usize {
        (self.frames - self.written_off.load(Ordering::Relaxed).min(self.frames)) as usize
    }

    /// How many large frames the pool has: super-packets travel whole if there are some.
    #[inline]
    pub fn large_frames(&self) -> usize {
        self.large as usize
    }

    /// How many frames are taken at this moment, large ones included; 0 after a run without leaks.
    pub fn in_use(&self) -> usize {
        self.frames() - self.free().len() + self.large_frames() - lock(&self.free_large).len()
    }

    /// How many frames that are not large are free at this moment.
    pub fn available(&self) -> usize {
        self.free().len()
    }

    /// Takes one frame, or returns `None` when all are taken.
    pub fn take(&self) -> Option<Frame> {
        let index = self.free().pop()?;
        Some(Frame { index, pool: self.id })
    }

    /// Takes one large frame, or returns `None` when all are taken.
    pub fn take_large(&self) -> Option<Frame> {
        let index = lock(&self.free_large).pop()?;
        Some(Frame { index, pool: self.id })
    }

    /// Takes up to `want` frames and hands each to `each`; returns how many
    /// there were.
    pub fn take_many(&self, want: usize, mut each: impl FnMut(Frame)) -> usize {
        let mut free = self.free();
        let take = want.min(free.len());
        let left = free.len() - take;
        free.drain(left..).rev().for_each(|index| each(Frame { index, pool: self.id }));
        take
    }

    /// Gives frames back.
    ///
    /// # Panics
    /// When a frame is of another pool: that is a bug of the caller that would
    /// hand the same bytes out twice.
    pub fn give_back(&self, frames: impl IntoIterator<Item = Frame>) {
        let own = |frame: Frame| {
            self.assert_own(&frame);
            frame.index
        };
        let indexes = frames.into_iter().map(own);
        if self.large == 0 {
            self.free().extend(indexes);
            return;
        }
        let mut free = self.free();
        for index in indexes {
            if self.is_large(index) {
                lock(&self.free_large).push(index);
            } else {
                free.push(index);
            }
        }
    }

    /// Reads a frame's bytes.
    ///
    /// # Panics
    /// When `frame` is of another pool.
    #[inline]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        self.assert_own(frame);
        // SAFETY: the slice lies in the region, as `start` says; `&Frame` excludes a `&mut` slice
        // of the same frame.
        unsafe { std::slice::from_raw_parts(self.start(frame), self.size_of(frame)) }
    }

    /// Reads and writes a frame's bytes.
    ///
    /// # Panics
    /// When `frame` is of another pool.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        self.assert_own(frame);
        // SAFETY: as in `bytes`; `&mut Frame` excludes any other slice of it,
        // because no two `Frame`s of a pool have the same index.
        unsafe { std::slice::from_raw_parts_mut(self.start(frame), self.size_of(frame)) }
    }

    /// Where a frame begins, in bytes from the start of the pool's memory: what a device that
    /// addresses that memory is given.
    ///
    /// # Panics
    /// When `frame` is of another pool.
    #[inline]
    pub fn offset_of(&self, frame: &Frame) -> usize {
        self.assert_own(frame);
        self.offset(frame.index)
    }

    /// The frame that holds the byte at `offset` of the pool's memory, as its index and the place in
    /// it; `None` if no frame, or a large one, holds it. The inverse of
    /// [`offset_of`](Self::offset_of), for offsets that a device reports.
    #[inline]
    pub fn locate(&self, offset: usize) -> Option<(u32, usize)> {
        let (index, place) = (offset / self.stride, offset % self.stride);
        let is_there = index < self.frames as usize && place < self.frame_size;
        is_there.then_some((index as u32, place))
    }

    /// A packet of `len` bytes at `offset` of a frame, with default metadata: for frames that a
    /// device or the kernel has filled.
    ///
    /// # Errors
    /// Hands the frame back if it has no such bytes.
    ///
    /// # Panics
    /// When `frame` is of another pool.
    #[inline]
    pub fn packet(&self, frame: Frame, offset: usize, len: usize) -> Result<Packet, Frame> {
        self.assert_own(&frame);
        let has_it = offset.checked_add(len).is_some_and(|end| end <= self.size_of(&frame));
        if !has_it {
            return Err(frame);
        }
        Ok(Packet::new(frame, offset as u16, len as u16))
    }

    #[inline]
    fn is_large(&self, index: u32) -> bool {
        index >= self.frames
    }

    #[inline]
    fn offset(&self, index: u32) -> usize {
        let (at, frames) = (index as usize, self.frames as usize);
        if self.is_large(index) {
            frames * self.stride + (at - frames) * stride(LARGE_FRAME_SIZE)
        } else {
            at * self.stride
        }
    }

    #[inline]
    fn start(&self, frame: &Frame) -> *mut u8 {
        let offset = self.offset(frame.index);
        // SAFETY: the index is below the number of all frames (only `take` and `take_large` make
        // some), and the region holds as many, the large ones behind the others.
        unsafe { self.memory.base().as_ptr().add(offset) }
    }

    #[inline]
    pub(crate) fn assert_own(&self, frame: &Frame) {
        assert!(frame.pool == self.id, "frame {} is of another pool", frame.index);
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        lock(&self.free)
    }
}

// A panic while the lock is held cannot leave the list half changed.
fn lock(free: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes from one frame of `frame_size` bytes to the next.
///
/// With a frame size that is a large power of two, the same offset in all frames maps to few sets
/// of the cache, and the frames of a batch evict each other. With an odd number of cache lines per
/// frame, that offset spreads over all sets.
const fn stride(frame_size: usize) -> usize {
    const LINE: usize = 64;
    ((frame_size / LINE) | 1).saturating_mul(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_pool_says_none_and_recovers() {
        let pool = Pool::anonymous(4, 2048).unwrap();
        let mut frames = Vec::new();
        assert_eq!(pool.take_many(10, |f| frames.push(f)), 4);
        assert!(pool.take().is_none());
        assert_eq!(pool.in_use(), 4);
        pool.give_back(frames);
        assert_eq!(pool.in_use(), 0);
        let frame = pool.take().unwrap();
        pool.give_back([frame]);
    }

    #[test]
    fn frames_do_not_overlap() {
        let pool = Pool::anonymous(3, 512).unwrap();
        let mut frames: Vec<Frame> = (0..3).map(|_| pool.take().unwrap()).collect();
        for (i, frame) in frames.iter_mut().enumerate() {
            pool.bytes_mut(frame).fill(i as u8 + 1);
        }
        for (i, frame) in frames.iter().enumerate() {
            assert!(pool.bytes(frame).iter().all(|&b| b == i as u8 + 1));
        }
        pool.give_back(frames);
    }

    #[test]
    fn a_place_in_all_frames_of_a_batch_has_a_cache_set_of_its_own() {
        const SETS: usize = 64;
        for frame_size in [512, 2048, 2112, 10496] {
            let pool = Pool::anonymous(32, frame_size).unwrap();
            let mut sets = std::collections::HashSet::new();
            while let Some(frame) = pool.take() {
                let bytes = pool.bytes(&frame);
                assert_eq!(bytes.len(), frame_size);
                sets.insert(bytes.as_ptr() as usize / 64 % SETS);
                // Never given back: each frame is checked once.
                drop(frame);
            }
            assert_eq!(sets.len(), 32, "frames of {frame_size} bytes");
        }
    }

    #[test]
    fn a_region_holds_as_many_frames_as_it_was_made_for() {
        for (frames, frame_size) in [(1, 512), (7, 2048), (3, 10496)] {
            let memory = PacketMemory::anonymous(Pool::region_len(frames, frame_size)).unwrap();
            assert_eq!(Pool::new(memory, frame_size).unwrap().frames(), frames);
        }
    }

    #[test]
    fn large_frames_lie_behind_the_others_and_come_back_to_their_own_list() {
        const LARGE: usize = 3;
        let len = Pool::region_len_with(5, 2048, LARGE);
        let pool = Pool::with_large(PacketMemory::anonymous(len).unwrap(), 2048, LARGE).unwrap();
        assert_eq!((pool.frames(), pool.large_frames(), pool.available()), (5, LARGE, 5));
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        frames.extend(std::iter::from_fn(|| pool.take_large()));
        assert_eq!((frames.len(), pool.in_use()), (5 + LARGE, 5 + LARGE));
        for (i, frame) in frames.iter_mut().enumerate() {
            pool.bytes_mut(frame).fill(i as u8 + 1);
        }
        for (i, frame) in frames.iter().enumerate() {
            let size = if i < 5 { 2048 } else { LARGE_FRAME_SIZE };
            assert_eq!((pool.bytes(frame).len(), pool.size_of(frame)), (size, size));
            assert!(pool.bytes(frame).iter().all(|&b| b == i as u8 + 1));
        }
        pool.give_back(frames);
        assert_eq!((pool.in_use(), pool.available()), (0, 5));
        let large = pool.take_large().unwrap();
        assert_eq!(pool.size_of(&large), LARGE_FRAME_SIZE);
        pool.give_back([large]);
    }

    #[test]
    fn a_place_in_memory_is_located_in_its_frame() {
        let pool = Pool::anonymous_with(5, 2048, 1).unwrap();
        for index in 0..5_usize {
            let frame = pool.take().unwrap();
            let start = pool.offset_of(&frame);
            assert_eq!((frame.index() as usize, start), (index, index * 2112));
            assert_eq!(
                pool.bytes(&frame).as_ptr() as usize,
                pool.memory().base().as_ptr() as usize + start
            );
            assert_eq!(pool.locate(start), Some((index as u32, 0)));
            assert_eq!(pool.locate(start + 2047), Some((index as u32, 2047)));
            assert_eq!(pool.locate(start + 2048), None, "between frames");
            let frame = pool.packet(frame, 2000, 49).unwrap_err();
            let frame = pool.packet(frame, usize::MAX, 2).unwrap_err();
            let packet = pool.packet(frame, 2000, 48).unwrap();
            assert_eq!((packet.offset(), packet.len()), (2000, 48));
            drop(packet);
        }
        let large = pool.take_large().unwrap();
        assert_eq!(pool.locate(pool.offset_of(&large)), None, "large frames are not located");
        let large = pool.packet(large, LARGE_FRAME_SIZE, 1).unwrap_err();
        assert_eq!(
            pool.packet(large, 1, LARGE_FRAME_SIZE - 1).unwrap().len(),
            LARGE_FRAME_SIZE - 1
        );
        assert_eq!(pool.locate(usize::MAX), None);
    }

    #[test]
    #[should_panic(expected = "another pool")]
    fn a_foreign_frame_is_refused() {
        let (a, b) = (Pool::anonymous(1, 512).unwrap(), Pool::anonymous(1, 512).unwrap());
        let frame = a.take().unwrap();
        b.give_back([frame]);
    }

    #[test]
    fn sizes_out_of_range_are_errors() {
        assert!(matches!(Pool::anonymous(1, 100), Err(PoolError::FrameSize(100))));
        assert!(matches!(Pool::anonymous(0, 2048), Err(PoolError::Region { .. })));
        assert!(Pool::anonymous(1, MAX_FRAME_SIZE).is_ok());
    }
}
