//! A packet's way through the inspection: its connection, its stream, the messages of its
//! application, and the rules.

use arrayvec::ArrayVec;
use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{BATCH, Batch, DropReason, FiveTuple, Lanes, Layer, field};

use super::alert::{self, Occasion};
use super::app::{App, Message, Progress};
use super::buffer::Buffer;
use super::engine::Engine;
use super::events::{self, Events};
use super::filters::Counts;
use super::fit::{Stretch, Subject};
use super::flows::{ACK, FIN, Flow, Flows, RST, SYN, Seen, Tracked};
use super::literals::Found;
use super::matcher::Outcome;
use super::rule::{Action, FilterKind, Rule};
use super::stream::{Fresh, Notes, Overlaps, Policy};
use crate::Context;

/// Rules of one direction that wait for the rest of what they ask for.
const OPEN: usize = 16;
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
    settings: Settings,
    literals: Found,
    counts: Counts,
    /// The engine that rules' numbers are of.
    engine: usize,
    /// A stream's past and what the packet brought; reused.
    stretch: Vec<u8>,
    /// What waited in the other direction and does not any more; reused.
    late: Vec<u8>,
    found: Vec<u32>,
    found_in_each: Vec<(u32, u32)>,
    /// Alerts that are not written yet.
    pub(super) lines: Vec<u8>,
    pub(super) figures: Figures,
}

/// The packet at hand.
struct Packet<'a, 'c, 'e> {
    subject: Subject<'a>,
    context: &'e mut Context<'c>,
    engine: &'e Engine,
    /// A `pass` rule matched: no other is asked.
    passed: bool,
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

    /// Finds the rules that may match the packet's payload or what is new of its stream.
    fn search(&mut self, packet: &Packet<'_, '_, '_>) {
        let (bytes, from) = packet.subject.searched();
        self.found.clear();
        packet.engine.candidates(Buffer::Payload, bytes, from, &mut self.literals, &mut self.found);
    }

    /// Asks the rules that were found, and those that wait for more of the stream.
    fn ask(&mut self, packet: &mut Packet<'_, '_, '_>, mut seen: Option<&mut Seen<'_>>) {
        let engine = packet.engine;
        let mut found = std::mem::take(&mut self.found);
        let (bytes, from) = packet.subject.searched();
        let new = found.len();
        let put_together = packet.subject.stream.is_some();
        if put_together {
            reopen(seen.as_deref_mut(), (bytes.len() - from) as u32, &mut found);
        }
        if found.len() > new {
            found.sort_unstable();
            found.dedup();
        }
        let lane = packet.subject.lane;
        packet.context.explain(lane, || format!("{} rules to verify", found.len()));
        for number in &found {
            if packet.passed {
                break;
            }
            let rule = &engine.rules[*number as usize];
            if !rule.fits(&packet.subject, seen.as_deref()) {
                continue;
            }
            self.figures.verified += 1;
            match rule.payload_matches(&packet.subject) {
                Outcome::Match => {
                    close(seen.as_deref_mut(), *number);
                    self.matched(*number, packet, seen.as_deref_mut());
                }
                Outcome::GaveUp => self.figures.gave_up += 1,
                Outcome::NoMatch if put_together => {
                    open(seen.as_deref_mut(), *number, rule, engine.needs.tail);
                }
                Outcome::NoMatch => {}
            }
        }
        self.found = found;
    }

    /// Goes through the messages that a segment completed or let grow.
    fn messages(&mut self, packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>, flags: u16) {
        let to_server = seen.to_server;
        while let Some(tracked) = seen.flow.tracked.as_deref_mut() {
            if tracked.app.advance(to_server) == Progress::More {
                break;
            }
            self.message_of(packet, seen);
        }
        let Some(tracked) = seen.flow.tracked.as_deref_mut() else { return };
        if flags & FIN != 0
            && !tracked.streams[usize::from(!to_server)].is_waiting()
            && tracked.app.end(to_server)
        {
            self.message_of(packet, seen);
        }
        if !seen.reset {
            return;
        }
        for direction in [true, false] {
            let Some(tracked) = seen.flow.tracked.as_deref_mut() else { return };
            if tracked.app.end(direction) {
                // A reset ends both directions, whoever sent it.
                let tuple = packet.subject.tuple;
                if direction != to_server {
                    packet.subject.tuple = tuple.map(FiveTuple::reversed);
                }
                seen.to_server = direction;
                self.message_of(packet, seen);
                seen.to_server = to_server;
                packet.subject.tuple = tuple;
            }
        }
    }

    /// Asks the rules about the message of the direction at hand.
    fn message_of(&mut self, packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>) {
        let direction = seen.to_server;
        let place = |seen: &mut Seen<'_>| {
            seen.flow
                .tracked
                .as_deref_mut()
                .and_then(|t| t.app.message(direction))
                .map(std::mem::take)
        };
        let Some(mut message) = place(seen) else { return };
        self.message(packet, seen, &mut message);
        let back = seen.flow.tracked.as_deref_mut().and_then(|t| t.app.message(direction));
        if let Some(back) = back {
            *back = message;
        }
    }

    fn message(
        &mut self,
        packet: &mut Packet<'_, '_, '_>,
        seen: &mut Seen<'_>,
        message: &mut Message,
    ) {
        let engine = packet.engine;
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for (buffer, bytes) in &message.buffers[message.searched..] {
            engine.candidates(*buffer, bytes, 0, &mut self.literals, &mut found);
        }
        message.searched = message.buffers.len();
        found.append(&mut message.candidates);
        found.sort_unstable();
        found.dedup();
        for number in &found {
            if packet.passed || message.fired.contains(number) {
                continue;
            }
            let rule = &engine.rules[*number as usize];
            if !rule.fits(&packet.subject, Some(seen)) {
                continue;
            }
            self.figures.verified += 1;
            let outcome = match rule.message_matches(message) {
                Outcome::Match => rule.payload_matches(&packet.subject),
                other => other,
            };
            match outcome {
                Outcome::Match => {
                    message.fired.push(*number);
                    self.matched(*number, packet, Some(seen));
                }
                Outcome::GaveUp => self.figures.gave_up += 1,
                Outcome::NoMatch => message.candidates.push(*number),
            }
        }
        self.found = found;
    }

    /// A rule matched, but for its flow bits and filters.
    fn matched(
        &mut self,
        number: u32,
        packet: &mut Packet<'_, '_, '_>,
        mut seen: Option<&mut Seen<'_>>,
    ) {
        let rule = &packet.engine.rules[number as usize];
        if !rule.bits_fit(seen.as_deref()) {
            return;
        }
        if let Some(seen) = &mut seen {
            if rule.is_ip_only() && !seen.flow.said.insert((rule.sid, seen.to_server)) {
                return;
            }
            rule.change_bits(seen);
        }
        let (context, subject) = (&mut *packet.context, &packet.subject);
        context.explain(subject.lane, || format!("rule {}: {}", rule.sid, rule.message));
        if rule.action == Action::Pass {
            packet.passed = true;
            return;
        }
        let tuple = subject.tuple;
        let (mut acts, mut speaks) = (true, true);
        for filter in &rule.filters {
            let allowed = self.counts.allow(number, filter, tuple.as_ref(), context.now());
            speaks &= allowed;
            // Other filters quiet the alert alone.
            acts &= allowed || filter.kind != FilterKind::Detection;
        }
        if rule.action == Action::Drop && acts {
            context.drop(subject.lane, DropReason::Intrusion);
        }
        if !rule.no_alert && speaks {
            self.figures.alerts += 1;
            if !self.settings.writes {
                return;
            }
            let occasion = Occasion {
                timestamp: subject.batch.meta.timestamp[subject.lane],
                flow_hash: subject.batch.flow_hash(subject.lane),
                tuple: tuple.as_ref(),
                interface: subject.batch.meta.in_port[subject.lane].0,
                seen: seen.as_deref(),
            };
            let rule = &packet.engine.alerts[number as usize];
            alert::line(rule, &occasion, &mut self.lines);
        }
    }
}

fn payload(batch: &Batch, lane: usize) -> &[u8] {
    let headers = batch.headers(lane);
    batch.bytes(lane).get(headers.payload as usize..headers.end as usize).unwrap_or(&[])
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

/// Adds the rules that waited for more of the stream, of which `grown` bytes came.
fn reopen(seen: Option<&mut Seen<'_>>, grown: u32, found: &mut Vec<u32>) {
    let Some(seen) = seen else { return };
    let direction = usize::from(!seen.to_server);
    let Some(tracked) = seen.flow.tracked.as_deref_mut() else { return };
    let open = &mut tracked.open[direction];
    if grown > 0 && !open.is_empty() {
        found.extend(open.iter().map(|(number, _)| *number));
        open.retain_mut(|(_, left)| {
            *left = left.saturating_sub(grown);
            *left > 0
        });
    }
}

/// Lets a rule wait for the rest of what it asks for.
fn open(seen: Option<&mut Seen<'_>>, number: u32, rule: &Rule, tail: usize) {
    let Some(seen) = seen else { return };
    let direction = usize::from(!seen.to_server);
    let Some(tracked) = seen.flow.tracked.as_deref_mut() else { return };
    let several = rule.parts.iter().any(|p| p.tests.len() > 1);
    let open = &mut tracked.open[direction];
    if several && open.len() < OPEN && open.iter().all(|(n, _)| *n != number) {
        open.push((number, tail as u32));
    }
}

/// The rule does not wait any more.
fn close(seen: Option<&mut Seen<'_>>, number: u32) {
    let Some(seen) = seen else { return };
    let direction = usize::from(!seen.to_server);
    if let Some(tracked) = seen.flow.tracked.as_deref_mut() {
        tracked.open[direction].retain(|(waiting, _)| *waiting != number);
    }
}
