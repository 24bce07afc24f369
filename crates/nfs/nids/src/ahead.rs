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
use thalweg_packet::wire::tcp_flags::{RST, SYN};
use thalweg_packet::{BATCH, Batch, Lanes, field};

use super::engine::{Engine, Search};
use super::flows::Flows;
use super::heads::Kind;
use super::segment::Segment;
use super::stream::Stream;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::Slot;
use thalweg_nf::toolkit::view::payload;

/// Entries for the last segments of streams in a batch.
const PLACES: usize = 64;

/// The text expected to be searched for a packet.
#[derive(Clone, Debug, Default)]
enum Text {
    /// Not known before the packet's turn.
    Unknown,
    /// The payload by itself.
    #[default]
    Payload,
    /// The end of a stream, at this range of `joined`, followed by the payload.
    Joined(Range<usize>),
}

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

/// The results for a batch before its packets' turn; reused. Arrays with an entry per packet are
/// indexed by lane.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Packets whose connections matter.
    pub(super) connected: Lanes,
    /// The subsets that have a connection, and that its lower endpoint sent.
    tracked: Lanes,
    from_low: Lanes,
    conversations: [Conversation; BATCH],
    slots: [Option<Slot>; BATCH],
    /// Packets with a TCP header.
    segmented: Lanes,
    segments: [Segment; BATCH],
    texts: [Text; BATCH],
    /// Joined texts, one after the other.
    joined: Vec<u8>,
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
        if !self.connected.is_empty() {
            self.find_connections(flows, batch);
            for lane in self.connected {
                self.texts[lane] = Text::Payload;
            }
            if engine.needs.streams {
                self.put_together(engine, flows, &texts.bytes, midstream);
            }
            #[cfg(test)]
            if BLIND.get() {
                self.texts.fill(Text::Unknown);
            }
            for lane in self.segmented {
                let bytes = &mut texts.bytes[lane];
                (*bytes, texts.known[lane]) = match &self.texts[lane] {
                    Text::Unknown => (&[][..], 0),
                    Text::Payload => continue,
                    Text::Joined(past) => {
                        (&self.joined[past.start..past.end + bytes.len()], past.len())
                    }
                };
            }
        }
        self.found.clear();
        engine.candidates_of_each(batch, lanes, &texts, search, &mut self.found);
        self.any = self.found.iter().map(|(lane, _)| *lane as usize).collect();
    }

    /// Looks up the connections, which prefetches them.
    fn find_connections(&mut self, flows: &mut Flows, batch: &Batch) {
        (self.tracked, self.from_low, self.segmented) = (Lanes::NONE, Lanes::NONE, Lanes::NONE);
        for lane in self.connected {
            let headers = batch.headers(lane);
            let l4 = usize::from(headers.l4);
            if l4 == 0 {
                continue;
            }
            if headers.has_transport(TCP) {
                self.segmented.insert(lane);
                let flags = batch.field(lane, field::TCP_FLAGS) as u8;
                let header = batch.bytes(lane).get(l4..usize::from(headers.payload));
                self.segments[lane] = Segment::new(header.unwrap_or(&[]), flags);
            }
            if let Some((conversation, from_low)) = Conversation::in_lane(batch, lane) {
                self.tracked.insert(lane);
                self.conversations[lane] = conversation;
                if from_low {
                    self.from_low.insert(lane);
                }
            }
        }
        let found = flows.find(self.tracked.into_iter().map(|lane| self.conversations[lane]));
        for (n, lane) in self.tracked.into_iter().enumerate() {
            self.slots[lane] = found.slot(n);
        }
    }

    /// The streams of the segments; prefetches them.
    fn find_streams<'f>(&self, flows: &'f Flows) -> [Option<&'f Stream>; BATCH] {
        let mut streams = [None; BATCH];
        for lane in self.segmented.and(self.tracked) {
            let flow = self.slots[lane].and_then(|slot| flows.in_slot(slot));
            streams[lane] = flow.and_then(|flow| {
                let tracked = flow.tracked.as_deref()?;
                prefetch::whole(std::slice::from_ref(tracked), 0);
                let to_server = flow.is_to_server(self.from_low.contains(lane));
                Some(&tracked.streams[usize::from(!to_server)])
            });
        }
        streams.iter().flatten().for_each(|stream| stream.ask_for());
        streams
    }

    /// Assembles the texts to search for segments.
    fn put_together(
        &mut self,
        engine: &Engine,
        flows: &Flows,
        payloads: &[&[u8]; BATCH],
        midstream: bool,
    ) {
        self.joined.clear();
        // The last segment of a stream in the batch, by a few bits of the stream's number.
        let mut last = [None::<u8>; PLACES];
        let streams = self.find_streams(flows);
        for lane in self.segmented {
            let (payload, segment) = (payloads[lane], self.segments[lane]);
            if payload.is_empty() || segment.flags & RST != 0 {
                continue;
            }
            let Some(stream) = streams[lane] else {
                // A stream that begins here is searched at the packet's turn.
                if midstream || segment.flags & SYN != 0 {
                    self.texts[lane] = Text::Unknown;
                }
                continue;
            };
            let slot = self.slots[lane].map_or(0, |slot| slot.0 as usize);
            let number = 2 * slot + usize::from(self.from_low.contains(lane));
            let place = &mut last[number % PLACES];
            let before = place.map(usize::from).filter(|before| {
                let next = self.segments[*before].sequence;
                streams[*before].is_some_and(|before| std::ptr::eq(before, stream))
                    && next.wrapping_add(payloads[*before].len() as u32) == segment.sequence
            });
            let begin = self.joined.len();
            match before.map(|before| (&self.texts[before], payloads[before].len())) {
                Some((Text::Joined(past), length)) => {
                    let end = past.end + length;
                    let start = past.start.max(end.saturating_sub(engine.reach));
                    self.joined.extend_from_within(start..end);
                }
                _ if stream.goes_on_at(segment.sequence) => {
                    self.joined.extend_from_slice(stream.past(engine.reach));
                }
                _ => {
                    self.texts[lane] = Text::Unknown;
                    continue;
                }
            }
            *place = Some(lane as u8);
            self.texts[lane] = Text::Joined(begin..self.joined.len());
            self.joined.extend_from_slice(payload);
        }
    }

    /// The slot in which the connection of a packet was found.
    pub(super) fn slot(&self, lane: usize) -> Option<Slot> {
        self.slots[lane]
    }

    /// The connection of a packet, and whether its lower endpoint sent the packet.
    pub(super) fn conversation(&self, lane: usize) -> Option<(Conversation, bool)> {
        let known = (self.conversations[lane], self.from_low.contains(lane));
        self.tracked.contains(lane).then_some(known)
    }

    pub(super) fn segment(&self, lane: usize) -> Option<Segment> {
        self.segmented.contains(lane).then_some(self.segments[lane])
    }

    /// The end of the stream that the packet was searched with, if no rule may match it.
    pub(super) fn quiet(&self, lane: usize) -> Option<&[u8]> {
        match &self.texts[lane] {
            Text::Joined(past) if !self.any.contains(lane) => Some(&self.joined[past.clone()]),
            _ => None,
        }
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
        matches!(self.texts[lane], Text::Payload)
    }

    /// Whether a packet was searched with the end of this stream, which it continues.
    pub(super) fn searched_behind(&self, lane: usize, stream: &Stream, reach: usize) -> bool {
        let Text::Joined(past) = &self.texts[lane] else { return false };
        stream.past(reach) == &self.joined[past.clone()]
    }
}
