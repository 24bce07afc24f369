//! Mappings between inside and external end points.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, Nanoseconds};

use super::Protocol;
use super::config::{Config, Filtering};
use crate::state::StateError;

/// An address and a port (or echo identifier) of a protocol.
pub(super) type EndPoint = (Protocol, Ipv4Addr, u16);

/// The most remote end points that one mapping remembers for filtering; beyond,
/// the oldest is forgotten.
const MAX_REMOTES: usize = 256;

/// What decides how long a mapping may be idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Life {
    Udp,
    TcpEstablished,
    TcpTransitory,
    Echo,
}

/// A mapping, as it is kept and as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) inside: EndPoint,
    pub(super) external: EndPoint,
    last_used: Nanoseconds,
    life: Life,
    /// TCP: a packet was seen out and in, and a FIN out and in.
    talked: [bool; 2],
    finished: [bool; 2],
    /// Whom the host inside has sent to, oldest first.
    remotes: VecDeque<(Ipv4Addr, u16)>,
}

/// TCP flags, as far as they change a mapping's life.
const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;

impl Record {
    /// Notes a packet; only those from inside keep a mapping alive (RFC 4787
    /// REQ-6).
    fn packet(&mut self, outward: bool, flags: Option<u16>, now: Nanoseconds) {
        if outward {
            self.last_used = self.last_used.max(now);
        }
        let Some(flags) = flags else { return };
        let way = usize::from(!outward);
        if flags & SYN != 0 && outward {
            (self.talked, self.finished) = ([false; 2], [false; 2]);
        }
        self.talked[way] = true;
        self.finished[way] |= flags & FIN != 0;
        if flags & RST != 0 {
            self.finished = [true; 2];
        }
        self.life = if self.talked == [true; 2] && self.finished != [true; 2] {
            Life::TcpEstablished
        } else {
            Life::TcpTransitory
        };
    }

    fn remember(&mut self, remote: (Ipv4Addr, u16)) {
        if !self.remotes.contains(&remote) {
            if self.remotes.len() >= MAX_REMOTES {
                self.remotes.pop_front();
            }
            self.remotes.push_back(remote);
        }
    }

    fn admits(&self, remote: (Ipv4Addr, u16), filtering: Filtering) -> bool {
        match filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => self.remotes.iter().any(|r| r.0 == remote.0),
            Filtering::AddressAndPortDependent => self.remotes.contains(&remote),
        }
    }
}

/// All mappings, found by either end.
#[derive(Debug)]
pub(super) struct Mappings {
    config: Config,
    by_inside: HashMap<EndPoint, Record>,
    by_external: HashMap<EndPoint, EndPoint>,
    /// Mappings by the time at which to look whether they are idle.
    due: BTreeSet<(Nanoseconds, EndPoint)>,
    pub(super) created: u64,
    pub(super) expired: u64,
    pub(super) refused: u64,
}

impl Mappings {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            by_inside: HashMap::new(),
            by_external: HashMap::new(),
            due: BTreeSet::new(),
            created: 0,
            expired: 0,
            refused: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_inside.len()
    }

    /// The external end point of a packet from `inside` to `remote`; makes the
    /// mapping when there is none.
    pub(super) fn outward(
        &mut self,
        inside: EndPoint,
        remote: (Ipv4Addr, u16),
        flags: Option<u16>,
        now: Nanoseconds,
    ) -> Result<EndPoint, DropReason> {
        if !self.by_inside.contains_key(&inside) {
            self.create(inside, now)?;
        }
        let record = self.by_inside.get_mut(&inside).ok_or(DropReason::StateFull)?;
        record.remember(remote);
        let external = record.external;
        self.count(inside, true, flags, now);
        Ok(external)
    }

    /// The inside end point of a packet from `remote` to `external`.
    pub(super) fn inward(
        &mut self,
        external: EndPoint,
        remote: (Ipv4Addr, u16),
        flags: Option<u16>,
        now: Nanoseconds,
    ) -> Result<EndPoint, DropReason> {
        let inside = *self.by_external.get(&external).ok_or(DropReason::NoMapping)?;
        let record = self.by_inside.get(&inside).ok_or(DropReason::NoMapping)?;
        if !record.admits(remote, self.config.filtering) {
            return Err(DropReason::NoMapping);
        }
        self.count(inside, false, flags, now);
        Ok(inside)
    }

    /// Notes a packet of a mapping. When it now lives shorter, its end is looked
    /// for anew.
    fn count(&mut self, inside: EndPoint, outward: bool, flags: Option<u16>, now: Nanoseconds) {
        let Some(record) = self.by_inside.get_mut(&inside) else { return };
        let before = record.life;
        record.packet(outward, flags, now);
        if record.life != before {
            let due = record.last_used.plus(self.config.timeout(record.life));
            self.due.insert((due, inside));
        }
    }

    /// The inside end point of a mapping, for an ICMP error, which neither
    /// makes mappings nor keeps them alive (RFC 5508 REQ-10).
    pub(super) fn inside_of(&self, external: EndPoint) -> Option<EndPoint> {
        self.by_external.get(&external).copied()
    }

    /// The external end point of a mapping, likewise.
    pub(super) fn external_of(&self, inside: EndPoint) -> Option<EndPoint> {
        self.by_inside.get(&inside).map(|r| r.external)
    }

    fn create(&mut self, inside: EndPoint, now: Nanoseconds) -> Result<(), DropReason> {
        if self.by_inside.len() >= self.config.max_mappings {
            self.refused += 1;
            return Err(DropReason::StateFull);
        }
        let Some(external) = self.choose(inside) else {
            self.refused += 1;
            return Err(DropReason::NoPort);
        };
        let life = match inside.0 {
            Protocol::Tcp => Life::TcpTransitory,
            Protocol::Udp => Life::Udp,
            Protocol::Echo => Life::Echo,
        };
        self.created += 1;
        self.insert(Record {
            inside,
            external,
            last_used: now,
            life,
            talked: [false; 2],
            finished: [false; 2],
            remotes: VecDeque::new(),
        });
        Ok(())
    }

    fn insert(&mut self, record: Record) {
        let due = record.last_used.plus(self.config.timeout(record.life));
        self.due.insert((due, record.inside));
        self.by_external.insert(record.external, record.inside);
        self.by_inside.insert(record.inside, record);
    }

    /// A free external end point: always the same address for a host (pooling
    /// is paired: RFC 4787 REQ-2), and its own port where that is free, else one of the same parity (RFC 4787 REQ-3, REQ-4).
    fn choose(&self, inside: EndPoint) -> Option<EndPoint> {
        let (protocol, host, port) = inside;
        let mixed = (u64::from(u32::from(host)) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let addresses = &self.config.external;
        let address = addresses[mixed as usize % addresses.len()];
        let free = |port: u16| !self.by_external.contains_key(&(protocol, address, port));
        let (low, high) = (*self.config.ports.start(), *self.config.ports.end());
        if self.config.ports.contains(&port) && free(port) {
            return Some((protocol, address, port));
        }
        // Where the search begins is hard to tell from outside (RFC 6056).
        let span = u32::from(high - low) + 1;
        let mixed = u64::from(u32::from(host)) << 16 | u64::from(port);
        let start = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % span;
        let candidates = (0..span).map(|i| low + ((start + i) % span) as u16);
        let port = candidates.into_iter().find(|p| (p ^ port) & 1 == 0 && free(*p))?;
        Some((protocol, address, port))
    }

    /// Ends mappings that have been idle for long.
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        while let Some(&(due, inside)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            let Some(record) = self.by_inside.get(&inside) else { continue };
            let ends = record.last_used.plus(self.config.timeout(record.life));
            if ends <= now {
                self.remove(inside);
                self.expired += 1;
            } else {
                // It was used since; look again when it may be idle.
                self.due.insert((ends, inside));
            }
        }
    }

    fn remove(&mut self, inside: EndPoint) {
        let Some(record) = self.by_inside.remove(&inside) else { return };
        self.by_external.remove(&record.external);
    }

    /// All mappings in a fixed order.
    pub(super) fn records(&self) -> Vec<Record> {
        let mut all: Vec<_> = self.by_inside.values().cloned().collect();
        all.sort_by_key(|r| r.inside);
        all
    }

    /// Takes over mappings; all of them, or none when one is in the way.
    pub(super) fn take_over(&mut self, records: &[Record]) -> Result<(), StateError> {
        let mut ends = BTreeSet::new();
        for (index, r) in records.iter().enumerate() {
            let refuse = |what: &str| {
                Err(StateError::Record { index, what: format!("{what}: {:?}", r.inside) })
            };
            if !self.config.is_external(r.external.1) || !self.config.is_inside(r.inside.1) {
                return refuse("the addresses are not those of this NAT");
            }
            let known = self.by_inside.contains_key(&r.inside)
                || self.by_external.contains_key(&r.external)
                || !ends.insert(r.external);
            if known || r.inside.0 != r.external.0 {
                return refuse("the mapping is in conflict with another");
            }
        }
        if self.len() + records.len() > self.config.max_mappings {
            let what = "more mappings than this NAT may have".into();
            return Err(StateError::Record { index: records.len(), what });
        }
        records.iter().cloned().for_each(|record| self.insert(record));
        Ok(())
    }
}
