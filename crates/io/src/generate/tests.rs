//! The generator keeps its word.

use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{Decapsulate, ParseStatus, PortIndex, field, parse};

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
        let sctp = headers.ip_proto == 132;
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
        v6 += u32::from(key.get(field::DL_TYPE) == 0x86dd);
        tagged += u32::from(key.get(field::VLAN_TCI) != 0);
        large += u32::from(bytes.len() == 1514);
    }
    assert!((2500..3500).contains(&v6), "{v6}");
    assert!((5300..6700).contains(&tagged), "{tagged}");
    assert!((850..1150).contains(&large), "{large}");
}

#[test]
fn malformed_packets_come_in_their_share() {
    let spec = Spec { packets: 4000, malformed: 0.5, ..Spec::default() };
    let good = |(bytes, _): &(Vec<u8>, Nanoseconds)| {
        let (_, headers) = parse(bytes, PortIndex(0), Decapsulate::No);
        headers.status == ParseStatus::Complete
    };
    let good = packets(spec).iter().filter(|p| good(p)).count();
    assert!((2000..2700).contains(&good), "{good}");
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
