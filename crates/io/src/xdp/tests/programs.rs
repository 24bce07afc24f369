//! What the program leaves to the kernel, as the kernel itself runs it.

use std::net::IpAddr;

use thalweg_packet::write::{PacketBuilder, TcpSegment};

use super::super::program::{KEEP, Pass, program};
use super::*;
use crate::bpf::Program;
use crate::host::Own;

/// The action for a packet without a socket of its queue, which shows that it would go to one.
const TO_SOCKET: u32 = 1;

fn loaded(pass: &[&str], addresses: &[&str]) -> Program {
    loaded_with(pass, addresses, Vec::new())
}

fn loaded_with(pass: &[&str], addresses: &[&str], vlans: Vec<u16>) -> Program {
    let map = SocketMap::new(4).unwrap();
    let pass: Vec<_> = pass.iter().flat_map(|word| Pass::parse(word).unwrap()).collect();
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let own = Own { addresses, vlans };
    Program::load_xdp(&program(map.raw(), &pass, &own, TO_SOCKET)).unwrap()
}

fn is_kept(program: &Program, packet: &[u8]) -> bool {
    match program.run(packet).unwrap() {
        KEEP => true,
        TO_SOCKET => false,
        other => panic!("action {other}"),
    }
}

fn to(address: &str) -> PacketBuilder {
    let from = if address.contains(':') { "fd09::9" } else { "10.9.0.9" };
    PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ip(from.parse().unwrap(), address.parse().unwrap())
}

fn tcp(address: &str, port: u16) -> Vec<u8> {
    let segment = TcpSegment { src_port: 40_000, dst_port: port, ..TcpSegment::default() };
    to(address).tcp(segment).build(b"payload")
}

fn arp_for(target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend([2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 9, 0, 9]);
    packet.extend([0; 6]);
    packet.extend(target);
    packet
}

/// A solicitation to the multicast group of the target.
fn solicitation(target: &str) -> Vec<u8> {
    let target: std::net::Ipv6Addr = target.parse().unwrap();
    let mut body = vec![135, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target.octets());
    to("ff02::1:ff00:1").protocol(58).build(&body)
}

const ADDRESSES: [&str; 4] = ["10.1.0.1", "10.1.0.2", "fd01::1", "fe80::1"];

#[test]
fn arp_and_ssh_of_the_host_are_left_to_it() {
    laboratory(|| {
        let program = loaded(&["arp", "ssh"], &ADDRESSES);
        for (packet, kept) in [
            (arp_for([10, 1, 0, 1]), true),
            (arp_for([10, 1, 0, 2]), true),
            (arp_for([10, 1, 0, 3]), false),
            (solicitation("fd01::1"), true),
            (solicitation("fe80::1"), true),
            (solicitation("fd01::2"), false),
            (to("fd01::1").protocol(58).build(&[136, 0, 0, 0, 0, 0, 0, 0]), true),
            (to("fd01::2").protocol(58).build(&[136, 0, 0, 0, 0, 0, 0, 0]), false),
            (to("fd01::1").protocol(58).build(&[128, 0, 0, 0, 0, 0, 0, 0]), false),
            (tcp("10.1.0.1", 22), true),
            (tcp("10.1.0.2", 22), true),
            (tcp("fd01::1", 22), true),
            (tcp("10.1.0.1", 23), false),
            (tcp("10.1.0.3", 22), false),
            (tcp("fd01::2", 22), false),
            (to("10.1.0.1").udp(1, 22).build(b"x"), false),
            (to("10.1.0.1").protocol(1).build(&[8; 8]), false),
        ] {
            assert_eq!(is_kept(&program, &packet), kept, "{packet:02x?}");
        }
    });
}

/// A packet with the tag of a VLAN.
fn tagged(kind: u16, tag: u16, mut packet: Vec<u8>) -> Vec<u8> {
    packet.splice(12..12, [kind.to_be_bytes(), tag.to_be_bytes()].concat());
    packet
}

#[test]
fn packets_in_vlans_of_the_host_are_left_to_it() {
    laboratory(|| {
        let program = loaded_with(&["arp", "ssh"], &ADDRESSES, vec![7, 4000]);
        for (packet, kept) in [
            (tagged(0x8100, 0x6007, tcp("10.1.0.1", 22)), true),
            (tagged(0x88a8, 4000, tcp("fd01::1", 22)), true),
            (tagged(0x8100, 7, arp_for([10, 1, 0, 2])), true),
            (tagged(0x8100, 7, solicitation("fd01::1")), true),
            (tcp("10.1.0.1", 22), true),
            (tagged(0x8100, 8, tcp("10.1.0.1", 22)), false),
            (tagged(0x8100, 7, tcp("10.1.0.3", 22)), false),
            (tagged(0x8100, 7, tcp("10.1.0.1", 23)), false),
            (tagged(0x8100, 7, tagged(0x8100, 7, tcp("10.1.0.1", 22))), false),
        ] {
            assert_eq!(is_kept(&program, &packet), kept, "{packet:02x?}");
            for short in 14..packet.len().min(60) {
                is_kept(&program, &packet[..short]);
            }
        }
        let program = loaded(&["arp", "ssh"], &ADDRESSES);
        assert!(!is_kept(&program, &tagged(0x8100, 7, tcp("10.1.0.1", 22))));
    });
}

#[test]
fn what_is_named_is_left_to_the_host() {
    laboratory(|| {
        let program = loaded(&["icmp", "tcp/179", "udp/3784", "ether/0x88cc"], &ADDRESSES);
        let mut discovery = packet(1, 60);
        discovery[12..14].copy_from_slice(&[0x88, 0xcc]);
        for (packet, kept) in [
            (discovery, true),
            (packet(1, 60), false),
            (to("10.1.0.1").protocol(1).build(&[8; 8]), true),
            (to("fd01::1").protocol(58).build(&[128; 8]), true),
            (to("10.1.0.3").protocol(1).build(&[8; 8]), false),
            (tcp("10.1.0.1", 179), true),
            (tcp("fe80::1", 179), true),
            (tcp("10.1.0.1", 22), false),
            (to("fd01::1").udp(1, 3784).build(b"x"), true),
            (to("10.1.0.1").udp(3784, 1).build(b"x"), false),
            (arp_for([10, 1, 0, 1]), false),
        ] {
            assert_eq!(is_kept(&program, &packet), kept, "{packet:02x?}");
        }
        // Options shift the ports; fragments have none.
        let mut long = tcp("10.1.0.1", 179);
        long[14] = 0x46;
        let ports = long.split_off(34);
        long.extend([1; 4]);
        long.extend(ports);
        assert!(is_kept(&program, &long));
        for (at, bits) in [(20, 0x20), (21, 1)] {
            let mut fragment = tcp("10.1.0.1", 179);
            fragment[at] |= bits;
            assert!(!is_kept(&program, &fragment));
        }
    });
}

/// Without rules or addresses all packets go to the socket; programs of all sizes are accepted.
#[test]
fn the_kernel_accepts_each_program() {
    laboratory(|| {
        let many: Vec<_> = (0..100).map(|n| format!("10.7.0.{n}")).collect();
        let many_v6: Vec<_> = (0..100).map(|n| format!("fd07::{n:x}")).collect();
        let words = ["arp", "ssh", "icmp", "tcp/1", "udp/2", "ether/0x88cc"];
        for addresses in [Vec::new(), many, many_v6, ADDRESSES.map(String::from).to_vec()] {
            let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
            for first in 0..words.len() {
                for last in first..=words.len() {
                    let program = loaded(&words[first..last], &addresses);
                    assert!(!is_kept(&program, &packet(1, 60)));
                    for short in 14..60 {
                        is_kept(&program, &tcp("10.1.0.1", 22)[..short]);
                        is_kept(&program, &tcp("fd01::1", 22)[..short]);
                    }
                }
            }
        }
    });
}

#[test]
fn words_that_name_nothing_are_refused() {
    for word in ["", "tcp", "tcp/", "tcp/65536", "ether/88cc", "ether/0x100", "sctp/1", "SSH"] {
        assert_eq!(Pass::parse(word), None, "{word}");
    }
}
