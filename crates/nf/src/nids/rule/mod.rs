//! Detection rules in Snort's syntax, as Suricata reads it.

mod address;
mod condition;
mod content;
mod option;
mod parse;
mod text;

pub(super) use address::Variables;
pub(super) use condition::{Condition, Endpoint};
pub(super) use content::{ByteJump, ByteTest, Content, Order, PayloadTest, Regex};
pub(super) use parse::load;

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
    Ip,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
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
    pub(super) payload: Vec<PayloadTest>,
    /// The content that the prefilter looks for.
    pub(super) fast_pattern: Option<Vec<u8>>,
}

impl Rule {
    /// Whether nothing but addresses is asked: such a rule speaks once for each
    /// direction of a flow, not for each packet.
    pub(super) fn is_ip_only(&self) -> bool {
        self.conditions.is_empty()
            && self.payload.is_empty()
            && self.bits.is_empty()
            && self.flow == FlowTest::default()
            && self.source.ports.is_any()
            && self.destination.ports.is_any()
            && matches!(self.protocol, Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6)
    }
}
