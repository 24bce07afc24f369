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
