//! The layers hold what a linear scan says, whatever is cached.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_classify::{
    Classifier, Config, LinearTable, Lookup, Match, MatchLayer, Rule, RuleId, RuleTable,
    SharedRules, flow_syntax,
};
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType, field};

/// Few values in few fields, so that rules overlap and keys hit them.
fn key() -> impl Strategy<Value = FlowKey> {
    (0u64..4, 0u64..4, 0u64..3, 0u64..3, prop_oneof![Just(0u64), Just(0x1000), Just(0x100a)])
        .prop_map(|(src, dst, proto, port, vlan)| {
            let mut key = FlowKey::default();
            key.set(field::DL_TYPE, 0x0800);
            key.set(field::NW_SRC, 0x0a00_0000 + src);
            key.set(field::NW_DST, 0x0a00_0000 + (dst << 16));
            key.set(field::NW_PROTO, proto);
            key.set(field::TP_DST, port);
            key.set(field::VLAN_TCI, vlan);
            key
        })
}

fn pattern() -> impl Strategy<Value = Match> {
    let mask = (0u32..4, 0u32..4, any::<bool>(), any::<bool>(), any::<bool>());
    (key(), mask).prop_map(|(value, (src, dst, proto, port, vlan))| {
        let mut mask = FlowKey::default();
        mask.set(field::NW_SRC, u64::from(u32::MAX.checked_shl(src).unwrap_or(0)));
        mask.set(field::NW_DST, u64::from(u32::MAX.checked_shl(dst * 8 + 8).unwrap_or(0)));
        mask.set(field::NW_PROTO, if proto { 0xff } else { 0 });
        mask.set(field::TP_DST, if port { 0xffff } else { 0 });
        mask.set(field::VLAN_TCI, if vlan { 0xffff } else { 0 });
        Match::new(value, mask)
    })
}

fn rules(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    let rule = (proptest::collection::vec(pattern(), 1..3), 0u32..4, 1u16..5);
    proptest::collection::vec(rule, 0..most).prop_map(|rules| {
        rules
            .into_iter()
            .enumerate()
            .map(|(id, (matches, priority, packet_type))| Rule {
                id: RuleId(id as u32),
                priority,
                matches,
                packet_type: PacketType(packet_type),
                text: String::new(),
            })
            .collect()
    })
}

fn table(rules: &[Rule]) -> RuleTable {
    let mut table = RuleTable::new(PacketType(0));
    table.extend(rules.iter().cloned());
    table
}

#[test]
fn every_layer_answers_as_a_linear_scan_while_rules_come_and_go() {
    let hits = Cell::new([0u64; 3]);
    let steps =
        proptest::collection::vec((proptest::collection::vec(key(), 1..40), 0usize..6), 1..12);
    proptest!(|(all in rules(12), steps in steps, emc in 0usize..3)| {
        let mut active = all.clone();
        let shared = Arc::new(SharedRules::new(table(&active)));
        let config = Config {
            emc_entries: [0, 2, 64][emc],
            emc_insert_inverse_probability: 1,
            megaflow_limit: if emc == 1 { 3 } else { 1000 },
            idle_timeout: Nanoseconds::from_secs(2),
        };
        let mut classifier = Classifier::new(shared.clone(), config);
        let mut now = Nanoseconds::default();
        for (keys, change) in steps {
            match change {
                0 if !active.is_empty() => {
                    let gone = active.remove(active.len() / 2);
                    let mut next = (*shared.load()).clone();
                    next.remove(gone.id);
                    shared.publish(next);
                }
                1 => if let Some(back) = all.iter().find(|r| !active.iter().any(|a| a.id == r.id)) {
                    active.push(back.clone());
                    let mut next = (*shared.load()).clone();
                    next.insert(back.clone());
                    shared.publish(next);
                },
                2 => now = now.plus(Nanoseconds::from_secs(1)),
                _ => {}
            }
            let oracle = LinearTable::new(active.clone(), PacketType(0));
            for chunk in keys.chunks(BATCH) {
                let mut batch = [FlowKey::default(); BATCH];
                batch[..chunk.len()].copy_from_slice(chunk);
                let mut out = [Lookup { packet_type: PacketType(999), ..Lookup::default() }; BATCH];
                let lanes = Lanes::first(chunk.len());
                classifier.classify_batch(&batch, lanes, &[64; BATCH], now, &mut out);
                for lane in lanes {
                    let expected = oracle.lookup(&batch[lane]);
                    prop_assert_eq!((out[lane].rule, out[lane].packet_type), expected);
                    let mut seen = hits.get();
                    seen[out[lane].layer as usize] += 1;
                    hits.set(seen);
                }
                if chunk.len() < BATCH {
                    prop_assert_eq!(out[BATCH - 1].packet_type, PacketType(999));
                }
            }
        }
    });
    assert!(hits.get().iter().all(|n| *n > 500), "vacuous run: {:?}", hits.get());
}

#[test]
fn flipping_a_bit_outside_a_megaflow_changes_no_answer() {
    let flipped = Cell::new(0u64);
    proptest!(|(all in rules(12), key in key(), bits in proptest::collection::vec(0usize..23 * 64, 1..40))| {
        let table = table(&all);
        let oracle = LinearTable::new(all, PacketType(0));
        let found = table.lookup(&key);
        prop_assert_eq!((found.rule, found.packet_type), oracle.lookup(&key));
        let mut other = key;
        for bit in bits {
            let flip = 1 << (bit % 64);
            if found.mask.words[bit / 64] & flip == 0 {
                other.words[bit / 64] ^= flip;
                flipped.set(flipped.get() + 1);
                prop_assert_eq!(oracle.lookup(&other), (found.rule, found.packet_type));
            }
        }
    });
    assert!(flipped.get() > 1000, "vacuous run");
}

#[test]
fn an_untagged_packets_megaflow_does_not_swallow_tagged_ones() {
    let rule = |id, text: &str, packet_type| {
        let flow = flow_syntax::parse(text, &|_| None).unwrap();
        Rule {
            id: RuleId(id),
            priority: flow.priority,
            matches: vec![flow.pattern],
            packet_type: PacketType(packet_type),
            text: text.into(),
        }
    };
    let rules = [rule(0, "priority=2,dl_vlan=10,ip", 1), rule(1, "priority=1,ip", 2)];
    let shared = Arc::new(SharedRules::new(table(&rules)));
    let mut classifier = Classifier::new(shared, Config { emc_entries: 0, ..Config::default() });
    let mut keys = [FlowKey::default(); BATCH];
    keys[0].set(field::DL_TYPE, 0x0800);
    keys[1] = keys[0];
    keys[1].set(field::VLAN_TCI, 0x100a);
    let mut out = [Lookup::default(); BATCH];
    for _ in 0..2 {
        let lanes = Lanes::first(2);
        classifier.classify_batch(&keys, lanes, &[0; BATCH], Nanoseconds(0), &mut out);
        assert_eq!((out[0].packet_type, out[1].packet_type), (PacketType(2), PacketType(1)));
    }
    assert_eq!(out[0].layer, MatchLayer::Megaflow);
}

#[test]
fn an_equal_priority_is_won_by_the_earlier_rule() {
    let pattern = Match::default();
    let rule = |id, packet_type| Rule {
        id: RuleId(id),
        priority: 5,
        matches: vec![pattern],
        packet_type: PacketType(packet_type),
        text: String::new(),
    };
    let found = table(&[rule(4, 1), rule(2, 9)]).lookup(&FlowKey::default());
    assert_eq!((found.rule, found.packet_type), (Some(RuleId(2)), PacketType(9)));
}
