//! Rules that are found by their patterns, in one pass over a text.

use hashbrown::HashMap;

use super::chosen::RuleSet;
use super::literals::{Found, Literals, Open};
use super::rule::Rule;

/// Patterns of rules, ready to be searched for together.
#[derive(Default)]
pub(super) struct Group {
    literals: Option<Literals>,
    /// Each literal.
    patterns: Vec<Vec<u8>>,
    /// For each literal, its rules.
    rules_of_pattern: Vec<RuleSet>,
}

/// Collects the rules of a group.
#[derive(Default)]
pub(super) struct GroupBuilder {
    patterns: Vec<Vec<u8>>,
    /// For each, its only place in the texts of all its rules.
    places: Vec<Option<u32>>,
    known: HashMap<Vec<u8>, usize>,
    rules_of_pattern: Vec<Vec<u32>>,
}

impl GroupBuilder {
    /// Adds the rule of a number, higher than those before, if it has a pattern that can be searched
    /// for; returns whether it has.
    pub(super) fn add(&mut self, rule: &Rule, number: u32) -> bool {
        let pattern = rule.fast_pattern.bytes.as_ref();
        let Some(pattern) = pattern.filter(|p| p.len() >= Literals::LEAST) else { return false };
        let pattern = pattern.to_ascii_lowercase();
        let place = rule.fast_pattern.place;
        let at = *self.known.entry(pattern.clone()).or_insert_with(|| {
            self.patterns.push(pattern);
            self.places.push(place);
            self.rules_of_pattern.push(Vec::new());
            self.patterns.len() - 1
        });
        if self.places[at] != place {
            self.places[at] = None;
        }
        self.rules_of_pattern[at].push(number);
        true
    }

    /// The group for texts that are whole, in which patterns with a place are found there alone.
    pub(super) fn build_for_whole_texts(self) -> Group {
        let places = self.places.clone();
        let group = self.build();
        Group { literals: group.literals.map(|literals| literals.fixed(&places)), ..group }
    }

    pub(super) fn build(self) -> Group {
        let literals = (!self.patterns.is_empty()).then(|| Literals::new(&self.patterns));
        let rules_of_pattern = self.rules_of_pattern.into_iter().map(RuleSet::from_iter).collect();
        Group { literals, patterns: self.patterns, rules_of_pattern }
    }
}

impl Group {
    /// The patterns, in lower case.
    pub(super) fn patterns(&self) -> &[Vec<u8>] {
        &self.patterns
    }

    /// Bytes before the new part of a text in which a pattern may begin.
    pub(super) fn reach(&self) -> usize {
        self.literals.as_ref().map_or(0, Literals::reach)
    }

    /// Finds the patterns in `text` that end after `from`, and passes the rules of each to `tell`.
    pub(super) fn find(
        &self,
        text: &[u8],
        from: usize,
        found: &mut Found,
        mut tell: impl FnMut(&RuleSet),
    ) {
        if let Some(literals) = self.literals.as_ref().filter(|_| text.len() > from) {
            let tell = |literal: u32| tell(&self.rules_of_pattern[literal as usize]);
            literals.find(text, from, found, tell);
        }
    }

    /// The same in each of `texts`, after the first `from` of its bytes; passes the number of the
    /// text as well. `joined` are all texts one after the other, if they lie so.
    pub(super) fn find_in_each(
        &self,
        texts: &[&[u8]],
        joined: Option<&[u8]>,
        from: &[usize],
        found: &mut Found,
        mut tell: impl FnMut(usize, &RuleSet),
    ) -> Open {
        let Some(literals) = &self.literals else { return Open::default() };
        let tell = |text, literal: u32| tell(text, &self.rules_of_pattern[literal as usize]);
        literals.find_in_each(texts, joined, from, found, tell)
    }
}
