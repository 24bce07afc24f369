//! Mappings between inside and external end points, and their sessions.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, FiveTuple, Nanoseconds};

use super::Protocol;
use super::config::{Config, Filtering};
use super::session::{Remote, Session, Sessions};
use crate::flow_table::{self, FlowTable, FlowWords, Index, NoPlace, Slot};
use crate::state::StateError;

/// An address and a port (or echo identifier) of a protocol.
pub(super) type EndPoint = (Protocol, Ipv4Addr, u16);

impl FlowWords<1> for EndPoint {
    fn words(&self) -> [u64; 1] {
        let (protocol, address, port) = *self;
        [(protocol as u64) << 48 | u64::from(address.to_bits()) << 16 | u64::from(port)]
    }
}

/// A mapping, as it is kept and as it travels. It lasts as long as its sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) inside: EndPoint,
    pub(super) external: EndPoint,
    /// Whom the host inside has sent to.
    sessions: Sessions,
}

impl Record {
    /// Its flows as the host inside sends them, with as much of the other end as sessions tell.
    pub(super) fn flows(&self) -> impl Iterator<Item = FiveTuple> {
        let (protocol, address, port) = self.inside;
        self.sessions.iter().map(move |(with, _)| FiveTuple {
            src: address.into(),
            dst: with.address.into(),
            protocol: protocol.number(),
            src_port: port,
            dst_port: with.port,
        })
    }

    /// Whether a packet from this end may come in.
    fn admits(&self, remote: (Ipv4Addr, u16), filtering: Filtering) -> bool {
        let exact = Remote::new(self.inside.0, remote, filtering);
        match filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressAndPortDependent => self.sessions.get(&exact).is_some(),
            Filtering::AddressDependent => self.sessions.are_with(remote.0),
        }
    }
}

/// When to look whether a session is idle: its `due`.
type Due = (Nanoseconds, EndPoint, Remote);

/// All mappings, found by either end.
#[derive(Debug)]
pub(super) struct Mappings {
    config: Config,
    by_inside: FlowTable<EndPoint, Record, 1>,
    /// The slots in `by_inside`.
    by_external: Index<1>,
    /// One entry for each session, not later than the session ends.
    due: BTreeSet<Due>,
    /// Ports in use, by protocol, external address and parity.
    in_use: HashMap<(Protocol, Ipv4Addr, bool), usize>,
    pub(super) created: u64,
    pub(super) expired: u64,
    pub(super) refused: u64,
}

impl Mappings {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            by_inside: FlowTable::new(),
            by_external: flow_table::index(),
            due: BTreeSet::new(),
            in_use: HashMap::new(),
            created: 0,
            expired: 0,
            refused: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_inside.len()
    }

    /// How many sessions all mappings have.
    pub(super) fn sessions(&self) -> usize {
        self.due.len()
    }

    /// Asks for the memory of mappings ahead of their packets: of those from `insides`, and of
    /// those to `externals`; at most a batch's each.
    pub(super) fn ask_for(&self, insides: &[EndPoint], externals: &[EndPoint]) {
        let inward = flow_table::find(&self.by_external, externals.iter().copied());
        self.by_inside.find(insides.iter().copied());
        inward.slots().for_each(|slot| self.by_inside.ask_for(slot));
    }

    /// The external end point of a packet from `inside` to `remote`; makes
    /// mapping and session when there are none.
    pub(super) fn outward(
        &mut self,
        inside: EndPoint,
        remote: (Ipv4Addr, u16),
        flags: u16,
        now: Nanoseconds,
    ) -> Result<EndPoint, DropReason> {
        let with = Remote::new(inside.0, remote, self.config.filtering);
        let slot = self.by_inside.slot(&inside);
        if let Some(external) = slot.and_then(|slot| self.count(slot, with, true, flags, now)) {
            return Ok(external);
        }
        if self.sessions() >= self.config.max_sessions {
            self.refused += 1;
            return Err(DropReason::StateFull);
        }
        let slot = match slot {
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
        flags: u16,
        now: Nanoseconds,
    ) -> Result<EndPoint, DropReason> {
        let slot = self.slot_of(external).ok_or(DropReason::NoMapping)?;
        let (inside, record) = self.by_inside.at(slot).ok_or(DropReason::NoMapping)?;
        if !record.admits(remote, self.config.filtering) {
            return Err(DropReason::NoMapping);
        }
        let inside = *inside;
        let with = Remote::new(inside.0, remote, self.config.filtering);
        self.count(slot, with, false, flags, now);
        Ok(inside)
    }

    fn slot_of(&self, external: EndPoint) -> Option<Slot> {
        self.by_external.get(&external.words()).map(Slot)
    }

    /// Notes a packet of a session of the mapping in `slot`, if there is that session; the
    /// mapping's external end point.
    fn count(
        &mut self,
        slot: Slot,
        with: Remote,
        outward: bool,
        flags: u16,
        now: Nanoseconds,
    ) -> Option<EndPoint> {
        let (inside, record) = self.by_inside.at_mut(slot)?;
        let (inside, external) = (*inside, record.external);
        let session = record.sessions.get_mut(&with)?;
        let before = session.life(inside.0);
        session.packet(inside.0, outward, flags, now);
        // It may now end earlier. When it ends later, that is found when it is due.
        if session.life(inside.0) != before {
            self.look_at(inside, with);
        }
        Some(external)
    }

    /// Has a session be looked at when it may end.
    fn look_at(&mut self, inside: EndPoint, with: Remote) {
        let record = self.by_inside.get_mut(None, &inside);
        let Some(session) = record.and_then(|r| r.sessions.get_mut(&with)) else { return };
        self.due.remove(&(session.due, inside, with));
        session.due = session.last_used.plus(self.config.timeout(session.life(inside.0)));
        self.due.insert((session.due, inside, with));
    }

    /// The inside end point of a mapping, for an ICMP error, which neither
    /// makes mappings nor keeps them alive (RFC 5508 REQ-10).
    pub(super) fn inside_of(&self, external: EndPoint) -> Option<EndPoint> {
        self.by_inside.at(self.slot_of(external)?).map(|(inside, _)| *inside)
    }

    /// The external end point of a mapping, likewise.
    pub(super) fn external_of(&self, inside: EndPoint) -> Option<EndPoint> {
        self.by_inside.get(&inside).map(|r| r.external)
    }

    fn create(&mut self, inside: EndPoint) -> Result<Slot, DropReason> {
        if self.by_inside.len() >= self.config.max_mappings {
            self.refused += 1;
            return Err(DropReason::StateFull);
        }
        let Some(external) = self.choose(inside) else {
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

    /// Puts a mapping in, both ends of which are free.
    fn insert(&mut self, record: Record) -> Result<Slot, NoPlace> {
        let (inside, external) = (record.inside, record.external);
        let with: Vec<Remote> = record.sessions.iter().map(|(with, _)| *with).collect();
        let slot = self.by_inside.insert(inside, record)?;
        if let Err(none) = self.by_external.try_insert(&external.words(), slot.0) {
            self.by_inside.remove(&inside);
            return Err(none);
        }
        *self.in_use.entry(parity_of(external)).or_default() += 1;
        with.into_iter().for_each(|with| self.look_at(inside, with));
        Ok(slot)
    }

    /// A free external end point: always the same address for a host (pooling
    /// is paired: RFC 4787 REQ-2), and its own port where that is free, else one
    /// of the same parity (RFC 4787 REQ-3, REQ-4).
    fn choose(&self, inside: EndPoint) -> Option<EndPoint> {
        let (protocol, host, port) = inside;
        let mixed = (u64::from(u32::from(host)) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let addresses = &self.config.external;
        let address = addresses[mixed as usize % addresses.len()];
        let free = |port: u16| self.slot_of((protocol, address, port)).is_none();
        let (low, high) = (*self.config.ports.start(), *self.config.ports.end());
        if self.config.ports.contains(&port) && free(port) {
            return Some((protocol, address, port));
        }
        let span = u32::from(high - low) + 1;
        // Every other port of the range, beginning with its first or second.
        let all = (span + u32::from((low ^ port) & 1 == 0)) >> 1;
        let used = self.in_use.get(&parity_of((protocol, address, port)));
        // Asked again and again when all are in use: then without a search.
        if used.is_some_and(|used| *used >= all as usize) {
            return None;
        }
        // Where the search begins is hard to tell from outside (RFC 6056).
        let mixed = u64::from(u32::from(host)) << 16 | u64::from(port);
        let start = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % span;
        let candidates = (0..span).map(|i| low + ((start + i) % span) as u16);
        let port = candidates.into_iter().find(|p| (p ^ port) & 1 == 0 && free(*p))?;
        Some((protocol, address, port))
    }

    /// Ends sessions that have been idle for long, and mappings without sessions.
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        while let Some(&(due, inside, with)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            let Some(record) = self.by_inside.get_mut(None, &inside) else { continue };
            let Some(session) = record.sessions.get(&with) else { continue };
            if session.last_used.plus(self.config.timeout(session.life(inside.0))) > now {
                // It was used since.
                self.look_at(inside, with);
                continue;
            }
            record.sessions.remove(&with);
            if record.sessions.is_empty() {
                self.remove(inside);
                self.expired += 1;
            }
        }
    }

    fn remove(&mut self, inside: EndPoint) {
        let Some(record) = self.by_inside.remove(&inside) else { return };
        self.by_external.remove(&record.external.words());
        for (with, session) in record.sessions.iter() {
            self.due.remove(&(session.due, inside, *with));
        }
        if let Some(used) = self.in_use.get_mut(&parity_of(record.external)) {
            *used -= 1;
        }
    }

    /// All mappings in a fixed order.
    pub(super) fn records(&self) -> Vec<&Record> {
        let mut all: Vec<_> = self.by_inside.iter().map(|(_, record)| record).collect();
        all.sort_unstable_by_key(|r| r.inside);
        all
    }

    /// Takes over mappings; all of them, or none when one is in the way.
    pub(super) fn take_over(&mut self, records: Vec<Record>) -> Result<(), StateError> {
        let sessions: usize = records.iter().map(|r| r.sessions.len()).sum();
        if self.len() + records.len() > self.config.max_mappings
            || self.sessions() + sessions > self.config.max_sessions
        {
            let what = "more mappings or sessions than this NAT may have".into();
            return Err(StateError::Record { index: records.len(), what });
        }
        self.by_inside.reserve(records.len());
        flow_table::make_room(&mut self.by_external, records.len());
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

    fn take_over_one(&mut self, record: Record) -> Result<(), String> {
        let (inside, external) = (record.inside, record.external);
        if !self.config.is_external(external.1) || !self.config.is_inside(inside.1) {
            return Err("the addresses are not those of this NAT".into());
        }
        let known = self.by_inside.slot(&inside).is_some() || self.slot_of(external).is_some();
        if known || inside.0 != external.0 {
            return Err("the mapping is in conflict with another".into());
        }
        if record.sessions.is_empty() {
            return Err("the mapping has no session".into());
        }
        self.insert(record).map(drop).map_err(|error| error.to_string())
    }
}

/// What ports are counted by.
fn parity_of((protocol, address, port): EndPoint) -> (Protocol, Ipv4Addr, bool) {
    (protocol, address, port & 1 == 1)
}
