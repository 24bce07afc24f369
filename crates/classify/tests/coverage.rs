//! Containment of patterns, and the errors about rules that can never match.

#[path = "support/flows.rs"]
mod flows;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thalweg_classify::{Match, Passages, Rule, RuleId, RuleTable, flow_syntax};
use thalweg_packet::{FlowKey, KEY_WORDS, PacketType};
use thalweg_source::{Passage, Source};

fn pattern(text: &str) -> Match {
    flow_syntax::parse(text, &|_| None).unwrap_or_else(|e| panic!("{text}: {e}")).pattern
}

fn key(mut word: impl FnMut(usize) -> u64) -> FlowKey {
    let mut key = FlowKey::default();
    key.words.iter_mut().enumerate().for_each(|(i, w)| *w = word(i));
    key
}

/// A random key that has `pattern`.
fn matched(pattern: &Match, random: &mut StdRng) -> FlowKey {
    key(|i| pattern.value().words[i] | random.random::<u64>() & !pattern.mask().words[i])
}

/// A key that has `b` and not `a`, if there is one.
fn witness(a: &Match, b: &Match) -> Option<FlowKey> {
    (0..KEY_WORDS * 64).map(|bit| (bit / 64, 1 << (bit % 64))).find_map(|(word, bit)| {
        let mut key = *b.value();
        // A bit that `b` leaves open takes the value that `a` does not want.
        if b.mask().words[word] & bit == 0 && a.mask().words[word] & bit != 0 {
            key.words[word] |= !a.value().words[word] & bit;
        }
        (!a.covers(&key)).then_some(key)
    })
}

/// A pattern of some of the bits of `narrow`, some of them turned if `other`.
fn wider(narrow: &Match, other: bool, random: &mut StdRng) -> Match {
    let keep = random.random::<u32>();
    let mask = key(|i| if keep >> i & 1 == 1 { narrow.mask().words[i] } else { 0 });
    let mask = mask.masked(&key(|_| random.random::<u64>() | random.random::<u64>()));
    let turned = random.random_range(0..KEY_WORDS);
    let flips = |i: usize| if other && i == turned { mask.words[i] } else { 0 };
    let value = key(|i| narrow.value().words[i] ^ flips(i));
    Match::new(value, mask)
}

proptest! {
    #[test]
    fn a_pattern_contains_another_unless_a_key_tells_otherwise(
        seed: u64, related: bool, other: bool,
    ) {
        let mut random = StdRng::seed_from_u64(seed);
        let b = pattern(&flows::random_flow(seed));
        let a = if related {
            wider(&b, other, &mut random)
        } else {
            pattern(&flows::random_flow(seed.wrapping_add(1)))
        };
        match witness(&a, &b) {
            Some(key) => {
                prop_assert!(b.covers(&key) && !a.covers(&key));
                prop_assert!(!a.contains(&b), "{a} and {b}");
            }
            None => prop_assert!(a.contains(&b), "{a} and {b}"),
        }
        if a.contains(&b) {
            prop_assert!((0..100).all(|_| a.covers(&matched(&b, &mut random))), "{a} and {b}");
        }
        prop_assert!(!related || other || a.contains(&b));
        prop_assert!(b.contains(&b) && Match::default().contains(&b));
    }

    /// The reported rules are those that some earlier rule contains, and no search finds them.
    #[test]
    fn what_is_told_of_a_list_is_what_a_look_at_all_pairs_tells(seed: u64, ordered: bool) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut list: Vec<Match> = vec![pattern(&flows::random_flow(seed))];
        for n in 0..15 {
            let from = list[random.random_range(0..list.len())];
            let new = if n % 5 == 4 { pattern(&flows::random_flow(seed ^ n)) } else { from };
            list.insert(random.random_range(0..=list.len()), wider(&new, n % 3 == 0, &mut random));
        }
        let source = Source::new("list", "x\n".repeat(list.len()));
        let mut priority = || if ordered { 0 } else { random.random_range(0..4) };
        let rules: Vec<Rule> =
            list.iter().zip(0..).map(|(pattern, id)| rule(id, priority(), *pattern)).collect();
        let mut passages = Passages::default();
        for (n, rule) in rules.iter().enumerate() {
            passages.insert(rule.id, Passage::new(&source, 2 * n..2 * n + 1));
        }
        let told: Vec<_> = passages.never_met(&rules).iter().map(|e| e.line() - 1).collect();
        let rank = |rule: &Rule| (u32::MAX - rule.priority, rule.id);
        let covers = |a: &Rule, b: &Rule| rank(a) < rank(b) && a.matches[0].contains(&b.matches[0]);
        let covered = |b: &Rule| rules.iter().any(|a| covers(a, b));
        let expected: Vec<_> = (0..rules.len()).filter(|n| covered(&rules[*n])).collect();
        prop_assert_eq!(&told, &expected);
        let mut table = RuleTable::new(PacketType(0));
        table.extend(rules.iter().cloned());
        for n in told {
            let found = table.lookup(&matched(&list[n], &mut random)).rule;
            prop_assert!(found.is_some() && found != Some(RuleId(n as u32)));
        }
    }
}

fn rule(id: u32, priority: u32, pattern: Match) -> Rule {
    Rule {
        id: RuleId(id),
        priority,
        matches: vec![pattern],
        packet_type: PacketType(1),
        text: pattern.to_string(),
    }
}

/// The errors about lists of one flow a line, one list after the other.
fn told(files: &[&str]) -> Vec<String> {
    let (mut rules, mut passages) = (Vec::new(), Passages::default());
    for (n, text) in files.iter().enumerate() {
        let source = Source::new(format!("{n}.flows"), *text);
        for (span, line) in source.lines() {
            let flow = flow_syntax::parse(line, &|_| None).unwrap();
            let rule = rule(rules.len() as u32, flow.priority, flow.pattern);
            passages.insert(rule.id, Passage::new(&source, span));
            rules.push(rule);
        }
    }
    passages.never_met(&rules).iter().map(ToString::to_string).collect()
}

#[test]
fn a_rule_that_can_never_match_is_told_with_the_one_that_covers_it() {
    assert_eq!(
        told(&["ip\ntcp,tp_dst=80\nipv6", "arp\nipv6,nw_proto=58"]),
        [
            "0.flows:2:1: this rule can never match: 'ip' in line 1 covers it: 'tcp,tp_dst=80'; \
             expected the narrower rule first, and each rule once",
            "1.flows:2:1: this rule can never match: 'ipv6' in 0.flows:3 covers it: \
             'ipv6,nw_proto=58'; expected the narrower rule first, and each rule once",
        ]
    );
    // The best of those that cover it, wherever it stands.
    let told = told(&["priority=1,tcp\npriority=2,ip,nw_proto=6\npriority=3,ip"]);
    assert!(told[0].contains("'ip' in line 3") && told[1].contains("'ip' in line 3"), "{told:?}");
}

#[test]
fn narrower_rules_before_wider_ones_are_as_they_should_be() {
    for list in [
        "tcp,tp_dst=80\ntcp\nip\n",
        "ip,nw_src=10.0.0.0/9\nip,nw_src=10.128.0.0/9\nip,nw_src=10.0.0.0/8",
        "ip\nipv6\narp\n\n",
        "ip\npriority=40000,tcp",
        "tcp,tp_dst=80\ntcp,tp_src=80\nudp,tp_dst=80",
        "ip,ip_frag=no\nip,ip_frag=later\nip",
        "dl_vlan=5\nip\ndl_vlan=6",
    ] {
        assert_eq!(told(&[list]), [""; 0], "{list}");
    }
}

#[test]
fn of_many_the_first_are_told_and_the_others_counted() {
    let told = told(&[&"udp\n".repeat(1001)]);
    assert_eq!(told.len(), 21);
    assert!(told[19].starts_with("0.flows:21:1: this rule can never match: 'udp' in line 1"));
    assert!(told[20].starts_with("0.flows:22:1: 980 more rules can never match"), "{}", told[20]);
}

/// Rules that were not written one by one may cover others, but are not reported.
#[test]
fn a_rule_without_place_only_covers() {
    let source = Source::new("x", "tcp");
    let mut wide = rule(0, 1, pattern("ip"));
    wide.matches.insert(0, pattern("arp"));
    let rules = [wide.clone(), rule(1, 1, pattern("tcp")), Rule { id: RuleId(2), ..wide }];
    let mut passages = Passages::default();
    assert!(passages.never_met(&rules).is_empty());
    passages.insert(RuleId(1), Passage::new(&source, 0..3));
    let told = passages.never_met(&rules);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].message(), "this rule can never match: ip covers it");
    passages.truncate(1);
    assert!(passages.never_met(&rules).is_empty());
}
