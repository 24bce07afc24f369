//! Searches ahead: all texts of a batch in one pass.
//!
//! A segment is searched together with the end of its stream, and streams change packet by
//! packet. But most segments arrive in order. So before the first packet changes any state, the
//! texts are assembled as they will be if all segments arrive in order; on the way, connections
//! and streams are prefetched together. A packet uses the hits in its text only if its stream
//! then ends as expected; otherwise it is searched by itself.

use thalweg_cpu::prefetch;
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::{BATCH, Batch, Lanes, field};

use super::arrival;
use super::device;
use super::engine::{Engine, Search};
use super::flows::Flows;
use super::heads::Kind;
use super::segment::Segment;
use super::stream::Stream;
use super::tail::copy;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::Slot;

/// What is searched for the packets of a batch. Arrays are indexed by lane.
#[derive(Default)]
pub(super) struct Texts<'a> {
    /// Empty where nothing is searched ahead.
    pub(super) bytes: [&'a [u8]; BATCH],
    /// Bytes at the beginning of each that were searched already.
    pub(super) known: [usize; BATCH],
    /// The texts that lie one after the other, and their lanes.
    pub(super) joined: &'a [u8],
    pub(super) are_joined: Lanes,
    /// The packets with a payload, and all of each kind.
    pub(super) with_payload: Lanes,
    pub(super) of_kinds: [Lanes; Kind::ALL.len()],
    /// The sets of groups that have no pattern in each text, by what a device has found.
    pub(super) without: [u32; BATCH],
    /// Bytes of all payloads of segments.
    total: usize,
}

/// Where the text of a packet that is joined lies: the end of its stream, then its payload.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    begin: u32,
    /// Where the payload begins.
    fresh: u32,
    end: u32,
}

/// The streams that have a segment in a batch: a filter that few others pass.
#[derive(Default)]
struct SeenStreams([u64; 16]);

impl SeenStreams {
    /// Adds the stream of a number; returns whether it may be known.
    #[inline]
    fn add(&mut self, number: u32) -> bool {
        // The numbers of streams have patterns.
        let bit = number.wrapping_mul(0x9e37_79b1) >> 22;
        let (word, bit) = (&mut self.0[(bit / u64::BITS) as usize], 1 << (bit % u64::BITS));
        let known = *word & bit != 0;
        *word |= bit;
        known
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
    /// Packets with a TCP header, and the subsets that [continue](Segment::continues) a stream, and that
    /// have no defects other than of their checksums and their TTL.
    segmented: Lanes,
    continuing: Lanes,
    flawless: Lanes,
    segments: [Segment; BATCH],
    /// Packets searched with the end of their stream, and those whose text is not known before their
    /// turn. All others are searched by themselves.
    joined: Lanes,
    unknown: Lanes,
    /// Segments without data, of known connections.
    bare: Lanes,
    /// Where joined texts lie in `text`.
    places: [Place; BATCH],
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
        let [of_tcp, of_others] = engine.needs.connections;
        let mut texts =
            if of_tcp { self.read::<true>(batch, lanes) } else { self.read::<false>(batch, lanes) };
        let tcp = texts.of_kinds[Kind::Tcp as usize];
        self.connected = Lanes::NONE;
        for (lanes, matter) in [(tcp, of_tcp), (lanes.without(tcp), of_others)] {
            self.connected = self.connected.or(if matter { lanes } else { Lanes::NONE });
        }
        (self.joined, self.unknown, self.bare) = Default::default();
        if !self.connected.is_empty() {
            let streams = self.find_streams(flows, batch);
            if engine.needs.streams {
                self.put_together(engine, &streams, &texts, midstream);
            }
            #[cfg(test)]
            if BLIND.get() {
                (self.joined, self.unknown, self.bare) = (Lanes::NONE, Lanes::ALL, Lanes::NONE);
            }
            for lane in self.unknown.and(self.segmented) {
                texts.bytes[lane] = &[];
            }
            let mut end = 0;
            for lane in self.joined {
                let place = self.places[lane];
                end = place.end as usize;
                texts.bytes[lane] = &self.text[place.begin as usize..end];
                texts.known[lane] = (place.fresh - place.begin) as usize;
            }
            (texts.joined, texts.are_joined) = (&self.text[..end], self.joined);
        }
        self.found.clear();
        if let Some(results) = &search.results {
            device::rule_out(engine, results, &mut texts);
        }
        engine.candidates_of_each(batch, lanes, &texts, search, &mut self.found);
        self.any = self.found.iter().map(|(lane, _)| *lane as usize).collect();
    }

    /// Reads the packets' payloads, and their `SEGMENTS` if these matter.
    #[inline]
    fn read<'b, const SEGMENTS: bool>(&mut self, batch: &'b Batch, lanes: Lanes) -> Texts<'b> {
        let mut texts = Texts::default();
        // Sums in registers: lane by lane, an array would wait for its own stores.
        let (mut with_payload, mut tcp, mut udp, mut total) = (0, 0, 0, 0);
        let (mut segmented, mut continuing, mut flawless) = (0, 0, 0);
        for lane in lanes {
            let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
            let payload = bytes.get(headers.payload.into()..headers.end.into()).unwrap_or(&[]);
            texts.bytes[lane] = payload;
            with_payload |= u32::from(!payload.is_empty()) << lane;
            let kind = Kind::of_protocol(headers.ip_proto);
            tcp |= u32::from(kind == Kind::Tcp) << lane;
            udp |= u32::from(kind == Kind::Udp) << lane;
            if SEGMENTS && headers.l4 != 0 && headers.has_transport(TCP) {
                let header = bytes.get(headers.l4.into()..headers.payload.into()).unwrap_or(&[]);
                let segment = Segment::new(header, batch.field(lane, field::TCP_FLAGS) as u8);
                let is_whole = arrival::missing(batch, lane) == 0;
                total += payload.len();
                segmented |= 1 << lane;
                flawless |= u32::from(is_whole && arrival::is_flawless(headers)) << lane;
                continuing |= u32::from(segment.continues()) << lane;
                self.segments[lane] = segment;
            }
        }
        texts.with_payload = Lanes(with_payload);
        texts.total = total;
        texts.of_kinds = [tcp, udp, lanes.0 & !(tcp | udp)].map(Lanes);
        (self.segmented, self.continuing) = (Lanes(segmented), Lanes(continuing));
        self.flawless = Lanes(flawless);
        texts
    }

    /// Looks up the connections; returns their streams, and prefetches all.
    #[inline]
    fn find_streams<'f>(
        &mut self,
        flows: &'f mut Flows,
        batch: &Batch,
    ) -> [Option<&'f Stream>; BATCH] {
        let mut ids = [[0; 5]; BATCH];
        let (tracked, from_low) = Conversation::in_lanes(batch, self.connected, &mut ids);
        let found = flows.find(&ids[..tracked.count()]);
        let mut streams = [None; BATCH];
        let mut known = 0;
        for (n, lane) in tracked.into_iter().enumerate() {
            let Some(slot) = found.slot(n) else { continue };
            self.slots[lane] = slot.0;
            known |= 1 << lane;
            if !self.segmented.contains(lane) {
                continue;
            }
            if let Some(flow) = flows.in_slot(slot)
                && let Some(tracked) = flow.tracked.as_deref()
            {
                prefetch::whole(std::slice::from_ref(tracked), 0);
                let to_server = flow.is_to_server(from_low.contains(lane));
                streams[lane] = Some(&tracked.streams[usize::from(!to_server)]);
            }
        }
        (self.tracked, self.from_low, self.known) = (tracked, from_low, Lanes(known));
        streams.iter().flatten().for_each(|stream| stream.ask_for());
        streams
    }

    /// Assembles the texts to search for segments.
    #[inline]
    fn put_together(
        &mut self,
        engine: &Engine,
        streams: &[Option<&Stream>; BATCH],
        texts: &Texts<'_>,
        midstream: bool,
    ) {
        let data = self.segmented.and(texts.with_payload);
        self.bare = self.segmented.and(self.known).without(data);
        self.bare.into_iter().for_each(|lane| self.places[lane] = Place::default());
        let most = texts.total + data.count() * engine.reach;
        if self.text.len() < most {
            self.text.resize(most, 0);
        }
        let mut seen = SeenStreams::default();
        let (mut joined, mut unknown, mut end) = (Lanes::NONE, 0, 0);
        for lane in data {
            let (payload, segment) = (texts.bytes[lane], &self.segments[lane]);
            if segment.is_reset() {
                continue;
            }
            let Some(stream) = streams[lane] else {
                // A stream that begins here is searched at the packet's turn.
                unknown |= u32::from(midstream || segment.is_syn()) << lane;
                continue;
            };
            let may_follow = seen.add(self.stream_number(lane));
            let before = if may_follow { self.segment_before(lane, joined) } else { None };
            let begin = end;
            if let Some(Place { begin: from, end: until, .. }) = before {
                let until = until as usize;
                let from = (from as usize).max(until.saturating_sub(engine.reach));
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
            let fresh = end;
            end += payload.len();
            copy(payload, &mut self.text[fresh..end]);
            self.places[lane] = Place { begin: begin as u32, fresh: fresh as u32, end: end as u32 };
            joined.insert(lane);
        }
        (self.joined, self.unknown) = (joined, Lanes(unknown));
    }

    /// A number of the stream of a packet whose connection was found.
    #[inline]
    fn stream_number(&self, lane: usize) -> u32 {
        self.slots[lane] << 1 | u32::from(self.from_low.contains(lane))
    }

    /// The place of the last segment in `joined` that is of the same stream as the segment in `lane`, if
    /// this one follows it.
    #[inline(never)]
    fn segment_before(&self, lane: usize, joined: Lanes) -> Option<Place> {
        let number = self.stream_number(lane);
        let last =
            (0..lane).rev().find(|n| joined.contains(*n) && self.stream_number(*n) == number)?;
        let (place, before) = (self.places[last], self.segments[last].sequence);
        let next = before.wrapping_add(place.end - place.fresh);
        (next == self.segments[lane].sequence).then_some(place)
    }

    /// The packets that only continue their stream if that ends as expected, and that no rule may match
    /// then.
    pub(super) fn quiet(&self) -> Lanes {
        self.joined.or(self.bare).and(self.continuing).without(self.any)
    }

    /// The packets that have no defects other than of their checksums and their TTL.
    pub(super) fn flawless(&self) -> Lanes {
        self.flawless
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
        let place = self.places[lane];
        &self.text[place.begin as usize..place.fresh as usize]
    }

    /// The payload of a packet that was searched with the end of its stream: it is nearer here than
    /// in the packet.
    #[inline]
    pub(super) fn payload(&self, lane: usize) -> &[u8] {
        let place = self.places[lane];
        &self.text[place.fresh as usize..place.end as usize]
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
