//! Connections: the state that `flow` and `flowbits` test, their streams and their application.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::eviction::median;
use thalweg_nf::toolkit::flow_table::{FlowTable, Found, NoPlace, Slot};

use super::ahead::Segment;
use super::app::App;
use super::buffer::Protocol;
use super::engine::Engine;
use super::stream::{Policy, Stream};

/// The progress of a TCP handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// The beginning was not seen, or the connection is not TCP.
    None,
    Syn,
    SynAck,
    /// The server answered with a SYN of its own, which RFC 9293 allows.
    Split,
    /// The client acknowledged that SYN.
    SplitAck,
    Established,
    Closed,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Whether the lower of the two endpoints (ordered by address and port) is the client.
    client_is_low: bool,
    phase: Phase,
    /// Packets seen from the client and from the server (any but the first).
    seen: [bool; 2],
    last: Nanoseconds,
    /// Names of the bits that are set.
    pub(super) bits: BTreeSet<String>,
    /// Rules that alert once for each direction and have done so.
    pub(super) said: BTreeSet<(u32, bool)>,
    pub(super) tracked: Option<Box<Tracked>>,
}

/// The state of a connection whose streams are reassembled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// To the server, and to the client.
    pub(super) streams: [Stream; 2],
    pub(super) app: App,
    /// By direction: rules whose pattern was found but whose other tests have not held yet,
    /// and the number of bytes that each may still wait for.
    pub(super) open: [Vec<(u32, u32)>; 2],
    /// The rule set to which the rule numbers belong.
    rules: u64,
}

impl Tracked {
    /// Clears rule numbers that belong to another set than `rules`. Current messages are then
    /// inspected from their beginning.
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

    /// Whether this is a valid [`Tracked`] for `rules` rules; imported state may be arbitrary.
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

/// A connection and the current packet's role in it.
pub(super) struct Seen<'a> {
    pub(super) flow: &'a mut Flow,
    pub(super) to_server: bool,
    pub(super) established: bool,
    /// The packet resets the connection.
    pub(super) reset: bool,
    /// The application protocol of the connection, if known.
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
    table: FlowTable<Conversation, Flow, 5>,
    limits: Limits,
    pub(super) evicted: u64,
    /// Bytes that tracked connections hold.
    pub(super) memory: usize,
    /// Connections whose streams were given up.
    pub(super) streams_evicted: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: FlowTable::new(), limits, evicted: 0, memory: 0, streams_evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Looks up the connections of a batch, and prefetches them.
    pub(super) fn find(&self, ids: impl Iterator<Item = Conversation>) -> Found {
        self.table.find(ids)
    }

    /// The connection in `slot`.
    #[inline]
    pub(super) fn in_slot(&self, slot: Slot) -> Option<&Flow> {
        self.table.at(slot).map(|(_, flow)| flow)
    }

    /// The connection in `slot`, if it is still this one and has not expired.
    #[inline]
    pub(super) fn at(
        &mut self,
        slot: Slot,
        id: &Conversation,
        now: Nanoseconds,
    ) -> Option<&mut Flow> {
        let idle = self.limits.idle;
        let (known, flow) = self.table.at_mut(slot)?;
        (known == id && now.since(flow.last) < idle).then_some(flow)
    }

    /// The connection of a packet, advanced by it. An earlier lookup found it in the slot `hint`,
    /// or did not find it. `counts` is false for a packet that the receiver would not accept.
    /// `None` if the table has no room for it.
    pub(super) fn packet(
        &mut self,
        hint: Option<Slot>,
        (id, from_low): (Conversation, bool),
        segment: Option<Segment>,
        counts: bool,
        now: Nanoseconds,
    ) -> Option<Seen<'_>> {
        let flags = segment.map(|segment| segment.flags);
        let fresh = || Flow {
            // The sender of a SYN-ACK is the server, even if the SYN was not seen.
            client_is_low: from_low != flags.is_some_and(|f| f & (SYN | ACK) == SYN | ACK),
            phase: Phase::None,
            seen: [false; 2],
            last: now,
            bits: BTreeSet::new(),
            said: BTreeSet::new(),
            tracked: None,
        };
        let slot = match self.table.slot_now(hint, &id) {
            Some(slot) => slot,
            None => self.begin(id, fresh(), now).ok()?,
        };
        let (_, flow) = self.table.at_mut(slot)?;
        // A new SYN on a closed connection begins another connection.
        let reopened = flow.phase == Phase::Closed && flags.is_some_and(|f| f & (SYN | ACK) == SYN);
        if reopened || now.since(flow.last) >= self.limits.idle {
            self.memory -= flow.memory();
            *flow = fresh();
        }
        flow.last = flow.last.follow(now);
        let to_server = flow.is_to_server(from_low);
        // As in Suricata, the segment that completes the handshake does not belong to an
        // established connection yet; the first answer in UDP does.
        let handshake_done = flow.is_established();
        let counts = counts && segment.is_none_or(|s| flow.accepts(s, to_server));
        if counts {
            flow.advance(flags, to_server);
        }
        let reset = counts && flags.is_some_and(|f| f & RST != 0);
        let established = if flags.is_some() { handshake_done } else { flow.seen == [true; 2] };
        let application = flow.tracked.as_ref().and_then(|t| t.app.protocol());
        Some(Seen { flow, to_server, established, reset, application })
    }

    /// Inserts a new connection, and evicts others if the table is full.
    fn begin(&mut self, id: Conversation, flow: Flow, now: Nanoseconds) -> Result<Slot, NoPlace> {
        if self.table.len() >= self.limits.flows {
            self.evict(now);
        }
        self.table.insert(id, flow)
    }

    /// Records that a connection's streams hold `after` bytes instead of `before`. Beyond the
    /// limit, the least recently used half of the connections loses its streams.
    pub(super) fn book(&mut self, before: usize, after: usize) {
        self.memory = self.memory + after - before;
        if self.memory <= self.limits.memory {
            return;
        }
        let tracked = self.table.iter().filter(|(_, f)| f.tracked.is_some());
        let Some(oldest) = median(tracked.map(|(_, f)| f.last)) else { return };
        for flow in self.table.values_mut().filter(|f| f.last <= oldest) {
            if let Some(tracked) = flow.tracked.take() {
                self.memory -= tracked.memory();
                self.streams_evicted += 1;
            }
        }
    }

    /// Evicts the idle connections, or else the least recently used half.
    fn evict(&mut self, now: Nanoseconds) {
        let before = self.table.len();
        let idle = self.limits.idle;
        self.retain(|flow| now.since(flow.last) < idle);
        if self.table.len() == before
            && let Some(oldest) = median(self.table.iter().map(|(_, f)| f.last))
        {
            self.retain(|flow| flow.last > oldest);
        }
        self.evicted += (before - self.table.len()) as u64;
    }

    fn retain(&mut self, keep: impl Fn(&Flow) -> bool) {
        let memory = &mut self.memory;
        let is_gone = |_: &Conversation, flow: &Flow| (!keep(flow)).then_some(());
        self.table.extract_if(is_gone, |_, flow, ()| *memory -= flow.memory());
    }

    /// All connections in a fixed order.
    pub(super) fn records(&self) -> Vec<(&Conversation, &Flow)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all
    }

    /// Adapts the connections to the rule set `rules`, which has `count` rules; returns the index
    /// of the first invalid one.
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

    /// Inserts connections and replaces existing ones. Those for which there is no room count
    /// as evicted.
    pub(super) fn insert(&mut self, records: Vec<(Conversation, Flow)>) {
        self.table.reserve(records.len());
        for (id, flow) in records {
            let memory = flow.memory();
            let mut before = 0;
            if let Some((_, known)) = self.table.slot(&id).and_then(|at| self.table.at_mut(at)) {
                before = std::mem::replace(known, flow).memory();
            } else if self.table.insert(id, flow).is_err() {
                self.evicted += 1;
                continue;
            }
            self.book(before, memory);
        }
    }
}

impl Flow {
    /// Whether a packet goes to the server, given whether the lower endpoint sent it.
    #[inline]
    pub(super) fn is_to_server(&self, from_low: bool) -> bool {
        from_low == self.client_is_low
    }

    /// Whether a segment only continues its stream after `past`: it changes nothing else, and
    /// only its new bytes could require a rule to be evaluated.
    pub(super) fn only_goes_on(
        &self,
        to_server: bool,
        segment: Segment,
        past: &[u8],
        engine: &Engine,
    ) -> bool {
        let Some(tracked) = self.tracked.as_deref() else { return false };
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let stream = &tracked.streams[own];
        segment.flags & (SYN | RST) == 0
            && stream.goes_on_at(segment.sequence)
            && stream.past(engine.reach) == past
            && !tracked.streams[other].is_waiting()
            && tracked.open[own].is_empty()
            && tracked.rules == engine.fingerprint
            && (!engine.needs.applications || tracked.app.is_none())
    }

    /// Accepts a segment that only continues its stream. Returns the bytes of memory that the
    /// stream held before and holds now.
    pub(super) fn go_on(
        &mut self,
        to_server: bool,
        segment: Segment,
        payload: &[u8],
        policy: &Policy,
        now: Nanoseconds,
    ) -> (usize, usize) {
        self.last = self.last.follow(now);
        self.advance(Some(segment.flags), to_server);
        self.tracked.as_deref_mut().map_or((0, 0), |tracked| {
            let stream = &mut tracked.streams[usize::from(!to_server)];
            let before = stream.memory();
            stream.append(payload, policy);
            (before, stream.memory())
        })
    }

    /// Bytes of memory that its streams hold.
    pub(super) fn memory(&self) -> usize {
        self.tracked.as_ref().map_or(0, |t| t.memory())
    }

    /// Whether the receiver accepts a segment: a reset far from the current sequence numbers is
    /// forged, to end the inspection and not the connection.
    fn accepts(&self, segment: Segment, to_server: bool) -> bool {
        let stream = self.tracked.as_ref().map(|t| &t.streams[usize::from(!to_server)]);
        segment.flags & RST == 0 || stream.is_none_or(|s| s.expects(segment.sequence))
    }

    /// Treats a connection whose handshake was not seen as established.
    pub(super) fn join(&mut self) {
        if !self.is_established() {
            self.phase = Phase::Established;
        }
    }

    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established | Phase::Closed)
    }

    fn advance(&mut self, flags: Option<u8>, to_server: bool) {
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
