//! Searches ahead: all texts of a batch in one pass.
//!
//! A segment is searched together with the end of its stream, and streams change packet by
//! packet. But most segments arrive in order. So before the first packet changes any state, the
//! texts are assembled as they will be if all segments arrive in order; on the way, connections
//! and streams are prefetched together. A packet uses the hits in its text only if its stream
//! then ends as expected; otherwise it is searched by itself.

use thalweg_packet::wire::ip_proto::{TCP, UDP};
use thalweg_packet::{BATCH, Batch, Lanes, field};

use super::arrival;
use super::device;
use super::engine::{Engine, Search};
use super::flows::Flows;
use super::heads::Kind;
use super::literals::Open;
use super::quiet::{Before, Terms};
use super::searched::Searched;
use super::segment::{self, Head, Segment};
use super::stream::Stream;
use thalweg_nf::toolkit::conversation::{Conversation, column};
use thalweg_nf::toolkit::flow_table::Slot;

/// What is searched for the packets of a batch. Arrays are indexed by lane.
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
    pub(super) total: usize,
}

impl<'a> Texts<'a> {
    /// None yet.
    #[inline(always)]
    fn none() -> Self {
        Self {
            bytes: [&[]; BATCH],
            known: [0; BATCH],
            joined: &[],
            are_joined: Lanes::NONE,
            with_payload: Lanes::NONE,
            of_kinds: [Lanes::NONE; Kind::ALL.len()],
            without: [0; BATCH],
            total: 0,
        }
    }

    /// Replaces the payloads of `lanes` by their texts, which lie one after the other in `text`.
    #[inline(always)]
    pub(super) fn join(&mut self, text: &'a [u8], lanes: Lanes) {
        let mut rest = text;
        for lane in lanes {
            let len = self.known[lane] + self.bytes[lane].len();
            (self.bytes[lane], rest) = rest.split_at_checked(len).unwrap_or_default();
        }
        (self.joined, self.are_joined) = (text, lanes);
    }
}

/// Where the text of a packet that is joined lies: the end of its stream, then its payload.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) begin: u32,
    /// Where the payload begins.
    pub(super) fresh: u32,
    pub(super) end: u32,
}

impl Place {
    #[inline]
    pub(super) fn new(begin: usize, fresh: usize, end: usize) -> Self {
        Self { begin: begin as u32, fresh: fresh as u32, end: end as u32 }
    }
}

/// The results for a batch before its packets' turn; reused. Arrays are indexed by lane.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Packets whose connections matter.
    pub(super) connected: Lanes,
    /// The subsets that have a connection, whose connection was found, and that its lower endpoint
    /// sent.
    pub(super) tracked: Lanes,
    pub(super) known: Lanes,
    pub(super) from_low: Lanes,
    pub(super) slots: [u32; BATCH],
    /// Packets with a TCP header, and the subsets that [continue](Segment::continues) a stream, and that
    /// have no defects other than of their checksums and their TTL.
    pub(super) segmented: Lanes,
    pub(super) continuing: Lanes,
    pub(super) flawless: Lanes,
    /// Packets searched with the end of their stream, and those whose text is not known before their
    /// turn. All others are searched by themselves.
    pub(super) joined: Lanes,
    pub(super) unknown: Lanes,
    /// Segments without data, of known connections.
    pub(super) bare: Lanes,
    /// Plain segments that may be accepted [swiftly](Self::go_on_swiftly), and how each begins.
    pub(super) short: Lanes,
    pub(super) heads: [Head; BATCH],
    /// The segments of all other packets with a TCP header.
    segments: [Segment; BATCH],
    /// Where joined texts lie in `text`.
    pub(super) places: [Place; BATCH],
    /// Joined texts, one after the other, and room for more.
    pub(super) text: Vec<u8>,
    /// Lanes and the rules that may match their packets, in order.
    pub(super) found: Vec<(u32, u32)>,
    /// Lanes for which `found` has rules, and what may be found with more bytes before or after.
    pub(super) any: Lanes,
    pub(super) open: Open,
    /// Whether the connection of the current packet is as it was when the batch was searched.
    pub(super) unchanged: bool,
    /// Packets searched with less of their stream's end than a literal may reach back.
    pub(super) seamed: Lanes,
    /// Segments that were accepted before their turn, and what each has changed.
    pub(super) taken: Lanes,
    pub(super) before: [Before; BATCH],
    /// The search of the batch.
    pub(super) now: Searched,
}

#[cfg(test)]
thread_local! {
    /// Disables searching ahead on this thread, as the reference for tests.
    pub(super) static BLIND: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Ahead {
    /// Searches the texts that the packets of `lanes` are expected to add.
    #[inline(always)]
    pub(super) fn look(
        &mut self,
        engine: &Engine,
        flows: &mut Flows,
        batch: &Batch,
        lanes: Lanes,
        terms: &Terms,
        search: &mut Search,
    ) {
        let [of_tcp, of_others] = engine.needs.connections;
        let mut texts = if of_tcp {
            self.read::<true>(batch, lanes, terms)
        } else {
            self.read::<false>(batch, lanes, terms)
        };
        let tcp = texts.of_kinds[Kind::Tcp as usize];
        self.connected = Lanes::NONE;
        for (lanes, matter) in [(tcp, of_tcp), (lanes.without(tcp), of_others)] {
            self.connected = self.connected.or(if matter { lanes } else { Lanes::NONE });
        }
        (self.joined, self.unknown, self.bare) = Default::default();
        (self.seamed, self.taken) = Default::default();
        let mut text = std::mem::take(&mut self.text);
        if !self.connected.is_empty() {
            self.locate(flows, batch);
            #[cfg(test)]
            let terms = &terms.taking(!BLIND.get());
            if engine.needs.streams {
                self.assemble(flows, batch, terms, &mut text, &mut texts);
            }
            #[cfg(test)]
            if BLIND.get() {
                (self.joined, self.unknown, self.bare) = (Lanes::NONE, Lanes::ALL, Lanes::NONE);
                (texts.joined, texts.are_joined) = (&[], Lanes::NONE);
            }
            for lane in self.unknown.and(self.segmented) {
                texts.bytes[lane] = &[];
            }
        }
        self.found.clear();
        if let Some(results) = &search.results {
            device::rule_out(engine, results, &mut texts);
        }
        self.open = engine.candidates_of_each(batch, lanes, &texts, search, &mut self.found);
        if !terms.seams {
            self.open.after = lanes;
        }
        self.any = self.found.iter().map(|(lane, _)| *lane as usize).collect();
        self.text = text;
        self.settle(flows);
    }

    /// Reads the packets' payloads, and their `SEGMENTS` if these matter.
    #[inline(always)]
    fn read<'b, const SEGMENTS: bool>(
        &mut self,
        batch: &'b Batch,
        lanes: Lanes,
        terms: &Terms,
    ) -> Texts<'b> {
        let mut texts = Texts::none();
        self.short = Lanes::NONE;
        (self.segmented, self.continuing, self.flawless) = Default::default();
        let plain =
            if SEGMENTS { self.read_plain(batch, lanes, terms, &mut texts) } else { Lanes::NONE };
        // Sums in registers: lane by lane, an array would wait for its own stores.
        let (mut with_payload, mut udp, mut total) = (texts.with_payload.0, 0, texts.total);
        let (mut tcp, mut segmented) = (plain.0, plain.0);
        let (mut continuing, mut flawless) = (self.continuing.0, self.flawless.0);
        for lane in lanes.without(plain) {
            let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
            let payload = bytes.get(headers.payload.into()..headers.end.into()).unwrap_or(&[]);
            texts.bytes[lane] = payload;
            with_payload |= u32::from(!payload.is_empty()) << lane;
            if headers.ip_proto != TCP {
                udp |= u32::from(headers.ip_proto == UDP) << lane;
                continue;
            }
            tcp |= 1 << lane;
            if SEGMENTS && headers.l4 != 0 && headers.has_transport(TCP) {
                let segment = Segment::of(batch, lane);
                let is_whole = batch.meta.wire_len[lane] as usize <= bytes.len();
                total += payload.len();
                segmented |= 1 << lane;
                flawless |= u32::from(is_whole && arrival::is_flawless(headers)) << lane;
                continuing |= u32::from(segment.continues()) << lane;
                self.segments[lane] = segment;
            }
        }
        (texts.with_payload, texts.total) = (Lanes(with_payload), total);
        texts.of_kinds = [tcp, udp, lanes.0 & !(tcp | udp)].map(Lanes);
        (self.segmented, self.continuing) = (Lanes(segmented), Lanes(continuing));
        self.flawless = Lanes(flawless);
        texts
    }

    /// Reads those that are known to be plain and of TCP; returns them.
    #[inline(always)]
    fn read_plain<'b>(
        &mut self,
        batch: &'b Batch,
        lanes: Lanes,
        terms: &Terms,
        texts: &mut Texts<'b>,
    ) -> Lanes {
        let protocols = column(batch, field::NW_PROTO);
        let plain = Lanes::all_where(|lane| protocols(lane) == u32::from(TCP));
        let plain = plain.and(batch.plain()).and(lanes);
        let (mut with_payload, mut short, mut total) = (0, 0, 0);
        for lane in plain {
            let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
            let [l4, payload] = [headers.l4, headers.payload].map(usize::from);
            let segment = bytes.get(l4..headers.end.into()).unwrap_or_default();
            let (header, payload) = segment.split_at_checked(payload - l4).unwrap_or_default();
            texts.bytes[lane] = payload;
            total += payload.len();
            with_payload |= u32::from(!payload.is_empty()) << lane;
            if (1..terms.short).contains(&payload.len()) {
                short |= 1 << lane;
                self.heads[lane] = Head::of(segment);
            } else {
                self.segments[lane] = Segment::new(header);
            }
        }
        (texts.with_payload, texts.total, self.short) = (Lanes(with_payload), total, Lanes(short));
        let (flags, lens) = (column(batch, field::TCP_FLAGS), batch.lens());
        let continuing = Lanes::all_where(|lane| segment::flags_continue(flags(lane) as u8));
        let whole = Lanes::all_where(|lane| batch.meta.wire_len[lane] <= u32::from(lens[lane]));
        (self.continuing, self.flawless) = (continuing.and(plain), whole.and(plain));
        plain
    }

    /// The packets that only continue their stream if that ends as expected, and that no rule may match
    /// then.
    pub(super) fn quiet(&self) -> Lanes {
        self.joined.or(self.bare).and(self.continuing).without(self.unclear())
    }

    /// The packets for which rules may have to be evaluated.
    pub(super) fn unclear(&self) -> Lanes {
        self.any.or(self.seamed.and(self.open.before))
    }

    /// In which search the stream of a quiet packet is with it; in none if a literal may have begun.
    #[inline]
    pub(super) fn searched(&self, lane: usize) -> Searched {
        if self.open.after.contains(lane) { Searched::NO } else { self.now }
    }

    /// The packets that have no defects other than of their checksums and their TTL.
    pub(super) fn flawless(&self) -> Lanes {
        self.flawless
    }

    /// The slot of the connection of a [quiet](Self::quiet) packet.
    #[inline]
    pub(super) fn quiet_slot(&self, lane: usize) -> Slot {
        Slot(self.slots[lane])
    }

    /// The segment of a packet with a TCP header.
    #[inline]
    pub(super) fn segment_of(&self, batch: &Batch, lane: usize) -> Segment {
        if self.short.contains(lane) { Segment::of(batch, lane) } else { self.segments[lane] }
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

    pub(super) fn segment(&self, batch: &Batch, lane: usize) -> Option<Segment> {
        self.segmented.contains(lane).then(|| self.segment_of(batch, lane))
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
        let is_seamed = self.seamed.contains(lane) && !self.open.before.contains(lane);
        let is_past = || stream.has_past(self.past(lane), reach);
        self.joined.contains(lane) && (is_seamed && self.unchanged || is_past())
    }
}
