//! The work that a sender's kernel leaves to hardware: completes it, or leaves it to the next one.
//!
//! Packets of this machine (over veth, a bridge, from a virtual machine) reach a live input
//! before any hardware has seen them: with a partial transport checksum, and as TCP or UDP packets
//! of up to 64 KiB that are not segmented yet. The kernel's receive offload merges packets of
//! other machines into such long ones. With each of them the kernel reports the missing work, as a
//! virtio network header (virtio 1.2, section 5.1.6).

use thalweg_packet::checksum::{Checksum, fill, is_ipv4_header_bad, pseudo_header_sum};
use thalweg_packet::wire::ip_proto::{TCP, UDP};
use thalweg_packet::wire::tcp_flags::CWR;
use thalweg_packet::{Decapsulate, PortIndex, Segments, parse};

/// The length of a virtio network header.
pub const HEADER: usize = 10;

/// The flags and kinds of segmentation of a virtio network header.
mod virtio {
    /// The transport checksum is missing.
    pub(super) const NEEDS_CSUM: u8 = 1;
    pub(super) const TCP_V4: u8 = 1;
    /// UDP that should become IP fragments, which no kernel requests since 4.14.
    pub(super) const FRAGMENTS: u8 = 3;
    pub(super) const TCP_V6: u8 = 4;
    pub(super) const UDP: u8 = 5;
    /// With a kind of TCP: the first segment alone has CWR.
    pub(super) const ECN: u8 = 0x80;
}

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
    pub fn read(header: [u8; HEADER]) -> Self {
        let [flags, kind, _, _, size @ .., s0, s1, o0, o1] = header;
        let start = u16::from_ne_bytes([s0, s1]);
        let at = u16::from_ne_bytes([o0, o1]);
        let size = if kind == virtio::FRAGMENTS { 0 } else { u16::from_ne_bytes(size) };
        Self {
            checksum: (flags & virtio::NEEDS_CSUM != 0).then_some((start, at)),
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

    /// The segment size of a packet that needs segmentation, if it can be
    /// [segmented](Self::segments).
    pub fn segment_size(&self, bytes: &[u8]) -> Option<u16> {
        self.segments(bytes).and(self.segment)
    }

    /// The segments of a packet, as its sender intended. `None` unless it needs segmentation, and is
    /// TCP or UDP over IP without a tunnel, with data.
    pub fn segments(&self, bytes: &[u8]) -> Option<Segments> {
        let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
        // A tunnel's payload needs other segmentation: the missing checksum is of another header.
        if self.checksum.is_some_and(|(start, _)| start != headers.l4) {
            return None;
        }
        Segments::of(bytes, &headers, self.segment?)
    }
}

/// Writes the transport checksum of a packet that has the sum of the pseudo-header in its place, as a
/// kernel leaves it to hardware, where no header reports that it did; returns whether it had it. Any
/// other packet stays as it is: also one that has this sum by chance, if its checksum is right.
pub fn complete_partial(bytes: &mut [u8]) -> bool {
    let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
    let field = if headers.has_transport(TCP) { 16 } else { 6 };
    let is_transport = headers.has_transport(TCP) || headers.has_transport(UDP);
    if !is_transport || is_ipv4_header_bad(bytes, &headers) {
        return false;
    }
    let at = usize::from(headers.l4) + field;
    let found = bytes.get(at..at + 2).map(|sum| u16::from_be_bytes([sum[0], sum[1]]));
    // In UDP over IPv4, zero is a packet without checksum.
    let is_partial =
        found.is_some_and(|sum| sum != 0) && found == pseudo_header_sum(bytes, &headers);
    if is_partial {
        fill(bytes, &headers);
    }
    is_partial
}

/// What hardware, or another kernel, needs to segment a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The virtio network header, in the byte order of this machine.
    pub header: [u8; HEADER],
    /// The place of the transport checksum in the packet, and the sum of the pseudo-header, which has
    /// to be there.
    pub checksum: (usize, [u8; 2]),
    /// The length of the longest segment in bytes, from the Ethernet header on.
    pub longest: usize,
}

impl Segmentation {
    /// That of a super-packet; `None` if it cannot be segmented.
    pub fn of(bytes: &[u8], segment_size: u16) -> Option<Self> {
        let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
        let longest = Segments::of(bytes, &headers, segment_size)?.next_len()?;
        let is_tcp = headers.ip_proto == TCP;
        let (at, field) = (usize::from(headers.l4), if is_tcp { 16 } else { 6 });
        let kind = match (is_tcp, headers.is_ipv4()) {
            (false, _) => virtio::UDP,
            (true, true) => virtio::TCP_V4,
            (true, false) => virtio::TCP_V6,
        };
        let ecn = if is_tcp && bytes[at + 13] & CWR != 0 { virtio::ECN } else { 0 };
        let mut header = [0; HEADER];
        (header[0], header[1]) = (virtio::NEEDS_CSUM, kind | ecn);
        let words = [headers.payload, segment_size, headers.l4, field];
        for (place, word) in header[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let sum = pseudo_header_sum(bytes, &headers)?.to_be_bytes();
        Some(Self { header, checksum: (at + usize::from(field), sum), longest })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_packet::Headers;
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
            let mut segments = offload.segments(&long).unwrap();
            let (mut packet, mut carried, mut number) = (Vec::new(), Vec::new(), 0_u16);
            let segments_left = segments.len();
            while let Some(len) = segments.next_len() {
                packet.resize(len, 0);
                segments.write_next(&long, &mut packet);
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
            prop_assert_eq!(usize::from(number), segments_left);
        }

        #[test]
        fn hostile_packets_and_headers_do_no_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            header in any::<[u8; 10]>(),
        ) {
            complete_partial(&mut bytes.clone());
            let offload = Offload::read(header);
            offload.complete(&mut bytes.clone());
            let Some(mut segments) = offload.segments(&bytes) else { return Ok(()) };
            while let Some(len) = segments.next_len() {
                segments.write_next(&bytes, &mut vec![0; len]);
            }
            let size = offload.segment_size(&bytes).unwrap();
            prop_assert!(Segmentation::of(&bytes, size).is_some());
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
            half[place..place + 2].copy_from_slice(&pseudo.sum().to_be_bytes());
            assert!(complete_partial(&mut half));
            assert_eq!(half, right);
            assert!(!complete_partial(&mut half), "it is complete");
            // Without the flag the packet is unchanged.
            half[place] ^= 1;
            let wrong = half.clone();
            Offload::read(header(0, 0, 0, at.l4, field as u16)).complete(&mut half);
            assert_eq!(half, wrong);
        }
    }

    /// The next one to segment it gets back what was read.
    #[test]
    fn segmentation_left_to_others_reads_as_it_was() {
        for (v6, tcp, kind, field) in
            [(false, false, 5, 6), (false, true, 1, 16), (true, false, 5, 6), (true, true, 4, 16)]
        {
            let tcp_segment = TcpSegment { flags: CWR, ..TcpSegment::default() };
            let builder = builder(v6);
            let builder = if tcp { builder.tcp(tcp_segment) } else { builder.udp(1, 2) };
            let mut packet = builder.build(&[7; 500]);
            let headers = whole(&packet);
            let left = Segmentation::of(&packet, 100).unwrap();
            let ecn = if tcp { 0x80 } else { 0 };
            let mut expected = header(1, kind | ecn, 100, headers.l4, field);
            expected[2..4].copy_from_slice(&headers.payload.to_ne_bytes());
            assert_eq!(left.header, expected);
            let right = packet.clone();
            let (at, sum) = left.checksum;
            packet[at..at + 2].copy_from_slice(&sum);
            let offload = Offload::read(left.header);
            assert_eq!(offload.segment_size(&packet), Some(100));
            offload.complete(&mut packet);
            assert_eq!(packet, right);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let tcp = builder(false).tcp(TcpSegment::default());
        let cut = |kind, size, start, packet: Vec<u8>| {
            Offload::read(header(1, kind, size, start, 16)).segment_size(&packet).is_some()
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
