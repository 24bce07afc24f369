//! Tests of header fields.

use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6, TCP};
use thalweg_packet::{Headers, field};

use super::super::events::Event;
use super::super::fit::Subject;
use super::address::{Addresses, Ports};

/// One endpoint in a rule's header.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Endpoint {
    pub(in super::super) addresses: Addresses,
    pub(in super::super) ports: Ports,
}

/// The field that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum What {
    PayloadSize,
    Ttl,
    Tos,
    IpId,
    IpProtocol,
    IcmpType,
    IcmpCode,
    IcmpId,
    IcmpSequence,
    TcpSequence,
    TcpAcknowledgment,
    TcpWindow,
    FragmentOffset,
}

impl What {
    /// The largest value of the field.
    pub(super) fn most(self) -> u64 {
        match self {
            Self::Ttl | Self::Tos | Self::IpProtocol | Self::IcmpType | Self::IcmpCode => 255,
            Self::FragmentOffset => 0x1fff,
            Self::TcpSequence | Self::TcpAcknowledgment => u32::MAX.into(),
            Self::PayloadSize
            | Self::IpId
            | Self::IcmpId
            | Self::IcmpSequence
            | Self::TcpWindow => u16::MAX.into(),
        }
    }
}

/// A rule's condition on the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Condition {
    /// The field lies in `low..=high`, or, if negated, outside it.
    Range { what: What, low: u64, high: u64, negated: bool },
    /// The TCP flags outside `ignored` are exactly `flags` (`=`), or include
    /// all (`+`), any (`*`) or none (`!`) of them.
    TcpFlags { flags: u8, ignored: u8, how: char },
    /// The same for the fragment bits: reserved 4, don't fragment 2, more 1.
    FragmentBits { bits: u8, how: char },
    /// Source and destination address are the same.
    SameAddress,
    /// The packet has an IPv4 option of this number, or, with `None`, any option.
    IpOption(Option<u8>),
    /// The packet has this defect.
    Event(Event),
}

impl Condition {
    /// Whether the packet fulfils the condition. A packet without the field does not.
    pub(in super::super) fn holds(&self, subject: &Subject<'_>) -> bool {
        let Subject { bytes, headers, .. } = *subject;
        match *self {
            Self::Event(event) => subject.events.contains(event),
            Self::IpOption(number) => has_option(bytes, headers, number),
            Self::Range { what, low, high, negated } => {
                value(what, subject).is_some_and(|v| (low..=high).contains(&v) != negated)
            }
            Self::TcpFlags { .. } => {
                headers.has_transport(TCP)
                    && self.suits_flags(subject.field(field::TCP_FLAGS) as u8)
            }
            Self::FragmentBits { bits, how } => byte(bytes, headers.l3 as usize + 6)
                .is_some_and(|b| headers.is_ipv4() && bits_match((b >> 5) as u8, bits, how)),
            Self::SameAddress => {
                if headers.is_ipv4() {
                    subject.field(field::NW_SRC) == subject.field(field::NW_DST)
                } else {
                    headers.is_ipv6()
                        && subject.field128(field::IPV6_SRC) == subject.field128(field::IPV6_DST)
                }
            }
        }
    }

    /// Whether a condition on TCP flags holds for these; `true` for other conditions.
    pub(in super::super) fn suits_flags(&self, there: u8) -> bool {
        match *self {
            Self::TcpFlags { flags, ignored, how } => {
                bits_match(there & !ignored, flags & !ignored, how)
            }
            _ => true,
        }
    }
}

impl Condition {
    /// Whether a condition on fragment bits holds for these; `true` for other conditions.
    pub(super) fn suits_fragment_bits(&self, there: u8) -> bool {
        match *self {
            Self::FragmentBits { bits, how } => bits_match(there, bits, how),
            _ => true,
        }
    }
}

fn has_option(bytes: &[u8], headers: &Headers, number: Option<u8>) -> bool {
    let start = usize::from(headers.l3);
    let Some(first) = bytes.get(start).filter(|_| headers.is_ipv4()) else { return false };
    let end = start + usize::from(first & 15) * 4;
    let mut options = bytes.get(start + 20..end).unwrap_or(&[]);
    loop {
        options = match options {
            [kind, ..] if number.is_none_or(|n| n == *kind) => return true,
            [1, rest @ ..] => rest,
            [_, length, ..] if *length >= 2 => options.get(usize::from(*length)..).unwrap_or(&[]),
            _ => return false,
        };
    }
}

fn bits_match(there: u8, asked: u8, how: char) -> bool {
    match how {
        '+' => there & asked == asked,
        '*' => there & asked != 0,
        '!' => there & asked == 0,
        _ => there == asked,
    }
}

fn byte(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at).map(|b| u64::from(*b))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: &[u8; N] = bytes.get(at..)?.first_chunk()?;
    Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn value(what: What, subject: &Subject<'_>) -> Option<u64> {
    let Subject { bytes, headers, .. } = *subject;
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    let icmp = headers.has_transport(ICMP) || headers.has_transport(ICMPV6);
    let tcp = headers.has_transport(TCP);
    let ip = headers.is_ipv4() || headers.is_ipv6();
    match what {
        What::PayloadSize => Some(u64::from(headers.end.saturating_sub(headers.payload))),
        What::Ttl => ip.then(|| subject.field(field::NW_TTL)),
        What::Tos => headers.is_ipv4().then(|| subject.field(field::NW_TOS)),
        What::IpId => headers.is_ipv4().then(|| number::<2>(bytes, l3 + 4)).flatten(),
        What::IpProtocol => ip.then(|| subject.field(field::NW_PROTO)),
        What::IcmpType => icmp.then(|| subject.field(field::TP_SRC)),
        What::IcmpCode => icmp.then(|| subject.field(field::TP_DST)),
        What::IcmpId => icmp.then(|| number::<2>(bytes, l4 + 4)).flatten(),
        What::IcmpSequence => icmp.then(|| number::<2>(bytes, l4 + 6)).flatten(),
        What::TcpSequence => tcp.then(|| number::<4>(bytes, l4 + 4)).flatten(),
        What::TcpAcknowledgment => tcp.then(|| number::<4>(bytes, l4 + 8)).flatten(),
        What::TcpWindow => tcp.then(|| number::<2>(bytes, l4 + 14)).flatten(),
        What::FragmentOffset => {
            let word = headers.is_ipv4().then(|| number::<2>(bytes, l3 + 6)).flatten()?;
            Some(word & 0x1fff)
        }
    }
}
