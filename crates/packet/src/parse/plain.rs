//! Parsing the packets that most traffic is made of straight through, one at a time: TCP, UDP and
//! ESP over IPv4 without VLAN tags, IP options or fragments, in which everything fits together.
//!
//! All their fields stand at fixed places, so that a few loads and comparisons do. Other packets
//! are left to [`parse`](super::parse), which defines what is right.

use super::Decapsulate;
use super::tunnel::{GENEVE_PORT, VXLAN_PORT};
use crate::headers::{Headers, Layer, ParseStatus};
use crate::key::{Field, field};
use crate::metadata::PortIndex;
use crate::wire::ip_proto::{ESP, TCP, UDP};
use crate::wire::{ethertype, header_len};

const ETHERNET: u16 = header_len::ETHERNET as u16;
const IPV4: u16 = header_len::IPV4 as u16;

/// Bytes of the headers up to TCP's, without options: shorter packets are for the other parser.
const HEAD: usize = (ETHERNET + IPV4) as usize + 20;

/// The words of the key that such packets have.
pub(crate) const WORDS: [Field; 6] =
    [field::IN_PORT, field::DL_DST, field::DL_SRC, field::NW_PROTO, field::NW_SRC, field::TP_SRC];

/// Those words of a packet, and where its headers lie; `None` when it is another kind of packet.
#[inline]
pub(crate) fn parse(
    packet: &[u8],
    in_port: PortIndex,
    decapsulate: Decapsulate,
) -> Option<([u64; WORDS.len()], Headers)> {
    let head: &[u8; HEAD] = packet.first_chunk()?;
    let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let u32_at =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    // IPv4 without options; neither more fragments nor an offset.
    if u32_at(12) >> 8 != u32::from(ethertype::IPV4) << 8 | 0x45 || u16_at(20) & 0x3fff != 0 {
        return None;
    }
    // The network packet ends within the bytes at hand; what lies beyond 16 bits is no offset.
    let total = u16_at(16);
    let end = total.checked_add(ETHERNET).filter(|end| usize::from(*end) <= packet.len())?;
    let protocol = head[23];
    let (transport, flags) = match protocol {
        TCP => (u16::from(head[46] >> 4) * 4, u16_at(46) & 0x0fff),
        UDP => (8, 0),
        ESP => (0, 0),
        _ => return None,
    };
    let payload = ETHERNET + IPV4 + transport;
    let datagram = u16_at(38);
    let fits = match protocol {
        TCP => transport >= 20,
        UDP => datagram >= 8 && datagram <= total.saturating_sub(IPV4),
        _ => true,
    };
    if !fits || payload > end {
        return None;
    }
    let (source, destination) = (u16_at(34), u16_at(36));
    let may_be_tunnel =
        protocol == UDP && matches!(u64::from(destination), VXLAN_PORT | GENEVE_PORT);
    if may_be_tunnel && decapsulate != Decapsulate::No {
        return None;
    }
    let has_ports = protocol != ESP;
    let ports = if has_ports {
        at(field::TP_SRC, source.into()) | at(field::TP_DST, destination.into())
    } else {
        0
    };
    let words = [
        at(field::IN_PORT, in_port.0.wrapping_add(1).into()),
        at(field::DL_DST, mac(head, 0)) | at(field::DL_TYPE, ethertype::IPV4.into()),
        at(field::DL_SRC, mac(head, 6)),
        at(field::NW_PROTO, protocol.into())
            | at(field::NW_TOS, head[15].into())
            | at(field::NW_TTL, head[22].into()),
        at(field::NW_SRC, u32_at(26).into()) | at(field::NW_DST, u32_at(30).into()),
        ports | at(field::TCP_FLAGS, flags.into()),
    ];
    let headers = Headers {
        l2: 0,
        l3: ETHERNET,
        l4: if has_ports { ETHERNET + IPV4 } else { 0 },
        payload,
        end,
        ether_type: ethertype::IPV4,
        ip_proto: protocol,
        layer: if has_ports { Layer::Transport } else { Layer::Network },
        status: ParseStatus::Complete,
        fragment: false,
    };
    Some((words, headers))
}

/// The 48-bit address at `from`.
#[inline]
fn mac(head: &[u8; HEAD], from: usize) -> u64 {
    let with_more: &[u8; 8] = head[from..].first_chunk().unwrap_or(&[0; 8]);
    u64::from_be_bytes(*with_more) >> 16
}

/// A field's value at its place in its word.
const fn at(field: Field, value: u64) -> u64 {
    value << field.shift
}
