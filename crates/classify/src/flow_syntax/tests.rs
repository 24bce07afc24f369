//! Flows and what they become.

use super::fields::{FIELDS, ONLY_PRINTED, PROTOCOLS};
use super::*;
use crate::Match;
use thalweg_packet::{FlowKey, field};

fn flow(text: &str) -> Flow {
    parse(text, &|name| (name == "lan").then_some(3)).unwrap()
}

fn error(text: &str) -> FlowError {
    parse(text, &|_| None).unwrap_err()
}

#[test]
fn the_example_of_the_manual_reads_as_meant() {
    let f = flow("priority=100,tcp,nw_dst=10.1.0.0/16,tp_dst=443");
    assert_eq!(f.priority, 100);
    let (v, m) = (f.pattern.value(), f.pattern.mask());
    assert_eq!((v.get(field::DL_TYPE), v.get(field::NW_PROTO)), (0x0800, 6));
    assert_eq!((v.get(field::NW_DST), m.get(field::NW_DST)), (0x0a01_0000, 0xffff_0000));
    assert_eq!((v.get(field::TP_DST), m.get(field::TP_DST)), (443, 0xffff));
    assert_eq!(flow("").priority, DEFAULT_PRIORITY);
}

#[test]
fn what_is_printed_is_what_was_meant() {
    let same = [
        "tcp,nw_dst=10.1.0.0/16,tp_dst=443",
        "udp6,ipv6_src=2001:db8::/32,tp_src=0x35/0xff3f",
        "dl_vlan=10,dl_src=02:00:00:00:00:01,arp,arp_spa=10.0.0.1,arp_op=1",
        "in_port=3,ip,ip_frag=first",
        "tcp,tcp_flags=+syn-ack",
        "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::1",
        "mpls,mpls_label=100,mpls_bos=1",
        "ip,ip_dscp=46,nw_ecn=1,nw_ttl=64",
        "vlan_tci=0x0000",
        "vlan_tci=0x1000/0x1000",
        "tun_id=0x002a,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
        "ip,nw_src=10.0.0.1/255.0.0.255,nw_proto=50",
    ];
    for text in same {
        let once = flow(text).pattern;
        let again = flow(&once.to_string()).pattern;
        assert_eq!(once, again, "{text} -> {once}");
    }
}

#[test]
fn untagged_differs_from_vlan_zero() {
    let untagged = flow("dl_vlan=0xffff").pattern;
    let zero = flow("dl_vlan=0").pattern;
    assert_eq!(untagged, flow("vlan_tci=0").pattern);
    assert_eq!(
        (zero.value().get(field::VLAN_TCI), zero.mask().get(field::VLAN_TCI)),
        (0x1000, 0x1fff)
    );
}

#[test]
fn mistakes_are_named_with_their_place() {
    let cases = [
        ("tp_dst=80", 0..6, "'tp_dst' lacks its prerequisite"),
        ("nw_src=10.0.0.1", 0..6, "'nw_src' lacks its prerequisite"),
        ("tcp,tp_dst=65536", 11..16, "bad value of 'tp_dst'"),
        ("tcp,nw_dst=10.0.0.0/33", 11..22, "bad value of 'nw_dst'"),
        ("tcp,udp", 4..7, "this contradicts another part of the rule"),
        ("ip,bogus=1", 3..8, "unknown field 'bogus'"),
        ("ipx", 0..3, "unknown protocol 'ipx'"),
        ("tcp,actions=drop", 4..11, "'actions' is not a match field"),
        ("priority=70000", 9..14, "bad priority"),
        ("ip,nw_tos=3", 10..11, "bad value of 'nw_tos'"),
        ("tcp,tcp_flags=+syn+syn", 14..22, "bad value of 'tcp_flags'"),
        ("in_port=wan", 8..11, "bad value of 'in_port'"),
        ("tcp,tp_dst=010", 11..14, "bad value of 'tp_dst'"),
        ("tcp tp_dst", 4..10, "field 'tp_dst' has no value"),
        ("icmp,icmp_type=256", 15..18, "bad value of 'icmp_type'"),
        ("vlan_vid=10", 9..11, "bad value of 'vlan_vid'"),
        ("vlan_tci=0x600a", 9..15, "bad value of 'vlan_tci'"),
        ("ipv6,ipv6_label=0x100000", 16..24, "bad value of 'ipv6_label'"),
        ("ct_state=+new", 0..8, "unknown field 'ct_state'"),
        ("ip_frag=later,tp_dst=80,tcp", 14..20, "'tp_dst' cannot match a later fragment"),
        (
            "icmp6,icmpv6_type=135,icmpv6_code=1,nd_target=fe80::1",
            36..45,
            "'nd_target' lacks its prerequisite",
        ),
    ];
    for (text, span, message) in cases {
        let e = error(text);
        assert_eq!((e.span, e.message.as_str()), (span, message), "{text}");
        assert!(!e.expected.is_empty());
    }
}

#[test]
fn a_named_port_is_looked_up() {
    assert_eq!(flow("in_port=lan").pattern, flow("in_port=3").pattern);
    assert_eq!(flow("in_port=3").pattern.value().get(field::IN_PORT), 4);
}

#[test]
fn where_order_decides_there_is_no_priority_and_in_an_nf_no_port() {
    for (text, span, name) in [
        ("tcp,priority=32768", 4..18, "'priority' is not supported here"),
        ("priority,tcp", 0..8, "'priority' is not supported here"),
        (" in_port=0,ip", 1..10, "'in_port' is not supported here"),
        ("in_port=lan", 0..11, "'in_port' is not supported here"),
    ] {
        let e = parse_pattern(text).unwrap_err();
        assert_eq!((e.span, e.message.as_str()), (span, name), "{text}");
    }
    assert_eq!(parse_pattern("tcp,tp_dst=80"), Ok(flow("tcp,tp_dst=80").pattern));
    let text = "priority=9,tcp";
    assert_eq!(parse_without_port(text), Ok(flow(text)));
    assert!(parse_without_port("priority=9,in_port=1").is_err());
    assert_eq!((place_of(text, "priority"), place_of(text, "tp_dst")), (Some(0..10), None));
}

#[test]
fn a_missing_prerequisite_is_named() {
    let cases = [
        ("tp_dst=80", "'tcp', 'udp' or 'sctp' (or 'tcp6', ...) in the same rule"),
        ("nw_src=10.0.0.1", "'ip', 'arp', or a protocol over IPv4, in the same rule"),
        ("nw_proto=6", "'ip' or 'ipv6' in the same rule"),
        ("icmp6,nd_sll=02:00:00:00:00:01", "'icmp6,icmp_type=135' in the same rule"),
        ("udp,tcp_flags=+syn", "'tcp' or 'tcp6' in the same rule"),
        ("ct_mark=1", "a field of the flow key: Open vSwitch has this field, Thalweg does not"),
        ("vlan_vid=10", "0 for untagged, or a value with bit 0x1000 set, such as 0x100a"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text).expected, expected, "{text}");
    }
}

#[test]
fn vlans_are_printed_as_open_vswitch_prints_them() {
    let cases = [
        ("vlan_tci=0x700a", "dl_vlan=10,dl_vlan_pcp=3"),
        ("vlan_tci=0x100a/0x1fff", "dl_vlan=10"),
        ("vlan_vid=0x100a", "dl_vlan=10"),
        ("vlan_tci=0xf000/0xf000", "dl_vlan_pcp=7"),
        ("vlan_vid=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
        ("dl_vlan=0xffff", "vlan_tci=0x0000"),
        ("vlan_vid=0xa/0xfff", "vlan_tci=0x000a/0x0fff"),
    ];
    for (text, printed) in cases {
        assert_eq!(flow(text).pattern.to_string(), printed, "{text}");
    }
}

#[test]
fn a_megaflow_that_looked_at_ports_of_an_arp_packet_is_still_readable() {
    let mut value = thalweg_packet::FlowKey::default();
    let mut mask = value;
    value.set(field::DL_TYPE, 0x0806);
    mask.set(field::DL_TYPE, 0xffff);
    mask.set(field::NW_PROTO, 0xff);
    mask.set(field::TP_DST, 0xffff);
    mask.set(field::VLAN2_TPID, 0xff00);
    let printed = crate::Match::new(value, mask).to_string();
    assert_eq!(printed, "arp,arp_op=0,tp_dst=0,vlan_tpid1=0x0/0xff00");
}

/// Keys as parsing makes them: by the protocols that the prerequisites of fields need.
fn kinds() -> impl Iterator<Item = FlowKey> {
    PROTOCOLS.iter().map(|(_, ether_type, protocol)| {
        let mut key = FlowKey::default();
        key.set(field::DL_TYPE, u64::from(*ether_type));
        key.set(field::NW_PROTO, protocol.map_or(0, u64::from));
        key
    })
}

/// The printed names, without a protocol's.
fn names(pattern: &Match) -> Vec<String> {
    let text = pattern.to_string();
    text.split(',').filter_map(|part| Some(part.split_once('=')?.0.to_owned())).collect()
}

#[test]
fn every_bit_of_every_field_is_printed_under_a_name() {
    let known: Vec<&str> =
        FIELDS.iter().chain(ONLY_PRINTED).flat_map(|d| d.names.iter().copied()).collect();
    let places = field::NARROW.into_iter().chain(field::WIDE.into_iter().flatten());
    for key in kinds() {
        for place in places.clone() {
            let bits = (0..place.bits).map(|bit| 1 << bit);
            for bits in bits.chain([place.max()]) {
                for value in [0, bits] {
                    let (mut value, wanted) = (FlowKey { ..key }, value);
                    let mut mask = FlowKey::default();
                    value.set(place, wanted);
                    mask.set(place, bits);
                    let names = names(&Match::new(value, mask));
                    let all_known = names.iter().all(|name| known.contains(&name.as_str()));
                    assert!(all_known, "{place:?} {bits:#x}: {names:?}");
                    let is_used = FIELDS.iter().chain(ONLY_PRINTED).any(|d| d.get(&mask) != 0);
                    assert_eq!(names.is_empty(), !is_used, "{place:?} {bits:#x}");
                }
            }
        }
    }
}

#[test]
fn fragments_are_printed_as_open_vswitch_prints_them() {
    let (any, later) = (field::FRAG_ANY, field::FRAG_LATER);
    let cases = [
        (0, any | later, "no"),
        (any, any | later, "first"),
        (any | later, any | later, "later"),
        (any, any, "yes"),
        (0, any, "no"),
        (later, later, "later"),
        (0, later, "not_later"),
        // The whole field, as of a packet's own key.
        (any | later, 0xff, "later"),
    ];
    for (value, mask, name) in cases {
        let (mut v, mut m) = (FlowKey::default(), FlowKey::default());
        v.set(field::NW_FRAG, value);
        m.set(field::NW_FRAG, mask);
        assert_eq!(Match::new(v, m).to_string(), format!("ip_frag={name}"), "{value} {mask:#x}");
    }
}
