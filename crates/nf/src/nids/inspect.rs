//! A packet's way through the inspection: its connection, its stream, the messages of its
//! application, and the rules.

use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{Batch, DropReason, FiveTuple, Layer, Nanoseconds, field};

use super::alert::{self, Occasion};
use super::app::{App, Message, Progress};
use super::buffer::Buffer;
use super::engine::{Engine, Scratch};
use super::events::{self, Events};
use super::filters::Counts;
use super::fit::{Stretch, Subject};
use super::flows::{ACK, FIN, Flow, Flows, RST, SYN, Seen, Tracked};
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
    scratch: Scratch,
    counts: Counts,
    /// The engine that rules' numbers are of.
    engine: usize,
    /// A stream's past and what the packet brought; reused.
    stretch: Vec<u8>,
    found: Vec<u32>,
    /// Alerts that are not written yet.
    pub(super) lines: Vec<u8>,
    pub(super) figures: Figures,
}

/// The packet at hand.
struct Packet<'a, 'c, 'e> {
    subject: Subject<'a>,
    timestamp: Nanoseconds,
    flow_hash: u32,
    interface: u16,
    lane: usize,
    context: &'a mut Context<'c>,
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
            scratch: Scratch::default(),
            counts: Counts::new(counts),
            engine: 0,
            stretch: Vec::new(),
            found: Vec::new(),
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

    pub(super) fn packet(
        &mut self,
        engine: &Engine,
        flows: &mut Flows,
        batch: &Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) {
        let (bytes, headers, key) = (batch.bytes(lane), batch.headers(lane), batch.key(lane));
        let events = if engine.needs.events {
            events::find(bytes, headers, key.get(field::DL_TYPE))
        } else {
            Events::default()
        };
        let tuple = FiveTuple::from_key(&key).filter(|_| headers.layer >= Layer::Network);
        let payload = bytes.get(headers.payload as usize..headers.end as usize).unwrap_or(&[]);
        let segment = headers.has_transport(6).then(|| {
            segment(&bytes[headers.l4 as usize..], key.get(field::TCP_FLAGS) as u16, payload)
        });
        // A segment that its receiver would not get or not accept changes no connection.
        let counts = (!self.settings.checksums
            || checksum::verify(bytes, headers) != ChecksumStatus::BadTransport)
            && key.get(field::NW_TTL) >= u64::from(self.settings.min_ttl);
        let numbers = segment.as_ref().map(|s| (s.flags, s.sequence));
        let now = context.now();
        let tracked = tuple.filter(|_| headers.l4 != 0);
        let mut seen = tracked.map(|tuple| flows.packet(&tuple, numbers, counts, now));
        let mut datagram = None;
        if let (Some(seen), Some(tuple)) = (&mut seen, tracked)
            && tuple.protocol == 17
            && engine.needs.applications
            && let Some((protocol, message)) =
                App::datagram(payload, [tuple.src_port, tuple.dst_port])
        {
            seen.application = Some(protocol);
            datagram = Some(message);
        }
        let before = seen.as_ref().map_or(0, |s| s.flow.memory());

        let mut stretch = std::mem::take(&mut self.stretch);
        let mut fresh = None;
        if let (Some(seen), Some(segment), Some(tuple)) = (&mut seen, segment.as_ref(), tracked)
            && counts
            && engine.needs.streams
        {
            fresh = self.stream(engine, seen, segment, &tuple, &mut stretch);
        }
        let stream = fresh.map(|fresh: Fresh| Stretch { bytes: &stretch, fresh: fresh.from });
        let subject = Subject { bytes, headers, key: &key, tuple, events, payload, stream };
        let mut packet = Packet {
            subject,
            timestamp: batch.meta.timestamp[lane],
            flow_hash: batch.flow_hash(lane),
            interface: batch.meta.in_port[lane].0,
            lane,
            context,
            engine,
            passed: false,
        };
        self.payload(&mut packet, seen.as_mut());
        if engine.needs.applications
            && let Some(seen) = &mut seen
        {
            match &segment {
                Some(segment) if counts => self.messages(&mut packet, seen, segment.flags),
                _ => {
                    if let Some(message) = &mut datagram {
                        self.message(&mut packet, seen, message);
                    }
                }
            }
        }
        let after = seen.map_or(0, |s| s.flow.memory());
        flows.book(before, after);
        self.stretch = stretch;
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
            let mut late = Vec::new();
            let fresh = other.acknowledged(segment.acknowledged, &policy, notes, &mut late);
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
        Some(fresh)
    }

    /// Asks the rules about the packet's payload and its stream.
    fn payload(&mut self, packet: &mut Packet<'_, '_, '_>, mut seen: Option<&mut Seen<'_>>) {
        let engine = packet.engine;
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let (bytes, from) = match packet.subject.stream {
            // What is new holds the packet's payload, where it was next.
            Some(stream) if stream.bytes.len() > stream.fresh => (stream.bytes, stream.fresh),
            _ => (packet.subject.payload, 0),
        };
        engine.candidates(Buffer::Payload, bytes, from, &mut self.scratch, &mut found);
        let new = found.len();
        let put_together = packet.subject.stream.is_some();
        if put_together {
            reopen(seen.as_deref_mut(), (bytes.len() - from) as u32, &mut found);
        }
        if found.len() > new {
            found.sort_unstable();
            found.dedup();
        }
        packet.context.explain(packet.lane, || format!("{} rules to verify", found.len()));
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
            engine.candidates(*buffer, bytes, 0, &mut self.scratch, &mut found);
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
        let context = &mut *packet.context;
        context.explain(packet.lane, || format!("rule {}: {}", rule.sid, rule.message));
        if rule.action == Action::Pass {
            packet.passed = true;
            return;
        }
        let tuple = packet.subject.tuple;
        let (mut acts, mut speaks) = (true, true);
        for filter in &rule.filters {
            let allowed = self.counts.allow(number, filter, tuple.as_ref(), context.now());
            speaks &= allowed;
            // Other filters quiet the alert alone.
            acts &= allowed || filter.kind != FilterKind::Detection;
        }
        if rule.action == Action::Drop && acts {
            context.drop(packet.lane, DropReason::Intrusion);
        }
        if !rule.no_alert && speaks {
            self.figures.alerts += 1;
            let occasion = Occasion {
                timestamp: packet.timestamp,
                flow_hash: packet.flow_hash,
                tuple: tuple.as_ref(),
                interface: packet.interface,
                seen: seen.as_deref(),
            };
            alert::line(rule, &occasion, &mut self.lines);
        }
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
