//! Searches ahead: all texts of a batch in one pass.
//!
//! A segment is searched together with the end of its stream, and streams change packet by
//! packet. But most segments arrive in order. So before the first packet changes any state, the
//! texts are assembled as they will be if all segments arrive in order; on the way, connections
//! and streams are prefetched together. A packet uses the hits in its text only if its stream
//! then ends as expected; otherwise it is searched by itself.

use std::ops::Range;

use thalweg_cpu::prefetch;
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::{BATCH, Batch, Lanes, field};

use super::engine::{Engine, Search};
use super::flows::Flows;
use super::heads::Kind;
use super::segment::Segment;
use super::stream::Stream;
use super::tail::copy;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::Slot;
use thalweg_nf::toolkit::view::payload;

/// Entries for the last segments of streams in a batch.
const PLACES: usize = 64;
/// An entry without one.
const FREE: u8 = u8::MAX;

/// What is searched for the packets of a batch. Arrays are indexed by lane.
pub(super) struct Texts<'a> {
    /// Empty where nothing is searched ahead.
    pub(super) bytes: [&'a [u8]; BATCH],
    /// Bytes at the beginning of each that were searched already.
    pub(super) known: [usize; BATCH],
    /// The packets with a payload, and all of each kind.
    pub(super) with_payload: Lanes,
    pub(super) of_kinds: [Lanes; Kind::ALL.len()],
}

impl<'a> Texts<'a> {
    /// The payloads of packets.
    #[inline]
    fn new(batch: &'a Batch, lanes: Lanes) -> Self {
        let mut bytes = [&[][..]; BATCH];
        // Sums in registers: lane by lane, an array would wait for its own stores.
        let (mut with_payload, mut tcp, mut udp) = (0, 0, 0);
        for lane in lanes {
            bytes[lane] = payload(batch, lane);
            with_payload |= u32::from(!bytes[lane].is_empty()) << lane;
            let kind = Kind::of(batch, lane);
            tcp |= u32::from(kind == Kind::Tcp) << lane;
            udp |= u32::from(kind == Kind::Udp) << lane;
        }
        let of_kinds = [tcp, udp, lanes.0 & !(tcp | udp)].map(Lanes);
        Self { bytes, known: [0; BATCH], with_payload: Lanes(with_payload), of_kinds }
    }
}

/// The results for a batch before its packets' turn; reused. Arrays are indexed by lane.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Packets whose connections matter.
    pub(super) connected: Lanes,
    /// The subsets that have a connection, whose connection was found, and that its lower endpoint
    /// sent.
    tracked: Lanes,
    known: Lanes,
    from_low: Lanes,
    slots: [u32; BATCH],
    /// Packets with a TCP header.
    segmented: Lanes,
    segments: [Segment; BATCH],
    /// Packets searched with the end of their stream, and those whose text is not known before their
    /// turn. All others are searched by themselves.
    joined: Lanes,
    unknown: Lanes,
    /// Where that end lies in `text`, and the payload after it.
    pasts: [Range<usize>; BATCH],
    payloads: [Range<usize>; BATCH],
    /// Joined texts, one after the other, and room for more.
    text: Vec<u8>,
    /// Lanes and the rules that may match their packets, in order.
    found: Vec<(u32, u32)>,
    /// Lanes for which `found` has rules.
    any: Lanes,
}

#[cfg(test)]
thread_local! {
    /// Disables searching ahead on this thread, as the reference for tests.
    pub(super) static BLIND: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Ahead {
    /// Searches the texts that the packets of `lanes` are expected to add.
    pub(super) fn look(
        &mut self,
        engine: &Engine,
        flows: &mut Flows,
        batch: &Batch,
        lanes: Lanes,
        midstream: bool,
        search: &mut Search,
    ) {
        let mut texts = Texts::new(batch, lanes);
        let [of_tcp, of_others] = engine.needs.connections;
        let tcp = texts.of_kinds[Kind::Tcp as usize];
        self.connected = Lanes::NONE;
        for (lanes, matter) in [(tcp, of_tcp), (lanes.without(tcp), of_others)] {
            self.connected = self.connected.or(if matter { lanes } else { Lanes::NONE });
        }
        (self.joined, self.unknown) = (Lanes::NONE, Lanes::NONE);
        if !self.connected.is_empty() {
            let streams = self.find_streams(flows, batch);
            if engine.needs.streams {
                self.put_together(engine, &streams, &texts.bytes, midstream);
            }
            #[cfg(test)]
            if BLIND.get() {
                (self.joined, self.unknown) = (Lanes::NONE, Lanes::ALL);
            }
            for lane in self.unknown.and(self.segmented) {
                texts.bytes[lane] = &[];
            }
            for lane in self.joined {
                let (bytes, past) = (&mut texts.bytes[lane], &self.pasts[lane]);
                *bytes = &self.text[past.start..self.payloads[lane].end];
                texts.known[lane] = past.len();
            }
        }
        self.found.clear();
        engine.candidates_of_each(batch, lanes, &texts, search, &mut self.found);
        self.any = self.found.iter().map(|(lane, _)| *lane as usize).collect();
    }

    /// Looks up the connections and reads the segments; returns their streams, and prefetches all.
    #[inline]
    fn find_streams<'f>(
        &mut self,
        flows: &'f mut Flows,
        batch: &Batch,
    ) -> [Option<&'f Stream>; BATCH] {
        let mut ids = [[0; 5]; BATCH];
        let (tracked, from_low) = Conversation::in_lanes(batch, self.connected, &mut ids);
        let found = flows.find(&ids[..tracked.count()]);
        let (mut streams, mut n) = ([None; BATCH], 0);
        // Sums in registers, as above.
        let (mut segmented, mut known) = (0, 0);
        for lane in self.connected {
            let is_tracked = tracked.contains(lane);
            let slot = found.slot(n).filter(|_| is_tracked);
            n += usize::from(is_tracked);
            if let Some(slot) = slot {
                self.slots[lane] = slot.0;
                known |= 1 << lane;
            }
            let headers = batch.headers(lane);
            if headers.l4 == 0 || !headers.has_transport(TCP) {
                continue;
            }
            segmented |= 1 << lane;
            let flags = batch.field(lane, field::TCP_FLAGS) as u8;
            let header = usize::from(headers.l4)..usize::from(headers.payload);
            let header = batch.bytes(lane).get(header).unwrap_or(&[]);
            self.segments[lane] = Segment::new(header, flags);
            streams[lane] = slot.and_then(|slot| flows.in_slot(slot)).and_then(|flow| {
                let tracked = flow.tracked.as_deref()?;
                prefetch::whole(std::slice::from_ref(tracked), 0);
                let to_server = flow.is_to_server(from_low.contains(lane));
                Some(&tracked.streams[usize::from(!to_server)])
            });
        }
        (self.tracked, self.from_low) = (tracked, from_low);
        (self.segmented, self.known) = (Lanes(segmented), Lanes(known));
        streams.iter().flatten().for_each(|stream| stream.ask_for());
        streams
    }

    /// Assembles the texts to search for segments.
    #[inline]
    fn put_together(
        &mut self,
        engine: &Engine,
        streams: &[Option<&Stream>; BATCH],
        payloads: &[&[u8]; BATCH],
        midstream: bool,
    ) {
        // The last segment of a stream in the batch, by a few bits of the stream's number.
        let (mut last, mut numbers, mut nexts) = ([FREE; PLACES], [0; BATCH], [0; BATCH]);
        let (mut joined, mut unknown, mut end) = (0, 0, 0);
        for lane in self.segmented {
            let (payload, segment) = (payloads[lane], &self.segments[lane]);
            if payload.is_empty() || segment.is_reset() {
                continue;
            }
            let Some(stream) = streams[lane] else {
                // A stream that begins here is searched at the packet's turn.
                unknown |= u32::from(midstream || segment.is_syn()) << lane;
                continue;
            };
            let most = end + engine.reach + payload.len();
            if self.text.len() < most {
                self.text.resize(most, 0);
            }
            let number = self.slots[lane] << 1 | u32::from(self.from_low.contains(lane));
            let place = &mut last[number as usize % PLACES];
            let before = usize::from(*place);
            let begin = end;
            if before < BATCH && numbers[before] == number && nexts[before] == segment.sequence {
                let until = self.payloads[before].end;
                let from = self.pasts[before].start.max(until.saturating_sub(engine.reach));
                self.text.copy_within(from..until, begin);
                end += until - from;
            } else if stream.goes_on_at(segment.sequence) {
                let [first, second] = stream.past(engine.reach);
                end += first.len();
                copy(first, &mut self.text[begin..end]);
                if !second.is_empty() {
                    self.text[end..end + second.len()].copy_from_slice(second);
                    end += second.len();
                }
            } else {
                unknown |= 1 << lane;
                continue;
            }
            *place = lane as u8;
            numbers[lane] = number;
            nexts[lane] = segment.sequence.wrapping_add(payload.len() as u32);
            joined |= 1 << lane;
            let until = end + payload.len();
            (self.pasts[lane], self.payloads[lane]) = (begin..end, end..until);
            copy(payload, &mut self.text[end..until]);
            end = until;
        }
        (self.joined, self.unknown) = (Lanes(joined), Lanes(unknown));
    }

    /// The packets of connections that continue their stream if that ends as expected, and that no
    /// rule may match then.
    pub(super) fn quiet(&self) -> Lanes {
        self.joined.without(self.any)
    }

    /// The slot of the connection of a [quiet](Self::quiet) packet, and its segment.
    #[inline]
    pub(super) fn quiet_segment(&self, lane: usize) -> (Slot, &Segment) {
        (Slot(self.slots[lane]), &self.segments[lane])
    }

    /// The slot in which the connection of a packet was found.
    pub(super) fn slot(&self, lane: usize) -> Option<Slot> {
        self.known.contains(lane).then(|| Slot(self.slots[lane]))
    }

    /// The connection of a packet, and whether its lower endpoint sent the packet.
    pub(super) fn conversation(&self, batch: &Batch, lane: usize) -> Option<(Conversation, bool)> {
        self.tracked.contains(lane).then(|| Conversation::in_lane(batch, lane))?
    }

    /// Whether the lower endpoint of its connection sent a packet.
    #[inline]
    pub(super) fn is_from_low(&self, lane: usize) -> bool {
        self.from_low.contains(lane)
    }

    pub(super) fn segment(&self, lane: usize) -> Option<Segment> {
        self.segmented.contains(lane).then_some(self.segments[lane])
    }

    /// The end of the stream that a packet was searched with.
    #[inline]
    pub(super) fn past(&self, lane: usize) -> &[u8] {
        &self.text[self.pasts[lane].clone()]
    }

    /// The payload of a packet that was searched with the end of its stream: it is nearer here than
    /// in the packet.
    #[inline]
    pub(super) fn payload(&self, lane: usize) -> &[u8] {
        &self.text[self.payloads[lane].clone()]
    }

    /// Appends the rules that may match the expected text of a packet, in order of evaluation.
    pub(super) fn take(&self, lane: usize, out: &mut Vec<u32>) {
        if self.any.contains(lane) {
            let from = self.found.partition_point(|(of, _)| (*of as usize) < lane);
            let own = self.found[from..].iter().take_while(|(of, _)| *of as usize == lane);
            out.extend(own.map(|(_, rule)| *rule));
        }
    }

    /// Whether a packet's payload was searched by itself.
    pub(super) fn searched_payload(&self, lane: usize) -> bool {
        !self.joined.or(self.unknown).contains(lane)
    }

    /// Whether a packet was searched with the end of this stream, which it continues.
    pub(super) fn searched_behind(&self, lane: usize, stream: &Stream, reach: usize) -> bool {
        self.joined.contains(lane) && stream.has_past(self.past(lane), reach)
    }
}
