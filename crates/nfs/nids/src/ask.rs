//! Evaluates rules for payloads, streams and messages.

use thalweg_packet::FiveTuple;

use super::app::{Message, Progress};
use super::engine::Engine;
use super::fit::Haystacks;
use super::flows::Seen;
use super::heads::{Header, Suiting};
use super::inspect::{Inspector, Packet};
use super::matcher::Outcome;
use super::matches::Match;
use super::open::Open;
use super::rule::Action;
use super::seldom::Seldom;

impl Inspector {
    /// Finds the rules that may match `bytes` of packets with this header, which are new after
    /// `from`; with `suiting`, only rules that the header suits.
    pub(super) fn search_bytes(
        &mut self,
        engine: &Engine,
        header: Header,
        bytes: &[u8],
        from: usize,
        suiting: Option<Suiting<'_>>,
    ) {
        let Self { search, found, .. } = self;
        found.clear();
        engine.candidates_of_payload(header, bytes, from, suiting, search, found);
    }

    /// Evaluates the rules that were found, and those that wait for more of the stream.
    pub(super) fn ask(&mut self, packet: &mut Packet<'_, '_, '_>, mut seen: Option<&mut Seen<'_>>) {
        let engine = packet.engine;
        let mut found = std::mem::take(&mut self.found);
        let new = found.len();
        let put_together = packet.subject.stream.is_some();
        if let Some(stream) = packet.subject.stream
            && let Some((open, direction)) = seen.as_deref_mut().and_then(waiting)
        {
            open.reopen(direction, &engine.rules, stream, &mut found);
        }
        if found.len() > new {
            found.sort_unstable();
            found.dedup();
        }
        let lane = packet.subject.lane;
        packet.context.explain(lane, || {
            let noun = if found.len() == 1 { "rule" } else { "rules" };
            format!("{} {noun} to verify", found.len())
        });
        let hays = Haystacks::of(&packet.subject);
        self.outcomes.clear();
        for number in &found {
            if packet.passed {
                break;
            }
            let rule = &engine.rules[*number as usize];
            if !rule.fits(&packet.subject, seen.as_deref()) {
                continue;
            }
            self.figures.verified += 1;
            let family = engine.twins.family(*number);
            match self.outcomes.of(family, || rule.payload_matches(&hays)) {
                Outcome::Match => {
                    if let Some((open, direction)) = seen.as_deref_mut().and_then(waiting) {
                        open.close(direction, *number);
                    }
                    let of_flow = rule.holds_for_flow(&hays);
                    self.matched(*number, packet, seen.as_deref_mut(), of_flow);
                }
                Outcome::GaveUp => self.figures.gave_up += 1,
                Outcome::NoMatch if put_together && rule.may_wait() => {
                    if let Some((open, direction)) = seen.as_deref_mut().and_then(open) {
                        open.add(direction, *number, engine.needs.tail as u32, rule.lacks(&hays));
                    }
                }
                Outcome::NoMatch => {}
            }
        }
        self.found = found;
    }

    /// Evaluates rules for the messages that a segment completed or extended, the last one if it
    /// ended its stream.
    pub(super) fn messages(
        &mut self,
        packet: &mut Packet<'_, '_, '_>,
        seen: &mut Seen<'_>,
        ended: bool,
    ) {
        let to_server = seen.to_server;
        while let Some(tracked) = seen.flow.tracked.as_deref_mut() {
            if tracked.app.advance(to_server) == Progress::More {
                break;
            }
            self.message_of(packet, seen);
        }
        let tracked = seen.flow.tracked.as_deref_mut().filter(|_| ended);
        if tracked.is_some_and(|tracked| tracked.app.end(to_server)) {
            self.message_of(packet, seen);
        }
    }

    /// Evaluates rules for the messages that a reset ended: those of both directions, whichever
    /// side sent it.
    pub(super) fn reset_messages(&mut self, packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>) {
        if !seen.reset {
            return;
        }
        for direction in [true, false] {
            let Some(tracked) = seen.flow.tracked.as_deref_mut() else { return };
            if tracked.app.end(direction) {
                let turns = direction != seen.to_server;
                if turns {
                    turn(packet, seen);
                }
                self.message_of(packet, seen);
                if turns {
                    turn(packet, seen);
                }
            }
        }
    }

    /// Evaluates the rules for the current direction's message.
    pub(super) fn message_of(&mut self, packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>) {
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

    pub(super) fn message(
        &mut self,
        packet: &mut Packet<'_, '_, '_>,
        seen: &mut Seen<'_>,
        message: &mut Message,
    ) {
        let engine = packet.engine;
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for (buffer, bytes) in &message.buffers[message.searched..] {
            let from = message.searched_of(*buffer);
            engine.candidates(*buffer, bytes, from, &mut self.search, &mut found);
        }
        message.searched = message.buffers.len();
        found.append(&mut message.candidates);
        found.sort_unstable();
        found.dedup();
        for number in &found {
            if message.fired.contains(number) {
                continue;
            }
            let turns = engine.rules[*number as usize].turns_to(seen.to_server);
            if turns {
                turn(packet, seen);
            }
            self.message_and_rule(*number, packet, seen, message);
            if turns {
                turn(packet, seen);
            }
        }
        message.forget_bodies();
        self.found = found;
    }

    /// Evaluates one rule for a message.
    fn message_and_rule(
        &mut self,
        number: u32,
        packet: &mut Packet<'_, '_, '_>,
        seen: &mut Seen<'_>,
        message: &mut Message,
    ) {
        let rule = &packet.engine.rules[number as usize];
        // Its pattern is not searched for again in what there is of a body.
        let stays = rule.fast_pattern.buffer.is_body();
        if packet.passed || !rule.fits(&packet.subject, Some(seen)) {
            message.candidates.extend(stays.then_some(number));
            return;
        }
        self.figures.verified += 1;
        let outcome = match rule.message_matches(message) {
            Outcome::Match => rule.payload_matches(&Haystacks::of(&packet.subject)),
            other => other,
        };
        match outcome {
            Outcome::Match => {
                message.fired.push(number);
                self.matched(number, packet, Some(seen), true);
            }
            Outcome::GaveUp => {
                self.figures.gave_up += 1;
                message.candidates.extend(stays.then_some(number));
            }
            Outcome::NoMatch => message.candidates.push(number),
        }
    }

    /// Handles a rule that matched, subject to its flow bits; its action waits for the other rules
    /// that match the packet. `of_flow`: it looked at more than the packet.
    fn matched(
        &mut self,
        number: u32,
        packet: &mut Packet<'_, '_, '_>,
        mut seen: Option<&mut Seen<'_>>,
        of_flow: bool,
    ) {
        let rule = &packet.engine.rules[number as usize];
        if !rule.bits_fit(seen.as_deref()) || !rule.numbers_fit(seen.as_deref()) {
            return;
        }
        if let Some(seen) = &mut seen {
            if rule.is_ip_only() && !seen.flow.said.insert((rule.sid, seen.to_server)) {
                return;
            }
            rule.change_bits(seen);
            rule.change_numbers(seen);
        }
        let lane = packet.subject.lane;
        packet.context.explain(lane, || format!("rule {}: {}", rule.sid, rule.message));
        packet.passed |= rule.action == Action::Pass;
        self.matches.add(Match {
            rule: number,
            tuple: packet.subject.tuple,
            side: seen.as_deref().map(|seen| (seen.to_server, seen.application)),
            of_flow,
        });
    }
}

/// Turns to the other direction of the connection.
fn turn(packet: &mut Packet<'_, '_, '_>, seen: &mut Seen<'_>) {
    packet.subject.tuple = packet.subject.tuple.map(FiveTuple::reversed);
    seen.to_server = !seen.to_server;
}

/// Where rules wait for more of the stream, and the current direction.
fn open<'s>(seen: &'s mut Seen<'_>) -> Option<(&'s mut Seldom<Open>, usize)> {
    let direction = usize::from(!seen.to_server);
    seen.flow.tracked.as_deref_mut().map(|tracked| (&mut tracked.open, direction))
}

/// The same if a rule waits.
fn waiting<'s>(seen: &'s mut Seen<'_>) -> Option<(&'s mut Open, usize)> {
    let (open, direction) = open(seen)?;
    (!open.is_empty()).then(|| (&mut **open, direction))
}
