//! External ports that can replace each other: how many are in use, and which sessions to evict.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use super::Protocol;
use super::mapping::{Due, EndPoint};

/// The ports of one protocol, external address and parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    protocol: Protocol,
    address: Ipv4Addr,
    /// Whether they are odd. Ports outside the NAT's range, which a NAT with another range
    /// assigned, have their own pool: they do not count against the free ports of the range.
    is_odd: Option<bool>,
}

impl Pool {
    /// The pool of an end point of a NAT with these ports.
    pub(super) fn of(end: EndPoint, ports: &RangeInclusive<u16>) -> Self {
        let pool = Self::that_suits(end);
        Self { is_odd: pool.is_odd.filter(|_| ports.contains(&end.2)), ..pool }
    }

    /// The pool of the ports that may replace this one.
    pub(super) fn that_suits(EndPoint(protocol, address, port): EndPoint) -> Self {
        Self { protocol, address, is_odd: Some(port & 1 == 1) }
    }
}

#[derive(Debug, Default)]
struct Ports {
    in_use: usize,
    /// Unanswered sessions. They all have the same idle time, so the least recently used one is due
    /// first.
    to_give_way: BTreeSet<Due>,
}

/// All pools with ports that were ever used: a few for each external address, none of which a packet
/// chooses.
#[derive(Debug, Default)]
pub(super) struct Pools {
    ports: BTreeMap<Pool, Ports>,
    /// The pools with unanswered sessions, by the number of these.
    by_sessions: BTreeSet<(usize, Pool)>,
}

impl Pools {
    pub(super) fn in_use(&self, pool: Pool) -> usize {
        self.ports.get(&pool).map_or(0, |ports| ports.in_use)
    }

    /// Counts a port as in use.
    pub(super) fn take(&mut self, pool: Pool) {
        self.ports.entry(pool).or_default().in_use += 1;
    }

    /// Counts a port as free again.
    pub(super) fn give_back(&mut self, pool: Pool) {
        if let Some(ports) = self.ports.get_mut(&pool) {
            ports.in_use -= 1;
        }
    }

    pub(super) fn may_give_way(&mut self, pool: Pool, session: Due) {
        self.change(pool, |sessions| sessions.insert(session));
    }

    pub(super) fn gives_way_no_more(&mut self, pool: Pool, session: &Due) {
        self.change(pool, |sessions| sessions.remove(session));
    }

    /// Adds or removes an unanswered session of a pool; `change` returns whether it did.
    fn change(&mut self, pool: Pool, change: impl FnOnce(&mut BTreeSet<Due>) -> bool) {
        let sessions = &mut self.ports.entry(pool).or_default().to_give_way;
        let before = sessions.len();
        if !change(sessions) {
            return;
        }
        let after = sessions.len();
        self.by_sessions.remove(&(before, pool));
        if after > 0 {
            self.by_sessions.insert((after, pool));
        }
    }

    /// The unanswered session of `pool` that was least recently used, as of their last check.
    pub(super) fn first_to_give_way(&self, pool: Pool) -> Option<Due> {
        self.ports.get(&pool)?.to_give_way.first().copied()
    }

    /// The pool with the most unanswered sessions.
    pub(super) fn most_to_give_way(&self) -> Option<Pool> {
        self.by_sessions.last().map(|(_, pool)| *pool)
    }
}
