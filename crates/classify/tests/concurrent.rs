//! Rules change while packets are classified: each answer is that of a rule set
//! that was current at some moment during the call.

#[path = "support/proof.rs"]
mod proof;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thalweg_classify::{
    Classifier, Config, Found, LinearTable, Lookup, Match, Rule, RuleId, RuleTable, SharedRules,
};
use thalweg_packet::wire::ethertype;
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType, TransposedKeys, field};

const RULES: usize = 150;
const CHANGES: usize = 4000;

/// How many rules there are at first; the others come and go.
const AT_FIRST: usize = 100;

fn random_key(rng: &mut StdRng) -> FlowKey {
    let mut key = FlowKey::default();
    key.set(field::DL_TYPE, ethertype::IPV4.into());
    key.set(field::IN_PORT, rng.random_range(1..3));
    key.set(field::VLAN_TCI, [0, 0x100a][rng.random_range(0..2usize)]);
    key.set(field::NW_SRC, 0x0a00_0000 | rng.random_range(0..2u64) << 16 | rng.random_range(0..4));
    key.set(field::NW_DST, 0x0a00_0000 | rng.random_range(0..4u64) << 16);
    key.set(field::NW_PROTO, [6, 17][rng.random_range(0..2usize)]);
    key.set(field::TP_DST, rng.random_range(80..84));
    key
}

fn random_rule(id: usize, rng: &mut StdRng) -> Rule {
    let mut mask = FlowKey::default();
    let mut maybe = |field, bits: u64, rng: &mut StdRng| {
        if rng.random() {
            mask.set(field, bits);
        }
    };
    maybe(field::IN_PORT, 0xffff, rng);
    maybe(field::VLAN_TCI, [0x1000, 0x1fff, 0xffff][rng.random_range(0..3usize)], rng);
    maybe(field::NW_SRC, u64::from(u32::MAX) << rng.random_range(0..20), rng);
    maybe(field::NW_DST, u64::from(u32::MAX) << rng.random_range(15..20), rng);
    maybe(field::NW_PROTO, 0xff, rng);
    maybe(field::TP_DST, [0xffff, 0xfffe, 1][rng.random_range(0..3usize)], rng);
    Rule {
        id: RuleId(id as u32),
        priority: rng.random_range(0..20),
        matches: vec![Match::new(random_key(rng), mask)],
        packet_type: PacketType(rng.random_range(1..6)),
        text: String::new(),
    }
}

/// All rules, and the one that each change adds if it is out, or takes out.
struct Plan {
    rules: Vec<Rule>,
    changes: Vec<usize>,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed);
        let rules = (0..RULES).map(|id| random_rule(id, rng)).collect();
        let changes = (0..CHANGES).map(|_| rng.random_range(0..RULES)).collect();
        Self { rules, changes }
    }

    /// The rules after each number of changes.
    fn versions(&self) -> Vec<Vec<Rule>> {
        let mut is_in = first();
        let current = |is_in: &[bool]| {
            let rules = self.rules.iter().zip(is_in).filter(|(_, is_in)| **is_in);
            rules.map(|(rule, _)| rule.clone()).collect()
        };
        let mut versions = vec![current(&is_in)];
        for &change in &self.changes {
            is_in[change] = !is_in[change];
            versions.push(current(&is_in));
        }
        versions
    }

    fn table(&self) -> RuleTable {
        let mut table = RuleTable::new(PacketType(0));
        table.extend(self.rules[..AT_FIRST].iter().cloned());
        table
    }
}

/// For each rule, whether it is in, before any change.
fn first() -> Vec<bool> {
    (0..RULES).map(|id| id < AT_FIRST).collect()
}

/// How many changes have begun, how many are done, and how many calls were made.
#[derive(Default)]
struct Progress {
    begun: AtomicUsize,
    done: AtomicUsize,
    calls: AtomicUsize,
}

/// Makes all changes; never many more than calls, so that calls meet them.
fn change(plan: &Plan, shared: &SharedRules, progress: &Progress) {
    let mut is_in = first();
    // Should the caller fail, this is not to wait for it for ever.
    let end = Instant::now() + Duration::from_secs(15);
    for (n, &change) in plan.changes.iter().enumerate() {
        while progress.calls.load(Ordering::SeqCst) < n / 2 && Instant::now() < end {
            std::thread::yield_now();
        }
        let rule = &plan.rules[change];
        progress.begun.store(n + 1, Ordering::SeqCst);
        if is_in[change] {
            shared.update(|table| assert!(table.remove(rule.id).is_some()));
        } else {
            shared.update(|table| table.insert(rule.clone()));
        }
        is_in[change] = !is_in[change];
        progress.done.store(n + 1, Ordering::SeqCst);
    }
}

/// Calls `classify` until all changes are made. Returns, for each call, the keys,
/// what it said, and the versions that may have been current meanwhile.
fn observe<T>(
    progress: &Progress,
    changer: &ScopedJoinHandle<()>,
    mut classify: impl FnMut(&[FlowKey; BATCH]) -> T,
) -> Vec<([FlowKey; BATCH], T, std::ops::RangeInclusive<usize>)> {
    let rng = &mut StdRng::seed_from_u64(5);
    let mut calls = Vec::new();
    while !changer.is_finished() {
        let keys = std::array::from_fn(|_| random_key(rng));
        let earliest = progress.done.load(Ordering::SeqCst);
        let answer = classify(&keys);
        let latest = progress.begun.load(Ordering::SeqCst);
        calls.push((keys, answer, earliest..=latest));
        progress.calls.fetch_add(1, Ordering::SeqCst);
    }
    calls
}

#[test]
fn a_table_that_is_read_while_it_changes_is_of_one_moment() {
    let plan = Plan::new(1);
    let (shared, progress) = (SharedRules::new(plan.table()), Progress::default());
    let calls = std::thread::scope(|scope| {
        let changer = scope.spawn(|| change(&plan, &shared, &progress));
        observe(&progress, &changer, |keys| {
            let table = shared.load();
            keys.map(|key| table.lookup(&key))
        })
    });
    let versions = plan.versions();
    // One version has to hold for the whole batch: a table does not change under
    // its reader. The masks have to be proofs in the same version.
    let holds = |keys: &[FlowKey], found: &[Found], version: usize| {
        let judge = proof::Judge::new(&versions[version]);
        keys.iter().zip(found).all(|(key, found)| judge.flaw(key, found).is_none())
    };
    let mut overlapped = 0;
    for (keys, found, mut current) in calls {
        overlapped += usize::from(current.start() < current.end());
        assert!(current.any(|version| holds(&keys, &found, version)));
    }
    println!("{overlapped} calls while rules changed");
}

#[test]
fn a_classifier_answers_by_rules_that_were_current_during_the_call() {
    let plan = Plan::new(2);
    let shared = Arc::new(SharedRules::new(plan.table()));
    let progress = Progress::default();
    let config = Config { emc_insert_inverse_probability: 1, ..Config::default() };
    let mut classifier = Classifier::new(shared.clone(), config);
    let calls = std::thread::scope(|scope| {
        let changer = scope.spawn(|| change(&plan, &shared, &progress));
        observe(&progress, &changer, |keys| {
            let mut out = [Lookup::default(); BATCH];
            let now = Nanoseconds(0);
            let batch = TransposedKeys::from_keys(keys);
            classifier.classify_batch(&batch, Lanes::ALL, &[64; BATCH], now, &mut out);
            out
        })
    });
    let versions: Vec<_> = plan.versions();
    let oracle = |version: usize| LinearTable::new(versions[version].clone(), PacketType(0));
    let mut overlapped = 0;
    for (keys, out, current) in calls {
        overlapped += usize::from(current.start() < current.end());
        let mut open: Vec<_> = keys.iter().zip(out).collect();
        for version in current {
            let oracle = oracle(version);
            open.retain(|(key, got)| (got.rule, got.packet_type) != oracle.lookup(key));
            if open.is_empty() {
                break;
            }
        }
        assert!(open.is_empty(), "{} answers of no current version", open.len());
    }
    println!("{overlapped} calls while rules changed");
    assert!(classifier.stats().megaflow_hits > 1000, "the caches took part");
}
