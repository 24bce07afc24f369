//! Records as IPFIX messages (RFC 7011), for a file (RFC 5655).

use std::net::IpAddr;

use super::record::{Record, Subject};
use thalweg_nf::toolkit::output::Records;

const VERSION: u16 = 10;
const MESSAGE_HEADER: usize = 16;
const TEMPLATE_SET: u16 = 2;
/// The most bytes of one message, well below the limit of its length field, 65,535.
const MESSAGE_LIMIT: usize = 60_000;

/// Element and length of the fields that end each kind of record:
/// octetDeltaCount, packetDeltaCount, flowStartMilliseconds,
/// flowEndMilliseconds, tcpControlBits, ingressInterface, flowEndReason.
const COUNTS: [(u16, u16); 7] = [(1, 8), (2, 8), (152, 8), (153, 8), (6, 2), (10, 4), (136, 1)];
/// sourceTransportPort, destinationTransportPort, protocolIdentifier.
const TRANSPORT: [(u16, u16); 3] = [(7, 2), (11, 2), (4, 1)];

/// The kinds of record, which are also the numbers of their templates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Template {
    Ipv4 = 256,
    Ipv6 = 257,
    Other = 258,
}

impl Template {
    const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Other];

    fn of(record: &Record) -> Self {
        match record.flow.subject {
            Subject::Ip(tuple) if tuple.src.is_ipv4() => Self::Ipv4,
            Subject::Ip(_) => Self::Ipv6,
            Subject::Other(_) => Self::Other,
        }
    }

    /// Elements and their lengths, in order.
    fn fields(self) -> Vec<(u16, u16)> {
        let mut fields = match self {
            Self::Ipv4 => vec![(8, 4), (12, 4)], // source and destination address
            Self::Ipv6 => vec![(27, 16), (28, 16)], // likewise
            Self::Other => vec![(256, 2)],       // ethernetType
        };
        if self != Self::Other {
            fields.extend(TRANSPORT);
        }
        fields.extend(COUNTS);
        fields
    }
}

/// Builds messages; numbers the data records as the RFC requires.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    sequence: u32,
}

impl Messages {
    /// Messages with `records`, concatenated.
    pub(super) fn data(&mut self, records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = records;
        while !rest.is_empty() {
            let (mut sets, mut bytes, mut taken) = (Vec::<(u16, Vec<u8>)>::new(), 0, 0);
            let mut newest = 0;
            for record in rest {
                let template = Template::of(record) as u16;
                let at = sets.iter().position(|(id, _)| *id == template).unwrap_or_else(|| {
                    sets.push((template, Vec::new()));
                    sets.len() - 1
                });
                let before = sets[at].1.len();
                data_record(record, &mut sets[at].1);
                bytes += sets[at].1.len() - before;
                newest = newest.max(record.counts.last.0);
                taken += 1;
                if bytes > MESSAGE_LIMIT {
                    break;
                }
            }
            let seconds = (newest / 1_000_000_000) as u32;
            out.extend(message(seconds, self.sequence, &sets));
            self.sequence = self.sequence.wrapping_add(taken as u32);
            rest = &rest[taken..];
        }
        out
    }
}

/// The form of a file of messages: the first one has the templates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form;

impl Records for Form {
    fn whole(&self, bytes: &[u8]) -> usize {
        let mut whole = 0;
        while let Some(length) = length(&bytes[whole..]) {
            if length > bytes.len() - whole {
                break;
            }
            whole += length;
        }
        whole
    }

    fn first(&self, bytes: &[u8]) -> usize {
        length(bytes).unwrap_or(bytes.len())
    }

    /// The templates, with the time and the sequence number of the message after them.
    fn header(&self, next: &[u8]) -> Vec<u8> {
        let number = |at: usize| {
            let bytes = next.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_be_bytes)
        };
        templates(number(4), number(8))
    }
}

/// The length of the first message of `messages` by its header, if that is there whole.
fn length(messages: &[u8]) -> Option<usize> {
    let header = messages.get(..MESSAGE_HEADER)?;
    Some(usize::from(u16::from_be_bytes([header[2], header[3]])).max(MESSAGE_HEADER))
}

/// The message with all templates, the first of a file.
fn templates(export_seconds: u32, sequence: u32) -> Vec<u8> {
    let mut set = Vec::new();
    for template in Template::ALL {
        let fields = template.fields();
        put(&mut set, template as u16);
        put(&mut set, fields.len() as u16);
        for (element, length) in fields {
            put(&mut set, element);
            put(&mut set, length);
        }
    }
    message(export_seconds, sequence, &[(TEMPLATE_SET, set)])
}

fn message(export_seconds: u32, sequence: u32, sets: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let length = MESSAGE_HEADER + sets.iter().map(|(_, set)| 4 + set.len()).sum::<usize>();
    let mut out = Vec::with_capacity(length);
    put(&mut out, VERSION);
    put(&mut out, length as u16);
    out.extend_from_slice(&export_seconds.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&0u32.to_be_bytes()); // observation domain
    for (id, set) in sets {
        put(&mut out, *id);
        put(&mut out, 4 + set.len() as u16);
        out.extend_from_slice(set);
    }
    out
}

fn put(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn data_record(record: &Record, out: &mut Vec<u8>) {
    match record.flow.subject {
        Subject::Ip(tuple) => {
            for address in [tuple.src, tuple.dst] {
                match address {
                    IpAddr::V4(a) => out.extend_from_slice(&a.octets()),
                    IpAddr::V6(a) => out.extend_from_slice(&a.octets()),
                }
            }
            put(out, tuple.src_port);
            put(out, tuple.dst_port);
            out.push(tuple.protocol);
        }
        Subject::Other(ether_type) => put(out, ether_type),
    }
    let c = &record.counts;
    let milliseconds = |ns: u64| (ns / 1_000_000).to_be_bytes();
    out.extend_from_slice(&c.bytes.to_be_bytes());
    out.extend_from_slice(&c.packets.to_be_bytes());
    out.extend_from_slice(&milliseconds(c.first.0));
    out.extend_from_slice(&milliseconds(c.last.0));
    put(out, c.tcp_flags);
    out.extend_from_slice(&u32::from(record.flow.in_port).to_be_bytes());
    out.push(record.reason as u8);
}
