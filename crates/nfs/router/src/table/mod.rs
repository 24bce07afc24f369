//! The route table: longest-prefix match over both IP versions, changed by a reload while the router
//! reads it.

mod edits;
mod list;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use self::edits::{Edits, edits, effective, resolve};
pub use self::list::RouteList;
use super::device::Trie;
use super::dir24_8::{Dir24_8, Groups, MAX_GROUPS};
use super::prefix::{IpPrefix, Prefix, PrefixStore};
use super::trie6::{self, MAX_ROUTES, Trie6};

/// A MAC address.
pub type Mac = [u8; 6];

/// A port of a router: its position in [`Ports`](super::Ports).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouterPort(pub u16);

/// What to do with the packets of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// Drop them, and send an ICMP error to the sender; also if there is no route.
    Unreachable,
    /// Drop them, and report to the sender that the host is unreachable: an `unreachable` route of
    /// the kernel for IPv4.
    HostUnreachable,
    /// Drop them, and report to the sender that the administrator forbids them.
    Prohibited,
    /// Drop them silently.
    Blackhole,
    /// Drop them, as the kernel has received a copy of its own and answers.
    Kernel,
    /// Deliver them to the router itself.
    Local {
        /// The port that has the address.
        port: RouterPort,
    },
    /// Send them by a port whose link has the destination itself.
    Direct {
        /// The port.
        port: RouterPort,
    },
    /// Send them by a port to another router.
    Gateway {
        /// The other router.
        address: IpAddr,
        /// The port.
        port: RouterPort,
        /// The other router's MAC address; `None` if it is resolved.
        mac: Option<Mac>,
    },
    /// Send each flow to one of several next hops (ECMP); one listed twice gets twice the flows.
    Multipath(Ways),
}

/// The next hops of a multipath route: gateways and links, two or more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ways(Arc<[NextHop]>);

impl Ways {
    /// The most next hops of a route.
    pub const MOST: usize = 64;

    /// Returns `None` for fewer than two or more than [`MOST`](Self::MOST) next hops, or if one of
    /// them is neither direct nor a gateway.
    pub fn new(ways: Vec<NextHop>) -> Option<Self> {
        let leaves =
            |way: &NextHop| matches!(way, NextHop::Direct { .. } | NextHop::Gateway { .. });
        let right = (2..=Self::MOST).contains(&ways.len()) && ways.iter().all(leaves);
        right.then(|| Self(ways.into()))
    }

    /// All next hops.
    pub fn all(&self) -> &[NextHop] {
        &self.0
    }

    /// The next hop of flows with this hash. The hash range is divided into equal parts (RFC 2992),
    /// so that few flows move when a next hop is added at the end.
    pub fn of(&self, hash: u32) -> &NextHop {
        &self.0[((u64::from(hash) * self.0.len() as u64) >> 32) as usize]
    }
}

/// The number of a next hop in its table: 15 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct HopId(pub(super) u16);

impl HopId {
    /// No route: [`NextHop::Unreachable`].
    pub const NO_ROUTE: Self = Self(0);

    /// Any number, for tests of the lookup structures.
    #[cfg(test)]
    pub(super) fn test(number: u16) -> Self {
        assert!(number < 0x8000);
        Self(number)
    }
}

/// The number of different next hops that a table can have over its life.
pub const MAX_HOPS: usize = 0x8000;

/// Why a table rejects a change. It stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There are too many different next hops. Next hops that were ever in the
    /// table keep their number.
    #[error("more than {MAX_HOPS} different next hops")]
    TooManyHops,
    /// There are too many /24s with longer prefixes in them.
    #[error("IPv4 prefixes longer than /24 in more than {MAX_GROUPS} different /24s")]
    TooManyGroups,
    /// There are too many routes of IPv6.
    #[error("more than {MAX_ROUTES} IPv6 routes")]
    TooManyRoutes,
}

/// The changes made by a replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Prefixes that had no route.
    pub added: usize,
    /// Prefixes that have no route any more.
    pub removed: usize,
    /// Prefixes that have another next hop.
    pub changed: usize,
}

/// Routes of both IP versions. Readers take no lock; writers take turns.
///
/// For each address a reader gets the next hop from before or from after a
/// change, and no other.
#[derive(Debug)]
pub struct RouteTable {
    v4: Dir24_8,
    v6: Trie6,
    /// Next hops by number, each set once before an entry names it.
    hops: Box<[OnceLock<NextHop>]>,
    writer: Mutex<Writer>,
    /// The numbers of routes, for readers that must not wait for a writer.
    lens: (AtomicUsize, AtomicUsize),
}

/// Looks addresses up in the current state of a [`RouteTable`]. Keeps the memory of the state that
/// it used last until the next lookup.
#[derive(Clone, Debug)]
pub struct ReaderV6(trie6::Reader);

impl ReaderV6 {
    /// Looks up `addresses` into `hops`.
    ///
    /// # Panics
    /// If the two differ in length.
    #[inline]
    pub fn lookup(&mut self, addresses: &[u128], hops: &mut [HopId]) {
        assert_eq!(addresses.len(), hops.len(), "a next hop for each address");
        self.0.lookup_batch(addresses, hops);
    }
}

#[derive(Debug)]
struct Writer {
    v4: PrefixStore<u32>,
    v6: PrefixStore<u128>,
    groups: Groups,
    ids: HashMap<NextHop, HopId>,
}

/// A writer is at work.
pub(super) struct Busy;

impl Writer {
    fn matched(&self, address: IpAddr) -> Option<IpPrefix> {
        match address {
            IpAddr::V4(address) => self.v4.longest(address.into(), 32).map(|(p, _)| p.into()),
            IpAddr::V6(address) => self.v6.longest(address.into(), 128).map(|(p, _)| p.into()),
        }
    }
}

/// From this many changes on, one pass over the whole table is cheaper than an
/// update for each change.
const REPAINT_ALL: usize = 100_000;

impl Default for RouteTable {
    fn default() -> Self {
        Self::new()
    }
}

impl RouteTable {
    /// A table without routes. It allocates 48 MiB for IPv4 from the start.
    pub fn new() -> Self {
        let hops: Box<[_]> = (0..MAX_HOPS).map(|_| OnceLock::new()).collect();
        hops[0].get_or_init(|| NextHop::Unreachable);
        let writer = Writer {
            v4: PrefixStore::default(),
            v6: PrefixStore::default(),
            groups: Groups::default(),
            ids: HashMap::from([(NextHop::Unreachable, HopId::NO_ROUTE)]),
        };
        Self {
            v4: Dir24_8::new(),
            v6: Trie6::new(),
            hops,
            writer: Mutex::new(writer),
            lens: Default::default(),
        }
    }

    /// Routes `prefix` to `hop`; returns the next hop that it had.
    ///
    /// # Errors
    /// If the table has no room for it.
    pub fn add(
        &self,
        prefix: impl Into<IpPrefix>,
        hop: NextHop,
    ) -> Result<Option<NextHop>, TableError> {
        let mut writer = self.lock();
        let id = self.intern(&mut writer.ids, hop)?;
        let old = match prefix.into() {
            IpPrefix::V4(prefix) => {
                self.check_groups(&mut writer.groups, &[(prefix, Some(id))])?;
                self.set_v4(&mut writer, prefix, Some(id))
            }
            IpPrefix::V6(prefix) => {
                let is_new = writer.v6.get(prefix).is_none();
                check_routes(writer.v6.len() + usize::from(is_new))?;
                self.set_v6(&mut writer, prefix, Some(id))
            }
        };
        self.count(&writer);
        Ok(old.map(|id| self.hop(id).clone()))
    }

    /// Removes the route of `prefix`; returns its next hop, or `None` if
    /// there was no route of exactly this prefix.
    pub fn remove(&self, prefix: impl Into<IpPrefix>) -> Option<NextHop> {
        let mut writer = self.lock();
        let old = match prefix.into() {
            IpPrefix::V4(prefix) => self.set_v4(&mut writer, prefix, None),
            IpPrefix::V6(prefix) => self.set_v6(&mut writer, prefix, None),
        };
        self.count(&writer);
        old.map(|id| self.hop(id).clone())
    }

    /// Makes the routes of `list` the table's only routes. Addresses whose
    /// route does not change are served as before all the time.
    ///
    /// # Errors
    /// If the table has no room for them.
    pub fn replace(&self, list: RouteList) -> Result<Changes, TableError> {
        let mut writer = self.lock();
        let writer = &mut *writer;
        let ids = self.intern_all(&mut writer.ids, &list)?;
        let v4 = resolve(list.v4, &ids);
        let v6 = resolve(list.v6, &ids);
        check_routes(v6.len())?;
        let mut changes = Changes::default();
        let v4_edits = edits(writer.v4.iter(), v4.iter().copied(), &mut changes);
        let v6_edits = edits(writer.v6.iter(), v6.iter().copied(), &mut changes);
        self.check_groups(&mut writer.groups, &v4_edits)?;
        let all = (v4_edits.len() >= REPAINT_ALL).then_some(v4);
        self.apply_v4(writer, all, &v4_edits);
        let all = (v6_edits.len() >= REPAINT_ALL).then_some(v6);
        self.apply_v6(writer, all, &v6_edits);
        self.count(writer);
        Ok(changes)
    }

    /// Sets the next hops of some prefixes, or removes their routes, all in one update; the last
    /// change of a prefix counts. Other routes stay.
    ///
    /// # Errors
    /// If the table has no room for them.
    pub fn change(
        &self,
        changes: impl IntoIterator<Item = (IpPrefix, Option<NextHop>)>,
    ) -> Result<Changes, TableError> {
        let mut writer = self.lock();
        let writer = &mut *writer;
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, hop) in changes {
            let id = hop.map(|hop| self.intern(&mut writer.ids, hop)).transpose()?;
            match prefix {
                IpPrefix::V4(prefix) => v4.push((prefix, id)),
                IpPrefix::V6(prefix) => v6.push((prefix, id)),
            }
        }
        let mut changes = Changes::default();
        let v4 = effective(&writer.v4, v4, &mut changes);
        self.check_groups(&mut writer.groups, &v4)?;
        let (added, removed) = (changes.added, changes.removed);
        let v6 = effective(&writer.v6, v6, &mut changes);
        check_routes(writer.v6.len() + changes.added - added - (changes.removed - removed))?;
        self.apply_v4(writer, None, &v4);
        self.apply_v6(writer, None, &v6);
        self.count(writer);
        Ok(changes)
    }

    /// Frees memory that no reader uses any more. Changes do so, too.
    pub fn sweep(&self) {
        self.v6.sweep();
    }

    /// Looks up `addresses` into `hops`.
    ///
    /// # Panics
    /// If the two differ in length.
    #[inline]
    pub fn lookup_v4(&self, addresses: &[u32], hops: &mut [HopId]) {
        assert_eq!(addresses.len(), hops.len(), "a next hop for each address");
        self.v4.lookup_batch(addresses, hops);
    }

    /// A reader that looks up IPv6 addresses, for one thread.
    pub fn reader_v6(&self) -> ReaderV6 {
        ReaderV6(self.v6.reader())
    }

    /// The next hop for one address.
    pub fn lookup(&self, address: IpAddr) -> NextHop {
        let mut hop = [HopId::NO_ROUTE];
        match address {
            IpAddr::V4(address) => self.lookup_v4(&[address.into()], &mut hop),
            IpAddr::V6(address) => self.reader_v6().lookup(&[address.into()], &mut hop),
        }
        self.hop(hop[0]).clone()
    }

    /// The next hop of number `id`.
    #[inline]
    pub fn hop(&self, id: HopId) -> &NextHop {
        self.hops[id.0 as usize].get().unwrap_or(&NextHop::Unreachable)
    }

    /// The routes as a device reads them, in at most about `most` bytes, and the mark of that table. Waits
    /// for writers.
    pub fn for_device(&self, most: usize) -> (Vec<u8>, u32) {
        let (writer, mut trie) = (self.lock(), Trie::new(most));
        trie.add(writer.v4.iter());
        trie.add(writer.v6.iter());
        trie.into_table()
    }

    /// All prefixes that have a route. Waits for writers.
    pub fn prefixes(&self) -> Vec<IpPrefix> {
        let writer = self.lock();
        let v4 = writer.v4.iter().map(|(prefix, _)| prefix.into());
        v4.chain(writer.v6.iter().map(|(prefix, _)| prefix.into())).collect()
    }

    /// The longest prefix that has a route and holds `address`. Waits for writers.
    pub fn matched(&self, address: IpAddr) -> Option<IpPrefix> {
        self.lock().matched(address)
    }

    /// The same for traces of packets, which must not wait.
    pub(super) fn matched_now(&self, address: IpAddr) -> Result<Option<IpPrefix>, Busy> {
        match self.writer.try_lock() {
            Ok(writer) => Ok(writer.matched(address)),
            Err(TryLockError::Poisoned(writer)) => Ok(writer.into_inner().matched(address)),
            Err(TryLockError::WouldBlock) => Err(Busy),
        }
    }

    /// The numbers of IPv4 and of IPv6 routes.
    pub fn len(&self) -> (usize, usize) {
        (self.lens.0.load(Relaxed), self.lens.1.load(Relaxed))
    }

    fn count(&self, writer: &Writer) {
        self.lens.0.store(writer.v4.len(), Relaxed);
        self.lens.1.store(writer.v6.len(), Relaxed);
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// The numbers of a list's next hops. New ones are numbered by descending count of their
    /// routes, as lookups are fastest for small numbers.
    fn intern_all(
        &self,
        ids: &mut HashMap<NextHop, HopId>,
        list: &RouteList,
    ) -> Result<Vec<HopId>, TableError> {
        let mut routes = vec![0usize; list.hops.len()];
        let hops = list.v4.iter().map(|(_, hop)| hop).chain(list.v6.iter().map(|(_, hop)| hop));
        hops.for_each(|hop| routes[*hop as usize] += 1);
        let mut order: Vec<usize> = (0..routes.len()).collect();
        order.sort_by_key(|hop| Reverse(routes[*hop]));
        let mut found = vec![HopId::NO_ROUTE; routes.len()];
        for hop in order {
            found[hop] = self.intern(ids, list.hops[hop].clone())?;
        }
        Ok(found)
    }

    /// The number of `hop`; a new one if the table never had it.
    fn intern(&self, ids: &mut HashMap<NextHop, HopId>, hop: NextHop) -> Result<HopId, TableError> {
        if let Some(id) = ids.get(&hop) {
            return Ok(*id);
        }
        let slot = self.hops.get(ids.len()).ok_or(TableError::TooManyHops)?;
        slot.get_or_init(|| hop.clone());
        let id = HopId(ids.len() as u16);
        ids.insert(hop, id);
        Ok(id)
    }

    /// Checks that there are groups for all /24s in which `edits` add the first
    /// prefix longer than 24 bits.
    fn check_groups(
        &self,
        groups: &mut Groups,
        edits: &[(Prefix<u32>, Option<HopId>)],
    ) -> Result<(), TableError> {
        let long = edits.iter().filter(|(prefix, hop)| prefix.len() > 24 && hop.is_some());
        let indices: BTreeSet<u32> = long.map(|(prefix, _)| prefix.first() >> 8).collect();
        let needed = indices.into_iter().filter(|index| !self.v4.has_group(*index)).count();
        let room = needed == 0 || needed <= groups.available();
        if room { Ok(()) } else { Err(TableError::TooManyGroups) }
    }

    fn set_v4(&self, writer: &mut Writer, at: Prefix<u32>, hop: Option<HopId>) -> Option<HopId> {
        let old = writer.v4.set(at, hop);
        if old != hop {
            self.v4.repaint(&mut writer.groups, &writer.v4, at);
        }
        old
    }

    fn set_v6(&self, writer: &mut Writer, at: Prefix<u128>, hop: Option<HopId>) -> Option<HopId> {
        let old = writer.v6.set(at, hop);
        if old != hop {
            self.v6.rebuild(&writer.v6, &[at]);
        }
        old
    }

    /// Carries out `edits`, or, if `all` routes are given, sets these in one pass.
    fn apply_v4(
        &self,
        writer: &mut Writer,
        all: Option<Vec<(Prefix<u32>, HopId)>>,
        edits: &Edits<u32>,
    ) {
        if let Some(all) = all {
            writer.v4 = all.into_iter().collect();
            let everything = Prefix::holding(0, 0);
            return self.v4.repaint(&mut writer.groups, &writer.v4, everything);
        }
        for (prefix, hop) in edits {
            writer.v4.set(*prefix, *hop);
        }
        let mut done: Option<Prefix<u32>> = None;
        for (prefix, _) in edits {
            // Prefixes within a repainted prefix were repainted with it.
            let within = prefix.at_most(24);
            if !done.is_some_and(|done| done.contains(within.first())) {
                self.v4.repaint(&mut writer.groups, &writer.v4, within);
                done = Some(within);
            }
        }
    }

    /// Like `apply_v4`.
    fn apply_v6(
        &self,
        writer: &mut Writer,
        all: Option<Vec<(Prefix<u128>, HopId)>>,
        edits: &Edits<u128>,
    ) {
        if edits.is_empty() {
            return;
        }
        if let Some(all) = all {
            writer.v6 = all.into_iter().collect();
        } else {
            for (prefix, hop) in edits {
                writer.v6.set(*prefix, *hop);
            }
        }
        let changed: Vec<_> = edits.iter().map(|(prefix, _)| *prefix).collect();
        self.v6.rebuild(&writer.v6, &changed);
    }

    // Each change of the writer's state is one call that cannot panic halfway
    // for any input, so a poisoned lock holds a consistent table.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_routes(v6: usize) -> Result<(), TableError> {
    if v6 <= MAX_ROUTES { Ok(()) } else { Err(TableError::TooManyRoutes) }
}
