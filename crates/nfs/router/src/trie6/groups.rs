//! Groups of 256 entries, one for each value of 8 bits of an address, and what they lead to.
//!
//! Entries are words. But most groups lead no further, and most of these have only next hops with
//! small numbers, which are those with the most routes: such groups are *leaves*, with entries of a
//! byte. The cost of a lookup is the wait for memory, which is shorter the more of the groups is in
//! caches.

use std::sync::atomic::{AtomicU32, Ordering};

use super::arena::{Arena, Room};
use super::deep::Deep;
use super::{GROUPED, Route, STRIDE, split};
use crate::table::HopId;

/// Words per unit of placement of groups: one leaf.
pub(super) const UNIT: usize = 64;
/// Entries of a group.
const ENTRIES: usize = 1 << STRIDE;
/// The most units that a route needs: a group for each 8 bits from the 16th to the 64th.
const UNITS_A_ROUTE: u32 = 6 * (ENTRIES / UNIT) as u32;
/// The number of routes that fit in an arena, whatever their prefixes.
pub(crate) const MAX_ROUTES: usize = 1 << 20;
const _: () = assert!(MAX_ROUTES as u64 * UNITS_A_ROUTE as u64 <= Arena::MOST as u64);

/// A next hop, a group of the next 8 bits, or, after the last group, a node of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Entry(pub(super) u32);

impl Entry {
    /// Flag: not a next hop.
    pub(super) const GROUP: u32 = 1 << 31;
    /// Flag: the group is a leaf.
    pub(super) const LEAF: u32 = 1 << 30;

    /// The entry for a group, by the unit where it begins.
    fn group(place: u32, leaf: bool) -> Self {
        debug_assert!(place < Arena::MOST, "the place is within an arena");
        Self(Self::GROUP | if leaf { Self::LEAF } else { 0 } | place)
    }

    fn node(number: usize) -> Self {
        assert!(number < Self::LEAF as usize, "a chunk has fewer than 2^30 nodes");
        Self(Self::GROUP | number as u32)
    }

    pub(super) fn of_hop(hop: HopId) -> Self {
        Self(hop.0.into())
    }

    pub(super) fn is_hop(self) -> bool {
        self.0 & Self::GROUP == 0
    }

    pub(super) fn hop(self) -> HopId {
        HopId(self.0 as u16)
    }

    /// The place of a group, or the number of a node.
    pub(super) fn number(self) -> usize {
        (self.0 & (Self::LEAF - 1)) as usize
    }

    /// 1 if its group is a leaf, or 0.
    fn leaf(self) -> u32 {
        self.0 >> Self::LEAF.trailing_zeros() & 1
    }

    /// The word that holds its group's entry for a slot.
    #[inline]
    pub(super) fn word_of(self, slot: usize) -> usize {
        self.number() * UNIT + (slot >> (2 * self.leaf()))
    }

    /// The entry of its group for a slot. Branch-free: whether a group is a leaf is unpredictable,
    /// and a misprediction would wait for the load.
    #[inline]
    pub(super) fn step(self, words: &[AtomicU32], slot: usize) -> Self {
        let leaf = self.leaf();
        let word = words[self.word_of(slot)].load(Ordering::Relaxed);
        let entry = word >> (8 * (slot as u32 & 3) * leaf);
        Self(entry & (0xff | leaf.wrapping_sub(1)))
    }
}

/// The groups and tries below one /16, before they are placed.
#[derive(Default)]
pub(super) struct Chunk {
    words: Vec<u32>,
    /// The words that name groups, by their places in this chunk.
    links: Vec<usize>,
    deep: Deep,
}

impl Chunk {
    /// The chunk of `routes` (in order, all longer than `depth` bits, which they share); other
    /// addresses go to `base`.
    pub(super) fn build(depth: u8, routes: &[Route], base: HopId) -> Self {
        let mut chunk = Self::default();
        chunk.fill(depth, routes, base);
        chunk
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Writes it to its room. Returns the entry that leads to it, and the tries after its groups.
    pub(super) fn settle(mut self, room: &Room) -> (Entry, Deep) {
        for link in self.links {
            self.words[link] += room.place();
        }
        let is_leaf = self.words.len() == UNIT;
        room.write(self.words.into_iter());
        (Entry::group(room.place(), is_leaf), self.deep)
    }

    /// Adds a group for the 8 bits after `depth`, and everything below. Returns the entry that
    /// leads to it.
    fn fill(&mut self, depth: u8, routes: &[Route], base: HopId) -> Entry {
        let (hops, below) = split(depth, routes, base);
        let first = self.words.len();
        let is_leaf = below.is_empty() && hops.iter().all(|hop| hop.0 <= u8::MAX.into());
        if is_leaf {
            let word = |four: &[HopId; 4]| u32::from_le_bytes(four.map(|hop| hop.0 as u8));
            self.words.extend(hops.as_chunks().0.iter().map(word));
        } else {
            self.words.extend(hops.iter().map(|hop| Entry::of_hop(*hop).0));
        }
        for (slot, routes) in below {
            let (depth, base) = (depth + STRIDE, hops[slot]);
            let entry = if depth == GROUPED {
                Entry::node(self.deep.add(depth, routes, base))
            } else {
                self.links.push(first + slot);
                self.fill(depth, routes, base)
            };
            self.words[first + slot] = entry.0;
        }
        Entry::group((first / UNIT) as u32, is_leaf)
    }
}
