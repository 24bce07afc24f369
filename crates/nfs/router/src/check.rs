//! The checks of a router before it looks up a route (RFC 1812 §5.2.2 and
//! §5.3, RFC 8200, RFC 4291 §2).

use thalweg_packet::checksum::checksum;
use thalweg_packet::wire::{ethertype, header_len, ip_proto};
use thalweg_packet::{Batch, DropReason, Headers, Layer, ParseStatus, field};

/// The handler of a packet that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The routes, by this IPv4 destination.
    V4(u32),
    /// The routes, by this IPv6 destination.
    V6(u128),
    /// The router itself: an ARP request.
    ArpRequest,
    /// The router itself: an ARP reply.
    ArpReply,
    /// The router itself: a neighbour solicitation to a multicast or from a link-local address.
    Solicitation,
    /// The router itself: a neighbour advertisement that stays on its link.
    Advertisement,
}

/// Checks the packet of `lane`, which was parsed without decapsulation.
#[inline(always)]
pub(super) fn check(batch: &Batch, lane: usize) -> Result<Checked, DropReason> {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    if headers.layer < Layer::Network {
        return Err(not_ip(headers));
    }
    if !headers.is_ipv4() && !headers.is_ipv6() {
        return match (headers.ether_type, batch.field(lane, field::NW_PROTO)) {
            (ethertype::ARP, 1) => Ok(Checked::ArpRequest),
            (ethertype::ARP, 2) => Ok(Checked::ArpReply),
            _ => Err(DropReason::UnsupportedProtocol),
        };
    }
    // A packet truncated by its capture was complete on the wire; any other that
    // ends early was not.
    let captured_whole = batch.meta.wire_len[lane] as usize <= bytes.len();
    if captured_whole && ip_length(bytes, headers) > headers.end as usize - headers.l3 as usize {
        return Err(DropReason::Malformed);
    }
    if headers.is_ipv4() { check_ipv4(batch, lane) } else { check_ipv6(batch, lane) }
}

fn not_ip(headers: &Headers) -> DropReason {
    let broken = matches!(headers.status, ParseStatus::Truncated | ParseStatus::Inconsistent);
    if broken { DropReason::Malformed } else { DropReason::UnsupportedProtocol }
}

/// The length of a parsed IP packet according to its header, in bytes.
pub(super) fn ip_length(bytes: &[u8], headers: &Headers) -> usize {
    let l3 = headers.l3 as usize;
    let field = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    if headers.is_ipv4() { field(l3 + 2) } else { field(l3 + 4) + header_len::IPV6 }
}

fn check_ipv4(batch: &Batch, lane: usize) -> Result<Checked, DropReason> {
    let (bytes, l3) = (batch.bytes(lane), batch.headers(lane).l3 as usize);
    let header_len = usize::from(bytes[l3] & 0x0f) * 4;
    if checksum(&bytes[l3..l3 + header_len]) != 0 {
        return Err(DropReason::BadChecksum);
    }
    let address = |field| batch.field(lane, field) as u32;
    let (src, dst) = (address(field::NW_SRC), address(field::NW_DST));
    let forwardable = is_forwardable_v4(src) && is_forwardable_v4(dst) && !to_many(bytes);
    if forwardable { Ok(Checked::V4(dst)) } else { Err(DropReason::NotForwardable) }
}

#[inline(never)]
fn check_ipv6(batch: &Batch, lane: usize) -> Result<Checked, DropReason> {
    let (headers, key) = (batch.headers(lane), batch.key(lane));
    let (src, dst) = (key.get128(field::IPV6_SRC), key.get128(field::IPV6_DST));
    // To a multicast group, or from an address that is valid only on the link.
    let local = is_multicast_v6(dst) || is_link_local_v6(src);
    if headers.has_transport(ip_proto::ICMPV6) && key.get(field::TP_SRC) == 135 && local {
        return Ok(Checked::Solicitation);
    }
    // No router has forwarded it: its hop limit must be 255.
    let stays = key.get(field::NW_TTL) == 255 && !is_multicast_v6(dst);
    if headers.has_transport(ip_proto::ICMPV6) && key.get(field::TP_SRC) == 136 && stays {
        return Ok(Checked::Advertisement);
    }
    let many = to_many(batch.bytes(lane));
    let forwardable = is_forwardable_v6(src) && is_forwardable_v6(dst) && !many;
    if forwardable { Ok(Checked::V6(dst)) } else { Err(DropReason::NotForwardable) }
}

/// Whether the frame was a broadcast or multicast of the link, which a router
/// never forwards as unicast (RFC 1812 §5.3.4).
fn to_many(bytes: &[u8]) -> bool {
    bytes[0] & 1 == 1
}

/// Neither "this network", loopback, link-local (RFC 3927 §7), multicast,
/// class E nor broadcast.
fn is_forwardable_v4(address: u32) -> bool {
    !matches!(address >> 24, 0 | 127 | 224..) && address >> 16 != 0xa9fe
}

/// Neither unspecified, loopback, link-local nor multicast.
fn is_forwardable_v6(address: u128) -> bool {
    address > 1 && !is_link_local_v6(address) && !is_multicast_v6(address)
}

fn is_link_local_v6(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

fn is_multicast_v6(address: u128) -> bool {
    address >> 120 == 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_forwardable() {
        let v4 = |text: &str| is_forwardable_v4(text.parse::<std::net::Ipv4Addr>().unwrap().into());
        for no in ["0.0.0.0", "0.9.9.9", "127.0.0.1", "169.254.1.1", "224.0.0.1", "239.1.1.1"] {
            assert!(!v4(no), "{no}");
        }
        assert!(!v4("240.0.0.1") && !v4("255.255.255.255"));
        for yes in ["1.0.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0"] {
            assert!(v4(yes), "{yes}");
        }
        assert!(v4("223.255.255.255") && v4("10.0.0.1"));
        let v6 = |text: &str| is_forwardable_v6(text.parse::<std::net::Ipv6Addr>().unwrap().into());
        for no in ["::", "::1", "fe80::1", "febf::1", "ff02::1"] {
            assert!(!v6(no), "{no}");
        }
        for yes in ["2001:db8::1", "fec0::1", "fe7f::1", "fd00::1", "::2"] {
            assert!(v6(yes), "{yes}");
        }
    }
}
