//! The second layer: answers of the rule table, cached under the bits that
//! decided them.

use hashbrown::HashTable;
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType};

use crate::rule::{Match, RuleId};
use crate::rule_table::{Found, RuleTable};
use crate::shape::Shape;

/// Lookups between two sortings of the subtables by their hits.
const SORT_PERIOD: u32 = 1 << 16;

/// Names a megaflow; once that is gone, the name finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MegaflowId {
    index: u32,
    generation: u32,
}

/// What a megaflow has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MegaflowStats {
    /// Packets that met it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last of them came.
    pub last_used: Nanoseconds,
}

/// A megaflow as it stands: the packets it covers, the answer they get, and
/// what it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Megaflow {
    /// The packets it covers.
    pub pattern: Match,
    /// The rule they meet, if any.
    pub rule: Option<RuleId>,
    /// The type they get.
    pub packet_type: PacketType,
    /// What it has seen.
    pub stats: MegaflowStats,
}

#[derive(Clone, Debug)]
pub(crate) struct Flow {
    masked: FlowKey,
    generation: u32,
    live: bool,
    pub(crate) rule: Option<RuleId>,
    pub(crate) packet_type: PacketType,
    pub(crate) stats: MegaflowStats,
}

#[derive(Clone, Debug)]
struct Subtable {
    shape: Shape,
    entries: HashTable<u32>,
    hits: u32,
}

impl Subtable {
    /// The place of the megaflow that covers the key with `hash` under our mask.
    #[inline]
    fn find(&self, flows: &[Flow], key: &FlowKey, hash: u64) -> Option<u32> {
        let covers = |&i: &u32| self.shape.equal(&flows[i as usize].masked, key);
        self.entries.find(hash, covers).copied()
    }
}

/// One worker's megaflows: one hash table for each mask, those with the most
/// hits searched first. Any hit is the answer: overlapping megaflows agree.
#[derive(Clone, Debug)]
pub(crate) struct Megaflows {
    flows: Vec<Flow>,
    free: Vec<u32>,
    subtables: Vec<Subtable>,
    limit: usize,
    lookups: u32,
    visited: u64,
}

impl Megaflows {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            subtables: Vec::new(),
            limit,
            lookups: 0,
            visited: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    pub(crate) fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// How many subtables all lookups together looked into.
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    /// Finds the megaflows that cover the keys of `lanes`. Returns the lanes
    /// that have one; theirs is in `ids`.
    ///
    /// Each subtable serves all lanes before the next is looked into, and hashes
    /// all before it probes for the first, so that the probes' loads overlap.
    pub(crate) fn find_batch(
        &mut self,
        keys: &[FlowKey; BATCH],
        lanes: Lanes,
        ids: &mut [MegaflowId; BATCH],
    ) -> Lanes {
        self.lookups += lanes.count() as u32;
        if self.lookups >= SORT_PERIOD {
            self.rank_subtables();
        }
        let mut left = lanes;
        let mut hashes = [0; BATCH];
        for subtable in &mut self.subtables {
            if left.is_empty() {
                break;
            }
            self.visited += left.count() as u64;
            for lane in left {
                hashes[lane] = subtable.shape.hash(&keys[lane]);
            }
            for lane in left {
                if let Some(index) = subtable.find(&self.flows, &keys[lane], hashes[lane]) {
                    let generation = self.flows[index as usize].generation;
                    ids[lane] = MegaflowId { index, generation };
                    subtable.hits += 1;
                    left.remove(lane);
                }
            }
        }
        lanes.without(left)
    }

    fn rank_subtables(&mut self) {
        self.lookups = 0;
        // Unstable, because the stable sort allocates.
        self.subtables.sort_unstable_by_key(|s| std::cmp::Reverse(s.hits));
        for subtable in &mut self.subtables {
            subtable.hits /= 2;
        }
    }

    /// The megaflow named `id`, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: MegaflowId) -> Option<&mut Flow> {
        self.is_live(id).then(|| &mut self.flows[id.index as usize])
    }

    /// Whether the megaflow named `id` still is.
    #[inline]
    pub(crate) fn is_live(&self, id: MegaflowId) -> bool {
        let flow = self.flows.get(id.index as usize);
        flow.is_some_and(|f| f.live && f.generation == id.generation)
    }

    /// The megaflow that covers `key`, found without counting the search.
    pub(crate) fn peek(&self, key: &FlowKey) -> Option<Megaflow> {
        self.subtables.iter().find_map(|s| {
            let index = s.find(&self.flows, key, s.shape.hash(key))?;
            Some(self.describe(s, index))
        })
    }

    /// All megaflows, those of the subtable that is searched first leading.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Megaflow> + '_ {
        self.subtables.iter().flat_map(|s| s.entries.iter().map(|&i| self.describe(s, i)))
    }

    fn describe(&self, subtable: &Subtable, index: u32) -> Megaflow {
        let flow = &self.flows[index as usize];
        Megaflow {
            pattern: Match::new(flow.masked, *subtable.shape.mask()),
            rule: flow.rule,
            packet_type: flow.packet_type,
            stats: flow.stats,
        }
    }

    /// Caches `found` for all keys like `key`, which no megaflow covers yet.
    /// `None` when the table is full.
    pub(crate) fn insert(
        &mut self,
        key: &FlowKey,
        found: &Found,
        now: Nanoseconds,
    ) -> Option<MegaflowId> {
        if self.is_full() {
            return None;
        }
        let at = self.subtables.iter().position(|s| *s.shape.mask() == found.mask);
        let at = at.unwrap_or_else(|| {
            let shape = Shape::new(found.mask);
            self.subtables.push(Subtable { shape, entries: HashTable::new(), hits: 0 });
            self.subtables.len() - 1
        });
        let flow = Flow {
            masked: key.masked(&found.mask),
            generation: 0,
            live: true,
            rule: found.rule,
            packet_type: found.packet_type,
            stats: MegaflowStats { last_used: now, ..MegaflowStats::default() },
        };
        let id = self.store(flow);
        let subtable = &mut self.subtables[at];
        let (flows, shape) = (&self.flows, &subtable.shape);
        let rehash = |&i: &u32| shape.hash(&flows[i as usize].masked);
        subtable.entries.insert_unique(shape.hash(key), id.index, rehash);
        Some(id)
    }

    /// Puts `flow` into a free place, or a new one.
    fn store(&mut self, flow: Flow) -> MegaflowId {
        if let Some(index) = self.free.pop() {
            let place = &mut self.flows[index as usize];
            let generation = place.generation;
            *place = Flow { generation, ..flow };
            return MegaflowId { index, generation };
        }
        self.flows.push(flow);
        MegaflowId { index: (self.flows.len() - 1) as u32, generation: 0 }
    }

    /// Removes megaflows that no packet met for `idle`; returns how many.
    pub(crate) fn expire(&mut self, now: Nanoseconds, idle: Nanoseconds) -> usize {
        self.remove_unless(|flow, _| {
            // Packet time may step back, as when a capture is replayed again:
            // what was last used "later" than now ages from now on.
            flow.stats.last_used = flow.stats.last_used.min(now);
            now.since(flow.stats.last_used) < idle
        })
    }

    /// Removes megaflows to which `rules` would now give another answer;
    /// returns how many.
    ///
    /// A megaflow stays only if the new search looks at no bit outside its
    /// mask: then its masked key stands for every packet it covers.
    pub(crate) fn revalidate(&mut self, rules: &RuleTable) -> usize {
        self.remove_unless(|flow, mask| {
            let found = rules.lookup(&flow.masked);
            (found.rule, found.packet_type) == (flow.rule, flow.packet_type)
                && found.mask.union(mask) == *mask
        })
    }

    fn remove_unless(&mut self, mut keep: impl FnMut(&mut Flow, &FlowKey) -> bool) -> usize {
        let mut removed = 0;
        let (flows, free) = (&mut self.flows, &mut self.free);
        for subtable in &mut self.subtables {
            subtable.entries.retain(|&mut index| {
                let flow = &mut flows[index as usize];
                let stays = keep(flow, subtable.shape.mask());
                if !stays {
                    flow.live = false;
                    flow.generation = flow.generation.wrapping_add(1);
                    free.push(index);
                    removed += 1;
                }
                stays
            });
        }
        self.subtables.retain(|s| !s.entries.is_empty());
        removed
    }
}

#[cfg(test)]
impl MegaflowId {
    pub(crate) fn for_test(index: u32) -> Self {
        Self { index, generation: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(word: usize, value: u64) -> FlowKey {
        let mut key = FlowKey::default();
        key.words[word] = value;
        key
    }

    fn found(word: usize) -> Found {
        Found { rule: None, packet_type: PacketType(word as u16), mask: key(word, u64::MAX) }
    }

    fn keys(key: FlowKey) -> [FlowKey; BATCH] {
        [key; BATCH]
    }

    #[test]
    fn the_name_of_a_megaflow_that_is_gone_finds_nothing_in_its_place() {
        let mut flows = Megaflows::new(10);
        let first = flows.insert(&key(0, 1), &found(0), Nanoseconds(0)).unwrap();
        assert_eq!(flows.expire(Nanoseconds(5), Nanoseconds(5)), 1);
        let second = flows.insert(&key(0, 2), &found(0), Nanoseconds(5)).unwrap();
        assert_eq!(first.index, second.index, "the place is used again");
        assert!(flows.get_mut(first).is_none() && flows.get_mut(second).is_some());
        assert_eq!((flows.len(), flows.subtables()), (1, 1));
    }

    #[test]
    fn the_subtable_with_the_most_hits_comes_to_the_front() {
        let mut flows = Megaflows::new(10);
        flows.insert(&key(0, 1), &found(0), Nanoseconds(0)).unwrap();
        flows.insert(&key(1, 1), &found(1), Nanoseconds(0)).unwrap();
        let mut ids = [MegaflowId::default(); BATCH];
        let visits = |flows: &mut Megaflows, ids: &mut _| {
            let before = flows.visited();
            assert_eq!(flows.find_batch(&keys(key(1, 1)), Lanes::ALL, ids), Lanes::ALL);
            flows.visited() - before
        };
        assert_eq!(visits(&mut flows, &mut ids), 2 * BATCH as u64);
        for _ in 0..SORT_PERIOD as usize / BATCH {
            visits(&mut flows, &mut ids);
        }
        assert_eq!(visits(&mut flows, &mut ids), BATCH as u64);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_keep_idle_megaflows_for_ever() {
        let mut flows = Megaflows::new(10);
        flows.insert(&key(0, 1), &found(0), Nanoseconds::from_secs(1_000_000)).unwrap();
        let idle = Nanoseconds::from_secs(10);
        assert_eq!(flows.expire(Nanoseconds::from_secs(1), idle), 0);
        assert_eq!(flows.expire(Nanoseconds::from_secs(10), idle), 0);
        assert_eq!(flows.expire(Nanoseconds::from_secs(11), idle), 1);
    }
}
