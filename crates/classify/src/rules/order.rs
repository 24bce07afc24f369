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

/// A subtable and its place.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) subtable: Arc<Subtable>,
}

/// Subtables, the one with the best rule first, in chunks that copies share.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

/// Neighbouring slots; never none. Their signatures, which a search compares
/// before it looks at anything else, lie together.
#[derive(Clone, Debug, Default)]
struct Chunk {
    signatures: Vec<Signature>,
    slots: Vec<Slot>,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slots, and their signatures, in runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&[Signature], &[Slot])> {
        self.chunks.iter().map(|c| (&c.signatures[..], &c.slots[..]))
    }

    /// The same, but only the slots that have a better rule than `rank`.
    pub(super) fn runs_before(
        &self,
        rank: Option<Rank>,
    ) -> impl Iterator<Item = (&[Signature], &[Slot])> {
        let is_better = move |slot: &Slot| rank.is_none_or(|rank| slot.place.0 < rank);
        self.runs().take_while(move |(_, slots)| is_better(&slots[0])).map(
            move |(signatures, slots)| {
                let end = slots.partition_point(is_better);
                (&signatures[..end], &slots[..end])
            },
        )
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

    /// The subtable of `place`, to be changed. Its place stays what it was.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Subtable> {
        let (chunk, at) = self.position(place);
        let slot = &mut Arc::make_mut(&mut self.chunks[chunk]).slots[at.ok()?];
        Some(Arc::make_mut(&mut slot.subtable))
    }

    pub(super) fn insert(&mut self, slot: Slot, signature: Signature) {
        let (chunk, at) = self.position(slot.place);
        let at = at.unwrap_or_else(|at| at);
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(Arc::default());
        }
        let run = Arc::make_mut(&mut self.chunks[chunk]);
        run.slots.insert(at, slot);
        run.signatures.insert(at, signature);
        if run.slots.len() > FULL {
            let slots = run.slots.split_off(FULL / 2);
            let signatures = run.signatures.split_off(FULL / 2);
            self.chunks.insert(chunk + 1, Arc::new(Chunk { signatures, slots }));
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<(Slot, Signature)> {
        let (chunk, at) = self.position(place);
        let at = at.ok()?;
        let run = Arc::make_mut(&mut self.chunks[chunk]);
        let removed = (run.slots.remove(at), run.signatures.remove(at));
        if run.slots.is_empty() {
            self.chunks.remove(chunk);
        }
        self.len -= 1;
        Some(removed)
    }
}
