//! A cuckoo index: from hashes to the handles of flows that lie elsewhere.
//!
//! A bucket is one cache line of eight signatures and eight handles. A handle
//! has two buckets: the one its hash names, and one found from either by the
//! signature alone (partial-key cuckoo hashing: Fan, Andersen and Kaminsky,
//! "MemC3", NSDI 2013), so that handles can be moved without their keys.

use super::signatures::{WAYS, equal};

/// Nothing lies here; no signature is 0.
const EMPTY: u16 = 0;
/// Handles with one and the same hash that an index takes: looking one up
/// compares them all.
const MOST_EQUAL: usize = 3;
/// How many buckets a search for a free place looks at before the index grows.
const SEARCH: usize = 128;
/// Buckets that stay in the first-level cache: 8 KiB of them.
const NEAR: usize = 128;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    signatures: [u16; WAYS],
    handles: [u32; WAYS],
    /// For the user of the index: notes about hashes that name this bucket.
    note: u64,
    /// Whether handles for which this is the first bucket may lie in their other.
    spilled: bool,
}

const VACANT: Bucket =
    Bucket { signatures: [EMPTY; WAYS], handles: [0; WAYS], note: 0, spilled: false };

/// The result of a first look for a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The handle that the hash most likely leads to; arbitrary when there is none.
    pub(super) handle: u32,
    /// Whether there is one.
    pub(super) found: bool,
    /// Whether the hash may lead to others, or there is a note about it.
    pub(super) more: bool,
}

/// Why a handle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many handles have the same hash.
    Crowded,
    /// No place was found; growing helps.
    Full,
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
    len: usize,
}

impl Index {
    /// An empty index with room for at least `handles`.
    pub(super) fn with_room(handles: usize) -> Self {
        // Three quarters full at most, so that nearly all lie in their first bucket.
        let buckets = (handles.div_ceil(WAYS - 2)).next_power_of_two();
        Self { buckets: vec![VACANT; buckets], len: 0 }
    }

    /// Whether it is so full that a larger one should be prepared: half. Searches become slow, and
    /// then handles find no place, only beyond three quarters.
    pub(super) fn wants_room(&self) -> bool {
        self.len * 2 >= self.places()
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Moves the handles of a bucket to `out`.
    pub(super) fn take_bucket(&mut self, bucket: usize, out: &mut Vec<u32>) {
        let (bucket, before) = (&mut self.buckets[bucket], out.len());
        let taken = (0..WAYS).filter(|way| bucket.signatures[*way] != EMPTY);
        out.extend(taken.map(|way| bucket.handles[way]));
        bucket.signatures = [EMPTY; WAYS];
        self.len -= out.len() - before;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The handles that it has places for.
    pub(super) fn places(&self) -> usize {
        self.buckets.len() * WAYS
    }

    #[inline]
    fn first(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn signature(hash: u32) -> u16 {
        // The upper bits: the lower ones choose the bucket.
        ((hash >> 16) as u16).max(1)
    }

    #[inline]
    fn other(&self, bucket: usize, signature: u16) -> usize {
        let spread = u32::from(signature).wrapping_mul(0x5bd1_e995) >> 5;
        (bucket ^ spread as usize) & (self.buckets.len() - 1)
    }

    /// Whether the index is so small that it stays in the first-level cache.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.buckets.len() <= NEAR
    }

    /// Begins to load what a search for `hash` reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        thalweg_cpu::prefetch::read(&self.buckets, self.first(hash));
    }

    /// Looks into the first bucket of `hash`, without a branch that depends on what
    /// is there: of many packets, which ones are found cannot be foreseen.
    #[inline]
    pub(super) fn look(&self, hash: u32) -> Look {
        let bucket = &self.buckets[self.first(hash)];
        let ways = equal(&bucket.signatures, Self::signature(hash));
        let several = ways & ways.wrapping_sub(1);
        let reasons = u64::from(several) | u64::from(bucket.spilled) | bucket.note;
        Look {
            handle: bucket.handles[ways.trailing_zeros() as usize % WAYS],
            found: ways != 0,
            more: reasons != 0,
        }
    }

    /// The handles that `hash` may lead to, in the order of
    /// [`look`](Self::look).
    #[inline]
    pub(super) fn candidates(&self, hash: u32) -> impl Iterator<Item = u32> + '_ {
        let (first, signature) = (self.first(hash), Self::signature(hash));
        let second = self.other(first, signature);
        let both = [Some(first), (second != first).then_some(second)];
        both.into_iter().flatten().flat_map(move |at| {
            let bucket = &self.buckets[at];
            let mut ways = equal(&bucket.signatures, signature);
            std::iter::from_fn(move || {
                let way = (ways != 0).then(|| ways.trailing_zeros() as usize)?;
                ways &= ways - 1;
                Some(bucket.handles[way])
            })
        })
    }

    /// The note at the bucket that `hash` names.
    #[inline]
    pub(super) fn note(&self, hash: u32) -> u64 {
        self.buckets[self.first(hash)].note
    }

    /// Adds the bits of `note` to the note at the bucket that `hash` names.
    pub(super) fn add_note(&mut self, hash: u32, note: u64) {
        let at = self.first(hash);
        self.buckets[at].note |= note;
    }

    /// Takes in `handle`.
    ///
    /// # Errors
    /// [`Refused`], and nothing changed.
    pub(super) fn insert(&mut self, hash: u32, handle: u32) -> Result<(), Refused> {
        if self.candidates(hash).count() >= MOST_EQUAL {
            return Err(Refused::Crowded);
        }
        let signature = Self::signature(hash);
        let first = self.first(hash);
        let second = self.other(first, signature);
        for bucket in [first, second] {
            if self.put(bucket, signature, handle) {
                self.buckets[first].spilled |= bucket != first;
                self.len += 1;
                return Ok(());
            }
        }
        let freed = self.make_room([first, second]).ok_or(Refused::Full)?;
        let fits = self.put(freed, signature, handle);
        debug_assert!(fits, "room was made in this bucket");
        self.buckets[first].spilled |= freed != first;
        self.len += 1;
        Ok(())
    }

    fn put(&mut self, bucket: usize, signature: u16, handle: u32) -> bool {
        let bucket = &mut self.buckets[bucket];
        let free = equal(&bucket.signatures, EMPTY);
        if free == 0 {
            return false;
        }
        let way = free.trailing_zeros() as usize;
        (bucket.signatures[way], bucket.handles[way]) = (signature, handle);
        true
    }

    /// Moves handles to their other buckets until one of `full` has a free place,
    /// by the shortest way there is (breadth first); returns that bucket.
    fn make_room(&mut self, full: [usize; 2]) -> Option<usize> {
        // (bucket, how it was reached: index of the bucket before it, and the way there).
        let mut reached: Vec<(usize, usize, usize)> = full.map(|b| (b, usize::MAX, 0)).to_vec();
        let mut next = 0;
        while let Some(&(at, ..)) = reached.get(next) {
            for way in 0..WAYS {
                let to = self.other(at, self.buckets[at].signatures[way]);
                if reached.iter().any(|(b, ..)| *b == to) {
                    continue;
                }
                if equal(&self.buckets[to].signatures, EMPTY) != 0 {
                    return Some(self.move_along(&reached, next, way, to));
                }
                if reached.len() < SEARCH {
                    reached.push((to, next, way));
                }
            }
            next += 1;
        }
        None
    }

    /// Moves the handle at `way` of the bucket at `from` in the search to the
    /// bucket `to`, then the one before it into its place, and so on back.
    fn move_along(
        &mut self,
        reached: &[(usize, usize, usize)],
        from: usize,
        way: usize,
        to: usize,
    ) -> usize {
        let (mut from, mut way, mut to) = (from, way, to);
        loop {
            let (at, before, way_before) = reached[from];
            let bucket = self.buckets[at];
            self.put(to, bucket.signatures[way], bucket.handles[way]);
            self.buckets[at].signatures[way] = EMPTY;
            // Whether this was its first bucket is not known.
            self.buckets[at].spilled = true;
            if before == usize::MAX {
                return at;
            }
            (from, way, to) = (before, way_before, at);
        }
    }

    /// Takes out `handle`, which was put in under `hash`; `false` when it is not
    /// there.
    pub(super) fn remove(&mut self, hash: u32, handle: u32) -> bool {
        let signature = Self::signature(hash);
        let first = self.first(hash);
        for at in [first, self.other(first, signature)] {
            let bucket = &mut self.buckets[at];
            for way in 0..WAYS {
                if bucket.signatures[way] == signature && bucket.handles[way] == handle {
                    bucket.signatures[way] = EMPTY;
                    self.len -= 1;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::murmur3;

    proptest! {
        #[test]
        fn what_was_put_in_and_not_taken_out_is_found(
            // Few different hashes, so that buckets fill and hashes are equal.
            actions in prop::collection::vec((any::<bool>(), 0..1u32 << 9), 1..300),
            stretch in prop::sample::select(vec![1u32, 0x1_0000, 0x1001, 0x9e37_79b1]),
        ) {
            let mut index = Index::with_room(40);
            let mut held: HashMap<u32, Vec<u32>> = HashMap::new();
            for (n, (insert, hash)) in actions.into_iter().enumerate() {
                let hash = hash.wrapping_mul(stretch);
                let handles = held.entry(hash).or_default();
                if insert {
                    if index.insert(hash, n as u32).is_ok() {
                        handles.push(n as u32);
                    }
                } else if let Some(handle) = handles.pop() {
                    prop_assert!(index.remove(hash, handle));
                    prop_assert!(!index.remove(hash, handle));
                }
                prop_assert_eq!(index.len(), held.values().map(Vec::len).sum::<usize>());
            }
            for (hash, handles) in &held {
                let candidates: Vec<u32> = index.candidates(*hash).collect();
                prop_assert!(handles.iter().all(|h| candidates.contains(h)), "{hash:#x}");
                let look = index.look(*hash);
                let only = |h: &u32| look.found && look.handle == *h;
                prop_assert!(look.more || handles.iter().all(only));
                prop_assert!(!look.found || candidates.first() == Some(&look.handle));
            }
        }
    }

    #[test]
    fn it_fills_nearly_all_its_places_before_it_is_full() {
        let mut index = Index::with_room(6 * 1024);
        let mut hash = 1u32;
        let mut held = 0;
        while index.insert(hash, held).is_ok() {
            hash = murmur3::finish(murmur3::step(hash, held), 4);
            held += 1;
        }
        assert!(held as usize > index.buckets.len() * WAYS * 95 / 100, "{held}");
    }

    #[test]
    fn more_of_one_hash_than_there_may_be_are_refused() {
        let mut index = Index::with_room(100);
        for n in 0..MOST_EQUAL {
            assert_eq!(index.insert(7, n as u32), Ok(()));
        }
        assert_eq!(index.insert(7, 99), Err(Refused::Crowded));
        index.add_note(7, 4);
        assert_eq!((index.note(7), index.note(8)), (4, 0));
    }
}
