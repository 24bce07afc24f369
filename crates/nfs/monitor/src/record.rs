//! Flows, their counts, and the records that report them.

use std::borrow::Cow;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ip_proto;
use thalweg_packet::{FiveTuple, Nanoseconds, PortIndex, address_bits};

use thalweg_nf::toolkit::flow_table::FlowWords;

/// The packets that a flow covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject {
    /// An IP flow.
    Ip(FiveTuple),
    /// All packets of another EtherType.
    Other(u16),
}

/// The identity of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FlowId {
    #[serde(with = "subject")]
    pub(super) subject: Subject,
    pub(super) in_port: u16,
    pub(super) packet_type: u16,
}

impl FlowWords<6> for FlowId {
    fn words(&self) -> [u64; 6] {
        let port = u64::from(self.in_port) << 16 | u64::from(self.packet_type);
        let tuple = match self.subject {
            Subject::Ip(tuple) => tuple,
            Subject::Other(ether_type) => return [0, 0, 0, 0, u64::from(ether_type) << 8, port],
        };
        let halves = |address| [(address_bits(address) >> 64) as u64, address_bits(address) as u64];
        let version = if tuple.src.is_ipv4() { 4 } else { 6 };
        let ports = u64::from(tuple.src_port) << 16 | u64::from(tuple.dst_port);
        let rest = ports << 16 | u64::from(tuple.protocol) << 8 | version;
        let ([a, b], [c, d]) = (halves(tuple.src), halves(tuple.dst));
        [a, b, c, d, rest, port]
    }
}

/// The counts since the last export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) first: Nanoseconds,
    pub(super) last: Nanoseconds,
    /// All TCP flags seen.
    pub(super) tcp_flags: u16,
    /// The sweep under way when the last packet arrived, 0 for none: it does not end these counts.
    #[serde(skip)]
    pub(super) sweep: u32,
}

impl Counts {
    pub(super) fn of_packets(
        time: Nanoseconds,
        (packets, bytes): (u64, u64),
        tcp_flags: u16,
    ) -> Self {
        Self { packets, bytes, first: time, last: time, tcp_flags, sweep: 0 }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.tcp_flags |= other.tcp_flags;
        self.sweep = other.sweep;
    }
}

/// Why a record was exported: the values of IPFIX's flowEndReason (RFC 5102).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub(super) enum EndReason {
    IdleTimeout = 1,
    ActiveTimeout = 2,
    ForcedEnd = 4,
    LackOfResources = 5,
}

/// One export of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) flow: FlowId,
    pub(super) counts: Counts,
    pub(super) reason: EndReason,
}

/// A record as a line of JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct JsonRecord<'a> {
    #[schemars(extend("const" = "thalweg.monitor/2"))]
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    src: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ether_type: Option<u16>,
    /// None for packets that an NF generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_port: Option<Cow<'a, str>>,
    packet_type: Cow<'a, str>,
    packets: u64,
    bytes: u64,
    start_ns: u64,
    end_ns: u64,
    tcp_flags: u16,
    end_reason: EndReason,
}

/// The names of the chain's inputs and packet types, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub(super) inputs: Vec<String>,
    pub(super) types: Vec<String>,
}

impl Labels {
    /// The names of both, if each number has one name in them.
    pub(super) fn joined(&self, other: &Self) -> Option<Self> {
        let joined = |a: &Vec<String>, b: &Vec<String>| {
            let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
            long.starts_with(short).then(|| long.clone())
        };
        let (inputs, types) = (&self.inputs, &self.types);
        Some(Self { inputs: joined(inputs, &other.inputs)?, types: joined(types, &other.types)? })
    }

    /// The name of a number; the number itself if it has none, as in the state of another chain.
    fn name(names: &[String], number: u16) -> Cow<'_, str> {
        let name = names.get(usize::from(number)).map(|name| Cow::Borrowed(name.as_str()));
        name.unwrap_or_else(|| number.to_string().into())
    }
}

impl<'a> JsonRecord<'a> {
    pub(super) fn new(record: &Record, labels: &'a Labels) -> Self {
        let (tuple, ether_type) = match record.flow.subject {
            Subject::Ip(tuple) => (Some(tuple), None),
            Subject::Other(ether_type) => (None, Some(ether_type)),
        };
        let counts = record.counts;
        Self {
            schema: "thalweg.monitor/2",
            src: tuple.map(|t| t.src),
            dst: tuple.map(|t| t.dst),
            protocol: tuple.map(|t| ip_proto::name(t.protocol)),
            src_port: tuple.map(|t| t.src_port),
            dst_port: tuple.map(|t| t.dst_port),
            ether_type,
            in_port: (record.flow.in_port != PortIndex::NONE.0)
                .then(|| Labels::name(&labels.inputs, record.flow.in_port)),
            packet_type: Labels::name(&labels.types, record.flow.packet_type),
            packets: counts.packets,
            bytes: counts.bytes,
            start_ns: counts.first.0,
            end_ns: counts.last.0,
            tcp_flags: counts.tcp_flags,
            end_reason: record.reason,
        }
    }
}

/// Serialises a subject in state records as plain values.
mod subject {
    use std::net::IpAddr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use thalweg_packet::FiveTuple;

    use super::Subject;

    type Ends = (IpAddr, IpAddr, u8, u16, u16);

    pub(super) fn serialize<S: Serializer>(subject: &Subject, out: S) -> Result<S::Ok, S::Error> {
        let plain: Result<Ends, u16> = match *subject {
            Subject::Ip(t) => Ok((t.src, t.dst, t.protocol, t.src_port, t.dst_port)),
            Subject::Other(ether_type) => Err(ether_type),
        };
        plain.serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Subject, D::Error> {
        Ok(match Result::<Ends, u16>::deserialize(input)? {
            Ok((src, dst, protocol, src_port, dst_port)) => {
                Subject::Ip(FiveTuple { src, dst, protocol, src_port, dst_port })
            }
            Err(ether_type) => Subject::Other(ether_type),
        })
    }
}
