//! The subtables in the order of a search.

use std::sync::Arc;

use super::signature::Signature;
use super::subtable::Subtable;
use crate::rule::Rank;

/// A chunk of more slots is cut in two.
const FULL: usize = 64;

/// A subtable's place in the order: its best rank, then its number, because one
/// rule may be the best of several subtables.
pub(super) type Place = (Rank, u64);

/// A subtable, and beside it what a search wants to know before it looks inside.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    /// The prefixes that its mask asks for.
    pub(super) signature: Signature,
    pub(super) subtable: Arc<Subtable>,
}

/// Subtables, the one with the best rule first, in chunks that copies share.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    chunks: Vec<Arc<Vec<Slot>>>,
    len: usize,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flat_map(|c| c.iter())
    }

    /// Where the slot of `place` is, or would be.
    fn position(&self, place: Place) -> (usize, Result<usize, usize>) {
        let last = self.chunks.len().saturating_sub(1);
        let starts_later = |c: &Arc<Vec<Slot>>| c[0].place <= place;
        let chunk = self.chunks.partition_point(starts_later).saturating_sub(1).min(last);
        let slots = self.chunks.get(chunk).map_or(&[][..], |c| c);
        (chunk, slots.binary_search_by_key(&place, |s| s.place))
    }

    pub(super) fn get(&self, place: Place) -> Option<&Slot> {
        let (chunk, at) = self.position(place);
        Some(&self.chunks[chunk][at.ok()?])
    }

    /// The subtable of `place`, to be changed. Its place stays what it was.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Subtable> {
        let (chunk, at) = self.position(place);
        let slot = &mut Arc::make_mut(&mut self.chunks[chunk])[at.ok()?];
        Some(Arc::make_mut(&mut slot.subtable))
    }

    pub(super) fn insert(&mut self, slot: Slot) {
        let (chunk, at) = self.position(slot.place);
        let at = at.unwrap_or_else(|at| at);
        self.len += 1;
        let Some(shared) = self.chunks.get_mut(chunk) else {
            self.chunks.push(Arc::new(vec![slot]));
            return;
        };
        let slots = Arc::make_mut(shared);
        slots.insert(at, slot);
        if slots.len() > FULL {
            let later = slots.split_off(FULL / 2);
            self.chunks.insert(chunk + 1, Arc::new(later));
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Slot> {
        let (chunk, at) = self.position(place);
        let at = at.ok()?;
        let slots = Arc::make_mut(&mut self.chunks[chunk]);
        let slot = slots.remove(at);
        if slots.is_empty() {
            self.chunks.remove(chunk);
        }
        self.len -= 1;
        Some(slot)
    }
}
