//! The layers agree with a linear scan, whatever is cached.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thalweg_classify::{
    Classifier, Config, LinearTable, Lookup, Match, MatchLayer, Rule, RuleId, RuleTable,
    SharedRules, flow_syntax,
};
use thalweg_cpu::Isa;
use thalweg_packet::wire::ethertype;
use thalweg_packet::{
    BATCH, FlowKey, KEY_WORDS, Lanes, Nanoseconds, PacketType, TransposedKeys, field,
};

/// Few values in few fields, so that rules overlap and keys hit them.
fn key() -> impl Strategy<Value = FlowKey> {
    (0u64..4, 0u64..4, 0u64..3, 0u64..3, prop_oneof![Just(0u64), Just(0x1000), Just(0x100a)])
        .prop_map(|(src, dst, proto, port, vlan)| {
            let mut key = FlowKey::default();
            key.set(field::DL_TYPE, ethertype::IPV4.into());
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

/// A packet that agrees with `key` on the bits of `mask`, and with `other` elsewhere.
fn filled(key: &FlowKey, mask: &FlowKey, other: &FlowKey) -> FlowKey {
    FlowKey {
        words: std::array::from_fn(|i| {
            key.words[i] & mask.words[i] | other.words[i] & !mask.words[i]
        }),
    }
}

/// A classifier over rules that change, and the oracle beside it.
struct Bench {
    all: Vec<Rule>,
    active: Vec<Rule>,
    shared: Arc<SharedRules>,
    classifier: Classifier,
    now: Nanoseconds,
    packets: u64,
}

impl Bench {
    fn new(all: Vec<Rule>, config: Config) -> Self {
        let shared = Arc::new(SharedRules::new(table(&all)));
        let classifier = Classifier::new(shared.clone(), config);
        let now = Nanoseconds::from_secs(100);
        Self { active: all.clone(), all, shared, classifier, now, packets: 0 }
    }

    /// Removes a rule, brings one back, or lets time pass.
    fn change(&mut self, change: usize) {
        match change {
            0 if !self.active.is_empty() => {
                let gone = self.active.remove(self.active.len() / 2);
                self.shared.update(|t| assert!(t.remove(gone.id).is_some()));
            }
            1 => {
                let active = &self.active;
                let back = self.all.iter().find(|r| !active.iter().any(|a| a.id == r.id));
                if let Some(back) = back.cloned() {
                    self.shared.update(|t| t.insert(back.clone()));
                    self.active.push(back);
                }
            }
            2 => self.now = self.now.plus(Nanoseconds::from_secs(1)),
            3 => self.now = Nanoseconds(self.now.0 - 1_500_000_000),
            _ => {}
        }
    }

    fn oracle(&self) -> LinearTable {
        LinearTable::new(self.active.clone(), PacketType(0))
    }

    /// Classifies up to a batch; lanes without a packet keep what they had.
    fn classify(&mut self, chunk: &[FlowKey]) -> [Lookup; BATCH] {
        let mut batch = [FlowKey::default(); BATCH];
        batch[..chunk.len()].copy_from_slice(chunk);
        let mut out = [Lookup { packet_type: PacketType(999), ..Lookup::default() }; BATCH];
        let lanes = Lanes::first(chunk.len());
        let batch = TransposedKeys::from_keys(&batch);
        self.classifier.classify_batch(&batch, lanes, &[64; BATCH], self.now, &mut out);
        self.packets += chunk.len() as u64;
        out
    }
}

fn steps() -> impl Strategy<Value = Vec<(Vec<FlowKey>, usize)>> {
    proptest::collection::vec((proptest::collection::vec(key(), 1..40), 0usize..8), 1..16)
}

#[test]
fn every_layer_answers_as_a_linear_scan_while_rules_come_and_go() {
    let hits = Cell::new([0u64; 3]);
    let removed = Cell::new([0u64; 3]);
    let isas: Vec<Isa> = Isa::available().collect();
    proptest!(|(all in rules(12), steps in steps(), emc in 0usize..3, level in 0usize..3)| {
        let mut bench = Bench::new(all, Config {
            emc_entries: [0, 2, 64][emc],
            emc_insert_inverse_probability: 1,
            megaflow_limit: if emc == 1 { 3 } else { 1000 },
            emc_adaptive: false,
            megaflow_adaptive: false,
            idle_timeout: Nanoseconds::from_secs(2),
            isa: isas[level % isas.len()],
        });
        for (keys, change) in steps {
            bench.change(change);
            let oracle = bench.oracle();
            for chunk in keys.chunks(BATCH) {
                let out = bench.classify(chunk);
                for (key, got) in chunk.iter().zip(&out) {
                    prop_assert_eq!((got.rule, got.packet_type), oracle.lookup(key));
                    let mut seen = hits.get();
                    seen[got.layer as usize] += 1;
                    hits.set(seen);
                }
                for got in &out[chunk.len()..] {
                    prop_assert_eq!(got.packet_type, PacketType(999));
                }
            }
        }
        let stats = bench.classifier.stats();
        prop_assert_eq!(stats.emc_hits + stats.megaflow_hits + stats.rule_lookups, bench.packets);
        prop_assert!(stats.megaflows <= 1000 && (emc != 1 || stats.megaflows <= 3));
        let [expired, revalidated, full] = removed.get();
        removed.set([
            expired + stats.expired,
            revalidated + stats.revalidated_away,
            full + stats.not_cached,
        ]);
    });
    assert!(hits.get().iter().all(|n| *n > 200), "vacuous run: {:?}", hits.get());
    assert!(removed.get().iter().all(|n| *n > 100), "vacuous run: {:?}", removed.get());
}

#[test]
fn explaining_names_the_layer_that_answers_next_and_changes_nothing() {
    let hits = Cell::new([0u64; 3]);
    proptest!(ProptestConfig::with_cases(1000), |(all in rules(12), steps in steps())| {
        let mut bench = Bench::new(all, Config {
            emc_entries: 64,
            emc_insert_inverse_probability: 2,
            megaflow_adaptive: false,
            ..Config::default()
        });
        for (keys, change) in steps {
            bench.change(if change == 3 { 2 } else { change });
            // Sweeps at the new time, so that nothing expires between the two.
            bench.classify(&keys[..1]);
            for key in &keys {
                let before = bench.classifier.stats();
                let explained = bench.classifier.explain(key);
                prop_assert_eq!(bench.classifier.stats(), before);
                prop_assert!(explained.megaflow.covers(key));
                let out = bench.classify(&[*key]);
                prop_assert_eq!(out[0], explained.lookup);
                let mut seen = hits.get();
                seen[out[0].layer as usize] += 1;
                hits.set(seen);
            }
        }
    });
    assert!(hits.get().iter().all(|n| *n > 300), "vacuous run: {:?}", hits.get());
}

#[test]
fn a_cached_megaflow_is_right_for_every_packet_it_covers_after_rules_changed() {
    let (flipped, survived) = (Cell::new(0u64), Cell::new(0u64));
    let bits = proptest::collection::vec(0usize..KEY_WORDS * 64, 20);
    proptest!(ProptestConfig::with_cases(1000), |(
        all in rules(12), steps in steps(), bits in bits, last in 0usize..2,
        others in proptest::collection::vec(key(), 10),
    )| {
        let mut bench = Bench::new(all, Config::default());
        for (keys, change) in steps {
            bench.change(change);
            keys.chunks(BATCH).for_each(|chunk| { bench.classify(chunk); });
        }
        // The caches hold answers from before the last change and from after it.
        let older: Vec<_> = bench.classifier.megaflows().map(|m| m.pattern).collect();
        bench.change(last);
        bench.classify(&[FlowKey::default()]);
        let oracle = bench.oracle();
        for flow in bench.classifier.megaflows() {
            survived.set(survived.get() + u64::from(older.contains(&flow.pattern)));
            let mut packet = *flow.pattern.value();
            prop_assert_eq!(oracle.lookup(&packet), (flow.rule, flow.packet_type));
            for other in &others {
                // Single bits seldom make another rule match; likely packets do.
                let packet = filled(&packet, flow.pattern.mask(), other);
                prop_assert_eq!(oracle.lookup(&packet), (flow.rule, flow.packet_type));
            }
            for bit in &bits {
                let flip = 1 << (bit % 64) & !flow.pattern.mask().words[bit / 64];
                packet.words[bit / 64] ^= flip;
                flipped.set(flipped.get() + u64::from(flip != 0));
                prop_assert_eq!(oracle.lookup(&packet), (flow.rule, flow.packet_type));
            }
        }
    });
    assert!(flipped.get() > 10_000, "vacuous run: {} flips", flipped.get());
    assert!(survived.get() > 500, "vacuous run: {} survivors", survived.get());
}

#[test]
fn what_a_search_did_not_look_at_changes_no_answer() {
    let filled_differently = Cell::new(0u64);
    let others = proptest::collection::vec(key(), 20);
    proptest!(ProptestConfig::with_cases(1000), |(all in rules(12), key in key(), others in others)| {
        let table = table(&all);
        let oracle = LinearTable::new(all, PacketType(0));
        let found = table.lookup(&key);
        prop_assert_eq!((found.rule, found.packet_type), oracle.lookup(&key));
        for other in others {
            let packet = filled(&key, &found.mask, &other);
            filled_differently.set(filled_differently.get() + u64::from(packet != key));
            prop_assert_eq!(oracle.lookup(&packet), (found.rule, found.packet_type));
        }
    });
    assert!(filled_differently.get() > 1000, "vacuous run");
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
    keys[0].set(field::DL_TYPE, ethertype::IPV4.into());
    keys[1] = keys[0];
    keys[1].set(field::VLAN_TCI, 0x100a);
    let mut out = [Lookup::default(); BATCH];
    for _ in 0..2 {
        let lanes = Lanes::first(2);
        let keys = TransposedKeys::from_keys(&keys);
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

#[test]
fn megaflows_count_the_packets_and_bytes_they_answer() {
    let mut bench = Bench::new(Vec::new(), Config::default());
    let key = FlowKey::default();
    bench.classify(&[key; 3]);
    bench.now = bench.now.plus(Nanoseconds(5));
    bench.classify(&[key; BATCH]);
    let flows: Vec<_> = bench.classifier.megaflows().collect();
    assert_eq!(flows.len(), 1, "without rules one megaflow answers all");
    let stats = flows[0].stats;
    assert_eq!((stats.packets, stats.bytes), (35, 35 * 64));
    assert!(bench.now.since(stats.last_used) < Nanoseconds::from_millis(17));
}

#[test]
fn a_full_megaflow_layer_makes_room_after_a_tenth_of_a_second() {
    let rules = [Rule {
        id: RuleId(0),
        priority: 1,
        matches: vec![Match::new(FlowKey::default(), FlowKey::EXACT)],
        packet_type: PacketType(1),
        text: String::new(),
    }];
    let keys: Vec<_> = (1..=10u64).map(|n| FlowKey { words: [n; KEY_WORDS] }).collect();
    let mut bench = Bench::new(rules.to_vec(), Config { megaflow_limit: 9, ..Config::default() });
    bench.classify(&keys);
    assert_eq!((bench.classifier.stats().megaflows, bench.classifier.stats().not_cached), (9, 1));
    bench.now = bench.now.plus(Nanoseconds::from_millis(500));
    bench.classify(&keys[9..]);
    assert_eq!((bench.classifier.stats().megaflows, bench.classifier.stats().expired), (1, 9));
}

#[test]
fn updates_from_many_threads_are_all_kept() {
    let shared = SharedRules::new(RuleTable::new(PacketType(0)));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let shared = &shared;
            scope.spawn(move || {
                for n in 0..50 {
                    let mut value = FlowKey::default();
                    value.words[0] = u64::from(n);
                    let rule = Rule {
                        id: RuleId(thread * 50 + n),
                        priority: 1,
                        matches: vec![Match::new(value, FlowKey::EXACT)],
                        packet_type: PacketType(1),
                        text: String::new(),
                    };
                    shared.update(|t| t.insert(rule.clone()));
                }
            });
        }
    });
    assert_eq!(shared.load().len(), 200);
}

/// What every packet's classification costs must not depend on what others made the caches hold.
#[test]
fn traffic_that_makes_a_mask_a_packet_goes_to_the_rules() {
    let rules: Vec<Rule> =
        [(field::TP_DST, 0x0050), (field::TP_SRC, 0x3039), (field::NW_SRC, 0x0a00_0001)]
            .iter()
            .zip(0..)
            .map(|(&(of, value), id)| {
                let (mut key, mut mask) = (FlowKey::default(), FlowKey::default());
                key.set(of, value);
                mask.set(of, of.max());
                let matches = vec![Match::new(key, mask)];
                Rule {
                    id: RuleId(id),
                    priority: 9 - id,
                    matches,
                    packet_type: PacketType(1),
                    text: String::new(),
                }
            })
            .collect();
    let mut bench = Bench::new(rules, Config { emc_entries: 0, ..Config::default() });
    let oracle = bench.oracle();
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..60_000 / BATCH {
        let keys: [FlowKey; BATCH] = std::array::from_fn(|_| {
            // Parts from each rule at another bit.
            let mut part = |bits: u32| 1 << rng.random_range(0..bits);
            let mut key = FlowKey::default();
            key.set(field::TP_DST, 0x0050 ^ part(16));
            key.set(field::TP_SRC, 0x3039 ^ part(16));
            key.set(field::NW_SRC, 0x0a00_0001 ^ part(32));
            key
        });
        for (key, got) in keys.iter().zip(bench.classify(&keys)) {
            assert_eq!((got.rule, got.packet_type), oracle.lookup(key));
        }
    }
    let stats = bench.classifier.stats();
    assert!(stats.subtables <= 1024, "{stats:?}");
    // Of 8,192 masks only the first 1,024 are kept; the budget may have ended sooner.
    assert!(stats.not_cached > 30_000, "{stats:?}");
}
