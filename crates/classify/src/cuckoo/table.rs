//! The table of one size: what readers see, and what its writer does to it.

use std::sync::Arc;

use thalweg_cpu::Isa;

use super::Walk;
use super::hash::Hash;
use super::search::Level;
use super::store::{Form, Store};

/// Buckets that a search for room visits before it declares the table full.
const SEARCH: usize = 2048;
/// The part of its places that a table fills, in percent.
pub(super) const LOAD: usize = 95;

/// There is no place for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The part that readers see.
#[derive(Debug)]
pub(super) struct Core<const W: usize> {
    hash: Hash,
    level: Level,
    store: Store<W>,
}

/// Where a key may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    /// Of the key, not 0.
    pub(super) signature: u16,
    pub(super) first: u32,
    pub(super) second: u32,
}

impl<const W: usize> Core<W> {
    #[inline(always)]
    pub(super) fn store(&self) -> &Store<W> {
        &self.store
    }

    #[inline(always)]
    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn places(&self) -> usize {
        self.store.buckets() * Form::<W>::WAYS
    }

    #[inline(always)]
    pub(super) fn hash(&self) -> &Hash {
        &self.hash
    }

    /// Where the key with `hash` may be. Plain arithmetic without branches, so that it
    /// becomes vector instructions when it is asked for many hashes.
    #[inline(always)]
    pub(super) fn places_of(&self, hash: u32) -> Places {
        let first = self.reduce(hash);
        // The upper bits of a product depend on all bits of the hash.
        let signature = ((hash.wrapping_mul(0x9e37_79b1) >> 16) as u16).max(1);
        Places { signature, first, second: self.other(first, signature) }
    }

    /// The other bucket of a key that has one in `bucket`: the sum of both is a number
    /// that the signature alone gives, so an entry moves without its key being
    /// hashed.
    #[inline(always)]
    pub(super) fn other(&self, bucket: u32, signature: u16) -> u32 {
        let sum = self.reduce(u32::from(signature).wrapping_mul(0x85eb_ca6b));
        let other = sum.wrapping_sub(bucket);
        // Below zero it has wrapped around, and wraps back.
        if sum < bucket { other.wrapping_add(self.store.buckets() as u32) } else { other }
    }

    /// Maps a hash to a bucket (Lemire, "Fast random integer generation in an
    /// interval", 2019).
    #[inline(always)]
    fn reduce(&self, hash: u32) -> u32 {
        // There are fewer than 2^32: a multiplication of halves, which vectors have.
        ((u64::from(hash) * u64::from(self.store.buckets() as u32)) >> 32) as u32
    }

    /// The path of a lookup of `key`; for the writer.
    pub(super) fn walk(&self, key: &[u64; W]) -> Walk {
        let places = self.places_of(self.hash.of(key));
        let buckets = [places.first, places.second];
        let taken = buckets.map(|bucket| {
            let (bucket, state) = (bucket as usize, self.store.line(bucket as usize).state());
            let of = |way| u32::from(self.store.is_taken(bucket, way, state)) << way;
            (0..Form::<W>::WAYS).map(of).sum()
        });
        let found = self
            .find_at(key, places)
            .map(|(bucket, way)| (usize::from(bucket != places.first as usize), way));
        Walk { buckets, taken, found }
    }

    /// Bucket and way of `key`; for the writer, which no other thread disturbs.
    pub(super) fn find(&self, key: &[u64; W]) -> Option<(usize, usize)> {
        self.find_at(key, self.places_of(self.hash.of(key)))
    }

    /// The same for a key whose places are known.
    fn find_at(&self, key: &[u64; W], places: Places) -> Option<(usize, usize)> {
        [places.first, places.second].into_iter().find_map(|bucket| {
            let bucket = bucket as usize;
            let state = self.store.line(bucket).state();
            Some((bucket, self.store.way_of(bucket, state, key, places.signature)?))
        })
    }
}

/// The table as its writer has it.
#[derive(Debug)]
pub(super) struct Table<const W: usize> {
    core: Arc<Core<W>>,
    len: usize,
}

/// A bucket that a search for room has come to: from which index of the search, and
/// which way leads to it.
struct Reached {
    bucket: usize,
    from: Option<(usize, usize)>,
}

impl<const W: usize> Table<W> {
    /// An empty table that takes at least `entries` keys, looked up with the
    /// instructions of `isa` or fewer.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub(super) fn with_room(entries: usize, hash: Hash, isa: Isa) -> Self {
        Self::with_buckets(Self::buckets_for(entries), hash, isa)
    }

    /// The buckets of a table that takes at least `entries` keys.
    pub(super) fn buckets_for(entries: usize) -> usize {
        let places = (entries.max(1) * 100).div_ceil(LOAD);
        places.div_ceil(Form::<W>::WAYS).max(2)
    }

    pub(super) fn with_buckets(buckets: usize, hash: Hash, isa: Isa) -> Self {
        assert!(u32::try_from(buckets).is_ok(), "{buckets} buckets are more than 2^32");
        let store = Store::new(buckets).expect("there is memory for the table");
        Self { core: Arc::new(Core { hash, level: Level::of(isa), store }), len: 0 }
    }

    pub(super) fn core(&self) -> &Arc<Core<W>> {
        &self.core
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, key: &[u64; W], value: u32) -> Result<Option<u32>, Full> {
        let (core, store) = (&self.core, &self.core.store);
        let places = core.places_of(core.hash.of(key));
        if let Some(place) = core.find_at(key, places) {
            let before = store.value(place.0, place.1);
            store.set_value(place, value);
            return Ok(Some(before));
        }
        if self.len * 100 >= self.core.places() * LOAD {
            return Err(Full);
        }
        let place = self.make_room(places).ok_or(Full)?;
        store.fill(place, key, places.signature, value);
        self.len += 1;
        Ok(None)
    }

    pub(super) fn remove(&mut self, key: &[u64; W]) -> Option<u32> {
        let place = self.core.find(key)?;
        let value = self.core.store.value(place.0, place.1);
        self.core.store.free(place);
        self.len -= 1;
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ([u64; W], u32)> + '_ {
        let store = &self.core.store;
        store.taken().map(|(bucket, way)| (store.key(bucket, way), store.value(bucket, way)))
    }

    pub(super) fn in_bucket(&self, bucket: usize) -> impl Iterator<Item = ([u64; W], u32)> + '_ {
        let store = &self.core.store;
        store.taken_in(bucket).map(move |way| (store.key(bucket, way), store.value(bucket, way)))
    }

    /// The signature of a place that is taken.
    fn signature(&self, bucket: usize, way: usize) -> u16 {
        if Form::<W>::INLINE {
            let hash = self.core.hash.of(&self.core.store.key(bucket, way));
            return self.core.places_of(hash).signature;
        }
        self.core.store.signature(bucket, way)
    }

    /// A free place in one of both buckets, made free if need be by moving as few
    /// entries as can be (a search in breadth).
    fn make_room(&self, places: Places) -> Option<(usize, usize)> {
        let store = &self.core.store;
        let both = [places.first as usize, places.second as usize];
        for bucket in both {
            if let Some(way) = store.free_way(bucket) {
                return Some((bucket, way));
            }
        }
        let mut reached: Vec<_> =
            both.into_iter().map(|bucket| Reached { bucket, from: None }).collect();
        let mut next = 0;
        while let Some(&Reached { bucket, .. }) = reached.get(next) {
            for way in 0..Form::<W>::WAYS {
                let to = self.core.other(bucket as u32, self.signature(bucket, way)) as usize;
                if let Some(free) = store.free_way(to) {
                    return Some(self.move_along(&reached, (next, way), (to, free)));
                }
                if reached.len() < SEARCH && !is_on_the_way(&reached, next, to) {
                    reached.push(Reached { bucket: to, from: Some((next, way)) });
                }
            }
            next += 1;
        }
        None
    }

    /// Moves the entry at `from` (index in the search, way) to the free place `to`,
    /// then the one before it into its place, and so on back; returns the place that
    /// comes free. Each entry is in its new bucket before it leaves the old one.
    fn move_along(
        &self,
        reached: &[Reached],
        from: (usize, usize),
        mut to: (usize, usize),
    ) -> (usize, usize) {
        let store = &self.core.store;
        let (mut index, mut way) = from;
        loop {
            let Reached { bucket, from } = reached[index];
            let (key, value) = (store.key(bucket, way), store.value(bucket, way));
            store.fill(to, &key, self.signature(bucket, way), value);
            store.free((bucket, way));
            let Some(before) = from else { return (bucket, way) };
            to = (bucket, way);
            (index, way) = before;
        }
    }
}

/// Whether the way to `reached[index]` goes through `bucket`: moving along it twice
/// would move an entry that has gone.
fn is_on_the_way(reached: &[Reached], mut index: usize, bucket: usize) -> bool {
    loop {
        if reached[index].bucket == bucket {
            return true;
        }
        let Some((before, _)) = reached[index].from else { return false };
        index = before;
    }
}
