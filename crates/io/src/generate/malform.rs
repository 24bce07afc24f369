//! Packets with one defect.

use rand::RngExt;
use thalweg_packet::wire::header_len::ETHERNET;
use thalweg_packet::{Decapsulate, Headers, ParseStatus, PortIndex, parse};

/// The kinds of damage that parsers must survive.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Truncated anywhere before the end of its headers.
    Cut,
    /// An IP version that contradicts the EtherType.
    Version,
    /// An IPv4 header shorter than the minimum, or an IPv6 extension header that
    /// does not exist.
    HeaderLength,
    /// An IP length beyond the end of the packet.
    TotalLength,
    /// A transport header that contradicts itself.
    TransportLength,
    /// Noise in place of the network and transport headers.
    NoisyHeaders,
    /// Noise in place of the packet.
    Noise,
}

const DAMAGES: [Damage; 7] = [
    Damage::Cut,
    Damage::Version,
    Damage::HeaderLength,
    Damage::TotalLength,
    Damage::TransportLength,
    Damage::NoisyHeaders,
    Damage::Noise,
];

/// Damages a well-formed IP `packet` so that it cannot be parsed completely.
pub(super) fn malform(packet: &mut Vec<u8>, random: &mut impl RngExt) {
    let headers = headers(packet);
    damage(packet, &headers, DAMAGES[random.random_range(0..DAMAGES.len())], random);
    // Noise may happen to be valid; half an Ethernet header cannot be.
    if self::headers(packet).status == ParseStatus::Complete {
        packet.truncate(ETHERNET / 2);
    }
}

fn headers(packet: &[u8]) -> Headers {
    parse(packet, PortIndex::NONE, Decapsulate::No).1
}

fn damage(packet: &mut Vec<u8>, headers: &Headers, damage: Damage, random: &mut impl RngExt) {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let v4 = headers.is_ipv4();
    match damage {
        Damage::Cut => packet.truncate(random.random_range(0..usize::from(headers.payload))),
        Damage::Version => set(packet, l3, |byte| byte & 0x0f | 0x70),
        Damage::HeaderLength if v4 => set(packet, l3, |byte| byte & 0xf0 | 0x02),
        Damage::HeaderLength => {
            // Hop-by-hop options of 2048 bytes.
            set(packet, l3 + 6, |_| 0);
            set(packet, l3 + 41, |_| 0xff);
        }
        Damage::TotalLength => set(packet, l3 + if v4 { 2 } else { 4 }, |_| 0xff),
        Damage::TransportLength => match headers.ip_proto {
            6 => set(packet, l4 + 12, |byte| byte & 0x0f | 0x10),
            17 => {
                set(packet, l4 + 4, |_| 0);
                set(packet, l4 + 5, |_| 3);
            }
            _ => packet.truncate(l4 + 2),
        },
        Damage::NoisyHeaders => {
            let end = packet.len().min(usize::from(headers.payload));
            random.fill(&mut packet[l3.min(end)..end]);
        }
        Damage::Noise => random.fill(&mut packet[..]),
    }
}

fn set(packet: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = packet.get_mut(at) {
        *byte = change(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use thalweg_packet::write::{IcmpEcho, PacketBuilder, TcpSegment};

    #[test]
    fn every_damage_hurts_every_protocol() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let builder = PacketBuilder::new([2; 6], [4; 6]).vlan(5);
        let v4 = builder.clone().ip([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let v6 = builder.ip([1u16; 8].into(), [2u16; 8].into());
        for ip in [v4, v6] {
            let packets = [
                ip.clone().udp(1, 2),
                ip.clone().tcp(TcpSegment::default()),
                ip.clone().echo(IcmpEcho::default()),
                ip.sctp(1, 2),
            ];
            for packet in packets.map(|builder| builder.build(&[0xaa; 60])) {
                let whole = headers(&packet);
                assert_eq!(whole.status, ParseStatus::Complete);
                for kind in &DAMAGES[..5] {
                    let mut hurt = packet.clone();
                    damage(&mut hurt, &whole, *kind, &mut random);
                    let status = headers(&hurt).status;
                    assert_ne!(status, ParseStatus::Complete, "{kind:?} of {}", whole.ip_proto);
                }
                for _ in 0..200 {
                    let mut hurt = packet.clone();
                    malform(&mut hurt, &mut random);
                    assert_ne!(headers(&hurt).status, ParseStatus::Complete);
                }
            }
        }
    }
}
