//! Inspects a packet: its connection, its stream, its application; on the way, the rules are
//! [evaluated](super::ask).

use std::sync::Arc;

use thalweg_packet::wire::ip_proto;
use thalweg_packet::{Batch, DropReason, FiveTuple, Lanes, Layer, field};

use super::ahead::Ahead;
#[cfg(test)]
use super::ahead::BLIND;
use super::app::App;
use super::arrival::{self, Delivery};
use super::engine::{Engine, Search};
use super::events::{self, Events};
use super::fit::{Stretch, Subject};
use super::flow::{Arrival, Handling, Tracked, Verdict};
use super::flows::{Flows, Seen};
use super::heads::Header;
use super::matches::Matches;
use super::quiet::{Changed, Continuation, Terms};
use super::receiver::{Reason, Target};
use super::segment::Segment;
use super::stream::{Fresh, Notes, Overlaps, Policy};
use super::tail::Kept;
use super::teller::Teller;
use super::twins::Outcomes;
use thalweg_nf::Context;
use thalweg_nf::toolkit::view::payload;

/// Bytes of a direction that may wait for earlier ones.
const WAITING: usize = 1 << 16;

/// The settings for inspecting connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) checksums: bool,
    pub(super) target: Target,
    pub(super) overlaps: Overlaps,
    pub(super) midstream: bool,
    pub(super) min_ttl: u8,
}

impl Settings {
    pub(super) fn policy(&self, engine: &Engine) -> Policy {
        Policy {
            overlaps: self.overlaps,
            tail: Kept::for_search(engine.needs.tail),
            waiting: WAITING,
        }
    }

    fn handling(&self, engine: &Engine) -> Handling {
        let Self { target, midstream, .. } = *self;
        Handling { target, midstream, streams: engine.needs.streams }
    }
}

#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) verified: u64,
    pub(super) gave_up: u64,
    pub(super) notes: Notes,
    /// Segments that their receiver would not take, by reason.
    pub(super) rejected: [u64; Reason::FIGURES.len()],
    /// Packets for which their connection's verdict decided: to drop, and to pass.
    pub(super) decided: [u64; 2],
}

/// The inspection of packets, of the whole NF or of a part of it.
pub(super) struct Inspector {
    pub(super) settings: Settings,
    pub(super) search: Search,
    pub(super) matches: Matches,
    /// Where alerts go at once; `None` in a part, which leaves them to the whole.
    pub(super) teller: Option<Teller>,
    /// A stream's past and the bytes that the packet added; reused.
    pub(super) stretch: Vec<u8>,
    /// Bytes that waited in the other direction and no longer do; reused.
    late: Vec<u8>,
    pub(super) found: Vec<u32>,
    pub(super) ahead: Ahead,
    pub(super) outcomes: Outcomes,
    pub(super) figures: Figures,
}

/// The current packet.
pub(super) struct Packet<'a, 'c, 'e> {
    pub(super) subject: Subject<'a>,
    pub(super) context: &'e mut Context<'c>,
    pub(super) engine: &'e Arc<Engine>,
    /// A `pass` rule matched: no other rule is evaluated.
    pub(super) passed: bool,
}

/// The bytes that a segment added to its stream.
struct Brought<'a> {
    /// `None` if they are inspected by themselves.
    stretch: Option<Stretch<'a>>,
    /// The hits found ahead apply to it.
    foreseen: bool,
    /// It ended its stream.
    ended: bool,
    /// Bytes of the other direction that waited and no longer do.
    late: Fresh,
}

impl Inspector {
    pub(super) fn new(settings: Settings, teller: Option<Teller>) -> Self {
        Self {
            settings,
            search: Search::default(),
            matches: Matches::default(),
            teller,
            stretch: Vec::new(),
            late: Vec::new(),
            found: Vec::new(),
            ahead: Ahead::default(),
            outcomes: Outcomes::default(),
            figures: Figures::default(),
        }
    }

    /// Inspects the packets of `lanes`.
    #[inline(always)]
    pub(super) fn packets_anywhere(
        &mut self,
        engine: &Arc<Engine>,
        flows: &mut Flows,
        batch: &Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let by_device = self.search.results.is_some();
        let terms = Terms::new(engine, &self.settings, context.is_traced(), by_device);
        self.ahead.look(engine, flows, batch, lanes, &terms, &mut self.search);
        let quiet = if context.is_traced() { Lanes::NONE } else { self.ahead.quiet() };
        // Of packets without a connection, those are done for which no rule was found.
        let alone = lanes.without(self.ahead.connected);
        let done = self.ahead.taken.or(alone).without(self.ahead.any);
        let mut left = lanes.without(done);
        let mut changed = Changed::default();
        while let Some(lane) = left.lowest() {
            if quiet.contains(lane) {
                let rest = self.go_on(&terms, flows, batch, (left, quiet), changed);
                if rest != left {
                    left = rest;
                    continue;
                }
            }
            let later = self.ahead.taken.and(Lanes(u32::MAX << lane));
            if !later.is_empty() && flows.is_crowded() {
                // What it evicts depends on the packets before it alone.
                self.ahead.give_back(flows, later);
                left = left.or(later);
            }
            left.remove(lane);
            if self.ahead.connected.contains(lane) {
                let slot = self.ahead.slot(lane);
                self.ahead.unchanged = slot.is_some_and(|slot| !changed.may_have(slot));
                changed.add(slot);
                if self.ahead.taken.contains(lane) {
                    self.ask_accepted(engine, flows, batch, lane, context);
                } else {
                    self.in_connection(engine, flows, batch, lane, context);
                }
                continue;
            }
            self.take_found(lane);
            if !self.found.is_empty() {
                self.alone(engine, batch, lane, context);
            }
        }
    }

    /// Evaluates the rules that were found for a packet without a connection.
    #[inline(never)]
    fn alone(
        &mut self,
        engine: &Arc<Engine>,
        batch: &Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) {
        let subject = subject(engine, batch, lane);
        let mut packet = Packet { subject, context, engine, passed: false };
        self.ask(&mut packet, None);
        self.act(&mut packet, None);
    }

    /// Accepts `quiet` segments that continue their stream as expected and for which no rule must be
    /// evaluated, from the first of `lanes` on; returns the lanes from the first other packet on. Most
    /// segments are such, and skip all other work.
    #[inline(always)]
    fn go_on(
        &self,
        terms: &Terms,
        flows: &mut Flows,
        batch: &Batch,
        (lanes, quiet): (Lanes, Lanes),
        changed: Changed,
    ) -> Lanes {
        let first = lanes.before(lanes.without(quiet));
        let surely_plain = terms.surely_plain(self.ahead.flawless());
        for lane in first {
            let is_plain = surely_plain.contains(lane) || terms.is_plain(batch, lane);
            if !is_plain || !self.goes_on(terms, flows, batch, lane, changed) {
                return Lanes(lanes.0 & u32::MAX << lane);
            }
        }
        lanes.without(first)
    }

    /// Whether the segment in `lane` is such, whose packet is plain; accepts it then. Only a connection
    /// that may have `changed` is compared with what was expected.
    #[inline(always)]
    fn goes_on(
        &self,
        terms: &Terms,
        flows: &mut Flows,
        batch: &Batch,
        lane: usize,
        changed: Changed,
    ) -> bool {
        let (ahead, now) = (&self.ahead, batch.meta.timestamp[lane]);
        let (slot, segment) = (ahead.quiet_slot(lane), &ahead.segment_of(batch, lane));
        let past = changed.may_have(slot).then(|| ahead.past(lane));
        if past.is_some() {
            let conversation = ahead.conversation(batch, lane);
            if !conversation.is_some_and(|(conversation, _)| flows.has(slot, &conversation)) {
                return false;
            }
        }
        let Some(flow) = flows.current(slot, now) else { return false };
        let to_server = flow.is_to_server(ahead.is_from_low(lane));
        let (payload, searched) = (ahead.payload(lane), ahead.searched(lane));
        let next = Continuation { to_server, segment, payload, past, searched };
        let kept = flow.go_on(&next, terms, now);
        let Some((before, after)) = kept else { return false };
        if before != after {
            flows.book(flows.share_of(slot), before, after);
        }
        true
    }

    /// Inspects a packet with its connection.
    #[inline(never)]
    fn in_connection(
        &mut self,
        engine: &Arc<Engine>,
        flows: &mut Flows,
        batch: &Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) {
        let segment = self.ahead.segment(batch, lane);
        let (now, slot) = (batch.meta.timestamp[lane], self.ahead.slot(lane));
        let delivery = self.delivery(batch, lane);
        let missing = arrival::missing(batch, lane);
        let arrival = Arrival { segment, payload: payload(batch, lane), missing, delivery };
        let how = self.settings.handling(engine);
        let conversation = self.ahead.conversation(batch, lane);
        let Some(mut seen) = conversation.and_then(|c| flows.packet(slot, c, &arrival, how, now))
        else {
            if batch.headers(lane).ip_proto == ip_proto::TCP {
                self.reject(delivery.refused, lane, context);
            }
            self.search(engine, batch, lane, None);
            return self.alone(engine, batch, lane, context);
        };
        if segment.is_some() {
            self.reject(seen.taken.err(), lane, context);
        }
        let mut stretch = std::mem::take(&mut self.stretch);
        let (mut brought, mut datagram) = (None, None);
        match segment {
            Some(segment) if engine.needs.streams => {
                brought = self.stream(engine, &mut seen, batch, lane, segment, &mut stretch);
            }
            None if engine.needs.applications
                && batch.headers(lane).has_transport(ip_proto::UDP) =>
            {
                if let Some((protocol, message)) =
                    App::datagram(arrival.payload, ports(batch, lane))
                {
                    seen.application = Some(protocol);
                    datagram = Some(message);
                }
            }
            _ => {}
        }
        if !self.is_decided(&seen, lane, context) {
            let subject = subject(engine, batch, lane);
            let mut packet = Packet { subject, context, engine, passed: false };
            if let Some(late) = brought.as_ref().map(|brought| brought.late) {
                self.inspect_late(&mut packet, &mut seen, late);
            }
            if seen.flow.verdict.is_none() {
                self.search(engine, batch, lane, brought.as_ref());
                packet.subject.stream = brought.as_ref().and_then(|brought| brought.stretch);
                self.ask(&mut packet, Some(&mut seen));
                if let Some(message) = &mut datagram {
                    self.message(&mut packet, &mut seen, message);
                } else if let Some(Brought { ended, .. }) = brought {
                    self.messages(&mut packet, &mut seen, ended);
                    self.reset_messages(&mut packet, &mut seen);
                }
                self.act(&mut packet, Some(&mut seen));
            }
        }
        let (share, before, after) = (seen.share, seen.before, seen.flow.memory());
        flows.book(share, before, after);
        self.stretch = stretch;
    }

    /// Counts and explains a segment that its receiver would not take.
    fn reject(&mut self, reason: Option<Reason>, lane: usize, context: &mut Context<'_>) {
        let Some(reason) = reason else { return };
        self.figures.rejected[reason as usize] += 1;
        context.explain(lane, || {
            format!("not part of the stream: its receiver would not take it ({})", reason.text())
        });
    }

    /// Whether an earlier decision holds for the packet; carries it out.
    fn is_decided(&mut self, seen: &Seen<'_>, lane: usize, context: &mut Context<'_>) -> bool {
        let Some(verdict) = seen.flow.verdict else { return false };
        match verdict {
            Verdict::Drop { sid } => {
                self.figures.decided[0] += 1;
                context.explain(lane, || format!("dropped: rule {sid} dropped its connection"));
                context.drop(lane, DropReason::Intrusion);
            }
            Verdict::Pass { sid } => {
                self.figures.decided[1] += 1;
                context.explain(lane, || format!("no rules: rule {sid} passed its connection"));
            }
        }
        true
    }

    /// Finds the rules that may match the bytes that a packet added to its stream, or its payload.
    fn search(
        &mut self,
        engine: &Engine,
        batch: &Batch,
        lane: usize,
        brought: Option<&Brought<'_>>,
    ) {
        let grown = brought.and_then(|b| b.stretch.filter(Stretch::has_grown));
        let foreseen = brought.is_some_and(|brought| brought.foreseen);
        if grown.map_or_else(|| self.ahead.searched_payload(lane), |_| foreseen) {
            return self.take_found(lane);
        }
        let stretch = grown.map(|grown| (grown.bytes, grown.fresh));
        let (bytes, from) = stretch.unwrap_or_else(|| (payload(batch, lane), 0));
        #[cfg(test)]
        if BLIND.get() {
            self.found.clear();
            return engine.candidates_of_any(bytes, from, &mut self.search, &mut self.found);
        }
        let suiting = Some(engine.suiting(batch, lane));
        self.search_bytes(engine, Header::of(batch, lane), bytes, from, suiting);
    }

    /// Uses the rules that were found ahead for a packet.
    pub(super) fn take_found(&mut self, lane: usize) {
        self.found.clear();
        self.ahead.take(lane, &mut self.found);
    }

    /// What the receiver's network layer makes of the packet; one that it drops changes no
    /// connection.
    fn delivery(&self, batch: &Batch, lane: usize) -> Delivery {
        let Settings { checksums, min_ttl, .. } = self.settings;
        arrival::delivery(batch, lane, checksums, min_ttl)
    }

    /// Adds a packet's segment to its stream, and the new bytes to its application. `stretch`
    /// becomes the stream's past with the new bytes. `None` if the connection is not reassembled or
    /// the receiver would not take the segment.
    fn stream<'a>(
        &mut self,
        engine: &Engine,
        seen: &mut Seen<'_>,
        batch: &'a Batch,
        lane: usize,
        segment: Segment,
        stretch: &'a mut Vec<u8>,
    ) -> Option<Brought<'a>> {
        let policy = self.settings.policy(engine);
        let to_server = seen.to_server;
        seen.established |= self.settings.midstream && seen.flow.is_established();
        let tracked = seen.flow.tracked.as_deref_mut()?;
        tracked.renumber(engine.fingerprint);
        let Tracked { streams: [to_the_server, to_the_client], ends, app, .. } = tracked;
        let (own, other) =
            if to_server { (to_the_server, to_the_client) } else { (to_the_client, to_the_server) };
        let payload = payload(batch, lane);
        let taken = match seen.taken {
            Ok(taken) => taken,
            Err(reason) => {
                if reason.may_be_wrong() && !segment.is_syn() {
                    let acknowledged = segment.acknowledges().then_some(segment.acknowledged);
                    own.doubt(segment.sequence, acknowledged, payload, &policy);
                }
                return None;
            }
        };
        let notes = &mut self.figures.notes;
        let mut late = Fresh::default();
        if segment.acknowledges() {
            // Bytes that the other side has and we do not will not arrive any more.
            late = other.acknowledged(segment.acknowledged, &policy, notes, &mut self.late);
            if let Some(believed) = late.believed {
                ends.has_sent(to_server, believed);
                ends.forget_timestamps([!to_server, to_server]);
            }
            if late.gap {
                app.gap(!to_server);
            }
            if engine.needs.applications && self.late.len() > late.from {
                let port = ports(batch, lane)[usize::from(!to_server)];
                app.data(!to_server, &self.late[late.from..], port);
            }
        } else {
            self.late.clear();
        }
        let foreseen = own.goes_on_at(segment.sequence)
            && taken > 0
            && taken == payload.len()
            && self.ahead.searched_behind(lane, own, engine.reach);
        let ended = own.has_ended();
        let is_whole = taken == payload.len() && arrival::missing(batch, lane) == 0;
        let is_last = segment.is_last() && !segment.is_reset() && is_whole;
        let fresh =
            own.segment(segment.sequence, &payload[..taken], is_last, &policy, notes, stretch);
        if fresh.gap {
            app.gap(to_server);
        }
        let stretch = Stretch { bytes: stretch, fresh: fresh.from };
        let new = &stretch.bytes[stretch.fresh..];
        if engine.needs.applications && !new.is_empty() {
            app.data(to_server, new, ports(batch, lane)[usize::from(to_server)]);
        }
        seen.application = app.protocol();
        // A segment that fills a gap given up earlier is inspected by itself.
        let fills = own.has_gaps() && new.is_empty() && !own.is_waiting();
        let ended = own.has_ended() && !ended;
        Some(Brought { stretch: (!fills).then_some(stretch), foreseen, ended, late })
    }

    /// Evaluates the rules for bytes of the other direction that waited: for bytes that will not
    /// arrive, or for their receiver to acknowledge them.
    fn inspect_late(&mut self, packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>, fresh: Fresh) {
        let late = std::mem::take(&mut self.late);
        if late.len() > fresh.from {
            let subject = Subject {
                tuple: packet.subject.tuple.map(FiveTuple::reversed),
                payload: &[],
                stream: Some(Stretch { bytes: &late, fresh: fresh.from }),
                ..packet.subject
            };
            let mut other =
                Packet { subject, context: packet.context, engine: packet.engine, passed: false };
            seen.to_server = !seen.to_server;
            // Data of a SYN is acknowledged before the handshake is over; as in Suricata, it belongs
            // to an established connection.
            let established = std::mem::replace(&mut seen.established, true);
            let header = Header::of(other.subject.batch, other.subject.lane).reversed();
            self.search_bytes(packet.engine, header, &late, fresh.from, None);
            self.ask(&mut other, Some(seen));
            self.messages(&mut other, seen, false);
            self.act(&mut other, Some(seen));
            seen.established = established;
            seen.to_server = !seen.to_server;
        }
        self.late = late;
        self.late.clear();
    }
}

/// The packet of a lane, without its stream. Made where it stays: moving what was just written piece by piece
/// waits for the pieces.
#[inline(always)]
pub(super) fn subject<'a>(engine: &Engine, batch: &'a Batch, lane: usize) -> Subject<'a> {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    let events = if engine.needs.events {
        events::find(bytes, headers, batch.field(lane, field::DL_TYPE))
    } else {
        Events::default()
    };
    let is_ip = headers.layer >= Layer::Network;
    let tuple = if is_ip { FiveTuple::of(batch, lane) } else { None };
    let payload = payload(batch, lane);
    Subject { batch, lane, bytes, headers, tuple, events, payload, stream: None }
}

/// Source port and destination port.
fn ports(batch: &Batch, lane: usize) -> [u16; 2] {
    [field::TP_SRC, field::TP_DST].map(|place| batch.field(lane, place) as u16)
}
