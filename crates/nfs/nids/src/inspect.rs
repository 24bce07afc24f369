//! Inspects a packet: its connection, its stream, its application; on the way, the rules are
//! [evaluated](super::ask).

use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::wire::ip_proto;
use thalweg_packet::wire::tcp_flags::{ACK, RST, SYN};
use thalweg_packet::{Batch, FiveTuple, Lanes, Layer, Nanoseconds, field};

#[cfg(test)]
use super::ahead::BLIND;
use super::ahead::{Ahead, Segment};
use super::app::App;
use super::engine::Engine;
use super::events::{self, Events};
use super::filters::Counts;
use super::fit::{Stretch, Subject};
use super::flows::{Flow, Flows, Seen, Tracked};
use super::literals::Found;
use super::stream::{Notes, Overlaps, Policy};
use thalweg_nf::Context;
use thalweg_nf::toolkit::view::payload;

/// Bytes of a direction that may wait for earlier ones.
const WAITING: usize = 1 << 16;

/// The settings for inspecting connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) checksums: bool,
    pub(super) overlaps: Overlaps,
    pub(super) midstream: bool,
    pub(super) min_ttl: u8,
    /// Whether alerts are written, not only counted.
    pub(super) writes: bool,
}

impl Settings {
    fn policy(&self, engine: &Engine) -> Policy {
        Policy { overlaps: self.overlaps, tail: engine.needs.tail, waiting: WAITING }
    }
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
    /// The engine to which the rule numbers belong.
    engine: usize,
    /// A stream's past and the bytes that the packet added; reused.
    stretch: Vec<u8>,
    /// Bytes that waited in the other direction and no longer do; reused.
    late: Vec<u8>,
    pub(super) found: Vec<u32>,
    ahead: Ahead,
    /// Alerts not written yet.
    pub(super) lines: Vec<u8>,
    pub(super) figures: Figures,
}

/// The current packet.
pub(super) struct Packet<'a, 'c, 'e> {
    pub(super) subject: Subject<'a>,
    pub(super) context: &'e mut Context<'c>,
    pub(super) engine: &'e Engine,
    /// A `pass` rule matched: no other rule is evaluated.
    pub(super) passed: bool,
}

/// The bytes that a segment added to its stream.
struct Brought<'a> {
    stretch: Stretch<'a>,
    /// The hits found ahead apply to it.
    foreseen: bool,
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
            ahead: Ahead::default(),
            lines: Vec::new(),
            figures: Figures::default(),
        }
    }

    /// Clears the state that depends on rule numbers, if the rule set has changed.
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
        let midstream = self.settings.midstream;
        self.ahead.look(engine, flows, batch, lanes, midstream, &mut self.literals);
        for lane in lanes {
            if self.ahead.connected.contains(lane) {
                let quiet = !context.is_traced()
                    && self.goes_on(engine, flows, batch, lane, batch.meta.timestamp[lane]);
                if !quiet {
                    self.in_connection(engine, flows, batch, lane, context);
                }
                continue;
            }
            self.take_found(lane);
            if !self.found.is_empty() {
                let subject = subject(engine, batch, lane);
                self.ask(&mut Packet { subject, context, engine, passed: false }, None);
            }
        }
    }

    /// Accepts a segment that continues its stream as expected and for which no rule must be
    /// evaluated; returns whether it is one. Most segments are, and skip all other work.
    fn goes_on(
        &mut self,
        engine: &Engine,
        flows: &mut Flows,
        batch: &Batch,
        lane: usize,
        now: Nanoseconds,
    ) -> bool {
        let ahead = &self.ahead;
        let (Some(past), Some(segment)) = (ahead.quiet(lane), ahead.segment(lane)) else {
            return false;
        };
        let (Some(slot), Some((id, from_low))) = (ahead.slot(lane), ahead.conversation(lane))
        else {
            return false;
        };
        let Some(flow) = flows.at(slot, &id, now) else { return false };
        let to_server = flow.is_to_server(from_low);
        if !flow.only_goes_on(to_server, segment, past, engine) || !self.counts(batch, lane) {
            return false;
        }
        let policy = self.settings.policy(engine);
        let (before, after) = flow.go_on(to_server, segment, payload(batch, lane), &policy, now);
        if self.settings.midstream {
            flow.join();
        }
        flows.book(before, after);
        true
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
        let segment = self.ahead.segment(lane);
        let counts = self.counts(batch, lane);
        let (now, slot) = (batch.meta.timestamp[lane], self.ahead.slot(lane));
        let conversation = self.ahead.conversation(lane);
        let Some(mut seen) = conversation.and_then(|c| flows.packet(slot, c, segment, counts, now))
        else {
            self.search(engine, batch, lane, None);
            let subject = subject(engine, batch, lane);
            self.ask(&mut Packet { subject, context, engine, passed: false }, None);
            return;
        };
        let mut stretch = std::mem::take(&mut self.stretch);
        let before = seen.flow.memory();
        let (mut brought, mut datagram) = (None, None);
        match segment {
            Some(segment) if counts && engine.needs.streams => {
                brought = self.stream(engine, &mut seen, batch, lane, segment, &mut stretch);
            }
            None if engine.needs.applications
                && batch.headers(lane).has_transport(ip_proto::UDP) =>
            {
                if let Some((protocol, message)) =
                    App::datagram(payload(batch, lane), ports(batch, lane))
                {
                    seen.application = Some(protocol);
                    datagram = Some(message);
                }
            }
            _ => {}
        }
        self.search(engine, batch, lane, brought.as_ref());
        let stream = brought.map(|brought| brought.stretch);
        let subject = Subject { stream, ..subject(engine, batch, lane) };
        let mut packet = Packet { subject, context, engine, passed: false };
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

    /// Finds the rules that may match the bytes that a packet added to its stream, or its payload.
    fn search(
        &mut self,
        engine: &Engine,
        batch: &Batch,
        lane: usize,
        brought: Option<&Brought<'_>>,
    ) {
        let grown = brought.filter(|brought| brought.stretch.has_grown());
        if grown.map_or_else(|| self.ahead.searched_payload(lane), |grown| grown.foreseen) {
            return self.take_found(lane);
        }
        let stretch = grown.map(|grown| (grown.stretch.bytes, grown.stretch.fresh));
        let (bytes, from) = stretch.unwrap_or_else(|| (payload(batch, lane), 0));
        #[cfg(test)]
        if BLIND.get() {
            return self.search_bytes(engine, bytes, from, None);
        }
        self.search_bytes(engine, bytes, from, Some(engine.suiting(batch, lane)));
    }

    /// Uses the rules that were found ahead for a packet.
    fn take_found(&mut self, lane: usize) {
        self.found.clear();
        self.ahead.take(lane, &mut self.found);
    }

    /// Whether the packet reaches its receiver and is accepted there; otherwise it changes no
    /// connection.
    fn counts(&self, batch: &Batch, lane: usize) -> bool {
        let Settings { checksums, min_ttl, .. } = self.settings;
        let wrong = || {
            let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
            checksum::verify(bytes, headers) == ChecksumStatus::BadTransport
        };
        let arrives = min_ttl == 0 || batch.field(lane, field::NW_TTL) >= u64::from(min_ttl);
        arrives && !(checksums && wrong())
    }

    /// Adds a packet's segment to its stream, and the new bytes to its application. `stretch`
    /// becomes the stream's past with the new bytes. `None` if the connection is not reassembled.
    fn stream<'a>(
        &mut self,
        engine: &Engine,
        seen: &mut Seen<'_>,
        batch: &'a Batch,
        lane: usize,
        segment: Segment,
        stretch: &'a mut Vec<u8>,
    ) -> Option<Brought<'a>> {
        // The payload of a reset is not data but a diagnostic text.
        let payload = if segment.flags & RST == 0 { payload(batch, lane) } else { &[] };
        let policy = self.settings.policy(engine);
        let to_server = seen.to_server;
        begin(seen.flow, segment, !payload.is_empty(), to_server, self.settings.midstream);
        seen.established |= self.settings.midstream && seen.flow.is_established();
        let tracked = seen.flow.tracked.as_deref_mut()?;
        tracked.renumber(engine.fingerprint);
        let notes = &mut self.figures.notes;
        let [to_the_server, to_the_client] = &mut tracked.streams;
        let (own, other) =
            if to_server { (to_the_server, to_the_client) } else { (to_the_client, to_the_server) };
        if segment.flags & ACK != 0 {
            // Bytes that the other side has and we do not will not arrive any more.
            let fresh = other.acknowledged(segment.acknowledged, &policy, notes, &mut self.late);
            if fresh.gap {
                tracked.app.gap(!to_server);
            }
        }
        let sequence = segment.sequence.wrapping_add(u32::from(segment.flags & SYN != 0));
        let foreseen = own.goes_on_at(sequence)
            && !payload.is_empty()
            && self.ahead.searched_behind(lane, own, engine.reach);
        let fresh = own.segment(sequence, payload, &policy, notes, stretch);
        if fresh.gap {
            tracked.app.gap(to_server);
        }
        let stretch = Stretch { bytes: stretch, fresh: fresh.from };
        let new = &stretch.bytes[stretch.fresh..];
        if engine.needs.applications && !new.is_empty() {
            tracked.app.data(to_server, new, ports(batch, lane)[usize::from(to_server)]);
            seen.application = tracked.app.protocol();
        }
        // A segment that fills a gap given up earlier is inspected by itself.
        let fills = own.has_gaps() && new.is_empty() && !own.is_waiting();
        (!fills).then_some(Brought { stretch, foreseen })
    }

    /// Evaluates the rules for bytes of the other direction that waited for bytes that will not
    /// arrive.
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
        self.search_bytes(packet.engine, &late, 0, None);
        self.ask(&mut other, Some(seen));
        seen.to_server = !seen.to_server;
        self.late = late;
        self.late.clear();
    }
}

/// The packet of a lane, without its stream.
fn subject<'a>(engine: &Engine, batch: &'a Batch, lane: usize) -> Subject<'a> {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    let events = if engine.needs.events {
        events::find(bytes, headers, batch.field(lane, field::DL_TYPE))
    } else {
        Events::default()
    };
    let tuple = FiveTuple::of(batch, lane).filter(|_| headers.layer >= Layer::Network);
    let payload = payload(batch, lane);
    Subject { batch, lane, bytes, headers, tuple, events, payload, stream: None }
}

/// Source port and destination port.
fn ports(batch: &Batch, lane: usize) -> [u16; 2] {
    [field::TP_SRC, field::TP_DST].map(|place| batch.field(lane, place) as u16)
}

/// Begins the streams of a connection if the segment determines their sequence numbers.
fn begin(flow: &mut Flow, segment: Segment, has_data: bool, to_server: bool, midstream: bool) {
    let established = flow.is_established();
    if flow.tracked.is_none() {
        let first = segment.flags & SYN != 0 && !established;
        let middle = midstream && has_data;
        if !first && !middle {
            return;
        }
        flow.tracked = Some(Box::default());
    }
    if midstream && has_data && segment.flags & SYN == 0 {
        flow.join();
    }
    let Some(Tracked { streams, .. }) = flow.tracked.as_deref_mut() else { return };
    let (own, other) = (usize::from(!to_server), usize::from(to_server));
    if segment.flags & SYN != 0 {
        // Until both sides have agreed, the last proposal counts.
        let next = segment.sequence.wrapping_add(1);
        if established {
            streams[own].begin(next);
        } else {
            streams[own].restart(next);
        }
    } else if midstream && has_data {
        streams[own].begin(segment.sequence);
    }
    if segment.flags & (SYN | ACK) == SYN | ACK {
        streams[other].begin(segment.acknowledged);
    }
}
