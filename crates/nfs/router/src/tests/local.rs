//! Packets to the router itself.

use super::*;

#[test]
fn an_echo_request_to_the_router_is_answered_in_place() {
    let bench = Bench::new(ROUTES);
    let echo = IcmpEcho { reply: false, id: 7, seq: 9 };
    // To an address of one port, arriving through the other.
    let packet = from_to("198.51.100.9", "192.0.2.1").ttl(1).echo(echo).build(b"ping");
    let fate = bench.send(&packet);
    let (bytes, key, _) = fate.forwarded();
    let expected = PacketBuilder::new(WAN, WAN_ROUTER)
        .ip("192.0.2.1".parse().unwrap(), "198.51.100.9".parse().unwrap())
        .echo(IcmpEcho { reply: true, ..echo })
        .build(b"ping");
    assert_eq!(bytes, expected);
    assert_eq!(key.get(field::NW_TTL), 64);
    assert_eq!(fate.batch.meta.out_port[0], PortIndex(0));

    let packet = from_to("2001:db8:a::9", "2001:db8:0:2::ff").echo(echo).build(b"ping");
    let fate = bench.send(&packet);
    let expected = PacketBuilder::new(LAN, LAN_ROUTER)
        .ip("2001:db8:0:2::ff".parse().unwrap(), "2001:db8:a::9".parse().unwrap())
        .echo(IcmpEcho { reply: true, ..echo })
        .build(b"ping");
    assert_eq!(fate.forwarded().0, expected);
    assert_eq!(fate.figure("answered"), 1);

    let mut broken = packet.clone();
    broken[60] ^= 1;
    assert_eq!(bench.send(&broken).dropped(), DropReason::BadChecksum);
}

#[test]
fn other_packets_to_the_router_are_refused_by_their_protocol() {
    let bench = Bench::new(ROUTES);
    let fate = bench.send(&udp("10.1.1.1", "203.0.113.2"));
    assert_eq!(fate.dropped(), DropReason::UnsupportedProtocol);
    let (bytes, key, _) = fate.error();
    assert_eq!(bytes[34..36], [3, 3]);
    assert_eq!(key.get(field::NW_SRC), 0xcb00_7102, "from the address that was asked");
    let fate = bench.send(&from_to("10.1.1.1", "203.0.113.2").protocol(89).build(b"ospf"));
    assert_eq!(fate.error().0[34..36], [3, 2]);
    let fate =
        bench.send(&from_to("10.1.1.1", "203.0.113.2").tcp(TcpSegment::default()).build(b""));
    assert_eq!(fate.dropped(), DropReason::UnsupportedProtocol);
    assert!(fate.emitted.is_empty());
}

pub(super) fn arp_request(target: [u8; 4]) -> Vec<u8> {
    let mut packet = [&[0xff; 6][..], &HOST, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &HOST].concat();
    packet.extend_from_slice(&[192, 0, 2, 77, 0, 0, 0, 0, 0, 0]);
    packet.extend_from_slice(&target);
    packet
}

#[test]
pub(super) fn arp_requests_for_the_routers_addresses_are_answered() {
    let bench = Bench::new(ROUTES);
    let fate = bench.send(&arp_request([192, 0, 2, 1]));
    let (bytes, ..) = fate.forwarded();
    let mut expected = [&HOST[..], &LAN, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &LAN].concat();
    expected.extend_from_slice(&[192, 0, 2, 1]);
    expected.extend_from_slice(&HOST);
    expected.extend_from_slice(&[192, 0, 2, 77]);
    assert_eq!(bytes, expected);
    assert_eq!(fate.batch.meta.out_port[0], PortIndex(1));
    let fate = bench.send(&arp_request([192, 0, 2, 5]));
    assert_eq!(fate.dropped(), DropReason::UnsupportedProtocol);
}

pub(super) fn solicitation(src: &str, dst: &str, with_option: bool) -> Vec<u8> {
    let target: std::net::Ipv6Addr = "2001:db8:0:1::ff".parse().unwrap();
    let mut body = vec![135, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&target.octets());
    if with_option {
        body.extend_from_slice(&[1, 1, 2, 0, 0, 0, 0, 0x55]);
    }
    PacketBuilder::new(HOST, [0x33, 0x33, 0xff, 0, 0, 0xff])
        .ip(src.parse().unwrap(), dst.parse().unwrap())
        .ttl(255)
        .protocol(58)
        .build(&body)
}

#[test]
fn neighbour_solicitations_for_the_routers_addresses_are_answered() {
    let bench = Bench::new(ROUTES);
    let group = "ff02::1:ff00:ff";
    let asked = [
        ("fe80::9", group, true, [2, 0, 0, 0, 0, 0x55], 0xe0, "fe80::9"),
        ("2001:db8:0:1::9", group, false, HOST, 0xe0, "2001:db8:0:1::9"),
        ("::", group, false, [0x33, 0x33, 0, 0, 0, 1], 0xa0, "ff02::1"),
    ];
    for (src, dst, option, mac, flags, to) in asked {
        let fate = bench.send(&solicitation(src, dst, option));
        let (bytes, key, _) = fate.forwarded();
        assert_eq!((&bytes[..6], &bytes[6..12]), (&mac[..], &LAN[..]));
        assert_eq!((bytes[54], bytes[58]), (136, flags));
        assert_eq!(key.get(field::ARP_THA), 0x0200_0000_0001);
        assert_eq!(key.get(field::NW_TTL), 255);
        let to: std::net::Ipv6Addr = to.parse().unwrap();
        assert_eq!(key.get128(field::IPV6_DST), u128::from(to));
        assert_eq!(fate.batch.meta.out_port[0], PortIndex(1));
    }
    let mut forwarded_once = solicitation("fe80::9", group, true);
    forwarded_once[21] = 254;
    assert_eq!(bench.send(&forwarded_once).dropped(), DropReason::Malformed);
    let mut other = solicitation("fe80::9", group, true);
    other[77] ^= 1;
    assert_eq!(bench.send(&other).dropped(), DropReason::NotForwardable);
}
