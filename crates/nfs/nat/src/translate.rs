//! Translating one packet.

use std::fmt;
use std::net::Ipv4Addr;

use thalweg_packet::wire::ip_proto::{ICMP, TCP, UDP};
use thalweg_packet::{Batch, DropReason, Layer, Nanoseconds, field, write};

use super::Protocol;
use super::fragments::{FragmentId, Fragments};
use super::icmp;
use super::mapping::{EndPoint, Mappings};

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
    /// From an inside host to an external address of this NAT.
    Hairpin,
}

/// An address and a port, or an echo's identifier.
type End = (Ipv4Addr, u16);

/// What was done to a packet, for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// One of its ends was translated.
    Translated { from: End, to: End },
    /// A later fragment was translated like its first.
    Followed { address: Ipv4Addr },
    /// An ICMP error was translated.
    Error { about: End },
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Translated { from, to } => {
                write!(f, "{}:{} -> {}:{}", from.0, from.1, to.0, to.1)
            }
            Self::Followed { address } => {
                write!(f, "later fragment, translated like the first: {address}")
            }
            Self::Error { about } => write!(f, "ICMP error about {}:{}", about.0, about.1),
        }
    }
}

/// Translates the packet of `lane`; returns what was done.
pub(super) fn packet(
    mappings: &mut Mappings,
    fragments: &mut Fragments,
    batch: &mut Batch,
    lane: usize,
    direction: Direction,
    now: Nanoseconds,
) -> Result<Done, DropReason> {
    let headers = *batch.headers(lane);
    let fragment = FragmentId::of(batch, lane);
    if batch.field(lane, field::NW_FRAG) & field::FRAG_LATER != 0 {
        let first = fragment.and_then(|id| fragments.get(id, now));
        let address = first.ok_or(DropReason::UnknownFragment)?;
        set_address(batch, lane, direction, address);
        return Ok(Done::Followed { address });
    }
    if headers.ip_proto == ICMP && icmp::is_error(batch, lane) {
        return icmp::error(mappings, batch, lane, direction);
    }
    let Some((protocol, source, destination)) = ends(batch, lane) else {
        return Err(unsupported(batch, lane));
    };
    let is_tcp = protocol == Protocol::Tcp;
    let flags = if is_tcp { batch.field(lane, field::TCP_FLAGS) as u8 } else { 0 };
    let (from, to) = if direction == Direction::Out {
        let inside = EndPoint(protocol, source.0, source.1);
        (source, mappings.outward(inside, destination, flags, now)?)
    } else {
        let external = EndPoint(protocol, destination.0, destination.1);
        (destination, mappings.inward(external, source, flags, now)?)
    };
    if let Some(id) = fragment {
        fragments.remember(id, to.1, now);
    }
    set_end(batch, lane, direction, to);
    Ok(Done::Translated { from, to: (to.1, to.2) })
}

fn unsupported(batch: &Batch, lane: usize) -> DropReason {
    let known = matches!(batch.field(lane, field::NW_PROTO) as u8, ICMP | TCP | UDP);
    if known && batch.headers(lane).layer < Layer::Transport {
        DropReason::Malformed
    } else {
        DropReason::UnsupportedProtocol
    }
}

/// Whether the packet in `lane` is an ICMP echo request, or its first fragment.
pub(super) fn is_echo_request(batch: &Batch, lane: usize) -> bool {
    batch.headers(lane).layer >= Layer::Transport
        && batch.field(lane, field::NW_PROTO) as u8 == ICMP
        && batch.field(lane, field::TP_SRC) == 8
}

type Ends = (Protocol, End, End);

/// Protocol and both ends of the packet in `lane`; an echo's identifier belongs to the requesting
/// side, and is used as the port of both ends.
pub(super) fn ends(batch: &Batch, lane: usize) -> Option<Ends> {
    if batch.headers(lane).layer < Layer::Transport {
        return None;
    }
    let number = |f| batch.field(lane, f) as u16;
    let (tp_src, tp_dst) = (number(field::TP_SRC), number(field::TP_DST));
    let (protocol, from, to) = match batch.field(lane, field::NW_PROTO) as u8 {
        TCP => (Protocol::Tcp, tp_src, tp_dst),
        UDP => (Protocol::Udp, tp_src, tp_dst),
        ICMP if matches!(tp_src, 0 | 8) => {
            let id = number(field::ICMP_ID);
            (Protocol::Echo, id, id)
        }
        _ => return None,
    };
    let address = |f| Ipv4Addr::from(batch.field(lane, f) as u32);
    Some((protocol, (address(field::NW_SRC), from), (address(field::NW_DST), to)))
}

fn set_address(batch: &mut Batch, lane: usize, direction: Direction, address: Ipv4Addr) {
    let headers = *batch.headers(lane);
    let bytes = batch.bytes_mut(lane);
    match direction {
        Direction::Out => write::set_ipv4_src(bytes, &headers, address),
        _ => write::set_ipv4_dst(bytes, &headers, address),
    }
}

/// Writes the translated end, with all checksums.
fn set_end(batch: &mut Batch, lane: usize, direction: Direction, to: EndPoint) {
    let EndPoint(protocol, address, port) = to;
    set_address(batch, lane, direction, address);
    let headers = *batch.headers(lane);
    let bytes = batch.bytes_mut(lane);
    match (protocol, direction) {
        (Protocol::Echo, _) => write::set_icmp_id(bytes, &headers, port),
        (_, Direction::Out) => write::set_src_port(bytes, &headers, port),
        _ => write::set_dst_port(bytes, &headers, port),
    }
}
