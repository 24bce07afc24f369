//! The second layer: answers of the rule table, cached under the bits that
//! decided them.

mod changes;
mod family;
mod flow;
mod index;
mod rows;
mod signatures;
mod store;
#[cfg(test)]
mod tests;

use thalweg_cpu::Isa;
use thalweg_packet::{BATCH, FlowKey, Half, Lanes, Nanoseconds, PacketType, TransposedKeys};

use self::family::{Family, Tools};
use self::flow::Clock;
pub(crate) use self::flow::{Flow, Tick};
use self::rows::Rows;
use self::store::Store;
use crate::hash::Hasher;
use crate::lookup::{Lookup, MatchLayer};
use crate::rule::{Match, RuleId};
use crate::rule_table::{Found, RuleTable};
use crate::secret::Keys;

/// The most masks. Each can lengthen the search for packets of all others, and traffic can be made
/// so that every packet adds one (Csikor et al., "Tuple Space Explosion", CoNEXT 2019). A thousand
/// connections over the largest rule sets take 400.
const MOST_SUBTABLES: usize = 1024;

/// The most megaflows that a search for idle ones looks at, and the most that it removes.
const MOST_SWEPT: usize = 4096;
const MOST_REMOVED: usize = 64;

/// Lookups between two sortings of the families by their hits.
const SORT_PERIOD: u32 = 1 << 16;

/// The counters of a megaflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MegaflowStats {
    /// Packets that matched it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last of them arrived, to 17 ms.
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
    /// Its counters.
    pub stats: MegaflowStats,
}

/// The lanes whose element of `values` is `value`.
#[inline]
fn lanes_with(values: &Half, value: u32) -> Lanes {
    let bits = values.iter().enumerate().map(|(lane, v)| u32::from(*v == value) << lane);
    Lanes(bits.fold(0, |set, bit| set | bit))
}

/// A classifier's megaflows. Subtables (masks) are searched family by family,
/// those with the most hits first. Any hit is the answer: overlapping megaflows
/// agree.
///
/// When the rules change, all megaflows become doubtful at once, and each is
/// checked against the new rules when a packet next meets it: nothing has to be
/// done for those that no packet meets.
#[derive(Debug)]
pub(crate) struct Megaflows {
    hasher: Hasher,
    rows: Rows,
    store: Store,
    families: Vec<Family>,
    /// Whether a family is being succeeded, or waits for larger indexes.
    changes: bool,
    /// Flows that move; empty, reused.
    moving: Vec<u32>,
    limit: usize,
    clock: Clock,
    now: Tick,
    /// The stamp that was given last.
    stamp: u32,
    /// Megaflows with an older stamp are doubtful.
    valid_from: u32,
    /// Where the search for idle megaflows goes on.
    sweep_at: usize,
    lookups: u32,
    visited: u64,
}

impl Megaflows {
    pub(crate) fn new(limit: usize, isa: Isa, keys: Keys) -> Self {
        Self {
            hasher: Hasher::new(isa, keys),
            rows: Rows::new(isa),
            store: Store::with_room(limit),
            families: Vec::new(),
            changes: false,
            moving: Vec::new(),
            limit,
            clock: Clock::default(),
            now: Tick::default(),
            stamp: 0,
            valid_from: 0,
            sweep_at: 0,
            lookups: 0,
            visited: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there is a place for one more, if its mask is known.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.limit
    }

    /// Whether megaflows or masks are as many as there may be.
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room() || self.subtables() >= MOST_SUBTABLES
    }

    pub(crate) fn subtables(&self) -> usize {
        self.store.subtables()
    }

    /// How many hash tables all lookups together looked into.
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    /// Sets the clock, forward or back.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Nanoseconds) {
        let (tick, anew) = self.clock.tick(now);
        if anew || tick < self.now {
            // What was used last "later" than now ages from now on.
            for flow in &mut self.store.flows {
                flow.last_used = if anew { tick } else { flow.last_used.min(tick) };
            }
        }
        self.now = tick;
    }

    /// The time last set by [`set_time`](Self::set_time), in ticks.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        self.now
    }

    /// Finds the megaflows that cover the keys of `lanes`. Returns the lanes
    /// that have one; its handle is in `handles`. It may be doubtful.
    #[inline]
    pub(crate) fn find_batch(
        &mut self,
        keys: &TransposedKeys,
        lanes: Lanes,
        handles: &mut Half,
    ) -> Lanes {
        self.go_on(changes::MOVED);
        self.lookups += lanes.count() as u32;
        if self.lookups >= SORT_PERIOD {
            self.rank_families();
        }
        let mut left = lanes;
        for family in &mut self.families {
            if left.is_empty() {
                break;
            }
            let tools = Tools { store: &self.store, hasher: &self.hasher, rows: self.rows };
            let found = family.search(&tools, keys, left, handles, &mut self.visited);
            family.hits += found.count() as u32;
            left = left.without(found);
        }
        lanes.without(left)
    }

    /// Counts the packets of `lanes`, of these lengths in bytes, at the megaflows
    /// that they met, and gives them their answers. Returns the lanes that got one:
    /// a doubtful megaflow gives none.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        lanes: Lanes,
        handles: &Half,
        lens: &[u16; BATCH],
        out: &mut [Lookup; BATCH],
    ) -> Lanes {
        let Some(first) = lanes.into_iter().next() else { return lanes };
        // Packets of one flow are counted together, so that they do not wait for each other's
        // counts. Shorter runs are not looked for: where they end cannot be foreseen,
        // which costs more.
        if lanes_with(handles, handles[first]).and(lanes) == lanes {
            let bytes = lanes.into_iter().map(|lane| u64::from(lens[lane])).sum();
            let flow = &mut self.store.flows[handles[first] as usize];
            if flow.stamp < self.valid_from {
                return Lanes::NONE;
            }
            flow.meet(lanes.count() as u64, bytes, self.now);
            let answer = flow.answer(MatchLayer::Megaflow);
            lanes.into_iter().for_each(|lane| out[lane] = answer);
            return lanes;
        }
        let mut answered = lanes;
        for lane in lanes {
            let flow = &mut self.store.flows[handles[lane] as usize];
            if flow.stamp < self.valid_from {
                answered.remove(lane);
                continue;
            }
            flow.meet(1, u64::from(lens[lane]), self.now);
            out[lane] = flow.answer(MatchLayer::Megaflow);
        }
        answered
    }

    fn rank_families(&mut self) {
        self.lookups = 0;
        // Unstable, because the stable sort allocates.
        self.families.sort_unstable_by_key(|f| std::cmp::Reverse(f.hits));
        for family in &mut self.families {
            family.hits /= 2;
        }
    }

    /// The megaflow `handle`.
    #[inline]
    pub(crate) fn flow_mut(&mut self, handle: u32) -> &mut Flow {
        &mut self.store.flows[handle as usize]
    }

    /// The megaflow `handle`, if it still has `stamp` and nothing is doubtful
    /// about it.
    #[inline]
    pub(crate) fn stamped_mut(&mut self, handle: u32, stamp: u32) -> Option<&mut Flow> {
        let valid_from = self.valid_from;
        let flow = self.store.flows.get_mut(handle as usize)?;
        (flow.stamp == stamp && stamp >= valid_from).then_some(flow)
    }

    /// The stamp of the megaflow `handle`; 0 when it was removed.
    #[inline]
    pub(crate) fn stamp(&self, handle: u32) -> u32 {
        self.store.flows[handle as usize].stamp
    }

    /// Whether the megaflow `handle` still has `stamp`, and is not doubtful.
    #[inline]
    pub(crate) fn has_stamp(&self, handle: u32, stamp: u32) -> bool {
        let flow = self.store.flows.get(handle as usize);
        stamp >= self.valid_from && flow.is_some_and(|f| f.stamp == stamp)
    }

    /// Whether the rules have changed since the megaflow `handle` was last found
    /// right.
    #[inline]
    pub(crate) fn is_doubtful(&self, handle: u32) -> bool {
        self.store.flows[handle as usize].stamp < self.valid_from
    }

    /// Makes all megaflows doubtful.
    pub(crate) fn doubt_all(&mut self) {
        self.valid_from = self.next_stamp();
    }

    fn next_stamp(&mut self) -> u32 {
        if self.stamp == u32::MAX {
            // Once in four thousand million times: start over with an empty cache.
            let handles: Vec<u32> = self.store.handles().collect();
            handles.into_iter().for_each(|handle| self.remove(handle));
            (self.stamp, self.valid_from) = (0, 0);
        }
        self.stamp += 1;
        self.stamp
    }

    /// Whether the megaflow `handle` is not doubtful, or `rules` still give it its
    /// answer.
    ///
    /// They do only if the bits of its mask prove the same answer by the new rules:
    /// then its masked key stands for every packet it covers.
    fn is_right(&self, handle: u32, rules: &RuleTable) -> bool {
        if !self.is_doubtful(handle) {
            return true;
        }
        let pattern = self.store.pattern(handle);
        let found = rules.lookup_from(pattern.value(), pattern.mask());
        let flow = &self.store.flows[handle as usize];
        (found.rule, found.packet_type) == (flow.rule(), flow.packet_type)
            && found.mask == *pattern.mask()
    }

    /// Ends the doubt about the megaflow `handle`: whether `rules` still give it
    /// its answer. Removes it when not.
    pub(crate) fn confirm(&mut self, handle: u32, rules: &RuleTable) -> bool {
        let right = self.is_right(handle, rules);
        if right {
            let stamp = self.next_stamp();
            self.store.flows[handle as usize].stamp = stamp;
        } else {
            self.remove(handle);
        }
        right
    }

    /// The megaflow that covers `key` and is right by `rules`, found without
    /// counting the search or changing anything.
    pub(crate) fn peek(&self, key: &FlowKey, rules: &RuleTable) -> Option<Megaflow> {
        let right = |handle: u32| self.is_right(handle, rules);
        let families = &mut self.families.iter();
        let found = families.find_map(|f| f.peek(&self.store, &self.hasher, key, right))?;
        Some(self.describe(found))
    }

    /// All megaflows that are right by `rules`.
    pub(crate) fn iter<'a>(&'a self, rules: &'a RuleTable) -> impl Iterator<Item = Megaflow> + 'a {
        let right = self.store.handles().filter(|handle| self.is_right(*handle, rules));
        right.map(|handle| self.describe(handle))
    }

    fn describe(&self, handle: u32) -> Megaflow {
        let flow = &self.store.flows[handle as usize];
        let last_used = self.clock.time(flow.last_used);
        Megaflow {
            pattern: self.store.pattern(handle),
            rule: flow.rule(),
            packet_type: flow.packet_type,
            stats: MegaflowStats { packets: flow.packets, bytes: flow.bytes, last_used },
        }
    }

    /// Caches `found` for all keys like `key`, which no megaflow covers yet.
    /// `None` when there is no place.
    pub(crate) fn insert(&mut self, key: &FlowKey, found: &Found) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let stamp = self.next_stamp();
        let subtable = match self.store.find_subtable(&found.mask) {
            Some(subtable) => subtable,
            None if self.is_full() => return None,
            None => self.add_subtable(found.mask)?,
        };
        let handle = self.store.add(Flow::new(found, subtable, self.now, stamp), key);
        let is_indexed = self.index(handle);
        if !is_indexed {
            self.remove(handle);
        }
        is_indexed.then_some(handle)
    }

    /// The place of the family that takes the flows of `subtable`.
    fn family_of(&self, subtable: u16) -> Option<usize> {
        let is_it = |f: &Family| f.is_open() && f.members().any(|m| m == subtable);
        self.families.iter().position(is_it)
    }

    fn add_subtable(&mut self, mask: FlowKey) -> Option<u16> {
        let families = self.families.iter().enumerate();
        let suiting = families.filter_map(|(at, family)| Some((family.suits(&mask)?, at)));
        if let Some((_, at)) = suiting.max_by_key(|(good, _)| *good) {
            let subtable = self.store.add_subtable(mask, Some(self.families[at].layout()))?;
            self.join(at, subtable);
            return Some(subtable);
        }
        let subtable = self.store.add_subtable(mask, None)?;
        self.families.push(Family::new(&self.store, subtable));
        Some(subtable)
    }

    /// Removes the megaflow `handle`.
    fn remove(&mut self, handle: u32) {
        let Self { store, hasher, families, .. } = self;
        let subtable = store.flows[handle as usize].subtable;
        // It may lie in a family that leaves.
        let mut families = families.iter_mut().filter(|f| f.members().any(|m| m == subtable));
        families.any(|family| family.remove(store, hasher, handle));
        if self.store.remove(handle) == 0 {
            self.store.remove_subtable(subtable);
            for at in (0..self.families.len()).rev() {
                if self.families[at].forget(subtable) {
                    self.drop_family(at);
                }
            }
        }
    }

    /// Looks at `part` of all megaflows (0 to 1), continuing where the last call
    /// ended, and removes those that no packet matched for `idle`; returns how many. After a pause in the
    /// traffic, they are too many for one batch: then it ends early.
    pub(crate) fn expire(&mut self, part: f64, idle: Nanoseconds) -> usize {
        let all = self.store.flows.len();
        let idle = Clock::ticks(idle) + 2;
        let mut removed = 0;
        for _ in 0..((all as f64 * part).ceil() as usize).min(all).min(MOST_SWEPT) {
            if removed == MOST_REMOVED {
                break;
            }
            self.sweep_at = if self.sweep_at + 1 < all { self.sweep_at + 1 } else { 0 };
            let flow = &self.store.flows[self.sweep_at];
            let age = u64::from(self.now.0.saturating_sub(flow.last_used.0));
            if flow.stamp != 0 && age >= idle {
                self.remove(self.sweep_at as u32);
                removed += 1;
            }
        }
        removed
    }
}
