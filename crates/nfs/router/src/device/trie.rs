//! The routes as a device reads them: a trie of 16 bits, then four at a time.
//!
//! A full table of IPv4 takes some 20 MiB. What exceeds [`MOST_BYTES`] the processor looks up.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::prefix::{Address, Prefix};
use crate::table::{HopId, MAX_HOPS};

/// The most bytes of a table.
pub const MOST_BYTES: usize = 64 << 20;

/// The entry of addresses that the processor looks up, and the bit of one with a place.
pub(super) const UNKNOWN: u32 = 0x7fff_ffff;
const PLACE: u32 = 1 << 31;

/// Bits of an address that the first entries are for, and further ones.
const FIRST: u8 = 16;
const STEP: u8 = 4;

/// The places of the mark, and of the first entries of IPv4 and of IPv6.
const MARK: usize = 0;
const ROOTS: [usize; 2] = [1, 2];
const HEAD: usize = 4;

/// A trie of both IP versions.
pub(crate) struct Trie {
    words: Vec<u32>,
    /// The most words.
    most: usize,
}

impl Trie {
    /// A trie without routes that takes at most `most` bytes, or the least that there is.
    pub(crate) fn new(most: usize) -> Self {
        let mut words = vec![0; HEAD];
        for root in ROOTS {
            words[root] = words.len() as u32;
            words.resize(words.len() + (1 << FIRST), HopId::NO_ROUTE.0.into());
        }
        Self { words, most: most / 4 }
    }

    /// Adds routes; a prefix has to come before those within it.
    pub(crate) fn add<A: Address>(&mut self, routes: impl Iterator<Item = (Prefix<A>, HopId)>) {
        let root = self.words[ROOTS[usize::from(A::BITS != 32)]] as usize;
        routes.for_each(|(prefix, hop)| self.paint(root, prefix, hop));
    }

    /// Gives all addresses of a prefix this next hop.
    fn paint<A: Address>(&mut self, root: usize, prefix: Prefix<A>, hop: HopId) {
        let (len, address) = (prefix.len(), prefix.first().bits_from_top());
        let bits = |from: u8, many: u8| (address << from >> (128 - many)) as usize;
        let (mut place, mut end) = (root + bits(0, FIRST), FIRST);
        while len > end {
            let Some(node) = self.node(place) else { return };
            (place, end) = (node + bits(end, STEP), end + STEP);
        }
        self.words[place..place + (1 << (end - len))].fill(hop.0.into());
    }

    /// The entries that the one at `place` leads to; new ones if it has a next hop. `None` if there is no
    /// room for them.
    fn node(&mut self, place: usize) -> Option<usize> {
        let entry = self.words[place];
        if entry & PLACE != 0 {
            return Some((entry & !PLACE) as usize);
        }
        let node = self.words.len();
        if entry == UNKNOWN || node + (1 << STEP) > self.most {
            self.words[place] = UNKNOWN;
            return None;
        }
        self.words.resize(node + (1 << STEP), entry);
        self.words[place] = PLACE | node as u32;
        Some(node)
    }

    /// The table, as bytes, and its mark: never 0, which is what a device leaves that does nothing.
    pub(crate) fn into_table(mut self) -> (Vec<u8>, u32) {
        let mut hasher = DefaultHasher::new();
        self.words.hash(&mut hasher);
        let mark = hasher.finish() as u32 | 1;
        self.words[MARK] = mark;
        (self.words.into_iter().flat_map(u32::to_ne_bytes).collect(), mark)
    }
}

/// The reference of `hop.cl`.
pub(super) fn look_up(address: &[u8], table: &[u8]) -> [u32; 2] {
    let word = |at: usize| {
        let bytes = table.get(4 * at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(UNKNOWN, |bytes| u32::from_ne_bytes(*bytes))
    };
    let root = match address.len() {
        4 => word(ROOTS[0]),
        16 => word(ROOTS[1]),
        _ => return [UNKNOWN, word(MARK)],
    };
    let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
    let mut entry = word(root as usize + first);
    let halves = address[2..].iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for half in halves {
        if entry & PLACE == 0 {
            break;
        }
        entry = word((entry & !PLACE) as usize + usize::from(half));
    }
    [entry, word(MARK)]
}

/// The next hop that a device has returned, if it has one.
pub(super) fn hop([entry, mark]: [u32; 2], expected: u32) -> Option<HopId> {
    ((entry as usize) < MAX_HOPS && mark == expected).then_some(HopId(entry as u16))
}
