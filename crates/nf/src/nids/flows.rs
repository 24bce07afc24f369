//! Connections, as far as `flow` and `flowbits` ask.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use thalweg_packet::{FiveTuple, Nanoseconds};

const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 16;
const FIN: u16 = 1;

/// How far a TCP handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Seen from the middle, or not TCP.
    None,
    Syn,
    SynAck,
    Established,
    Closed,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Whether the lower of the two ends (in order of address and port) is the client.
    client_is_low: bool,
    phase: Phase,
    /// Packets seen from the client and from the server (any but the first).
    seen: [bool; 2],
    last: Nanoseconds,
    /// Names of the bits that are set.
    pub(super) bits: BTreeSet<String>,
    /// Rules that speak once for each direction and have done so.
    pub(super) said: BTreeSet<(u32, bool)>,
}

/// What tells connections apart: both directions give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Id {
    low: (IpAddr, u16),
    high: (IpAddr, u16),
    protocol: u8,
}

/// A connection and what the packet at hand is in it.
pub(super) struct Seen<'a> {
    pub(super) flow: &'a mut Flow,
    pub(super) to_server: bool,
    pub(super) established: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) flows: usize,
    pub(super) idle: Nanoseconds,
}

/// The connections of one worker.
#[derive(Debug)]
pub(super) struct Flows {
    table: HashMap<Id, Flow>,
    limits: Limits,
    pub(super) evicted: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: HashMap::new(), limits, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The connection of a packet, advanced by it. `flags` are those of TCP;
    /// `counts` is false for a packet that the receiver would not accept.
    pub(super) fn packet(
        &mut self,
        tuple: &FiveTuple,
        flags: Option<u16>,
        counts: bool,
        now: Nanoseconds,
    ) -> Seen<'_> {
        // The numbers in ICMP's port fields are no ports.
        let ports = matches!(tuple.protocol, 6 | 17 | 132);
        let port = |p| if ports { p } else { 0 };
        let from = (tuple.src, port(tuple.src_port));
        let to = (tuple.dst, port(tuple.dst_port));
        let from_low = from <= to;
        let (low, high) = if from_low { (from, to) } else { (to, from) };
        let id = Id { low, high, protocol: tuple.protocol };
        let idle = self.limits.idle;
        let stale = |flow: &Flow| {
            // A new SYN on a closed connection begins another one.
            let reopened =
                flow.phase == Phase::Closed && flags.is_some_and(|f| f & (SYN | ACK) == SYN);
            reopened || now.since(flow.last) >= idle
        };
        if self.table.get(&id).is_some_and(stale) {
            self.table.remove(&id);
        }
        if !self.table.contains_key(&id) && self.table.len() >= self.limits.flows {
            self.evict(now);
        }
        let flow = self.table.entry(id).or_insert_with(|| Flow {
            // Who answers a SYN is the server, even when the SYN was not seen.
            client_is_low: from_low != flags.is_some_and(|f| f & (SYN | ACK) == SYN | ACK),
            phase: Phase::None,
            seen: [false; 2],
            last: now,
            bits: BTreeSet::new(),
            said: BTreeSet::new(),
        });
        flow.last = flow.last.max(now);
        let to_server = from_low == flow.client_is_low;
        // The segment that completes the handshake is not yet of an established
        // connection, as Suricata counts; the first answer in UDP is.
        let handshake_done = matches!(flow.phase, Phase::Established | Phase::Closed);
        if counts {
            flow.advance(flags, to_server);
        }
        let established = if flags.is_some() { handshake_done } else { flow.seen == [true; 2] };
        Seen { flow, to_server, established }
    }

    /// Makes room: idle connections go, else the half that was used longest ago.
    fn evict(&mut self, now: Nanoseconds) {
        let before = self.table.len();
        let idle = self.limits.idle;
        self.table.retain(|_, flow| now.since(flow.last) < idle);
        if self.table.len() == before {
            let mut times: Vec<_> = self.table.values().map(|f| f.last).collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.table.retain(|_, flow| flow.last > median);
        }
        self.evicted += (before - self.table.len()) as u64;
    }

    /// All connections in a fixed order.
    pub(super) fn records(&self) -> Vec<(Id, Flow)> {
        let mut all: Vec<_> = self.table.iter().map(|(id, flow)| (*id, flow.clone())).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    pub(super) fn insert(&mut self, records: Vec<(Id, Flow)>) {
        self.table.extend(records);
    }
}

impl Flow {
    fn advance(&mut self, flags: Option<u16>, to_server: bool) {
        self.seen[usize::from(!to_server)] = true;
        let Some(flags) = flags else { return };
        self.phase = match self.phase {
            _ if flags & RST != 0 && self.phase != Phase::None => Phase::Closed,
            Phase::None if flags & (SYN | ACK) == SYN && to_server => Phase::Syn,
            Phase::Syn if flags & (SYN | ACK) == SYN | ACK && !to_server => Phase::SynAck,
            Phase::SynAck if flags & (SYN | ACK) == ACK && to_server => Phase::Established,
            Phase::Established if flags & FIN != 0 => Phase::Closed,
            phase => phase,
        };
    }
}
