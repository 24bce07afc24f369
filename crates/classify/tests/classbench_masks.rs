//! Over the ClassBench sets, the table agrees with a linear scan, and the mask of
//! each answer proves it.

#[path = "support/classbench.rs"]
mod files;
#[path = "support/proof.rs"]
mod proof;

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thalweg_classify::{LinearTable, Match, Rule, RuleId, RuleTable, SharedRules, classbench};
use thalweg_packet::{FlowKey, PacketType};
use thalweg_source::Source;

use files::{headers, key, read, rule_files, trace_of};

/// Patterns compared with keys, for each set: what bounds the time.
const COMPARISONS: usize = 1_000_000;

/// All rule files that are in IPv4.
fn all_rule_files() -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in ["wustl", "partitionsort", "neurocuts", "large", "dpdk-acl"] {
        files.extend(rule_files(folder)?);
    }
    files.retain(|path| !path.to_string_lossy().contains("v6"));
    Some(files)
}

/// The rules of a file, and a table of them.
fn load(path: &Path) -> (Vec<Rule>, RuleTable) {
    let source = Source::new(path, read(path));
    let rules = classbench::parse(&source, RuleId(0), 1 << 20, PacketType(1)).unwrap();
    let mut table = RuleTable::new(PacketType(0));
    table.extend(rules.iter().cloned());
    (rules, table)
}

/// The keys of the trace that goes with `rules`, if there is one.
fn trace(rules: &Path) -> Vec<FlowKey> {
    let path = trace_of(rules);
    if !path.is_file() {
        return Vec::new();
    }
    headers(&path).iter().map(|(header, _)| key(header)).collect()
}

/// The key that agrees with `key` on the bits of `mask`, and with `other` elsewhere.
fn filled(key: &FlowKey, mask: &FlowKey, other: &FlowKey) -> FlowKey {
    FlowKey {
        words: std::array::from_fn(|i| {
            key.words[i] & mask.words[i] | other.words[i] & !mask.words[i]
        }),
    }
}

/// A key that some rule matches, or one that differs from such a key in a word.
fn random_key(rules: &[Rule], rng: &mut StdRng) -> FlowKey {
    let rule = &rules[rng.random_range(0..rules.len())];
    let pattern = &rule.matches[rng.random_range(0..rule.matches.len())];
    let random = key(&rng.random());
    let mut key = filled(pattern.value(), pattern.mask(), &random);
    if rng.random_ratio(1, 3) {
        let word = [11, 12, 18][rng.random_range(0..3usize)];
        key.words[word] = random.words[word];
    }
    key
}

#[test]
fn masks_prove_the_answers_over_all_rule_sets() {
    let Some(files) = all_rule_files() else { return };
    let rng = &mut StdRng::seed_from_u64(3);
    let (mut searched, mut flipped, mut wide) = (0, 0, 0);
    for path in &files {
        let (rules, table) = load(path);
        wide += usize::from(table.subtables() > 64);
        let patterns: usize = rules.iter().map(|r| r.matches.len()).sum();
        let count = (COMPARISONS / patterns).min(2000);
        let from_trace = trace(path);
        let judge = proof::Judge::new(&rules);
        let oracle = LinearTable::new(rules.clone(), PacketType(0));
        for n in 0..count {
            let key = if n % 2 == 0 && !from_trace.is_empty() {
                from_trace[rng.random_range(0..from_trace.len())]
            } else {
                random_key(&rules, rng)
            };
            let found = table.lookup(&key);
            assert_eq!(judge.flaw(&key, &found), None, "{} {key:?}", path.display());
            assert_eq!(table.find(&key), (found.rule, found.packet_type), "{}", path.display());
            searched += 1;
            if n % 4 == 0 {
                let other = random_key(&rules, rng);
                let packet = filled(&key, &found.mask, &other);
                assert_eq!(oracle.lookup(&packet), (found.rule, found.packet_type));
                flipped += 1;
            }
        }
    }
    println!("{} rule sets, {searched} searches, {flipped} keys flipped", files.len());
    assert!(files.len() >= 49 && searched > 20_000 && flipped > 5000 && wide > 20);
}

#[test]
fn single_changes_to_a_large_set_are_right_at_once() {
    let Some(files) = rule_files("large") else { return };
    let rng = &mut StdRng::seed_from_u64(4);
    for path in &files {
        let (mut rules, table) = load(path);
        let next = table.next_id().0;
        let shared = SharedRules::new(table);
        let mut won = 0;
        for n in 0..60 {
            let mut changed = rules[rng.random_range(0..rules.len())].clone();
            if n % 3 == 0 {
                let before = shared.load();
                shared.update(|table| assert!(table.remove(changed.id).is_some()));
                rules.retain(|rule| rule.id != changed.id);
                assert_eq!(before.len(), rules.len() + 1, "who reads still has the old one");
            } else {
                // A pattern that is there, or one that is new, above most rules.
                changed.id = RuleId(next + n);
                changed.priority = (1 << 20) - rng.random_range(0..1000);
                if n % 3 == 1 {
                    let moved = |m: &Match| Match::new(random_key(&rules, rng), *m.mask());
                    changed.matches = changed.matches.iter().map(moved).collect();
                }
                shared.update(|table| table.insert(changed.clone()));
                rules.push(changed.clone());
            }
            let (table, judge) = (shared.load(), proof::Judge::new(&rules));
            for key in [random_key(std::slice::from_ref(&changed), rng), random_key(&rules, rng)] {
                let found = table.lookup(&key);
                assert_eq!(judge.flaw(&key, &found), None, "{n} {key:?}");
                won += usize::from(found.rule == Some(changed.id));
            }
        }
        assert!(won > 10, "the new rules are met: {won}");
    }
}
