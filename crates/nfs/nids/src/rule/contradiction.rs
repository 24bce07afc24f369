//! Detects rules whose conditions exclude each other.

use std::ops::Range;

use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6, SCTP, TCP, UDP};

use super::super::buffer::{self, Buffer};
use super::condition::{Condition, What};
use super::content::{Number, PayloadTest};
use super::text::{Fault, Piece};
use super::{Protocol, Rule, View};

impl Rule {
    /// Whether some packet can have the protocols and header fields that the rule requires.
    pub(super) fn may_fit_a_packet(&self) -> bool {
        let by_ip = |v4| (0..=255).any(|transport| self.may_be_carried(v4, transport));
        let flags = (0..=255).any(|flags| self.conditions.iter().all(|c| c.suits_flags(flags)));
        let bits = (0..8).any(|bits| self.conditions.iter().all(|c| c.suits_fragment_bits(bits)));
        (by_ip(true) || by_ip(false)) && flags && bits && !self.has_disjoint_ranges()
    }

    /// Whether IPv4 packets (or IPv6 packets) of this transport protocol can match.
    fn may_be_carried(&self, v4: bool, transport: u8) -> bool {
        let applications = self.parts.iter().filter_map(|p| p.buffer.protocol());
        self.protocol.may_be_carried(v4, transport)
            && (self.stream_sizes.is_empty() || transport == TCP)
            && self.conditions.iter().all(|c| c.may_hold(v4, transport))
            && self.application.into_iter().chain(applications).all(|p| may_carry(transport, p))
    }

    /// Whether one field must lie in two disjoint ranges, or both inside and outside one.
    fn has_disjoint_ranges(&self) -> bool {
        let ranges: Vec<_> = self.conditions.iter().filter_map(Condition::range).collect();
        let excluded = self.conditions.iter().any(|c| match c {
            Condition::Range { what, low, high, negated: true } => {
                ranges.iter().any(|(other, range)| {
                    other == what && *low <= range.start && range.end - 1 <= *high
                })
            }
            _ => false,
        });
        excluded
            || ranges.iter().enumerate().any(|(i, (what, range))| {
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
            Self::Tcp | Self::TcpPacket | Self::TcpStream => transport == TCP,
            Self::Udp => transport == UDP,
            Self::Sctp => transport == SCTP,
            Self::Icmp => transport == if v4 { ICMP } else { ICMPV6 },
            Self::Icmpv6 => !v4 && transport == ICMPV6,
        }
    }
}

fn may_carry(transport: u8, application: buffer::Protocol) -> bool {
    transport == TCP || transport == UDP && application == buffer::Protocol::Dns
}

impl Condition {
    fn may_hold(&self, v4: bool, transport: u8) -> bool {
        match self {
            Self::Range { what, low, high, negated } => match what {
                What::IpProtocol => (*low..=*high).contains(&transport.into()) != *negated,
                What::IcmpType | What::IcmpCode | What::IcmpId | What::IcmpSequence => {
                    matches!(transport, ICMP | ICMPV6)
                }
                What::TcpSequence | What::TcpAcknowledgment | What::TcpWindow => transport == TCP,
                What::Tos | What::IpId | What::FragmentOffset => v4,
                What::PayloadSize | What::Ttl => true,
            },
            Self::TcpFlags { .. } => transport == TCP,
            Self::FragmentBits { .. } | Self::IpOption(_) => v4,
            Self::SameAddress | Self::Event(_) => true,
        }
    }

    /// The field and its required values, if they form one range.
    fn range(&self) -> Option<(What, Range<u64>)> {
        match *self {
            Self::Range { what, low, high, negated: false } => Some((what, low..high + 1)),
            _ => None,
        }
    }
}

/// Rejects a rule whose contents do not fit the size that it requires of the payload or buffer.
/// `sized` holds the positions at which the rule tests the sizes of its parts.
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
            let message = "fewer bytes than the rule requires elsewhere";
            let noun = if least == 1 { "byte" } else { "bytes" };
            return Err(Fault::new(span, message, format!("room for {least} {noun}")));
        }
    }
    Ok(())
}

/// The minimum and the maximum size with which the tests can hold.
fn sizes(tests: &[PayloadTest]) -> (u64, u64) {
    // A number read from the packet may be 0.
    let literal = |number: Option<Number>| match number {
        Some(Number::Literal(n)) => n,
        _ => 0,
    };
    let (mut least, mut most) = (0, u64::MAX);
    // The earliest end of the previous match.
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
