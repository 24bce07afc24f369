//! A cuckoo hash table that one thread writes while many read.
//!
//! A bucket is one cache line: of three keys with their values where keys have up to 16
//! bytes, else of eight signatures and values, with the keys beside. A key has two
//! buckets; the second is found from the first by the signature alone (partial-key
//! cuckoo hashing). A full bucket makes room by the shortest way there is (breadth
//! first), and the table fills to 95 %.
//!
//! Readers take no lock. A bucket has a version, odd while it is written: a reader
//! that sees the same even versions before and after its search has seen the
//! buckets as they were at one moment, and searches again otherwise. So it never
//! misses a key that is being moved, and never takes a value for another key
//! (optimistic cuckoo hashing: Fan, Andersen and Kaminsky, "MemC3: Compact and
//! Concurrent MemCache with Dumber Caching and Smarter Hashing", NSDI 2013).
//!
//! ```
//! use thalweg_classify::cuckoo::{self, HashKind};
//!
//! let (mut writer, mut reader) = cuckoo::table::<2>(1000, HashKind::Murmur3, 7);
//! writer.insert(&[1, 2], 10);
//! let mut values = [0; cuckoo::STEP];
//! assert_eq!(reader.get_step(&[[1, 2], [3, 4]], &mut values), 0b01);
//! assert_eq!(values[0], 10);
//! ```

mod hash;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod lanes;
mod line;
#[cfg(all(test, loom))]
mod model;
mod search;
mod store;
mod sync;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod zeroed;

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use thalweg_cpu::Isa;

use hash::Hash;
pub use hash::HashKind;
use table::{Core, Table};

/// Keys that one step of a batch lookup processes together.
pub const STEP: usize = 32;

/// The table that readers use now; growing replaces it.
type Shared<const W: usize> = Arc<ArcSwap<Core<W>>>;

/// A table for keys of `W` words of 64 bits (1 to 32), with room for at least
/// `entries` keys: its writer, and its first reader. For keys that packets choose, there is
/// [`secret_table`].
///
/// # Panics
/// When there is no memory for it.
pub fn table<const W: usize>(entries: usize, kind: HashKind, seed: u32) -> (Writer<W>, Reader<W>) {
    table_at(Isa::active(), entries, Hash::new(kind, seed))
}

/// An empty table for keys that packets choose, with room for at least `entries`: hashed by
/// [`HashKind::Nh`] with keys of its own, drawn from the [secret](crate::secret) of the process.
///
/// # Panics
/// As [`table`].
pub fn secret_table<const W: usize>(entries: usize) -> Writer<W> {
    table_at(Isa::active(), entries, Hash::secret()).0
}

/// The bytes of a table that began with room for `first` keys and has grown, key by key, to
/// `entries`. While it grows, it takes half as much again.
pub fn bytes<const W: usize>(first: usize, entries: usize) -> usize {
    let mut buckets = Table::<W>::buckets_for(first);
    let places = |buckets: usize| buckets * store::Form::<W>::WAYS;
    while entries.saturating_sub(1) * 100 >= places(buckets) * table::LOAD {
        buckets = Table::<W>::buckets_for(places(buckets) * 2);
    }
    store::Store::<W>::bytes(buckets)
}

/// As [`table`], with the instructions of `isa` or fewer.
fn table_at<const W: usize>(isa: Isa, entries: usize, hash: Hash) -> (Writer<W>, Reader<W>) {
    const { assert!(W >= 1 && W <= 32, "keys have 8 to 256 bytes") };
    let table = Table::with_room(entries, hash, isa);
    let shared = Arc::new(ArcSwap::new(table.core().clone()));
    (Writer { table, isa, shared: shared.clone() }, Reader { shared: Cache::new(shared) })
}

/// The path of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The key's buckets, each a line of memory, in the order in which they are searched.
    pub buckets: [u32; 2],
    /// Their taken places: a bit for each, the lowest for the first.
    pub taken: [u32; 2],
    /// The bucket that has the key, 0 or 1, and its place there.
    pub found: Option<(usize, usize)>,
}

/// A key finds no place in a table with many free: improbable unless the keys were chosen to
/// collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many keys share their buckets")]
pub struct NoPlace;

/// The writer of a table.
#[derive(Debug)]
pub struct Writer<const W: usize> {
    table: Table<W>,
    isa: Isa,
    shared: Shared<W>,
}

impl<const W: usize> Writer<W> {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many places for entries there are.
    pub fn places(&self) -> usize {
        self.table.core().places()
    }

    /// How many buckets they lie in.
    pub fn buckets(&self) -> usize {
        self.table.core().store().buckets()
    }

    /// The path of a lookup of `key`, for cost models.
    pub fn walk(&self, key: &[u64; W]) -> Walk {
        self.table.core().walk(key)
    }

    /// How many keys it takes before it grows.
    pub fn room(&self) -> usize {
        (self.places() * table::LOAD).div_ceil(100)
    }

    /// Another reader of the table.
    pub fn reader(&self) -> Reader<W> {
        Reader { shared: Cache::new(self.shared.clone()) }
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u64; W]) -> Option<u32> {
        self.table.core().get(key)
    }

    /// Gives `key` the value `value`; returns the one it had. Grows the table when
    /// there is no place; readers use the old one until the new one is complete.
    pub fn insert(&mut self, key: &[u64; W], value: u32) -> Option<u32> {
        loop {
            if let Ok(before) = self.table.insert(key, value) {
                return before;
            }
            self.grow(self.places() * 2);
        }
    }

    /// Makes room for `more` keys, so that the table need not grow for them. A table that grows at
    /// least doubles, so that room made in small steps costs no more than a few times as much as
    /// room made at once.
    pub fn reserve(&mut self, more: usize) {
        let entries = self.len() + more;
        if entries * 100 > self.places() * table::LOAD {
            self.grow(entries.max(self.places() * 2));
        }
    }

    fn grow(&mut self, entries: usize) {
        let mut larger = self.empty_with_room(entries);
        while !self.iter().all(|(key, value)| larger.insert(&key, value).is_ok()) {
            // Rarely the keys do not fit; then twice the room suffices.
            larger = self.empty_with_room(larger.core().places() * 2);
        }
        self.shared.store(larger.core().clone());
        self.table = larger;
    }

    /// As [`insert`](Self::insert), for keys that an attacker may choose: a key that finds no
    /// place though most places are free is refused, so that keys that share their buckets
    /// cannot make the table grow without end.
    ///
    /// # Errors
    /// [`NoPlace`]; the table is as it was.
    pub fn try_insert(&mut self, key: &[u64; W], value: u32) -> Result<Option<u32>, NoPlace> {
        if let Ok(before) = self.table.insert(key, value) {
            return Ok(before);
        }
        if self.len() < self.places() / 4 {
            return Err(NoPlace);
        }
        Ok(self.insert(key, value))
    }

    /// The values of up to [`STEP`] keys, as [`Reader::get_step`] gives them.
    ///
    /// # Panics
    /// When there are more keys.
    #[inline]
    pub fn get_step(&self, keys: &[[u64; W]], values: &mut [u32; STEP]) -> u32 {
        self.table.core().get_step(keys, values)
    }

    /// As [`try_insert`](Self::try_insert), for a table that must not grow.
    ///
    /// # Errors
    /// [`NoPlace`] if the key finds no place; the table is as it was.
    pub fn insert_within(&mut self, key: &[u64; W], value: u32) -> Result<Option<u32>, NoPlace> {
        self.table.insert(key, value).map_err(|table::Full| NoPlace)
    }

    /// The keys in a bucket with their values: at most eight.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn in_bucket(&self, bucket: usize) -> impl Iterator<Item = ([u64; W], u32)> + '_ {
        self.table.in_bucket(bucket)
    }

    /// A small table without keys, with the same hash.
    #[must_use]
    pub fn sibling(&self) -> Self {
        let table = self.empty_with_room(1);
        let shared = Arc::new(ArcSwap::new(table.core().clone()));
        Self { table, isa: self.isa, shared }
    }

    fn empty_with_room(&self, entries: usize) -> Table<W> {
        Table::with_room(entries, *self.table.core().hash(), self.isa)
    }

    /// Removes `key`; returns its value.
    pub fn remove(&mut self, key: &[u64; W]) -> Option<u32> {
        self.table.remove(key)
    }

    /// All keys with their values, in no order that matters.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; W], u32)> + '_ {
        self.table.iter()
    }
}

/// A reader of a table that is being written.
///
/// Keeps the table that it read last; when the table has grown since, that one's
/// memory is freed by the reader's next lookup.
#[derive(Clone, Debug)]
pub struct Reader<const W: usize> {
    shared: Cache<Shared<W>, Arc<Core<W>>>,
}

impl<const W: usize> Reader<W> {
    /// The value of `key`.
    pub fn get(&mut self, key: &[u64; W]) -> Option<u32> {
        self.shared.load().get(key)
    }

    /// The values of `keys`, into the elements of `values` beside them; bit `n % STEP`
    /// of `found[n / STEP]` is set when key `n` was found. The values of missing keys
    /// are unspecified.
    ///
    /// Processes [`STEP`] keys at a time, in passes, and prefetches the memory of the next
    /// ones, so that their loads overlap with the work on the current ones.
    ///
    /// # Panics
    /// When there are not as many values as keys, or one word of bits for each [`STEP`]
    /// begun.
    #[inline]
    pub fn get_many(&mut self, keys: &[[u64; W]], values: &mut [u32], found: &mut [u32]) {
        self.shared.load().get_many(keys, values, found);
    }

    /// As [`get_many`](Self::get_many) for up to [`STEP`] keys; returns the bits.
    ///
    /// # Panics
    /// When there are more keys.
    #[inline]
    pub fn get_step(&mut self, keys: &[[u64; W]], values: &mut [u32; STEP]) -> u32 {
        self.shared.load().get_step(keys, values)
    }
}
