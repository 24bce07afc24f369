//! IPv6 longest-prefix match: a table of the first 16 bits, groups of 256 entries for each 8 bits
//! up to the 64th ([`groups`]), and compressed tries after that ([`deep`]).
//!
//! `docs/adr/0001-ipv6-lookup.md` explains the choice. In short: a lookup waits for the cache lines
//! on its path that no cache holds. So the groups are small, and many addresses descend side by
//! side ([`lanes`]).
//!
//! **Updates** are read-copy-update: everything below one /16 is an immutable chunk. A change
//! rebuilds the chunks that it affects from the [`PrefixStore`] and publishes a new table over
//! new and old chunks; readers that hold the old one finish on it. The writer frees it after them, so
//! that no packet waits for that.

mod arena;
mod deep;
mod groups;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache};
use thalweg_cpu::Isa;
use thalweg_cpu::prefetch;
use thalweg_packet::BATCH;

use super::prefix::{Prefix, PrefixStore};
use super::table::HopId;
use arena::{Arena, Room};
use deep::Deep;
pub(super) use groups::MAX_ROUTES;
use groups::{Chunk, Entry};

/// Address bits that the top table resolves.
const TOP: u8 = 16;
/// Address bits that a group resolves.
const STRIDE: u8 = 8;
/// Address bits that the table and the groups resolve together.
const GROUPED: u8 = 64;

/// A prefix and its next hop.
type Route = (Prefix<u128>, HopId);

#[derive(Debug)]
pub(super) struct Trie6 {
    root: Arc<ArcSwap<Root>>,
    /// Former roots that readers may still use.
    retired: Mutex<Vec<Arc<Root>>>,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<lanes::Lanes>,
}

/// Looks addresses up for one thread, and caches the root that it used last: loading the root anew
/// for each batch would wait until all earlier loads complete.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    root: Cache<Arc<ArcSwap<Root>>, Arc<Root>>,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<lanes::Lanes>,
}

impl Reader {
    /// Looks up `addresses` into `hops`, which is of the same length.
    #[inline]
    pub(super) fn lookup_batch(&mut self, addresses: &[u128], hops: &mut [HopId]) {
        let root = self.root.load();
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = self.lanes {
            return lanes.lookup(root, addresses, hops);
        }
        for (addresses, hops) in addresses.chunks(BATCH).zip(hops.chunks_mut(BATCH)) {
            root.lookup_batch(addresses, hops);
        }
    }
}

#[derive(Clone, Debug)]
struct Root {
    top: Box<[Entry]>,
    arena: Arc<Arena>,
    /// The chunks that top entries lead to, by /16.
    chunks: BTreeMap<u16, Arc<Settled>>,
}

/// A chunk in its place in the arena.
#[derive(Debug)]
struct Settled {
    /// The room of its groups.
    _room: Room,
    deep: Deep,
}

/// The descent of an address: its next entry, which has been prefetched.
#[derive(Clone, Copy)]
struct Way {
    /// The group of that entry, and the slot there.
    group: Entry,
    slot: usize,
}

impl Way {
    /// Moves on to a slot of a group.
    #[inline]
    fn on(group: Entry, words: &[AtomicU32], slot: usize) -> Self {
        prefetch::near(words, group.word_of(slot));
        Self { group, slot }
    }
}

/// Splits `routes`, whose addresses share `depth` bits, by the next 8 bits: the next hop for each
/// value of these bits, and the longer routes of the values that have some.
fn split(depth: u8, routes: &[Route], base: HopId) -> (Vec<HopId>, Vec<(usize, &[Route])>) {
    let (mut hops, mut below) = (vec![base; 1 << STRIDE], Vec::new());
    let mut rest = routes;
    // Routes are in order, so the next hop of a slot is final before the first of its longer
    // routes.
    while let [(prefix, hop), tail @ ..] = rest {
        let slot = slot_of(prefix.first(), depth, STRIDE);
        if prefix.len() <= depth + STRIDE {
            hops[slot..=slot_of(prefix.last(), depth, STRIDE)].fill(*hop);
            rest = tail;
        } else {
            let n = rest.partition_point(|(p, _)| slot_of(p.first(), depth, STRIDE) <= slot);
            below.push((slot, &rest[..n]));
            rest = &rest[n..];
        }
    }
    (hops, below)
}

/// The `bits` bits of `address` after the first `depth`.
#[inline]
fn slot_of(address: u128, depth: u8, bits: u8) -> usize {
    (address >> (128 - bits - depth)) as usize & ((1 << bits) - 1)
}

impl Trie6 {
    pub(super) fn new() -> Self {
        Self::at(Isa::active())
    }

    /// A trie that uses the vectors of a level.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "no vectors"))]
    fn at(isa: Isa) -> Self {
        Self {
            root: Arc::new(ArcSwap::from_pointee(Root::new())),
            retired: Mutex::default(),
            #[cfg(target_arch = "x86_64")]
            lanes: lanes::Lanes::at(isa),
        }
    }

    pub(super) fn reader(&self) -> Reader {
        Reader {
            root: Cache::new(Arc::clone(&self.root)),
            #[cfg(target_arch = "x86_64")]
            lanes: self.lanes,
        }
    }

    /// Updates each of `changed`, and all prefixes within it, from `store`, all
    /// at once. `changed` is in order; `store` has at most [`MAX_ROUTES`].
    pub(super) fn rebuild(&self, store: &PrefixStore<u128>, changed: &[Prefix<u128>]) {
        let mut root = Root::clone(&self.root.load());
        let mut done: Option<Prefix<u128>> = None;
        for prefix in changed {
            let within = prefix.at_most(TOP);
            if done.is_some_and(|done| done.contains(within.first())) {
                continue;
            }
            let chunks = root.build(store, within);
            if !root.settle(chunks) {
                root = Root::of(store);
                break;
            }
            done = Some(within);
        }
        let old = self.root.swap(Arc::new(root));
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(old);
        self.sweep();
    }

    /// Frees the former roots that no reader uses any more.
    pub(super) fn sweep(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|root| Arc::strong_count(root) > 1);
    }
}

impl Root {
    /// A root without routes, and without room for them.
    fn new() -> Self {
        Self {
            top: vec![Entry::of_hop(HopId::NO_ROUTE); 1 << TOP].into(),
            arena: Arena::new(0),
            chunks: BTreeMap::new(),
        }
    }

    /// A root with the routes of `store`, and with room for half as many more.
    fn of(store: &PrefixStore<u128>) -> Self {
        let mut root = Self::new();
        let chunks = root.build(store, Prefix::holding(0, 0));
        let words: usize = chunks.iter().map(|(_, chunk)| chunk.len()).sum();
        root.arena = Arena::new(words + words / 2);
        assert!(root.settle(chunks), "the arena is as large as its chunks");
        root
    }

    fn lookup(&self, address: u128) -> HopId {
        let top = slot_of(address, 0, TOP);
        let (mut entry, mut depth) = (self.top[top], TOP);
        while !entry.is_hop() {
            if depth == GROUPED {
                return self.chunks[&(top as u16)].deep.lookup(entry.number(), depth, address);
            }
            entry = entry.step(self.arena.words(), slot_of(address, depth, STRIDE));
            depth += STRIDE;
        }
        entry.hop()
    }

    /// Looks up at most a batch of addresses, which descend together, level by level, so that
    /// their loads overlap.
    fn lookup_batch(&self, addresses: &[u128], hops: &mut [HopId]) {
        let words = self.arena.words();
        let mut ways = [Way { group: Entry(0), slot: 0 }; BATCH];
        let (mut lanes, mut left) = ([0u8; BATCH], 0);
        for (n, (address, hop)) in addresses.iter().zip(&mut *hops).enumerate() {
            let entry = self.top[slot_of(*address, 0, TOP)];
            *hop = entry.hop();
            if !entry.is_hop() {
                ways[n] = Way::on(entry, words, slot_of(*address, TOP, STRIDE));
                lanes[left] = n as u8;
                left += 1;
            }
        }
        let mut depth = TOP + STRIDE;
        while left > 0 {
            let (level, going) = (lanes, left);
            left = 0;
            for n in level[..going].iter().map(|n| usize::from(*n) % BATCH) {
                let entry = ways[n].group.step(words, ways[n].slot);
                // From the upper half of the address, in which the groups end.
                let upper = (addresses[n] >> 64) as u64;
                let slot = upper >> (GROUPED - STRIDE).saturating_sub(depth);
                ways[n] = Way::on(entry, words, slot as usize & ((1 << STRIDE) - 1));
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

    /// Sets the top entries within `within`, of at most 16 bits, to next hops, and builds the
    /// chunks that some of them have to lead to instead.
    fn build(&mut self, store: &PrefixStore<u128>, within: Prefix<u128>) -> Vec<(u16, Chunk)> {
        let top_of = |address: u128| slot_of(address, 0, TOP);
        let range = |prefix: Prefix<u128>| top_of(prefix.first())..=top_of(prefix.last());
        self.top[range(within)].fill(Entry::of_hop(store.around(within)));
        let gone = top_of(within.first()) as u16..=top_of(within.last()) as u16;
        while let Some((top, _)) = self.chunks.range(gone.clone()).next() {
            let top = *top;
            self.chunks.remove(&top);
        }
        let mut routes = store.within(within).peekable();
        let (mut below, mut chunks) = (Vec::new(), Vec::new());
        while let Some((prefix, hop)) = routes.next() {
            if prefix.len() <= TOP {
                self.top[range(prefix)].fill(Entry::of_hop(hop));
                continue;
            }
            let slash16 = prefix.at_most(TOP);
            below.clear();
            below.push((prefix, hop));
            while let Some(next) = routes.next_if(|(p, _)| slash16.contains(p.first())) {
                below.push(next);
            }
            let top = top_of(prefix.first());
            chunks.push((top as u16, Chunk::build(TOP, &below, self.top[top].hop())));
        }
        chunks
    }

    /// Places chunks in the arena; returns whether there is room for all.
    fn settle(&mut self, chunks: Vec<(u16, Chunk)>) -> bool {
        for (top, chunk) in chunks {
            let Some(room) = self.arena.room_for(chunk.len()) else { return false };
            let (entry, deep) = chunk.settle(&room);
            self.top[usize::from(top)] = entry;
            self.chunks.insert(top, Arc::new(Settled { _room: room, deep }));
        }
        true
    }
}
