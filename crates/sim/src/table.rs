//! Hash tables at simulated addresses.
//!
//! A bucket is one line: eight signatures of 16 bits, eight numbers of keys, flags.
//! Keys lie elsewhere, in slots of 16 bytes or a multiple. With two choices it is the
//! cuckoo table of `rte_hash`, with one the single-function table of the paper.
//!
//! A key is known by its number; its hash is a random function of the number, which is
//! what a good hash of random bytes is.

use std::collections::VecDeque;

use thalweg_cpu::prefetch;

use crate::machine::{Address, LINE, Layout, Region};

/// Entries of a bucket.
pub const WAYS: usize = 8;
/// Buckets that an insertion visits before it fails.
const SEARCH: usize = 4096;
/// Bytes of a key's slot beside the key.
const SLOT_EXTRA: u64 = 8;

/// An entry whose signature is that of the key looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// In the first bucket or the second.
    pub choice: usize,
    /// Where in it.
    pub way: usize,
    /// The key that lies there.
    pub key: u32,
}

/// The way of a lookup through a table, as far as the key's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The key looked up.
    pub key: u32,
    /// The buckets, first one first; one or two.
    pub buckets: Vec<u64>,
    /// The entries that are compared, in order; the last is the key if it is there.
    pub candidates: Vec<Candidate>,
    /// Whether the last candidate is the key.
    pub found: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub struct HashTable {
    choices: usize,
    seed: u64,
    signatures: Vec<u16>,
    /// Number of the key of each entry; meaningless where the signature is 0.
    keys: Vec<u32>,
    len: u64,
    /// The highest number of a key that was put in, and one.
    numbers: u64,
    key_bytes: u64,
    slot_bytes: u64,
    bucket_lines: Region,
    key_slots: Region,
    /// The table's own data: addresses, sizes, the change counter, the lock.
    metadata: Region,
}

/// Spreads all bits of `n` over all (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

impl HashTable {
    /// An empty table of `entries` places, a power of two, with one or two choices.
    ///
    /// # Panics
    /// When `entries` is none, or less than a bucket's.
    pub fn new(
        entries: u64,
        choices: usize,
        key_bytes: u64,
        seed: u64,
        layout: &mut Layout,
    ) -> Self {
        assert!(entries.is_power_of_two() && entries >= WAYS as u64, "{entries} entries");
        let slot_bytes = (key_bytes + SLOT_EXTRA).next_multiple_of(16);
        Self {
            choices,
            seed: mix(seed),
            signatures: vec![0; entries as usize],
            keys: vec![0; entries as usize],
            len: 0,
            numbers: 0,
            key_bytes,
            slot_bytes,
            bucket_lines: layout.region(entries / WAYS as u64 * LINE),
            key_slots: layout.region((entries + 1) * slot_bytes),
            metadata: layout.region(4 * LINE),
        }
    }

    /// Keys in the table.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of a key.
    pub fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// The line of a bucket.
    pub fn bucket(&self, number: u64) -> Address {
        self.bucket_lines.at(number * LINE)
    }

    /// The slot of a key.
    pub fn slot(&self, key: u32) -> Address {
        self.key_slots.at(u64::from(key) * self.slot_bytes)
    }

    /// Line `n` (0 to 3) of the table's own data.
    pub fn metadata(&self, n: u64) -> Address {
        self.metadata.at(n * LINE)
    }

    /// The seed that is mixed into the hash.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Signatures and key numbers of a bucket; no entry where the signature is 0.
    pub(crate) fn entries(&self, bucket: u64) -> impl Iterator<Item = (u16, u32)> + '_ {
        entries_of(bucket).map(|at| (self.signatures[at], self.keys[at]))
    }

    /// Line `n` of the buckets and, after them, the keys.
    pub fn line(&self, n: u64) -> Address {
        let buckets = self.bucket_lines.bytes() / LINE;
        match n.checked_sub(buckets) {
            Some(n) => self.key_slots.at(n * LINE),
            None => self.bucket_lines.at(n * LINE),
        }
    }

    /// How many lines those are.
    pub fn line_count(&self) -> u64 {
        (self.bucket_lines.bytes() + self.numbers * self.slot_bytes).div_ceil(LINE)
    }

    /// How many buckets there are, a power of two.
    pub(crate) fn buckets(&self) -> u64 {
        (self.signatures.len() / WAYS) as u64
    }

    /// First bucket and signature, which is never 0.
    fn place(&self, key: u32) -> (u64, u16) {
        let hash = mix(u64::from(key).wrapping_add(self.seed));
        let signature = ((hash >> 16) as u16).max(1);
        (hash >> 32 & (self.buckets() - 1), signature)
    }

    /// The other bucket of an entry.
    fn other(&self, bucket: u64, signature: u16) -> u64 {
        (bucket ^ u64::from(signature)) & (self.buckets() - 1)
    }

    /// The buckets of a key, without repetition of the first where it has one choice.
    #[inline]
    pub(crate) fn buckets_of(&self, key: u32) -> [u64; 2] {
        let (first, signature) = self.place(key);
        [first, if self.choices == 2 { self.other(first, signature) } else { first }]
    }

    /// Asks for a bucket as it lies in our own memory.
    #[inline]
    pub(crate) fn prefetch(&self, bucket: u64) {
        let first = bucket as usize * WAYS;
        prefetch::near(&self.signatures, first);
        prefetch::near(&self.keys, first);
    }

    /// The buckets that may have `key`, one or two.
    fn choices_of(&self, key: u32) -> impl Iterator<Item = u64> + use<> {
        self.buckets_of(key).into_iter().take(self.choices)
    }

    fn free(&self, bucket: u64) -> Option<usize> {
        entries_of(bucket).find(|at| self.signatures[*at] == 0)
    }

    /// Puts the next key in: they are numbered from 0. `false`, and nothing changed but
    /// the number used up, when there is no place.
    pub fn insert(&mut self, key: u32) -> bool {
        let Some(room) = self.make_room(key) else { return false };
        room.moves.iter().for_each(|entries| self.copy(*entries));
        self.put(key, room.place);
        true
    }

    /// How to make room for `key`: the moves, in order, and the entry that is free after
    /// them. The shortest way of displacements; `None` if there is none.
    pub(crate) fn make_room(&self, key: u32) -> Option<Room> {
        // Mostly there is room without a search.
        if let Some(place) = self.choices_of(key).find_map(|bucket| self.free(bucket)) {
            return Some(Room { moves: Vec::new(), place });
        }
        let mut reached: Vec<(u64, Option<(usize, usize)>)> =
            self.choices_of(key).map(|bucket| (bucket, None)).collect();
        let mut open: VecDeque<usize> = (0..reached.len()).collect();
        while let Some(at) = open.pop_front() {
            let bucket = reached[at].0;
            if let Some(free) = self.free(bucket) {
                return Some(moves_along(&reached, at, free));
            }
            if self.choices == 1 || reached.len() >= SEARCH {
                continue;
            }
            for entry in entries_of(bucket) {
                let to = self.other(bucket, self.signatures[entry]);
                if !is_on_the_way(&reached, at, to) {
                    open.push_back(reached.len());
                    reached.push((to, Some((at, entry))));
                }
            }
        }
        None
    }

    /// Copies an entry over another.
    pub(crate) fn copy(&mut self, (from, to): (usize, usize)) {
        self.signatures[to] = self.signatures[from];
        self.keys[to] = self.keys[from];
    }

    /// Puts a key into an entry of one of its buckets.
    pub(crate) fn put(&mut self, key: u32, entry: usize) {
        self.signatures[entry] = self.place(key).1;
        self.keys[entry] = key;
        self.len += 1;
        self.numbers = self.numbers.max(u64::from(key) + 1);
    }

    /// The entry of a key.
    pub(crate) fn entry_of(&self, key: u32) -> Option<usize> {
        self.choices_of(key).find_map(|bucket| self.entry_in(bucket, key))
    }

    /// Empties an entry.
    pub(crate) fn clear(&mut self, entry: usize) {
        self.signatures[entry] = 0;
        self.len -= 1;
    }

    /// The entry of a bucket that has a key.
    pub(crate) fn entry_in(&self, bucket: u64, key: u32) -> Option<usize> {
        let signature = self.place(key).1;
        entries_of(bucket).find(|at| self.signatures[*at] == signature && self.keys[*at] == key)
    }

    /// The path of a lookup of `key`.
    pub fn walk(&self, key: u32, walk: &mut Walk) {
        let (first, signature) = self.place(key);
        walk.key = key;
        walk.buckets.clear();
        walk.candidates.clear();
        walk.found = false;
        walk.buckets.push(first);
        if self.choices == 2 {
            walk.buckets.push(self.other(first, signature));
        }
        for choice in 0..walk.buckets.len() {
            for (way, entry) in entries_of(walk.buckets[choice]).enumerate() {
                if self.signatures[entry] == signature {
                    let candidate = Candidate { choice, way, key: self.keys[entry] };
                    walk.candidates.push(candidate);
                    if candidate.key == key {
                        walk.found = true;
                        return;
                    }
                }
            }
        }
    }
}

/// How room is made for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Entries that are copied, from and to, in order: each is overwritten by the next.
    pub(crate) moves: Vec<(usize, usize)>,
    /// The entry for the key.
    pub(crate) place: usize,
}

fn moves_along(reached: &[(u64, Option<(usize, usize)>)], mut at: usize, mut free: usize) -> Room {
    let mut moves = Vec::new();
    while let Some((before, entry)) = reached[at].1 {
        moves.push((entry, free));
        (at, free) = (before, entry);
    }
    Room { moves, place: free }
}

/// The bucket of an entry.
pub(crate) fn bucket_of(entry: usize) -> u64 {
    (entry / WAYS) as u64
}

/// The entries of a bucket.
fn entries_of(bucket: u64) -> std::ops::Range<usize> {
    let first = bucket as usize * WAYS;
    first..first + WAYS
}

fn is_on_the_way(reached: &[(u64, Option<(usize, usize)>)], mut at: usize, bucket: u64) -> bool {
    loop {
        if reached[at].0 == bucket {
            return true;
        }
        let Some((before, _)) = reached[at].1 else { return false };
        at = before;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_in_is_found_and_nothing_else(
            entries in prop::sample::select(vec![8u64, 64, 512]), choices in 1usize..3,
            seed in any::<u64>(), load in 1u64..96,
        ) {
            let mut table = HashTable::new(entries, choices, 16, seed, &mut Layout::default());
            let inside: HashSet<u32> =
                (0..(entries * load / 100) as u32).filter(|key| table.insert(*key)).collect();
            prop_assert_eq!(table.len(), inside.len() as u64);
            let mut walk = Walk::default();
            for key in 0..(2 * entries) as u32 {
                table.walk(key, &mut walk);
                prop_assert_eq!(walk.found, inside.contains(&key), "{}", key);
                prop_assert_eq!(walk.buckets.len(), choices);
                let last = walk.candidates.last();
                prop_assert!(!walk.found || last.is_some_and(|c| c.key == key));
            }
        }
    }

    #[test]
    fn two_choices_fill_nearly_all_places_and_one_does_not() {
        let filled = |choices| {
            let mut table = HashTable::new(1 << 14, choices, 16, 1, &mut Layout::default());
            (0..1 << 14).take_while(|key| table.insert(*key)).count() as f64 / f64::from(1 << 14)
        };
        assert!(filled(2) > 0.95, "{}", filled(2));
        assert!(filled(1) < 0.4, "{}", filled(1));
    }
}
