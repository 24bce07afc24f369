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

/// Whether the bits of `mask` show that `key` has not the pattern.
fn is_ruled_out(pattern: &Match, key: &FlowKey, mask: &FlowKey) -> bool {
    (0..KEY_WORDS).any(|i| {
        (pattern.value().words[i] ^ key.words[i]) & pattern.mask().words[i] & mask.words[i] != 0
    })
}

/// Says what the bits of `found` leave open about `key`, if anything.
///
/// Every key that agrees with `key` on the mask gets the same answer if, and but
/// for rules of several patterns only if, a pattern of the winner lies within
/// the mask and each pattern of every better rule differs from the key on it.
/// Were a better rule's pattern not ruled out, the bits outside the mask could be
/// set so that it matched.
pub fn flaw(rules: &[Rule], key: &FlowKey, found: &Found) -> Option<String> {
    let winner =
        rules.iter().filter(|r| r.matches.iter().any(|m| m.covers(key))).min_by_key(|r| rank(r));
    if winner.map(|r| r.id) != found.rule {
        return Some(format!("{:?} wins, and {:?} was found", winner.map(|r| r.id), found.rule));
    }
    let shown = |m: &&Match| m.covers(key) && is_within(m.mask(), &found.mask);
    if let Some(winner) = winner
        && !winner.matches.iter().any(|m| shown(&m))
    {
        return Some(format!("the mask does not show that {:?} matches", winner.id));
    }
    let better = |r: &&Rule| winner.is_none_or(|w| rank(r) < rank(w));
    for rule in rules.iter().filter(better) {
        if let Some(open) = rule.matches.iter().find(|m| !is_ruled_out(m, key, &found.mask)) {
            return Some(format!("the mask leaves open whether {:?} has {open}", rule.id));
        }
    }
    None
}
