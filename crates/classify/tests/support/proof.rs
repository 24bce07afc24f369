//! When the mask of a search is a proof of its answer.

use thalweg_classify::{Found, Match, Rule};
use thalweg_packet::{FlowKey, KEY_WORDS};

/// Whether `part` has no bit that `whole` lacks.
pub fn is_within(part: &FlowKey, whole: &FlowKey) -> bool {
    part.union(whole) == *whole
}

/// The order of precedence; the smallest wins.
pub fn rank(rule: &Rule) -> (u32, u32) {
    (u32::MAX - rule.priority, rule.id.0)
}

/// Rules, each of whose patterns is compared with a key.
pub struct Judge<'a> {
    rules: &'a [Rule],
    /// The words of a key that patterns look at: they have few.
    words: Vec<usize>,
}

impl<'a> Judge<'a> {
    pub fn new(rules: &'a [Rule]) -> Self {
        let mut asked = [0; KEY_WORDS];
        for pattern in rules.iter().flat_map(|rule| &rule.matches) {
            asked.iter_mut().zip(&pattern.mask().words).for_each(|(asked, word)| *asked |= word);
        }
        Self { rules, words: (0..KEY_WORDS).filter(|i| asked[*i] != 0).collect() }
    }

    /// Whether `key` has the pattern.
    fn covers(&self, pattern: &Match, key: &FlowKey) -> bool {
        let (value, mask) = (pattern.value(), pattern.mask());
        self.words.iter().all(|&i| (value.words[i] ^ key.words[i]) & mask.words[i] == 0)
    }

    /// Whether the bits of `mask` show that `key` has not the pattern.
    fn is_ruled_out(&self, pattern: &Match, key: &FlowKey, mask: &FlowKey) -> bool {
        self.words.iter().any(|&i| {
            let asked = pattern.mask().words[i] & mask.words[i];
            (pattern.value().words[i] ^ key.words[i]) & asked != 0
        })
    }

    /// Says what the bits of `found` leave open about `key`, if anything.
    ///
    /// Every key that agrees with `key` on the mask gets the same answer if, and but
    /// for rules of several patterns only if, a pattern of the winner lies within
    /// the mask and each pattern of every better rule differs from the key on it.
    /// Were a better rule's pattern not ruled out, the bits outside the mask could be
    /// set so that it matched.
    pub fn flaw(&self, key: &FlowKey, found: &Found) -> Option<String> {
        let matching = |r: &&Rule| r.matches.iter().any(|m| self.covers(m, key));
        let winner = self.rules.iter().filter(matching).min_by_key(|r| rank(r));
        if winner.map(|r| r.id) != found.rule {
            return Some(format!(
                "{:?} wins, and {:?} was found",
                winner.map(|r| r.id),
                found.rule
            ));
        }
        let shown = |m: &&Match| self.covers(m, key) && is_within(m.mask(), &found.mask);
        if let Some(winner) = winner
            && !winner.matches.iter().any(|m| shown(&m))
        {
            return Some(format!("the mask does not show that {:?} matches", winner.id));
        }
        let better = |r: &&Rule| winner.is_none_or(|w| rank(r) < rank(w));
        for rule in self.rules.iter().filter(better) {
            let left = |m: &&Match| !self.is_ruled_out(m, key, &found.mask);
            if let Some(open) = rule.matches.iter().find(left) {
                return Some(format!("the mask leaves open whether {:?} has {open}", rule.id));
            }
        }
        None
    }
}
