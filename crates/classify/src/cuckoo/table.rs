//! The table of one size: what readers see, and what its writer knows besides.

use std::sync::Arc;

use super::bucket::{Bucket, EMPTY, WAYS};
use super::hash::Hash;
use super::sync::{AtomicU64, Ordering};

/// Buckets that a search for room looks at, before the table is called full.
const SEARCH: usize = 256;
/// The part of its places that a table fills, in percent.
const LOAD: usize = 95;

/// There is no place for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What readers see.
#[derive(Debug)]
pub(super) struct Core<const W: usize> {
    hash: Hash,
    buckets: Box<[Bucket]>,
    entries: Box<[Entry<W>]>,
}

/// A key and its value. Written only while no bucket names it, but for the value.
#[derive(Debug)]
#[repr(align(16))]
pub(super) struct Entry<const W: usize> {
    key: [AtomicU64; W],
    value: AtomicU64,
}

/// Where a key may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) signature: u16,
    pub(super) first: usize,
    pub(super) second: usize,
}

impl<const W: usize> Core<W> {
    pub(super) fn places(&self) -> usize {
        self.buckets.len() * WAYS
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    #[inline]
    pub(super) fn places_of(&self, hash: u32) -> Places {
        let mask = self.buckets.len() - 1;
        // The upper bits of a product depend on all bits of the hash.
        let signature = (hash.wrapping_mul(0x9e37_79b1) >> 16) as u16;
        let signature = signature.max(1);
        let first = hash as usize & mask;
        Places { signature, first, second: other(first, signature, mask) }
    }

    #[inline]
    pub(super) fn bucket(&self, at: usize) -> &Bucket {
        &self.buckets[at]
    }

    #[inline]
    pub(super) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    #[inline]
    pub(super) fn entries(&self) -> &[Entry<W>] {
        &self.entries
    }
}

impl<const W: usize> Entry<W> {
    #[inline]
    pub(super) fn has(&self, key: &[u64; W]) -> bool {
        let words = self.key.iter().zip(key);
        words.fold(0, |d, (at, word)| d | at.load(Ordering::Relaxed) ^ word) == 0
    }

    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

#[inline]
fn other(bucket: usize, signature: u16, mask: usize) -> usize {
    let spread = u32::from(signature).wrapping_mul(0x5bd1_e995) >> 3;
    (bucket ^ spread as usize) & mask
}

/// The table as its writer has it.
#[derive(Debug)]
pub(super) struct Table<const W: usize> {
    core: Arc<Core<W>>,
    free: Vec<u32>,
}

impl<const W: usize> Table<W> {
    /// An empty table that takes at least `entries` keys.
    pub(super) fn with_room(entries: usize, hash: Hash) -> Self {
        let places = (entries.max(1) * 100).div_ceil(LOAD);
        Self::with_buckets(places.div_ceil(WAYS).next_power_of_two().max(2), hash)
    }

    pub(super) fn with_buckets(buckets: usize, hash: Hash) -> Self {
        let entry =
            |_| Entry { key: std::array::from_fn(|_| AtomicU64::new(0)), value: AtomicU64::new(0) };
        let core = Core {
            hash,
            buckets: (0..buckets).map(|_| Bucket::new()).collect(),
            entries: (0..buckets * WAYS).map(entry).collect(),
        };
        // Low numbers come first.
        let free = (0..(buckets * WAYS) as u32).rev().collect();
        Self { core: Arc::new(core), free }
    }

    pub(super) fn core(&self) -> &Arc<Core<W>> {
        &self.core
    }

    pub(super) fn len(&self) -> usize {
        self.core.entries.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, key: &[u64; W], value: u64) -> Result<Option<u64>, Full> {
        if let Some((bucket, way)) = self.core.find(key) {
            let entry = &self.core.entries[self.core.buckets[bucket].entry(way) as usize];
            let before = entry.value();
            // Readers see the old value or the new one.
            entry.value.store(value, Ordering::Relaxed);
            return Ok(Some(before));
        }
        if self.free.len() * 100 <= self.core.entries.len() * (100 - LOAD) {
            return Err(Full);
        }
        let places = self.core.places_of(self.core.hash.of(key));
        let (bucket, way) = self.make_room(places).ok_or(Full)?;
        let number = self.free.pop().ok_or(Full)?;
        let entry = &self.core.entries[number as usize];
        for (place, word) in entry.key.iter().zip(key) {
            place.store(*word, Ordering::Relaxed);
        }
        entry.value.store(value, Ordering::Relaxed);
        self.core.buckets[bucket].set(way, places.signature, number);
        Ok(None)
    }

    pub(super) fn remove(&mut self, key: &[u64; W]) -> Option<u64> {
        let (bucket, way) = self.core.find(key)?;
        let bucket = &self.core.buckets[bucket];
        let number = bucket.entry(way);
        bucket.set(way, EMPTY, 0);
        self.free.push(number);
        Some(self.core.entries[number as usize].value())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ([u64; W], u64)> + '_ {
        self.core.buckets.iter().flat_map(move |bucket| {
            let signatures = bucket.signatures();
            let taken = (0..WAYS).filter(move |way| signatures.get(*way) != EMPTY);
            taken.map(move |way| {
                let entry = &self.core.entries[bucket.entry(way) as usize];
                let key = std::array::from_fn(|i| entry.key[i].load(Ordering::Relaxed));
                (key, entry.value())
            })
        })
    }

    /// A free place in one of both buckets, made free if need be.
    fn make_room(&self, places: Places) -> Option<(usize, usize)> {
        // (bucket, how it was reached: the search's index of the bucket before, and
        // the way there).
        let mut reached =
            [places.first, places.second].map(|bucket| (bucket, usize::MAX, 0)).to_vec();
        for (at, ..) in &reached {
            if let Some(way) = self.free_way(*at) {
                return Some((*at, way));
            }
        }
        let mask = self.core.buckets.len() - 1;
        let mut next = 0;
        while let Some(&(at, ..)) = reached.get(next) {
            for way in 0..WAYS {
                let to = other(at, self.core.buckets[at].signatures().get(way), mask);
                if let Some(free) = self.free_way(to) {
                    return Some(self.move_along(&reached, (next, way), (to, free)));
                }
                if reached.len() < SEARCH && reached.iter().all(|(b, ..)| *b != to) {
                    reached.push((to, next, way));
                }
            }
            next += 1;
        }
        None
    }

    fn free_way(&self, bucket: usize) -> Option<usize> {
        let free = self.core.buckets[bucket].signatures().equal(EMPTY);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Moves the entry at `from` (index in the search, way) to the free place `to`,
    /// then the one before it into its place, and so on back; returns the place that
    /// comes free. Each entry is in its new bucket before it leaves the old one.
    fn move_along(
        &self,
        reached: &[(usize, usize, usize)],
        from: (usize, usize),
        to: (usize, usize),
    ) -> (usize, usize) {
        let ((mut from, mut way), mut to) = (from, to);
        loop {
            let (at, before, way_before) = reached[from];
            let bucket = &self.core.buckets[at];
            let signature = bucket.signatures().get(way);
            self.core.buckets[to.0].set(to.1, signature, bucket.entry(way));
            bucket.set(way, EMPTY, 0);
            if before == usize::MAX {
                return (at, way);
            }
            to = (at, way);
            (from, way) = (before, way_before);
        }
    }
}
