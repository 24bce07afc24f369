//! The mask of a search in the rule table proves its answer.

#[path = "support/proof.rs"]
mod proof;

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;
use thalweg_classify::{Match, Rule, RuleId, RuleTable, classbench};
use thalweg_packet::wire::ethertype;
use thalweg_packet::{Field, FlowKey, PacketType, field};
use thalweg_source::Source;
use thalweg_testkit::cases;

use proof::{Judge, is_within, rank};

/// How the bits of a field are asked for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Nothing,
    All,
    Prefix(u32),
    Bits(u64),
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        6 => Just(Ask::Nothing),
        2 => Just(Ask::All),
        3 => (0u32..64).prop_map(Ask::Prefix),
        1 => any::<u64>().prop_map(Ask::Bits),
    ]
}

/// Fields of every stage, tracked and not, with values close to each other.
const FIELDS: [(Field, &[u64]); 14] = [
    (field::TUN_ID, &[0, 7]),
    (field::IN_PORT, &[0, 1, 2]),
    (field::METADATA, &[0, 0x100]),
    (field::DL_DST, &[0, 0x0200_0000_0001]),
    (field::DL_TYPE, &[0x0800, 0x86dd]),
    (field::VLAN_TCI, &[0, 0x1000, 0x100a, 0x300a]),
    (field::NW_PROTO, &[0, 6, 17]),
    (field::NW_TOS, &[0, 4]),
    (field::NW_SRC, &[0, 0x0a00_0001, 0x0a00_0002, 0x0a00_0101, 0x0b00_0001]),
    (field::NW_DST, &[0, 0x0a00_0001, 0x0a80_0001, 0xc0a8_0001, 0xc0a8_0101]),
    (field::IPV6_SRC[0], &[0, 0x2001_0db8_0000_0000]),
    (field::IPV6_SRC[1], &[0, 1, 0x8000_0000_0000_0000]),
    (field::TP_SRC, &[0, 53, 1024, 0xffff]),
    (field::TP_DST, &[0, 80, 81, 443]),
];

fn key() -> impl Strategy<Value = FlowKey> {
    proptest::collection::vec(any::<prop::sample::Index>(), FIELDS.len()).prop_map(|picks| {
        let mut key = FlowKey::default();
        for ((place, values), pick) in FIELDS.iter().zip(picks) {
            key.set(*place, values[pick.index(values.len())]);
        }
        key
    })
}

fn pattern() -> impl Strategy<Value = Match> {
    (key(), proptest::collection::vec(ask(), FIELDS.len())).prop_map(|(value, asks)| {
        let mut mask = FlowKey::default();
        for ((place, _), ask) in FIELDS.iter().zip(asks) {
            let bits = u32::from(place.bits);
            mask.set(
                *place,
                match ask {
                    Ask::Nothing => 0,
                    Ask::All => u64::MAX,
                    Ask::Prefix(len) => {
                        (u64::MAX << 1).checked_shl(bits - 1 - len % bits).unwrap_or(0)
                    }
                    Ask::Bits(bits) => bits,
                },
            );
        }
        Match::new(value, mask)
    })
}

/// Rules that share masks and values, so that subtables have several entries.
fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let made = (any::<prop::sample::Index>(), key(), any::<bool>());
    let rule = (proptest::collection::vec(made, 1..3), 0u32..6, 1u16..5);
    let patterns = proptest::collection::vec(pattern(), 1..8);
    (patterns, proptest::collection::vec(rule, 0..24)).prop_map(|(patterns, rules)| {
        let pattern = |(pick, value, fresh): &(prop::sample::Index, FlowKey, bool)| {
            let old = pick.get(&patterns);
            if *fresh { Match::new(*value, *old.mask()) } else { *old }
        };
        let rules = rules.into_iter().enumerate();
        rules
            .map(|(id, (made, priority, packet_type))| Rule {
                id: RuleId(id as u32),
                priority,
                matches: made.iter().map(pattern).collect(),
                packet_type: PacketType(packet_type),
                text: String::new(),
            })
            .collect()
    })
}

/// The union of the masks that a search without narrowing would look at.
fn all_visited(rules: &[Rule], winner: Option<RuleId>) -> FlowKey {
    let mut best: HashMap<FlowKey, (u32, u32)> = HashMap::new();
    for rule in rules {
        for pattern in &rule.matches {
            let best = best.entry(*pattern.mask()).or_insert(rank(rule));
            *best = rank(rule).min(*best);
        }
    }
    let end = rules.iter().find(|r| Some(r.id) == winner).map(rank);
    let visited = best.iter().filter(|(_, best)| end.is_none_or(|end| **best <= end));
    visited.fold(FlowKey::default(), |all, (mask, _)| all.union(mask))
}

#[test]
fn a_mask_proves_its_answer_and_holds_no_bit_that_no_subtable_asked_for() {
    let (narrower, seen) = (Cell::new(0u64), Cell::new([0u64; 2]));
    proptest!(ProptestConfig::with_cases(3000), |(
        all in rules(), keys in proptest::collection::vec(key(), 8),
        gone in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    )| {
        let mut active = all.clone();
        let mut table = RuleTable::new(PacketType(0));
        table.extend(all.iter().cloned());
        let whole = table.clone();
        for index in gone {
            if !active.is_empty() {
                let rule = active.swap_remove(index.index(active.len()));
                prop_assert_eq!(table.remove(rule.id).map(|r| r.id), Some(rule.id));
            }
        }
        // The copy from before the removals is still right for all rules.
        for (table, rules) in [(&table, &active), (&whole, &all)] {
            let judge = Judge::new(rules);
            for key in &keys {
                let found = table.lookup(key);
                prop_assert_eq!(judge.flaw(key, &found), None);
                prop_assert_eq!(table.find(key), (found.rule, found.packet_type));
                let most = all_visited(rules, found.rule);
                prop_assert!(is_within(&found.mask, &most));
                narrower.set(narrower.get() + u64::from(found.mask != most));
                let mut counts = seen.get();
                counts[usize::from(found.rule.is_some())] += 1;
                seen.set(counts);
            }
        }
    });
    let [misses, hits] = seen.get();
    assert!(narrower.get() > 10_000 && misses > 5000 && hits > 5000, "vacuous run");
}

#[test]
fn rules_that_are_gone_leave_no_trace() {
    proptest!(ProptestConfig::with_cases(cases(500)), |(
        all in rules(), keys in proptest::collection::vec(key(), 8),
        stays in proptest::collection::vec(any::<bool>(), 24),
    )| {
        // One pattern each: where a rule has several, the order of subtables
        // is of equal right, and another order gives another mask.
        let one = |mut rule: Rule| { rule.matches.truncate(1); rule };
        let all: Vec<_> = all.into_iter().map(one).collect();
        let mut table = RuleTable::new(PacketType(0));
        table.extend(all.iter().cloned());
        let mut fresh = RuleTable::new(PacketType(0));
        for (rule, stays) in all.into_iter().zip(stays) {
            if stays {
                fresh.insert(rule);
            } else {
                table.remove(rule.id);
            }
        }
        prop_assert_eq!(table.subtables(), fresh.subtables());
        for key in &keys {
            prop_assert_eq!(table.lookup(key), fresh.lookup(key));
        }
    });
}

#[test]
fn a_search_from_an_earlier_mask_tells_whether_it_still_proves() {
    let seen = Cell::new([0u64; 3]);
    proptest!(ProptestConfig::with_cases(2000), |(
        all in rules(), keys in proptest::collection::vec((key(), key()), 8),
        changed in any::<prop::sample::Index>(), adds in any::<bool>(),
    )| {
        let mut before = RuleTable::new(PacketType(0));
        before.extend(all.iter().cloned());
        let (mut after, mut active) = (before.clone(), all.clone());
        if !all.is_empty() {
            after.remove(active.swap_remove(changed.index(all.len())).id);
        }
        if adds {
            (before, after, active) = (after, before, all);
        }
        let judge = Judge::new(&active);
        for (key, other) in keys {
            let found = before.lookup(&key);
            // The megaflow layer knows the bits of the mask only.
            let masked = key.masked(&found.mask);
            prop_assert_eq!(before.lookup_from(&masked, &found.mask), found);
            let again = after.lookup_from(&masked, &found.mask);
            prop_assert!(is_within(&found.mask, &again.mask));
            prop_assert_eq!(judge.flaw(&masked, &again), None);
            let holds = again == found;
            if holds {
                let not_mask = FlowKey { words: found.mask.words.map(|w| !w) };
                let packet = masked.union(&other.masked(&not_mask));
                prop_assert_eq!(judge.flaw(&packet, &found), None);
            }
            let right = judge.flaw(&masked, &found).is_none();
            let mut counts = seen.get();
            counts[usize::from(holds) + usize::from(right && !holds) * 2] += 1;
            seen.set(counts);
        }
    });
    let [wrong, holds, dropped] = seen.get();
    println!("{wrong} wrong, {holds} hold, {dropped} right but not seen to be");
    assert!(holds > 5000 && wrong > 50, "vacuous run: {wrong} {holds}");
    assert!(dropped * 20 < holds, "too many are given up: {dropped} of {holds}");
}

/// A line of a filter file whose prefixes and port ranges overlap others'.
fn line() -> impl Strategy<Value = String> {
    let address = (prop_oneof![Just(10u8), Just(11)], 0u8..3, 0u8..4, 0u8..=32)
        .prop_map(|(a, b, d, len)| format!("{a}.{b}.0.{d}/{len}"));
    let ports = prop_oneof![
        Just((0u16, 65535u16)),
        (0u16..12, 0u16..12).prop_map(|(a, b)| (a.min(b), a.max(b))),
        Just((1, 65534)),
        Just((1024, 65535)),
    ]
    .prop_map(|(low, high)| format!("{low} : {high}"));
    let protocol = prop_oneof![Just("0x06/0xFF"), Just("0x11/0xFF"), Just("0x00/0x00")];
    ([address.clone(), address], [ports.clone(), ports], protocol).prop_map(
        |([src, dst], [sport, dport], protocol)| {
            format!("@{src}\t{dst}\t{sport}\t{dport}\t{protocol}\n")
        },
    )
}

#[test]
fn masks_prove_answers_where_port_ranges_are_split() {
    let (hits, large) = (Cell::new(0u64), Cell::new(0u64));
    let header = (
        (10u64..12, 0u64..3, 0u64..4),
        (10u64..12, 0u64..3, 0u64..4),
        0u64..12,
        0u64..12,
        0usize..2,
    );
    // Most of the time passes until the table is filled.
    proptest!(ProptestConfig::with_cases(500), |(
        lines in proptest::collection::vec(line(), 1..30),
        headers in proptest::collection::vec(header, 24),
    )| {
        let source = Source::new("lines", lines.concat());
        let rules = classbench::parse(&source, RuleId(0), 1 << 20, PacketType(1)).unwrap();
        let mut table = RuleTable::new(PacketType(0));
        table.extend(rules.iter().cloned());
        let judge = Judge::new(&rules);
        large.set(large.get() + u64::from(table.subtables() > 64));
        for (src, dst, sport, dport, protocol) in headers {
            let mut key = FlowKey::default();
            key.set(field::DL_TYPE, ethertype::IPV4.into());
            key.set(field::NW_SRC, src.0 << 24 | src.1 << 16 | src.2);
            key.set(field::NW_DST, dst.0 << 24 | dst.1 << 16 | dst.2);
            key.set(field::NW_PROTO, [6, 17][protocol]);
            key.set(field::TP_SRC, sport);
            key.set(field::TP_DST, dport * 100);
            let found = table.lookup(&key);
            prop_assert_eq!(judge.flaw(&key, &found), None);
            prop_assert_eq!(table.find(&key), (found.rule, found.packet_type));
            hits.set(hits.get() + u64::from(found.rule.is_some()));
        }
    });
    assert!(hits.get() > 2000, "vacuous run: {} hits", hits.get());
    assert!(large.get() > 100, "vacuous run: {} tables take steps", large.get());
}
