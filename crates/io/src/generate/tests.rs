//! The generator follows its specification.

use std::collections::HashMap;

use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::wire::{ethertype, ip_proto, tcp_flags};
use thalweg_packet::{Decapsulate, FiveTuple, Layer, ParseStatus, PortIndex, field, parse};

use super::*;

fn packets(spec: Spec) -> Vec<(Vec<u8>, Nanoseconds)> {
    let mut input = GeneratorInput::new(spec).unwrap();
    let mut all = Vec::new();
    while let Some((bytes, time)) = input.next_packet() {
        all.push((bytes.to_vec(), time));
    }
    all
}

#[test]
fn the_seed_decides_every_byte() {
    let spec = |seed| Spec { seed, packets: 300, malformed: 0.1, ..Spec::default() };
    assert_eq!(packets(spec(7)), packets(spec(7)));
    assert_ne!(packets(spec(7)), packets(spec(8)));
}

#[test]
fn well_formed_packets_parse_whole_with_good_checksums() {
    let spec = Spec {
        packets: 3000,
        flows: 60,
        ipv6: 0.4,
        vlan_share: 0.5,
        qinq_share: 0.5,
        protocols: Protocols { sctp: 5.0, ..Protocols::default() },
        ..Spec::default()
    };
    let mut checked = 0;
    for (bytes, _) in packets(spec) {
        let (_, headers) = parse(&bytes, PortIndex(0), Decapsulate::No);
        assert_eq!(headers.status, ParseStatus::Complete);
        let status = checksum::verify(&bytes, &headers);
        let sctp = headers.ip_proto == ip_proto::SCTP;
        assert!(status == ChecksumStatus::Good || sctp, "{status:?}");
        checked += usize::from(!sctp);
    }
    assert!(checked > 2000);
}

#[test]
fn shares_and_sizes_are_as_asked() {
    let spec = Spec {
        packets: 12_000,
        flows: 2000,
        ipv6: 0.25,
        vlan_share: 0.5,
        protocols: Protocols { tcp: 0.0, udp: 1.0, icmp: 0.0, sctp: 0.0 },
        ..Spec::default()
    };
    let all = packets(spec);
    assert_eq!(all.len(), 12_000);
    let (mut v6, mut tagged, mut large) = (0, 0, 0);
    for (bytes, _) in &all {
        let (key, _) = parse(bytes, PortIndex(0), Decapsulate::No);
        v6 += u32::from(key.get(field::DL_TYPE) == u64::from(ethertype::IPV6));
        tagged += u32::from(key.get(field::VLAN_TCI) != 0);
        large += u32::from(bytes.len() == 1514);
    }
    assert!((2500..3500).contains(&v6), "{v6}");
    assert!((5300..6700).contains(&tagged), "{tagged}");
    assert!((850..1150).contains(&large), "{large}");
}

#[test]
fn malformed_packets_come_in_their_share() {
    let good = |spec: Spec| {
        let whole = |bytes: &[u8]| {
            parse(bytes, PortIndex(0), Decapsulate::No).1.status == ParseStatus::Complete
        };
        packets(spec).iter().filter(|(bytes, _)| whole(bytes)).count()
    };
    let spec = |malformed| Spec { packets: 4000, ipv6: 0.5, malformed, ..Spec::default() };
    assert_eq!(good(spec(0.0)), 4000);
    assert_eq!(good(spec(1.0)), 0);
    let some = good(spec(0.25));
    assert!((2850..3150).contains(&some), "{some}");
}

/// The next TCP numbers of one end of a connection.
#[derive(Clone, Copy, Default)]
struct Sequence {
    next: u32,
    open: bool,
}

#[test]
fn tcp_connections_open_number_every_byte_and_close() {
    let spec = Spec {
        packets: 20_000,
        flows: 20,
        vlan_share: 0.5,
        ipv6: 0.5,
        protocols: Protocols { tcp: 1.0, udp: 0.0, icmp: 0.0, sctp: 0.0 },
        ..Spec::default()
    };
    // By address and port of the sender, and port of the receiver.
    let mut ends = HashMap::<_, Sequence>::new();
    let (mut opened, mut closed, mut answered) = (0, 0, 0);
    for (bytes, _) in packets(spec) {
        let (_, headers) = parse(&bytes, PortIndex(0), Decapsulate::No);
        let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
        let (at, len) = if headers.is_ipv4() { (12, 4) } else { (8, 16) };
        let address = |n: usize| bytes[l3 + at + n * len..l3 + at + (n + 1) * len].to_vec();
        let port = |n: usize| [bytes[l4 + 2 * n], bytes[l4 + 2 * n + 1]];
        let word = |at: usize| u32::from_be_bytes(*bytes[l4 + at..].first_chunk().unwrap());
        let (seq, ack, flags) = (word(4), word(8), bytes[l4 + 13]);
        let data = u32::from(headers.end - headers.payload);
        let (syn, fin) = (flags & tcp_flags::SYN != 0, flags & tcp_flags::FIN != 0);

        let sender = ends.entry((address(0), port(0), port(1))).or_default();
        if syn {
            *sender = Sequence { next: seq, open: true };
            opened += 1;
        }
        assert!(sender.open, "no segment before the SYN");
        assert_eq!(seq, sender.next, "each byte has the next number");
        sender.next = seq.wrapping_add(data + u32::from(syn || fin));
        if flags & tcp_flags::ACK != 0 {
            let receiver = ends[&(address(1), port(1), port(0))];
            assert_eq!(ack, receiver.next, "all that was sent is acknowledged");
            answered += 1;
        }
        closed += u32::from(fin);
    }
    assert!(opened > 100 && closed > 100 && answered > 19_000, "{opened} {closed} {answered}");
}

#[test]
fn udp_and_echo_go_both_ways() {
    let protocols = Protocols { tcp: 0.0, udp: 1.0, icmp: 1.0, sctp: 0.0 };
    let (mut from_clients, mut from_servers) = (0, 0);
    for (bytes, _) in packets(Spec { packets: 2000, protocols, ..Spec::default() }) {
        match bytes[26] {
            10 => from_clients += 1,
            198 => from_servers += 1,
            other => panic!("no packet comes from {other}"),
        }
    }
    assert!(from_clients > 800 && from_servers > 800, "{from_clients} {from_servers}");
}

/// The bytes of a seed are identical on every machine and in every version: a
/// change here breaks the captures that users have generated.
#[test]
fn the_bytes_of_a_seed_are_pinned() {
    let spec = Spec {
        seed: 42,
        packets: 3000,
        flows: 300,
        zipf: Some(1.1),
        ipv6: 0.3,
        vlan_share: 0.4,
        qinq_share: 0.5,
        vlans: vec![7, 8],
        malformed: 0.05,
        protocols: Protocols { sctp: 5.0, ..Protocols::default() },
        ..Spec::default()
    };
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (bytes, time) in packets(spec) {
        for byte in bytes.iter().chain(&time.0.to_le_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(hash, 0x70e6_33ef_18fb_d2dc, "{hash:#x}");
}

#[test]
fn time_advances_at_the_rate() {
    let all = packets(Spec { packets: 11, rate: 1000.0, ..Spec::default() });
    assert_eq!(all[10].1, Nanoseconds::from_millis(10));
}

#[test]
fn nonsense_is_refused_by_field() {
    let field = |spec: Spec| spec.validate().unwrap_err().field;
    assert_eq!(field(Spec { ipv6: 1.5, ..Spec::default() }), "ipv6");
    assert_eq!(field(Spec { flows: 0, ..Spec::default() }), "flows");
    assert_eq!(field(Spec { clients: vec!["10.0.0.0/99".into()], ..Spec::default() }), "clients");
    assert_eq!(field(Spec { servers: vec![], ..Spec::default() }), "servers");
    assert!("9-8".parse::<Sizes>().is_err() && "64:0".parse::<Sizes>().is_err());
}

#[test]
fn hostile_packets_come_in_their_share_and_are_sound() {
    let spec = |hostile| Spec { seed: 3, packets: 6000, ipv6: 0.3, hostile, ..Spec::default() };
    let peaceful: Vec<_> = packets(Spec { hostile: 0.0, ..spec(0.0) });
    assert_eq!(peaceful, packets(spec(0.0)), "a seed's traffic stays the same");
    let all = packets(spec(1.0));
    assert_eq!(all, packets(spec(1.0)));
    let (mut protocols, mut fragments, mut sources) =
        (std::collections::BTreeSet::new(), 0, std::collections::BTreeSet::new());
    for (bytes, _) in &all {
        let (key, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
        assert!(headers.layer >= Layer::Network && bytes.len() < 1600, "{headers:?}");
        assert!(
            !headers.is_ipv4() || checksum::verify(bytes, &headers) != ChecksumStatus::BadHeader
        );
        protocols.insert(headers.ip_proto);
        fragments += u32::from(headers.fragment);
        sources.extend(FiveTuple::from_key(&key));
    }
    for protocol in [1, 6, 17, 50, 58] {
        assert!(protocols.contains(&protocol), "{protocol} of {protocols:?}");
    }
    assert!(fragments > 200 && sources.len() > 3000, "{fragments} fragments, {}", sources.len());
    let some = packets(spec(0.5));
    let esp = |of: &[(Vec<u8>, Nanoseconds)]| {
        let of_esp = |b: &&(Vec<u8>, Nanoseconds)| {
            parse(&b.0, PortIndex::NONE, Decapsulate::No).1.ip_proto == ip_proto::ESP
        };
        of.iter().filter(of_esp).count() as f64
    };
    assert!((0.4..0.6).contains(&(esp(&some) / esp(&all))));
}
