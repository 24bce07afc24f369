//! Flows and what they become.

use super::*;
use thalweg_packet::field;

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
        ("tp_dst=80", 0..6, "'tp_dst' means nothing without what it belongs to"),
        ("nw_src=10.0.0.1", 0..6, "'nw_src' means nothing without what it belongs to"),
        ("tcp,tp_dst=65536", 11..16, "bad value of 'tp_dst'"),
        ("tcp,nw_dst=10.0.0.0/33", 11..22, "bad value of 'nw_dst'"),
        ("tcp,udp", 4..7, "this contradicts another part of the rule"),
        ("ip,bogus=1", 3..8, "unknown field 'bogus'"),
        ("ipx", 0..3, "unknown protocol 'ipx'"),
        ("tcp,actions=drop", 4..11, "'actions' is no match field"),
        ("priority=70000", 9..14, "bad priority"),
        ("ip,nw_tos=3", 10..11, "bad value of 'nw_tos'"),
        ("tcp,tcp_flags=+syn+syn", 14..22, "bad value of 'tcp_flags'"),
        ("in_port=wan", 8..11, "bad value of 'in_port'"),
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
