//! A packet's way through the inspection: its connection, its stream, its application; the
//! rules are [asked](super::ask) on the way.

use arrayvec::ArrayVec;
use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{BATCH, Batch, FiveTuple, Lanes, Layer, field};

use super::app::App;
use super::engine::Engine;
use super::events::{self, Events};
use super::filters::Counts;
use super::fit::{Stretch, Subject};
use super::flows::{ACK, Flow, Flows, RST, SYN, Seen, Tracked};
use super::literals::Found;
use super::stream::{Fresh, Notes, Overlaps, Policy};
use crate::Context;
use crate::view::payload;

/// Bytes of a direction that may wait for what comes before them.
const WAITING: usize = 1 << 16;

/// How connections are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) checksums: bool,
    pub(super) overlaps: Overlaps,
    pub(super) midstream: bool,
    pub(super) min_ttl: u8,
    /// Alerts are written, not only counted.
    pub(super) writes: bool,
}

#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) alerts: u64,
    pub(super) verified: u64,
    pub(super) gave_up: u64,
    pub(super) notes: Notes,
}

/// The inspection on one worker.
pub(super) struct Inspector {
    pub(super) settings: Settings,
    pub(super) literals: Found,
    pub(super) counts: Counts,
    /// The engine that rules' numbers are of.
    engine: usize,
    /// A stream's past and what the packet brought; reused.
    stretch: Vec<u8>,
    /// What waited in the other direction and does not any more; reused.
    late: Vec<u8>,
    pub(super) found: Vec<u32>,
    found_in_each: Vec<(u32, u32)>,
    /// Alerts that are not written yet.
    pub(super) lines: Vec<u8>,
    pub(super) figures: Figures,
}

/// The packet at hand.
pub(super) struct Packet<'a, 'c, 'e> {
    pub(super) subject: Subject<'a>,
    pub(super) context: &'e mut Context<'c>,
    pub(super) engine: &'e Engine,
    /// A `pass` rule matched: no other is asked.
    pub(super) passed: bool,
}

/// What of a TCP segment its stream needs.
struct Segment<'a> {
    flags: u16,
    sequence: u32,
    acknowledged: u32,
    payload: &'a [u8],
}

impl Inspector {
    pub(super) fn new(settings: Settings, counts: usize) -> Self {
        Self {
            settings,
            literals: Found::default(),
            counts: Counts::new(counts),
            engine: 0,
            stretch: Vec::new(),
            late: Vec::new(),
            found: Vec::new(),
            found_in_each: Vec::new(),
            lines: Vec::new(),
            figures: Figures::default(),
        }
    }

    /// Forgets what goes by the numbers of rules, if these are others than before.
    pub(super) fn renew(&mut self, engine: &std::sync::Arc<Engine>) {
        let now = std::sync::Arc::as_ptr(engine) as usize;
        if self.engine != now {
            self.engine = now;
            self.counts.clear();
        }
    }

    /// Inspects the packets of `lanes`.
    pub(super) fn packets(
        &mut self,
        engine: &Engine,
        flows: &mut Flows,
        batch: &Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        // Those whose connections matter to no rule are searched together.
        let alone = |lane: &usize| {
            !engine.needs.connections[usize::from(batch.headers(*lane).ip_proto != 6)]
        };
        let payloads: ArrayVec<&[u8], BATCH> =
            lanes.into_iter().filter(alone).map(|lane| payload(batch, lane)).collect();
        let mut found = std::mem::take(&mut self.found_in_each);
        found.clear();
        engine.candidates_of_each(&payloads, &mut self.literals, &mut found);
        let (mut rest, mut place) = (&found[..], 0);
        for lane in lanes {
            if !alone(&lane) {
                self.in_connection(engine, flows, batch, lane, context);
                continue;
            }
            let own = rest.iter().take_while(|(payload, _)| *payload == place).count();
            place += 1;
            if own == 0 {
                continue;
            }
            self.found.clear();
            self.found.extend(rest[..own].iter().map(|(_, rule)| *rule));
            rest = &rest[own..];
            let subject = subject(engine, batch, lane);
            let mut packet = Packet { subject, context, engine, passed: false };
            self.ask(&mut packet, None);
        }
        self.found_in_each = found;
    }

    /// Inspects a packet with its connection.
    fn in_connection(
        &mut self,
        engine: &Engine,
        flows: &mut Flows,
        batch: &Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) {
        let mut stretch = std::mem::take(&mut self.stretch);
        let subject = subject(engine, batch, lane);
        let payload = subject.payload;
        let segment = subject.headers.has_transport(6).then(|| {
            let flags = subject.field(field::TCP_FLAGS) as u16;
            segment(&subject.bytes[subject.headers.l4 as usize..], flags, payload)
        });
        let counts = self.counts(&subject);
        let numbers = segment.as_ref().map(|s| (s.flags, s.sequence));
        let now = context.now();
        let tracked = subject.tuple.filter(|_| subject.headers.l4 != 0);
        let mut packet = Packet { subject, context, engine, passed: false };
        let Some(tuple) = tracked else {
            self.search(&packet);
            self.ask(&mut packet, None);
            self.stretch = stretch;
            return;
        };
        let mut seen = flows.packet(&tuple, numbers, counts, now);
        let before = seen.flow.memory();
        let mut datagram = None;
        match &segment {
            Some(segment) if counts && engine.needs.streams => {
                let fresh = self.stream(engine, &mut seen, segment, &tuple, &mut stretch);
                packet.subject.stream =
                    fresh.map(|fresh| Stretch { bytes: &stretch, fresh: fresh.from });
            }
            None if tuple.protocol == 17 && engine.needs.applications => {
                let ports = [tuple.src_port, tuple.dst_port];
                if let Some((protocol, message)) = App::datagram(payload, ports) {
                    seen.application = Some(protocol);
                    datagram = Some(message);
                }
            }
            _ => {}
        }
        self.search(&packet);
        self.ask(&mut packet, Some(&mut seen));
        if !self.late.is_empty() {
            self.ask_late(&mut packet, &mut seen);
        }
        if let Some(message) = &mut datagram {
            self.message(&mut packet, &mut seen, message);
        } else if let Some(segment) = segment.filter(|_| counts && engine.needs.applications) {
            self.messages(&mut packet, &mut seen, segment.flags);
        }
        let after = seen.flow.memory();
        flows.book(before, after);
        self.stretch = stretch;
    }

    /// Whether the packet's receiver would get and accept it; else it changes no connection.
    fn counts(&self, subject: &Subject<'_>) -> bool {
        let Settings { checksums, min_ttl, .. } = self.settings;
        let wrong =
            || checksum::verify(subject.bytes, subject.headers) == ChecksumStatus::BadTransport;
        let arrives = min_ttl == 0 || subject.field(field::NW_TTL) >= u64::from(min_ttl);
        arrives && !(checksums && wrong())
    }

    /// Puts a segment into its stream and the stream into its application. `stretch` becomes
    /// the stream's past with what is new. `None` for a connection that is not put together.
    fn stream(
        &mut self,
        engine: &Engine,
        seen: &mut Seen<'_>,
        segment: &Segment<'_>,
        tuple: &FiveTuple,
        stretch: &mut Vec<u8>,
    ) -> Option<Fresh> {
        let policy =
            Policy { overlaps: self.settings.overlaps, tail: engine.needs.tail, waiting: WAITING };
        let to_server = seen.to_server;
        begin(seen.flow, segment, to_server, self.settings.midstream);
        seen.established |= self.settings.midstream && seen.flow.is_established();
        let tracked = seen.flow.tracked.as_deref_mut()?;
        tracked.renumber(engine.fingerprint);
        let notes = &mut self.figures.notes;
        let [to_the_server, to_the_client] = &mut tracked.streams;
        let (own, other) =
            if to_server { (to_the_server, to_the_client) } else { (to_the_client, to_the_server) };
        if segment.flags & ACK != 0 {
            // What the other side has and we have not will not come any more.
            let fresh = other.acknowledged(segment.acknowledged, &policy, notes, &mut self.late);
            if fresh.gap {
                tracked.app.gap(!to_server);
            }
        }
        let sequence = segment.sequence.wrapping_add(u32::from(segment.flags & SYN != 0));
        // What comes with a reset is no data, but words on why.
        let payload = if segment.flags & RST == 0 { segment.payload } else { &[] };
        let fresh = own.segment(sequence, payload, &policy, notes, stretch);
        if fresh.gap {
            tracked.app.gap(to_server);
        }
        if engine.needs.applications && stretch.len() > fresh.from {
            let port = if to_server { tuple.dst_port } else { tuple.src_port };
            tracked.app.data(to_server, &stretch[fresh.from..], port);
            seen.application = tracked.app.protocol();
        }
        // What fills a gap that was given up is looked at by itself.
        let fills = own.has_gaps() && stretch.len() == fresh.from && !own.is_waiting();
        (!fills).then_some(fresh)
    }

    /// Asks the rules about what waited in the other direction for what will not come.
    fn ask_late(&mut self, packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>) {
        let late = std::mem::take(&mut self.late);
        let subject = Subject {
            tuple: packet.subject.tuple.map(FiveTuple::reversed),
            payload: &[],
            stream: Some(Stretch { bytes: &late, fresh: 0 }),
            ..packet.subject
        };
        let mut other =
            Packet { subject, context: packet.context, engine: packet.engine, passed: false };
        seen.to_server = !seen.to_server;
        self.search(&other);
        self.ask(&mut other, Some(seen));
        seen.to_server = !seen.to_server;
        self.late = late;
        self.late.clear();
    }
}

/// The packet of a lane, not yet in a stream.
fn subject<'a>(engine: &Engine, batch: &'a Batch, lane: usize) -> Subject<'a> {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    let events = if engine.needs.events {
        events::find(bytes, headers, batch.field(lane, field::DL_TYPE))
    } else {
        Events::default()
    };
    let tuple = FiveTuple::of(batch, lane).filter(|_| headers.layer >= Layer::Network);
    Subject {
        batch,
        lane,
        bytes,
        headers,
        tuple,
        events,
        payload: payload(batch, lane),
        stream: None,
    }
}

/// The fields of the TCP header at the beginning of `bytes`, which the parser saw whole.
fn segment<'a>(bytes: &[u8], flags: u16, payload: &'a [u8]) -> Segment<'a> {
    let number = |at: usize| {
        bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
    };
    Segment { flags, sequence: number(4), acknowledged: number(8), payload }
}

/// Begins the streams of a connection, where the segment says how.
fn begin(flow: &mut Flow, segment: &Segment<'_>, to_server: bool, midstream: bool) {
    let established = flow.is_established();
    if flow.tracked.is_none() {
        let first = segment.flags & SYN != 0 && !established;
        let middle = midstream && !segment.payload.is_empty();
        if !first && !middle {
            return;
        }
        flow.tracked = Some(Box::default());
    }
    if midstream && !segment.payload.is_empty() && segment.flags & SYN == 0 {
        flow.join();
    }
    let Some(Tracked { streams, .. }) = flow.tracked.as_deref_mut() else { return };
    let (own, other) = (usize::from(!to_server), usize::from(to_server));
    if segment.flags & SYN != 0 {
        // Until both sides agreed, the last proposal counts.
        let next = segment.sequence.wrapping_add(1);
        if established {
            streams[own].begin(next);
        } else {
            streams[own].restart(next);
        }
    } else if midstream && !segment.payload.is_empty() {
        streams[own].begin(segment.sequence);
    }
    if segment.flags & (SYN | ACK) == SYN | ACK {
        streams[other].begin(segment.acknowledged);
    }
}
