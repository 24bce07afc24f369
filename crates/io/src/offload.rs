//! The work that a sender's kernel leaves to hardware: completes it, or leaves it to the next one.
//!
//! Packets of this machine (over veth, a bridge, from a virtual machine) reach a live input
//! before any hardware has seen them: with a partial transport checksum, and as TCP or UDP packets
//! of up to 64 KiB that are not segmented yet. The kernel's receive offload merges packets of
//! other machines into such long ones. With each of them the kernel reports the missing work, as a
//! virtio network header (virtio 1.2, section 5.1.6).

use thalweg_packet::checksum::{Checksum, checksum, fill, is_ipv4_header_bad, pseudo_header_sum};
use thalweg_packet::wire::header_len;
use thalweg_packet::wire::ip_proto::{TCP, UDP};
use thalweg_packet::wire::tcp_flags::CWR;
use thalweg_packet::{Decapsulate, Headers, Metadata, PortIndex, Segments, parse};

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
    is_tcp: bool,
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
            is_tcp: matches!(kind & !virtio::ECN, virtio::TCP_V4 | virtio::TCP_V6),
        }
    }

    /// Whether the packet needs segmentation.
    pub fn cuts(&self) -> bool {
        self.segment.is_some()
    }

    /// Whether it needs segmentation as TCP: the packet itself, or the one in its tunnel.
    pub fn is_tcp(&self) -> bool {
        self.segment.is_some() && self.is_tcp
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

    /// How a packet that needs segmentation is segmented, if it can be [segmented](Self::segments).
    pub fn division(&self, bytes: &[u8]) -> Option<SuperForm> {
        let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
        let form = self.form(bytes, &headers)?;
        form.segments(bytes, &headers).map(|_| form)
    }

    /// The segments of a packet, as its sender intended. `None` unless it needs segmentation, and is
    /// TCP or UDP over IP, with data, or such a packet in one tunnel.
    pub fn segments(&self, bytes: &[u8]) -> Option<Segments> {
        let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
        self.form(bytes, &headers)?.segments(bytes, &headers)
    }

    /// The form of a packet, of which nothing was checked yet.
    fn form(&self, bytes: &[u8], headers: &Headers) -> Option<SuperForm> {
        let segment_size = self.segment?;
        let inner_len = match self.checksum {
            // The missing checksum is of another header: the packet in a tunnel needs segmentation.
            Some((start, _)) if start != headers.l4 => inner_len(bytes, headers, start.into())?,
            _ => 0,
        };
        Some(SuperForm { segment_size, inner_len })
    }
}

/// How a super-packet is segmented: what its metadata have of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperForm {
    /// The bytes of payload in each segment.
    pub segment_size: u16,
    /// The length of the IP packet in its tunnel, or 0.
    pub inner_len: u16,
}

impl SuperForm {
    /// Notes it for the super-packet of `lane`.
    pub fn set(self, meta: &mut Metadata, lane: usize) {
        (meta.segment_size[lane], meta.inner_len[lane]) = (self.segment_size, self.inner_len);
    }

    fn segments(self, bytes: &[u8], headers: &Headers) -> Option<Segments> {
        match self.inner_len {
            0 => Segments::of(bytes, headers, self.segment_size),
            len => Segments::in_tunnel(bytes, headers, len, self.segment_size),
        }
    }
}

/// The length of the IP packet in a tunnel whose transport header is at `l4`. The kernel's header
/// does not have it: an IP header without options has to end there, and to enclose the rest.
fn inner_len(bytes: &[u8], outer: &Headers, l4: usize) -> Option<u16> {
    let rest = bytes.len().checked_sub(l4)?;
    let after_outer = |at: &usize| *at > outer.payload.into();
    let encloses = |at: usize, field: usize, len: usize| {
        bytes
            .get(at + field..at + field + 2)
            .is_some_and(|found| usize::from(u16::from_be_bytes([found[0], found[1]])) == len)
    };
    let v4 = l4.checked_sub(header_len::IPV4).filter(after_outer).filter(|at| {
        let header = &bytes[*at..l4];
        header[0] == 0x45 && checksum(header) == 0 && encloses(*at, 2, header_len::IPV4 + rest)
    });
    let v6 = || {
        let at = l4.checked_sub(header_len::IPV6).filter(after_outer)?;
        (bytes[at] >> 4 == 6 && matches!(bytes[at + 6], TCP | UDP) && encloses(at, 4, rest))
            .then_some(at)
    };
    let at = v4.or_else(v6)?;
    u16::try_from(bytes.len() - at).ok()
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
            let form = offload.division(&bytes).unwrap();
            let here = Segmentation::of(&bytes, form.segment_size);
            prop_assert!(here.is_some() || form.inner_len != 0);
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
            let plain = SuperForm { segment_size: 100, inner_len: 0 };
            assert_eq!(offload.division(&packet), Some(plain));
            offload.complete(&mut packet);
            assert_eq!(packet, right);
        }
    }

    /// A TCP packet in a tunnel, as a kernel leaves it to be segmented: the packet, and where the header of
    /// the inner TCP is.
    fn tunnelled(v6: bool, gre: &[u8], payload: &[u8]) -> (Vec<u8>, u16) {
        let inner = builder(v6).ipv4_id(9, true).tcp(TcpSegment::default()).build(payload);
        let l4 = whole(&inner).l4;
        if gre.is_empty() {
            let header = [8, 0, 0, 0, 0, 0, 7, 0];
            // Not a port that the parser knows: Linux uses it where none is given.
            let outer = builder(!v6).udp(50_000, 8472).build(&[&header[..], &inner].concat());
            let before = (outer.len() - inner.len()) as u16;
            (outer, before + l4)
        } else {
            let inner = if gre[2..4] == [0x65, 0x58] { &inner[..] } else { &inner[14..] };
            let outer = builder(!v6).protocol(47).build(&[gre, inner].concat());
            let from_ip = (l4 - 14)
                + if inner.len() == payload.len() + usize::from(l4) + 20 { 14 } else { 0 };
            let before = (outer.len() - inner.len()) as u16;
            (outer, before + from_ip)
        }
    }

    proptest! {
        #[test]
        fn the_packet_in_a_tunnel_is_segmented_with_its_tunnel(
            v6: bool, how in 0..4_usize, size in 1_u16..9000,
            payload in proptest::collection::vec(any::<u8>(), 1..20_000),
        ) {
            let ip = if v6 { [0x86, 0xdd] } else { [8, 0] };
            let gre: &[u8] = match how {
                0 => &[],
                1 => &[0, 0, 0x65, 0x58],
                2 => &[0xa0, 0, ip[0], ip[1], 1, 1, 0, 0, 0, 0, 0, 7],
                _ => &[0x80, 0, 0x65, 0x58, 2, 2, 0, 0],
            };
            let (long, l4) = tunnelled(v6, gre, &payload);
            let offload = Offload::read(header(1, 1, size, l4, 16));
            let form = offload.division(&long).unwrap();
            let ip_len = if v6 { 40 } else { 20 };
            prop_assert_eq!(usize::from(form.inner_len), long.len() - usize::from(l4) + ip_len);
            let mut segments = offload.segments(&long).unwrap();
            let (mut packet, mut carried, mut number) = (Vec::new(), Vec::new(), 0_u16);
            while let Some(len) = segments.next_len() {
                packet.resize(len, 0);
                segments.write_next(&long, &mut packet);
                let (_, outer) = parse(&packet, PortIndex::NONE, Decapsulate::No);
                prop_assert_eq!(usize::from(outer.end), len);
                let status = verify(&packet, &outer);
                let expected = if gre.is_empty() { ChecksumStatus::Good } else { ChecksumStatus::Unchecked };
                prop_assert_eq!(status, expected);
                let from = usize::from(outer.payload);
                if gre.first().is_some_and(|flags| flags & 0x80 != 0) {
                    prop_assert_eq!(checksum(&packet[from..]), 0);
                }
                if outer.is_ipv4() {
                    let id = u16::from_be_bytes([packet[18], packet[19]]);
                    prop_assert_eq!(id, u16::from_be_bytes([long[18], long[19]]).wrapping_add(number));
                }
                // The inner packet by itself.
                let at = usize::from(l4) - ip_len;
                let link = [&[2; 12][..], &ip, &packet[at..]].concat();
                let inner = whole(&link);
                carried.extend_from_slice(&link[usize::from(inner.payload)..usize::from(inner.end)]);
                number += 1;
            }
            prop_assert_eq!(carried, payload);
        }
    }

    #[test]
    fn what_is_in_two_tunnels_or_in_one_with_numbers_is_refused() {
        let (long, l4) = tunnelled(false, &[], &[7; 3000]);
        assert!(Offload::read(header(1, 1, 100, l4, 16)).division(&long).is_some());
        assert!(Offload::read(header(1, 1, 100, l4 + 2, 16)).division(&long).is_none());
        let twice =
            builder(false).udp(1, 8472).build(&[&[8, 0, 0, 0, 0, 0, 7, 0], &long[..]].concat());
        let before = (twice.len() - long.len()) as u16;
        assert!(Offload::read(header(1, 1, 100, before + l4, 16)).division(&twice).is_none());
        let (numbered, l4) = tunnelled(false, &[0x10, 0, 0x65, 0x58, 0, 0, 0, 1], &[7; 3000]);
        assert!(Offload::read(header(1, 1, 100, l4, 16)).division(&numbered).is_none());
        let mut short = long.clone();
        short.truncate(long.len() - 1);
        assert!(Offload::read(header(1, 1, 100, l4, 16)).division(&short).is_none());
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let tcp = builder(false).tcp(TcpSegment::default());
        let cut = |kind, size, start, packet: Vec<u8>| {
            Offload::read(header(1, kind, size, start, 16)).division(&packet).is_some()
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
