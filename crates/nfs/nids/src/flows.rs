//! The connections of an NF, within the bounds of their number and memory.

use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::wire::tcp_flags::{ACK, SYN};

use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::{FlowTable, Found, Hand, NoPlace, Slot};
use thalweg_nf::{BUCKETS, Steering, Units};

use super::buffer::Protocol;
use super::flow::{Arrival, Flow, Handling, Phase};
use super::receiver::Reason;
use super::recent::{Recent, Tuple};
use super::segment::Segment;

/// A timestamp is no longer compared with after this time (RFC 7323, 5.5).
const OLD_TIMESTAMP: Nanoseconds = Nanoseconds::from_secs(24 * 86_400);

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
    /// Where some connections of IPv4 lie, as long as they do.
    pub(super) recent: Recent,
    limits: Limits,
    steering: Steering,
    /// By share: where the search for connections to evict goes on, and for streams.
    hands: Vec<[Hand; 2]>,
    pub(super) evicted: u64,
    /// Bytes that tracked connections hold, by share, and the most that each may.
    memory: Vec<usize>,
    most: usize,
    /// Connections whose streams were given up.
    pub(super) streams_evicted: u64,
}

impl Flows {
    /// Those of an NF, or of one of its `parts`.
    pub(super) fn new(limits: Limits, steering: Steering, parts: usize) -> Self {
        let shares = limits.shares();
        // A part has whole shares.
        let flows = limits.flows / shares * shares.div_ceil(parts);
        let table = FlowTable::with_sections(shares, flows.max(1));
        let (hands, memory) = (vec![Default::default(); shares], vec![0; shares]);
        let most = limits.memory / shares;
        Self {
            table,
            recent: Recent::default(),
            limits,
            steering,
            hands,
            evicted: 0,
            memory,
            most,
            streams_evicted: 0,
        }
    }

    /// The bytes of connections and streams that the limits allow.
    pub(super) fn bytes(limits: Limits) -> usize {
        FlowTable::<Conversation, Flow, 5>::bytes(limits.flows) + Recent::BYTES + limits.memory
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
        share_of(id, self.steering, self.memory.len())
    }

    /// Goes on with growing, if the table grows: for each batch.
    pub(super) fn settle(&mut self) {
        self.table.settle();
    }

    /// Looks up the connections of a batch, given as words, and prefetches them.
    pub(super) fn find(&self, ids: &[[u64; 5]]) -> Found {
        self.table.find_words(ids)
    }

    /// Prefetches the connection in `slot`.
    #[inline]
    pub(super) fn ask_for(&self, slot: Slot) {
        self.table.ask_for(slot);
    }

    /// Whether the connection in `slot` is that of a segment.
    pub(super) fn is_in(
        &self,
        slot: Slot,
        from_low: bool,
        Tuple { addresses, ports }: Tuple,
    ) -> bool {
        let id = self.table.at(slot).map(|(id, _)| id);
        id.is_some_and(|id| id.is_of_ipv4(addresses, ports, TCP, from_low))
    }

    /// The connection in `slot`.
    #[inline]
    pub(super) fn in_slot(&self, slot: Slot) -> Option<&Flow> {
        self.table.at(slot).map(|(_, flow)| flow)
    }

    /// The same, to change it.
    #[inline]
    pub(super) fn at(&mut self, slot: Slot) -> Option<&mut Flow> {
        self.table.at_mut(slot).map(|(_, flow)| flow)
    }

    /// The time without a packet after which a connection expires.
    pub(super) fn idle(&self) -> Nanoseconds {
        self.limits.idle
    }

    /// Whether a packet may evict a connection or its streams: room for less than the most that one
    /// packet adds, which is what may be decompressed of a message.
    pub(super) fn is_crowded(&self) -> bool {
        const MOST_ADDED: usize = 3 << 19;
        let flows = self.flows_of_share();
        let mut each = self.memory.iter().enumerate();
        each.any(|(share, memory)| {
            memory + MOST_ADDED > self.most || self.table.len_of(share) >= flows
        })
    }

    /// The most connections of a share.
    fn flows_of_share(&self) -> usize {
        self.limits.flows / self.memory.len()
    }

    /// Whether the connection in `slot` is this one.
    #[inline]
    pub(super) fn has(&self, slot: Slot, id: &Conversation) -> bool {
        self.table.has(slot, id)
    }

    /// The connection in `slot`, if it has not expired.
    #[inline]
    pub(super) fn current(&mut self, slot: Slot, now: Nanoseconds) -> Option<&mut Flow> {
        let (_, flow) = self.table.at_mut(slot)?;
        (now.since(flow.last) < self.limits.idle).then_some(flow)
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
            None => self.begin(id, Flow::new(client_is_low, now)).ok()?,
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
        if let Some(tracked) = flow.tracked.as_deref_mut() {
            tracked.wake();
            if idle >= OLD_TIMESTAMP {
                tracked.ends.forget_timestamps([true; 2]);
            }
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

    /// Inserts a new connection, and evicts another if the table is full.
    fn begin(&mut self, id: Conversation, flow: Flow) -> Result<Slot, NoPlace> {
        let share = self.share(&id);
        if self.table.len_of(share) >= self.flows_of_share() {
            self.evict(share);
        }
        self.table.insert_in(share, id, flow)
    }

    /// Records that the streams of a connection of `share` hold `after` bytes instead of `before`.
    /// Beyond the limit, connections lose their streams, each the least recently used of a few.
    #[inline]
    pub(super) fn book(&mut self, share: usize, before: usize, after: usize) {
        let memory = &mut self.memory[share];
        *memory = *memory + after - before;
        if *memory > self.most {
            self.evict_streams(share);
        }
    }

    /// The same for the connection in `slot`, within the limit.
    #[inline(never)]
    pub(super) fn book_within(&mut self, slot: Slot, before: usize, after: usize) {
        let memory = &mut self.memory[self.table.section_of(slot)];
        *memory = *memory + after - before;
    }

    /// Whether streams may hold so many more bytes within the limits.
    pub(super) fn have_memory_for(&self, bytes: usize) -> bool {
        self.memory.iter().all(|memory| memory + bytes <= self.most)
    }

    /// Gives up streams of connections of `share` until the others are within the limit.
    #[cold]
    fn evict_streams(&mut self, share: usize) {
        while self.memory[share] > self.most && self.evict_stream(share) {}
    }

    /// Gives up the streams of a connection; returns whether one had any.
    fn evict_stream(&mut self, share: usize) -> bool {
        let hand = &mut self.hands[share][1];
        let age = |_: &Conversation, flow: &Flow| flow.tracked.is_some().then_some(flow.last);
        let slot = self.table.least(share, hand, age);
        let flow = slot.and_then(|slot| self.table.at_mut(slot)).map(|(_, flow)| flow);
        let Some(tracked) = flow.and_then(|flow| flow.tracked.take()) else { return false };
        self.memory[share] -= tracked.memory();
        self.streams_evicted += 1;
        true
    }

    /// Evicts the least recently used connection of a few.
    fn evict(&mut self, share: usize) {
        let hand = &mut self.hands[share][0];
        if let Some((id, flow)) = self.table.evict(share, hand, |_, flow| flow.last) {
            self.recent.forget(&id);
            self.memory[share] -= flow.memory();
            self.evicted += 1;
        }
    }

    /// All connections, in arbitrary order.
    pub(super) fn records(&self) -> impl Iterator<Item = (&Conversation, &Flow)> {
        self.table.iter()
    }

    /// The connections of a unit, in arbitrary order.
    pub(super) fn records_of(&self, unit: u16) -> impl Iterator<Item = (&Conversation, &Flow)> {
        self.table.unit(unit)
    }

    /// Begins to index the connections by unit, or continues; returns whether all are indexed.
    pub(super) fn index_units(&mut self, units: Units) -> bool {
        self.table.index_units(units, Conversation::bucket)
    }

    /// Removes the connections of a unit.
    pub(super) fn forget_unit(&mut self, unit: u16) {
        let Self { table, recent, memory, steering, .. } = self;
        let shares = memory.len();
        table.take_unit(unit, |id, flow| {
            recent.forget(&id);
            memory[share_of(&id, *steering, shares)] -= flow.memory();
        });
    }

    /// Drops the index by unit.
    pub(super) fn end_units(&mut self) {
        self.table.end_units();
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
    /// as evicted. As many as `expected` are to come in all.
    pub(super) fn insert(&mut self, records: Vec<(Conversation, Flow)>, expected: usize) {
        let room = self.limits.flows.saturating_sub(self.table.len());
        self.table.reserve(records.len().max(expected.min(room)));
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

/// The share of a connection, one of `shares`.
fn share_of(id: &Conversation, steering: Steering, shares: usize) -> usize {
    usize::from(id.bucket(steering)) * shares / BUCKETS
}

#[cfg(test)]
mod tests {
    use thalweg_nf::toolkit::flow_table::FlowWords;
    use thalweg_packet::FiveTuple;

    use super::super::recent::Located;
    use super::*;

    const TUPLE: Tuple = Tuple { addresses: 0x0a00_0001_0a00_0002, ports: 0x03e8_0050 };

    /// Flows that remember the connection of [`TUPLE`], of which there may be only one.
    fn with_one_remembered(steering: Steering) -> Flows {
        let limits = Limits { flows: 1, idle: Nanoseconds::from_secs(60), memory: 1 << 20 };
        let mut flows = Flows::new(limits, steering, 1);
        let (id, from_low) = conversation(1000);
        flows.insert(vec![(id, Flow::new(from_low, Nanoseconds(0)))], 1);
        let slot = flows.find(&[id.words()]).slot(0).unwrap();
        assert!(flows.is_in(slot, from_low, TUPLE));
        let located = Located { slot, from_low };
        flows.recent.put(TUPLE, located);
        assert_eq!(flows.recent.get(TUPLE), Some(located));
        flows
    }

    fn conversation(src_port: u16) -> (Conversation, bool) {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Conversation::of(&FiveTuple { src, dst, src_port, dst_port: 80, protocol: TCP })
    }

    #[test]
    fn a_connection_that_moves_away_is_forgotten() {
        let steering = Steering::with_seed(1);
        let mut flows = with_one_remembered(steering);
        while !flows.index_units(Units::new(1, steering).unwrap()) {}
        flows.forget_unit(0);
        assert_eq!((flows.len(), flows.recent.get(TUPLE)), (0, None));
    }

    #[test]
    fn a_connection_that_is_evicted_is_forgotten() {
        let mut flows = with_one_remembered(Steering::with_seed(1));
        let (id, from_low) = conversation(1001);
        assert!(flows.begin(id, Flow::new(from_low, Nanoseconds(1))).is_ok());
        assert_eq!((flows.len(), flows.evicted, flows.recent.get(TUPLE)), (1, 1, None));
    }
}
