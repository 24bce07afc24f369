use libc::{BPF_JA, BPF_OR, BPF_SUB};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use thalweg_packet::wire::header_len;
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{Decapsulate, PortIndex, parse, symmetric_hash};
use thalweg_testkit::peer;

use super::*;
use crate::bpf::{self, translate};

/// What the kernel does with a program (Documentation/networking/filter.rst): the result for a packet from
/// its network header on.
fn run(program: &[sock_filter], protocol: u16, packet: &[u8]) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        let (code, mut jump) = (u32::from(code), 0);
        let (class, source) = (code & 7, if code & BPF_X != 0 { x } else { k });
        match class {
            BPF_LD if code & 0xe0 == BPF_IMM => a = k,
            BPF_LD if code & 0xe0 == BPF_MEM => a = memory[k as usize],
            BPF_LD if k == (SKF_AD_OFF + SKF_AD_PROTOCOL) as u32 => a = protocol.into(),
            BPF_LD => {
                let from = k.wrapping_add(if code & 0xe0 == BPF_IND { x } else { 0 }) as usize;
                let len = match code & 0x18 {
                    BPF_W => 4,
                    BPF_H => 2,
                    _ => 1,
                };
                let Some(bytes) = packet.get(from..from + len) else { return 0 };
                a = bytes.iter().fold(0, |a, byte| a << 8 | u32::from(*byte));
            }
            BPF_LDX if code & 0xe0 == BPF_MEM => x = memory[k as usize],
            BPF_LDX => x = k,
            BPF_ST => memory[k as usize] = a,
            BPF_ALU => match code & 0xf0 {
                BPF_ADD => a = a.wrapping_add(source),
                BPF_SUB => a = a.wrapping_sub(source),
                BPF_MUL => a = a.wrapping_mul(source),
                BPF_AND => a &= source,
                BPF_OR => a |= source,
                BPF_XOR => a ^= source,
                BPF_LSH => a <<= source,
                BPF_RSH => a >>= source,
                other => panic!("operation {other:#x}"),
            },
            BPF_JMP => {
                let holds = match code & 0xf0 {
                    BPF_JA => panic!("not used"),
                    BPF_JEQ => a == source,
                    BPF_JSET => a & source != 0,
                    other => panic!("jump {other:#x}"),
                };
                jump = usize::from(if holds { jt } else { jf });
            }
            BPF_RET => return if code & 0x18 == BPF_A { a } else { k },
            _ => {
                assert_eq!(code, BPF_MISC | BPF_TAX);
                x = a;
            }
        }
        at += 1 + jump;
    }
}

/// The result for a packet from its Ethernet header on, whose outermost VLAN tag the kernel takes off.
fn steer(packet: &[u8]) -> u32 {
    let word = |at: usize| u16::from_be_bytes(packet[at..at + 2].try_into().unwrap());
    let mut network = header_len::ETHERNET;
    if ethertype::VLAN_TPIDS.contains(&word(12)) {
        network += 4;
    }
    run(&program(Sight::Network), word(network - 2), &packet[network..])
}

/// The result for a packet as a TAP device gives it to the program.
fn steer_at_tap(packet: &[u8]) -> u32 {
    run(&program(Sight::Ethernet), 0, packet)
}

/// The hash by which Thalweg itself knows flows.
fn flow(packet: &[u8]) -> u32 {
    let (key, _) = parse(packet, PortIndex::NONE, Decapsulate::No);
    symmetric_hash(&key)
}

const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Both directions of a TCP and of a UDP flow between two hosts.
fn packets(source: &str, target: &str, ports: (u16, u16), tags: &[u16]) -> [[Vec<u8>; 2]; 2] {
    let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
    let there = tags.iter().fold(PacketBuilder::new(HERE, THERE), |b, tag| b.vlan(*tag));
    let back = tags.iter().fold(PacketBuilder::new(THERE, HERE), |b, tag| b.vlan(*tag));
    let (there, back) = (there.ip(source, target), back.ip(target, source));
    let tcp = |src_port, dst_port| TcpSegment { src_port, dst_port, ..TcpSegment::default() };
    let (a, b) = ports;
    [
        [there.clone().tcp(tcp(a, b)).build(b"one"), back.clone().tcp(tcp(b, a)).build(b"other")],
        [there.udp(a, b).build(b"one"), back.udp(b, a).build(b"other, longer")],
    ]
}

proptest! {
    /// Whatever the addresses, ports and tags.
    #[test]
    fn both_directions_of_a_flow_have_the_same_queue(
        a in any::<u32>(), b in any::<u32>(), ports in any::<(u16, u16)>(), v6 in any::<bool>(),
        tags in prop::collection::vec(1_u16..4000, 0..3),
    ) {
        let address = |bits: u32| if v6 {
            std::net::Ipv6Addr::from_bits(u128::from(bits) << 70 | u128::from(bits)).to_string()
        } else {
            std::net::Ipv4Addr::from_bits(bits).to_string()
        };
        for [there, back] in packets(&address(a), &address(b), ports, &tags) {
            prop_assert_eq!(steer(&there), steer(&back));
            prop_assert_eq!(steer_at_tap(&there), steer(&there));
            prop_assert_eq!(steer_at_tap(&back), steer(&there));
            prop_assert_eq!(flow(&there), flow(&back));
        }
    }

    /// A program that reads what a sender chose reads nothing that is not there, and ends.
    #[test]
    fn any_bytes_have_a_queue(protocol in any::<u16>(), bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        for protocol in [protocol, ethertype::IPV4, ethertype::IPV6, ethertype::VLAN] {
            run(&program(Sight::Network), protocol, &bytes);
        }
        steer_at_tap(&bytes);
    }
}

#[test]
fn flows_are_spread_evenly() {
    for queues in [2, 3, 4, 8] {
        let mut counts = vec![0; queues];
        for n in 0..4000_u16 {
            let source = format!("10.0.{}.{}", n >> 8, n & 255);
            let [[tcp, _], [udp, _]] = packets(&source, "192.0.2.1", (1024 + n, 443), &[]);
            counts[steer(&tcp) as usize % queues] += 1;
            let [[other, _], _] = packets("fd00::1", "fd00::2", (20_000 + n, 80), &[]);
            counts[steer(&other) as usize % queues] += 1;
            assert_eq!(steer(&tcp), steer(&udp));
        }
        let share = 8000 / queues;
        assert!(counts.iter().all(|n| (share * 9 / 10..share * 11 / 10).contains(n)), "{counts:?}");
    }
}

#[test]
fn all_fragments_of_a_packet_have_the_queue_of_their_addresses() {
    let [[whole, back], _] = packets("10.0.0.1", "10.0.0.2", (5000, 80), &[]);
    let fragment = |packet: &[u8], field: u16| {
        let mut packet = packet.to_vec();
        packet[20..22].copy_from_slice(&field.to_be_bytes());
        steer(&packet)
    };
    let first = fragment(&whole, 0x2000);
    for field in [0x2001, 0x2100, 0x0100] {
        assert_eq!(fragment(&whole, field), first);
        assert_eq!(fragment(&back, field), first);
    }
    // "Don't fragment" is none.
    assert_eq!(fragment(&whole, 0x4000), steer(&whole));
    assert_ne!(first, steer(&whole));
}

#[test]
fn ports_after_extension_headers_count_and_those_of_fragments_do_not() {
    let with = |number: u8, header: &[u8], ports: (u16, u16)| {
        let [_, [mut packet, _]] = packets("fd00::1", "fd00::2", ports, &[]);
        let header = [&[packet[20]][..], header].concat();
        packet[20] = number;
        packet.splice(54..54, header);
        packet
    };
    let plain = |ports| packets("fd00::1", "fd00::2", ports, &[])[1][0].clone();
    let options = [&[0, 1, 4, 0, 0, 0, 0][..], &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
    for (number, options) in [(0, options[0]), (60, options[0]), (43, options[1])] {
        assert_eq!(steer(&with(number, options, (7, 9))), steer(&plain((7, 9))), "{number}");
    }
    let fragment = |ports| with(44, &[0, 0, 1, 0, 0, 0, 7], ports);
    assert_eq!(steer(&fragment((7, 9))), steer(&fragment((8, 9))));
}

/// The kernel verifies the translation, and runs it as the specification says of the original.
#[test]
fn the_translation_does_the_same_in_the_kernel() {
    if !peer::has_root("programs of the kernel") {
        return;
    }
    let translated = translate(&program(Sight::Ethernet));
    let kernel = bpf::Program::load_filter(&translated).expect("the kernel accepts it");
    let is_same = |packet: &[u8]| {
        // A test run takes an Ethernet header off before programs of this kind.
        let got = kernel.run(&[&[0; header_len::ETHERNET], packet].concat()).unwrap();
        prop_assert_eq!(got, steer_at_tap(packet));
        Ok(())
    };
    let packet = (any::<u32>(), any::<(u16, u16)>(), prop::collection::vec(1_u16..4000, 0..4));
    let mut runner = TestRunner::default();
    let done = runner.run(&packet, |(address, ports, tags)| {
        let v4 = std::net::Ipv4Addr::from_bits(address).to_string();
        let v6 = std::net::Ipv6Addr::from_bits(u128::from(address) << 90).to_string();
        for (source, target) in [(&*v4, "10.0.0.1"), (&*v6, "fd00::1")] {
            packets(source, target, ports, &tags).iter().flatten().try_for_each(|p| is_same(p))?;
        }
        Ok(())
    });
    done.unwrap();
    let kinds = vec![ethertype::IPV4, ethertype::IPV6, ethertype::VLAN, ethertype::ARP];
    let bytes = (prop::sample::select(kinds), prop::collection::vec(any::<u8>(), 1..120));
    let done = runner.run(&bytes, |(kind, mut bytes)| {
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(&kind.to_be_bytes());
        }
        is_same(&bytes)
    });
    done.unwrap();
}

#[test]
fn what_is_no_ip_is_in_the_first_queue() {
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&ethertype::ARP.to_be_bytes());
    assert_eq!(steer(&arp), 0);
}
