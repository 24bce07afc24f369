//! Detection rules in Snort's syntax, as Suricata interprets it.

mod address;
mod classes;
mod condition;
mod content;
mod contents;
mod contradiction;
mod draft;
mod filter;
mod fixed;
mod flow;
mod flow_number;
mod header;
mod keywords;
mod modifier;
mod names;
mod number;
mod option;
mod outline;
mod parse;
mod pattern;
mod set;
mod text;

pub(super) use address::{Ports, Variables};
pub(super) use condition::{Condition, Endpoint, What};
pub(super) use content::{
    ByteExtract, ByteJump, ByteTest, Content, MOST_DIGITS, Number, Order, Part, PayloadTest, Place,
    Regex, Transform, VARIABLES,
};
#[cfg(test)]
pub(super) use fixed::fix;
pub(super) use flow_number::{FlowNumber, Operand, Step};
#[cfg(test)]
pub(super) use outline::{Flags, Outline};
pub(super) use parse::{Loaded, load};
pub(super) use pattern::choose;
pub(super) use set::{Findings, examine, summed};

use super::buffer::{self, Buffer};

/// What a rule does when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Evaluate no later rule for the packet.
    Pass,
    /// Alert and drop the packet.
    Drop,
    /// Alert.
    Alert,
}

impl Action {
    /// The action as an alert names it.
    pub(super) fn verdict(self) -> &'static str {
        if self == Self::Drop { "blocked" } else { "allowed" }
    }
}

/// The protocol in a rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Any packet, with or without IP.
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

    /// Whether it covers packets of any transport protocol.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Any | Self::Ip | Self::Ipv4 | Self::Ipv6)
    }

    pub(super) fn may_be_other(self) -> bool {
        !matches!(self, Self::Tcp | Self::TcpPacket | Self::TcpStream)
    }
}

/// The conditions of `flow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowTest {
    /// `to_server` or `from_client`: true; `to_client` or `from_server`: false.
    pub(super) to_server: Option<bool>,
    pub(super) established: Option<bool>,
}

/// A test or an action of `flowbits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlowBit {
    Set(String),
    Unset(String),
    Toggle(String),
    /// At least one of these is set.
    IsSet(Vec<String>),
    /// At least one of these is not set.
    IsNotSet(Vec<String>),
}

/// The data that payload tests inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// Each packet by itself.
    Packet,
    /// The stream, and packets outside any stream.
    Stream,
    /// Both.
    Both,
}

/// The sides whose bytes `stream_size` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    Client,
    Server,
    Both,
    Either,
}

/// `stream_size`: the number of bytes sent lies in `low..=high`, or, if negated, outside it.
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
    /// One alert per interval, at the `count`th match.
    Both,
    /// Matches after the first `count` of an interval.
    Detection,
}

/// The key by which a filter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    Source,
    Destination,
    Both,
    Rule,
    Flow,
}

/// `threshold` and `detection_filter`: limits how often a rule alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) kind: FilterKind,
    pub(super) track: Track,
    pub(super) count: u32,
    /// The length of an interval.
    pub(super) seconds: u32,
    /// Matches with the same value of this port count once.
    pub(super) unique_on: Option<UniqueOn>,
}

/// The port that must differ.
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
    /// Whether the severity is the rule's own rather than its class's.
    pub(super) prioritised: bool,
    pub(super) flow: FlowTest,
    pub(super) bits: Vec<FlowBit>,
    pub(super) numbers: Vec<FlowNumber>,
    pub(super) no_alert: bool,
    pub(super) conditions: Vec<Condition>,
    pub(super) stream_sizes: Vec<StreamSize>,
    pub(super) filters: Vec<Filter>,
    /// The application protocol required of the connection.
    pub(super) application: Option<buffer::Protocol>,
    /// The tests of the payload and of buffers; a buffer occurs more than once only if a message
    /// can have several of it.
    pub(super) parts: Vec<Part>,
    pub(super) view: Option<View>,
    pub(super) fast_pattern: FastPattern,
}

/// The content by which a rule is searched first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FastPattern {
    pub(super) buffer: Buffer,
    /// The bytes to find there, ignoring case; `None` for a rule without a content.
    pub(super) bytes: Option<Vec<u8>>,
    /// Their only place in the buffer, if they have one.
    pub(super) place: Option<u32>,
}

impl Rule {
    /// Whether it decides about packets by how often it has matched.
    pub(super) fn acts_by_count(&self) -> bool {
        let counts = |filter: &Filter| filter.kind == FilterKind::Detection;
        self.action == Action::Drop && self.filters.iter().any(counts)
    }

    /// Whether the rule has conditions on addresses, ports and protocol only, as Suricata sees it:
    /// such a rule decides once for each direction of a flow, not for each packet.
    pub(super) fn is_ip_only(&self) -> bool {
        let of_protocol = |condition: &Condition| {
            matches!(condition, Condition::Range { what: What::IpProtocol, .. })
        };
        self.conditions.iter().all(of_protocol)
            && self.stream_sizes.is_empty()
            && self.parts.is_empty()
            && self.application.is_none()
            && self.bits.iter().all(|bit| matches!(bit, FlowBit::Set(_)))
            && self.numbers.is_empty()
            && self.flow == FlowTest::default()
            && self.protocol != Protocol::Any
    }

    /// Whether the result of the rule depends on the packet's connection.
    pub(super) fn asks_for_connections(&self) -> bool {
        self.flow != FlowTest::default()
            || !self.bits.is_empty()
            || !self.numbers.is_empty()
            || !self.stream_sizes.is_empty()
            || self.application.is_some()
            || self.is_of_messages()
            || self.is_ip_only()
    }

    /// Whether it concerns only datagrams of a few ports, at most `most` on one side.
    pub(super) fn is_of_few_ports(&self, most: usize) -> bool {
        let ports = [&self.source.ports, &self.destination.ports];
        self.protocol == Protocol::Udp && ports.iter().any(|ports| ports.are_few(most))
    }

    /// The first ports of ranges within which the rule treats all ports alike.
    pub(super) fn port_begins(&self) -> impl Iterator<Item = u16> {
        self.source.ports.begins().chain(self.destination.ports.begins())
    }

    /// Whether the rule is evaluated for a message of the direction `to_server` as if it had the other
    /// direction: events belong to request and response together, as in Suricata, whose rules ask
    /// for some events of responses in the direction of requests.
    pub(super) fn turns_to(&self, to_server: bool) -> bool {
        self.flow.to_server.is_some_and(|wanted| wanted != to_server)
            && self.parts.iter().any(|p| p.buffer == Buffer::HttpEvent)
    }

    /// Whether the rule is about an application's messages.
    pub(super) fn is_of_messages(&self) -> bool {
        self.parts.iter().any(|p| p.buffer != Buffer::Payload)
    }
}
