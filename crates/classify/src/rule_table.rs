//! The third layer: all rules, by priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;
use thalweg_packet::{FlowKey, PacketType};

use crate::rule::{Match, Rank, Rule, RuleId};
use crate::shape::Shape;

/// What a search in the rule table found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The winning rule, if any matched.
    pub rule: Option<RuleId>,
    /// The packet type it gives, or the table's default.
    pub packet_type: PacketType,
    /// Every bit of the key that the search looked at: a key that agrees with
    /// this one on these bits gets the same answer.
    pub mask: FlowKey,
}

/// Rules as a tuple space: one hash table (subtable) for each mask, searched
/// from the subtable with the best rule down until no better one can follow.
#[derive(Clone, Debug)]
pub struct RuleTable {
    rules: BTreeMap<RuleId, Arc<Rule>>,
    // Shared with older versions of the table, so that a change copies only the
    // subtables it touches.
    subtables: Vec<Arc<Subtable>>,
    default_type: PacketType,
}

#[derive(Clone, Debug)]
struct Subtable {
    shape: Shape,
    /// The best rank of any entry.
    best: Rank,
    entries: HashTable<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    masked: FlowKey,
    /// Rules with this very pattern, best first; never empty.
    ranks: Vec<(Rank, PacketType)>,
}

impl Subtable {
    fn find(&self, key: &FlowKey) -> Option<(Rank, PacketType)> {
        let hash = self.shape.hash(key);
        let entry = self.entries.find(hash, |e| self.shape.equal(&e.masked, key))?;
        entry.ranks.first().copied()
    }

    fn refresh_best(&mut self) {
        let best = self.entries.iter().filter_map(|e| e.ranks.first()).map(|(rank, _)| *rank);
        if let Some(best) = best.min() {
            self.best = best;
        }
    }
}

impl RuleTable {
    /// An empty table, in which every packet is of `default_type`.
    pub fn new(default_type: PacketType) -> Self {
        Self { rules: BTreeMap::new(), subtables: Vec::new(), default_type }
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// How many different masks the rules have.
    pub fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// The rule numbered `id`.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(&id).map(|r| &**r)
    }

    /// The number after the last rule's.
    pub fn next_id(&self) -> RuleId {
        RuleId(self.rules.last_key_value().map_or(0, |(id, _)| id.0.saturating_add(1)))
    }

    /// The type of packets that no rule matches.
    pub fn default_type(&self) -> PacketType {
        self.default_type
    }

    /// Adds `rule`, in place of one with the same number.
    pub fn insert(&mut self, rule: Rule) {
        self.extend([rule]);
    }

    /// Adds many rules; sorts the subtables once.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = Rule>) {
        for rule in rules {
            self.remove(rule.id);
            let (rank, packet_type) = (rule.rank(), rule.packet_type);
            for pattern in &rule.matches {
                self.insert_match(pattern, rank, packet_type);
            }
            self.rules.insert(rule.id, Arc::new(rule));
        }
        self.subtables.sort_by_key(|s| s.best);
    }

    fn insert_match(&mut self, pattern: &Match, rank: Rank, packet_type: PacketType) {
        let at = self.subtables.iter().position(|s| s.shape.mask() == pattern.mask());
        let at = at.unwrap_or_else(|| {
            let shape = Shape::new(*pattern.mask());
            self.subtables.push(Arc::new(Subtable {
                shape,
                best: rank,
                entries: HashTable::new(),
            }));
            self.subtables.len() - 1
        });
        let subtable = Arc::make_mut(&mut self.subtables[at]);
        subtable.best = subtable.best.min(rank);
        let shape = &subtable.shape;
        let entry = subtable.entries.entry(
            shape.hash(pattern.value()),
            |e| shape.equal(&e.masked, pattern.value()),
            |e| shape.hash(&e.masked),
        );
        let empty = Entry { masked: *pattern.value(), ranks: Vec::new() };
        let ranks = &mut entry.or_insert(empty).into_mut().ranks;
        if let Err(place) = ranks.binary_search(&(rank, packet_type)) {
            ranks.insert(place, (rank, packet_type));
        }
    }

    /// Removes the rule numbered `id`, and returns it.
    pub fn remove(&mut self, id: RuleId) -> Option<Arc<Rule>> {
        let rule = self.rules.remove(&id)?;
        for pattern in &rule.matches {
            self.remove_match(pattern, rule.rank());
        }
        self.subtables.sort_by_key(|s| s.best);
        Some(rule)
    }

    fn remove_match(&mut self, pattern: &Match, rank: Rank) {
        let of_mask = |s: &Arc<Subtable>| s.shape.mask() == pattern.mask();
        let Some(at) = self.subtables.iter().position(of_mask) else { return };
        let subtable = Arc::make_mut(&mut self.subtables[at]);
        let shape = &subtable.shape;
        let found = subtable
            .entries
            .find_entry(shape.hash(pattern.value()), |e| shape.equal(&e.masked, pattern.value()));
        if let Ok(mut entry) = found {
            entry.get_mut().ranks.retain(|(r, _)| *r != rank);
            if entry.get().ranks.is_empty() {
                entry.remove();
            }
        }
        if subtable.entries.is_empty() {
            self.subtables.remove(at);
        } else if subtable.best == rank {
            subtable.refresh_best();
        }
    }

    /// Finds the winning rule for `key`, and the bits that decided.
    pub fn lookup(&self, key: &FlowKey) -> Found {
        let mut best: Option<(Rank, PacketType)> = None;
        let mut mask = FlowKey::default();
        for subtable in &self.subtables {
            if best.is_some_and(|(rank, _)| rank < subtable.best) {
                break;
            }
            mask = mask.union(subtable.shape.mask());
            best = match (best, subtable.find(key)) {
                (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
                (a, b) => a.or(b),
            };
        }
        Found {
            rule: best.map(|(rank, _)| rank.rule()),
            packet_type: best.map_or(self.default_type, |(_, t)| t),
            mask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: u32, priority: u32, word: usize, value: u64) -> Rule {
        let mut key = FlowKey::default();
        let mut mask = FlowKey::default();
        (key.words[word], mask.words[word]) = (value, u64::MAX);
        let matches = vec![Match::new(key, mask)];
        Rule { id: RuleId(id), priority, matches, packet_type: PacketType(1), text: String::new() }
    }

    #[test]
    fn a_search_looks_no_further_than_the_rules_that_could_still_win() {
        let mut table = RuleTable::new(PacketType(0));
        // Word 0 has the best rule and the worst; word 1 has the one between.
        table.extend([rule(0, 10, 0, 7), rule(1, 1, 0, 8), rule(2, 5, 1, 9)]);
        let mut key = FlowKey::default();
        key.words[1] = 9;
        let found = table.lookup(&key);
        assert_eq!(found.rule, Some(RuleId(2)));
        assert_eq!((found.mask.words[0], found.mask.words[1]), (u64::MAX, u64::MAX));
        // Without the best rule, word 0 comes after word 1 and is not looked at.
        assert_eq!(table.remove(RuleId(0)).map(|r| r.id), Some(RuleId(0)));
        let found = table.lookup(&key);
        assert_eq!(found.rule, Some(RuleId(2)));
        assert_eq!((found.mask.words[0], found.mask.words[1]), (0, u64::MAX));
    }

    #[test]
    fn a_rule_given_twice_is_replaced_and_a_removed_mask_is_gone() {
        let mut table = RuleTable::new(PacketType(0));
        table.insert(rule(0, 10, 0, 7));
        table.insert(rule(0, 3, 1, 7));
        assert_eq!((table.len(), table.subtables(), table.next_id()), (1, 1, RuleId(1)));
        assert_eq!(table.rule(RuleId(0)).map(|r| r.priority), Some(3));
        table.remove(RuleId(0));
        assert!(table.is_empty() && table.subtables() == 0 && table.remove(RuleId(0)).is_none());
        assert_eq!(table.lookup(&FlowKey::default()).mask, FlowKey::default());
    }
}
