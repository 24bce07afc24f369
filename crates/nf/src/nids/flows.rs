//! Connections: what `flow` and `flowbits` ask for, their streams and their application.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_packet::{FiveTuple, Nanoseconds};

use crate::conversation::Conversation;
use crate::eviction::median;

use super::app::App;
use super::buffer::Protocol;
use super::stream::Stream;

pub(super) const SYN: u16 = 2;
pub(super) const RST: u16 = 4;
pub(super) const ACK: u16 = 16;
pub(super) const FIN: u16 = 1;

/// How far a TCP handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Seen from the middle, or not TCP.
    None,
    Syn,
    SynAck,
    /// The server answered with a SYN of its own, which RFC 9293 allows.
    Split,
    /// The client acknowledged that.
    SplitAck,
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
    pub(super) tracked: Option<Box<Tracked>>,
}

/// What is kept of a connection whose bytes are put together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// To the server, and to the client.
    pub(super) streams: [Stream; 2],
    pub(super) app: App,
    /// By direction: rules whose pattern was seen and whose other tests did not hold yet,
    /// and how many bytes more they may wait.
    pub(super) open: [Vec<(u32, u32)>; 2],
    /// The rule set that numbers of rules are of.
    rules: u64,
}

impl Tracked {
    /// Forgets the numbers of rules of another set than `rules`. Messages at hand are then
    /// looked at from their beginning.
    pub(super) fn renumber(&mut self, rules: u64) {
        if self.rules == rules {
            return;
        }
        self.rules = rules;
        self.open = <[Vec<_>; 2]>::default();
        for to_server in [true, false] {
            if let Some(message) = self.app.message(to_server) {
                message.forget_rules();
            }
        }
    }

    /// Whether this is what [`Tracked`] may hold with so many rules; what comes from elsewhere
    /// may be anything.
    fn is_sound(&mut self, rules: usize) -> bool {
        let numbers = self.open.iter().flatten().all(|(n, _)| (*n as usize) < rules);
        let app = &mut self.app;
        let messages =
            [true, false].into_iter().all(|d| app.message(d).is_none_or(|m| m.is_sound(rules)));
        numbers && messages && self.streams.iter().all(Stream::is_sound)
    }

    /// Bytes of memory held.
    fn memory(&self) -> usize {
        let streams: usize = self.streams.iter().map(Stream::memory).sum();
        let open: usize = self.open.iter().map(|o| o.len() * size_of::<(u32, u32)>()).sum();
        size_of::<Self>() + streams + open + self.app.memory()
    }
}

/// A connection and what the packet at hand is in it.
pub(super) struct Seen<'a> {
    pub(super) flow: &'a mut Flow,
    pub(super) to_server: bool,
    pub(super) established: bool,
    /// The packet resets it.
    pub(super) reset: bool,
    /// The protocol that the connection speaks, as far as it is known.
    pub(super) application: Option<Protocol>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) flows: usize,
    pub(super) idle: Nanoseconds,
    /// Bytes for streams and messages of all connections.
    pub(super) memory: usize,
}

/// The connections of one worker.
#[derive(Debug)]
pub(super) struct Flows {
    table: HashMap<Conversation, Flow>,
    limits: Limits,
    pub(super) evicted: u64,
    /// Bytes that the tracked ones hold.
    pub(super) memory: usize,
    /// Connections whose streams were given up.
    pub(super) streams_evicted: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: HashMap::new(), limits, evicted: 0, memory: 0, streams_evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The connection of a packet, advanced by it. `segment` are the flags and the sequence
    /// number of TCP; `counts` is false for a packet that the receiver would not accept.
    pub(super) fn packet(
        &mut self,
        tuple: &FiveTuple,
        segment: Option<(u16, u32)>,
        counts: bool,
        now: Nanoseconds,
    ) -> Seen<'_> {
        let flags = segment.map(|(flags, _)| flags);
        let (id, from_low) = Conversation::of(tuple);
        if self.table.len() >= self.limits.flows && !self.table.contains_key(&id) {
            self.evict(now);
        }
        let fresh = || Flow {
            // Who answers a SYN is the server, even when the SYN was not seen.
            client_is_low: from_low != flags.is_some_and(|f| f & (SYN | ACK) == SYN | ACK),
            phase: Phase::None,
            seen: [false; 2],
            last: now,
            bits: BTreeSet::new(),
            said: BTreeSet::new(),
            tracked: None,
        };
        let flow = self.table.entry(id).or_insert_with(fresh);
        // A new SYN on a closed connection begins another one.
        let reopened = flow.phase == Phase::Closed && flags.is_some_and(|f| f & (SYN | ACK) == SYN);
        if reopened || now.since(flow.last) >= self.limits.idle {
            self.memory -= flow.memory();
            *flow = fresh();
        }
        flow.last = flow.last.max(now);
        let to_server = from_low == flow.client_is_low;
        // The segment that completes the handshake is not yet of an established
        // connection, as Suricata counts; the first answer in UDP is.
        let handshake_done = flow.is_established();
        let counts = counts && segment.is_none_or(|s| flow.accepts(s, to_server));
        if counts {
            flow.advance(flags, to_server);
        }
        let reset = counts && flags.is_some_and(|f| f & RST != 0);
        let established = if flags.is_some() { handshake_done } else { flow.seen == [true; 2] };
        let application = flow.tracked.as_ref().and_then(|t| t.app.protocol());
        Seen { flow, to_server, established, reset, application }
    }

    /// Books that a connection's streams hold `after` bytes where they held `before`. Of more
    /// than the limit, the half of the connections that was used longest ago loses its streams.
    pub(super) fn book(&mut self, before: usize, after: usize) {
        self.memory = self.memory + after - before;
        if self.memory <= self.limits.memory {
            return;
        }
        let tracked = self.table.values().filter(|f| f.tracked.is_some());
        let Some(oldest) = median(tracked.map(|f| f.last)) else { return };
        for flow in self.table.values_mut().filter(|f| f.last <= oldest) {
            if let Some(tracked) = flow.tracked.take() {
                self.memory -= tracked.memory();
                self.streams_evicted += 1;
            }
        }
    }

    /// Makes room: idle connections go, else the half that was used longest ago.
    fn evict(&mut self, now: Nanoseconds) {
        let before = self.table.len();
        let idle = self.limits.idle;
        self.retain(|flow| now.since(flow.last) < idle);
        if self.table.len() == before
            && let Some(oldest) = median(self.table.values().map(|f| f.last))
        {
            self.retain(|flow| flow.last > oldest);
        }
        self.evicted += (before - self.table.len()) as u64;
    }

    fn retain(&mut self, keep: impl Fn(&Flow) -> bool) {
        let memory = &mut self.memory;
        self.table.retain(|_, flow| {
            let kept = keep(flow);
            if !kept {
                *memory -= flow.memory();
            }
            kept
        });
    }

    /// All connections in a fixed order.
    pub(super) fn records(&self) -> Vec<(&Conversation, &Flow)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all
    }

    /// Makes the connections fit for the rule set `rules`, of so many rules; the index of the
    /// first that is none.
    pub(super) fn check(
        records: &mut [(Conversation, Flow)],
        rules: u64,
        count: usize,
    ) -> Option<usize> {
        records.iter_mut().position(|(_, flow)| {
            flow.tracked.as_deref_mut().is_some_and(|tracked| {
                tracked.renumber(rules);
                !tracked.is_sound(count)
            })
        })
    }

    pub(super) fn insert(&mut self, records: Vec<(Conversation, Flow)>) {
        for (id, flow) in records {
            let memory = flow.memory();
            let before = self.table.insert(id, flow).map_or(0, |old| old.memory());
            self.book(before, memory);
        }
    }
}

impl Flow {
    /// Bytes of memory that its streams hold.
    pub(super) fn memory(&self) -> usize {
        self.tracked.as_ref().map_or(0, |t| t.memory())
    }

    /// Whether a segment is one the receiver takes: a reset far from the numbers in use is
    /// forged, to end the inspection and not the connection.
    fn accepts(&self, (flags, sequence): (u16, u32), to_server: bool) -> bool {
        let stream = self.tracked.as_ref().map(|t| &t.streams[usize::from(!to_server)]);
        flags & RST == 0 || stream.is_none_or(|s| s.expects(sequence))
    }

    /// Takes a connection whose handshake was not seen for established.
    pub(super) fn join(&mut self) {
        if !self.is_established() {
            self.phase = Phase::Established;
        }
    }

    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established | Phase::Closed)
    }

    fn advance(&mut self, flags: Option<u16>, to_server: bool) {
        self.seen[usize::from(!to_server)] = true;
        let Some(flags) = flags else { return };
        self.phase = match self.phase {
            _ if flags & RST != 0 && self.phase != Phase::None => Phase::Closed,
            Phase::None if flags & (SYN | ACK) == SYN && to_server => Phase::Syn,
            Phase::Syn if flags & (SYN | ACK) == SYN | ACK && !to_server => Phase::SynAck,
            Phase::SynAck if flags & (SYN | ACK) == ACK && to_server => Phase::Established,
            Phase::Syn if flags & (SYN | ACK) == SYN && !to_server => Phase::Split,
            Phase::Split if flags & (SYN | ACK) == SYN | ACK && to_server => Phase::SplitAck,
            Phase::SplitAck if flags & (SYN | ACK) == ACK && !to_server => Phase::Established,
            Phase::Established if flags & FIN != 0 => Phase::Closed,
            phase => phase,
        };
    }
}
