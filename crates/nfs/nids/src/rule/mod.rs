//! Detection rules in Snort's syntax, as Suricata reads it.

mod address;
mod classes;
mod condition;
mod content;
mod contradiction;
mod draft;
mod header;
mod number;
mod option;
mod parse;
mod set;
mod text;

pub(super) use address::Variables;
pub(super) use condition::{Condition, Endpoint};
pub(super) use content::{
    ByteExtract, ByteJump, ByteTest, Content, MOST_DIGITS, Number, Order, Part, PayloadTest, Place,
    Regex, Transform, VARIABLES,
};
pub(super) use parse::{Loaded, load};
pub(super) use set::warnings;

use super::buffer::{self, Buffer};

/// What a rule does when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// No later rule is asked about the packet.
    Pass,
    /// Alert, and the packet ends here.
    Drop,
    /// Alert.
    Alert,
}

impl Action {
    /// The action in an alert.
    pub(super) fn verdict(self) -> &'static str {
        if self == Self::Drop { "blocked" } else { "allowed" }
    }
}

/// The protocol in a rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Any packet, with IP or without.
    Any,
    Ip,
    Ipv4,
    Ipv6,
    Tcp,
    /// TCP, packet by packet.
    TcpPacket,
    /// TCP, as streams only.
    TcpStream,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
}

impl Protocol {
    pub(super) fn may_be_tcp(self) -> bool {
        use Protocol::{Icmp, Icmpv6, Sctp, Udp};
        !matches!(self, Udp | Sctp | Icmp | Icmpv6)
    }

    /// Whether packets of any transport protocol are meant.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Any | Self::Ip | Self::Ipv4 | Self::Ipv6)
    }

    pub(super) fn may_be_other(self) -> bool {
        !matches!(self, Self::Tcp | Self::TcpPacket | Self::TcpStream)
    }
}

/// What `flow` demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowTest {
    /// `to_server` or `from_client`: true; `to_client` or `from_server`: false.
    pub(super) to_server: Option<bool>,
    pub(super) established: Option<bool>,
}

/// What `flowbits` tests or does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlowBit {
    Set(String),
    Unset(String),
    Toggle(String),
    /// Any of these is set.
    IsSet(Vec<String>),
    /// None of these is set.
    IsNotSet(Vec<String>),
}

/// What a payload's tests look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Each packet by itself.
    Packet,
    /// The stream, and packets that are in none.
    Stream,
    /// Both.
    Both,
}

/// Whose bytes `stream_size` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    Client,
    Server,
    Both,
    Either,
}

/// `stream_size`: how many bytes were sent lies in `low..=high`, or, negated, does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamSize {
    pub(super) sides: Sides,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) negated: bool,
}

/// How a filter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterKind {
    /// The first `count` alerts of an interval.
    Limit,
    /// Each `count`th alert.
    Threshold,
    /// One alert an interval, at the `count`th match.
    Both,
    /// Matches after the first `count` of an interval.
    Detection,
}

/// What a filter counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    Source,
    Destination,
    Both,
    Rule,
    Flow,
}

/// `threshold` and `detection_filter`: how often a rule may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) kind: FilterKind,
    pub(super) track: Track,
    pub(super) count: u32,
    /// The length of an interval.
    pub(super) seconds: u32,
    /// Matches with the same of these ports count once.
    pub(super) unique_on: Option<UniqueOn>,
}

/// Which ports have to differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UniqueOn {
    SourcePort,
    DestinationPort,
}

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    pub(super) protocol: Protocol,
    pub(super) source: Endpoint,
    pub(super) destination: Endpoint,
    pub(super) both_ways: bool,
    pub(super) message: String,
    pub(super) sid: u32,
    pub(super) gid: u32,
    pub(super) rev: u32,
    pub(super) category: String,
    pub(super) severity: u8,
    /// Whether the severity is the rule's own and not its class's.
    pub(super) prioritised: bool,
    pub(super) flow: FlowTest,
    pub(super) bits: Vec<FlowBit>,
    pub(super) no_alert: bool,
    pub(super) conditions: Vec<Condition>,
    pub(super) stream_sizes: Vec<StreamSize>,
    pub(super) filters: Vec<Filter>,
    /// The application protocol that the connection has to speak.
    pub(super) application: Option<buffer::Protocol>,
    /// What is asked of the payload and of buffers; none twice but those that a message
    /// has several of.
    pub(super) parts: Vec<Part>,
    pub(super) view: Option<View>,
    pub(super) fast_pattern: FastPattern,
}

/// Where a rule is looked for first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FastPattern {
    pub(super) buffer: Buffer,
    /// The bytes to find there, in any case; `None` for a rule without.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Rule {
    /// Whether nothing but addresses is asked: such a rule speaks once for each
    /// direction of a flow, not for each packet.
    pub(super) fn is_ip_only(&self) -> bool {
        self.conditions.is_empty()
            && self.stream_sizes.is_empty()
            && self.parts.is_empty()
            && self.application.is_none()
            && self.bits.is_empty()
            && self.flow == FlowTest::default()
            && self.source.ports.is_any()
            && self.destination.ports.is_any()
            && matches!(self.protocol, Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6)
    }
    /// Whether what is known of a packet's connection changes what the rule does.
    pub(super) fn asks_for_connections(&self) -> bool {
        self.flow != FlowTest::default()
            || !self.bits.is_empty()
            || !self.stream_sizes.is_empty()
            || self.application.is_some()
            || self.is_of_messages()
            || self.is_ip_only()
    }

    /// Where ranges of ports begin that are all alike to the rule.
    pub(super) fn port_begins(&self) -> impl Iterator<Item = u16> {
        self.source.ports.begins().chain(self.destination.ports.begins())
    }

    /// Whether the rule is about an application's messages.
    pub(super) fn is_of_messages(&self) -> bool {
        self.parts.iter().any(|p| p.buffer != Buffer::Payload)
    }
}
