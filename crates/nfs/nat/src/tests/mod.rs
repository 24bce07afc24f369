//! Properties of translation.

mod fragments;
mod full;
mod options;
mod pauses;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};
use thalweg_packet::write::{IcmpEcho, PacketBuilder, TcpSegment};
use thalweg_packet::{Decapsulate, FiveTuple, FlowKey, Headers, Pool, PortIndex, parse};

use super::*;
use thalweg_nf::Units;
use thalweg_nf::state::FlowFilter;
use thalweg_nf::toolkit::icmp_error::{self, IcmpError};
use thalweg_testkit::moving::{Moving, assert_reads_recorded};
use thalweg_testkit::pass_one;

const OPTIONS: &str = "inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1-192.0.2.2']\n";

fn built(text: &str) -> Result<Box<dyn Blueprint>, BuildError> {
    KIND.build_alone(text)
}

fn nat(more: &str) -> Box<dyn NetworkFunction> {
    built(&format!("{OPTIONS}{more}")).unwrap().instance()
}

fn pass(nat: &mut dyn NetworkFunction, packet: &[u8], seconds: u64) -> Result<Vec<u8>, DropReason> {
    pass_one(nat, (4, 2048), packet, Nanoseconds::from_secs(seconds), None).0
}

fn parsed(bytes: &[u8]) -> (FlowKey, Headers) {
    parse(bytes, PortIndex::NONE, Decapsulate::No)
}

fn tuple(bytes: &[u8]) -> FiveTuple {
    FiveTuple::from_key(&parsed(bytes).0).unwrap()
}

/// Kind 0 TCP, 1 UDP, 2 UDP without checksum, 3 echo.
fn packet(kind: u8, from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    let builder = PacketBuilder::new([2; 6], [4; 6]).ip(from.0.into(), to.0.into());
    let tcp = TcpSegment { src_port: from.1, dst_port: to.1, flags, ..TcpSegment::default() };
    let inside = from.0[0] == 10;
    let id = if inside { from.1 } else { to.1 };
    let mut bytes = match kind {
        0 => builder.tcp(tcp),
        1 | 2 => builder.udp(from.1, to.1),
        _ => builder.echo(IcmpEcho { reply: !inside, id, seq: 1 }),
    }
    .build(b"payload");
    if kind == 2 {
        bytes[40..42].fill(0);
    }
    bytes
}

/// The packet with both ends exchanged, as an answer has them.
fn answer(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let (key, _) = parsed(bytes);
    let t = tuple(bytes);
    let end = |a: std::net::IpAddr, p| match a {
        std::net::IpAddr::V4(a) => (a.octets(), p),
        std::net::IpAddr::V6(_) => unreachable!(),
    };
    let id = key.get(field::ICMP_ID) as u16;
    let (from, to) = if kind == 3 { (id, id) } else { (t.dst_port, t.src_port) };
    packet(kind, end(t.dst, from), end(t.src, to), 18)
}

/// Moves the flows of `from` that match `filter` to `to`; returns the number of mappings.
fn take_over(
    from: &dyn NetworkFunction,
    to: &mut dyn NetworkFunction,
    filter: Option<FlowFilter>,
) -> usize {
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "nat", 2).unwrap();
    if let Some(filter) = filter {
        writer = writer.only(filter);
    }
    from.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    to.import_state(&mut StateReader::new(&mut &stream[..], "nat", 2).unwrap()).unwrap()
}

const REMOTE: ([u8; 4], u16) = ([198, 51, 100, 7], 80);

proptest! {
    #[test]
    fn an_answer_finds_its_way_back_and_checksums_stay_right(
        kind in 0u8..4, hosts in proptest::collection::vec((0u8..4, 1u16.., any::<u8>()), 1..20),
    ) {
        let mut nat = nat("");
        let mut external = HashMap::new();
        for (host, port, remote) in hosts {
            let from = ([10, 0, 0, host], port);
            let to = ([198, 51, 100, remote], 80);
            let sent = packet(kind, from, to, 2);
            let out = pass(&mut *nat, &sent, 1).unwrap();
            let (key, headers) = parsed(&out);
            let status = checksum::verify(&out, &headers);
            let expected = if kind == 2 { ChecksumStatus::Unchecked } else { ChecksumStatus::Good };
            prop_assert_eq!(status, expected);
            let t = tuple(&out);
            let used = if kind == 3 { key.get(field::ICMP_ID) as u16 } else { t.src_port };
            prop_assert!([Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)].map(Into::into).contains(&t.src));
            prop_assert_eq!(used & 1, port & 1, "parity");
            // One external end for each inside end, independent of the remote; never shared.
            let owner = external.entry((kind, t.src, used)).or_insert(from);
            prop_assert_eq!(*owner, from);
            let back = pass(&mut *nat, &answer(kind, &out), 1).unwrap();
            let (key, headers) = parsed(&back);
            prop_assert_eq!(checksum::verify(&back, &headers), expected);
            prop_assert_eq!(tuple(&back).dst, std::net::IpAddr::V4(from.0.into()));
            let arrived = if kind == 3 { key.get(field::ICMP_ID) as u16 } else { tuple(&back).dst_port };
            prop_assert_eq!(arrived, port);
        }
    }

    #[test]
    fn state_taken_over_changes_no_byte(
        first in proptest::collection::vec((0u8..4, 0u8..3, 1u16..9, 0u8..3, 0u8..64), 0..20),
        second in proptest::collection::vec((0u8..4, 0u8..3, 1u16..9, 0u8..3, 0u8..64, any::<bool>()), 0..20),
    ) {
        let mut whole = nat("ports = '1024-1031'\n");
        let mut seen = Vec::new();
        for (kind, host, port, remote, flags) in first {
            let sent = packet(kind, ([10, 0, 0, host], port), ([198, 51, 100, remote], 80), flags);
            if let Ok(out) = pass(&mut *whole, &sent, 1) {
                seen.push(answer(kind, &out));
            }
        }
        let mut moved = nat("ports = '1024-1031'\n");
        take_over(&*whole, &mut *moved, None);
        for (i, (kind, host, port, remote, flags, back)) in second.into_iter().enumerate() {
            let known = packet(kind, ([10, 0, 0, host], port), ([198, 51, 100, remote], 80), flags);
            let sent = if back && !seen.is_empty() { seen[i % seen.len()].clone() } else { known };
            prop_assert_eq!(pass(&mut *whole, &sent, 100), pass(&mut *moved, &sent, 100));
        }
    }

    #[test]
    fn any_packet_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..100), from in any::<bool>()) {
        let mut nat = nat("");
        pass(&mut *nat, &packet(1, ([10, 0, 0, 1], 99), REMOTE, 0), 1).unwrap();
        let (src, dst) = if from { ([10, 0, 0, 1], REMOTE.0) } else { (REMOTE.0, [192, 0, 2, 1]) };
        for protocol in [1, 6, 17, 50] {
            let packet = PacketBuilder::new([2; 6], [4; 6])
                .ip(src.into(), dst.into()).protocol(protocol).build(&bytes);
            let _ = pass(&mut *nat, &packet, 1);
        }
    }
}

#[test]
fn strangers_are_let_in_as_the_filtering_says() {
    let stranger = ([198, 51, 100, 8], 80);
    let other_port = (REMOTE.0, 81);
    let cases = [
        ("endpoint-independent", true, true),
        ("address-dependent", true, false),
        ("address-and-port-dependent", false, false),
    ];
    for (filtering, port, address) in cases {
        let mut nat = nat(&format!("filtering = '{filtering}'\n"));
        let out = pass(&mut *nat, &packet(1, ([10, 0, 0, 1], 5000), REMOTE, 0), 1).unwrap();
        let std::net::IpAddr::V4(external) = tuple(&out).src else { unreachable!() };
        let to = (external.octets(), tuple(&out).src_port);
        assert!(pass(&mut *nat, &packet(1, REMOTE, to, 0), 1).is_ok());
        assert_eq!(pass(&mut *nat, &packet(1, other_port, to, 0), 1).is_ok(), port, "{filtering}");
        assert_eq!(pass(&mut *nat, &packet(1, stranger, to, 0), 1).is_ok(), address, "{filtering}");
    }
}

#[test]
fn mappings_end_exactly_when_they_have_been_idle() {
    let outward = packet(1, ([10, 0, 0, 1], 5000), REMOTE, 0);
    let mut nat = nat("");
    let back = answer(1, &pass(&mut *nat, &outward, 0).unwrap());
    assert!(pass(&mut *nat, &back, 299).is_ok());
    // The answer has not kept it alive.
    assert_eq!(pass(&mut *nat, &back, 300), Err(DropReason::NoMapping));
    pass(&mut *nat, &outward, 400).unwrap();
    pass(&mut *nat, &outward, 600).unwrap();
    assert!(pass(&mut *nat, &back, 899).is_ok());
}

#[test]
fn a_connection_lives_long_and_a_closed_one_short() {
    let segment = |flags| packet(0, ([10, 0, 0, 1], 5000), REMOTE, flags);
    let mut nat = nat("");
    let back = answer(0, &pass(&mut *nat, &segment(2), 0).unwrap());
    assert!(pass(&mut *nat, &back, 1).is_ok());
    pass(&mut *nat, &segment(16), 1).unwrap();
    assert!(pass(&mut *nat, &back, 7000).is_ok());
    pass(&mut *nat, &segment(4), 7001).unwrap();
    assert!(pass(&mut *nat, &back, 7001 + 239).is_ok());
    assert_eq!(pass(&mut *nat, &back, 7001 + 7400), Err(DropReason::NoMapping));
}

#[test]
fn an_icmp_error_from_outside_is_translated_with_its_quote() {
    for kind in [0, 1, 2, 3] {
        let mut nat = nat("");
        let sent = packet(kind, ([10, 0, 0, 1], 5001), REMOTE, 2);
        let out = pass(&mut *nat, &sent, 1).unwrap();
        // A router on the path sends an error about the translated packet.
        let pool = Arc::new(Pool::anonymous(4, 2048).unwrap());
        let mut batch = Batch::new(pool);
        let lane = batch.push_bytes(&out).unwrap();
        batch.parse(Lanes::ALL, Decapsulate::No);
        let mut error = Vec::new();
        let router = std::net::IpAddr::V4([203, 0, 113, 9].into());
        icmp_error::build(&batch, lane, IcmpError::TimeExceeded, router, &mut error).unwrap();
        let back = pass(&mut *nat, &error, 1).unwrap();
        let (_, headers) = parsed(&back);
        assert_eq!(checksum::verify(&back, &headers), ChecksumStatus::Good);
        assert_eq!(tuple(&back).dst, std::net::IpAddr::V4([10, 0, 0, 1].into()));
        // The quote is the packet as it was sent, to the byte.
        assert_eq!(back[42..], sent[14..], "kind {kind}");
    }
}

#[test]
fn fragments_follow_their_first() {
    let mut nat = nat("");
    let mut first = packet(1, ([10, 0, 0, 1], 5000), REMOTE, 0);
    first[20] = 0x20; // more fragments
    let refill = |packet: &mut Vec<u8>| {
        let (_, headers) = parsed(packet);
        checksum::fill_ipv4(packet, &headers);
    };
    refill(&mut first);
    let mut later = first.clone();
    later[20..22].copy_from_slice(&[0, 4]);
    refill(&mut later);
    let out = pass(&mut *nat, &first, 1).unwrap();
    let follows = pass(&mut *nat, &later, 1).unwrap();
    assert_eq!(tuple(&follows).src, tuple(&out).src);
    // Its bytes are data, not ports.
    assert_eq!(follows[34..], later[34..]);
}

#[test]
fn a_hairpin_comes_back_in_by_the_external_addresses() {
    let mut nat = nat("filtering = 'endpoint-independent'\n");
    let out = pass(&mut *nat, &packet(1, ([10, 0, 0, 2], 7000), REMOTE, 0), 1).unwrap();
    let std::net::IpAddr::V4(external) = tuple(&out).src else { unreachable!() };
    let to = (external.octets(), 7000);
    let turned = pass(&mut *nat, &packet(1, ([10, 0, 0, 1], 5000), to, 0), 1).unwrap();
    let t = tuple(&turned);
    assert_eq!(t.dst, std::net::IpAddr::V4([10, 0, 0, 2].into()));
    assert_ne!(t.src, std::net::IpAddr::V4([10, 0, 0, 1].into()));
    let (_, headers) = parsed(&turned);
    assert_eq!(checksum::verify(&turned, &headers), ChecksumStatus::Good);
}

#[test]
fn what_is_no_matter_of_nat_passes_untouched() {
    let mut nat = nat("");
    let between = packet(1, ([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2), 0);
    assert_eq!(pass(&mut *nat, &between, 1), Ok(between));
    let esp = PacketBuilder::new([2; 6], [4; 6])
        .ip([10, 0, 0, 1].into(), REMOTE.0.into())
        .protocol(50)
        .build(b"");
    assert_eq!(pass(&mut *nat, &esp, 1), Err(DropReason::UnsupportedProtocol));
}

/// The IPv4 source address and source port of a packet.
fn source_of(bytes: &[u8]) -> ([u8; 4], u16) {
    let std::net::IpAddr::V4(address) = tuple(bytes).src else { unreachable!() };
    (address.octets(), tuple(bytes).src_port)
}

const FIN_ACK: u8 = FIN | ACK;
const SYN_ACK: u8 = SYN | ACK;

/// Opens a TCP connection from `from` to `to`; returns the external end.
fn connect(
    nat: &mut dyn NetworkFunction,
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    seconds: u64,
) -> ([u8; 4], u16) {
    let external = source_of(&pass(nat, &packet(0, from, to, SYN), seconds).unwrap());
    pass(nat, &packet(0, to, external, SYN_ACK), seconds).unwrap();
    pass(nat, &packet(0, from, to, ACK), seconds).unwrap();
    external
}

#[test]
fn closing_one_connection_leaves_another_of_the_same_port_alone() {
    let mut nat = nat("");
    let (inside, other) = (([10, 0, 0, 1], 5000), ([198, 51, 100, 9], 443));
    let external = connect(&mut *nat, inside, REMOTE, 0);
    assert_eq!(connect(&mut *nat, inside, other, 0), external);
    pass(&mut *nat, &packet(0, inside, REMOTE, FIN_ACK), 1).unwrap();
    pass(&mut *nat, &packet(0, REMOTE, external, FIN_ACK), 1).unwrap();
    assert!(pass(&mut *nat, &packet(0, other, external, ACK), 7000).is_ok());
}

#[test]
fn a_reset_of_an_idle_connection_leaves_it_four_minutes() {
    let mut nat = nat("");
    let external = connect(&mut *nat, ([10, 0, 0, 1], 5000), REMOTE, 0);
    pass(&mut *nat, &packet(0, REMOTE, external, RST), 1000).unwrap();
    assert!(pass(&mut *nat, &packet(0, REMOTE, external, ACK), 1239).is_ok());
    let late = pass(&mut *nat, &packet(0, REMOTE, external, ACK), 1240);
    assert_eq!(late, Err(DropReason::NoMapping));
}

#[test]
fn a_corrupt_icmp_error_is_dropped_and_not_healed() {
    let mut nat = nat("");
    let out = pass(&mut *nat, &packet(1, ([10, 0, 0, 1], 5001), REMOTE, 0), 1).unwrap();
    let mut error = error_about(&out);
    assert!(pass(&mut *nat, &error, 1).is_ok());
    let last = error.len() - 1;
    error[last] ^= 1;
    assert_eq!(pass(&mut *nat, &error, 1), Err(DropReason::BadChecksum));
}

#[test]
fn an_echo_is_answered_under_every_filtering() {
    for filtering in ["endpoint-independent", "address-dependent", "address-and-port-dependent"] {
        let mut nat = nat(&format!("filtering = '{filtering}'\n"));
        // An identifier below 1024 cannot be kept.
        let out = pass(&mut *nat, &packet(3, ([10, 0, 0, 1], 7), REMOTE, 0), 1).unwrap();
        let back = pass(&mut *nat, &answer(3, &out), 1).unwrap();
        assert_eq!(parsed(&back).0.get(field::ICMP_ID), 7, "{filtering}");
    }
}

#[test]
fn a_mapping_follows_as_many_remotes_as_there_are() {
    let mut nat = nat("");
    let inside = ([10, 0, 0, 1], 5000);
    for n in 0..1000u16 {
        let remote = ([198, 51, (n >> 8) as u8, n as u8], 53);
        pass(&mut *nat, &packet(1, inside, remote, 0), 1).unwrap();
    }
    let external = source_of(&pass(&mut *nat, &packet(1, inside, REMOTE, 0), 1).unwrap());
    assert!(pass(&mut *nat, &packet(1, ([198, 51, 0, 0], 53), external, 0), 1).is_ok());
}

/// The ICMP error of a router on the path about a packet whose TTL expired.
fn error_about(bytes: &[u8]) -> Vec<u8> {
    let pool = Arc::new(Pool::anonymous(4, 2048).unwrap());
    let mut batch = Batch::new(pool);
    let lane = batch.push_bytes(bytes).unwrap();
    batch.parse(Lanes::ALL, Decapsulate::No);
    let mut error = Vec::new();
    let router = std::net::IpAddr::V4([203, 0, 113, 9].into());
    icmp_error::build(&batch, lane, IcmpError::TimeExceeded, router, &mut error).unwrap();
    error
}

#[test]
fn flows_taken_over_in_parts_while_others_pass_lose_no_packet() {
    let sent = |host: u8, port: u16| packet(1, ([10, 0, 0, host], port), REMOTE, 0);
    let own = packet(0, ([10, 1, 0, 1], 50_000), REMOTE, 2);
    let (mut from, mut to) = (nat(""), nat(""));
    let all = |host: u8| (0..50).map(move |port| (host, 5000 + port));
    let mut answers = Vec::new();
    for (host, port) in (0..16).flat_map(all) {
        answers.push((host, answer(1, &pass(&mut *from, &sent(host, port), 1).unwrap())));
    }
    let out = pass(&mut *to, &own, 1).unwrap();
    let mut taken = Vec::new();
    for hosts in ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/29"] {
        let filter = FlowFilter::parse(&format!("udp,nw_src={hosts}")).unwrap();
        taken.push(take_over(&*from, &mut *to, Some(filter)));
        // Flows that were there and those moved so far pass; others are not known yet.
        assert_eq!(pass(&mut *to, &own, 2).unwrap(), out);
        assert!(pass(&mut *to, &answer(0, &out), 2).is_ok());
        let known = taken.iter().sum::<usize>() / 50;
        for (host, answer) in &answers {
            let passed = pass(&mut *to, answer, 2);
            assert_eq!(passed.is_ok(), usize::from(*host) < known, "host {host} of {known}");
            assert!(passed.is_err() || passed == pass(&mut *from, answer, 2));
        }
    }
    assert_eq!(taken, [200, 200, 400]);
    for (host, port) in (0..16).flat_map(all) {
        let sent = sent(host, port);
        assert_eq!(pass(&mut *to, &sent, 3), pass(&mut *from, &sent, 3));
    }
}

/// A recorded stream of the format before: two TCP mappings, UDP and an echo.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    let mut nat = nat("");
    assert_reads_recorded(&mut *nat, "nat", FORMAT_2, 5);
    let out = packet(0, ([10, 0, 0, 1], 40_000), ([198, 51, 100, 1], 80), ACK);
    let seconds = 1_700_000_001;
    assert!(pass(&mut *nat, &out, seconds).is_ok());
    assert_eq!(nat.figures()[2], ("created", 0), "the mapping is known");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn all_mappings_move_at_once_while_packets_flow(
        packets in proptest::collection::vec(
            (0u8..4, any::<bool>(), 1u8..5, 0u16..4, 0u8..32, 0u64..90), 1..150,
        ),
        moved in any::<prop::sample::Index>(),
    ) {
        let mut now = 0;
        let arrivals: Vec<_> = packets.iter().map(|(kind, is_out, host, port, flags, seconds)| {
            now += seconds;
            let inside = ([10, 0, 0, *host], 1024 + port);
            let remote = ([198, 51, 100, *host % 2], 80);
            // Most hosts keep their ports, so that answers find mappings.
            let external = ([192, 0, 2, 1 + host % 2], 1024 + port);
            let (from, to) = if *is_out { (inside, remote) } else { (remote, external) };
            (Nanoseconds::from_secs(now), packet(*kind, from, to, *flags))
        }).collect();
        let mut moving = Moving::new("nat", Units::whole(), |_| nat(""));
        let (before, after) = arrivals.split_at(moved.index(arrivals.len()));
        before.chunks(7).for_each(|packets| moving.send(packets));
        prop_assert_eq!(moving.move_all(), 0);
        after.chunks(7).for_each(|packets| moving.send(packets));
        moving.end();
        for name in ["mappings", "sessions", "created", "expired", "refused"] {
            let figure = |nf: &dyn NetworkFunction| {
                nf.figures().iter().find(|(known, _)| *known == name).unwrap().1
            };
            let sum = figure(&*moving.old) + figure(&*moving.new);
            prop_assert_eq!(sum, figure(&*moving.whole), "{}", name);
        }
    }
}
