//! Virtual and physical addresses.

use super::cache::{LINE, LineNumber};

/// A virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` bytes further on.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// The eight-byte word that the address lies in.
    pub fn word(self) -> u64 {
        self.0 / 8
    }
}

/// Bits of the offset within a page of 2 MiB.
const PAGE_BITS: u32 = 21;
/// Bits of a page's number: 64 GiB of memory.
const NUMBER_BITS: u32 = 15;

/// The physical line of an address: pages lie in no order, as a system that has run for
/// a while gives them.
#[inline]
pub(super) fn line_of(address: Address, seed: u64) -> LineNumber {
    let mask = (1u64 << NUMBER_BITS) - 1;
    let page = (address.0 >> PAGE_BITS) & mask;
    // A permutation of page numbers: odd multiplications and shifts.
    let page = (page ^ seed & mask).wrapping_mul(0x9_e375) & mask;
    let page = (page ^ page >> (NUMBER_BITS / 2)).wrapping_mul(0x5_bd1d) & mask;
    let physical = page << PAGE_BITS | address.0 & ((1 << PAGE_BITS) - 1);
    physical / LINE
}

/// A stretch of virtual addresses.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    start: u64,
    bytes: u64,
}

impl Region {
    /// The address of byte `at`.
    ///
    /// # Panics
    /// In a debug build, when the region is not so long.
    #[inline]
    pub fn at(&self, at: u64) -> Address {
        debug_assert!(at < self.bytes, "byte {at} of a region of {}", self.bytes);
        Address(self.start + at)
    }

    /// The addresses of its lines.
    pub fn lines(self) -> impl Iterator<Item = Address> {
        (0..self.bytes / LINE).map(move |n| self.at(n * LINE))
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes before each region: what an allocator notes about it.
const HEADER: u64 = 128;

/// Allocates regions, one after the other as an allocator over huge pages does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    used: u64,
}

impl Layout {
    /// A region of `bytes` bytes, which begins with a line.
    pub fn region(&mut self, bytes: u64) -> Region {
        // Page 0 is never allocated.
        let start = (1 << PAGE_BITS) + self.used + HEADER;
        self.used += HEADER + bytes.next_multiple_of(LINE);
        Region { start, bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn different_pages_lie_in_different_places() {
        for seed in [0, 1, 99] {
            let lines: HashSet<_> = (0..1u64 << NUMBER_BITS)
                .map(|page| line_of(Address(page << PAGE_BITS), seed))
                .collect();
            assert_eq!(lines.len(), 1 << NUMBER_BITS);
            let (a, b) = (line_of(Address(64), seed), line_of(Address(128), seed));
            assert_eq!(a + 1, b);
        }
    }

    #[test]
    fn regions_share_no_line() {
        let mut layout = Layout::default();
        let (a, b, c) = (layout.region(1), layout.region((2 << 20) + 1), layout.region(8));
        assert!(a.at(0).0 / LINE < b.at(0).0 / LINE);
        assert!(b.at(2 << 20).0 / LINE < c.at(0).0 / LINE);
        assert!([a, b, c].iter().all(|region| region.at(0).0.is_multiple_of(LINE)));
    }
}
