//! The rule table: what is common to all subtables.

use std::sync::Arc;

use thalweg_packet::{FlowKey, PacketType};

use super::fields::{FIELDS, TRACKED};
use super::hash_trie::{HashTrie, Item};
use super::order::{Order, Place, Slot};
use super::search::{self, Search};
use super::signature::Pairs;
use super::subtable::{Change, Ranked, Subtable};
use super::trie::Trie;
use crate::hash;
use crate::rule::{Match, Rank, Rule, RuleId};

/// The result of a search in the rule table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The winning rule, if any matched.
    pub rule: Option<RuleId>,
    /// The packet type it gives, or the table's default.
    pub packet_type: PacketType,
    /// Bits of the key that decide the answer: a key that agrees with this one
    /// on these bits gets the same.
    pub mask: FlowKey,
}

/// Rules by mask and priority. Clones share what they have in common.
#[derive(Clone, Debug)]
pub struct RuleTable {
    /// Under their numbers in place of hashes, so that the last is at the end.
    rules: HashTrie<Arc<Rule>>,
    /// The places of the subtables in the order, under the hashes of their masks.
    masks: HashTrie<Place>,
    order: Order,
    tries: [Trie; FIELDS],
    pairs: Arc<Pairs>,
    /// The number that the next subtable gets.
    serial: u64,
    default_type: PacketType,
}

/// Equal if they hold the same rules under the same numbers, and have the same default.
impl PartialEq for RuleTable {
    fn eq(&self, other: &Self) -> bool {
        let numbers = || (0..self.next_id().0).map(RuleId);
        (self.default_type, self.next_id()) == (other.default_type, other.next_id())
            && numbers().all(|id| self.rule(id) == other.rule(id))
    }
}

impl Item for Arc<Rule> {
    type Weight = ();
    fn weight(&self) {}
}

impl Item for Place {
    type Weight = ();
    fn weight(&self) {}
}

fn under(id: RuleId) -> u64 {
    u64::from(id.0) << 32
}

impl RuleTable {
    /// An empty table, in which every packet is of `default_type`.
    pub fn new(default_type: PacketType) -> Self {
        Self {
            rules: HashTrie::default(),
            masks: HashTrie::default(),
            order: Order::default(),
            tries: Default::default(),
            pairs: Arc::default(),
            serial: 0,
            default_type,
        }
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
        self.order.len()
    }

    /// The rule numbered `id`.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.find(under(id), |_| true).map(|r| &**r)
    }

    /// The number after the last rule's.
    pub fn next_id(&self) -> RuleId {
        RuleId(self.rules.last().map_or(0, |rule| rule.id.0.saturating_add(1)))
    }

    /// The type of packets that no rule matches.
    pub fn default_type(&self) -> PacketType {
        self.default_type
    }

    /// Adds `rule`, in place of one with the same number.
    pub fn insert(&mut self, rule: Rule) {
        self.extend([rule]);
    }

    /// Adds many rules. Faster than one by one: those of a subtable go together.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = Rule>) {
        let mut added: Vec<Arc<Rule>> = Vec::new();
        for rule in rules {
            if self.rule(rule.id).is_some() {
                // It may be one of these.
                self.insert_patterns(&std::mem::take(&mut added));
                self.remove(rule.id);
            }
            let rule = Arc::new(rule);
            self.rules.insert(under(rule.id), rule.clone());
            added.push(rule);
        }
        self.insert_patterns(&added);
    }

    /// Removes the rule numbered `id`, and returns it.
    pub fn remove(&mut self, id: RuleId) -> Option<Arc<Rule>> {
        let rule = self.rules.find(under(id), |_| true)?.clone();
        self.rules.change(under(id), |_| true, |_| false);
        for pattern in &rule.matches {
            self.remove_match(pattern, rule.rank());
        }
        Some(rule)
    }

    /// Finds the winning rule for `key`, and the packet type it gives, without bits that decide it:
    /// a fraction of the work of [`lookup`](Self::lookup).
    pub fn find(&self, key: &FlowKey) -> (Option<RuleId>, PacketType) {
        let winner = search::winner(&self.order, &self.tries, &self.pairs, key);
        winner.map_or((None, self.default_type), |(rank, gives)| (Some(rank.rule()), gives))
    }

    /// Finds the winning rule for `key`, and bits that decide it.
    pub fn lookup(&self, key: &FlowKey) -> Found {
        self.lookup_from(key, &FlowKey::default())
    }

    /// Finds the winning rule for `key`, and bits that decide it, when those of
    /// `examined` are to be among them.
    ///
    /// Shows whether an earlier answer still holds for all keys that it was given
    /// for: it does if the rule is the same and `examined` is all of the mask. A
    /// plain [`lookup`](Self::lookup) could find other bits that do as well.
    pub fn lookup_from(&self, key: &FlowKey, examined: &FlowKey) -> Found {
        let search = Search::new(&self.order, &self.tries, &self.pairs, key, examined);
        let (rule, mask) = search.run();
        Found {
            rule: rule.map(|(rank, _)| rank.rule()),
            packet_type: rule.map_or(self.default_type, |(_, t)| t),
            mask,
        }
    }

    /// The place of the subtable of `mask`.
    fn place(&self, mask: &FlowKey) -> Option<Place> {
        let has_mask =
            |place: &Place| self.order.get(*place).is_some_and(|subtable| subtable.mask() == mask);
        self.masks.find(hash::words(&mask.words), has_mask).copied()
    }

    /// Adds the patterns of `rules`, subtable by subtable, the best rule first.
    fn insert_patterns(&mut self, rules: &[Arc<Rule>]) {
        let patterns = rules.iter().flat_map(|rule| {
            let ranked = (rule.rank(), rule.packet_type);
            rule.matches.iter().map(move |m| (hash::words(&m.mask().words), ranked, m))
        });
        let mut patterns: Vec<_> = patterns.collect();
        patterns.sort_unstable_by_key(|(hash, (rank, _), _)| (*hash, *rank));
        for group in patterns.chunk_by(|a, b| a.2.mask() == b.2.mask()) {
            let (_, (best, _), first) = group[0];
            let place =
                self.place(first.mask()).unwrap_or_else(|| self.add_subtable(*first.mask(), best));
            let Some(subtable) = self.order.get_mut(place) else { continue };
            let prefix_lens = subtable.prefix_lens();
            let is_new = |(_, rule, m): &&(u64, Ranked, &Match)| {
                subtable.insert(m.value(), *rule) == Change::Pattern
            };
            let new: Vec<_> = group.iter().filter(is_new).map(|(.., m)| m.value()).collect();
            self.each_prefix(&new, prefix_lens, Trie::insert);
            self.reorder(first.mask(), place);
        }
    }

    fn remove_match(&mut self, pattern: &Match, rank: Rank) {
        let Some(place) = self.place(pattern.mask()) else { return };
        let Some(subtable) = self.order.get_mut(place) else { return };
        let change = subtable.remove(pattern.value(), rank);
        if change == Change::Pattern {
            let prefix_lens = subtable.prefix_lens();
            self.each_prefix(&[pattern.value()], prefix_lens, Trie::remove);
        }
        self.reorder(pattern.mask(), place);
    }

    /// Creates a subtable whose best rule is about to be added.
    fn add_subtable(&mut self, mask: FlowKey, best: Rank) -> Place {
        let subtable = Subtable::new(mask);
        let place = (best, self.serial);
        self.serial += 1;
        let signature = Arc::make_mut(&mut self.pairs).add(subtable.prefix_lens());
        self.order.insert(Slot { place, signature, subtable: Arc::new(subtable) });
        self.masks.insert(hash::words(&mask.words), place);
        place
    }

    /// Changes the tries by the prefixes of `values` that have `lens` bits.
    fn each_prefix(
        &mut self,
        values: &[&FlowKey],
        lens: [u8; FIELDS],
        change: impl Fn(&mut Trie, u128, u8),
    ) {
        let tries = self.tries.iter_mut().zip(TRACKED).zip(lens);
        for ((trie, tracked), len) in tries.filter(|(_, len)| *len > 0) {
            values.iter().for_each(|value| change(trie, tracked.bits(value), len));
        }
    }

    /// Moves the subtable of `mask` from `place` to where it now belongs, or out
    /// when it is empty.
    fn reorder(&mut self, mask: &FlowKey, place: Place) {
        let Some(best) = self.order.get(place).map(Subtable::best) else { return };
        if best == Some(place.0) {
            return;
        }
        let Some(mut slot) = self.order.remove(place) else { return };
        let moved = best.map(|best| (best, place.1));
        self.masks.change(
            hash::words(&mask.words),
            |p| *p == place,
            |p| {
                *p = moved.unwrap_or(*p);
                moved.is_some()
            },
        );
        if let Some(moved) = moved {
            slot.place = moved;
            self.order.insert(slot);
        } else {
            Arc::make_mut(&mut self.pairs).remove(slot.signature);
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
        // Word 1 has the best rule and the worst; word 2 has the one between.
        table.extend([rule(0, 10, 1, 7), rule(1, 1, 1, 8), rule(2, 5, 2, 9)]);
        let mut key = FlowKey::default();
        key.words[2] = 9;
        let found = table.lookup(&key);
        assert_eq!(found.rule, Some(RuleId(2)));
        assert_eq!((found.mask.words[1], found.mask.words[2]), (u64::MAX, u64::MAX));
        // Without the best rule, word 1 comes after word 2 and is not looked at.
        assert_eq!(table.remove(RuleId(0)).map(|r| r.id), Some(RuleId(0)));
        let found = table.lookup(&key);
        assert_eq!(found.rule, Some(RuleId(2)));
        assert_eq!((found.mask.words[1], found.mask.words[2]), (0, u64::MAX));
    }

    #[test]
    fn a_rule_given_twice_is_replaced_and_a_removed_mask_is_gone() {
        let mut table = RuleTable::new(PacketType(0));
        table.insert(rule(0, 12, 2, 7));
        table.extend([rule(0, 10, 0, 7), rule(0, 3, 1, 7)]);
        assert_eq!((table.len(), table.subtables(), table.next_id()), (1, 1, RuleId(1)));
        assert_eq!(table.rule(RuleId(0)).map(|r| r.priority), Some(3));
        table.remove(RuleId(0));
        assert!(table.is_empty() && table.subtables() == 0 && table.remove(RuleId(0)).is_none());
        assert!(table.tries.iter().all(Trie::is_empty) && table.masks.is_empty());
        assert_eq!(table.lookup(&FlowKey::default()).mask, FlowKey::default());
    }
}
