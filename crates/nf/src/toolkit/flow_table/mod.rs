//! Flows and the state of an NF for them, in the cuckoo table of `thalweg-classify`.
//!
//! The table maps a flow to a slot, and the slots hold flow and value side by side. The flows of a
//! whole batch are looked up together, and the slots found are prefetched: a packet then waits for
//! memory together with the others of its batch, not after them.

mod unit_index;

use arrayvec::ArrayVec;
use thalweg_classify::cuckoo;
pub use thalweg_classify::cuckoo::NoPlace;
use thalweg_cpu::prefetch;
use thalweg_packet::{BATCH, Lanes};

use crate::steering::{Steering, Units};
use unit_index::UnitIndex;

pub use unit_index::MOVE_STEP;

/// The initial capacity, in flows.
const FIRST: usize = 1024;

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

/// An index that maps each flow to a number.
pub type Index<const W: usize> = cuckoo::Writer<W>;

/// An empty index whose hash has secret keys of its own.
pub fn index<const W: usize>() -> Index<W> {
    cuckoo::secret_table(FIRST)
}

/// The bytes of an [`index()`] that has grown to `flows` flows.
pub fn index_bytes<const W: usize>(flows: usize) -> usize {
    cuckoo::bytes::<W>(FIRST, flows)
}

/// Makes room for `more` flows and some slack: an index that is almost full must move entries.
pub fn make_room<const W: usize>(index: &mut Index<W>, more: usize) {
    index.reserve(more + more / 2);
}

/// Looks up the flows of a batch in `index`.
///
/// # Panics
/// When there are more flows than a batch holds.
pub fn find<K: FlowWords<W>, const W: usize>(
    index: &Index<W>,
    flows: impl Iterator<Item = K>,
) -> Found {
    let words: ArrayVec<[u64; W], BATCH> = flows.map(|flow| flow.words()).collect();
    let mut slots = [0; BATCH];
    // A step takes as long for a few flows as for many.
    let there = if words.is_empty() { 0 } else { index.get_step(&words, &mut slots) };
    Found { slots, there }
}

/// The slots of a page: in a table with several sections each page belongs to one of them.
const PAGE: usize = 256;

/// The flows of an NF, in one section or in several: sets of flows with limits of their own, each of
/// which can be walked through by itself.
#[derive(Debug)]
pub struct FlowTable<K, V, const W: usize> {
    index: Index<W>,
    slots: Vec<Option<(K, V)>>,
    sections: Vec<Section>,
    /// The section of each page; empty in a table with one section.
    owners: Vec<u16>,
    /// Present while units move.
    by_unit: Option<UnitIndex<K>>,
}

/// A section of a table.
#[derive(Clone, Debug, Default)]
struct Section {
    free: Vec<u32>,
    /// Its pages, in a table with several sections.
    pages: Vec<u32>,
    flows: usize,
}

impl<K: FlowWords<W>, V, const W: usize> Default for FlowTable<K, V, W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: FlowWords<W>, V, const W: usize> FlowTable<K, V, W> {
    /// A table without flows, in one section.
    pub fn new() -> Self {
        Self::with_sections(1)
    }

    /// A table without flows, in several sections.
    ///
    /// # Panics
    /// When there is none, or more than 65,536.
    pub fn with_sections(sections: usize) -> Self {
        assert!((1..=1 << 16).contains(&sections), "a table of {sections} sections");
        let sections = vec![Section::default(); sections];
        Self { index: index(), slots: Vec::new(), sections, owners: Vec::new(), by_unit: None }
    }

    /// The bytes of a table that has grown to `flows` flows, without the memory that their values
    /// refer to. The slots grow by doubling.
    pub fn bytes(flows: usize) -> usize {
        let slots = flows.checked_next_power_of_two().unwrap_or(flows);
        index_bytes::<W>(flows) + slots * size_of::<Option<(K, V)>>()
    }

    /// The number of flows in a section.
    #[inline]
    pub fn len_of(&self, section: usize) -> usize {
        self.sections[section].flows
    }

    /// The section of a slot.
    #[inline]
    pub fn section_of(&self, Slot(at): Slot) -> usize {
        self.owners.get(at as usize / PAGE).map_or(0, |section| usize::from(*section))
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
    pub fn find(&self, flows: impl Iterator<Item = K>) -> Found {
        let found = find(&self.index, flows);
        found.slots().for_each(|slot| self.ask_for(slot));
        found
    }

    /// Prefetches the memory of a slot.
    #[inline]
    pub fn ask_for(&self, Slot(at): Slot) {
        prefetch::whole(&self.slots, at as usize);
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
        let still = |slot: &Slot| self.at(*slot).is_some_and(|(known, _)| known == flow);
        hint.filter(still).or_else(|| self.slot(flow))
    }

    /// The value of `flow`; `hint` is the slot of an earlier lookup, if that found the flow.
    pub fn get_mut(&mut self, hint: Option<Slot>, flow: &K) -> Option<&mut V> {
        let slot = self.slot_now(hint, flow)?;
        self.at_mut(slot).map(|(_, value)| value)
    }

    /// The flow in `slot`.
    #[inline]
    pub fn at(&self, slot: Slot) -> Option<&(K, V)> {
        self.slots.get(slot.0 as usize)?.as_ref()
    }

    /// The same, with a mutable value.
    pub fn at_mut(&mut self, slot: Slot) -> Option<(&K, &mut V)> {
        self.slots.get_mut(slot.0 as usize)?.as_mut().map(|(flow, value)| (&*flow, value))
    }

    /// Makes room for `more` flows.
    pub fn reserve(&mut self, more: usize) {
        make_room(&mut self.index, more);
        let free: usize = self.sections.iter().map(|section| section.free.len()).sum();
        // Each of several sections may begin one page more than it fills.
        let pages = if self.sections.len() == 1 { 0 } else { self.sections.len() * PAGE };
        self.slots.reserve(more.saturating_sub(free) + pages);
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
        let free = self.sections[section].free.last().copied();
        let slot = free.unwrap_or_else(|| self.grow(section));
        self.index.try_insert(&flow.words(), slot)?;
        if let Some(by_unit) = &mut self.by_unit {
            by_unit.taken(slot as usize, &flow);
        }
        self.slots[slot as usize] = Some((flow, value));
        let section = &mut self.sections[section];
        section.free.pop();
        section.flows += 1;
        Ok(Slot(slot))
    }

    /// Adds free slots to a section without any; returns the one to use next.
    fn grow(&mut self, section: usize) -> u32 {
        let next = self.slots.len() as u32;
        let is_alone = self.sections.len() == 1;
        let more = if is_alone { 1 } else { PAGE };
        self.slots.resize_with(self.slots.len() + more, || None);
        let at = &mut self.sections[section];
        if !is_alone {
            at.pages.push(next / PAGE as u32);
            self.owners.push(section as u16);
        }
        at.free.extend((next..next + more as u32).rev());
        next
    }

    /// The slots of a section.
    fn slots_of(&self, section: usize) -> impl Iterator<Item = usize> + use<K, V, W> {
        let is_alone = self.sections.len() == 1;
        let all = if is_alone { 0..self.slots.len() } else { 0..0 };
        let pages = self.sections[section].pages.clone().into_iter();
        all.chain(pages.flat_map(|page| page as usize * PAGE..(page as usize + 1) * PAGE))
    }

    /// Inserts all of `coming`, whose memory an empty table takes over, into a table of one section;
    /// returns the entries whose flow the table already holds, or has no place for.
    ///
    /// # Panics
    /// When the table has several sections.
    pub fn extend(&mut self, mut coming: Vec<Option<(K, V)>>) -> Vec<(K, V)> {
        assert_eq!(self.sections.len(), 1, "slots of several sections cannot be taken over");
        make_room(&mut self.index, coming.len());
        let first = self.slots.len();
        if first == 0 {
            self.slots = coming;
        } else {
            self.slots.append(&mut coming);
        }
        let mut refused = Vec::new();
        for slot in first..self.slots.len() {
            let flow = self.slots[slot].as_ref().map(|(flow, _)| *flow);
            let Some(flow) = flow.filter(|flow| self.index_new(&flow.words(), slot as u32)) else {
                self.sections[0].free.push(slot as u32);
                refused.extend(self.slots[slot].take());
                continue;
            };
            self.sections[0].flows += 1;
            if let Some(by_unit) = &mut self.by_unit {
                by_unit.taken(slot, &flow);
            }
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

    /// Frees the slot of a flow that is no longer in the index.
    fn vacate(&mut self, slot: usize) -> Option<(K, V)> {
        let left = self.slots[slot].take()?;
        let section = self.section_of(Slot(slot as u32));
        self.sections[section].free.push(slot as u32);
        self.sections[section].flows -= 1;
        if let Some(by_unit) = &mut self.by_unit {
            by_unit.freed(slot, &left.0);
        }
        Some(left)
    }

    /// Removes the flows that `reason` returns a reason for, and passes them to `gone` with it.
    pub fn extract_if<R>(
        &mut self,
        reason: impl Fn(&K, &V) -> Option<R>,
        mut gone: impl FnMut(K, V, R),
    ) {
        for section in 0..self.sections.len() {
            self.extract_if_in(section, &reason, &mut gone);
        }
    }

    /// The same, for the flows of one section.
    pub fn extract_if_in<R>(
        &mut self,
        section: usize,
        reason: impl Fn(&K, &V) -> Option<R>,
        mut gone: impl FnMut(K, V, R),
    ) {
        for at in self.slots_of(section) {
            let why = self.slots[at].as_ref().and_then(|(flow, value)| reason(flow, value));
            let Some((why, (flow, value))) = why.and_then(|why| Some((why, self.vacate(at)?)))
            else {
                continue;
            };
            self.index.remove(&flow.words());
            gone(flow, value, why);
        }
        self.tidy();
    }

    /// Frees the memory of an empty table, and takes a new hash key; not while units move, because
    /// flows begin again soon, and the index by unit is of these slots.
    fn tidy(&mut self) {
        if self.is_empty() && !self.slots.is_empty() && self.by_unit.is_none() {
            *self = Self::with_sections(self.sections.len());
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
        index.go_on(slots.len(), |slot| slots[slot].as_ref().map(|(flow, _)| flow))
    }

    /// The flows of a unit, in arbitrary order: those that are indexed.
    pub fn unit(&self, unit: u16) -> impl Iterator<Item = (&K, &V)> {
        let slots = self.by_unit.iter().flat_map(move |index| index.slots(unit));
        slots.filter_map(|slot| self.slots[slot].as_ref()).map(|(flow, value)| (flow, value))
    }

    /// Removes the flows of a unit, and passes them to `gone`.
    pub fn take_unit(&mut self, unit: u16, mut gone: impl FnMut(K, V)) {
        while let Some(slot) = self.by_unit.as_ref().and_then(|index| index.slots(unit).next()) {
            let Some((flow, value)) = self.vacate(slot) else { return };
            self.index.remove(&flow.words());
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
        let slots = self.slots_of(section).filter_map(|at| self.slots[at].as_ref());
        slots.map(|(flow, value)| (flow, value))
    }

    /// Calls `act` with the value of each flow of a section.
    pub fn each_in(&mut self, section: usize, mut act: impl FnMut(&mut V)) {
        for at in self.slots_of(section) {
            if let Some((_, value)) = &mut self.slots[at] {
                act(value);
            }
        }
    }

    /// All flows, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().flatten().map(|(flow, value)| (flow, value))
    }
}

#[cfg(test)]
mod tests;
