//! Handwritten packets, and the parser's results for them.

use super::*;
use crate::wire::{ethertype, ip_proto, tcp_flags};
use crate::write::{PacketBuilder, TcpSegment};

fn builder() -> PacketBuilder {
    PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

fn parsed(bytes: &[u8]) -> (FlowKey, Headers) {
    parse(bytes, PortIndex(0), Decapsulate::No)
}

fn v4(a: u8, b: u8) -> (std::net::IpAddr, std::net::IpAddr) {
    ([10, 0, 0, a].into(), [10, 0, 0, b].into())
}

#[test]
fn a_tagged_tcp_packet_fills_every_field() {
    let (src, dst) = v4(1, 2);
    let tcp = TcpSegment {
        src_port: 1234,
        dst_port: 80,
        flags: tcp_flags::SYN | tcp_flags::ACK,
        ..TcpSegment::default()
    };
    let packet =
        builder().vlan(10).tag(ethertype::VLAN, 0x6014).ip(src, dst).tos(0xb8).tcp(tcp).build(b"x");
    let (key, headers) = parsed(&packet);
    assert_eq!(headers.status, ParseStatus::Complete);
    assert_eq!((headers.l3, headers.l4, headers.payload), (22, 42, 62));
    assert_eq!(key.get(field::IN_PORT), 1);
    assert_eq!(key.get(field::DL_SRC), 0x0200_0000_0001);
    assert_eq!(key.get(field::VLAN_TCI), 0x100a);
    assert_eq!(key.get(field::VLAN2_TCI), 0x7014);
    assert_eq!(key.get(field::DL_TYPE), u64::from(ethertype::IPV4));
    assert_eq!(key.get(field::NW_TOS), 0xb8);
    assert_eq!(key.get(field::NW_DST), 0x0a00_0002);
    assert_eq!((key.get(field::TP_SRC), key.get(field::TP_DST)), (1234, 80));
    assert_eq!(key.get(field::TCP_FLAGS), 0x12);
}

#[test]
fn a_later_fragment_has_no_ports_and_the_first_has() {
    let (src, dst) = v4(1, 2);
    let mut packet = builder().ip(src, dst).udp(1000, 2000).build(&[0; 64]);
    packet[20] = 0x20; // more fragments
    let (key, headers) = parsed(&packet);
    assert_eq!(key.get(field::NW_FRAG), field::FRAG_ANY);
    assert_eq!(key.get(field::TP_DST), 2000);
    assert!(headers.fragment);
    packet[21] = 4; // offset 32
    let (key, headers) = parsed(&packet);
    assert_eq!(key.get(field::NW_FRAG), field::FRAG_ANY | field::FRAG_LATER);
    assert_eq!((key.get(field::TP_DST), headers.l4), (0, 0));
    assert_eq!((headers.layer, headers.status), (Layer::Network, ParseStatus::Complete));
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let mut packet = builder()
        .ip("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        .protocol(ip_proto::HOP_BY_HOP)
        .build(&[&[60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0][..], &UDP_HEADER].concat());
    let (key, headers) = parsed(&packet);
    assert_eq!(headers.ip_proto, 17);
    assert_eq!(key.get(field::TP_DST), 53);
    assert_eq!((headers.l4, headers.status), (70, ParseStatus::Complete));
    packet.truncate(60);
    let (_, headers) = parsed(&packet);
    assert_eq!((headers.layer, headers.status), (Layer::Network, ParseStatus::Truncated));
}

const UDP_HEADER: [u8; 8] = [0x04, 0xd2, 0, 53, 0, 8, 0, 0];

#[test]
fn ethernet_padding_lies_beyond_the_end() {
    let (src, dst) = v4(1, 2);
    let mut packet = builder().ip(src, dst).udp(1, 2).build(b"");
    packet.resize(60, 0);
    let (_, headers) = parsed(&packet);
    assert_eq!((headers.payload, headers.end), (42, 42));
    assert_eq!(headers.status, ParseStatus::Complete);
}

#[test]
fn inconsistent_lengths_stop_the_key_at_the_last_good_layer() {
    let (src, dst) = v4(1, 2);
    let good = builder().ip(src, dst).tcp(TcpSegment::default()).build(b"data");
    let broken = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        let (_, headers) = parsed(&packet);
        (headers.layer, headers.status)
    };
    assert_eq!(broken(14, 0x44), (Layer::Link, ParseStatus::Inconsistent)); // IHL 4
    assert_eq!(broken(14, 0x65), (Layer::Link, ParseStatus::Inconsistent)); // version 6
    assert_eq!(broken(17, 10), (Layer::Link, ParseStatus::Inconsistent)); // total length
    assert_eq!(broken(46, 0x40), (Layer::Network, ParseStatus::Inconsistent)); // data offset 4
    assert_eq!(broken(46, 0xf0), (Layer::Network, ParseStatus::Truncated)); // data offset 15
    let (_, headers) = parsed(&good[..30]);
    assert_eq!((headers.layer, headers.status), (Layer::Link, ParseStatus::Truncated));
}

#[test]
fn arp_and_neighbour_discovery_give_their_addresses() {
    let mut arp = vec![0xff; 6];
    arp.extend_from_slice(&[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
    arp.extend_from_slice(&[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    let (key, headers) = parsed(&arp);
    assert_eq!((headers.layer, headers.status), (Layer::Network, ParseStatus::Complete));
    assert_eq!((key.get(field::NW_PROTO), key.get(field::NW_DST)), (1, 0x0a00_0002));
    assert_eq!(key.get(field::ARP_SHA), 0x0200_0000_0001);

    let mut body = vec![135, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&[0xfe; 16]);
    body.extend_from_slice(&[1, 1, 2, 0, 0, 0, 0, 9]);
    let ns = builder()
        .ip("fe80::1".parse().unwrap(), "ff02::1:ff00:2".parse().unwrap())
        .protocol(ip_proto::ICMPV6)
        .build(&body);
    let (key, _) = parsed(&ns);
    assert_eq!(key.get128(field::ND_TARGET), u128::from_be_bytes([0xfe; 16]));
    assert_eq!(key.get(field::ARP_SHA), 0x0200_0000_0009);
}

#[test]
fn tunnels_are_entered_only_on_request() {
    let (src, dst) = v4(1, 2);
    let inner = builder().ip(src, dst).udp(7, 9).build(b"inner");
    let (outer_src, outer_dst) = v4(101, 102);
    let outer = || builder().ip(outer_src, outer_dst);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4][..], &inner].concat();
    let gre = [&[0x20, 0, 0x08, 0, 0, 0, 0, 42][..], &inner[14..]].concat();
    let packets = [
        (1, outer().udp(5555, 4789).build(&vxlan)),
        (3, outer().udp(5555, 6081).build(&geneve)),
        (2, outer().protocol(ip_proto::GRE).build(&gre)),
    ];
    let plain = (4, outer().protocol(ip_proto::IPV4).build(&inner[14..]));
    for (kind, packet) in packets.into_iter().chain([plain]) {
        let (key, _) = parsed(&packet);
        assert_eq!(key.get(field::NW_DST), 0x0a00_0066);
        let (key, headers) = parse(&packet, PortIndex(0), Decapsulate::Yes);
        assert_eq!(headers.status, ParseStatus::Complete);
        let id = if kind == 4 { 0 } else { 42 };
        assert_eq!((key.get(field::TUN_KIND), key.get(field::TUN_ID)), (kind, id));
        assert_eq!(key.get(field::TUN_DST), 0x0a00_0066);
        assert_eq!((key.get(field::NW_DST), key.get(field::TP_DST)), (0x0a00_0002, 9));
        assert_eq!(&packet[headers.payload as usize..headers.end as usize], b"inner");
    }
}

/// A packet in `tunnels` tunnels by GRE, whose keys are 1, 2 and so on from the inside.
fn in_tunnels(tunnels: u8) -> Vec<u8> {
    let (src, dst) = v4(1, 2);
    let packet = builder().ip(src, dst).udp(7, 9).build(b"inner");
    (1..=tunnels).fold(packet, |packet, number| {
        let (src, dst) = v4(100 + number, 200);
        let gre = [&[0x20, 0, 0x08, 0, 0, 0, 0, number][..], &packet[14..]].concat();
        builder().ip(src, dst).protocol(ip_proto::GRE).build(&gre)
    })
}

#[test]
fn tunnels_in_tunnels_are_looked_into_if_it_is_asked_for() {
    for tunnels in 0..=8 {
        let packet = in_tunnels(tunnels);
        let (key, headers) = parse(&packet, PortIndex(3), Decapsulate::Nested);
        let around = [field::TUN_ID, field::TUN_SRC].map(|of| key.get(of));
        let expected = if tunnels == 0 { [0, 0] } else { [1, 0x0a00_0065] };
        assert_eq!((around, key.get(field::TP_DST)), (expected, 9), "{tunnels} tunnels");
        assert_eq!((headers.status, key.get(field::IN_PORT)), (ParseStatus::Complete, 4));
        assert_eq!(&packet[headers.payload as usize..headers.end as usize], b"inner");
        // As far as both look.
        let one = parse(&packet, PortIndex(3), Decapsulate::Yes);
        assert_eq!(one == (key, headers), tunnels <= 1);
    }
}

#[test]
fn no_more_than_so_many_tunnels_are_looked_into() {
    let (key, headers) = parse(&in_tunnels(10), PortIndex(0), Decapsulate::Nested);
    assert_eq!(key.get(field::TUN_ID), 10 - (MOST_TUNNELS as u64 - 1));
    assert_eq!((headers.ip_proto, headers.status), (ip_proto::GRE, ParseStatus::Complete));
    // A tunnel header that ends early, in a tunnel, is where parsing ends.
    let (src, dst) = v4(1, 2);
    let short = builder().ip(src, dst).protocol(ip_proto::GRE).build(&[0x20, 0, 0x08, 0]);
    let gre = [&[0x20, 0, 0x08, 0, 0, 0, 0, 5][..], &short[14..]].concat();
    let packet = builder().ip(src, dst).protocol(ip_proto::GRE).build(&gre);
    let (key, headers) = parse(&packet, PortIndex(0), Decapsulate::Nested);
    assert_eq!((key.get(field::TUN_ID), headers.ip_proto), (5, ip_proto::GRE));
    assert_eq!(headers.status, ParseStatus::Truncated);
}

#[test]
fn mpls_and_frames_without_ether_type_follow_open_vswitch() {
    let mut mpls = vec![0; 12];
    mpls.extend_from_slice(&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64, 0x45]);
    let (key, headers) = parsed(&mpls);
    assert_eq!((key.get(field::MPLS_LSE), key.get(field::MPLS_LSE2)), (0x1_0040, 0x2_0140));
    assert_eq!((headers.payload, headers.status), (22, ParseStatus::Complete));
    let mut llc = vec![0; 12];
    llc.extend_from_slice(&[0, 3, 0x42, 0x42, 0x03]);
    assert_eq!(parsed(&llc).0.get(field::DL_TYPE), 0x05ff);
    let mut snap = vec![0; 12];
    snap.extend_from_slice(&[0, 8, 0xaa, 0xaa, 3, 0, 0, 0, 0x12, 0x34]);
    let (key, headers) = parsed(&snap);
    assert_eq!((key.get(field::DL_TYPE), headers.status), (0x1234, ParseStatus::Unknown));
}
