//! ICMP errors, which quote a packet that was translated (RFC 5508).

use std::net::Ipv4Addr;

use thalweg_packet::checksum::{self, Checksum, ChecksumStatus, update_u16, update_u32};
use thalweg_packet::wire::header_len::IPV4;
use thalweg_packet::wire::ip_proto;
use thalweg_packet::{Batch, DropReason, field, write};

use super::Protocol;
use super::mapping::{EndPoint, Mappings};
use super::translate::{Direction, Done};

/// The length of the ICMP header.
const ICMP: usize = 8;

/// Whether the ICMP packet is an error, which quotes another packet.
pub(super) fn is_error(batch: &Batch, lane: usize) -> bool {
    matches!(batch.field(lane, field::TP_SRC), 3 | 4 | 5 | 11 | 12)
}

/// Translates an ICMP error: the quoted packet back to what its sender sent,
/// and its own addresses; returns what was done.
pub(super) fn error(
    mappings: &Mappings,
    batch: &mut Batch,
    lane: usize,
    direction: Direction,
) -> Result<Done, DropReason> {
    let headers = *batch.headers(lane);
    let l4 = headers.l4 as usize;
    let end = headers.end as usize;
    // The checksum is recomputed over all bytes, which would hide damage to the packet.
    if checksum::verify(batch.bytes(lane), &headers) == ChecksumStatus::BadTransport {
        return Err(DropReason::BadChecksum);
    }
    let quote = batch.bytes(lane).get(l4 + ICMP..end).ok_or(DropReason::Malformed)?;
    let quoted = Quoted::read(quote).ok_or(DropReason::Malformed)?;
    // The quoted packet travelled in the other direction: our side of it is its
    // source for an inbound error, and its destination for an outbound one.
    let (found, address_at, port_at) = if direction == Direction::Out {
        let found = mappings.external_of(EndPoint(quoted.protocol, quoted.destination, quoted.to));
        (found, 16, quoted.to_at)
    } else {
        let found = mappings.inside_of(EndPoint(quoted.protocol, quoted.source, quoted.from));
        (found, 12, quoted.from_at)
    };
    let EndPoint(_, address, port) = found.ok_or(DropReason::NoMapping)?;
    let bytes = batch.bytes_mut(lane);
    rewrite(&mut bytes[l4 + ICMP..end], &quoted, address_at, address, port_at, port);
    let icmp = &mut bytes[l4..end];
    icmp[2..4].fill(0);
    let sum = Checksum::default().add(icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    match direction {
        Direction::Out => write::set_ipv4_src(bytes, &headers, address),
        _ => write::set_ipv4_dst(bytes, &headers, address),
    }
    Ok(Done::Error { about: (address, port) })
}

/// The packet that an error quotes.
struct Quoted {
    protocol: Protocol,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    from: u16,
    to: u16,
    /// The offset of the ports, or of the identifier, in the quote.
    from_at: usize,
    to_at: usize,
    /// The offset of the transport checksum, if the quote includes it.
    checksum_at: Option<usize>,
}

impl Quoted {
    fn read(quote: &[u8]) -> Option<Self> {
        let header_len = usize::from(quote.first()? & 0x0f) * 4;
        let later = u16::from_be_bytes([*quote.get(6)?, *quote.get(7)?]) & 0x1fff != 0;
        if quote[0] >> 4 != 4 || header_len < IPV4 || later {
            return None;
        }
        let address = |at: usize| -> Option<Ipv4Addr> {
            Some(Ipv4Addr::from(*quote.get(at..)?.first_chunk::<4>()?))
        };
        let number = |at: usize| -> Option<u16> {
            Some(u16::from_be_bytes(*quote.get(at..)?.first_chunk::<2>()?))
        };
        let (protocol, from_at, to_at, checksum_at) = match *quote.get(9)? {
            ip_proto::TCP => (Protocol::Tcp, header_len, header_len + 2, header_len + 16),
            ip_proto::UDP => (Protocol::Udp, header_len, header_len + 2, header_len + 6),
            ip_proto::ICMP if matches!(quote.get(header_len)?, 0 | 8) => {
                (Protocol::Echo, header_len + 4, header_len + 4, header_len + 2)
            }
            _ => return None,
        };
        Some(Self {
            protocol,
            source: address(12)?,
            destination: address(16)?,
            from: number(from_at)?,
            to: number(to_at)?,
            from_at,
            to_at,
            checksum_at: number(checksum_at).map(|_| checksum_at),
        })
    }
}

/// Writes an address and a port of the quoted packet, with its checksums.
fn rewrite(
    quote: &mut [u8],
    quoted: &Quoted,
    address_at: usize,
    address: Ipv4Addr,
    port_at: usize,
    port: u16,
) {
    let read = |quote: &[u8], at: usize| u16::from_be_bytes([quote[at], quote[at + 1]]);
    let old = u32::from(read(quote, address_at)) << 16 | u32::from(read(quote, address_at + 2));
    let new = u32::from(address);
    quote[address_at..address_at + 4].copy_from_slice(&new.to_be_bytes());
    let sum = update_u32(read(quote, 10), old, new);
    quote[10..12].copy_from_slice(&sum.to_be_bytes());
    let old_port = read(quote, port_at);
    quote[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
    let Some(at) = quoted.checksum_at else { return };
    let before = read(quote, at);
    // UDP without checksum stays without; ICMP has no pseudo-header.
    if quoted.protocol == Protocol::Udp && before == 0 {
        return;
    }
    let mut sum = update_u16(before, old_port, port);
    if quoted.protocol != Protocol::Echo {
        sum = update_u32(sum, old, new);
    }
    if quoted.protocol == Protocol::Udp && sum == 0 {
        sum = 0xffff;
    }
    quote[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
