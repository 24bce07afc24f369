//! Flows and the state of an NF for them, in the cuckoo table of `thalweg-classify`.
//!
//! The table maps a flow to a slot, and the slots hold flow and value side by side. The flows of a
//! whole batch are looked up together, and the slots found are prefetched: a packet then waits for
//! memory together with the others of its batch, not after them.

mod index;
mod slots;
mod unit_index;

pub use thalweg_classify::cuckoo::NoPlace;
use thalweg_packet::{BATCH, Lanes};

use crate::steering::{Steering, Units};
use slots::Slots;
use unit_index::UnitIndex;

pub use index::Index;
pub use slots::Hand;
pub use unit_index::MOVE_STEP;

/// The identity of a flow, as `W` words: equal words only for equal flows.
pub trait FlowWords<const W: usize>: Copy + Eq {
    /// The words of this flow.
    fn words(&self) -> [u64; W];
}

/// The slot of a flow's value, valid while the table holds the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u32);

/// The slots of a batch's flows, in the order of the lookup.
#[derive(Clone, Debug, Default)]
pub struct Found {
    slots: [u32; BATCH],
    there: u32,
}

impl Found {
    /// The slot of flow `n`, if it was found.
    pub fn slot(&self, n: usize) -> Option<Slot> {
        (self.there >> n & 1 == 1).then(|| Slot(self.slots[n]))
    }

    /// All slots that were found.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        Lanes(self.there).into_iter().map(|n| Slot(self.slots[n]))
    }
}

/// Looks up the flows of a batch in `index`.
///
/// # Panics
/// When there are more flows than a batch holds.
pub fn find<K: FlowWords<W>, const W: usize>(
    index: &Index<W>,
    flows: impl Iterator<Item = K>,
) -> Found {
    let mut words = [[0; W]; BATCH];
    let mut count = 0;
    for flow in flows {
        words[count] = flow.words();
        count += 1;
    }
    find_words(index, &words[..count])
}

/// The same for flows given as words.
fn find_words<const W: usize>(index: &Index<W>, words: &[[u64; W]]) -> Found {
    /// A step takes as long for a few flows as for many: no longer than so many lookups one by one.
    const FEW: usize = 8;
    let mut slots = [0; BATCH];
    if words.len() > FEW {
        let there = index.get_step(words, &mut slots);
        return Found { slots, there };
    }
    let mut there = 0;
    for (n, flow) in words.iter().enumerate() {
        if let Some(slot) = index.get(flow) {
            slots[n] = slot;
            there |= 1 << n;
        }
    }
    Found { slots, there }
}

/// The flows of an NF, in one section or in several: sets of flows with limits of their own, each of
/// which can be walked through by itself.
///
/// Nothing that it does between two batches takes long: it grows page by page, its index moves a few
/// entries with each flow that begins, and [`least`](Self::least) finds a flow to evict among a few.
#[derive(Debug)]
pub struct FlowTable<K, V, const W: usize> {
    index: Index<W>,
    slots: Slots<(K, V)>,
    /// Present while units move.
    by_unit: Option<UnitIndex<K>>,
}

/// A walk through the flows of a section, some at a time.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    section: usize,
    /// The numbers within the section of the next slot, and of the one where the walk ends.
    next: usize,
    end: usize,
}

/// The most that a [step of a walk](FlowTable::extract_some) does.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Slots that it visits.
    pub slots: usize,
    /// Flows that it removes.
    pub flows: usize,
}

impl Most {
    /// The whole section.
    pub const ALL: Self = Self { slots: usize::MAX, flows: usize::MAX };
}

impl<K, V, const W: usize> FlowTable<K, V, W>
where
    K: FlowWords<W> + Send + 'static,
    V: Send + 'static,
{
    /// A table without flows, in one section, for up to `most` flows.
    pub fn new(most: usize) -> Self {
        Self::with_sections(1, most)
    }

    /// A table without flows, in several sections, for up to `most` flows in all.
    ///
    /// # Panics
    /// When there is no section, or more than 65,536.
    pub fn with_sections(sections: usize, most: usize) -> Self {
        Self { index: Index::new(most), slots: Slots::new(sections), by_unit: None }
    }

    /// The bytes of a table that has grown to `flows` flows, without the memory that their values
    /// refer to.
    pub fn bytes(flows: usize) -> usize {
        let slots = flows.next_multiple_of(slots::PAGE);
        Index::<W>::bytes(flows) + slots * size_of::<Option<(K, V)>>()
    }

    /// Sets the number of flows that the table is to take without holding packets up; it takes more.
    pub fn limit(&mut self, most: usize) {
        self.index.limit(most);
    }

    /// The number of flows in a section.
    #[inline]
    pub fn len_of(&self, section: usize) -> usize {
        self.slots.entries_of(section)
    }

    /// The section of a slot.
    #[inline]
    pub fn section_of(&self, Slot(at): Slot) -> usize {
        self.slots.section_of(at as usize)
    }

    /// The number of flows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks up the flows of a batch, and prefetches their values.
    ///
    /// # Panics
    /// When there are more flows than a batch holds.
    pub fn find(&mut self, flows: impl Iterator<Item = K>) -> Found {
        self.settle();
        let found = find(&self.index, flows);
        found.slots().for_each(|slot| self.ask_for(slot));
        found
    }

    /// As [`find`](Self::find), for flows given as [words](FlowWords::words), and without
    /// [`settle`](Self::settle).
    ///
    /// # Panics
    /// Likewise.
    pub fn find_words(&self, flows: &[[u64; W]]) -> Found {
        let found = find_words(&self.index, flows);
        found.slots().for_each(|slot| self.ask_for(slot));
        found
    }

    /// Goes on with growing, if the table grows: for each batch whose flows are not looked up together.
    #[inline]
    pub fn settle(&mut self) {
        self.index.settle();
    }

    /// Prefetches the memory of a slot.
    #[inline]
    pub fn ask_for(&self, Slot(at): Slot) {
        self.slots.prefetch(at as usize);
    }

    /// The slot of `flow`.
    pub fn slot(&self, flow: &K) -> Option<Slot> {
        self.index.get(&flow.words()).map(Slot)
    }

    /// What is known of `flow`.
    pub fn get(&self, flow: &K) -> Option<&V> {
        self.slot(flow).and_then(|slot| self.at(slot)).map(|(_, value)| value)
    }

    /// The slot of `flow`; `hint` is the slot of an earlier lookup, if that found the flow.
    pub fn slot_now(&self, hint: Option<Slot>, flow: &K) -> Option<Slot> {
        hint.filter(|slot| self.has(*slot, flow)).or_else(|| self.slot(flow))
    }

    /// Whether `flow` is in `slot`.
    #[inline]
    pub fn has(&self, slot: Slot, flow: &K) -> bool {
        // Comparing arrays of more than four words calls a function.
        let differs = |known: &K| {
            let words = known.words().into_iter().zip(flow.words());
            words.fold(0, |all, (known, word)| all | known ^ word) != 0
        };
        self.at(slot).is_some_and(|(known, _)| !differs(known))
    }

    /// The value of `flow`; `hint` is the slot of an earlier lookup, if that found the flow.
    pub fn get_mut(&mut self, hint: Option<Slot>, flow: &K) -> Option<&mut V> {
        let slot = self.slot_now(hint, flow)?;
        self.at_mut(slot).map(|(_, value)| value)
    }

    /// The flow in `slot`.
    #[inline]
    pub fn at(&self, slot: Slot) -> Option<&(K, V)> {
        self.slots.get(slot.0 as usize)
    }

    /// The same, with a mutable value.
    #[inline]
    pub fn at_mut(&mut self, slot: Slot) -> Option<(&K, &mut V)> {
        self.slots.get_mut(slot.0 as usize).map(|(flow, value)| (&*flow, value))
    }

    /// Makes room for `more` flows in the index, at once.
    pub fn reserve(&mut self, more: usize) {
        self.index.reserve(more);
    }

    /// Inserts a flow that the table does not hold, into the first section.
    ///
    /// # Errors
    /// When all its places are taken: improbable unless the flows were chosen to collide.
    pub fn insert(&mut self, flow: K, value: V) -> Result<Slot, NoPlace> {
        self.insert_in(0, flow, value)
    }

    /// Inserts a flow that the table does not hold, into a section.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_in(&mut self, section: usize, flow: K, value: V) -> Result<Slot, NoPlace> {
        let slot = self.slots.next_free(section);
        self.index.try_insert(&flow.words(), slot as u32)?;
        if let Some(by_unit) = &mut self.by_unit {
            by_unit.taken(slot, &flow);
        }
        self.slots.fill(slot, (flow, value));
        Ok(Slot(slot as u32))
    }

    /// Inserts all of `coming` into the first section; returns the entries whose flow the table
    /// already holds, or has no place for.
    pub fn extend(&mut self, coming: Vec<Option<(K, V)>>) -> Vec<(K, V)> {
        self.reserve(coming.len());
        let mut refused = Vec::new();
        for (flow, value) in coming.into_iter().flatten() {
            let slot = self.slots.next_free(0);
            if !self.index_new(&flow.words(), slot as u32) {
                refused.push((flow, value));
                continue;
            }
            if let Some(by_unit) = &mut self.by_unit {
                by_unit.taken(slot, &flow);
            }
            self.slots.fill(slot, (flow, value));
        }
        refused
    }

    /// Indexes the slot of a flow, unless the flow already has another or there is no place.
    fn index_new(&mut self, words: &[u64; W], slot: u32) -> bool {
        let before = self.index.try_insert(words, slot);
        if let Ok(Some(known)) = before {
            // Restores the previous number; a replacement cannot fail.
            let _ = self.index.try_insert(words, known);
        }
        before == Ok(None)
    }

    /// Takes out `flow`; returns what was known of it.
    pub fn remove(&mut self, flow: &K) -> Option<V> {
        let slot = self.index.remove(&flow.words())?;
        self.vacate(slot as usize).map(|(_, value)| value)
    }

    /// Takes out the flow in `slot`.
    pub fn remove_at(&mut self, Slot(slot): Slot) -> Option<(K, V)> {
        let left = self.vacate(slot as usize)?;
        self.index.remove(&left.0.words());
        Some(left)
    }

    /// Frees the slot of a flow that is no longer in the index.
    fn vacate(&mut self, slot: usize) -> Option<(K, V)> {
        let left = self.slots.take(slot)?;
        if let Some(by_unit) = &mut self.by_unit {
            by_unit.freed(slot, &left.0);
        }
        Some(left)
    }

    /// The flow of a section to evict: that of least worth among the next eight which have a `worth`;
    /// `None` if no flow has. The section's `hand` notes how far the search has come.
    ///
    /// The eight lie far apart. With the time of its last packet as the worth of a flow, a full section
    /// evicts as a cache does whose sets of eight take turns: nearly the least recently used flow of
    /// all, but in a set whose flows are all in use one of them.
    pub fn least<R: Ord>(
        &self,
        section: usize,
        hand: &mut Hand,
        worth: impl Fn(&K, &V) -> Option<R>,
    ) -> Option<Slot> {
        let slot = self.slots.least(section, hand, |(flow, value)| worth(flow, value))?;
        Some(Slot(slot as u32))
    }

    /// Evicts the flow of a section that [`least`](Self::least) returns, all flows having a `worth`.
    pub fn evict<R: Ord>(
        &mut self,
        section: usize,
        hand: &mut Hand,
        worth: impl Fn(&K, &V) -> R,
    ) -> Option<(K, V)> {
        let slot = self.least(section, hand, |flow, value| Some(worth(flow, value)))?;
        self.remove_at(slot)
    }

    /// A walk through the flows that a section holds now. Flows that begin while it lasts may be
    /// visited, or may not.
    pub fn walk(&self, section: usize) -> Walk {
        Walk { section, next: 0, end: self.slots.slots_of(section) }
    }

    /// Goes some steps further on a walk, and removes the flows for which `reason` returns one, which
    /// go to `gone` with it; returns whether the walk is complete.
    pub fn extract_some<R>(
        &mut self,
        walk: &mut Walk,
        most: Most,
        reason: impl Fn(&K, &V) -> Option<R>,
        mut gone: impl FnMut(K, V, R),
    ) -> bool {
        // An empty table has given its slots back.
        let end = walk.end.min(self.slots.slots_of(walk.section));
        let until = end.min(walk.next.saturating_add(most.slots));
        let mut flows = 0;
        while walk.next < until && flows < most.flows {
            let slot = self.slots.slot_of(walk.section, walk.next);
            walk.next += 1;
            let why = self.slots.get(slot).and_then(|(flow, value)| reason(flow, value));
            if let Some(why) = why
                && let Some((flow, value)) = self.remove_at(Slot(slot as u32))
            {
                flows += 1;
                gone(flow, value, why);
            }
        }
        let is_complete = walk.next >= end;
        if is_complete {
            self.tidy();
        }
        is_complete
    }

    /// Whether a walk has not come to the flow in `slot`, if it began with the flow in its section.
    pub fn is_ahead(&self, walk: &Walk, Slot(slot): Slot) -> bool {
        let reached = (walk.next < walk.end).then(|| self.slots.slot_of(walk.section, walk.next));
        // The pages of a section are in the order in which it has grown.
        reached.is_some_and(|reached| slot as usize >= reached)
    }

    /// Removes the flows that `reason` returns a reason for, and passes them to `gone` with it.
    pub fn extract_if<R>(
        &mut self,
        reason: impl Fn(&K, &V) -> Option<R>,
        mut gone: impl FnMut(K, V, R),
    ) {
        for section in 0..self.slots.sections() {
            let mut walk = self.walk(section);
            self.extract_some(&mut walk, Most::ALL, &reason, &mut gone);
        }
    }

    /// Forgets all flows, and takes a new hash key.
    pub fn clear(&mut self) {
        self.index.clear();
        self.slots.clear();
        self.by_unit = None;
    }

    /// Frees the memory of an empty table, and takes a new hash key; not while units move, because
    /// flows begin again soon, and the index by unit is of these slots.
    fn tidy(&mut self) {
        if self.is_empty() && self.slots.len() > 0 && self.by_unit.is_none() {
            self.clear();
        }
    }

    /// Begins to index the flows by unit, or continues, with at most
    /// [`MOVE_STEP`] slots; returns whether all are indexed. `bucket` returns the
    /// bucket of a flow, the same for all calls. Other units than before begin a new index.
    pub fn index_units(&mut self, units: Units, bucket: fn(&K, Steering) -> u16) -> bool {
        let Self { slots, by_unit, .. } = self;
        let known = by_unit.take().filter(|index| index.units() == units);
        let index =
            by_unit.insert(known.unwrap_or_else(|| UnitIndex::new(units, bucket, slots.len())));
        index.go_on(slots.len(), |slot| slots.get(slot).map(|(flow, _)| flow))
    }

    /// The flows of a unit, in arbitrary order: those that are indexed.
    pub fn unit(&self, unit: u16) -> impl Iterator<Item = (&K, &V)> {
        let slots = self.by_unit.iter().flat_map(move |index| index.slots(unit));
        slots.filter_map(|slot| self.slots.get(slot)).map(|(flow, value)| (flow, value))
    }

    /// Removes the flows of a unit, and passes them to `gone`.
    pub fn take_unit(&mut self, unit: u16, mut gone: impl FnMut(K, V)) {
        while let Some(slot) = self.by_unit.as_ref().and_then(|index| index.slots(unit).next()) {
            let Some((flow, value)) = self.remove_at(Slot(slot as u32)) else { return };
            gone(flow, value);
        }
    }

    /// Drops the index by unit.
    pub fn end_units(&mut self) {
        self.by_unit = None;
        self.tidy();
    }

    /// The flows of a section, in arbitrary order.
    pub fn iter_in(&self, section: usize) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter_in(section).map(|(flow, value)| (flow, value))
    }

    /// All flows, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().map(|(flow, value)| (flow, value))
    }
}

#[cfg(test)]
mod tests;
