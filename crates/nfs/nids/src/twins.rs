//! Rules with the same payload tests, which are verified once for all of them.
//!
//! Rule sets have many such: one rule for each direction, or for each protocol.

use hashbrown::HashMap;

use super::matcher::Outcome;
use super::rule::{PayloadTest, Rule, View};

/// Which rules have the same payload tests.
pub(super) struct Twins(Vec<Option<u32>>);

/// What came of the tests of twins in a packet; reused.
#[derive(Debug, Default)]
pub(super) struct Outcomes(Vec<(u32, Outcome)>);

impl Twins {
    pub(super) fn new(rules: &[Rule]) -> Self {
        // The family's number and its members.
        let mut known = HashMap::<_, (u32, u32)>::new();
        for rule in rules.iter().filter_map(tests) {
            let next = known.len() as u32;
            known.entry(rule).or_insert((next, 0)).1 += 1;
        }
        let family = |rule| {
            let (family, members) = known.get(&tests(rule)?)?;
            (*members > 1).then_some(*family)
        };
        Self(rules.iter().map(family).collect())
    }

    /// The number of the family of a rule, if it has twins.
    pub(super) fn family(&self, rule: u32) -> Option<u32> {
        self.0.get(rule as usize).copied().flatten()
    }
}

/// What decides how the payload tests of a rule come out, if it has any.
fn tests(rule: &Rule) -> Option<(Option<View>, &[PayloadTest])> {
    rule.payload_part().map(|part| (rule.view, &part.tests[..]))
}

impl Outcomes {
    /// Forgets the last packet.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What came of the tests of a rule of `family`; if that is not known, what comes of `verify`.
    pub(super) fn of(&mut self, family: Option<u32>, verify: impl FnOnce() -> Outcome) -> Outcome {
        let Some(family) = family else { return verify() };
        if let Some((_, outcome)) = self.0.iter().find(|(known, _)| *known == family) {
            return *outcome;
        }
        let outcome = verify();
        self.0.push((family, outcome));
        outcome
    }
}
