//! Where megaflows and their masks lie.

use thalweg_packet::FlowKey;

use super::flow::{Flow, Layout, WordMask};
use super::rows::Row;
use crate::hash::{self, Hasher, MaskedHalf, murmur3};
use crate::rule::Match;

/// The most flows for which room is reserved.
const MOST_RESERVED: usize = 1 << 20;

/// A mask that megaflows have.
#[derive(Clone, Debug)]
pub(super) struct Subtable {
    pub(super) words: WordMask,
    /// The halves of the mask, for hashing under all of it.
    halves: Vec<MaskedHalf>,
    pub(super) flows: usize,
}

/// Flows by handle, subtables by number.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) flows: Vec<Flow>,
    /// Masked words that a flow has no room for.
    far: Vec<Box<[u64]>>,
    free: Vec<u32>,
    subtables: Vec<Option<Subtable>>,
}

impl Store {
    /// An empty store. Up to `flows`, none of its arrays moves as it grows; untouched, they take no
    /// memory.
    pub(super) fn with_room(flows: usize) -> Self {
        let mut store = Self::default();
        let flows = flows.min(MOST_RESERVED);
        store.flows.reserve_exact(flows);
        store.far.reserve_exact(flows);
        store.free.reserve_exact(flows);
        store
    }

    /// How many flows there are.
    pub(super) fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// How many subtables have flows.
    pub(super) fn subtables(&self) -> usize {
        self.subtables.iter().flatten().count()
    }

    /// The number of the subtable of `mask`, if there is one.
    pub(super) fn find_subtable(&self, mask: &FlowKey) -> Option<u16> {
        let of_mask = |s: &Option<Subtable>| s.as_ref().is_some_and(|s| s.words.mask == *mask);
        self.subtables.iter().position(of_mask).map(|at| at as u16)
    }

    /// A new subtable for `mask`; `None` when there can be no more.
    /// Its flows have the layout `wanted` if they can.
    pub(super) fn add_subtable(&mut self, mask: FlowKey, wanted: Option<Layout>) -> Option<u16> {
        let halves = hash::halves(&mask);
        let subtable = Subtable { words: WordMask::new(mask, wanted), halves, flows: 0 };
        if let Some(at) = self.subtables.iter().position(Option::is_none) {
            self.subtables[at] = Some(subtable);
            return Some(at as u16);
        }
        let number = u16::try_from(self.subtables.len()).ok()?;
        self.subtables.push(Some(subtable));
        Some(number)
    }

    /// Forgets a subtable without flows.
    pub(super) fn remove_subtable(&mut self, number: u16) {
        self.subtables[usize::from(number)] = None;
    }

    /// The subtable `number`, which must be.
    #[inline]
    pub(super) fn subtable(&self, number: u16) -> &Subtable {
        self.subtables[usize::from(number)].as_ref().expect("a subtable with flows is kept")
    }

    fn subtable_mut(&mut self, number: u16) -> &mut Subtable {
        self.subtables[usize::from(number)].as_mut().expect("a subtable with flows is kept")
    }

    /// Stores `flow`, which covers keys like `key`; returns its handle.
    pub(super) fn add(&mut self, mut flow: Flow, key: &FlowKey) -> u32 {
        let subtable = self.subtable_mut(flow.subtable);
        subtable.flows += 1;
        let far;
        (flow.near, far) = subtable.words.split(key);
        if let Some(handle) = self.free.pop() {
            self.flows[handle as usize] = flow;
            self.far[handle as usize] = far;
            return handle;
        }
        self.flows.push(flow);
        self.far.push(far);
        (self.flows.len() - 1) as u32
    }

    /// Forgets the flow `handle`; returns how many its subtable still has.
    pub(super) fn remove(&mut self, handle: u32) -> usize {
        let flow = &mut self.flows[handle as usize];
        flow.stamp = 0;
        let number = flow.subtable;
        self.far[handle as usize] = Box::default();
        self.free.push(handle);
        let subtable = self.subtable_mut(number);
        subtable.flows -= 1;
        subtable.flows
    }

    /// The handles of all flows.
    pub(super) fn handles(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.flows.len() as u32).filter(|h| self.flows[*h as usize].stamp != 0)
    }

    /// Whether the flow `handle` covers the key of which `word` gives the words.
    #[inline]
    pub(super) fn covers(&self, handle: u32, word: impl Fn(usize) -> u64) -> bool {
        let flow = &self.flows[handle as usize];
        let words = &self.subtable(flow.subtable).words;
        words.covers(&flow.near, || &self.far[handle as usize], word)
    }

    /// Whether the flow `handle` covers a key, when that follows from its words
    /// numbered `words`, which are `row`.
    #[inline]
    pub(super) fn covers_row(&self, handle: u32, words: &Layout, row: &Row) -> Option<bool> {
        let flow = &self.flows[handle as usize];
        let mask = &self.subtable(flow.subtable).words;
        if mask.layout() == words { mask.covers_row(&flow.near, row) } else { None }
    }

    /// What the flow `handle` covers.
    pub(super) fn pattern(&self, handle: u32) -> Match {
        let flow = &self.flows[handle as usize];
        let words = &self.subtable(flow.subtable).words;
        Match::new(words.join(&flow.near, &self.far[handle as usize]), words.mask)
    }

    /// The hash of a key under the whole mask of subtable `number`. Subtables
    /// hash differently even where their masked words agree.
    #[inline]
    pub(super) fn full_hash(
        &self,
        hasher: &Hasher,
        number: u16,
        word: impl Fn(usize) -> u64,
    ) -> u32 {
        let h = hasher.masked(&self.subtable(number).halves, word);
        murmur3::finish(murmur3::step(h, u32::from(number)), 4)
    }
}
