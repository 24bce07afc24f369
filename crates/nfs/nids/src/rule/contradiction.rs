//! Rules that ask for what cannot be together.

use std::ops::Range;

use super::super::buffer::{self, Buffer};
use super::condition::{Condition, What};
use super::content::{Number, PayloadTest};
use super::text::{Fault, Piece};
use super::{Protocol, Rule, View};

impl Rule {
    /// Whether a packet may have the protocols and header fields that are asked for.
    pub(super) fn may_fit_a_packet(&self) -> bool {
        let by_ip = |v4| (0..=255).any(|transport| self.may_be_carried(v4, transport));
        let flags = (0..=255).any(|flags| self.conditions.iter().all(|c| c.suits_flags(flags)));
        (by_ip(true) || by_ip(false)) && flags && !self.has_disjoint_ranges()
    }

    /// Whether packets of IPv4, or IPv6, and this transport protocol may fit.
    fn may_be_carried(&self, v4: bool, transport: u8) -> bool {
        let applications = self.parts.iter().filter_map(|p| p.buffer.protocol());
        self.protocol.may_be_carried(v4, transport)
            && (self.stream_sizes.is_empty() || transport == 6)
            && self.conditions.iter().all(|c| c.may_hold(v4, transport))
            && self.application.into_iter().chain(applications).all(|p| may_carry(transport, p))
    }

    /// Whether one field is to lie in two ranges that have nothing in common.
    fn has_disjoint_ranges(&self) -> bool {
        let ranges: Vec<_> = self.conditions.iter().filter_map(Condition::range).collect();
        ranges.iter().enumerate().any(|(i, (what, range))| {
            let disjoint =
                |other: &Range<u64>| range.start >= other.end || other.start >= range.end;
            ranges[..i].iter().any(|(other, theirs)| other == what && disjoint(theirs))
        })
    }
}

impl Protocol {
    fn may_be_carried(self, v4: bool, transport: u8) -> bool {
        match self {
            Self::Any | Self::Ip => true,
            Self::Ipv4 => v4,
            Self::Ipv6 => !v4,
            Self::Tcp | Self::TcpPacket | Self::TcpStream => transport == 6,
            Self::Udp => transport == 17,
            Self::Sctp => transport == 132,
            Self::Icmp => transport == if v4 { 1 } else { 58 },
            Self::Icmpv6 => !v4 && transport == 58,
        }
    }
}

fn may_carry(transport: u8, application: buffer::Protocol) -> bool {
    transport == 6 || transport == 17 && application == buffer::Protocol::Dns
}

impl Condition {
    fn may_hold(&self, v4: bool, transport: u8) -> bool {
        match self {
            Self::Range { what, low, high, negated } => match what {
                What::IpProtocol => (*low..=*high).contains(&transport.into()) != *negated,
                What::IcmpType | What::IcmpCode | What::IcmpId | What::IcmpSequence => {
                    matches!(transport, 1 | 58)
                }
                What::TcpSequence | What::TcpAcknowledgment | What::TcpWindow => transport == 6,
                What::Tos | What::IpId | What::FragmentOffset => v4,
                What::PayloadSize | What::Ttl => true,
            },
            Self::TcpFlags { .. } => transport == 6,
            Self::FragmentBits { .. } | Self::IpOption(_) => v4,
            Self::SameAddress | Self::Event(_) => true,
        }
    }

    /// The field and the values it has to have, when they are one range.
    fn range(&self) -> Option<(What, Range<u64>)> {
        match *self {
            Self::Range { what, low, high, negated: false } => Some((what, low..high + 1)),
            _ => None,
        }
    }
}

/// Refuses a rule whose contents do not go into the payload or buffer whose size it asks for.
/// The sizes of its parts are asked for at the places `sized`.
pub(super) fn check_sizes(
    rule: &Rule,
    sized: &[(usize, Range<usize>)],
    head: Piece<'_>,
) -> Result<(), Fault> {
    for (index, part) in rule.parts.iter().enumerate() {
        let (mut least, mut most) = sizes(&part.tests);
        if part.buffer == Buffer::Payload && rule.view == Some(View::Packet) {
            let ranges = rule.conditions.iter().filter_map(Condition::range);
            for (_, range) in ranges.filter(|(what, _)| *what == What::PayloadSize) {
                least = least.max(range.start);
                most = most.min(range.end - 1);
            }
        }
        if least > most {
            let place = sized.iter().rev().find(|(part, _)| *part == index);
            let span = place.map_or(head.span(), |(_, span)| span.clone());
            let message = "fewer bytes than the rule asks for otherwise";
            return Err(Fault::new(span, message, format!("room for {least} bytes")));
        }
    }
    Ok(())
}

/// The fewest bytes in which the tests may hold, and the most.
fn sizes(tests: &[PayloadTest]) -> (u64, u64) {
    // What is read from the packet may be 0.
    let literal = |number: Option<Number>| match number {
        Some(Number::Literal(n)) => n,
        _ => 0,
    };
    let (mut least, mut most) = (0, u64::MAX);
    // Where the match before ends at the earliest.
    let mut cursor = 0i64;
    for test in tests {
        match test {
            PayloadTest::Content(content) if !content.negated => {
                let from = if content.is_relative() { cursor } else { 0 };
                let from = from.saturating_add(literal(content.distance));
                let start = from.max(literal(content.offset)).max(0);
                cursor = start.saturating_add(content.bytes.len() as i64);
                least = least.max(cursor.unsigned_abs());
            }
            PayloadTest::IsDataAt { at: Number::Literal(at), relative: false, negated: true } => {
                most = most.min(at.unsigned_abs());
            }
            PayloadTest::IsDataAt { at: Number::Literal(at), relative, negated: false } => {
                let from = if *relative { cursor } else { 1 };
                least = least.max(from.saturating_add(*at).unsigned_abs());
            }
            PayloadTest::Size { low, high, negated: false } => {
                least = least.max(*low);
                most = most.min(*high);
            }
            PayloadTest::Regex(regex) if regex.negated || regex.relative => {}
            PayloadTest::Regex(_) | PayloadTest::ByteJump(_) | PayloadTest::ByteExtract(_) => {
                cursor = 0;
            }
            _ => {}
        }
    }
    (least, most)
}
