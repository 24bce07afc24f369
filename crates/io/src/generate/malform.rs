//! Packets with one thing wrong.

use rand::RngExt;

const ETHERNET: usize = 14;

/// Damages `packet` in one of the ways that parsers must survive.
pub(super) fn malform(packet: &mut Vec<u8>, random: &mut impl RngExt) {
    let l3 = network_offset(packet);
    match random.random_range(0..7) {
        // Cut anywhere.
        0 => packet.truncate(random.random_range(0..packet.len())),
        // A version that there is not.
        1 => set(packet, l3, |b| b & 0x0f | 0x70),
        // A header shorter than the least (IPv4), or another traffic class.
        2 => set(packet, l3, |b| b & 0xf0 | 0x02),
        // A length beyond the end.
        3 => {
            set(packet, l3 + 2, |_| 0xff);
            set(packet, l3 + 4, |_| 0xff);
        }
        // A transport header that ends before it begins.
        4 => set(packet, l3 + 20 + 12, |b| b & 0x0f | 0x10),
        // Random headers.
        5 => {
            let end = packet.len().min(l3 + 40);
            let start = l3.min(end);
            random.fill(&mut packet[start..end]);
        }
        // Nothing but noise.
        _ => random.fill(&mut packet[..]),
    }
}

fn set(packet: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = packet.get_mut(at) {
        *byte = change(*byte);
    }
}

/// Where the network header begins, behind VLAN tags.
fn network_offset(packet: &[u8]) -> usize {
    let mut at = ETHERNET;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = packet.get(at - 2..at) {
        at += 4;
    }
    at
}
