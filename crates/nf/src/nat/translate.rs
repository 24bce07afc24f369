//! Translating one packet.

use std::net::Ipv4Addr;

use thalweg_packet::{Batch, DropReason, FlowKey, Layer, Nanoseconds, field, write};

use super::Protocol;
use super::fragments::{FragmentId, Fragments};
use super::icmp;
use super::mapping::{EndPoint, Mappings};

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
    /// From inside to an external address of ours.
    Hairpin,
}

/// Translates the packet of `lane`; says what was done.
pub(super) fn packet(
    mappings: &mut Mappings,
    fragments: &mut Fragments,
    batch: &mut Batch,
    lane: usize,
    direction: Direction,
    now: Nanoseconds,
) -> Result<String, DropReason> {
    let (key, headers) = (batch.key(lane), *batch.headers(lane));
    let id = FragmentId::read(batch.bytes(lane), headers.l3 as usize, &key);
    let id = id.ok_or(DropReason::Malformed)?;
    if key.get(field::NW_FRAG) & field::FRAG_LATER != 0 {
        let address = fragments.get(id).ok_or(DropReason::UnknownFragment)?;
        set_address(batch, lane, direction, address);
        return Ok(format!("fragment, as its first: {address}"));
    }
    if headers.ip_proto == 1 && icmp::is_error(&key) {
        return icmp::error(mappings, batch, lane, direction);
    }
    let Some((protocol, source, destination)) = ends(&key, headers.layer) else {
        return Err(unsupported(&key, headers.layer));
    };
    let flags = if protocol == Protocol::Tcp { key.get(field::TCP_FLAGS) as u16 } else { 0 };
    let (to, said) = if direction == Direction::Out {
        let to = mappings.outward((protocol, source.0, source.1), destination, flags, now)?;
        (to, format!("{}:{} -> {}:{}", source.0, source.1, to.1, to.2))
    } else {
        let to = mappings.inward((protocol, destination.0, destination.1), source, flags, now)?;
        (to, format!("{}:{} -> {}:{}", destination.0, destination.1, to.1, to.2))
    };
    if headers.fragment {
        fragments.remember(id, to.1, now);
    }
    set_end(batch, lane, direction, to);
    Ok(said)
}

fn unsupported(key: &FlowKey, layer: Layer) -> DropReason {
    let known = matches!(key.get(field::NW_PROTO), 1 | 6 | 17);
    if known && layer < Layer::Transport {
        DropReason::Malformed
    } else {
        DropReason::UnsupportedProtocol
    }
}

type Ends = (Protocol, (Ipv4Addr, u16), (Ipv4Addr, u16));

/// Protocol and both ends; an echo's identifier counts for the side that asks,
/// and stands for both.
fn ends(key: &FlowKey, layer: Layer) -> Option<Ends> {
    if layer < Layer::Transport {
        return None;
    }
    let (tp_src, tp_dst) = (key.get(field::TP_SRC) as u16, key.get(field::TP_DST) as u16);
    let (protocol, from, to) = match key.get(field::NW_PROTO) {
        6 => (Protocol::Tcp, tp_src, tp_dst),
        17 => (Protocol::Udp, tp_src, tp_dst),
        1 if matches!(tp_src, 0 | 8) => {
            let id = key.get(field::ICMP_ID) as u16;
            (Protocol::Echo, id, id)
        }
        _ => return None,
    };
    let address = |f| Ipv4Addr::from(key.get(f) as u32);
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

/// Writes the end that was translated, with all checksums.
fn set_end(batch: &mut Batch, lane: usize, direction: Direction, to: EndPoint) {
    let (protocol, address, port) = to;
    set_address(batch, lane, direction, address);
    let headers = *batch.headers(lane);
    let bytes = batch.bytes_mut(lane);
    match (protocol, direction) {
        (Protocol::Echo, _) => write::set_icmp_id(bytes, &headers, port),
        (_, Direction::Out) => write::set_src_port(bytes, &headers, port),
        _ => write::set_dst_port(bytes, &headers, port),
    }
}
