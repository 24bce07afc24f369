//! The subtables in the order of a search.

use std::sync::Arc;

use super::signature::{PAIRS, Signature};
use super::subtable::Subtable;
use crate::rule::Rank;

/// Slots of a chunk: a bit for each in a word.
const FULL: usize = u64::BITS as usize;

/// A subtable's place in the order: its best rank, then its number, because one
/// rule may be the best of several subtables.
pub(super) type Place = (Rank, u64);

/// A subtable and its place.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) signature: Signature,
    pub(super) subtable: Arc<Subtable>,
}

/// Subtables, the one with the best rule first, in chunks that copies share.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

/// Neighbouring slots; never none.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    slots: Vec<Slot>,
    /// For each pair, the slots that have it, so that one step checks all of them.
    having: [u64; PAIRS],
}

impl Chunk {
    fn new(slots: Vec<Slot>) -> Self {
        let mut chunk = Self { slots: Vec::new(), having: [0; PAIRS] };
        slots.into_iter().for_each(|slot| chunk.insert(chunk.slots.len(), slot));
        chunk
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The best rank of any slot.
    pub(super) fn best(&self) -> Rank {
        self.slots[0].place.0
    }

    /// The slots that have none of `pairs`.
    pub(super) fn without(&self, pairs: &[u8]) -> u64 {
        !self.with(pairs) & u64::MAX >> (FULL - self.slots.len())
    }

    /// The slots that have any of `pairs`.
    pub(super) fn with(&self, pairs: &[u8]) -> u64 {
        pairs.iter().fold(0, |any, pair| any | self.having[usize::from(*pair)])
    }

    /// The slots that have just one of `pairs`.
    pub(super) fn with_one(&self, pairs: &[u8]) -> u64 {
        let count = |(any, more): (u64, u64), pair: &u8| {
            let having = self.having[usize::from(*pair)];
            (any | having, more | any & having)
        };
        let (any, more) = pairs.iter().fold((0, 0), count);
        any & !more
    }

    fn insert(&mut self, at: usize, slot: Slot) {
        let before = !(u64::MAX << at);
        for slots in &mut self.having {
            *slots = *slots & before | (*slots & !before) << 1;
        }
        for pair in slot.signature.pairs() {
            self.having[usize::from(pair)] |= 1 << at;
        }
        self.slots.insert(at, slot);
    }

    fn remove(&mut self, at: usize) -> Slot {
        let before = !(u64::MAX << at);
        for slots in &mut self.having {
            *slots = *slots & before | *slots >> 1 & !before;
        }
        self.slots.remove(at)
    }

    /// Removes the slots from `at` on.
    fn split_off(&mut self, at: usize) -> Self {
        self.having.iter_mut().for_each(|slots| *slots &= !(u64::MAX << at));
        Self::new(self.slots.split_off(at))
    }
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slots, in chunks.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().map(|c| &**c)
    }

    /// Where the slot of `place` is, or would be.
    fn position(&self, place: Place) -> (usize, Result<usize, usize>) {
        let starts_no_later = |c: &Arc<Chunk>| c.slots[0].place <= place;
        let chunk = self.chunks.partition_point(starts_no_later).saturating_sub(1);
        let slots = self.chunks.get(chunk).map_or(&[][..], |c| &c.slots);
        (chunk, slots.binary_search_by_key(&place, |s| s.place))
    }

    pub(super) fn get(&self, place: Place) -> Option<&Subtable> {
        let (chunk, at) = self.position(place);
        Some(&self.chunks[chunk].slots[at.ok()?].subtable)
    }

    /// The subtable of `place`, to be changed. Its place does not change.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Subtable> {
        let (chunk, at) = self.position(place);
        let slot = &mut Arc::make_mut(&mut self.chunks[chunk]).slots[at.ok()?];
        Some(Arc::make_mut(&mut slot.subtable))
    }

    pub(super) fn insert(&mut self, slot: Slot) {
        let (chunk, at) = self.position(slot.place);
        let at = at.unwrap_or_else(|at| at);
        self.len += 1;
        let Some(shared) = self.chunks.get_mut(chunk) else {
            self.chunks.push(Arc::new(Chunk::new(vec![slot])));
            return;
        };
        if shared.slots.len() < FULL {
            Arc::make_mut(shared).insert(at, slot);
            return;
        }
        // Where subtables come in order, chunks are to be full.
        let later = if at == FULL {
            Chunk::new(vec![slot])
        } else {
            let full = Arc::make_mut(shared);
            let mut later = full.split_off(FULL / 2);
            match at.checked_sub(FULL / 2) {
                Some(at) => later.insert(at, slot),
                None => full.insert(at, slot),
            }
            later
        };
        self.chunks.insert(chunk + 1, Arc::new(later));
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Slot> {
        let (chunk, at) = self.position(place);
        let at = at.ok()?;
        let slot = Arc::make_mut(&mut self.chunks[chunk]).remove(at);
        if self.chunks[chunk].slots.is_empty() {
            self.chunks.remove(chunk);
        }
        self.len -= 1;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Rule, RuleId};
    use thalweg_packet::{FlowKey, PacketType};

    fn slot(number: u32) -> Slot {
        let rule = Rule {
            id: RuleId(number),
            priority: 0,
            matches: Vec::new(),
            packet_type: PacketType(0),
            text: String::new(),
        };
        let mut signature = Signature::default();
        signature.add(number as u8);
        signature.add(number as u8 / 2 + 100);
        let subtable = Arc::new(Subtable::new(FlowKey::default()));
        Slot { place: (rule.rank(), 0), signature, subtable }
    }

    /// Whether `order` holds just the slots of `numbers`, in order.
    fn holds(order: &Order, numbers: &[u32]) -> bool {
        let mut expected = numbers.iter();
        let agree = order.chunks().all(|chunk| {
            chunk.slots().iter().enumerate().all(|(at, slot)| {
                let Some(&number) = expected.next() else { return false };
                let (own, shared) = (number as u8, number as u8 / 2 + 100);
                let is = |slots: u64| slots == 1 << at;
                slot.place == self::slot(number).place
                    && is(chunk.with(&[own]))
                    && is(!chunk.without(&[own]) & chunk.with(&[own, shared]) & 1 << at)
                    && chunk.with_one(&[own, shared]) & 1 << at == 0
            })
        });
        agree && expected.next().is_none() && order.len() == numbers.len()
    }

    #[test]
    fn slots_stay_in_order_and_keep_their_pairs() {
        // Upwards, downwards, and from the middle, over several chunks.
        let middle = (0..99).map(|n| n * 50 % 99);
        for numbers in [(0..99).collect::<Vec<u32>>(), (0..99).rev().collect(), middle.collect()] {
            let mut order = Order::default();
            let mut there = Vec::new();
            for number in &numbers {
                order.insert(slot(*number));
                there.push(*number);
                there.sort_unstable();
                assert!(holds(&order, &there), "{there:?}");
            }
            let whole = order.clone();
            for number in numbers {
                assert!(order.get(slot(number).place).is_some());
                assert!(order.remove(slot(number).place).is_some());
                assert!(order.remove(slot(number).place).is_none());
                there.retain(|n| *n != number);
                assert!(holds(&order, &there), "{there:?}");
            }
            assert!(holds(&whole, &(0..99).collect::<Vec<_>>()));
        }
    }
}
