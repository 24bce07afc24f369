//! IPv4 longest-prefix match in one or two loads: DIR-24-8 (Gupta, Lin,
//! `McKeown`: Routing Lookups in Hardware at Memory Access Speeds, INFOCOM 1998).
//!
//! `tbl24` has an entry for each /24: a next hop, or, where a prefix longer
//! than 24 bits lies within, the number of a group of 256 entries in `tbl8`,
//! one for each address. An entry is 16 bits: a flag and 15 bits of next hop or
//! group. A full Internet table of 2024 has 902 000 prefixes, of which 961 in
//! fewer groups are longer than 24 bits, and few next hops; so 15 bits suffice,
//! and `tbl24` is 32 MiB instead of 64.
//!
//! A lookup reads `bytes` first, which is half as large and has the same content: the next hop, or
//! [`MORE`] for a group and for a next hop whose number does not fit in a byte. The cost of a
//! lookup is the wait for memory, which is shorter the more of the table is in caches, its page
//! translations included; and the 255 next hops with the most routes, which get the first numbers,
//! have nearly all routes.
//!
//! **Updates.** One writer changes entries in place while readers run; each store is atomic, so
//! an address goes to its old or to its new next hop, for `tbl24` has all entries, and is changed
//! first. The writer derives each entry from the [`PrefixStore`] and repaints the range that a
//! change affects. It builds a group before an entry points to it.
//!
//! **Groups are reused.** A reader may load the number of a group, and then read the group after it
//! was freed and taken for another /24. So the writer counts the groups that it takes, before it
//! writes into them, and a reader that has read a group repeats the lookup if the count has changed
//! since. Both orders hold: a reader that loads a value written into a taken group loads the new
//! count after it; and a reader that loaded the new count before does not find the number of the
//! group in the entry from which it was freed.

#[cfg(target_arch = "x86_64")]
mod lanes;

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

#[cfg(target_arch = "x86_64")]
use thalweg_cpu::Avx512;
use thalweg_cpu::Isa;
use thalweg_cpu::memory::Zeroed;
use thalweg_cpu::prefetch;

use super::prefix::{Prefix, PrefixStore};
use super::table::HopId;

/// Flag of a `tbl24` entry that names a group.
const GROUP: u16 = 0x8000;
/// Entry of `bytes` if that of `tbl24` is as large as this or larger, as for all groups.
const MORE: u8 = 0xff;
/// The number of groups that 15 bits can name.
pub(super) const MAX_GROUPS: usize = 0x8000;
/// Addresses that are looked up in a row.
const ROW: usize = 16;
/// The number of rows that entries are prefetched ahead. Two rows are in flight without prefetch.
const AHEAD: usize = 2;

/// For each /24 the lesser of its `tbl24` entry and [`MORE`].
type Bytes = [AtomicU8; 1 << 24];
/// An entry for each /24.
type Tbl24 = [AtomicU16; 1 << 24];
/// The entries of all groups.
type Tbl8 = [AtomicU16; MAX_GROUPS << 8];

/// The entries that readers see.
#[derive(Debug)]
pub(super) struct Dir24_8 {
    /// One array, on huge pages if available.
    bytes: Zeroed<Bytes>,
    /// Likewise.
    tbl24: Zeroed<Tbl24>,
    /// Also one array; groups that were never taken occupy no memory.
    tbl8: Zeroed<Tbl8>,
    /// The number of times that a group was taken.
    taken: AtomicU64,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<Avx512>,
}

/// The writer's account of the groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    free: Vec<u16>,
    /// Groups from here on were never used.
    unused: usize,
}

impl Dir24_8 {
    pub(super) fn new() -> Self {
        Self::at(Isa::active())
    }

    /// A table that uses the vectors of a level.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "no vectors"))]
    fn at(isa: Isa) -> Self {
        Self {
            bytes: Zeroed::new(1).expect("there is memory for the table"),
            tbl24: Zeroed::new(1).expect("there is memory for the table"),
            tbl8: Zeroed::untouched(1).expect("there is room for the groups"),
            taken: AtomicU64::new(0),
            #[cfg(target_arch = "x86_64")]
            lanes: isa.avx512(),
        }
    }

    /// Uses the vectors of another level.
    #[cfg(test)]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "no vectors"))]
    fn use_vectors(&mut self, isa: Isa) {
        #[cfg(target_arch = "x86_64")]
        {
            self.lanes = isa.avx512();
        }
    }

    /// Looks up `addresses` into `hops`, which is of the same length.
    #[inline]
    pub(super) fn lookup_batch(&self, addresses: &[u32], hops: &mut [HopId]) {
        if self.look_at_bytes(addresses, hops) {
            self.look_further(addresses, hops);
        }
    }

    /// Loads the entries of `addresses` in `bytes`; returns whether one of them is [`MORE`].
    #[inline]
    fn look_at_bytes(&self, addresses: &[u32], hops: &mut [HopId]) -> bool {
        let bytes = &self.bytes[0];
        #[cfg(target_arch = "x86_64")]
        if let Some(right) = self.lanes {
            return lanes::look_at_bytes(right, bytes, addresses, hops);
        }
        look_one_by_one(bytes, addresses, hops)
    }

    /// Replaces [`MORE`] by the next hops of `addresses`.
    #[cold]
    fn look_further(&self, addresses: &[u32], hops: &mut [HopId]) {
        const MORE: HopId = HopId(self::MORE as u16);
        for (addresses, hops) in addresses.chunks(ROW).zip(hops.chunks_mut(ROW)) {
            // All are compared, as that takes one vector comparison.
            let wanted: usize = hops.iter().map(|hop| usize::from(*hop == MORE)).sum();
            if wanted == 0 {
                continue;
            }
            for (address, hop) in addresses.iter().zip(hops) {
                if *hop == MORE {
                    *hop = self.hop_of(*address);
                }
            }
        }
    }

    /// The next hop from `tbl24` and `tbl8`.
    #[inline]
    fn hop_of(&self, address: u32) -> HopId {
        loop {
            let taken = self.taken.load(Ordering::Acquire);
            let entry = self.tbl24[0][(address >> 8) as usize].load(Ordering::Acquire);
            if entry & GROUP == 0 {
                return HopId(entry);
            }
            let group = self.group(entry & !GROUP);
            let hop = HopId(group[usize::from(address as u8)].load(Ordering::Acquire));
            // The loads above complete before the count is read again.
            fence(Ordering::Acquire);
            if self.taken.load(Ordering::Relaxed) == taken {
                return hop;
            }
        }
    }

    /// Whether the /24 number `index` has a group.
    pub(super) fn has_group(&self, index: u32) -> bool {
        self.tbl24[0][index as usize].load(Ordering::Relaxed) & GROUP != 0
    }

    /// Updates the entries for `changed`, and all prefixes within it, from
    /// `store`. The caller has made sure that there are enough groups.
    pub(super) fn repaint(
        &self,
        groups: &mut Groups,
        store: &PrefixStore<u32>,
        changed: Prefix<u32>,
    ) {
        let within = changed.at_most(24);
        segments(store, within, |first, last, hop| self.paint(groups, first, last, hop));
    }

    /// Sends the addresses `first..=last` to `hop`.
    fn paint(&self, groups: &mut Groups, first: u32, last: u32, hop: HopId) {
        let (head, tail) = (first >> 8, last >> 8);
        let (low, high) = (first as u8, last as u8);
        if head == tail && (low != 0 || high != 0xff) {
            return self.paint_within(groups, head, low, high, hop);
        }
        let (mut from, mut to) = (head, tail + 1);
        if low != 0 {
            self.paint_within(groups, head, low, 0xff, hop);
            from += 1;
        }
        if high != 0xff {
            self.paint_within(groups, tail, 0, high, hop);
            to -= 1;
        }
        let range = from as usize..to as usize;
        for (entry, byte) in self.tbl24[0][range.clone()].iter().zip(&self.bytes[0][range]) {
            let old = entry.load(Ordering::Relaxed);
            if old != hop.0 {
                entry.store(hop.0, Ordering::Release);
                byte.store(in_a_byte(hop.0), Ordering::Release);
                if old & GROUP != 0 {
                    groups.free.push(old & !GROUP);
                }
            }
        }
    }

    /// Sends the addresses of the /24 number `index` whose last byte is in
    /// `low..=high` to `hop`; gives the /24 a group when it has none.
    fn paint_within(&self, groups: &mut Groups, index: u32, low: u8, high: u8, hop: HopId) {
        let entry = &self.tbl24[0][index as usize];
        let old = entry.load(Ordering::Relaxed);
        let group = if old & GROUP != 0 { old & !GROUP } else { self.open(groups, old) };
        for place in &self.group(group)[low.into()..=high.into()] {
            place.store(hop.0, Ordering::Release);
        }
        // A new group becomes visible only here; `open` has set all of its
        // addresses to their old next hop.
        entry.store(group | GROUP, Ordering::Release);
        self.bytes[0][index as usize].store(MORE, Ordering::Release);
    }

    /// Takes a group, and sends all its addresses to `hop`.
    fn open(&self, groups: &mut Groups, hop: u16) -> u16 {
        let group = groups.take().expect("the caller has counted the groups that are needed");
        // Ordered after the store that freed the group, and before the stores into the group.
        self.taken.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
        for place in self.group(group) {
            place.store(hop, Ordering::Relaxed);
        }
        group
    }

    fn group(&self, group: u16) -> &[AtomicU16] {
        &self.tbl8[0][usize::from(group) << 8..][..1 << 8]
    }
}

/// The entry of `bytes` for an entry of `tbl24`.
fn in_a_byte(entry: u16) -> u8 {
    entry.min(MORE.into()) as u8
}

/// Loads the entries of `addresses`; returns whether one of them is [`MORE`].
///
/// No lookup depends on another, so their cache misses overlap.
fn look_one_by_one(bytes: &Bytes, addresses: &[u32], hops: &mut [HopId]) -> bool {
    let index = |address: u32| (address >> 8) as usize;
    let mut largest = 0;
    let mut load = |address: u32| {
        let byte = bytes[index(address)].load(Ordering::Acquire);
        largest = byte.max(largest);
        HopId(byte.into())
    };
    let (rows, rest) = addresses.as_chunks::<ROW>();
    let (to, rest_to) = hops[..addresses.len()].as_chunks_mut::<ROW>();
    for (n, (row, hops)) in rows.iter().zip(to).enumerate() {
        for address in rows.get(n + AHEAD).into_iter().flatten() {
            prefetch::near(bytes, index(*address));
        }
        // The length is constant, so that the compiler unrolls the loop.
        for (address, hop) in row.iter().zip(hops) {
            *hop = load(*address);
        }
    }
    for (address, hop) in rest.iter().zip(rest_to) {
        *hop = load(*address);
    }
    largest == MORE
}

impl Groups {
    /// The number of groups that can be taken now.
    pub(super) fn available(&self) -> usize {
        self.free.len() + MAX_GROUPS - self.unused
    }

    fn take(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let group = (self.unused < MAX_GROUPS).then_some(self.unused as u16)?;
            self.unused += 1;
            Some(group)
        })
    }
}

/// Splits `within` into ranges of addresses with one next hop, in order, by the
/// longest prefixes of `store`.
fn segments(store: &PrefixStore<u32>, within: Prefix<u32>, mut each: impl FnMut(u32, u32, HopId)) {
    // The prefixes around the current address, innermost last.
    let mut open = vec![(within.last(), store.around(within))];
    let mut at = Some(within.first());
    let mut emit = |at: &mut Option<u32>, last: u32, hop: HopId| {
        if let Some(first) = *at
            && first <= last
        {
            each(first, last, hop);
            *at = last.checked_add(1);
        }
    };
    for (prefix, hop) in store.within(within) {
        while let Some((last, outer)) = open.pop_if(|(last, _)| *last < prefix.first()) {
            emit(&mut at, last, outer);
        }
        if let (Some((_, outer)), Some(last)) = (open.last(), prefix.first().checked_sub(1)) {
            emit(&mut at, last, *outer);
        }
        open.push((prefix.last(), hop));
    }
    while let Some((last, hop)) = open.pop() {
        emit(&mut at, last, hop);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_testkit::cases;

    use super::*;

    fn prefix(first: u32, len: u8) -> Prefix<u32> {
        Prefix::new(first, len).unwrap()
    }

    fn look(table: &Dir24_8, address: u32) -> u16 {
        let mut hop = [HopId::NO_ROUTE];
        table.lookup_batch(&[address], &mut hop);
        hop[0].0
    }

    #[test]
    fn segments_cover_the_range_without_gap_or_overlap() {
        let routes = [(0, 0), (0, 1), (0x0a00_0000, 8), (0x0a00_0000, 24), (0x0a00_00ff, 32)];
        let store: PrefixStore<u32> = (1..)
            .zip(routes)
            .map(|(i, (first, len))| (prefix(first, len), HopId::test(i)))
            .collect();
        let mut found = Vec::new();
        segments(&store, prefix(0, 0), |a, b, hop| found.push((a, b, hop.0)));
        let expected = [
            (0, 0x09ff_ffff, 2),
            (0x0a00_0000, 0x0a00_00fe, 4),
            (0x0a00_00ff, 0x0a00_00ff, 5),
            (0x0a00_0100, 0x0aff_ffff, 3),
            (0x0b00_0000, 0x7fff_ffff, 2),
            (0x8000_0000, 0xffff_ffff, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_group_is_used_again_and_counted() {
        let (table, mut groups) = (Dir24_8::new(), Groups::default());
        let mut store = PrefixStore::default();
        let mut set = |first: u32, hop: Option<u16>| {
            store.set(prefix(first, 32), hop.map(HopId::test));
            table.repaint(&mut groups, &store, prefix(first, 32));
            (groups.available(), table.taken.load(Ordering::Relaxed))
        };
        assert_eq!(set(0x0102_0304, Some(7)), (MAX_GROUPS - 1, 1));
        assert_eq!((look(&table, 0x0102_0304), look(&table, 0x0102_0305)), (7, 0));
        assert_eq!(set(0x0102_0304, None), (MAX_GROUPS, 1));
        assert_eq!(set(0x0505_0505, Some(9)), (MAX_GROUPS - 1, 2));
        assert_eq!((look(&table, 0x0102_0304), look(&table, 0x0505_0505)), (0, 9));
        assert_eq!(groups.unused, 1);
    }

    /// Prefixes of all lengths, clustered in a few places, and next hops around the largest that
    /// fit in a byte.
    fn routes() -> impl Strategy<Value = Vec<(Prefix<u32>, HopId)>> {
        let one = (0u32..4, any::<u32>(), prop_oneof![1 => 0u8..=24, 2 => 25u8..=32]);
        let one = one.prop_map(|(at, rest, len)| Prefix::holding(at << 30 | rest & 0x3ff, len));
        let hop = prop_oneof![1u16..=60, 250u16..=260, 0x7ff0u16..=0x7fff].prop_map(HopId::test);
        prop::collection::vec((one, hop), 0..60)
    }

    proptest! {
        // Each case paints a table of 48 MiB.
        #![proptest_config(ProptestConfig::with_cases(cases(50)))]

        #[test]
        fn all_ways_to_look_up_agree(
            routes in routes(), others in prop::collection::vec(any::<u32>(), 0..80),
        ) {
            let store: PrefixStore<u32> = routes.iter().copied().collect();
            let edges = routes.iter().flat_map(|(p, _)| [p.first(), p.last(), p.last().wrapping_add(1)]);
            let addresses: Vec<u32> = edges.chain(others).collect();
            let longest = |a: &u32| store.longest(*a, 32).map_or(HopId::NO_ROUTE, |(_, hop)| hop);
            let expected: Vec<HopId> = addresses.iter().map(longest).collect();
            let mut table = Dir24_8::at(Isa::Scalar);
            table.repaint(&mut Groups::default(), &store, prefix(0, 0));
            for isa in Isa::available() {
                table.use_vectors(isa);
                for len in [1, 15, 16, 17, 31, 32, 33, 48, 63, 79, addresses.len().max(1)] {
                    let mut hops = vec![HopId::test(0x7fff); addresses.len()];
                    for (addresses, hops) in addresses.chunks(len).zip(hops.chunks_mut(len)) {
                        table.lookup_batch(addresses, hops);
                    }
                    prop_assert_eq!(&hops, &expected, "{}, {} at a time", isa, len);
                }
            }
        }
    }
}
