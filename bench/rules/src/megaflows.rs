//! How many megaflows and masks a trace makes.

use std::collections::{HashMap, HashSet};

use thalweg_classify::{Rule, RuleId};
use thalweg_packet::FlowKey;

/// The megaflows of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Megaflows, each of one search in the rule table.
    pub flows: usize,
    /// Different masks among them.
    pub masks: usize,
}

/// Counts the megaflows that `keys` create, one after the other, where a search
/// returns the masks of `mask_of`.
pub fn count(keys: &[FlowKey], mask_of: impl Fn(&FlowKey) -> FlowKey) -> Count {
    let mut by_mask: HashMap<FlowKey, HashSet<FlowKey>> = HashMap::new();
    let mut flows = 0;
    for key in keys {
        if by_mask.iter().any(|(mask, flows)| flows.contains(&key.masked(mask))) {
            continue;
        }
        let mask = mask_of(key);
        by_mask.entry(mask).or_default().insert(key.masked(&mask));
        flows += 1;
    }
    Count { flows, masks: by_mask.len() }
}

/// The masks of searches that return all bits of each subtable they visit.
pub struct Union {
    /// For each subtable, in the order of a search: its best rank, and the union
    /// of the masks so far.
    masks: Vec<((u32, u32), FlowKey)>,
    ranks: HashMap<RuleId, (u32, u32)>,
}

impl Union {
    /// For the table of `rules`.
    pub fn new(rules: &[Rule]) -> Self {
        let mut best: HashMap<FlowKey, (u32, u32)> = HashMap::new();
        let mut ranks = HashMap::new();
        for rule in rules {
            let rank = (u32::MAX - rule.priority, rule.id.0);
            ranks.insert(rule.id, rank);
            for pattern in &rule.matches {
                let best = best.entry(*pattern.mask()).or_insert(rank);
                *best = rank.min(*best);
            }
        }
        let mut masks: Vec<_> = best.into_iter().map(|(mask, rank)| (rank, mask)).collect();
        masks.sort_by_key(|(rank, _)| *rank);
        let mut union = FlowKey::default();
        for (_, mask) in &mut masks {
            union = union.union(mask);
            *mask = union;
        }
        Self { masks, ranks }
    }

    /// The mask of the search that finds `winner`.
    pub fn mask(&self, winner: Option<RuleId>) -> FlowKey {
        let rank = winner.and_then(|id| self.ranks.get(&id));
        let visited = rank
            .map_or(self.masks.len(), |rank| self.masks.partition_point(|(best, _)| best <= rank));
        visited.checked_sub(1).map_or(FlowKey::default(), |last| self.masks[last].1)
    }
}
