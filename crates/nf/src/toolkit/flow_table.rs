//! Flows and the state of an NF for them, in the cuckoo table of `thalweg-classify`.
//!
//! The table maps a flow to a slot, and the slots hold flow and value side by side. The flows of a
//! whole batch are looked up together, and the slots found are prefetched: a packet then waits for
//! memory together with the others of its batch, not after them.

use arrayvec::ArrayVec;
pub use thalweg_classify::cuckoo::NoPlace;
use thalweg_classify::cuckoo::{self, HashKind};
use thalweg_cpu::prefetch;
use thalweg_packet::{BATCH, Lanes};

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

/// An empty index with a secret hash key.
pub fn index<const W: usize>() -> Index<W> {
    let mut seed = [0; 4];
    // Without random numbers from the system a sender can choose colliding flows; then they are
    // refused.
    let _ = getrandom::fill(&mut seed);
    cuckoo::table(FIRST, HashKind::Nh, u32::from_ne_bytes(seed)).0
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
        Self { index: index(), slots: Vec::new(), sections, owners: Vec::new() }
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
        self.slots.reserve(more.saturating_sub(free));
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
            let words = self.slots[slot].as_ref().map(|(flow, _)| flow.words());
            if words.is_none_or(|words| !self.index_new(&words, slot as u32)) {
                self.sections[0].free.push(slot as u32);
                refused.extend(self.slots[slot].take());
            } else {
                self.sections[0].flows += 1;
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
        let section = self.section_of(Slot(slot));
        self.sections[section].free.push(slot);
        self.sections[section].flows -= 1;
        self.slots[slot as usize].take().map(|(_, value)| value)
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
            let slot = &mut self.slots[at];
            let why = slot.as_ref().and_then(|(flow, value)| reason(flow, value));
            let Some((why, (flow, value))) = why.and_then(|why| Some((why, slot.take()?))) else {
                continue;
            };
            self.index.remove(&flow.words());
            self.sections[section].free.push(at as u32);
            self.sections[section].flows -= 1;
            gone(flow, value, why);
        }
        if self.is_empty() && !self.slots.is_empty() {
            // Frees the memory, and takes a new hash key.
            *self = Self::with_sections(self.sections.len());
        }
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
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    impl FlowWords<1> for u64 {
        fn words(&self) -> [u64; 1] {
            [*self]
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(Vec<u64>),
        Extend(Vec<Option<u64>>),
        Remove(u64),
        Batch(Vec<u64>),
        TakeMultiples(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let flow = 0u64..400;
        prop_oneof![
            proptest::collection::vec(flow.clone(), 1..100).prop_map(Step::Put),
            proptest::collection::vec(proptest::option::of(flow.clone()), 0..100)
                .prop_map(Step::Extend),
            flow.clone().prop_map(Step::Remove),
            proptest::collection::vec(flow, 0..=BATCH).prop_map(Step::Batch),
            (1u64..5).prop_map(Step::TakeMultiples),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec(step(), 1..60)) {
            let mut table = FlowTable::<u64, u64, 1>::new();
            let mut model = BTreeMap::new();
            for (n, step) in (0u64..).zip(steps) {
                match step {
                    Step::Put(flows) => for flow in flows {
                        match table.get_mut(None, &flow) {
                            Some(value) => *value = n,
                            // Improbable, with the hash key of some table.
                            None => prop_assume!(table.insert(flow, n).is_ok()),
                        }
                        model.insert(flow, n);
                    },
                    Step::Extend(flows) => {
                        let coming = flows.iter().map(|flow| Some((flow.as_ref().copied()?, n)));
                        let refused = table.extend(coming.collect());
                        let mut known = Vec::new();
                        for flow in flows.into_iter().flatten() {
                            match model.entry(flow) {
                                Entry::Occupied(_) => known.push((flow, n)),
                                Entry::Vacant(entry) => drop(entry.insert(n)),
                            }
                        }
                        prop_assert_eq!(refused, known);
                    }
                    Step::Remove(flow) => prop_assert_eq!(table.remove(&flow), model.remove(&flow)),
                    Step::Batch(flows) => {
                        let found = table.find(flows.iter().copied());
                        for (at, flow) in flows.iter().enumerate() {
                            prop_assert_eq!(found.slot(at).is_some(), model.contains_key(flow));
                            let value = table.get_mut(found.slot(at), flow).copied();
                            prop_assert_eq!(value, model.get(flow).copied());
                        }
                    }
                    Step::TakeMultiples(of) => {
                        let mut taken = BTreeMap::new();
                        let reason = |flow: &u64, _: &u64| flow.is_multiple_of(of).then_some(of);
                        table.extract_if(reason, |flow, value, _| { taken.insert(flow, value); });
                        let (gone, kept): (BTreeMap<u64, u64>, _) =
                            model.into_iter().partition(|(flow, _)| flow.is_multiple_of(of));
                        model = kept;
                        prop_assert_eq!(taken, gone);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let all: BTreeMap<_, _> = table.iter().map(|(flow, value)| (*flow, *value)).collect();
            prop_assert_eq!(all, model);
        }
    }

    proptest! {
        /// Flows stay in their sections, which can be walked through and emptied one by one.
        #[test]
        fn sections_are_walked_through_one_by_one(
            flows in proptest::collection::btree_set(0u64..4000, 0..1500),
            of in 1u64..5,
        ) {
            let mut table = FlowTable::<u64, u64, 1>::with_sections(3);
            let mut model = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
            for flow in flows {
                let section = (flow / 7 % 3) as usize;
                let slot = table.insert_in(section, flow, flow + 1);
                prop_assume!(slot.is_ok());
                prop_assert_eq!(table.section_of(slot.unwrap()), section);
                model[section].insert(flow, flow + 1);
            }
            let reason = |flow: &u64, _: &u64| flow.is_multiple_of(of).then_some(());
            let mut gone = 0;
            table.extract_if_in(1, reason, |flow, _, ()| {
                gone += usize::from(model[1].remove(&flow).is_some());
            });
            prop_assert!(model[1].keys().all(|flow| !flow.is_multiple_of(of)));
            table.each_in(2, |value| *value += 1);
            model[2].values_mut().for_each(|value| *value += 1);
            if let Some((flow, value)) = model[0].pop_first() {
                prop_assert_eq!(table.remove(&flow), Some(value));
            }
            for (section, model) in model.iter().enumerate() {
                let all: BTreeMap<_, _> = table.iter_in(section).map(|(k, v)| (*k, *v)).collect();
                prop_assert_eq!(&all, model);
                prop_assert_eq!(table.len_of(section), model.len());
            }
            prop_assert_eq!(table.len(), model.iter().map(BTreeMap::len).sum::<usize>());
        }
    }

    #[test]
    fn a_slot_that_another_flow_has_now_is_not_taken_for_the_flow() {
        let mut table = FlowTable::<u64, &str, 1>::new();
        table.insert(1, "one").unwrap();
        let found = table.find([1].into_iter());
        table.remove(&1);
        table.insert(2, "two").unwrap();
        assert_eq!(table.get_mut(found.slot(0), &1), None);
        table.insert(1, "again").unwrap();
        assert_eq!(table.get_mut(found.slot(0), &1), Some(&mut "again"));
    }
}
