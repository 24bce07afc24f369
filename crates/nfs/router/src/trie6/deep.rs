//! The bits after the first 64: compressed tries with strides of 8 bits.
//!
//! Few addresses get here, but host routes (/128) may be many: a group of 256 entries for
//! each 8 bits of each would take 12 KiB per route, this takes 1.
//!
//! A node covers 8 bits. For each of its 256 slots there is either a child node
//! or a next hop; children are contiguous, and of a run of equal next hops
//! only the first is kept, as in Poptrie (Asai, Ohara: SIGCOMM 2015). The place
//! of a child or next hop is the number of set bits before its slot.

use super::{Route, STRIDE, slot_of, split};
use crate::table::HopId;

/// The tries of a chunk.
#[derive(Debug, Default)]
pub(super) struct Deep {
    nodes: Vec<Node>,
    hops: Vec<HopId>,
}

/// 256 slots, each a child or a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Slots that have a child.
    children: Bits,
    /// Slots whose next hop differs from that of the previous slot without a child.
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

    /// Counts the bits before each word; call it after the last `insert`.
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

    /// The number of set slots up to and including `slot`.
    #[inline]
    fn rank(&self, slot: u8) -> u32 {
        let word = slot as usize >> 6;
        let up_to = self.words[word] & (u64::MAX >> (63 - (slot & 63)));
        u32::from(self.before[word]) + up_to.count_ones()
    }
}

impl Deep {
    /// Adds the trie of `routes` (in order, all longer than `depth` bits, which they share);
    /// other addresses go to `base`. Returns the number of its first node.
    pub(super) fn add(&mut self, depth: u8, routes: &[Route], base: HopId) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node::default());
        self.fill(node, depth, routes, base);
        node
    }

    /// The next hop of an address from `node` on, which resolves the bits after `depth`.
    pub(super) fn lookup(&self, mut node: usize, mut depth: u8, address: u128) -> HopId {
        loop {
            let (slot, at) = (slot_of(address, depth, STRIDE) as u8, &self.nodes[node]);
            if !at.children.contains(slot) {
                return self.hops[(at.first_hop + at.runs.rank(slot) - 1) as usize];
            }
            node = (at.first_child + at.children.rank(slot) - 1) as usize;
            depth += STRIDE;
        }
    }

    /// Fills `node`, whose addresses share `depth` bits, from `routes`.
    fn fill(&mut self, node: usize, depth: u8, routes: &[Route], base: HopId) {
        let mut built = Node::default();
        let (slots, below) = split(depth, routes, base);
        below.iter().for_each(|(slot, _)| built.children.insert(*slot as u8));
        built.children.count();
        built.first_child = self.nodes.len() as u32;
        self.compress(&slots, &mut built);
        self.nodes[node] = built;
        self.nodes.resize(self.nodes.len() + below.len(), Node::default());
        for (child, (slot, routes)) in (built.first_child as usize..).zip(below) {
            self.fill(child, depth + STRIDE, routes, slots[slot]);
        }
    }

    /// Appends the next hops of the slots without a child; a run of equal ones once.
    fn compress(&mut self, slots: &[HopId], node: &mut Node) {
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
}
