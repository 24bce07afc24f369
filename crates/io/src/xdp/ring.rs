//! The rings that a socket shares with the kernel.
//!
//! Of the two indexes of a ring, one is ours. It is kept here and never read back; the other one is
//! read once for each use, and what it claims is bounded by the size of the ring.
//!
//! `unsafe` here: memory shared with the kernel.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// What a ring holds: made of integers, for which all bytes are values.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// A mapped ring.
struct Ring<T> {
    map: MmapRaw,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    /// The number of entries, a power of two.
    size: u32,
    of: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    fn map(fd: RawFd, at: u64, offsets: libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let entries = place(offsets.desc);
        let len = entries.saturating_add(size as usize * size_of::<T>());
        let [producer, consumer, flags] =
            [offsets.producer, offsets.consumer, offsets.flags].map(place);
        let is_word = |at: &usize| at.is_multiple_of(4) && at.saturating_add(4) <= len;
        let is_right = [producer, consumer, flags].iter().all(is_word)
            && size.is_power_of_two()
            && entries.is_multiple_of(align_of::<T>());
        if !is_right {
            return Err(io::Error::other("the kernel describes a ring that cannot be"));
        }
        let map = MmapOptions::new().offset(at).len(len).populate().map_raw(fd)?;
        Ok(Self { map, producer, consumer, flags, entries, size, of: PhantomData })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let place = self.map.as_mut_ptr().wrapping_add(at);
        // SAFETY: the word is aligned and in the map (checked when it was made), lives as long as it,
        // and is changed as an atomic word by the kernel too.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    /// The place of the entry at a position.
    fn entry(&self, position: u32) -> *mut T {
        let slot = (position & (self.size - 1)) as usize;
        self.map.as_mut_ptr().wrapping_add(self.entries).cast::<T>().wrapping_add(slot)
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring into which we put entries: fill and transmit.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Entries put, of which `published` are visible to the kernel.
    head: u32,
    published: u32,
    /// As far as the kernel had come when it was last looked up.
    tail: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn map(
        fd: RawFd,
        at: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, at, offsets, size)?, head: 0, published: 0, tail: 0 })
    }

    /// How many entries it has.
    pub(super) fn size(&self) -> u32 {
        self.ring.size
    }

    /// How many entries there is room for.
    #[inline]
    pub(super) fn room(&mut self) -> u32 {
        self.look();
        self.known_room()
    }

    /// Whether there is room for `entries`. How far the kernel has come is looked up only if it matters.
    #[inline]
    pub(super) fn has_room(&mut self, entries: usize) -> bool {
        self.known_room() as usize >= entries || self.room() as usize >= entries
    }

    fn known_room(&self) -> u32 {
        self.ring.size - self.head.wrapping_sub(self.tail)
    }

    /// Looks up how far the kernel has come. An index beyond ours is not believed.
    #[inline]
    fn look(&mut self) {
        let tail = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
        if self.published.wrapping_sub(tail) <= self.ring.size {
            self.tail = tail;
        }
    }

    /// Puts an entry, for which there must be room.
    ///
    /// # Panics
    /// When the ring is full.
    #[inline]
    pub(super) fn put(&mut self, entry: T) {
        assert!(self.head.wrapping_sub(self.tail) < self.ring.size, "the ring has room");
        let place = self.ring.entry(self.head);
        // SAFETY: the slot is in the map and aligned, and the kernel does not read it before it is
        // published.
        unsafe { place.write(entry) };
        self.head = self.head.wrapping_add(1);
    }

    /// Makes what was put visible to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            self.ring.word(self.ring.producer).store(self.head, Ordering::Release);
        }
    }

    /// How many published entries the kernel has not taken.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.look();
        self.published.wrapping_sub(self.tail)
    }

    /// Whether the kernel has to be called to look at it.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring out of which we take entries: receive and completion.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries taken, of which `returned` can be used again by the kernel.
    tail: u32,
    returned: u32,
    /// As far as the kernel had come when it was last looked up.
    head: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn map(
        fd: RawFd,
        at: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, at, offsets, size)?, tail: 0, returned: 0, head: 0 })
    }

    /// Whether it has no entry.
    #[inline]
    pub(super) fn is_empty(&mut self) -> bool {
        if self.tail == self.head {
            let head = self.ring.word(self.ring.producer).load(Ordering::Acquire);
            // More entries than the ring has are not believed.
            if head.wrapping_sub(self.tail).wrapping_sub(1) < self.ring.size {
                self.head = head;
            }
        }
        self.tail == self.head
    }

    /// Takes the next entry, if there is one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let place = self.ring.entry(self.tail);
        // SAFETY: the slot is in the map and aligned; the kernel has written it before it advanced its
        // index, and does not write it before the slot is returned.
        let entry = unsafe { place.read() };
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of entries that were taken to the kernel.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if self.returned != self.tail {
            self.returned = self.tail;
            self.ring.word(self.ring.consumer).store(self.tail, Ordering::Release);
        }
    }
}
