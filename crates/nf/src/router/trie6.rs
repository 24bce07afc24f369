//! IPv6 longest-prefix match: a table of the first 16 bits, tables of the next 16, groups of 256
//! entries for each 8 bits up to the 64th, and compressed tries behind ([`deep`]).
//!
//! Why this and not another is in `docs/adr/0001-ipv6-lookup.md`. In short: what an address
//! waits for are the lines of memory on its way that no cache has. So the way is short where
//! the prefixes of the Internet crowd (at /32, /40, /44 and /48), groups without groups below
//! them have entries of half the size, and many addresses go down side by side ([`lanes`]).
//!
//! **Updates** are read-copy-update: what lies below one /16 is an immutable chunk. A change
//! builds the chunks it touches anew from the [`PrefixStore`] and publishes a new table over
//! new and old chunks; readers that hold the old one finish on it.

mod deep;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use thalweg_classify::memory::Zeroed;
use thalweg_classify::prefetch;
use thalweg_packet::{BATCH, Isa};

use super::prefix::{Prefix, PrefixStore};
use super::table::HopId;
use deep::Deep;

/// Bits that the top table resolves, and a chunk's table.
const TOP: u8 = 16;
/// Bits that a group resolves.
const STRIDE: u8 = 8;
/// Bits that tables and groups resolve.
const GROUPED: u8 = 64;
/// From so many routes on, a chunk has a table of 256 KiB: at most 1 KiB for a route.
const WIDE_FROM: usize = 256;
/// Flag of a top entry that names a chunk; other entries are next hops.
const CHUNK: u32 = 1 << 31;
/// Flag of a place in memory, which no place has of itself.
const TABLE: u64 = 1 << 63;
/// Words of the unit in which groups are placed: a group whose entries are next hops alone.
const UNIT: usize = 128;

/// A prefix and where its addresses go.
type Route = (Prefix<u128>, HopId);

#[derive(Debug)]
pub(super) struct Trie6 {
    root: ArcSwap<Root>,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<lanes::Lanes>,
}

#[derive(Clone, Debug)]
struct Root {
    top: Box<[u32]>,
    chunks: Vec<Arc<Chunk>>,
    /// The top table for vectors: where the table of a chunk is in memory, with [`TABLE`]; for
    /// other entries the same as in `top`, but that no chunk is named.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for vectors"))]
    tables: Box<[u64]>,
    /// Places in `chunks` that no entry names.
    free: Vec<u32>,
}

/// Where to: a next hop, a group of the 8 bits behind, or, where groups end, a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    /// It is no next hop.
    const GROUP: u32 = 1 << 31;
    /// The group's entries are next hops of 16 bits.
    const LEAF: u32 = 1 << 30;
    /// The group's place, in units; or the node's number.
    const PLACE: u32 = Self::LEAF - 1;

    /// What is no next hop.
    fn leading_to(place: usize, kind: u32) -> Self {
        assert!(place <= Self::PLACE as usize, "a chunk has less than 2^30 groups");
        Self(place as u32 | Self::GROUP | kind)
    }

    fn place(self) -> usize {
        (self.0 & Self::PLACE) as usize
    }

    fn is_hop(self) -> bool {
        self.0 & Self::GROUP == 0
    }

    fn hop(self) -> HopId {
        HopId(self.0 as u16)
    }

    /// Whether its group is a leaf: 1 or 0.
    fn leaf(self) -> u32 {
        self.0 >> Self::LEAF.trailing_zeros() & 1
    }

    /// Where in the words of its chunk its group's entry for a slot is.
    #[inline]
    fn word_of(self, slot: usize) -> usize {
        self.place() * UNIT + (slot >> self.leaf())
    }

    /// The entry of its group for a slot, in the words of its chunk. No branch: whether a group is
    /// a leaf cannot be foreseen, and a wrong guess would wait for the load.
    #[inline]
    fn step(self, words: &[u32], slot: usize) -> Self {
        let leaf = self.leaf();
        let word = words[self.word_of(slot)] >> (16 * (slot as u32 & leaf));
        Self(word & (0xffff | leaf.wrapping_sub(1)))
    }
}

/// An address on its way down: the next entry, which has been asked for.
#[derive(Clone, Copy)]
struct Way<'a> {
    words: &'a [u32],
    /// The group it lies in, and the slot there.
    group: Entry,
    slot: usize,
}

impl<'a> Way<'a> {
    const NOWHERE: Self = Self { words: &[], group: Entry(0), slot: 0 };

    /// To a slot of the table that a chunk's words begin with.
    #[inline]
    fn into_table(words: &'a [u32], slot: usize) -> Self {
        prefetch::near(words, slot);
        Self { words, group: Entry(0), slot }
    }

    /// The entry, and on to a slot of the group that it may name.
    #[inline]
    fn step(&mut self, slot: usize) -> Entry {
        let entry = self.group.step(self.words, self.slot);
        (self.group, self.slot) = (entry, slot);
        prefetch::near(self.words, entry.word_of(slot));
        entry
    }
}

/// What lies below one /16: a table of 65,536 entries or none, and groups.
#[derive(Debug)]
struct Chunk {
    words: Words,
    /// Whether the words begin with a table, whose place is that of a group.
    is_wide: bool,
    first: Entry,
    deep: Deep,
}

/// Words on huge pages, where there are many; where there are few, and perhaps many chunks, not in
/// a mapping of their own.
#[derive(Debug)]
enum Words {
    Few(Box<[u32]>),
    Many(Zeroed<u32>),
}

impl Words {
    /// Bytes of a huge page.
    const HUGE: usize = 2 << 20;

    fn new(words: Vec<u32>) -> Self {
        if size_of_val(&words[..]) >= Self::HUGE
            && let Ok(mut many) = Zeroed::new(words.len())
        {
            many.copy_from_slice(&words);
            return Self::Many(many);
        }
        Self::Few(words.into())
    }
}

impl Deref for Words {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        match self {
            Self::Few(words) => words,
            Self::Many(words) => words,
        }
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::build(&[], HopId::NO_ROUTE)
    }
}

impl Chunk {
    /// The table and groups of `routes` (in order, all longer than 16 bits, all in one /16);
    /// other addresses go to `base`.
    fn build(routes: &[Route], base: HopId) -> Self {
        let mut builder = Builder::default();
        let is_wide = routes.len() >= WIDE_FROM;
        let first = builder.fill(TOP, if is_wide { TOP } else { STRIDE }, routes, base);
        // Vectors read the last entry, which may be half a word, as a whole one.
        builder.words.push(0);
        Self { words: Words::new(builder.words), is_wide, first, deep: builder.deep }
    }

    fn lookup(&self, address: u128) -> HopId {
        let (mut entry, mut depth) = (self.first, TOP);
        if self.is_wide {
            entry = Entry(self.words[slot_of(address, TOP, TOP)]);
            depth += TOP;
        }
        while !entry.is_hop() {
            if depth == GROUPED {
                return self.deep.lookup(entry.place(), depth, address);
            }
            entry = entry.step(&self.words, slot_of(address, depth, STRIDE));
            depth += STRIDE;
        }
        entry.hop()
    }
}

/// A chunk in the making.
#[derive(Default)]
struct Builder {
    words: Vec<u32>,
    deep: Deep,
}

impl Builder {
    /// Adds entries for the `bits` bits behind `depth`, from `routes` whose addresses share
    /// those before, and what lies below. Returns the entry that names them.
    fn fill(&mut self, depth: u8, bits: u8, routes: &[Route], base: HopId) -> Entry {
        let (hops, below) = split(depth, bits, routes, base);
        let first = self.words.len();
        if below.is_empty() && bits == STRIDE {
            let pair = |[low, high]: &[HopId; 2]| u32::from(high.0) << 16 | u32::from(low.0);
            self.words.extend(hops.as_chunks().0.iter().map(pair));
            return Entry::leading_to(first / UNIT, Entry::LEAF);
        }
        self.words.extend(hops.iter().map(|hop| u32::from(hop.0)));
        for (slot, routes) in below {
            let (depth, base) = (depth + bits, hops[slot]);
            let entry = if depth == GROUPED {
                Entry::leading_to(self.deep.add(depth, routes, base), 0)
            } else {
                self.fill(depth, STRIDE, routes, base)
            };
            self.words[first + slot] = entry.0;
        }
        Entry::leading_to(first / UNIT, 0)
    }
}

/// What `routes`, whose addresses share `depth` bits, say of the `bits` bits behind: the next hop
/// for each value of them, and the longer routes of those values that have some.
fn split(
    depth: u8,
    bits: u8,
    routes: &[Route],
    base: HopId,
) -> (Vec<HopId>, Vec<(usize, &[Route])>) {
    let (mut hops, mut below) = (vec![base; 1 << bits], Vec::new());
    let mut rest = routes;
    // Routes are in order, so when the first of a slot's longer routes comes, its next hop is
    // settled.
    while let [(prefix, hop), tail @ ..] = rest {
        let slot = slot_of(prefix.first(), depth, bits);
        if prefix.len() <= depth + bits {
            hops[slot..=slot_of(prefix.last(), depth, bits)].fill(*hop);
            rest = tail;
        } else {
            let n = rest.partition_point(|(p, _)| slot_of(p.first(), depth, bits) <= slot);
            below.push((slot, &rest[..n]));
            rest = &rest[n..];
        }
    }
    (hops, below)
}

/// The `bits` bits of `address` behind `depth`.
#[inline]
fn slot_of(address: u128, depth: u8, bits: u8) -> usize {
    (address >> (128 - bits - depth)) as usize & ((1 << bits) - 1)
}

impl Trie6 {
    pub(super) fn new() -> Self {
        Self::at(Isa::active())
    }

    /// With the vectors of a level.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "no vectors"))]
    fn at(isa: Isa) -> Self {
        let top = vec![u32::from(HopId::NO_ROUTE.0); 1 << TOP].into();
        let tables = vec![u64::from(HopId::NO_ROUTE.0); 1 << TOP].into();
        let root = Root { top, tables, chunks: Vec::new(), free: Vec::new() };
        Self {
            root: ArcSwap::from_pointee(root),
            #[cfg(target_arch = "x86_64")]
            lanes: lanes::Lanes::at(isa),
        }
    }

    /// Looks up `addresses` into `hops`, which is of the same length.
    pub(super) fn lookup_batch(&self, addresses: &[u128], hops: &mut [HopId]) {
        let root = self.root.load();
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = self.lanes {
            return lanes.lookup(&root, addresses, hops);
        }
        for (addresses, hops) in addresses.chunks(BATCH).zip(hops.chunks_mut(BATCH)) {
            root.lookup_batch(addresses, hops);
        }
    }

    /// Makes lookups of each of `changed`, and all prefixes within it, what
    /// `store` says: all at once. `changed` is in order.
    pub(super) fn rebuild(&self, store: &PrefixStore<u128>, changed: &[Prefix<u128>]) {
        let mut root = Root::clone(&self.root.load());
        let mut done: Option<Prefix<u128>> = None;
        for prefix in changed {
            let within = prefix.at_most(TOP);
            if !done.is_some_and(|done| done.contains(within.first())) {
                root.rebuild(store, within);
                done = Some(within);
            }
        }
        self.root.store(Arc::new(root));
    }
}

impl Root {
    /// The next hop of an address, or the chunk that knows it.
    #[inline]
    fn top_of(&self, address: u128) -> Result<HopId, &Chunk> {
        let entry = self.top[slot_of(address, 0, TOP)];
        if entry & CHUNK == 0 {
            Ok(HopId(entry as u16))
        } else {
            Err(&self.chunks[(entry & !CHUNK) as usize])
        }
    }

    fn lookup(&self, address: u128) -> HopId {
        self.top_of(address).unwrap_or_else(|chunk| chunk.lookup(address))
    }

    /// Looks up at most a batch of addresses, which go down together, level by level, so that
    /// their loads overlap.
    fn lookup_batch(&self, addresses: &[u128], hops: &mut [HopId]) {
        let mut ways = [Way::NOWHERE; BATCH];
        let (mut lanes, mut left) = ([0u8; BATCH], 0);
        for (n, (address, hop)) in addresses.iter().zip(&mut *hops).enumerate() {
            match self.top_of(*address) {
                Ok(known) => *hop = known,
                Err(chunk) if chunk.is_wide => {
                    ways[n] = Way::into_table(&chunk.words, slot_of(*address, TOP, TOP));
                    lanes[left] = n as u8;
                    left += 1;
                }
                Err(chunk) => *hop = chunk.lookup(*address),
            }
        }
        let mut depth = 2 * TOP;
        while left > 0 {
            let (level, going) = (lanes, left);
            left = 0;
            for n in level[..going].iter().map(|n| usize::from(*n) % BATCH) {
                // Of the upper half, in which groups end.
                let upper = (addresses[n] >> 64) as u64;
                let slot = upper >> (GROUPED - STRIDE).saturating_sub(depth);
                let entry = ways[n].step(slot as usize & ((1 << STRIDE) - 1));
                hops[n] = entry.hop();
                lanes[left % BATCH] = n as u8;
                left += usize::from(!entry.is_hop());
            }
            if depth == GROUPED {
                break;
            }
            depth += STRIDE;
        }
        for n in lanes[..left].iter().map(|n| usize::from(*n) % BATCH) {
            hops[n] = self.lookup(addresses[n]);
        }
    }

    /// Builds the top entries within `within`, of at most 16 bits, anew.
    fn rebuild(&mut self, store: &PrefixStore<u128>, within: Prefix<u128>) {
        let top_of = |address: u128| slot_of(address, 0, TOP);
        let range = |prefix: Prefix<u128>| top_of(prefix.first())..=top_of(prefix.last());
        let base = u32::from(store.around(within).0);
        for entry in &mut self.top[range(within)] {
            if *entry & CHUNK != 0 {
                let place = *entry & !CHUNK;
                self.chunks[place as usize] = Arc::default();
                self.free.push(place);
            }
            *entry = base;
        }
        let mut routes = store.within(within).peekable();
        let mut below = Vec::new();
        while let Some((prefix, hop)) = routes.next() {
            if prefix.len() <= TOP {
                self.top[range(prefix)].fill(u32::from(hop.0));
                continue;
            }
            let slash16 = prefix.at_most(TOP);
            below.clear();
            below.push((prefix, hop));
            while let Some(next) = routes.next_if(|(p, _)| slash16.contains(p.first())) {
                below.push(next);
            }
            let entry = top_of(prefix.first());
            let chunk = Chunk::build(&below, HopId(self.top[entry] as u16));
            self.top[entry] = CHUNK | self.keep(chunk);
        }
        for entry in range(within) {
            self.tables[entry] = self.table_of(self.top[entry]);
        }
    }

    /// What vectors are told of an entry of the top table.
    fn table_of(&self, entry: u32) -> u64 {
        if entry & CHUNK == 0 {
            return entry.into();
        }
        let chunk = &self.chunks[(entry & !CHUNK) as usize];
        let place = chunk.words.as_ptr().expose_provenance() as u64;
        if chunk.is_wide { TABLE | place } else { CHUNK.into() }
    }

    fn keep(&mut self, chunk: Chunk) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(Arc::default());
            self.chunks.len() as u32 - 1
        });
        self.chunks[place as usize] = Arc::new(chunk);
        place
    }
}
