//! The outer IP header of tunnelled packets, and the congestion marks that it passes on to the
//! inner packet.

use std::net::IpAddr;

use thalweg_packet::checksum::{Checksum, update_u16};
use thalweg_packet::wire::{ethertype, header_len, ip_proto};
use thalweg_packet::{Batch, Decapsulate, DropReason, Lanes, field};

/// "Congestion experienced".
const CONGESTION: u8 = 3;

/// The part of a tunnel's IP header that is the same for all packets.
pub enum OuterIp {
    /// IPv4.
    V4 {
        /// EtherType and header, the varying fields zero.
        header: [u8; 22],
        /// What the constant fields add to the checksum.
        sum: u32,
    },
    /// IPv6.
    V6 {
        /// The hop limit.
        ttl: u8,
        /// The next header.
        protocol: u8,
        /// Source and destination.
        addresses: [u8; 32],
    },
}

/// The part that varies.
pub struct Varying {
    /// Copied from the inner packet, ECN included (RFC 6040, normal mode).
    pub tos: u8,
    /// IPv4 only.
    pub dont_fragment: bool,
    /// The identification, IPv4 only.
    pub id: u16,
}

impl OuterIp {
    /// `None` if the endpoints differ in IP version.
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8, ttl: u8) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = [0; 22];
                header[..2].copy_from_slice(&ethertype::IPV4.to_be_bytes());
                header[2] = 0x45;
                header[10..12].copy_from_slice(&[ttl, protocol]);
                header[14..18].copy_from_slice(&source.octets());
                header[18..].copy_from_slice(&destination.octets());
                let words = header[2..].as_chunks().0.iter();
                let sum = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
                Some(Self::V4 { header, sum })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut addresses = [0; 32];
                addresses[..16].copy_from_slice(&source.octets());
                addresses[16..].copy_from_slice(&destination.octets());
                Some(Self::V6 { ttl, protocol, addresses })
            }
            _ => None,
        }
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::V4 { .. } => header_len::IPV4,
            Self::V6 { .. } => header_len::IPV6,
        }
    }

    /// Writes the EtherType and header of a packet with `after_ip` bytes after them.
    #[inline]
    pub fn write(&self, out: &mut [u8], after_ip: u16, varying: Varying) {
        let Varying { tos, dont_fragment, id } = varying;
        match self {
            Self::V4 { header, sum } => {
                let Some(out) = out.first_chunk_mut::<22>() else { return };
                let (len, flags) = (20 + after_ip, u16::from(dont_fragment) << 14);
                let sum = sum + [tos.into(), len, id, flags].map(u32::from).iter().sum::<u32>();
                // Folded twice, as the first fold may carry.
                let sum = (sum & 0xffff) + (sum >> 16);
                let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
                *out = *header;
                out[3] = tos;
                out[4..6].copy_from_slice(&len.to_be_bytes());
                out[6..8].copy_from_slice(&id.to_be_bytes());
                out[8] = flags.to_be_bytes()[0];
                out[12..14].copy_from_slice(&sum.to_be_bytes());
            }
            Self::V6 { ttl, protocol, addresses } => {
                let Some(out) = out.first_chunk_mut::<42>() else { return };
                out[..2].copy_from_slice(&ethertype::IPV6.to_be_bytes());
                out[2..6].copy_from_slice(&(6 << 28 | u32::from(tos) << 20).to_be_bytes());
                out[6..8].copy_from_slice(&after_ip.to_be_bytes());
                out[8..10].copy_from_slice(&[*protocol, *ttl]);
                out[10..].copy_from_slice(addresses);
            }
        }
    }
}

/// Writes the UDP header of a tunnel at the beginning of `udp`, with the length of `udp`. Over
/// IPv4 its checksum is zero (RFC 3948, section 2.1; RFC 7348, section 5; RFC 8926, section 3.3),
/// over IPv6 it is mandatory: `ip` is the header before it.
pub fn write_udp([source, destination]: [u16; 2], udp: &mut [u8], ip: &[u8]) {
    let len = udp.len() as u16;
    udp[..2].copy_from_slice(&source.to_be_bytes());
    udp[2..4].copy_from_slice(&destination.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    udp[6..8].fill(0);
    if let Some(addresses) = ip.get(8..40) {
        let sum = Checksum::default().add(addresses).add_u16(len).add_u16(ip_proto::UDP.into());
        let sum = match sum.add(udp).finish() {
            0 => u16::MAX,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// As [`write_udp`], for a super-packet, whose segments get checksums of their own if it has one: over IPv6
/// it is not zero, and otherwise unspecified.
pub fn write_udp_of_super([source, destination]: [u16; 2], udp: &mut [u8], ip: &[u8]) {
    let checksum: u16 = if ip.len() >= header_len::IPV6 { u16::MAX } else { 0 };
    let words = [source, destination, udp.len() as u16, checksum];
    for (place, word) in udp.chunks_exact_mut(2).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// Reparses packets that were parsed with decapsulation: an NF that routes or encapsulates packets
/// goes by the outermost header.
pub fn see_outermost(batch: &mut Batch, lanes: Lanes) {
    if !batch.keys().has(field::TUN_KIND.word.into()) {
        return;
    }
    let inner = |lane: &usize| batch.field(*lane, field::TUN_KIND) != 0;
    let inner: Lanes = lanes.into_iter().filter(inner).collect();
    batch.parse(inner, Decapsulate::No);
}

/// Copies a congestion mark of the tunnel header to the inner packet (RFC 6040, section 4.2), which
/// is parsed; reparses the packet if it changes.
///
/// # Errors
/// If the inner packet cannot carry the mark: it must be dropped.
pub fn congestion(batch: &mut Batch, lane: usize, outer_tos: u8) -> Result<(), DropReason> {
    if outer_tos & 3 != CONGESTION {
        return Ok(());
    }
    let headers = *batch.headers(lane);
    let tos = batch.field(lane, field::NW_TOS) as u8;
    match tos & 3 {
        0 => return Err(DropReason::BadInnerPacket),
        CONGESTION => return Ok(()),
        _ => {}
    }
    let l3 = headers.l3 as usize;
    let bytes = batch.bytes_mut(lane);
    if headers.is_ipv4() {
        let from = u16::from_be_bytes([bytes[l3], bytes[l3 + 1]]);
        let to = from | u16::from(CONGESTION);
        let sum = u16::from_be_bytes([bytes[l3 + 10], bytes[l3 + 11]]);
        bytes[l3 + 1] |= CONGESTION;
        bytes[l3 + 10..l3 + 12].copy_from_slice(&update_u16(sum, from, to).to_be_bytes());
    } else {
        bytes[l3 + 1] |= CONGESTION << 4;
    }
    batch.parse(Lanes::one(lane), Decapsulate::No);
    Ok(())
}
