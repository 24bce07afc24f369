//! The packets that a super-packet stands for.

use crate::checksum::{Checksum, fill, fill_ipv4, pseudo_header_sum};
use crate::headers::{Headers, ParseStatus};
use crate::parse::parse_network;
use crate::wire::ethertype::{self, TRANSPARENT_ETHERNET};
use crate::wire::header_len;
use crate::wire::ip_proto::{GRE, TCP, UDP};
use crate::wire::tcp_flags::{CWR, FIN, PSH};

/// Flags of GRE: checksum, key.
const GRE_CHECKSUM: u8 = 0x80;
const GRE_KEY: u8 = 0x20;
/// The most bytes between the UDP header of a tunnel and the inner IP header: a tunnel header, Ethernet,
/// two VLAN tags. A second tunnel between them would be longer.
const MOST_IN_UDP: usize = 8 + header_len::ETHERNET + 8;

/// The packets that a super-packet stands for, one after the other, as its sender would have sent
/// them itself: the payload in pieces behind copies of the headers, with lengths, identifications,
/// sequence numbers, flags and checksums of their own.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    /// Those of the packet whose payload is divided.
    headers: Headers,
    /// Those of the tunnel around it.
    outer: Option<Headers>,
    /// Bytes after the headers of each segment but the last.
    size: usize,
    /// The start of the next segment in the super-packet.
    next: usize,
    number: u32,
}

impl Segments {
    /// The segments of a packet with these headers, with `size` bytes of payload each, the last one
    /// with the rest. `None` unless it is whole TCP or UDP over IP with payload, and not a fragment.
    #[inline]
    pub fn of(bytes: &[u8], headers: &Headers, size: u16) -> Option<Self> {
        let is_whole = headers.status == ParseStatus::Complete && !headers.fragment;
        let is_transport = headers.has_transport(TCP) || headers.has_transport(UDP);
        let has_payload = headers.payload < headers.end && usize::from(headers.end) <= bytes.len();
        if !is_whole || !is_transport || !has_payload || size == 0 {
            return None;
        }
        let next = usize::from(headers.payload);
        Some(Self { headers: *headers, outer: None, size: size.into(), next, number: 0 })
    }

    /// The segments of the packet in a tunnel, whose own headers `outer` are: the last `inner_len` bytes
    /// are the inner IP packet, with `size` bytes of payload in each segment. `None` unless both packets
    /// are whole, there is one tunnel header between them, over UDP or GRE without sequence numbers, and
    /// the inner packet can be [segmented](Self::of).
    pub fn in_tunnel(bytes: &[u8], outer: &Headers, inner_len: u16, size: u16) -> Option<Self> {
        let is_whole = outer.status == ParseStatus::Complete && !outer.fragment;
        if !is_whole || usize::from(outer.end) != bytes.len() {
            return None;
        }
        let (at, from) = (bytes.len().checked_sub(inner_len.into())?, usize::from(outer.payload));
        let between = at.checked_sub(from)?;
        let is_tunnel = if outer.has_transport(UDP) {
            between <= MOST_IN_UDP
        } else {
            outer.ip_proto == GRE && is_gre(&bytes[from..at])
        };
        let headers = inner_headers(bytes, at)?;
        if !is_tunnel || usize::from(headers.end) != bytes.len() {
            return None;
        }
        Some(Self { outer: Some(*outer), ..Self::of(bytes, &headers, size)? })
    }

    /// The transport protocol of each: [`TCP`] or [`UDP`].
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.headers.ip_proto
    }

    /// How many there still are.
    #[inline]
    pub fn len(&self) -> usize {
        (usize::from(self.headers.end) - self.next).div_ceil(self.size)
    }

    /// The length of the headers of each, in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.headers.payload.into()
    }

    /// Whether there are no more.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of the next one in bytes, from the Ethernet header on.
    #[inline]
    pub fn next_len(&self) -> Option<usize> {
        let left = usize::from(self.headers.end) - self.next;
        (left > 0).then(|| usize::from(self.headers.payload) + left.min(self.size))
    }

    /// Writes the next one to `packet`, which has its [length](Self::next_len); `bytes` are those of the
    /// super-packet.
    ///
    /// # Panics
    /// When `packet` has another length, there is none, or `bytes` are fewer than at first.
    pub fn write_next(&mut self, bytes: &[u8], packet: &mut [u8]) {
        assert_eq!(Some(packet.len()), self.next_len(), "a segment has its length");
        let (head, end) = (usize::from(self.headers.payload), usize::from(self.headers.end));
        let upto = end.min(self.next + self.size);
        packet[..head].copy_from_slice(&bytes[..head]);
        packet[head..].copy_from_slice(&bytes[self.next..upto]);
        self.set_network(packet, &self.headers);
        if self.headers.ip_proto == TCP {
            self.set_tcp(packet, upto == end);
        } else {
            set_udp_len(packet, &self.headers);
        }
        let headers = Headers { end: packet.len() as u16, ..self.headers };
        fill(packet, &headers);
        if let Some(outer) = self.outer {
            self.set_outer(packet, &outer, &headers);
        }
        (self.next, self.number) = (upto, self.number + 1);
    }

    /// Sets the length, and over IPv4 the segment's own identification.
    fn set_network(&self, packet: &mut [u8], headers: &Headers) {
        let at = usize::from(headers.l3);
        let len = packet.len() - at;
        if headers.is_ipv4() {
            packet[at + 2..at + 4].copy_from_slice(&(len as u16).to_be_bytes());
            let id = u16::from_be_bytes([packet[at + 4], packet[at + 5]]);
            let id = id.wrapping_add(self.number as u16);
            packet[at + 4..at + 6].copy_from_slice(&id.to_be_bytes());
        } else {
            packet[at + 4..at + 6]
                .copy_from_slice(&((len - header_len::IPV6) as u16).to_be_bytes());
        }
    }

    /// Sets the sequence number and flags: FIN and PSH only in the last segment, CWR only in the
    /// first.
    fn set_tcp(&self, packet: &mut [u8], is_last: bool) {
        let at = usize::from(self.headers.l4);
        let mut sequence = [0; 4];
        sequence.copy_from_slice(&packet[at + 4..at + 8]);
        let before = (self.next - usize::from(self.headers.payload)) as u32;
        let sequence = u32::from_be_bytes(sequence).wrapping_add(before);
        packet[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        let flags = &mut packet[at + 13];
        *flags &= !(if is_last { 0 } else { FIN | PSH } | if self.number == 0 { 0 } else { CWR });
    }

    /// Sets the lengths, identification and checksums of the tunnel around a finished packet.
    fn set_outer(&self, packet: &mut [u8], outer: &Headers, inner: &Headers) {
        let outer = &Headers { end: packet.len() as u16, ..*outer };
        self.set_network(packet, outer);
        fill_ipv4(packet, outer);
        let is_udp = outer.ip_proto == UDP;
        let (start, field) =
            if is_udp { (usize::from(outer.l4), 6) } else { (usize::from(outer.payload), 4) };
        let (pseudo, is_summed) = if is_udp {
            set_udp_len(packet, outer);
            // Zero is no checksum (RFC 768, RFC 6935), and remains it.
            (pseudo_header_sum(packet, outer), packet[start + 6..start + 8] != [0, 0])
        } else {
            (Some(0), packet[start] & GRE_CHECKSUM != 0)
        };
        let inside = pseudo_header_sum(packet, inner);
        let (true, Some(pseudo), Some(inside)) = (is_summed, pseudo, inside) else { return };
        packet[start + field..start + field + 2].fill(0);
        let sum = Checksum::default().add_u16(pseudo);
        let to = usize::from(inner.l4);
        let sum = if (to - start).is_multiple_of(2) {
            // The inner transport and its pseudo-header sum up to zero: no second pass over the payload.
            sum.add(&packet[start..to]).add_u16(!inside)
        } else {
            sum.add(&packet[start..])
        };
        let sum = match sum.finish() {
            0 if is_udp => u16::MAX,
            sum => sum,
        };
        packet[start + field..start + field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn set_udp_len(packet: &mut [u8], headers: &Headers) {
    let at = usize::from(headers.l4);
    let len = (packet.len() - at) as u16;
    packet[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
}

/// Whether the bytes are one GRE header, without a number of its own for each packet, with an Ethernet
/// header or none after it.
fn is_gre(bytes: &[u8]) -> bool {
    let Some([flags, version, t0, t1]) = bytes.first_chunk::<4>() else { return false };
    if *version != 0 || flags & !(GRE_CHECKSUM | GRE_KEY) != 0 {
        return false;
    }
    let words = 1 + usize::from(flags & GRE_CHECKSUM != 0) + usize::from(flags & GRE_KEY != 0);
    let after = bytes.len().checked_sub(words * 4);
    if u16::from_be_bytes([*t0, *t1]) == TRANSPARENT_ETHERNET {
        after
            .is_some_and(|after| (header_len::ETHERNET..=header_len::ETHERNET + 8).contains(&after))
    } else {
        after == Some(0)
    }
}

/// The headers of the IP packet at `at`, as offsets in `bytes`.
fn inner_headers(bytes: &[u8], at: usize) -> Option<Headers> {
    let ether_type = match bytes.get(at)? >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return None,
    };
    Some(parse_network(bytes, ether_type, at))
}
