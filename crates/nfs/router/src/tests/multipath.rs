//! Routes with several next hops.

use std::collections::HashMap;

use super::*;

/// Twice as many flows to the first as to each of the others.
const WAYS: &str = "10.0.0.0/8 192.0.2.254 lan 203.0.113.1 wan 192.0.2.254 lan direct third\n\
                    2001:db8:a::/48 2001:db8:0:1::1 lan fe80::1 wan\n";
const THIRD: &str = "[ports.third]\noutput = 'out'\nmac = '02:00:00:00:00:03'\n\
                     default_mac = '02:00:00:00:02:77'\n";

fn bench() -> Bench {
    Bench::with_options(WAYS, THIRD)
}

fn packet(flow: u16, v6: bool, len: usize) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let (src, dst) = if v6 {
        ("2001:db8:c::1".parse().unwrap(), "2001:db8:a::1".parse().unwrap())
    } else {
        ([198, 51, high, low].into(), [10, 9, low, high].into())
    };
    PacketBuilder::new(HOST, LAN).ip(src, dst).udp(flow, 53).build(&vec![0; len])
}

/// The next hop of a packet: its destination MAC address.
fn way(bench: &Bench, packet: &[u8]) -> Mac {
    let fate = bench.send(packet);
    assert_eq!(fate.verdict, Verdict::Forward);
    *fate.batch.bytes(0).first_chunk().unwrap()
}

#[test]
fn flows_are_spread_as_often_as_ways_stand_there() {
    const FLOWS: u16 = 2000;
    let bench = bench();
    for (v6, shares) in [
        (false, vec![(LAN_ROUTER, 0.5), (WAN_ROUTER, 0.25)]),
        (true, vec![(LAN_ROUTER, 0.5), (WAN_ROUTER, 0.5)]),
    ] {
        let mut counts: HashMap<Mac, u32> = HashMap::new();
        for flow in 0..FLOWS {
            *counts.entry(way(&bench, &packet(flow, v6, 10))).or_default() += 1;
        }
        for (mac, share) in shares {
            let (count, expected) = (f64::from(counts[&mac]), f64::from(FLOWS) * share);
            // Five standard deviations.
            let most = 5.0 * (expected * (1.0 - share)).sqrt();
            assert!((count - expected).abs() < most, "{mac:?}: {count}, not {expected}");
        }
        assert_eq!(counts.len(), if v6 { 2 } else { 3 });
    }
}

#[test]
fn a_flow_stays_on_its_way_and_so_do_fragments() {
    let bench = bench();
    for flow in 0..50 {
        let first = way(&bench, &packet(flow, false, 10));
        assert_eq!(way(&bench, &packet(flow, false, 300)), first);
        // The first fragment has ports, later ones do not.
        let whole = packet(flow, false, 64);
        let fragment = |offset: u16| {
            let mut bytes = whole.clone();
            bytes[20..22].copy_from_slice(&(offset | 0x2000).to_be_bytes());
            bytes[24..26].fill(0);
            let sum = thalweg_packet::checksum::checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            way(&bench, &bytes)
        };
        assert_eq!(fragment(0), fragment(4));
    }
}

#[test]
fn the_way_is_explained() {
    let fate = bench().send(&packet(7, true, 10));
    let told: Vec<&str> = fate.trace.iter().map(|(_, text)| &text[..]).collect();
    assert!(told.iter().any(|text| text.contains("one of 2 next hops")), "{told:?}");
}

#[test]
fn mistakes_in_ways_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let many = "192.0.2.254 lan ".repeat(65);
    for (line, message) in [
        ("10.0.0.0/8 192.0.2.254 lan 203.0.113.1", "a next hop without a port"),
        ("10.0.0.0/8 192.0.2.254 lan blackhole wan", "not allowed among several next hops"),
        ("10.0.0.0/8 192.0.2.254 lan fe80::1 wan", "IP version is not the prefix's"),
        ("10.0.0.0/8 192.0.2.254 lan 192.0.2.254 moon", "unknown port"),
        ("10.0.0.0/8 blackhole 192.0.2.254 lan", "unexpected word"),
        (&format!("10.0.0.0/8 {many}"), "too many next hops"),
    ] {
        let Err(error) = build_in(&folder, line, "") else { panic!("{line}: accepted") };
        assert!(error.to_string().contains(message), "{line}: {error}");
    }
}
