//! Mappings between inside and external end points, and their sessions.
//!
//! **Bounds.** Without room, or without a free port, the NAT evicts sessions that were never
//! answered from outside, one for each that begins, and a mapping with its last session: a host that
//! floods the table without replies fills it with such sessions only. Answered sessions are never evicted (RFC 4787 REQ-5,
//! RFC 5382 REQ-5).

mod expiry;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, FiveTuple, Nanoseconds};

use super::Protocol;
use super::config::{Config, Filtering};
use super::pool::{Pool, Pools};
use super::session::{Remote, Session, Sessions, tree_bytes};
use super::taken::{TakenPorts, Word};
pub(super) use expiry::STEP;
use thalweg_nf::state::StateError;
use thalweg_nf::toolkit::flow_table::{self, FlowTable, FlowWords, Index, NoPlace, Slot};

/// An address and a port (or echo identifier) of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct EndPoint(pub(super) Protocol, pub(super) Ipv4Addr, pub(super) u16);

impl FlowWords<1> for EndPoint {
    fn words(&self) -> [u64; 1] {
        let Self(protocol, address, port) = *self;
        [(protocol as u64) << 48 | u64::from(address.to_bits()) << 16 | u64::from(port)]
    }
}

/// A mapping, in the table and in state streams. It lives as long as its sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) inside: EndPoint,
    pub(super) external: EndPoint,
    /// The remotes that the inside host has sent to.
    sessions: Sessions,
}

impl Record {
    /// Its flows as the inside host sends them, with as much of the remote end as sessions record.
    pub(super) fn flows(&self) -> impl Iterator<Item = FiveTuple> {
        let EndPoint(protocol, address, port) = self.inside;
        self.sessions.iter().map(move |(with, _)| FiveTuple {
            src: address.into(),
            dst: with.address.into(),
            protocol: protocol.number(),
            src_port: port,
            dst_port: with.port,
        })
    }

    /// Whether the filtering accepts a packet from this remote end. A session that is late counts for
    /// nothing, except where any session with the remote's address suffices.
    fn admits(
        &self,
        remote: (Ipv4Addr, u16),
        filtering: Filtering,
        is_late: impl Fn(&Session) -> bool,
    ) -> bool {
        let exact = Remote::new(self.inside.0, remote, filtering);
        match filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressAndPortDependent => {
                self.sessions.get(&exact).is_some_and(|session| !is_late(session))
            }
            Filtering::AddressDependent => self.sessions.are_with(remote.0),
        }
    }
}

/// When to check whether a session is idle: its `due`.
pub(super) type Due = (Nanoseconds, EndPoint, Remote);

/// The most sessions that a packet that needs room examines. If all of them were used since they
/// were last examined, the packet is refused; the next one examines others.
const MOST_LOOKED_AT: usize = 64;

/// All mappings, found by either end.
#[derive(Debug)]
pub(super) struct Mappings {
    config: Config,
    by_inside: FlowTable<EndPoint, Record, 1>,
    /// The slots in `by_inside`.
    by_external: Index<1>,
    taken: TakenPorts,
    /// One entry for each session, not later than the session ends.
    due: BTreeSet<Due>,
    /// The earliest time in `due`, or one before it.
    next_due: Nanoseconds,
    /// Present while sessions are here that were over by then.
    late: Option<Nanoseconds>,
    pools: Pools,
    pub(super) created: u64,
    pub(super) expired: u64,
    /// Evicted mappings, and evicted sessions.
    pub(super) evicted: u64,
    pub(super) sessions_evicted: u64,
    pub(super) refused: u64,
}

impl Mappings {
    /// Goes on with another configuration, which suits the mappings. A session ends after the idle
    /// time that it had at its last packet, or the new one if that is longer.
    pub(super) fn renew(&mut self, config: Config) {
        self.by_inside.limit(config.max_mappings);
        self.by_external.limit(config.max_mappings);
        self.config = config;
    }

    pub(super) fn new(config: Config) -> Self {
        Self {
            by_inside: FlowTable::new(config.max_mappings),
            by_external: Index::new(config.max_mappings),
            taken: TakenPorts::default(),
            config,
            due: BTreeSet::new(),
            next_due: Nanoseconds(u64::MAX),
            late: None,
            pools: Pools::default(),
            created: 0,
            expired: 0,
            evicted: 0,
            sessions_evicted: 0,
            refused: 0,
        }
    }

    /// The bytes of the mappings and sessions that a configuration allows, with the further
    /// sessions divided evenly.
    pub(super) fn bytes(config: &Config) -> usize {
        let mappings = config.max_mappings.min(config.max_sessions);
        let further = config.max_sessions - mappings;
        let each = further.div_ceil(mappings);
        FlowTable::<EndPoint, Record, 1>::bytes(mappings)
            + Index::<1>::bytes(mappings)
            + tree_bytes(size_of::<(Word, u64)>(), mappings)
            // One that was never answered is listed for eviction, too.
            + 2 * tree_bytes(size_of::<Due>(), config.max_sessions)
            + mappings.min(further) * Sessions::further_bytes(each)
    }

    pub(super) fn len(&self) -> usize {
        self.by_inside.len()
    }

    /// The number of sessions of all mappings.
    pub(super) fn sessions(&self) -> usize {
        self.due.len()
    }

    /// Prefetches mappings ahead of their packets: those of packets from `insides`, and of packets
    /// to `externals`; at most a batch of each.
    pub(super) fn ask_for(&mut self, insides: &[EndPoint], externals: &[EndPoint]) {
        self.by_external.settle();
        let inward = flow_table::find(&self.by_external, externals.iter().copied());
        self.by_inside.find(insides.iter().copied());
        inward.slots().for_each(|slot| self.by_inside.ask_for(slot));
    }

    /// The external end point of a packet from `inside` to `remote`; creates
    /// mapping and session if they do not exist.
    pub(super) fn outward(
        &mut self,
        inside: EndPoint,
        remote: (Ipv4Addr, u16),
        flags: u8,
        now: Nanoseconds,
    ) -> Result<EndPoint, DropReason> {
        let with = Remote::new(inside.0, remote, self.config.filtering);
        self.remove_if_late(inside, with);
        let slot = self.by_inside.slot(&inside);
        if let Some(external) = slot.and_then(|slot| self.count(slot, with, true, flags, now)) {
            return Ok(external);
        }
        self.make_way(|all| all.sessions() < all.config.max_sessions)?;
        // The mapping itself may have been evicted.
        let slot = match self.by_inside.slot(&inside) {
            Some(slot) => slot,
            None => self.create(inside)?,
        };
        if let Some((_, record)) = self.by_inside.at_mut(slot) {
            record.sessions.insert(with, Session::new(now));
            self.look_at(inside, with);
        }
        self.count(slot, with, true, flags, now).ok_or(DropReason::StateFull)
    }

    /// The inside end point of a packet from `remote` to `external`.
    pub(super) fn inward(
        &mut self,
        external: EndPoint,
        remote: (Ipv4Addr, u16),
        flags: u8,
        now: Nanoseconds,
    ) -> Result<EndPoint, DropReason> {
        let slot = self.slot_of(external).ok_or(DropReason::NoMapping)?;
        let (inside, record) = self.by_inside.at(slot).ok_or(DropReason::NoMapping)?;
        let inside = *inside;
        let with = Remote::new(inside.0, remote, self.config.filtering);
        let is_late = |session: &Session| self.is_late(inside, session);
        if self.is_over(record) || !record.admits(remote, self.config.filtering, is_late) {
            return Err(DropReason::NoMapping);
        }
        if !record.sessions.get(&with).is_some_and(is_late) {
            self.count(slot, with, false, flags, now);
        }
        Ok(inside)
    }

    fn slot_of(&self, external: EndPoint) -> Option<Slot> {
        self.by_external.get(&external.words()).map(Slot)
    }

    /// Records a packet of a session of the mapping in `slot`, if that session exists; returns the
    /// mapping's external end point.
    fn count(
        &mut self,
        slot: Slot,
        with: Remote,
        outward: bool,
        flags: u8,
        now: Nanoseconds,
    ) -> Option<EndPoint> {
        let (inside, record) = self.by_inside.at_mut(slot)?;
        let (inside, external) = (*inside, record.external);
        let session = record.sessions.get_mut(&with)?;
        let before = (session.life(inside.0), session.answered);
        session.packet(inside.0, outward, flags, now);
        // It may now end earlier, or no longer be evictable. If it ends later, `expire` notices
        // that when the session is due.
        if (session.life(inside.0), session.answered) != before {
            self.look_at(inside, with);
        }
        Some(external)
    }

    /// Schedules the check of a session, for its end and for eviction.
    fn look_at(&mut self, inside: EndPoint, with: Remote) {
        let Some(record) = self.by_inside.get_mut(None, &inside) else { return };
        let pool = Pool::of(record.external, &self.config.ports);
        let Some(session) = record.sessions.get_mut(&with) else { return };
        let before = *session;
        session.due = session.last_used.plus(self.config.timeout(session.life(inside.0)));
        session.gives_way = !session.answered;
        let after = *session;
        self.leave_alone(pool, inside, with, before);
        let due = (after.due, inside, with);
        self.due.insert(due);
        self.next_due = self.next_due.min(after.due);
        if after.gives_way {
            self.pools.may_give_way(pool, due);
        }
    }

    /// Cancels the check of a session.
    fn leave_alone(&mut self, pool: Pool, inside: EndPoint, with: Remote, session: Session) {
        let due = (session.due, inside, with);
        self.due.remove(&due);
        if session.gives_way {
            self.pools.gives_way_no_more(pool, &due);
        }
    }

    /// The inside end point of a mapping, for an ICMP error, which neither
    /// creates mappings nor keeps them alive (RFC 5508 REQ-10).
    pub(super) fn inside_of(&self, external: EndPoint) -> Option<EndPoint> {
        let (inside, record) = self.by_inside.at(self.slot_of(external)?)?;
        (!self.is_over(record)).then_some(*inside)
    }

    /// The external end point of a mapping, likewise.
    pub(super) fn external_of(&self, inside: EndPoint) -> Option<EndPoint> {
        self.by_inside.get(&inside).filter(|record| !self.is_over(record)).map(|r| r.external)
    }

    fn create(&mut self, inside: EndPoint) -> Result<Slot, DropReason> {
        self.make_way(|all| all.len() < all.config.max_mappings)?;
        let Some(external) = self.choose(inside).or_else(|| self.take_port(inside)) else {
            self.refused += 1;
            return Err(DropReason::NoPort);
        };
        let slot = self.insert(Record { inside, external, sessions: Sessions::default() });
        match slot {
            Ok(_) => self.created += 1,
            Err(_) => self.refused += 1,
        }
        slot.map_err(|NoPlace| DropReason::StateFull)
    }

    /// Removes late sessions if there is no room, and evicts an unanswered one if there are none: one of
    /// the pool that has most of them, as a flood fills the table with these.
    fn make_way(&mut self, has_room: impl Fn(&Self) -> bool) -> Result<(), DropReason> {
        let mut looks = MOST_LOOKED_AT;
        while !has_room(self) {
            if looks > 0 && self.remove_first_late() {
                looks -= 1;
                continue;
            }
            let Some(pool) = self.pools.most_to_give_way().filter(|_| looks > 0) else {
                self.refused += 1;
                return Err(DropReason::StateFull);
            };
            self.evict(pool, &mut looks, |_| true);
        }
        Ok(())
    }

    /// The external end point of a mapping that is evicted for one of `inside`.
    fn take_port(&mut self, inside: EndPoint) -> Option<EndPoint> {
        let EndPoint(protocol, _, port) = inside;
        let pool = Pool::that_suits(EndPoint(protocol, self.address_of(inside), port));
        let (mut looks, mut free) = (MOST_LOOKED_AT, None);
        self.evict(pool, &mut looks, |external| {
            free = external;
            free.is_some()
        });
        free
    }

    /// Evicts unanswered sessions of `pool`, the least recently used first, until `enough` returns
    /// `true`; it gets the external end point that each eviction freed, if any.
    fn evict(
        &mut self,
        pool: Pool,
        looks: &mut usize,
        mut enough: impl FnMut(Option<EndPoint>) -> bool,
    ) {
        while *looks > 0
            && let Some((due, inside, with)) = self.pools.first_to_give_way(pool)
        {
            *looks -= 1;
            if self.end_of(inside, with).is_some_and(|end| end > due) {
                // It was used since.
                self.look_at(inside, with);
                continue;
            }
            let session = self.session(inside, with);
            let is_late = session.is_some_and(|session| self.is_late(inside, session));
            let external = self.end(inside, with);
            self.sessions_evicted += u64::from(!is_late);
            let ended = if is_late { &mut self.expired } else { &mut self.evicted };
            *ended += u64::from(external.is_some());
            if enough(external) {
                return;
            }
        }
    }

    /// When a session ends if it is not used again.
    fn end_of(&self, inside: EndPoint, with: Remote) -> Option<Nanoseconds> {
        Some(self.end_of_session(inside, self.session(inside, with)?))
    }

    fn end_of_session(&self, inside: EndPoint, session: &Session) -> Nanoseconds {
        session.last_used.plus(self.config.timeout(session.life(inside.0)))
    }

    fn session(&self, inside: EndPoint, with: Remote) -> Option<&Session> {
        self.by_inside.get(&inside)?.sessions.get(&with)
    }

    /// Inserts a mapping, both ends of which are free.
    fn insert(&mut self, record: Record) -> Result<Slot, NoPlace> {
        let (inside, external) = (record.inside, record.external);
        let with: Vec<Remote> = record.sessions.iter().map(|(with, _)| *with).collect();
        let slot = self.by_inside.insert(inside, record)?;
        if let Err(none) = self.by_external.try_insert(&external.words(), slot.0) {
            self.by_inside.remove(&inside);
            return Err(none);
        }
        self.taken.take(external);
        self.pools.take(Pool::of(external, &self.config.ports));
        with.into_iter().for_each(|with| self.look_at(inside, with));
        Ok(slot)
    }

    /// The external address of a host: always the same (paired pooling: RFC 4787 REQ-2).
    fn address_of(&self, EndPoint(_, host, _): EndPoint) -> Ipv4Addr {
        let mixed = (u64::from(u32::from(host)) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let addresses = &self.config.external;
        addresses[mixed as usize % addresses.len()]
    }

    /// A free external end point: the host's own port if that is free, else one of the same parity
    /// (RFC 4787 REQ-3, REQ-4).
    fn choose(&self, inside: EndPoint) -> Option<EndPoint> {
        let EndPoint(protocol, host, port) = inside;
        let address = self.address_of(inside);
        let (low, high) = (*self.config.ports.start(), *self.config.ports.end());
        let own = EndPoint(protocol, address, port);
        if self.config.ports.contains(&port) && self.slot_of(own).is_none() {
            return Some(own);
        }
        let span = u32::from(high - low) + 1;
        // Every other port of the range, beginning with its first or second.
        let all = (span + u32::from((low ^ port) & 1 == 0)) >> 1;
        let pool = Pool::that_suits(own);
        // With all ports in use this is called over and over: then without a search.
        if self.pools.in_use(pool) >= all as usize {
            return None;
        }
        // The start of the search is hard to predict from outside (RFC 6056).
        let mixed = u64::from(u32::from(host)) << 16 | u64::from(port);
        let start = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % span;
        self.taken.first_free(own, &self.config.ports, low + start as u16)
    }

    /// Ends a session; returns the external end point if that freed it: the mapping's last session.
    fn end(&mut self, inside: EndPoint, with: Remote) -> Option<EndPoint> {
        let record = self.by_inside.get_mut(None, &inside)?;
        let session = record.sessions.remove(&with)?;
        let (external, was_last) = (record.external, record.sessions.is_empty());
        self.leave_alone(Pool::of(external, &self.config.ports), inside, with, session);
        was_last.then(|| {
            self.remove(inside);
            external
        })
    }

    fn remove(&mut self, inside: EndPoint) {
        let Some(record) = self.by_inside.remove(&inside) else { return };
        self.by_external.remove(&record.external.words());
        self.taken.give_back(record.external);
        let pool = Pool::of(record.external, &self.config.ports);
        for (with, session) in record.sessions.iter() {
            self.leave_alone(pool, inside, *with, *session);
        }
        self.pools.give_back(pool);
    }

    /// All mappings in a fixed order.
    pub(super) fn records(&self) -> Vec<&Record> {
        let all = self.by_inside.iter().map(|(_, record)| record);
        let mut all: Vec<_> = all.filter(|record| !self.is_over(record)).collect();
        all.sort_unstable_by_key(|r| r.inside);
        all
    }

    /// Takes over mappings: all of them, or none if one conflicts. As many as `expected` are to come
    /// in all.
    pub(super) fn take_over(
        &mut self,
        records: Vec<Record>,
        expected: usize,
    ) -> Result<(), StateError> {
        let sessions: usize = records.iter().map(|r| r.sessions.len()).sum();
        if self.len() + records.len() > self.config.max_mappings
            || self.sessions() + sessions > self.config.max_sessions
        {
            let what = "more mappings or sessions than this NAT may hold".into();
            return Err(StateError::Record { index: records.len(), what });
        }
        let room = self.config.max_mappings - self.len();
        let room = records.len().max(expected.min(room));
        self.by_inside.reserve(room);
        self.by_external.reserve(room);
        let mut taken = Vec::with_capacity(records.len());
        for (index, record) in records.into_iter().enumerate() {
            let inside = record.inside;
            if let Err(what) = self.take_over_one(record) {
                taken.into_iter().for_each(|inside| self.remove(inside));
                return Err(StateError::Record { index, what: format!("{what}: {inside:?}") });
            }
            taken.push(inside);
        }
        Ok(())
    }

    /// Forgets all mappings, which another instance has taken over.
    pub(super) fn forget(&mut self) {
        // Those that are over have not moved.
        self.remove_all_late();
        self.by_inside.clear();
        self.by_external.clear();
        self.taken = TakenPorts::default();
        self.due.clear();
        self.next_due = Nanoseconds(u64::MAX);
        self.pools = Pools::default();
    }

    fn take_over_one(&mut self, record: Record) -> Result<(), String> {
        let (inside, external) = (record.inside, record.external);
        if !self.config.is_external(external.1) || !self.config.is_inside(inside.1) {
            return Err("the addresses are not those that this NAT translates".into());
        }
        let known = self.by_inside.slot(&inside).is_some() || self.slot_of(external).is_some();
        if known || inside.0 != external.0 {
            return Err("the mapping conflicts with another".into());
        }
        if record.sessions.is_empty() {
            return Err("the mapping has no session".into());
        }
        self.insert(record).map(drop).map_err(|error| error.to_string())
    }
}
