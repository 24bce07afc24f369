//! Tests whether a rule matches a packet, a stream or a message.

use std::borrow::Cow;

use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6, SCTP, TCP, UDP};
use thalweg_packet::{Batch, Field, FiveTuple, Headers};

use super::app::Message;
use super::buffer::Buffer;
use super::events::Events;
use super::flows::Seen;
use super::haystack::{Haystack, Needle};
use super::matcher::{Outcome, lacking, verify};
use super::rule::{
    Endpoint, FlowBit, FlowNumber, Operand, Part, Protocol, Rule, Sides, Step, StreamSize,
    Transform, View,
};
use super::stream::Stream;

/// A packet as rules see it.
pub(super) struct Subject<'a> {
    pub(super) batch: &'a Batch,
    pub(super) lane: usize,
    pub(super) bytes: &'a [u8],
    pub(super) headers: &'a Headers,
    /// `None` if the packet is not IP.
    pub(super) tuple: Option<FiveTuple>,
    /// The packet's defects.
    pub(super) events: Events,
    /// The packet's own payload.
    pub(super) payload: &'a [u8],
    /// The end of the packet's stream, with its new bytes.
    pub(super) stream: Option<Stretch<'a>>,
}

impl Subject<'_> {
    /// A field of the packet's flow key.
    pub(super) fn field(&self, field: Field) -> u64 {
        self.batch.field(self.lane, field)
    }

    pub(super) fn field128(&self, field: [Field; 2]) -> u128 {
        self.batch.field128(self.lane, field)
    }
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    pub(super) bytes: &'a [u8],
    /// Where the new bytes begin.
    pub(super) fresh: usize,
}

impl Stretch<'_> {
    /// Whether there are new bytes.
    pub(super) fn has_grown(&self) -> bool {
        self.bytes.len() > self.fresh
    }
}

/// The bytes of a packet in which rules are verified.
pub(super) struct Haystacks<'a> {
    payload: Haystack<'a>,
    /// The end of its stream.
    stream: Option<Haystack<'a>>,
    /// Whether the stream has new bytes.
    has_grown: bool,
}

impl<'a> Haystacks<'a> {
    pub(super) fn of(subject: &Subject<'a>) -> Self {
        let stream = subject.stream.map(|stretch| Haystack::new(stretch.bytes));
        let has_grown = subject.stream.is_some_and(|stretch| stretch.has_grown());
        Self { payload: Haystack::new(subject.payload), stream, has_grown }
    }
}

impl Rule {
    /// Whether the rule's conditions hold for the packet, except its flow bits and buffers.
    pub(super) fn fits(&self, subject: &Subject<'_>, seen: Option<&Seen<'_>>) -> bool {
        protocol_fits(self.protocol, subject.headers)
            && self.flow_fits(seen)
            && self.application_fits(seen)
            && self.ends_fit(subject.tuple.as_ref())
            && self.conditions.iter().all(|c| c.holds(subject))
            && self.stream_sizes.iter().all(|s| s.holds(seen))
    }

    /// Whether its payload tests hold.
    pub(super) fn payload_matches(&self, hays: &Haystacks<'_>) -> Outcome {
        let Some(part) = self.payload_part() else {
            return Outcome::Match;
        };
        let packet = || verify(&part.tests, &hays.payload);
        let Some(stream) = &hays.stream else { return packet() };
        // The bytes before the packet were inspected already.
        let stream = || {
            if hays.has_grown { verify(&part.tests, stream) } else { Outcome::NoMatch }
        };
        match self.view {
            Some(View::Packet) => packet(),
            Some(View::Both) => match packet() {
                Outcome::Match => Outcome::Match,
                _ => stream(),
            },
            _ => stream(),
        }
    }

    /// Whether its payload tests may hold with more of the stream though its pattern is not in that.
    pub(super) fn may_wait(&self) -> bool {
        self.view != Some(View::Packet) && self.parts.iter().any(|part| part.tests.len() > 1)
    }

    /// Which of its payload tests is a content that is nowhere in the stream.
    pub(super) fn lacks(&self, hays: &Haystacks<'_>) -> Option<u16> {
        let stream = hays.stream.as_ref().filter(|_| hays.has_grown)?;
        lacking(&self.payload_part()?.tests, stream)
    }

    /// The bytes of the content that is a payload test.
    pub(super) fn content(&self, test: u16) -> Option<&Needle> {
        let test = self.payload_part()?.tests.get(usize::from(test))?;
        test.required().map(|content| &content.bytes)
    }

    /// The tests of the payload.
    pub(super) fn payload_part(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.buffer == Buffer::Payload)
    }

    /// Whether a match of the packet's headers and payload holds for its connection, as in
    /// Suricata: if the rule is about addresses or the application alone, or its payload tests
    /// hold in the stream.
    pub(super) fn holds_for_flow(&self, hays: &Haystacks<'_>) -> bool {
        let Some(part) = self.payload_part() else {
            return self.is_ip_only() || self.application.is_some() && self.conditions.is_empty();
        };
        let Some(stream) = hays.stream.as_ref().filter(|_| hays.has_grown) else { return false };
        match self.view {
            Some(View::Packet) => false,
            Some(View::Both) => verify(&part.tests, stream) == Outcome::Match,
            _ => true,
        }
    }

    /// Whether its tests of buffers hold in `message`.
    pub(super) fn message_matches(&self, message: &Message) -> Outcome {
        let mut outcome = Outcome::Match;
        for part in self.parts.iter().filter(|p| p.buffer != Buffer::Payload) {
            let mut of_part = Outcome::NoMatch;
            for bytes in message.all(part.buffer) {
                let bytes = transformed(&part.transforms, bytes);
                match verify(&part.tests, &Haystack::new(&bytes)) {
                    Outcome::NoMatch => {}
                    Outcome::GaveUp => of_part = Outcome::GaveUp,
                    Outcome::Match => {
                        of_part = Outcome::Match;
                        break;
                    }
                }
            }
            match of_part {
                Outcome::Match => {}
                Outcome::NoMatch => return Outcome::NoMatch,
                Outcome::GaveUp => outcome = Outcome::GaveUp,
            }
        }
        outcome
    }

    fn application_fits(&self, seen: Option<&Seen<'_>>) -> bool {
        self.application.is_none_or(|p| seen.is_some_and(|s| s.application == Some(p)))
    }

    /// The rank that orders rules which set flow bits or numbers before those that test
    /// them, and rules that only unset bits last.
    pub(super) fn bits_rank(&self) -> u8 {
        let any = |test: fn(&FlowBit) -> bool| self.bits.iter().any(test);
        let asks = self.numbers.iter().any(|number| number.what.is_test());
        if asks || any(|b| matches!(b, FlowBit::IsSet(_) | FlowBit::IsNotSet(_))) {
            1
        } else if !self.numbers.is_empty()
            || any(|b| matches!(b, FlowBit::Set(_) | FlowBit::Toggle(_)))
        {
            0
        } else if any(|b| matches!(b, FlowBit::Unset(_))) {
            2
        } else {
            1
        }
    }

    fn flow_fits(&self, seen: Option<&Seen<'_>>) -> bool {
        let test = self.flow;
        match seen {
            Some(seen) => {
                test.to_server.is_none_or(|s| s == seen.to_server)
                    && test.established.is_none_or(|e| e == seen.established)
            }
            None => test.to_server.is_none() && test.established.is_none(),
        }
    }

    fn ends_fit(&self, tuple: Option<&FiveTuple>) -> bool {
        let Some(t) = tuple else { return self.protocol == Protocol::Any };
        let ports = matches!(t.protocol, TCP | UDP | SCTP);
        let end = |end: &Endpoint, address, port| {
            end.addresses.contains(address) && (!ports || end.ports.contains(port))
        };
        let (a, b) = (&self.source, &self.destination);
        end(a, t.src, t.src_port) && end(b, t.dst, t.dst_port)
            || self.both_ways && end(b, t.src, t.src_port) && end(a, t.dst, t.dst_port)
    }

    /// Whether the rule's conditions on flow bits hold.
    pub(super) fn bits_fit(&self, seen: Option<&Seen<'_>>) -> bool {
        let set = |name: &String| seen.is_some_and(|s| s.flow.bits.contains(name));
        self.bits.iter().all(|bit| match bit {
            FlowBit::IsSet(names) => names.iter().any(set),
            FlowBit::IsNotSet(names) => !names.iter().all(set),
            _ => true,
        })
    }

    /// Applies the rule's changes to the flow bits.
    pub(super) fn change_bits(&self, seen: &mut Seen<'_>) {
        let bits = &mut seen.flow.bits;
        for bit in &self.bits {
            match bit {
                FlowBit::Set(name) => _ = bits.insert(name.clone()),
                FlowBit::Unset(name) => _ = bits.remove(name),
                FlowBit::Toggle(name) => {
                    if !bits.remove(name) {
                        bits.insert(name.clone());
                    }
                }
                FlowBit::IsSet(_) | FlowBit::IsNotSet(_) => {}
            }
        }
    }

    /// Whether the rule's conditions on the connection's numbers hold.
    pub(super) fn numbers_fit(&self, seen: Option<&Seen<'_>>) -> bool {
        let number = |name: &String| seen.and_then(|s| s.flow.numbers.get(name).copied());
        self.numbers.iter().all(|FlowNumber { name, what }| {
            let operand = what.operand().map(|operand| value(operand, number));
            match (what, operand) {
                (_, Some(None)) => false,
                (Step::Is(comparison, _), Some(Some(other))) => {
                    number(name).is_some_and(|number| comparison.holds(number, other))
                }
                (Step::IsSet, _) => number(name).is_some(),
                (Step::IsNotSet, _) => number(name).is_none(),
                _ => true,
            }
        })
    }

    /// Applies the rule's changes to the connection's numbers.
    pub(super) fn change_numbers(&self, seen: &mut Seen<'_>) {
        let numbers = &mut seen.flow.numbers;
        for FlowNumber { name, what } in &self.numbers {
            let number = |name: &String| numbers.get(name).copied();
            let before = number(name).unwrap_or(0);
            let Some(other) = what.operand().and_then(|operand| value(operand, number)) else {
                continue;
            };
            let after = match what {
                Step::Set(_) => other,
                Step::Add(_) => before.saturating_add(other),
                Step::Subtract(_) => before.saturating_sub(other),
                Step::Is(..) | Step::IsSet | Step::IsNotSet => continue,
            };
            numbers.insert(name.clone(), after);
        }
    }
}

impl StreamSize {
    fn holds(&self, seen: Option<&Seen<'_>>) -> bool {
        let Some(tracked) = seen.and_then(|s| s.flow.tracked.as_deref()) else { return false };
        let [client, server] = &tracked.streams;
        let fits = |s: &Stream| (self.low..=self.high).contains(&s.bytes()) != self.negated;
        match self.sides {
            Sides::Client => fits(client),
            Sides::Server => fits(server),
            Sides::Both => fits(client) && fits(server),
            Sides::Either => fits(client) || fits(server),
        }
    }
}

/// The value of an operand, if it is set; `number` is that of a name.
fn value(operand: &Operand, number: impl Fn(&String) -> Option<u32>) -> Option<u32> {
    match operand {
        Operand::Literal(value) => Some(*value),
        Operand::Named(name) => number(name),
    }
}

fn protocol_fits(protocol: Protocol, headers: &Headers) -> bool {
    match protocol {
        Protocol::Any => true,
        Protocol::Ip => headers.is_ipv4() || headers.is_ipv6(),
        Protocol::Ipv4 => headers.is_ipv4(),
        Protocol::Ipv6 => headers.is_ipv6(),
        Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => headers.ip_proto == TCP,
        Protocol::Udp => headers.ip_proto == UDP,
        Protocol::Sctp => headers.ip_proto == SCTP,
        Protocol::Icmp => {
            headers.is_ipv4() && headers.ip_proto == ICMP
                || headers.is_ipv6() && headers.ip_proto == ICMPV6
        }
        Protocol::Icmpv6 => headers.is_ipv6() && headers.ip_proto == ICMPV6,
    }
}

/// The bytes after the transformations.
pub(super) fn transformed<'a>(transforms: &[Transform], bytes: &'a [u8]) -> Cow<'a, [u8]> {
    let mut now = Cow::Borrowed(bytes);
    for transform in transforms {
        let blank = |b: &u8| b.is_ascii_whitespace() || *b == 0x0b;
        now = Cow::Owned(match transform {
            Transform::ToLowercase => now.to_ascii_lowercase(),
            Transform::ToUppercase => now.to_ascii_uppercase(),
            Transform::StripWhitespace => now.iter().copied().filter(|b| !blank(b)).collect(),
            Transform::CompressWhitespace => {
                let mut out = Vec::with_capacity(now.len());
                for byte in now.iter() {
                    if !(blank(byte) && out.last().is_some_and(blank)) {
                        out.push(*byte);
                    }
                }
                out
            }
            Transform::DotPrefix => [b".", &now[..]].concat(),
        });
    }
    now
}
