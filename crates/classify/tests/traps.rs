//! Where a narrow mask is easily wrong: each scenario is a few rules and a grid
//! of packets. Whichever packet makes the megaflow, all others of the grid must
//! still be distinguished.

#[path = "support/proof.rs"]
mod proof;

use std::sync::Arc;

use thalweg_classify::{
    Classifier, Config, LinearTable, Lookup, MatchLayer, Rule, RuleId, RuleTable, SharedRules,
    flow_syntax,
};
use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType, TransposedKeys, field};

/// Rules in flow syntax, each with a packet type of its own, counted from 1.
fn rules(texts: &[&str]) -> Vec<Rule> {
    let rule = |(id, text): (usize, &&str)| {
        let flow = flow_syntax::parse(text, &|_| None).unwrap();
        Rule {
            id: RuleId(id as u32),
            priority: flow.priority,
            matches: vec![flow.pattern],
            packet_type: PacketType(id as u16 + 1),
            text: (*text).to_owned(),
        }
    };
    texts.iter().enumerate().map(rule).collect()
}

/// All packets of `base` with each of the values in each of the fields.
fn grid(base: FlowKey, axes: &[(thalweg_packet::Field, &[u64])]) -> Vec<FlowKey> {
    let mut keys = vec![base];
    for (place, values) in axes {
        let with = |key: &FlowKey| {
            let key = *key;
            values.iter().map(move |value| {
                let mut key = key;
                key.set(*place, *value);
                key
            })
        };
        keys = keys.iter().flat_map(with).collect();
    }
    keys
}

fn ipv4() -> FlowKey {
    let mut key = FlowKey::default();
    key.set(field::DL_TYPE, ethertype::IPV4.into());
    key
}

/// Lets each packet in turn make the first megaflow, and all others follow.
/// Returns how many answers came from megaflows.
fn check(texts: &[&str], keys: &[FlowKey]) -> usize {
    let rules = rules(texts);
    let oracle = LinearTable::new(rules.clone(), PacketType(0));
    let mut table = RuleTable::new(PacketType(0));
    table.extend(rules.iter().cloned());
    let judge = proof::Judge::new(&rules);
    for key in keys {
        assert_eq!(judge.flaw(key, &table.lookup(key)), None, "{texts:?} {key:?}");
    }
    let keys: Vec<_> = keys.iter().map(|key| (key, oracle.lookup(key))).collect();
    let shared = Arc::new(SharedRules::new(table));
    let (mut shared_answers, mut batch) = (0, TransposedKeys::default());
    for first in 0..keys.len() {
        let config = Config { emc_entries: 0, megaflow_adaptive: false, ..Config::default() };
        let mut classifier = Classifier::new(shared.clone(), config);
        let (later, earlier) = (&keys[first..], &keys[..first]);
        for (key, expected) in later.iter().chain(earlier) {
            let mut out = [Lookup::default(); BATCH];
            batch.set(0, key);
            let lanes = Lanes::first(1);
            classifier.classify_batch(&batch, lanes, &[64; BATCH], Nanoseconds(0), &mut out);
            assert_eq!((out[0].rule, out[0].packet_type), *expected, "{texts:?} {key:?}");
            shared_answers += usize::from(out[0].layer == MatchLayer::Megaflow);
        }
    }
    shared_answers
}

/// No tag, a tag of each kind, and what is no tag but has a number.
const TAGS: &[u64] = &[0, 0x000a, 0x1000, 0x100a, 0x100b, 0x300a, 0x3000, 0x1fff, 0xf00a];

#[test]
fn a_megaflow_of_an_untagged_packet_does_not_swallow_tagged_ones() {
    let axes = [(field::VLAN_TCI, TAGS), (field::IN_PORT, &[2, 3][..])];
    for tagged in [
        "dl_vlan=10",
        "dl_vlan=0",
        "dl_vlan=0xffff",
        "dl_vlan_pcp=1",
        "dl_vlan=10,dl_vlan_pcp=1",
        "vlan_tci=0x1000/0x1000",
        "vlan_tci=0/0x1000",
        "vlan_tci=0x100a",
        "vlan_tci=0",
        "vlan_tci=0x000a/0x0fff",
        "vlan_tci=0xf000/0xf000",
    ] {
        let first = format!("priority=9,{tagged},ip");
        let also = format!("priority=9,{tagged},ip,nw_dst=10.0.0.0/8");
        let port = format!("priority=5,in_port=1,{tagged}");
        for texts in [
            vec![first.as_str(), "priority=1,ip"],
            vec![&first],
            vec![&also, "priority=7,dl_vlan=11,ip", "priority=1,ip"],
            vec![&port, "priority=9,vlan_tci=0x100b/0x1fff", "priority=1,ip"],
        ] {
            assert!(check(&texts, &grid(ipv4(), &axes)) > 0);
        }
    }
}

/// Each: rules of which a higher one looks at what the lower one does not.
const SKIPPED: &[&[&str]] = &[
    // A longer prefix with a further field, above a shorter one without.
    &["priority=9,tcp,nw_dst=10.1.0.0/16,tp_dst=80", "priority=1,ip,nw_dst=10.0.0.0/8"],
    &["priority=9,ip,nw_dst=10.0.0.0/8", "priority=5,tcp,nw_dst=10.1.0.0/16,tp_dst=80"],
    // Prefixes that overlap in part, on either address.
    &["priority=9,ip,nw_src=10.0.0.0/8", "priority=5,ip,nw_dst=10.1.0.0/16", "priority=1,ip"],
    &[
        "priority=9,ip,nw_src=10.1.0.0/16,nw_dst=10.0.0.0/8",
        "priority=8,ip,nw_src=10.0.0.0/8,nw_dst=10.1.0.0/16",
        "priority=7,ip,nw_src=10.1.1.0/24",
        "priority=1,ip",
    ],
    // Each field has its rule, and no rule has them all.
    &[
        "priority=9,tcp,nw_src=10.0.0.1,nw_dst=10.1.0.1",
        "priority=8,tcp,nw_src=10.1.0.1,nw_dst=10.0.0.1",
        "priority=7,tcp,nw_src=10.0.0.1,tp_dst=80",
        "priority=6,tcp,tp_dst=443",
    ],
    // Masks with gaps.
    &["priority=9,ip,nw_src=10.0.0.1/255.0.0.255", "priority=5,ip,nw_src=10.0.0.0/8"],
    &[
        "priority=9,ip,nw_dst=0.0.0.1/0.0.0.255",
        "priority=8,ip,nw_dst=10.1.0.0/255.255.0.1",
        "priority=5,ip,nw_dst=10.0.0.0/8",
    ],
    // A range of ports in parts (80 to 82), above one port and below another.
    &[
        "priority=9,tcp,tp_dst=0x50/0xfffe,nw_src=10.0.0.0/8",
        "priority=9,tcp,tp_dst=0x52/0xffff,nw_src=10.0.0.0/8",
        "priority=10,tcp,tp_dst=81,nw_src=10.1.0.0/16",
        "priority=1,tcp,tp_dst=443",
    ],
    // Bits of a port from the lower end.
    &["priority=9,tcp,tp_dst=1/1", "priority=5,tcp,nw_src=10.0.0.0/8,tp_dst=0x50/0xfff0"],
    // An early stage and a late one.
    &["priority=9,in_port=1,tcp,tp_dst=80", "priority=5,tcp,nw_dst=10.1.0.0/16", "priority=1,ip"],
    &[
        "priority=9,tcp,tp_dst=80",
        "priority=8,in_port=1",
        "priority=7,in_port=2,ip,nw_src=10.0.0.1",
    ],
    // A protocol instead of a port: the port counts only for the one.
    &["priority=9,udp,tp_dst=80", "priority=8,tcp,tp_dst=443", "priority=1,ip"],
];

#[test]
fn a_skipped_rule_of_higher_priority_still_gets_its_packets() {
    let addresses: &[u64] = &[0x0a00_0001, 0x0a01_0001, 0x0a01_0101, 0x0b00_0001];
    let keys = grid(
        ipv4(),
        &[
            (field::NW_PROTO, &[6, 17]),
            (field::NW_SRC, addresses),
            (field::NW_DST, addresses),
            (field::TP_DST, &[80, 81, 82, 83, 443]),
            (field::IN_PORT, &[2, 3]),
        ],
    );
    for texts in SKIPPED {
        assert!(check(texts, &keys) > 0);
        // The same rules, the last of highest priority.
        let turned: Vec<_> = texts.iter().map(|t| t.replace("priority=", "priority=10")).collect();
        let turned = turned.iter().enumerate().map(|(i, t)| format!("priority={i},{}", rest(t)));
        let turned: Vec<_> = turned.collect();
        let turned: Vec<_> = turned.iter().map(String::as_str).collect();
        assert!(check(&turned, &keys) > 0);
    }
}

/// A flow without its priority.
fn rest(text: &str) -> &str {
    text.split_once(',').unwrap().1
}

#[test]
fn ipv6_prefixes_are_told_apart_on_both_sides_of_the_middle() {
    let texts = [
        "priority=9,ipv6,ipv6_dst=2001:db8::/32",
        "priority=8,tcp6,ipv6_dst=2001:db8:0:1::/64,tp_dst=80",
        "priority=7,ipv6,ipv6_src=2001:db8::8000:0:0:0/65",
        "priority=6,ipv6,ipv6_src=2001:db8::1",
        "priority=5,ipv6,ipv6_src=::1/::ffff",
        "priority=1,ip",
    ];
    let mut base = FlowKey::default();
    base.set(field::DL_TYPE, ethertype::IPV6.into());
    base.set(field::NW_PROTO, ip_proto::TCP.into());
    let keys = grid(
        base,
        &[
            (
                field::IPV6_DST[0],
                &[0, 0x2001_0db8_0000_0000, 0x2001_0db8_0000_0001, 0x2001_0db9 << 32],
            ),
            (field::IPV6_SRC[0], &[0, 0x2001_0db8_0000_0000]),
            (field::IPV6_SRC[1], &[0, 1, 0x8000_0000_0000_0000, 0x8000_0000_0000_0001]),
            (field::TP_DST, &[80, 443]),
        ],
    );
    assert!(check(&texts, &keys) > 0);
}

#[test]
fn a_mask_has_only_the_bits_that_tell_the_packet_from_the_rules() {
    let mask = |texts: &[&str], key: &FlowKey| {
        let mut table = RuleTable::new(PacketType(0));
        table.extend(rules(texts));
        table.lookup(key).mask
    };
    let mut key = ipv4();
    key.set(field::NW_PROTO, ip_proto::TCP.into());
    key.set(field::NW_DST, 0x0b00_0001);
    key.set(field::IN_PORT, 3); // port 2
    // 11 differs from 10 in its eighth bit; the port is not looked at.
    let found = mask(&["priority=9,tcp,nw_dst=10.1.0.0/16,tp_dst=80", "priority=1,ip"], &key);
    assert_eq!((found.get(field::NW_DST), found.get(field::TP_DST)), (0xff00_0000, 0));
    assert_eq!((found.get(field::NW_PROTO), found.get(field::DL_TYPE)), (0, 0xffff));
    // What the winner looks at rules out another rule at no cost.
    let texts = ["priority=9,tcp,nw_dst=11.1.0.0/16,tp_src=9", "priority=1,ip,nw_dst=11.0.0.0/16"];
    let found = mask(&texts, &key);
    assert_eq!((found.get(field::NW_DST), found.get(field::TP_SRC)), (0xffff_0000, 0));
    // Both fields have a rule: the first stages decide, and ports are left alone.
    let texts = [
        "priority=9,in_port=1,tcp,nw_dst=11.0.0.1,tp_dst=80",
        "priority=9,in_port=2,tcp,nw_dst=12.0.0.1,tp_dst=80",
    ];
    key.set(field::TP_DST, 80);
    let found = mask(&texts, &key);
    assert_eq!(found.get(field::TP_DST), 0);
    assert_ne!(found.get(field::NW_DST), 0);
}
