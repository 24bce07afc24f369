//! The memory of all groups: one array, so that 32 bits address a place in it, and huge pages can
//! back it.
//!
//! The owner of a [`Room`] writes it once, before it is published; it is freed after its last
//! reader.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use range_alloc::RangeAllocator;
use thalweg_cpu::memory::Zeroed;

use super::groups::UNIT;

/// Words for groups, in units of [`UNIT`].
#[derive(Debug)]
pub(super) struct Arena {
    words: Zeroed<AtomicU32>,
    free: Mutex<RangeAllocator<u32>>,
}

/// A part of an arena.
#[derive(Debug)]
pub(super) struct Room {
    arena: Arc<Arena>,
    units: Range<u32>,
}

impl Arena {
    /// The most units of an arena: 8 GiB, whose words the vectors index with 31 bits.
    pub(super) const MOST: u32 = 1 << 25;

    /// An arena of `words` words, but at least one unit, and at most [`MOST`](Self::MOST) units.
    pub(super) fn new(words: usize) -> Arc<Self> {
        let units = u32::try_from(words.div_ceil(UNIT)).unwrap_or(Self::MOST).clamp(1, Self::MOST);
        let words = Zeroed::new(units as usize * UNIT).expect("there is memory for the table");
        Arc::new(Self { words, free: Mutex::new(RangeAllocator::new(0..units)) })
    }

    pub(super) fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    /// Allocates room for `words` words, one or more; `None` if there is none.
    pub(super) fn room_for(self: &Arc<Self>, words: usize) -> Option<Room> {
        let units = u32::try_from(words.div_ceil(UNIT)).ok()?;
        let units = self.free().allocate_range(units).ok()?;
        Some(Room { arena: Arc::clone(self), units })
    }

    /// The number of free units.
    #[cfg(test)]
    pub(super) fn left(&self) -> u32 {
        self.free().total_available()
    }

    // Each use is one call that does not panic halfway, so a poisoned lock is consistent.
    fn free(&self) -> MutexGuard<'_, RangeAllocator<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// The unit where it begins.
    pub(super) fn place(&self) -> u32 {
        self.units.start
    }

    /// Writes words to it.
    pub(super) fn write(&self, words: impl Iterator<Item = u32>) {
        let own = self.units.start as usize * UNIT..self.units.end as usize * UNIT;
        for (to, word) in self.arena.words[own].iter().zip(words) {
            // Published together with the root that refers to this place.
            to.store(word, Ordering::Relaxed);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.arena.free().free_range(self.units.clone());
    }
}
