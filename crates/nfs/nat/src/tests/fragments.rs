//! Fragments in any order, and hairpins.

use super::*;
use thalweg_testkit::pass as pass_all;

/// Cuts a packet into fragments of `step` bytes of data, with an identification.
fn cut(packet: &[u8], id: u16, step: usize) -> Vec<Vec<u8>> {
    let data = &packet[34..];
    (0..data.len())
        .step_by(step)
        .map(|from| {
            let to = data.len().min(from + step);
            let mut part = [&packet[..34], &data[from..to]].concat();
            let place = (from / 8) as u16 | if to < data.len() { 0x2000 } else { 0 };
            part[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
            part[18..20].copy_from_slice(&id.to_be_bytes());
            part[20..22].copy_from_slice(&place.to_be_bytes());
            let headers = parsed(&part).1;
            checksum::fill_ipv4(&mut part, &headers);
            part
        })
        .collect()
}

/// A packet of `kind` with 100 bytes of data.
fn long(kind: u8, from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let builder = PacketBuilder::new([2; 6], [4; 6]).ip(from.0.into(), to.0.into());
    let tcp = TcpSegment { src_port: from.1, dst_port: to.1, flags: SYN, ..TcpSegment::default() };
    match kind {
        0 => builder.tcp(tcp),
        1 => builder.udp(from.1, to.1),
        _ => builder.echo(IcmpEcho { reply: from.0[0] != 10, id: from.1.min(to.1), seq: 1 }),
    }
    .build(&[9; 100])
}

/// Puts fragments together; panics if their headers differ in more than they may.
fn whole(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    let place = |part: &Vec<u8>| u16::from_be_bytes([part[20], part[21]]) & 0x1fff;
    parts.sort_by_key(place);
    let mut packet = parts[0][..34].to_vec();
    for part in &parts {
        let headers = parsed(part).1;
        assert!(!checksum::is_ipv4_header_bad(part, &headers));
        assert_eq!(part[26..34], packet[26..34], "all have the same addresses");
        packet.extend_from_slice(&part[34..]);
    }
    let len = (packet.len() - 14) as u16;
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    packet[20..22].fill(0);
    let headers = parsed(&packet).1;
    checksum::fill_ipv4(&mut packet, &headers);
    packet
}

/// All packets that leave, in one batch or one by one.
fn through(nat: &mut dyn NetworkFunction, packets: &[Vec<u8>], together: bool) -> Vec<Vec<u8>> {
    let size = if together { packets.len() } else { 1 };
    let mut left = Vec::new();
    for packets in packets.chunks(size) {
        let (fates, emitted) = pass_all(nat, (64, 2048), packets, Nanoseconds::from_secs(1), None);
        left.extend(fates.into_iter().flatten());
        left.extend(emitted);
    }
    left
}

fn figure(nat: &dyn NetworkFunction, name: &str) -> u64 {
    nat.figures().into_iter().find(|(known, _)| *known == name).unwrap().1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the order, out and in, the whole packet is what a NAT makes of the whole packet.
    #[test]
    fn the_order_of_fragments_does_not_matter(
        kind in prop_oneof![Just(0u8), Just(1), Just(3)], step in (4usize..8).prop_map(|n| n * 8),
        order in Just([0, 1, 2, 3]).prop_shuffle(), together in any::<bool>(),
    ) {
        let from = ([10, 0, 0, 5], 4000);
        let out = long(kind, from, REMOTE);
        let mut plain = nat("");
        let translated = pass(&mut *plain, &out, 1).unwrap();
        let shuffled = |packet: &[u8], id| {
            let parts = cut(packet, id, step);
            let order = order.iter().filter(|at| **at < parts.len());
            order.map(|at| parts[*at].clone()).chain(parts.iter().skip(4).cloned()).collect()
        };
        let mut nat = nat("");
        let parts: Vec<_> = shuffled(&out, 7);
        let left = through(&mut *nat, &parts, together);
        prop_assert_eq!(left.len(), parts.len());
        let mut expected = translated.clone();
        expected[18..22].copy_from_slice(&[0, 7, 0, 0]);
        let headers = parsed(&expected).1;
        checksum::fill_ipv4(&mut expected, &headers);
        prop_assert_eq!(whole(left), expected);
        // The answer, to the end point that the NAT chose.
        let (address, port) = source_of(&translated);
        let port = if kind == 3 { parsed(&translated).0.get(field::ICMP_ID) as u16 } else { port };
        let back = long(kind, (REMOTE.0, if kind == 3 { port } else { REMOTE.1 }), (address, port));
        let parts: Vec<_> = shuffled(&back, 9);
        let left = through(&mut *nat, &parts, together);
        prop_assert_eq!(left.len(), parts.len());
        let whole = whole(left);
        prop_assert_eq!(&whole[30..34], &from.0);
        prop_assert_eq!(checksum::verify(&whole, &parsed(&whole).1), ChecksumStatus::Good);
        prop_assert_eq!(figure(&*nat, "fragments_lost"), 0);
    }
}

#[test]
fn fragments_without_a_first_are_held_and_lost_by_name() {
    let mut nat = nat("");
    let parts = cut(&long(1, ([10, 0, 0, 5], 4000), REMOTE), 7, 40);
    for part in &parts[1..] {
        assert_eq!(pass(&mut *nat, part, 1), Err(DropReason::FragmentHeld));
    }
    assert_eq!(figure(&*nat, "fragments_held"), parts.len() as u64 - 1);
    pass(&mut *nat, &packet(1, ([10, 0, 0, 5], 4000), REMOTE, 0), 32).unwrap();
    assert_eq!(figure(&*nat, "fragments_lost"), parts.len() as u64 - 1);
    let (_, emitted) =
        pass_all(&mut *nat, (64, 2048), &parts[..1], Nanoseconds::from_secs(32), None);
    assert!(emitted.is_empty());
}

#[test]
fn a_hairpin_in_fragments_arrives_whole() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut nat = nat("filtering = 'endpoint-independent'\n");
        let server = ([10, 0, 0, 6], 53);
        let external = source_of(&pass(&mut *nat, &packet(1, server, REMOTE, 0), 1).unwrap());
        let parts = cut(&long(1, ([10, 0, 0, 5], 4000), external), 7, 40);
        let parts: Vec<_> = order.iter().map(|at| parts[*at].clone()).collect();
        let left = through(&mut *nat, &parts, false);
        assert_eq!(left.len(), 3, "{order:?}");
        let whole = whole(left);
        assert_eq!(whole[30..34], server.0);
        assert_eq!(whole[26..29], [192, 0, 2]);
        assert_eq!(checksum::verify(&whole, &parsed(&whole).1), ChecksumStatus::Good);
    }
}

#[test]
fn an_echo_to_an_external_address_does_not_come_back_as_its_own_answer() {
    for filtering in ["endpoint-independent", "address-dependent"] {
        let mut nat = nat(&format!("filtering = '{filtering}'\n"));
        for (host, id) in [(5, 1), (6, 1), (6, 2)] {
            let to_remote = packet(3, ([10, 0, 0, host], id), REMOTE, 0);
            assert!(pass(&mut *nat, &to_remote, 1).is_ok());
            for external in [1, 2] {
                let request = packet(3, ([10, 0, 0, host], id), ([192, 0, 2, external], id), 0);
                assert_eq!(pass(&mut *nat, &request, 1), Err(DropReason::NoMapping));
            }
        }
        assert_eq!(figure(&*nat, "mappings"), 3, "no mapping for what is dropped");
    }
}
