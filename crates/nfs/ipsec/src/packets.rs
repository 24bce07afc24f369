//! What a packet is to IPsec, and the association that opens it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::ip_proto::{ESP, UDP};
use thalweg_packet::{Batch, DropReason, ParseStatus, TransposedKeys, field};

use super::config::Databases;
use super::inbound::Arrival;
use super::sa;

/// How IPsec handles a packet.
pub(super) enum PacketKind {
    /// It arrives through one of our tunnels.
    Tunnel,
    /// It is IP, and the policies decide.
    Clear,
    /// A NAT keepalive of a tunnel.
    Keepalive,
    Malformed,
    NotIp,
}

/// How IPsec handles the packet of `lane`.
pub(super) fn kind(databases: &Databases, batch: &Batch, lane: usize) -> PacketKind {
    let headers = batch.headers(lane);
    if !headers.is_ipv4() && !headers.is_ipv6() {
        let claims_ip =
            matches!(batch.field(lane, field::DL_TYPE) as u16, ethertype::IPV4 | ethertype::IPV6);
        return if claims_ip { PacketKind::Malformed } else { PacketKind::NotIp };
    }
    match headers.ip_proto {
        ESP if databases.is_end(destination(batch.keys(), lane)) => PacketKind::Tunnel,
        UDP if !databases.udp_ends.is_empty() && headers.l4 != 0 => {
            let end = (destination(batch.keys(), lane), batch.field(lane, field::TP_DST) as u16);
            if !databases.udp_ends.contains(&end) {
                return PacketKind::Clear;
            }
            // IKE starts with four zero bytes here (RFC 3948, section 2).
            match batch.bytes(lane).get(headers.payload.into()..headers.end.into()) {
                Some([0xff]) => PacketKind::Keepalive,
                Some([0, 0, 0, 0, ..]) => PacketKind::Clear,
                _ => PacketKind::Tunnel,
            }
        }
        _ => PacketKind::Clear,
    }
}

/// The tunnel packet of `lane`, with its SA.
pub(super) fn arrival<'a>(
    databases: &'a Databases,
    batch: &Batch,
    lane: usize,
) -> Result<Arrival<'a>, Refusal> {
    let (sa, place) = association(databases, batch, lane)?;
    Arrival::new(sa, batch, lane, place).map_err(|reason| (reason, "refused by its SA"))
}

/// Whether the tunnel packet of `lane`, whose SA refuses it as replayed, may be new once packets that a
/// device has are known to be authentic: when they move the window, a packet with half a sequence number
/// may get another one.
pub(super) fn may_be_new_later(databases: &Databases, batch: &Batch, lane: usize) -> bool {
    let sa = association(databases, batch, lane).map(|(sa, _)| &sa.association);
    sa.is_ok_and(|association| association.extended && association.device.is_some())
}

/// Why a packet is dropped, in addition in words.
type Refusal = (DropReason, &'static str);

/// The SA of the tunnel packet of `lane`, and the position of its ESP.
fn association<'a>(
    databases: &'a Databases,
    batch: &Batch,
    lane: usize,
) -> Result<(&'a sa::Inbound, (usize, usize)), Refusal> {
    let headers = *batch.headers(lane);
    if headers.fragment || headers.status != ParseStatus::Complete {
        return Err((DropReason::Malformed, "a fragmented or truncated ESP packet"));
    }
    let (start, mut end) = (usize::from(headers.payload), usize::from(headers.end));
    let port = (headers.ip_proto == UDP).then(|| batch.field(lane, field::TP_DST) as u16);
    let bytes = batch.bytes(lane);
    if port.is_some() {
        let at = usize::from(headers.l4) + 4;
        let len = bytes.get(at..at + 2).map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
        end = end.min(usize::from(headers.l4) + usize::from(len));
    }
    let spi = bytes.get(start..end).and_then(<[u8]>::first_chunk);
    let Some(spi) = spi.map(|spi| u32::from_be_bytes(*spi)) else {
        return Err((DropReason::Malformed, "a truncated ESP header"));
    };
    let address = destination(batch.keys(), lane);
    let ours = |sa: &&Arc<sa::Inbound>| {
        let association = &sa.association;
        association.destination == address && association.udp.map(|(_, port)| port) == port
    };
    let Some(sa) = databases.inbound.get(&spi).filter(ours) else {
        return Err((DropReason::NoSa, "no SA has this SPI, end point and encapsulation"));
    };
    Ok((sa, (start, end)))
}

fn destination(keys: &TransposedKeys, lane: usize) -> IpAddr {
    if keys.get(lane, field::DL_TYPE) == u64::from(ethertype::IPV4) {
        Ipv4Addr::from(keys.get(lane, field::NW_DST) as u32).into()
    } else {
        Ipv6Addr::from(keys.key(lane).get128(field::IPV6_DST)).into()
    }
}
