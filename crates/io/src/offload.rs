//! Completes the work that a sender's kernel left to hardware.
//!
//! Packets of this machine (over veth, a bridge, from a virtual machine) reach a live input
//! before any hardware has seen them: with a partial transport checksum, and as TCP or UDP packets
//! of up to 64 KiB that are not segmented yet. The kernel's receive offload merges packets of
//! other machines into such long ones. With each of them the kernel reports the missing work, as a
//! virtio network header (virtio 1.2, section 5.1.6).

use thalweg_packet::checksum::{Checksum, fill};
use thalweg_packet::wire::header_len;
use thalweg_packet::wire::ip_proto::{TCP, UDP};
use thalweg_packet::wire::tcp_flags::{CWR, FIN, PSH};
use thalweg_packet::{Decapsulate, Headers, PortIndex, parse};

/// The work that is missing on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum: the start of the bytes it covers, and its offset from there.
    checksum: Option<(u16, u16)>,
    /// Segmentation: the bytes after the headers that go into each segment, or 0 if it cannot be
    /// segmented so.
    segment: Option<u16>,
}

impl Offload {
    /// Reads a virtio network header, in the byte order of this machine.
    pub fn read(header: [u8; 10]) -> Self {
        // UDP that should become IP fragments, which no kernel requests since 4.14.
        const FRAGMENTS: u8 = 3;
        let [flags, kind, _, _, size @ .., s0, s1, o0, o1] = header;
        let start = u16::from_ne_bytes([s0, s1]);
        let at = u16::from_ne_bytes([o0, o1]);
        let size = if kind == FRAGMENTS { 0 } else { u16::from_ne_bytes(size) };
        Self {
            checksum: (flags & 1 != 0).then_some((start, at)),
            segment: (kind != 0).then_some(size),
        }
    }

    /// Whether the packet needs segmentation.
    pub fn cuts(&self) -> bool {
        self.segment.is_some()
    }

    /// Writes the transport checksum, if it is missing and lies within the packet.
    ///
    /// The sender has put the sum of the pseudo-header in its place.
    pub fn complete(&self, bytes: &mut [u8]) {
        let Some((start, at)) = self.checksum else { return };
        let (start, at) = (usize::from(start), usize::from(start) + usize::from(at));
        if at + 2 > bytes.len() {
            return;
        }
        let sum = Checksum::default().add(&bytes[start..]).finish();
        // Zero would mean no checksum in UDP; elsewhere 0xffff is the same number.
        let sum = if sum == 0 { 0xffff } else { sum };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Segments a packet as its sender intended. `None` unless it is TCP or UDP over IP without a
    /// tunnel, with data, and of at most 65,535 bytes.
    pub fn segments(&self, bytes: Vec<u8>) -> Option<Segments> {
        let (_, headers) = parse(&bytes, PortIndex::NONE, Decapsulate::No);
        let is_whole = |protocol| headers.has_transport(protocol) && !headers.fragment;
        if !is_whole(TCP) && !is_whole(UDP) || headers.payload == headers.end {
            return None;
        }
        // A tunnel's payload needs other segmentation: the missing checksum is of another header.
        if self.checksum.is_some_and(|(start, _)| start != headers.l4) {
            return None;
        }
        let size = usize::from(self.segment.filter(|size| *size != 0)?);
        let next = usize::from(headers.payload);
        Some(Segments { bytes, headers, size, next, number: 0 })
    }
}

/// The segments of a long packet.
#[derive(Debug)]
pub struct Segments {
    bytes: Vec<u8>,
    headers: Headers,
    /// Bytes after the headers of each segment but the last.
    size: usize,
    /// The start of the next segment in the long packet.
    next: usize,
    number: u32,
}

impl Segments {
    /// Writes the next segment to `packet`, replacing its content; returns `false` if there is
    /// none.
    pub fn next(&mut self, packet: &mut Vec<u8>) -> bool {
        let (head, end) = (usize::from(self.headers.payload), usize::from(self.headers.end));
        if self.next >= end {
            return false;
        }
        let upto = end.min(self.next + self.size);
        packet.clear();
        packet.extend_from_slice(&self.bytes[..head]);
        packet.extend_from_slice(&self.bytes[self.next..upto]);
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
        true
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_packet::checksum::{ChecksumStatus, verify};
    use thalweg_packet::write::{PacketBuilder, TcpSegment};

    use super::*;

    /// A virtio network header, as the kernel writes it.
    fn header(flags: u8, kind: u8, size: u16, start: u16, at: u16) -> [u8; 10] {
        let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (place, value) in [(4, size), (6, start), (8, at)] {
            header[place..place + 2].copy_from_slice(&value.to_ne_bytes());
        }
        header
    }

    fn builder(v6: bool) -> PacketBuilder {
        let builder = PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        if v6 {
            builder.ip("fd01::1".parse().unwrap(), "fd02::2".parse().unwrap())
        } else {
            builder.ip("10.1.0.1".parse().unwrap(), "10.2.0.2".parse().unwrap())
        }
    }

    fn whole(packet: &[u8]) -> Headers {
        let (_, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
        assert_eq!(verify(packet, &headers), ChecksumStatus::Good);
        headers
    }

    proptest! {
        #[test]
        fn segments_carry_what_the_long_packet_did(
            v6: bool, tcp: bool, size in 1_u16..9000, payload in proptest::collection::vec(any::<u8>(), 1..20_000),
        ) {
            const ALL_FLAGS: u8 = 0xff;
            let segment = TcpSegment { seq: 0xffff_f000, flags: ALL_FLAGS, ..TcpSegment::default() };
            let builder = if tcp { builder(v6).tcp(segment) } else { builder(v6).udp(1, 2) };
            let long = builder.build(&payload);
            let (_, headers) = parse(&long, PortIndex::NONE, Decapsulate::No);
            let offload = Offload::read(header(1, 1, size, headers.l4, 16));
            let mut segments = offload.segments(long.clone()).unwrap();
            let (mut packet, mut carried, mut number) = (Vec::new(), Vec::new(), 0_u16);
            while segments.next(&mut packet) {
                let at = whole(&packet);
                let data = &packet[usize::from(at.payload)..usize::from(at.end)];
                prop_assert!(data.len() <= usize::from(size));
                prop_assert_eq!(usize::from(at.end), packet.len());
                let is_last = carried.len() + data.len() == payload.len();
                if tcp {
                    let field = &packet[usize::from(at.l4)..];
                    let sequence = 0_u32.wrapping_sub(0x1000).wrapping_add(carried.len() as u32);
                    prop_assert_eq!(&field[4..8], sequence.to_be_bytes());
                    let flags = field[13];
                    prop_assert_eq!(flags & 0x09 != 0, is_last);
                    prop_assert_eq!(flags & 0x80 != 0, number == 0);
                    prop_assert_eq!(flags | 0x89, ALL_FLAGS);
                }
                if !v6 {
                    let id = u16::from_be_bytes([packet[18], packet[19]]);
                    let first = u16::from_be_bytes([long[18], long[19]]);
                    prop_assert_eq!(id, first.wrapping_add(number));
                }
                carried.extend_from_slice(data);
                number += 1;
            }
            prop_assert_eq!(carried, payload);
        }

        #[test]
        fn hostile_packets_and_headers_do_no_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            header in any::<[u8; 10]>(),
        ) {
            let offload = Offload::read(header);
            offload.complete(&mut bytes.clone());
            let mut packet = Vec::new();
            if let Some(mut segments) = offload.segments(bytes) {
                while segments.next(&mut packet) {}
            }
        }
    }

    #[test]
    fn a_checksum_half_there_is_completed() {
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let builder = builder(v6);
            let builder = if tcp { builder.tcp(TcpSegment::default()) } else { builder.udp(1, 2) };
            let right = builder.build(b"hello");
            let at = whole(&right);
            let (field, addresses) = (
                if tcp { 16 } else { 6 },
                if v6 { at.l3 + 8..at.l3 + 40 } else { at.l3 + 12..at.l3 + 20 },
            );
            let place = usize::from(at.l4) + field;
            // A kernel leaves the sum of the pseudo-header, not complemented.
            let pseudo = Checksum::default()
                .add(&right[usize::from(addresses.start)..usize::from(addresses.end)])
                .add_u16(u16::from(at.ip_proto))
                .add_u16(at.end - at.l4);
            let mut half = right.clone();
            half[place..place + 2].copy_from_slice(&pseudo.sum().to_be_bytes());
            Offload::read(header(1, 0, 0, at.l4, field as u16)).complete(&mut half);
            assert_eq!(half, right);
            // Without the flag the packet is unchanged.
            half[place] ^= 1;
            let wrong = half.clone();
            Offload::read(header(0, 0, 0, at.l4, field as u16)).complete(&mut half);
            assert_eq!(half, wrong);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let tcp = builder(false).tcp(TcpSegment::default());
        let cut = |kind, size, start, packet: Vec<u8>| {
            Offload::read(header(1, kind, size, start, 16)).segments(packet).is_some()
        };
        assert!(cut(1, 100, 34, tcp.build(&[1; 500])));
        assert!(!cut(3, 100, 34, tcp.build(&[1; 500])), "UDP fragmentation is not supported");
        assert!(!cut(1, 0, 34, tcp.build(&[1; 500])), "the segment size is 0");
        assert!(!cut(1, 100, 84, tcp.build(&[1; 500])), "the inner packet needs the segmentation");
        assert!(!cut(1, 100, 34, tcp.build(&[])), "there is no payload");
        let mut fragment = tcp.build(&[1; 500]);
        fragment[20] |= 0x20;
        assert!(!cut(1, 100, 34, fragment));
        assert!(!cut(1, 100, 34, builder(false).protocol(47).build(&[1; 500])));
    }
}
