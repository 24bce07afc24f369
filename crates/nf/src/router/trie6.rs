//! IPv6 longest-prefix match: a table of the first 16 bits over compressed
//! multibit tries of 8-bit strides.
//!
//! Why this and not another is in `docs/adr/0001-ipv6-lookup.md`. In short: the
//! prefixes of the IPv6 Internet crowd at /32, /40, /44 and /48 within few
//! /16, so that the top table and three or four nodes lead to most of them, and
//! the compressed nodes of a full table take 3.2 MiB.
//!
//! A node covers 8 bits. For each of its 256 slots there is either a child node
//! or a next hop; children lie together, and of equal neighbouring next hops
//! only the first is kept, as in Poptrie (Asai, Ohara: SIGCOMM 2015). The place
//! of a child or next hop is the number of set bits before its slot.
//!
//! **Updates** are read-copy-update: the trie below one /16 is an immutable
//! chunk. A change builds the chunks it touches anew from the [`PrefixStore`]
//! and publishes a new table over new and old chunks; readers that hold the old
//! one finish on it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use thalweg_packet::{BATCH, Lanes};

use super::prefix::{Prefix, PrefixStore};
use super::table::HopId;

/// Bits that the top table resolves.
const TOP: u8 = 16;
/// Bits that a node resolves.
const STRIDE: u8 = 8;
/// Flag of a top entry that names a chunk; other entries are next hops.
const CHUNK: u32 = 1 << 31;

/// A prefix and where its addresses go.
type Route = (Prefix<u128>, HopId);

#[derive(Debug)]
pub(super) struct Trie6 {
    root: ArcSwap<Root>,
}

#[derive(Clone, Debug)]
struct Root {
    top: Box<[u32]>,
    chunks: Vec<Arc<Chunk>>,
    /// Places in `chunks` that no entry names.
    free: Vec<u32>,
}

/// The trie below one /16; node 0 is its root.
#[derive(Debug, Default)]
struct Chunk {
    nodes: Vec<Node>,
    hops: Vec<HopId>,
}

/// 256 slots, each a child or a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Slots that have a child.
    children: Bits,
    /// Slots whose next hop differs from that of the slot without child before.
    runs: Bits,
    /// Place of the first child in the chunk's nodes.
    first_child: u32,
    /// Place of the first next hop in the chunk's hops.
    first_hop: u32,
}

/// A set of slots, with the number of set bits before each word.
#[derive(Clone, Copy, Debug, Default)]
struct Bits {
    words: [u64; 4],
    before: [u8; 4],
}

impl Bits {
    fn insert(&mut self, slot: u8) {
        self.words[slot as usize >> 6] |= 1 << (slot & 63);
    }

    /// Counts the bits before each word; to be called after the last `insert`.
    /// Before the last word there are at most 192.
    fn count(&mut self) {
        let mut sum = 0;
        for (before, word) in self.before.iter_mut().zip(self.words) {
            *before = sum as u8;
            sum += word.count_ones();
        }
    }

    #[inline]
    fn contains(&self, slot: u8) -> bool {
        self.words[slot as usize >> 6] >> (slot & 63) & 1 == 1
    }

    /// How many slots up to and including `slot` are set.
    #[inline]
    fn rank(&self, slot: u8) -> u32 {
        let word = slot as usize >> 6;
        let up_to = self.words[word] & (u64::MAX >> (63 - (slot & 63)));
        u32::from(self.before[word]) + up_to.count_ones()
    }
}

impl Chunk {
    /// The trie of `routes` (in order, all longer than 16 bits, all in one
    /// /16); other addresses go to `base`.
    fn build(routes: &[Route], base: HopId) -> Self {
        let mut chunk = Self { nodes: vec![Node::default()], hops: Vec::new() };
        chunk.fill(0, TOP, routes, base);
        chunk
    }

    /// Fills `node`, whose addresses share `depth` bits, from `routes`.
    fn fill(&mut self, node: usize, depth: u8, routes: &[Route], base: HopId) {
        let mut slots = [base; 256];
        let mut built = Node::default();
        // Each child's slot and its routes. Routes are in order, so when the
        // first of a slot's longer routes comes, its next hop is settled.
        let mut below: Vec<(u8, &[Route])> = Vec::new();
        let mut rest = routes;
        while let [(prefix, hop), tail @ ..] = rest {
            let slot = slot_of(prefix.first(), depth);
            if prefix.len() <= depth + STRIDE {
                slots[slot as usize..=slot_of(prefix.last(), depth) as usize].fill(*hop);
                rest = tail;
            } else {
                let n = rest.partition_point(|(p, _)| slot_of(p.first(), depth) <= slot);
                below.push((slot, &rest[..n]));
                built.children.insert(slot);
                rest = &rest[n..];
            }
        }
        built.children.count();
        built.first_child = self.nodes.len() as u32;
        self.compress(&slots, &mut built);
        self.nodes[node] = built;
        self.nodes.resize(self.nodes.len() + below.len(), Node::default());
        for (child, (slot, routes)) in (built.first_child as usize..).zip(below) {
            self.fill(child, depth + STRIDE, routes, slots[slot as usize]);
        }
    }

    /// Appends the next hops of the slots without child, equal neighbours once.
    fn compress(&mut self, slots: &[HopId; 256], node: &mut Node) {
        node.first_hop = self.hops.len() as u32;
        let mut last = None;
        for (slot, hop) in (0..=u8::MAX).zip(slots) {
            if !node.children.contains(slot) && last != Some(*hop) {
                node.runs.insert(slot);
                self.hops.push(*hop);
                last = Some(*hop);
            }
        }
        node.runs.count();
    }

    /// One step down from `node` at `slot`.
    #[inline]
    fn step(&self, node: u32, slot: u8) -> Step {
        let node = &self.nodes[node as usize];
        if node.children.contains(slot) {
            Step::Down(node.first_child + node.children.rank(slot) - 1)
        } else {
            Step::Found(self.hops[(node.first_hop + node.runs.rank(slot) - 1) as usize])
        }
    }
}

enum Step {
    Down(u32),
    Found(HopId),
}

/// The slot of `address` in a node whose addresses share `depth` bits.
#[inline]
fn slot_of(address: u128, depth: u8) -> u8 {
    (address >> (128 - STRIDE - depth)) as u8
}

impl Trie6 {
    pub(super) fn new() -> Self {
        let top = vec![u32::from(HopId::NO_ROUTE.0); 1 << TOP].into();
        Self { root: ArcSwap::from_pointee(Root { top, chunks: Vec::new(), free: Vec::new() }) }
    }

    /// Looks up `addresses`, at most a batch, into `hops`, which is of the same
    /// length. All go down together, level by level, so that their loads overlap.
    pub(super) fn lookup_batch(&self, addresses: &[u128], hops: &mut [HopId]) {
        let root = self.root.load();
        let mut nodes = [0u32; BATCH];
        let mut chunks: [Option<&Chunk>; BATCH] = [None; BATCH];
        let mut active = Lanes::NONE;
        for (i, (address, hop)) in addresses.iter().zip(hops.iter_mut()).enumerate() {
            let entry = root.top[(address >> (128 - TOP)) as usize];
            if entry & CHUNK == 0 {
                *hop = HopId(entry as u16);
            } else {
                chunks[i] = Some(&root.chunks[(entry & !CHUNK) as usize]);
                active.insert(i);
            }
        }
        let mut depth = TOP;
        while !active.is_empty() {
            for i in active {
                let Some(chunk) = chunks[i] else { continue };
                match chunk.step(nodes[i], slot_of(addresses[i], depth)) {
                    Step::Down(node) => nodes[i] = node,
                    Step::Found(hop) => {
                        hops[i] = hop;
                        active.remove(i);
                    }
                }
            }
            depth += STRIDE;
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
    /// Builds the top entries within `within`, of at most 16 bits, anew.
    fn rebuild(&mut self, store: &PrefixStore<u128>, within: Prefix<u128>) {
        let top_of = |address: u128| (address >> (128 - TOP)) as usize;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_over_the_words() {
        let mut bits = Bits::default();
        let set = [0u8, 1, 63, 64, 127, 128, 200, 255];
        for slot in set {
            bits.insert(slot);
        }
        bits.count();
        for slot in 0..=255 {
            let expected = set.iter().filter(|s| **s <= slot).count() as u32;
            assert_eq!(bits.rank(slot), expected, "{slot}");
            assert_eq!(bits.contains(slot), set.contains(&slot));
        }
        let mut full = Bits::default();
        (0..=255).for_each(|slot| full.insert(slot));
        full.count();
        assert_eq!(full.rank(255), 256);
    }

    #[test]
    fn chunks_that_are_not_needed_any_more_are_used_again() {
        let trie = Trie6::new();
        let mut store = PrefixStore::default();
        let prefix = |n: u128| Prefix::new(n << 112 | 1, 128).unwrap();
        for round in 0..5 {
            for n in 0..10 {
                store.set(prefix(n + round), Some(HopId::test(3)));
                trie.rebuild(&store, &[prefix(n + round)]);
            }
            for n in 0..10 {
                store.set(prefix(n + round), None);
                trie.rebuild(&store, &[prefix(n + round)]);
            }
        }
        let root = trie.root.load();
        assert_eq!((root.chunks.len(), root.free.len()), (10, 10));
        assert!(root.top.iter().all(|entry| *entry == 0));
    }
}
