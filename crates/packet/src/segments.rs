//! The packets that a super-packet stands for.

use crate::checksum::fill;
use crate::headers::{Headers, ParseStatus};
use crate::wire::header_len;
use crate::wire::ip_proto::{TCP, UDP};
use crate::wire::tcp_flags::{CWR, FIN, PSH};

/// The packets that a super-packet stands for, one after the other, as its sender would have sent
/// them itself: the payload in pieces behind copies of the headers, with lengths, identifications,
/// sequence numbers, flags and checksums of their own.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    headers: Headers,
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
        Some(Self { headers: *headers, size: size.into(), next, number: 0 })
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
        self.set_network(packet);
        if self.headers.ip_proto == TCP {
            self.set_tcp(packet, upto == end);
        } else {
            let at = usize::from(self.headers.l4);
            let len = (packet.len() - at) as u16;
            packet[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
        }
        let headers = Headers { end: packet.len() as u16, ..self.headers };
        fill(packet, &headers);
        (self.next, self.number) = (upto, self.number + 1);
    }

    /// Sets the length, and over IPv4 the segment's own identification.
    fn set_network(&self, packet: &mut [u8]) {
        let at = usize::from(self.headers.l3);
        let len = packet.len() - at;
        if self.headers.is_ipv4() {
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
}
