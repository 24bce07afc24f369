//! Rules that no packet can match, since an earlier rule covers them.
//!
//! Patterns are compared bit by bit, pair by pair: a rule that only several rules together cover
//! is not found.

use std::collections::HashMap;

use hashbrown::HashTable;
use thalweg_packet::FlowKey;

use crate::hash;
use crate::rule::{Match, Rank, Rule, RuleId};
use thalweg_source::{Passage, SourceError};

/// The most such rules that are reported one by one; the rest are counted.
const MOST_TOLD: usize = 20;

const EXPECTED: &str = "the narrower rule first, and each rule once";

/// Where the rules of a list stand, as far as they were written one by one.
#[derive(Clone, Debug, Default)]
pub struct Passages(HashMap<RuleId, Passage>);

impl Passages {
    /// Records where a rule stands.
    pub fn insert(&mut self, rule: RuleId, passage: Passage) {
        self.0.insert(rule, passage);
    }

    /// Forgets all rules but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.0.retain(|rule, _| (rule.0 as usize) < count);
    }

    /// One error for each of the `rules` that can never match because a rule that decides before
    /// it covers it.
    ///
    /// Rules without a known passage are not checked, but may cover others. The first errors name
    /// one rule each; the last one counts the rest.
    pub fn never_met(&self, rules: &[Rule]) -> Vec<SourceError> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut patterns = Patterns::new(rules);
        let asked = rules.iter().filter_map(|rule| Some((rule, self.0.get(&rule.id)?)));
        let mut covered = asked.filter_map(|(rule, at)| Some((at, patterns.covering(rule)?)));
        let mut told: Vec<_> = covered
            .by_ref()
            .take(MOST_TOLD)
            .map(|(at, by)| {
                let by = self.name(by, at);
                at.error(format!("this rule can never match: {by} covers it"), EXPECTED)
            })
            .collect();
        if let Some((at, _)) = covered.next() {
            let more = 1 + covered.count();
            let rules = if more == 1 { "rule" } else { "rules" };
            let rest = at.error(format!("{more} more {rules} can never match"), EXPECTED);
            told.push(rest.standing_for(more as u64));
        }
        told
    }

    /// A rule's text with its place, for a message about what stands at `from`.
    fn name(&self, rule: &Rule, from: &Passage) -> String {
        let Some(at) = self.0.get(&rule.id) else { return rule.text.clone() };
        format!("'{}' in {}", rule.text, at.seen_from(from))
    }
}

/// The patterns of rules by mask, as in the rule table, so that a rule is compared with each mask
/// instead of each rule.
struct Patterns<'a> {
    masks: Vec<OneMask<'a>>,
    /// For each mask already looked up: which of `masks` use no bit beyond it.
    within: HashMap<FlowKey, Vec<usize>>,
}

/// The patterns of one mask.
struct OneMask<'a> {
    mask: FlowKey,
    /// Of its best rule.
    rank: Rank,
    /// The best rule of each pattern.
    rules: HashTable<(&'a Match, &'a Rule)>,
}

impl<'a> Patterns<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        let mut masks: Vec<OneMask<'a>> = Vec::new();
        let mut places = HashMap::new();
        for (pattern, rule) in rules.iter().flat_map(|r| r.matches.iter().map(move |m| (m, r))) {
            let place = *places.entry(pattern.mask()).or_insert_with(|| {
                let (mask, rank) = (*pattern.mask(), rule.rank());
                masks.push(OneMask { mask, rank, rules: HashTable::new() });
                masks.len() - 1
            });
            masks[place].add(pattern, rule);
        }
        Self { masks, within: HashMap::new() }
    }

    /// A rule that decides before `rule` and covers it. With several patterns, the one that covers
    /// the first pattern: other rules may cover the others.
    fn covering(&mut self, rule: &Rule) -> Option<&'a Rule> {
        let covering: Option<Vec<_>> =
            rule.matches.iter().map(|pattern| self.before(rule.rank(), pattern)).collect();
        covering?.first().copied()
    }

    /// The best rule that decides before one of `rank` and whose pattern contains `pattern`.
    fn before(&mut self, rank: Rank, pattern: &Match) -> Option<&'a Rule> {
        let masks = &self.masks;
        let within = self.within.entry(*pattern.mask()).or_insert_with(|| {
            let no_bit_beyond = |m: &OneMask<'_>| m.mask.masked(pattern.mask()) == m.mask;
            (0..masks.len()).filter(|at| no_bit_beyond(&masks[*at])).collect()
        });
        let wider = within.iter().map(|at| &masks[*at]).filter(|mask| mask.rank < rank);
        let found = wider.filter_map(|mask| mask.get(pattern)).filter(|rule| rule.rank() < rank);
        found.min_by_key(|rule| rule.rank())
    }
}

impl<'a> OneMask<'a> {
    fn add(&mut self, pattern: &'a Match, rule: &'a Rule) {
        self.rank = self.rank.min(rule.rank());
        let hash = |m: &Match| hash::words(&m.value().words);
        let same = |entry: &(&Match, _)| entry.0.value() == pattern.value();
        match self.rules.find_mut(hash(pattern), same) {
            Some(entry) if entry.1.rank() <= rule.rank() => {}
            Some(entry) => entry.1 = rule,
            None => {
                self.rules.insert_unique(hash(pattern), (pattern, rule), |entry| hash(entry.0));
            }
        }
    }

    /// The rule whose pattern, of this mask, has the values of `pattern`, which has more bits.
    fn get(&self, pattern: &Match) -> Option<&'a Rule> {
        let value = pattern.value().masked(&self.mask);
        let found = self.rules.find(hash::words(&value.words), |entry| *entry.0.value() == value);
        found.map(|entry| entry.1)
    }
}
