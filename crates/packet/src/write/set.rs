//! Single fields in place, with their checksums updated incrementally.
//!
//! All take the packet's bytes and its parsed headers, and leave a packet
//! without the field as it is. Checksums that were wrong stay wrong.

use std::net::Ipv4Addr;

use crate::checksum::{update_u16, update_u32};
use crate::headers::Headers;
use crate::wire::ip_proto;

/// Sets both MAC addresses of the Ethernet header at `headers.l2`.
#[inline]
pub fn set_ethernet(bytes: &mut [u8], headers: &Headers, dst: [u8; 6], src: [u8; 6]) {
    let at = headers.l2 as usize;
    if let Some(addresses) = bytes.get_mut(at..at + 12) {
        addresses[..6].copy_from_slice(&dst);
        addresses[6..].copy_from_slice(&src);
    }
}

/// Lowers TTL or hop limit by one; the caller has made sure that it is above 0.
#[inline]
pub fn decrement_ttl(bytes: &mut [u8], headers: &Headers) {
    let l3 = headers.l3 as usize;
    if headers.is_ipv6() {
        if let Some(hop_limit) = bytes.get_mut(l3 + 7) {
            *hop_limit = hop_limit.saturating_sub(1);
        }
    } else if headers.is_ipv4()
        && let Some(from) = read_u16(bytes, l3 + 8)
        && from >= 0x0100
    {
        let to = from - 0x0100;
        write_u16(bytes, l3 + 8, to);
        update_at(bytes, l3 + 10, |sum| update_u16(sum, from, to));
    }
}

/// Sets the IPv4 source address, and updates header and transport checksum.
#[inline]
pub fn set_ipv4_src(bytes: &mut [u8], headers: &Headers, address: Ipv4Addr) {
    set_ipv4_address(bytes, headers, headers.l3 as usize + 12, address);
}

/// Sets the IPv4 destination address, and updates header and transport checksum.
#[inline]
pub fn set_ipv4_dst(bytes: &mut [u8], headers: &Headers, address: Ipv4Addr) {
    set_ipv4_address(bytes, headers, headers.l3 as usize + 16, address);
}

/// Sets the TCP or UDP source port, and updates the transport checksum.
#[inline]
pub fn set_src_port(bytes: &mut [u8], headers: &Headers, port: u16) {
    set_port(bytes, headers, headers.l4 as usize, port);
}

/// Sets the TCP or UDP destination port, and updates the transport checksum.
#[inline]
pub fn set_dst_port(bytes: &mut [u8], headers: &Headers, port: u16) {
    set_port(bytes, headers, headers.l4 as usize + 2, port);
}

/// Sets the identifier of an ICMP echo, and updates its checksum.
#[inline]
pub fn set_icmp_id(bytes: &mut [u8], headers: &Headers, id: u16) {
    let l4 = headers.l4 as usize;
    if l4 != 0
        && let Some(from) = read_u16(bytes, l4 + 4)
    {
        write_u16(bytes, l4 + 4, id);
        update_at(bytes, l4 + 2, |sum| update_u16(sum, from, id));
    }
}

#[inline]
fn set_ipv4_address(bytes: &mut [u8], headers: &Headers, at: usize, address: Ipv4Addr) {
    if !headers.is_ipv4() {
        return;
    }
    let Some(old) = bytes.get(at..at + 4).and_then(<[u8]>::first_chunk::<4>) else { return };
    let (from, to) = (u32::from_be_bytes(*old), u32::from(address));
    bytes[at..at + 4].copy_from_slice(&to.to_be_bytes());
    update_at(bytes, headers.l3 as usize + 10, |sum| update_u32(sum, from, to));
    update_transport(bytes, headers, |sum| update_u32(sum, from, to));
}

#[inline]
fn set_port(bytes: &mut [u8], headers: &Headers, at: usize, port: u16) {
    if !matches!(headers.ip_proto, ip_proto::TCP | ip_proto::UDP) || headers.l4 == 0 {
        return;
    }
    if let Some(from) = read_u16(bytes, at) {
        write_u16(bytes, at, port);
        update_transport(bytes, headers, |sum| update_u16(sum, from, port));
    }
}

/// Updates the TCP or UDP checksum. UDP without checksum stays so, and a
/// UDP checksum of 0 is sent as 0xffff (RFC 768).
#[inline]
fn update_transport(bytes: &mut [u8], headers: &Headers, update: impl FnOnce(u16) -> u16) {
    let l4 = headers.l4 as usize;
    match headers.ip_proto {
        ip_proto::TCP if l4 != 0 => update_at(bytes, l4 + 16, update),
        ip_proto::UDP if l4 != 0 => update_at(bytes, l4 + 6, |sum| match sum {
            0 => 0,
            sum => match update(sum) {
                0 => 0xffff,
                new => new,
            },
        }),
        _ => {}
    }
}

#[inline]
fn update_at(bytes: &mut [u8], at: usize, update: impl FnOnce(u16) -> u16) {
    if let Some(sum) = read_u16(bytes, at) {
        write_u16(bytes, at, update(sum));
    }
}

#[inline]
fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().copied().map(u16::from_be_bytes)
}

#[inline]
fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}
