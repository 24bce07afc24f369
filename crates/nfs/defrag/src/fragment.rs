//! The fragmentation fields of a packet (RFC 791, section 3.2; RFC 8200, section 4.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use thalweg_packet::checksum::{checksum, is_ipv4_header_bad};
use thalweg_packet::wire::header_len;
use thalweg_packet::wire::ip_proto::{AH, FRAGMENT};
use thalweg_packet::{Batch, DropReason, FiveTuple, PacketType, address_bits, field};

use thalweg_nf::toolkit::flow_table::FlowWords;

/// The longest packet that the length field of an IP header can express.
const LONGEST: usize = u16::MAX as usize;
/// Offsets are in units of this many bytes.
const UNIT: usize = 8;

/// What the fragments of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct DatagramId {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// IPv4 only; 0 for IPv6, whose fragments need not agree on it.
    pub(super) protocol: u8,
    pub(super) identification: u32,
    /// The same addresses in two VLANs are different hosts.
    vlans: [u16; 2],
}

impl FlowWords<6> for DatagramId {
    fn words(&self) -> [u64; 6] {
        let halves = |address| [(address_bits(address) >> 64) as u64, address_bits(address) as u64];
        let ([a, b], [c, d]) = (halves(self.source), halves(self.destination));
        let version = if self.source.is_ipv4() { 4 } else { 6 };
        let numbers = u64::from(self.identification) << 16 | u64::from(self.protocol) << 8;
        let [outer, inner] = self.vlans.map(u64::from);
        [a, b, c, d, numbers | version, outer << 16 | inner]
    }
}

impl DatagramId {
    /// The packet's flow, without ports.
    pub(super) fn flow(&self) -> FiveTuple {
        let Self { source: src, destination: dst, protocol, .. } = *self;
        FiveTuple { src, dst, protocol, src_port: 0, dst_port: 0 }
    }
}

/// The headers before the fragmented part, as the whole packet has them except for the length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    /// Where the IP header begins.
    pub(super) l3: usize,
}

impl Head {
    /// Whether a packet can have it.
    pub(super) fn is_sound(&self) -> bool {
        let len = self.bytes.len();
        match self.bytes.get(self.l3).map(|first| first >> 4) {
            Some(4) => {
                len == self.l3 + ipv4_header_len(&self.bytes[self.l3..]) && len - self.l3 >= 20
            }
            Some(6) => len >= self.l3 + header_len::IPV6,
            _ => false,
        }
    }

    /// Writes the headers of a packet with `body` bytes after them, at the beginning of `out`.
    /// `false` if the length field cannot hold the length, or `out` is too short.
    pub(super) fn write(&self, body: usize, congested: bool, out: &mut [u8]) -> bool {
        let Some(out) = out.get_mut(..self.bytes.len()) else { return false };
        out.copy_from_slice(&self.bytes);
        let ip = &mut out[self.l3..];
        let is_ipv4 = ip[0] >> 4 == 4;
        let counted = if is_ipv4 { ip.len() } else { ip.len() - header_len::IPV6 };
        let Ok(len) = u16::try_from(counted + body) else { return false };
        if is_ipv4 {
            ip[1] |= if congested { 3 } else { 0 };
            ip[2..4].copy_from_slice(&len.to_be_bytes());
            // Only the flag "don't fragment" applies to the whole packet.
            (ip[6], ip[7]) = (ip[6] & 0x40, 0);
            ip[10..12].fill(0);
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip[1] |= if congested { 3 << 4 } else { 0 };
            ip[4..6].copy_from_slice(&len.to_be_bytes());
        }
        true
    }
}

/// A packet's metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    vlans: [u16; 2],
    pub(super) packet_type: PacketType,
    /// Whether the checksum of its IPv4 header is wrong.
    pub(super) is_damaged: bool,
}

/// A fragment in its frame.
#[derive(Debug)]
pub(super) struct Fragment<'a> {
    pub(super) id: DatagramId,
    /// The offset of its data, in bytes.
    pub(super) offset: usize,
    /// Whether more fragments follow.
    pub(super) more: bool,
    pub(super) body: &'a [u8],
    /// Its length in bytes, from its IP header on.
    pub(super) len: u16,
    /// The two bits of explicit congestion notification (RFC 3168).
    pub(super) ecn: u8,
    pub(super) origin: Origin,
    frame: &'a [u8],
    l3: usize,
    /// IPv6: the place of its fragment header, and of the field in the header before that names it.
    header: Option<(usize, usize)>,
}

impl<'a> Fragment<'a> {
    /// The packet of `lane`, which the parser marked as a fragment.
    ///
    /// # Errors
    /// When it is truncated, or no sender can have generated it.
    pub(super) fn of(batch: &'a Batch, lane: usize) -> Result<Self, DropReason> {
        let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
        let l3 = usize::from(headers.l3);
        // The whole packet gets a new checksum, which must not hide a wrong one.
        let is_damaged = is_ipv4_header_bad(bytes, headers);
        let wrong = if is_damaged { DropReason::BadChecksum } else { DropReason::Malformed };
        let vlan = |f| batch.field(lane, f) as u16;
        let vlans = [vlan(field::VLAN_TCI), vlan(field::VLAN2_TCI)];
        let read = if headers.is_ipv4() { Self::ipv4 } else { Self::ipv6 };
        let origin = Origin { vlans, packet_type: batch.meta.packet_type[lane], is_damaged };
        let fragment = read(bytes, l3, origin).ok_or(wrong)?;
        let Fragment { offset, more, body, .. } = &fragment;
        let fits = !body.is_empty()
            && (!more || body.len().is_multiple_of(UNIT))
            && offset + body.len() <= LONGEST;
        if fits { Ok(fragment) } else { Err(wrong) }
    }

    fn ipv4(frame: &'a [u8], l3: usize, origin: Origin) -> Option<Self> {
        let ip = frame.get(l3..)?;
        let fixed = ip.first_chunk::<20>()?;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let body = ip.get(ipv4_header_len(ip)..total)?;
        let place = u16::from_be_bytes([fixed[6], fixed[7]]);
        let address = |at: usize| Ipv4Addr::from(*fixed[at..].first_chunk().expect("there")).into();
        let id = DatagramId {
            source: address(12),
            destination: address(16),
            protocol: fixed[9],
            identification: u16::from_be_bytes([fixed[4], fixed[5]]).into(),
            vlans: origin.vlans,
        };
        let (offset, more) = (usize::from(place & 0x1fff) * UNIT, place & 0x2000 != 0);
        let (ecn, header, len) = (fixed[1] & 3, None, total as u16);
        Some(Self { id, offset, more, body, len, ecn, origin, frame, l3, header })
    }

    fn ipv6(frame: &'a [u8], l3: usize, origin: Origin) -> Option<Self> {
        let ip = frame.get(l3..)?;
        let fixed = ip.first_chunk::<{ header_len::IPV6 }>()?;
        let len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let ip = ip.get(..header_len::IPV6 + len)?;
        let (named, at) = fragment_header(ip)?;
        let header = ip.get(at..)?.first_chunk::<8>()?;
        let place = u16::from_be_bytes([header[2], header[3]]);
        let address = |at: usize| Ipv6Addr::from(*fixed[at..].first_chunk().expect("there")).into();
        let identification = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let (source, destination) = (address(8), address(24));
        let id =
            DatagramId { source, destination, protocol: 0, identification, vlans: origin.vlans };
        let (offset, more) = (usize::from(place & !7), place & 1 != 0);
        let (body, ecn) = (&ip[at + header.len()..], fixed[1] >> 4 & 3);
        let header = Some((l3 + at, l3 + named));
        Some(Self { id, offset, more, body, len: ip.len() as u16, ecn, origin, frame, l3, header })
    }

    /// The headers of the whole packet, if this is its first fragment.
    pub(super) fn head(&self) -> Option<Head> {
        if self.offset > 0 {
            return None;
        }
        let bytes = match self.header {
            None => self.frame[..self.l3 + ipv4_header_len(&self.frame[self.l3..])].to_vec(),
            Some((at, named)) => {
                let mut bytes = self.frame[..at].to_vec();
                bytes[named] = self.frame[at];
                bytes
            }
        };
        Some(Head { bytes, l3: self.l3 })
    }
}

fn ipv4_header_len(ip: &[u8]) -> usize {
    usize::from(ip[0] & 0x0f) * 4
}

/// The places of the field that names the fragment header of an IPv6 packet, and of the header.
fn fragment_header(ip: &[u8]) -> Option<(usize, usize)> {
    let (mut named, mut at) = (6, header_len::IPV6);
    loop {
        let kind = ip[named];
        if kind == FRAGMENT {
            return Some((named, at));
        }
        // As the parser reached a fragment header, all headers before it have a known form.
        let units = usize::from(*ip.get(at + 1)?);
        let len = if kind == AH { (units + 2) * 4 } else { (units + 1) * 8 };
        (named, at) = (at, at + len);
    }
}
