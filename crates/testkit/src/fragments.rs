//! UDP packets and their fragments.

use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{Decapsulate, PortIndex, checksum, parse};

/// A UDP packet, with identification `id` in IPv4.
///
/// # Panics
/// Never: its addresses are valid.
pub fn packet(v6: bool, len: usize, id: u16) -> Vec<u8> {
    let (from, to) = if v6 {
        ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
    } else {
        ([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
    };
    let data: Vec<u8> = (0..len).map(|n| (n * n + usize::from(id)) as u8).collect();
    let builder = PacketBuilder::new([2; 6], [4; 6]).vlan(7).ip(from, to);
    let mut packet = builder.udp(1000, 2000).build(&data);
    if !v6 {
        packet[22..24].copy_from_slice(&id.to_be_bytes());
        fill(&mut packet);
    }
    packet
}

/// Sets the checksum of an IPv4 header.
pub fn fill(packet: &mut [u8]) {
    let (_, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
    checksum::fill_ipv4(packet, &headers);
}

/// Where IP begins in these packets, and how long their IP headers are.
pub fn headers_of(packet: &[u8]) -> (usize, usize) {
    (18, if packet[18] >> 4 == 4 { 20 } else { 40 })
}

/// The fragment of `packet` that has its data from `from` to `to`.
pub fn part(packet: &[u8], id: u16, from: usize, to: usize) -> Vec<u8> {
    let (l3, header) = headers_of(packet);
    let data = &packet[l3 + header..];
    let more = to < data.len();
    let mut part = packet[..l3 + header].to_vec();
    let place = from as u16 | u16::from(more);
    if header == 20 {
        let flags = u16::from(part[l3 + 6]) << 8 | if more { 0x2000 } else { 0 };
        let place = (from / 8) as u16 | flags;
        part[l3 + 6..l3 + 8].copy_from_slice(&place.to_be_bytes());
        part[l3 + 2..l3 + 4].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
    } else {
        let ([place0, place1], [id0, id1]) = (place.to_be_bytes(), id.to_be_bytes());
        let kind = std::mem::replace(&mut part[l3 + 6], 44);
        part.extend([kind, 0, place0, place1, 0, 0, id0, id1]);
        part[l3 + 4..l3 + 6].copy_from_slice(&((8 + to - from) as u16).to_be_bytes());
    }
    part.extend_from_slice(&data[from..to]);
    fill(&mut part);
    part
}

/// All fragments of `packet`, cut at multiples of `step` bytes.
pub fn parts(packet: &[u8], id: u16, step: usize) -> Vec<Vec<u8>> {
    let (l3, header) = headers_of(packet);
    let len = packet.len() - l3 - header;
    (0..len).step_by(step).map(|from| part(packet, id, from, len.min(from + step))).collect()
}

/// Such that there are two fragments or more, and as few as may be.
pub fn steps(len: usize, step: usize) -> usize {
    (step * 8).clamp(len.div_ceil(60).next_multiple_of(8), len & !7)
}
