//! The second layer: answers of the rule table, cached under the bits that
//! decided them.

use hashbrown::HashTable;
use thalweg_packet::{FlowKey, Nanoseconds, PacketType};

use crate::rule::RuleId;
use crate::rule_table::{Found, RuleTable};
use crate::shape::Shape;

/// Lookups between two sortings of the subtables by their hits.
const SORT_PERIOD: u32 = 1 << 16;

/// Names a megaflow; once that is gone, the name finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

#[derive(Clone, Debug)]
pub(crate) struct Megaflow {
    masked: FlowKey,
    subtable: u32,
    generation: u32,
    live: bool,
    pub(crate) rule: Option<RuleId>,
    pub(crate) packet_type: PacketType,
    pub(crate) stats: MegaflowStats,
}

#[derive(Clone, Debug)]
struct Subtable {
    number: u32,
    shape: Shape,
    entries: HashTable<u32>,
    hits: u32,
}

/// One worker's megaflows: one hash table for each mask, those with the most
/// hits searched first. Any hit is the answer: overlapping megaflows agree.
#[derive(Clone, Debug)]
pub(crate) struct Megaflows {
    flows: Vec<Megaflow>,
    free: Vec<u32>,
    subtables: Vec<Subtable>,
    next_number: u32,
    limit: usize,
    lookups: u32,
    pub(crate) visited: u64,
}

impl Megaflows {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            subtables: Vec::new(),
            next_number: 0,
            limit,
            lookups: 0,
            visited: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    pub(crate) fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// The megaflow that covers `key`.
    #[inline]
    pub(crate) fn find(&mut self, key: &FlowKey) -> Option<MegaflowId> {
        self.lookups += 1;
        if self.lookups >= SORT_PERIOD {
            self.rank_subtables();
        }
        for subtable in &mut self.subtables {
            self.visited += 1;
            let hash = subtable.shape.hash(key);
            let flows = &self.flows;
            let same = |&i: &u32| subtable.shape.equal(&flows[i as usize].masked, key);
            if let Some(&index) = subtable.entries.find(hash, same) {
                subtable.hits += 1;
                return Some(MegaflowId { index, generation: flows[index as usize].generation });
            }
        }
        None
    }

    fn rank_subtables(&mut self) {
        self.lookups = 0;
        self.subtables.sort_by_key(|s| std::cmp::Reverse(s.hits));
        for subtable in &mut self.subtables {
            subtable.hits /= 2;
        }
    }

    /// The megaflow named `id`, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: MegaflowId) -> Option<&mut Megaflow> {
        let flow = self.flows.get_mut(id.index as usize)?;
        (flow.live && flow.generation == id.generation).then_some(flow)
    }

    /// The mask of the megaflow named `id`.
    pub(crate) fn mask(&self, id: MegaflowId) -> Option<&FlowKey> {
        let number = self.flows.get(id.index as usize)?.subtable;
        self.subtables.iter().find(|s| s.number == number).map(|s| s.shape.mask())
    }

    /// Caches `found` for all keys like `key`. `None` when the table is full.
    pub(crate) fn insert(
        &mut self,
        key: &FlowKey,
        found: &Found,
        now: Nanoseconds,
    ) -> Option<MegaflowId> {
        if self.len() >= self.limit {
            return None;
        }
        let at = self.subtables.iter().position(|s| *s.shape.mask() == found.mask);
        let at = at.unwrap_or_else(|| {
            let (number, shape) = (self.next_number, Shape::new(found.mask));
            self.next_number += 1;
            self.subtables.push(Subtable { number, shape, entries: HashTable::new(), hits: 0 });
            self.subtables.len() - 1
        });
        let subtable = &mut self.subtables[at];
        let flow = Megaflow {
            masked: key.masked(&found.mask),
            subtable: subtable.number,
            generation: 0,
            live: true,
            rule: found.rule,
            packet_type: found.packet_type,
            stats: MegaflowStats { last_used: now, ..MegaflowStats::default() },
        };
        let index = match self.free.pop() {
            Some(index) => {
                let generation = self.flows[index as usize].generation;
                self.flows[index as usize] = Megaflow { generation, ..flow };
                index
            }
            None => {
                self.flows.push(flow);
                (self.flows.len() - 1) as u32
            }
        };
        let (flows, shape) = (&self.flows, &subtable.shape);
        subtable
            .entries
            .insert_unique(shape.hash(key), index, |&i| shape.hash(&flows[i as usize].masked));
        Some(MegaflowId { index, generation: self.flows[index as usize].generation })
    }

    /// Removes megaflows that no packet met for `idle`; returns how many.
    pub(crate) fn expire(&mut self, now: Nanoseconds, idle: Nanoseconds) -> usize {
        self.remove_unless(|flow, _| now.since(flow.stats.last_used) < idle)
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

    fn remove_unless(&mut self, mut keep: impl FnMut(&Megaflow, &FlowKey) -> bool) -> usize {
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
