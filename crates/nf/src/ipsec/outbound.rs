//! Protecting a packet: tunnel header, ESP, encryption, in place.

use std::net::IpAddr;

use thalweg_packet::checksum::checksum;
use thalweg_packet::{Batch, DropReason, Headers, field};

use super::iv::IvSource;
use super::sa::Outbound;
use super::suite::HEADER;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
pub(super) const ESP: u8 = 50;
const TTL: u8 = 64;

/// Puts the packet of `lane` into the tunnel of `sa`. On an error the packet is
/// as it was.
pub(super) fn protect(
    sa: &Outbound,
    batch: &mut Batch,
    lane: usize,
    ivs: &mut IvSource,
    ip_id: &mut u16,
) -> Result<u64, DropReason> {
    let headers = *batch.headers(lane);
    let suite = sa.association.cipher.suite();
    let (l3, inner_len) = (headers.l3 as usize, (headers.end - headers.l3) as usize);
    let outer_len = if sa.association.source.is_ipv4() { 20 } else { 40 };
    let front = outer_len + HEADER + suite.iv_len();
    // Padding to the suite's alignment, its length, and the next header.
    let body = (inner_len + 2).next_multiple_of(suite.alignment());
    let back = body - inner_len + suite.icv_len();
    let after_ip = HEADER + suite.iv_len() + body + suite.icv_len();
    let surplus = batch.packet_len(lane) - headers.end as usize;
    if batch.headroom(lane) < front
        || batch.tailroom(lane) + surplus < back
        || outer_len + after_ip > usize::from(u16::MAX)
    {
        return Err(DropReason::NoRoom);
    }
    let tos = batch.field(lane, field::NW_TOS) as u8;
    let dont_fragment = !headers.is_ipv4() || batch.bytes(lane)[l3 + 6] & 0x40 != 0;
    let (number, gcm_iv) = sa.next().ok_or(DropReason::SequenceExhausted)?;

    batch.truncate(lane, headers.end as usize);
    if !batch.grow_front(lane, front) || !batch.grow_back(lane, back) {
        return Err(DropReason::NoRoom);
    }
    let bytes = batch.bytes_mut(lane);
    bytes.copy_within(front..front + l3, 0);
    *ip_id = ip_id.wrapping_add(1);
    let outer = Outer { sa, tos, dont_fragment, id: *ip_id, after_ip };
    outer.write(&mut bytes[l3 - 2..l3 + outer_len]);

    let esp = &mut bytes[l3 + outer_len..];
    esp[..4].copy_from_slice(&sa.association.spi.to_be_bytes());
    esp[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    match suite.iv_len() {
        16 => esp[8..24].copy_from_slice(&ivs.next()),
        _ => esp[8..16].copy_from_slice(&gcm_iv.to_be_bytes()),
    }
    let inner = HEADER + suite.iv_len();
    trailer(&mut esp[inner + inner_len..inner + body], &headers);
    let high = sa.association.extended.then_some((number >> 32) as u32);
    if sa.association.cipher.seal(esp, high) { Ok(number) } else { Err(DropReason::NoRoom) }
}

/// Padding 1, 2, 3, ..., its length, and the next header (RFC 4303, 2.4).
fn trailer(trailer: &mut [u8], inner: &Headers) {
    let padding = trailer.len() - 2;
    for (i, byte) in trailer[..padding].iter_mut().enumerate() {
        *byte = i as u8 + 1;
    }
    trailer[padding] = padding as u8;
    trailer[padding + 1] = if inner.is_ipv4() { IPV4_IN_IP } else { IPV6_IN_IP };
}

/// The tunnel's own IP header (RFC 4301, 5.1.2).
struct Outer<'a> {
    sa: &'a Outbound,
    /// Copied from the packet inside, ECN included (RFC 6040, normal mode).
    tos: u8,
    dont_fragment: bool,
    id: u16,
    after_ip: usize,
}

impl Outer<'_> {
    /// Writes EtherType and header.
    fn write(&self, out: &mut [u8]) {
        match (self.sa.association.source, self.sa.association.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out[..2].copy_from_slice(&[0x08, 0x00]);
                let ip = &mut out[2..];
                ip[..2].copy_from_slice(&[0x45, self.tos]);
                ip[2..4].copy_from_slice(&((20 + self.after_ip) as u16).to_be_bytes());
                ip[4..6].copy_from_slice(&self.id.to_be_bytes());
                ip[6..8].copy_from_slice(&[u8::from(self.dont_fragment) << 6, 0]);
                ip[8..12].copy_from_slice(&[TTL, ESP, 0, 0]);
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                let sum = checksum(ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                out[..2].copy_from_slice(&[0x86, 0xdd]);
                let ip = &mut out[2..];
                ip[..4].copy_from_slice(&(6 << 28 | u32::from(self.tos) << 20).to_be_bytes());
                ip[4..6].copy_from_slice(&(self.after_ip as u16).to_be_bytes());
                ip[6..8].copy_from_slice(&[ESP, TTL]);
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
            }
            _ => unreachable!("the configuration has both end points of one IP version"),
        }
    }
}
