//! IPv4 longest-prefix match in one or two loads: DIR-24-8 (Gupta, Lin,
//! `McKeown`: Routing Lookups in Hardware at Memory Access Speeds, INFOCOM 1998).
//!
//! `tbl24` has an entry for each /24: a next hop, or, where a prefix longer
//! than 24 bits lies within, the number of a group of 256 entries in `tbl8`,
//! one for each address. An entry is 16 bits: a flag and 15 bits of next hop or
//! group. A full Internet table of 2024 has 902 000 prefixes, of which 961 in
//! fewer groups are longer than 24 bits, and few next hops; so 15 bits do, and
//! `tbl24` is 32 MiB instead of 64.
//!
//! **Updates.** One writer changes entries in place while readers run; each
//! store is atomic, so an address goes where it went before or where it shall
//! go now. The writer knows from the [`PrefixStore`] what each entry shall be
//! and repaints the range that a change touches. It builds a group before an
//! entry points to it, and uses a freed group again only when every reader that
//! may have seen the entry is done: readers pin an epoch while they look into
//! groups, and a group is freed with the epoch it was last seen in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use thalweg_classify::memory::Zeroed;
use thalweg_classify::prefetch;

use super::prefix::{Prefix, PrefixStore};
use super::table::HopId;

/// Flag of a `tbl24` entry that names a group.
const GROUP: u16 = 0x8000;
/// How many groups 15 bits can name.
pub(super) const MAX_GROUPS: usize = 0x8000;
/// How far ahead of a lookup its entry is asked for.
const AHEAD: usize = 32;
/// Groups are allocated this many at a time, so that small tables stay small.
const GROUPS_PER_BLOCK: usize = 64;

/// The entries that readers see.
#[derive(Debug)]
pub(super) struct Dir24_8 {
    /// One array, on huge pages if there are any.
    tbl24: Zeroed<[AtomicU16; 1 << 24]>,
    tbl8: Box<[OnceLock<Box<[AtomicU16]>>]>,
    /// What readers pin: a group freed in one epoch is free when the epoch and
    /// all before it are unpinned.
    epoch: ArcSwap<()>,
}

/// The writer's account of the groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    free: Vec<u16>,
    /// Groups from here on were never used.
    unused: usize,
    /// Freed groups that readers of an epoch may still look at, oldest first.
    retired: VecDeque<(Arc<()>, Vec<u16>)>,
    /// Groups that no entry names any more since the last epoch began.
    released: Vec<u16>,
}

fn entries(n: usize) -> Box<[AtomicU16]> {
    (0..n).map(|_| AtomicU16::new(0)).collect()
}

impl Dir24_8 {
    pub(super) fn new() -> Self {
        Self {
            tbl24: Zeroed::new(1).expect("there is memory for the table"),
            tbl8: (0..MAX_GROUPS / GROUPS_PER_BLOCK).map(|_| OnceLock::new()).collect(),
            epoch: ArcSwap::from_pointee(()),
        }
    }

    /// Looks up `addresses` into `hops`, which is of the same length.
    ///
    /// The first loops have no dependency between their rounds, so that the cache
    /// misses of a batch overlap, and ask for entries ahead; few addresses need the last.
    pub(super) fn lookup_batch(&self, addresses: &[u32], hops: &mut [HopId]) {
        let tbl24 = &self.tbl24[0];
        let mut seen = 0;
        let mut look = |address: &u32, hop: &mut HopId| {
            let entry = tbl24[(address >> 8) as usize].load(Ordering::Acquire);
            *hop = HopId(entry);
            seen |= entry;
        };
        for address in addresses.iter().take(AHEAD) {
            prefetch::near(tbl24, (address >> 8) as usize);
        }
        let (asked, rest) = hops.split_at_mut(hops.len().saturating_sub(AHEAD));
        let later = &addresses[AHEAD.min(addresses.len())..];
        for ((address, ahead), hop) in addresses.iter().zip(later).zip(&mut *asked) {
            prefetch::near(tbl24, (ahead >> 8) as usize);
            look(address, hop);
        }
        addresses[asked.len()..].iter().zip(rest).for_each(|(address, hop)| look(address, hop));
        if seen & GROUP != 0 {
            let long = addresses.iter().zip(hops).filter(|(_, hop)| hop.0 & GROUP != 0);
            self.look_into_groups(long);
        }
    }

    /// The next hops of addresses that lie in groups.
    fn look_into_groups<'a>(&self, addresses: impl Iterator<Item = (&'a u32, &'a mut HopId)>) {
        // Pinning makes all loads before wait, so only those pay for it that need it. The
        // groups of entries that were read before may be others' by now.
        let _pin = self.epoch.load();
        for (address, hop) in addresses {
            *hop = HopId(self.tbl24[0][(address >> 8) as usize].load(Ordering::Acquire));
            if hop.0 & GROUP != 0 {
                let entry = self.tbl8_entry(hop.0 & !GROUP, *address as u8);
                *hop = entry.map_or(HopId::NO_ROUTE, |e| HopId(e.load(Ordering::Acquire)));
            }
        }
    }

    /// The entry of `group` for the last byte of an address; `None` only for a
    /// group that was never allocated, which no entry names.
    #[inline]
    fn tbl8_entry(&self, group: u16, byte: u8) -> Option<&AtomicU16> {
        let (block, place) = (group as usize / GROUPS_PER_BLOCK, group as usize % GROUPS_PER_BLOCK);
        self.tbl8[block].get()?.get(place << 8 | byte as usize)
    }

    /// Whether the /24 number `index` has a group.
    pub(super) fn has_group(&self, index: u32) -> bool {
        self.tbl24[0][index as usize].load(Ordering::Relaxed) & GROUP != 0
    }

    /// Makes the entries for `changed`, and all prefixes within it, what
    /// `store` says. The caller has made sure that there are groups enough.
    pub(super) fn repaint(
        &self,
        groups: &mut Groups,
        store: &PrefixStore<u32>,
        changed: Prefix<u32>,
    ) {
        let within = changed.at_most(24);
        segments(store, within, |first, last, hop| self.paint(groups, first, last, hop));
        groups.end_epoch(&self.epoch);
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
        for entry in &self.tbl24[0][from as usize..to as usize] {
            let old = entry.load(Ordering::Relaxed);
            if old != hop.0 {
                entry.store(hop.0, Ordering::Release);
                if old & GROUP != 0 {
                    groups.released.push(old & !GROUP);
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
        for byte in low..=high {
            if let Some(place) = self.tbl8_entry(group, byte) {
                place.store(hop.0, Ordering::Release);
            }
        }
        // A new group becomes visible only here; its first store made all of
        // its addresses go where they went before.
        entry.store(group | GROUP, Ordering::Release);
    }

    /// Takes a group that no reader knows, and sends all its addresses to `hop`.
    fn open(&self, groups: &mut Groups, hop: u16) -> u16 {
        let group = groups.take().expect("the caller has counted the groups that are needed");
        let block = &self.tbl8[group as usize / GROUPS_PER_BLOCK];
        block.get_or_init(|| entries(GROUPS_PER_BLOCK << 8));
        for byte in 0..=0xff {
            if let Some(place) = self.tbl8_entry(group, byte) {
                place.store(hop, Ordering::Relaxed);
            }
        }
        group
    }
}

impl Groups {
    /// How many groups can be taken now.
    pub(super) fn available(&mut self) -> usize {
        self.reclaim();
        self.free.len() + MAX_GROUPS - self.unused
    }

    fn take(&mut self) -> Option<u16> {
        self.reclaim();
        self.free.pop().or_else(|| {
            let group = (self.unused < MAX_GROUPS).then_some(self.unused as u16)?;
            self.unused += 1;
            Some(group)
        })
    }

    /// Retires the released groups: readers that come from now on cannot know
    /// them, so they are free when the present epoch's readers are gone.
    fn end_epoch(&mut self, epoch: &ArcSwap<()>) {
        if !self.released.is_empty() {
            let old = epoch.swap(Arc::new(()));
            self.retired.push_back((old, std::mem::take(&mut self.released)));
        }
    }

    /// Frees the groups of the oldest epochs without readers. An epoch with
    /// readers holds the later ones back: its readers may know their groups too.
    fn reclaim(&mut self) {
        while let Some((epoch, groups)) = self.retired.pop_front() {
            match Arc::try_unwrap(epoch) {
                Ok(()) => self.free.extend(groups),
                Err(pinned) => return self.retired.push_front((pinned, groups)),
            }
        }
    }
}

/// Cuts `within` into ranges of addresses with one next hop, in order, as the
/// longest prefixes of `store` say.
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
    fn a_group_is_used_again_only_after_its_readers_are_gone() {
        let (table, mut groups) = (Dir24_8::new(), Groups::default());
        let mut store = PrefixStore::default();
        let mut set = |groups: &mut Groups, first: u32, hop: Option<u16>| {
            store.set(prefix(first, 32), hop.map(HopId::test));
            table.repaint(groups, &store, prefix(first, 32));
        };
        set(&mut groups, 0x0102_0304, Some(7));
        assert_eq!((look(&table, 0x0102_0304), look(&table, 0x0102_0305)), (7, 0));
        assert_eq!(groups.available(), MAX_GROUPS - 1);

        let reader = table.epoch.load();
        set(&mut groups, 0x0102_0304, None);
        assert_eq!(look(&table, 0x0102_0304), 0);
        assert_eq!(groups.available(), MAX_GROUPS - 1, "the reader may look at it");
        // A group freed in a later epoch waits for the same reader.
        set(&mut groups, 0x0505_0505, Some(9));
        set(&mut groups, 0x0505_0505, None);
        assert_eq!(groups.available(), MAX_GROUPS - 2);
        drop(reader);
        assert_eq!(groups.available(), MAX_GROUPS);
    }
}
