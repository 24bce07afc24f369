//! Connections: the state that `flow` and `flowbits` test, their streams and their application.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

use thalweg_nf::BUCKETS;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::eviction::median;
use thalweg_nf::toolkit::flow_table::{FlowTable, Found, NoPlace, Slot};

use super::app::App;
use super::arrival::Delivery;
use super::buffer::Protocol;
use super::engine::Engine;
use super::receiver::{Ends, Reason, Target};
use super::segment::Segment;
use super::stream::{Policy, Stream};

/// A timestamp is no longer compared with after this time (RFC 7323, 5.5).
const OLD_TIMESTAMP: Nanoseconds = Nanoseconds::from_secs(24 * 86_400);

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
    /// Sides that have ended their stream.
    ended: [bool; 2],
    sums: [Sums; 2],
    last: Nanoseconds,
    /// The decision of a rule for all packets.
    pub(super) verdict: Option<Verdict>,
    /// Names of the bits that are set.
    pub(super) bits: BTreeSet<String>,
    /// The numbers that rules set.
    pub(super) numbers: BTreeMap<String, u32>,
    /// Rules that alert once for each direction and have done so.
    pub(super) said: BTreeSet<(u32, bool)>,
    pub(super) tracked: Option<Box<Tracked>>,
}

/// The IPv4 header checksums in the segments of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sums {
    Unknown,
    /// All are wrong: the segments were captured before the network card computed them.
    Wrong,
    /// They are right, and receivers drop a segment whose checksum is wrong.
    Right,
}

/// A rule's decision for all packets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// They are dropped.
    Drop { sid: u32 },
    /// No rule is evaluated.
    Pass { sid: u32 },
}

/// The state of a connection whose streams are reassembled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// To the server, and to the client.
    pub(super) streams: [Stream; 2],
    pub(super) ends: Ends,
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
        numbers && messages && self.streams.iter().all(Stream::is_sound) && self.ends.is_sound()
    }

    /// Bytes of memory held.
    fn memory(&self) -> usize {
        let streams: usize = self.streams.iter().map(Stream::memory).sum();
        let open: usize = self.open.iter().map(|o| o.len() * size_of::<(u32, u32)>()).sum();
        size_of::<Self>() + streams + open + self.ends.memory() + self.app.memory()
    }
}

/// A packet of a connection, as it arrived.
pub(super) struct Arrival<'a> {
    pub(super) segment: Option<Segment>,
    pub(super) payload: &'a [u8],
    /// Bytes after the payload that its capture did not keep.
    pub(super) missing: usize,
    pub(super) delivery: Delivery,
}

/// How connections are followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handling {
    pub(super) target: Target,
    pub(super) midstream: bool,
    /// Streams are reassembled.
    pub(super) streams: bool,
}

/// A connection and the current packet's role in it.
pub(super) struct Seen<'a> {
    pub(super) flow: &'a mut Flow,
    /// The share of the limits that it counts for.
    pub(super) share: usize,
    pub(super) to_server: bool,
    pub(super) established: bool,
    /// The bytes of the payload that the receiver takes, from the first one.
    pub(super) taken: Result<usize, Reason>,
    /// Bytes of memory that the connection held before the packet.
    pub(super) before: usize,
    /// The packet resets the connection.
    pub(super) reset: bool,
    /// The application protocol of the connection, if known.
    pub(super) application: Option<Protocol>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) flows: usize,
    pub(super) idle: Nanoseconds,
    /// Bytes for streams and messages of all connections.
    pub(super) memory: usize,
}

/// The most shares that the limits are divided into.
pub(super) const SHARES: usize = 16;
/// Connections and bytes of a share, at least: smaller limits are not divided.
const LEAST: (usize, usize) = (1024, 1 << 20);

impl Limits {
    /// The number of shares that the limits are divided into, each with a part of the buckets of
    /// all connections. So what is evicted does not depend on whether connections are divided.
    pub(super) fn shares(&self) -> usize {
        let divides = self.flows >= SHARES * LEAST.0 && self.memory >= SHARES * LEAST.1;
        if divides { SHARES } else { 1 }
    }
}

/// The connections of an NF, or of a part of it. The table has a section for each share of the
/// limits.
#[derive(Debug)]
pub(super) struct Flows {
    table: FlowTable<Conversation, Flow, 5>,
    limits: Limits,
    pub(super) evicted: u64,
    /// Bytes that tracked connections hold, by share.
    memory: Vec<usize>,
    /// Connections whose streams were given up.
    pub(super) streams_evicted: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Self {
        let shares = limits.shares();
        let (table, memory) = (FlowTable::with_sections(shares), vec![0; shares]);
        Self { table, limits, evicted: 0, memory, streams_evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes that tracked connections hold.
    pub(super) fn memory(&self) -> usize {
        self.memory.iter().sum()
    }

    /// The share of the connection in `slot`.
    #[inline]
    pub(super) fn share_of(&self, slot: Slot) -> usize {
        self.table.section_of(slot)
    }

    fn share(&self, id: &Conversation) -> usize {
        usize::from(id.bucket()) * self.memory.len() / BUCKETS
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
    /// or did not find it. `None` if the table has no room for it.
    pub(super) fn packet(
        &mut self,
        hint: Option<Slot>,
        (id, from_low): (Conversation, bool),
        arrival: &Arrival<'_>,
        how: Handling,
        now: Nanoseconds,
    ) -> Option<Seen<'_>> {
        let segment = arrival.segment.as_ref();
        // The sender of a SYN-ACK is the server, even if the SYN was not seen.
        let client_is_low = from_low != segment.is_some_and(Segment::is_syn_ack);
        let slot = match self.table.slot_now(hint, &id) {
            Some(slot) => slot,
            None => self.begin(id, Flow::new(client_is_low, now), now).ok()?,
        };
        let share = self.table.section_of(slot);
        let (_, flow) = self.table.at_mut(slot)?;
        let idle = now.since(flow.last);
        let next = if idle >= self.limits.idle {
            Some(Flow::new(client_is_low, now))
        } else {
            flow.reopened(from_low, arrival, now)
        };
        if let Some(next) = next {
            let memory = &mut self.memory[share];
            *memory -= flow.memory();
            *flow = next;
            *memory += flow.memory();
        }
        let before = flow.memory();
        flow.last = flow.last.follow(now);
        if idle >= OLD_TIMESTAMP
            && let Some(tracked) = flow.tracked.as_deref_mut()
        {
            tracked.ends.forget_timestamps([true; 2]);
        }
        let to_server = flow.is_to_server(from_low);
        // As in Suricata, the segment that completes the handshake does not belong to an
        // established connection yet; the first answer in UDP does.
        let begins_again = flow.phase == Phase::Closed && segment.is_some_and(|s| s.has(SYN, ACK));
        let handshake_done = flow.is_established() && !begins_again;
        let taken = match flow.refuses(arrival, to_server) {
            None => flow.receive(arrival, to_server, how),
            Some(reason) => Err(reason),
        };
        let reset = taken.is_ok() && segment.is_some_and(Segment::is_reset);
        let established = if segment.is_some() { handshake_done } else { flow.seen == [true; 2] };
        let application = flow.tracked.as_ref().and_then(|t| t.app.protocol());
        Some(Seen { flow, share, to_server, established, taken, before, reset, application })
    }

    /// Inserts a new connection, and evicts others if the table is full.
    fn begin(&mut self, id: Conversation, flow: Flow, now: Nanoseconds) -> Result<Slot, NoPlace> {
        let share = self.share(&id);
        if self.table.len_of(share) >= self.limits.flows / self.memory.len() {
            self.evict(share, now);
        }
        self.table.insert_in(share, id, flow)
    }

    /// Records that the streams of a connection of `share` hold `after` bytes instead of `before`.
    /// Beyond the limit, the least recently used half of its connections loses its streams.
    #[inline]
    pub(super) fn book(&mut self, share: usize, before: usize, after: usize) {
        let most = self.limits.memory / self.memory.len();
        let memory = &mut self.memory[share];
        *memory = *memory + after - before;
        if *memory > most {
            self.evict_streams(share);
        }
    }

    fn evict_streams(&mut self, share: usize) {
        let tracked = self.table.iter_in(share).filter(|(_, f)| f.tracked.is_some());
        let Some(oldest) = median(tracked.map(|(_, f)| f.last)) else { return };
        let (memory, evicted) = (&mut self.memory[share], &mut self.streams_evicted);
        self.table.each_in(share, |flow| {
            if flow.last <= oldest
                && let Some(tracked) = flow.tracked.take()
            {
                *memory -= tracked.memory();
                *evicted += 1;
            }
        });
    }

    /// Evicts the idle connections of a share, or else the least recently used half.
    fn evict(&mut self, share: usize, now: Nanoseconds) {
        let before = self.table.len();
        let idle = self.limits.idle;
        self.retain(share, |flow| now.since(flow.last) < idle);
        if self.table.len() == before
            && let Some(oldest) = median(self.table.iter_in(share).map(|(_, f)| f.last))
        {
            self.retain(share, |flow| flow.last > oldest);
        }
        self.evicted += (before - self.table.len()) as u64;
    }

    fn retain(&mut self, share: usize, keep: impl Fn(&Flow) -> bool) {
        let memory = &mut self.memory[share];
        let is_gone = |_: &Conversation, flow: &Flow| (!keep(flow)).then_some(());
        self.table.extract_if_in(share, is_gone, |_, flow, ()| *memory -= flow.memory());
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
            let (share, memory) = (self.share(&id), flow.memory());
            let mut before = 0;
            if let Some((_, known)) = self.table.slot(&id).and_then(|at| self.table.at_mut(at)) {
                before = std::mem::replace(known, flow).memory();
            } else if self.table.insert_in(share, id, flow).is_err() {
                self.evicted += 1;
                continue;
            }
            self.book(share, before, memory);
        }
    }
}

impl Flow {
    /// Whether a packet goes to the server, given whether the lower endpoint sent it.
    #[inline]
    pub(super) fn is_to_server(&self, from_low: bool) -> bool {
        from_low == self.client_is_low
    }

    fn new(client_is_low: bool, now: Nanoseconds) -> Self {
        Self {
            client_is_low,
            phase: Phase::None,
            seen: [false; 2],
            ended: [false; 2],
            sums: [Sums::Unknown; 2],
            last: now,
            verdict: None,
            bits: BTreeSet::new(),
            numbers: BTreeMap::new(),
            said: BTreeSet::new(),
            tracked: None,
        }
    }

    /// The connection that a packet begins in place of this one. A SYN alone does only if this one
    /// is closed and the other side was never seen: else a forged SYN would end the inspection. Its
    /// answer does; it shows that the server took the SYN. The verdict to drop stays, because the
    /// ends of a dropped connection do not learn that it ended.
    fn reopened(&self, from_low: bool, arrival: &Arrival<'_>, now: Nanoseconds) -> Option<Self> {
        let segment = arrival.segment.as_ref().filter(|_| arrival.delivery.refused.is_none())?;
        if !segment.is_syn() || matches!(self.verdict, Some(Verdict::Drop { .. })) {
            return None;
        }
        let to_server = self.is_to_server(from_low);
        if !segment.acknowledges() {
            let tracked = self.tracked.is_some();
            let is_alone = !tracked || !self.seen[usize::from(to_server)];
            let begins = self.phase == Phase::Closed && is_alone;
            return begins.then(|| Self::new(from_low, now));
        }
        let tracked = self.tracked.as_deref().filter(|_| self.is_established())?;
        let (ends, streams) = tracked.ends.reopened(to_server, segment)?;
        let mut flow = Self::new(!from_low, now);
        flow.phase = Phase::Syn;
        flow.seen = [true, false];
        flow.tracked = Some(Box::new(Tracked { streams, ends, ..Tracked::default() }));
        Some(flow)
    }

    /// Why the receiver does not even look at a packet. A side whose checksums are right from some
    /// segment of the handshake on has sent nothing that was taken before it.
    fn refuses(&mut self, arrival: &Arrival<'_>, to_server: bool) -> Option<Reason> {
        let Delivery { refused, unsummed } = arrival.delivery;
        if refused.is_some() || arrival.segment.is_none() {
            return refused;
        }
        let (own, established) = (usize::from(!to_server), self.is_established());
        match (self.sums[own], unsummed) {
            (Sums::Right, true) => return Some(Reason::Checksum),
            (Sums::Unknown, true) => self.sums[own] = Sums::Wrong,
            (Sums::Unknown, false) => self.sums[own] = Sums::Right,
            (Sums::Wrong, false) if !established => {
                self.sums[own] = Sums::Right;
                if let Some(tracked) = self.tracked.as_deref_mut() {
                    tracked.streams[own] = Stream::default();
                    tracked.ends.forget(to_server);
                }
            }
            (Sums::Wrong, _) | (Sums::Right, false) => {}
        }
        None
    }

    /// Advances the connection by a packet; returns how many bytes of the payload the receiver
    /// takes, from the first one.
    fn receive(
        &mut self,
        arrival: &Arrival<'_>,
        to_server: bool,
        how: Handling,
    ) -> Result<usize, Reason> {
        let Some(segment) = &arrival.segment else {
            self.advance(None, to_server);
            return Ok(arrival.payload.len());
        };
        // The packets of a dropped connection do not arrive.
        if matches!(self.verdict, Some(Verdict::Drop { .. })) {
            return Ok(0);
        }
        let established = self.is_established();
        let has_data = !arrival.payload.is_empty();
        let taken = self.judge(segment, arrival, to_server, how)?;
        if how.midstream && has_data && segment.has(0, SYN | RST) {
            self.join();
        }
        if established && segment.is_syn() {
            return Ok(0);
        }
        self.advance(Some(segment), to_server);
        if let Some(tracked) = self.tracked.as_deref_mut() {
            tracked.ends.take(to_server, segment);
            if self.phase == Phase::Established && !established {
                tracked.ends.settle();
            }
        }
        Ok(taken)
    }

    /// How many bytes of its payload the receiver of a segment takes. Begins the streams if the
    /// segment determines their sequence numbers.
    fn judge(
        &mut self,
        segment: &Segment,
        arrival: &Arrival<'_>,
        to_server: bool,
        how: Handling,
    ) -> Result<usize, Reason> {
        let Arrival { payload, missing, .. } = *arrival;
        if how.target.refuses_flags(segment) {
            return Err(Reason::Flags);
        }
        let (established, is_closed) = (self.is_established(), self.phase == Phase::Closed);
        let is_middle = how.midstream && !payload.is_empty() && !segment.is_reset();
        let begins = segment.is_syn() && !established || is_middle;
        if self.tracked.is_none() && how.streams && begins {
            self.tracked = Some(Box::default());
        }
        let Some(tracked) = self.tracked.as_deref_mut() else { return Ok(payload.len()) };
        let Tracked { ends, streams, .. } = tracked;
        if segment.is_syn() {
            if !established {
                return ends.greet(to_server, segment, payload, streams).map(|()| 0);
            }
            if !segment.acknowledges() {
                ends.keep_syn(to_server, segment);
            }
            return if is_closed { Ok(0) } else { Err(Reason::Syn) };
        }
        if is_middle {
            streams[usize::from(!to_server)].begin(segment.sequence);
        }
        if !established && ends.is_open() {
            ends.choose(to_server, segment, streams);
        }
        ends.sends(to_server, segment, payload.len() + missing, streams);
        ends.judge(to_server, segment, payload.len(), streams, how.target)
    }

    /// Whether a segment only continues its stream after `past`: it changes nothing else, and
    /// only its new bytes could require a rule to be evaluated.
    pub(super) fn only_goes_on(
        &self,
        to_server: bool,
        segment: &Segment,
        length: usize,
        past: &[u8],
        engine: &Engine,
        target: Target,
    ) -> bool {
        let Some(tracked) = self.tracked.as_deref() else { return false };
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let stream = &tracked.streams[own];
        segment.has(ACK, SYN | RST | FIN)
            && self.verdict.is_none()
            && stream.goes_on_at(segment.sequence)
            && stream.past(engine.reach) == past
            && !tracked.streams[other].waits_for_acknowledgement()
            && tracked.open[own].is_empty()
            && (self.is_established() || !tracked.ends.is_open())
            && tracked.ends.judge(to_server, segment, length, &tracked.streams, target)
                == Ok(length)
            && tracked.rules == engine.fingerprint
            && (!engine.needs.applications || tracked.app.is_none())
    }

    /// Accepts a segment that only continues its stream. Returns the bytes of memory that the
    /// stream held before and holds now.
    pub(super) fn go_on(
        &mut self,
        to_server: bool,
        segment: &Segment,
        payload: &[u8],
        policy: &Policy,
        now: Nanoseconds,
    ) -> (usize, usize) {
        self.last = self.last.follow(now);
        self.advance(Some(segment), to_server);
        self.tracked.as_deref_mut().map_or((0, 0), |tracked| {
            let Tracked { ends, streams, .. } = tracked;
            ends.sends(to_server, segment, payload.len(), streams);
            ends.take(to_server, segment);
            let stream = &mut streams[usize::from(!to_server)];
            let before = stream.memory();
            stream.append(payload, policy);
            (before, stream.memory())
        })
    }

    /// Bytes of memory that its streams hold.
    pub(super) fn memory(&self) -> usize {
        self.tracked.as_ref().map_or(0, |t| t.memory())
    }

    /// Holds the decision of a rule for all further packets, which need no inspection.
    pub(super) fn decide(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
        match verdict {
            Verdict::Drop { .. } => self.tracked = None,
            Verdict::Pass { .. } => {
                if let Some(tracked) = self.tracked.as_deref_mut() {
                    tracked.app = App::None;
                    tracked.open = <[Vec<_>; 2]>::default();
                }
            }
        }
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

    fn advance(&mut self, segment: Option<&Segment>, to_server: bool) {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        self.seen[own] = true;
        let Some(segment) = segment else { return };
        let flags = segment.flags;
        self.phase = match self.phase {
            _ if flags & RST != 0 && self.phase != Phase::None => Phase::Closed,
            Phase::None if flags & (SYN | ACK) == SYN && to_server => Phase::Syn,
            Phase::Syn if flags & (SYN | ACK) == SYN | ACK && !to_server => Phase::SynAck,
            Phase::SynAck if flags & (SYN | ACK) == ACK && to_server => Phase::Established,
            Phase::Syn if flags & (SYN | ACK) == SYN && !to_server => Phase::Split,
            Phase::Split if flags & (SYN | ACK) == SYN | ACK && to_server => Phase::SplitAck,
            Phase::SplitAck if flags & (SYN | ACK) == ACK && !to_server => Phase::Established,
            phase => phase,
        };
        self.ended[own] |= segment.is_last();
        let is_over = self.ended[own] && (self.ended[other] || !self.seen[other]);
        if self.phase == Phase::Established && is_over {
            self.phase = Phase::Closed;
        }
    }
}
