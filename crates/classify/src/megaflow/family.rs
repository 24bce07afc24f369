//! Subtables that are searched together.
//!
//! Tuple-space search looks into one hash table a mask, so its cost grows with
//! the number of masks. But masks have bits in common, and keys that agree under
//! a mask agree under the common bits too. So the megaflows of all masks of a
//! family lie in one index, by the hash of the *coarse* mask: the bits that all
//! of them have. One search finds the candidates of all its masks, and each
//! candidate is compared under its own (the idea of Daly et al., "TupleMerge:
//! Fast Software Packet Processing for Online Packet Classification", ToN 2019).
//!
//! Where many flows agree in the coarse bits, their hashes are equal, and a
//! bucket holds only so many. The others lie in a second index by the hash of
//! their whole masks, and the bucket notes the masks for which to look there.

use std::sync::mpsc::Receiver;

use thalweg_packet::{BATCH, FlowKey, Half, Lanes, TransposedKeys};

use super::flow::{Layout, NEAR_WORDS};
use super::index::{Index, Refused};
use super::rows::Rows;
use super::store::Store;
use crate::hash::{self, Hasher, MaskedHalf};

/// The most subtables of a family: the bits of a bucket's note.
pub(super) const MOST_MEMBERS: usize = 64;

/// Bits of addresses and ports that a coarse mask should keep: with fewer, too
/// many flows have the same hash.
const LEAST_WEIGHT: u32 = 16;

/// Flows beyond the coarse index that are no reason to take a family apart.
const FEW: usize = 64;
/// One in this many flows of a family may lie beyond its coarse index.
const CROWDED: usize = 4;

/// The place of a member that is gone: the others keep their bits in the notes.
const GONE: u16 = u16::MAX;

/// The scratch space of a search.
pub(super) struct Tools<'a> {
    pub(super) store: &'a Store,
    pub(super) hasher: &'a Hasher,
    pub(super) rows: Rows,
}

/// The indexes of a family.
#[derive(Debug)]
pub(super) struct Room {
    index: Index,
    beyond: Index,
}

impl Room {
    /// Empty indexes for a family that will have `flows`, and room for more.
    pub(super) fn new(flows: usize) -> Self {
        // Of a few flows, all may lie beyond the coarse index; of many, a quarter, or the family is
        // taken apart.
        let beyond = if flows <= FEW * CROWDED { flows } else { flows / 2 };
        Self { index: Index::with_room(flows), beyond: Index::with_room(beyond) }
    }
}

#[derive(Debug)]
pub(super) struct Family {
    coarse: FlowKey,
    halves: Vec<MaskedHalf>,
    index: Index,
    /// Flows for which the coarse index has no place.
    beyond: Index,
    members: Vec<u16>,
    /// Whether its coarse mask must not lose any more bits.
    settled: bool,
    /// How flows of the first member, and of all others that can, are laid out.
    layout: Layout,
    pub(super) hits: u32,
    pub(super) state: State,
}

/// Whether a family takes flows.
#[derive(Debug)]
pub(super) enum State {
    /// The one family that takes flows of its members.
    Open,
    /// The same; larger indexes are being prepared.
    Waits(Receiver<Room>),
    /// Others have its members now; the flows that it still has move to them. The buckets before this
    /// one are empty, those of the coarse index being followed by those of the other.
    Leaves(usize),
}

/// Bits by which flows differ from each other, as a rule.
fn weight(mask: &FlowKey) -> u32 {
    mask.words.iter().enumerate().fold(0, |sum, (word, bits)| {
        sum + match word {
            // Ports and addresses of the switch, tags, protocols, TTL.
            6 | 9 | 10 | 11 | 17 => 0,
            // EtherType; TCP flags.
            7 => (bits >> 16).count_ones(),
            18 => (bits >> 32).count_ones(),
            _ => bits.count_ones(),
        }
    })
}

impl Family {
    /// A family of one subtable.
    pub(super) fn new(store: &Store, subtable: u16) -> Self {
        let words = &store.subtable(subtable).words;
        let mask = words.mask;
        let Room { index, beyond } = Room::new(0);
        Self {
            coarse: mask,
            halves: hash::halves(&mask),
            index,
            beyond,
            members: vec![subtable],
            settled: false,
            layout: *words.layout(),
            hits: 0,
            state: State::Open,
        }
    }

    /// A family without flows for some of this one's members, and others: its coarse mask has the bits
    /// that all of them have.
    pub(super) fn heir(&self, store: &Store, members: Vec<u16>, room: Room) -> Self {
        let masks = members.iter().map(|m| store.subtable(*m).words.mask);
        let coarse = masks.reduce(|a, b| a.masked(&b)).unwrap_or(self.coarse);
        let halves = hash::halves(&coarse);
        let (settled, layout, hits) = (self.settled, self.layout, self.hits);
        let (Room { index, beyond }, state) = (room, State::Open);
        Self { coarse, halves, index, beyond, members, settled, layout, hits, state }
    }

    /// The number of its flows.
    pub(super) fn len(&self) -> usize {
        self.index.len() + self.beyond.len()
    }

    /// Whether it takes flows of its members.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Leaves(_))
    }

    /// Whether it would take more flows with larger indexes.
    pub(super) fn wants_room(&self) -> bool {
        self.index.wants_room() || self.beyond.wants_room()
    }

    /// Moves the flows of the next bucket to `out`; `false` when all buckets are empty, or it takes
    /// flows.
    pub(super) fn take_bucket(&mut self, out: &mut Vec<u32>) -> bool {
        let State::Leaves(next) = &mut self.state else { return false };
        let (at, buckets) = (*next, self.index.buckets());
        *next += 1;
        let (index, at) = match at.checked_sub(buckets) {
            None => (&mut self.index, at),
            Some(at) => (&mut self.beyond, at),
        };
        let is_there = at < index.buckets();
        if is_there {
            index.take_bucket(at, out);
        }
        is_there
    }

    /// How flows of a new member should be laid out.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The subtables of the family.
    pub(super) fn members(&self) -> impl Iterator<Item = u16> + '_ {
        self.members.iter().copied().filter(|m| *m != GONE)
    }

    /// How good a member `mask` would make, larger being better; `None` when it
    /// would make the others' searches worse.
    pub(super) fn suits(&self, mask: &FlowKey) -> Option<u32> {
        let common = self.coarse.masked(mask);
        let same = common == self.coarse;
        let room = self.is_open() && self.members().count() < MOST_MEMBERS;
        let good = weight(&common) >= LEAST_WEIGHT && (same || !self.settled);
        (room && good).then(|| weight(&common) + if same { 1000 } else { 0 })
    }

    /// Takes in a subtable without flows, whose mask has all bits of the coarse mask; `false` if it has
    /// not.
    pub(super) fn join(&mut self, store: &Store, subtable: u16) -> bool {
        let is_finer = self.coarse.masked(&store.subtable(subtable).words.mask) == self.coarse;
        if is_finer {
            match self.members.iter_mut().find(|m| **m == GONE) {
                Some(place) => *place = subtable,
                None => self.members.push(subtable),
            }
        }
        is_finer
    }

    /// Forgets a member that has no flows; `true` when there is none left.
    pub(super) fn forget(&mut self, subtable: u16) -> bool {
        let places = self.members.iter_mut().filter(|m| **m == subtable);
        places.for_each(|place| *place = GONE);
        self.members().next().is_none()
    }

    /// Leaves the coarse mask with all the bits that it has, whatever masks there will be.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// The member with the most flows, when so many flows lie beyond the coarse
    /// index that the family is better taken apart.
    pub(super) fn misfit(&self, store: &Store) -> Option<u16> {
        let crowded = self.beyond.len() > FEW && self.beyond.len() > self.index.len() / CROWDED;
        let apart = crowded && self.members().nth(1).is_some();
        self.members().filter(|_| apart).max_by_key(|m| store.subtable(*m).flows)
    }

    /// Puts a flow of a member, which lies in the store, at the place of its coarse hash, or else of its
    /// full hash.
    ///
    /// # Errors
    /// Why there is no place.
    pub(super) fn place(
        &mut self,
        store: &Store,
        hasher: &Hasher,
        handle: u32,
    ) -> Result<(), Refused> {
        let placed = self.place_coarse(store, hasher, handle);
        placed.or_else(|_| self.place_beyond(store, hasher, handle))
    }

    fn place_coarse(&mut self, store: &Store, hasher: &Hasher, handle: u32) -> Result<(), Refused> {
        let key = *store.pattern(handle).value();
        let coarse = hasher.masked(&self.halves, |word| key.words[word]);
        self.index.insert(coarse, handle)
    }

    /// Puts a flow at the place of its full hash, and notes that at the place of its
    /// coarse hash.
    fn place_beyond(&mut self, store: &Store, hasher: &Hasher, handle: u32) -> Result<(), Refused> {
        let key = *store.pattern(handle).value();
        let number = store.flows[handle as usize].subtable;
        let full = store.full_hash(hasher, number, |word| key.words[word]);
        self.beyond.insert(full, handle)?;
        let coarse = hasher.masked(&self.halves, |word| key.words[word]);
        self.index.add_note(coarse, self.bit(number));
        Ok(())
    }

    fn bit(&self, subtable: u16) -> u64 {
        self.members.iter().position(|m| *m == subtable).map_or(0, |at| 1 << at)
    }

    /// Takes a flow out of the index; `false` if it is not there. Notes about it stay: they cost
    /// searches a useless look, but no error.
    pub(super) fn remove(&mut self, store: &Store, hasher: &Hasher, handle: u32) -> bool {
        let key = *store.pattern(handle).value();
        let coarse = hasher.masked(&self.halves, |word| key.words[word]);
        self.index.remove(coarse, handle) || {
            let number = store.flows[handle as usize].subtable;
            let full = store.full_hash(hasher, number, |word| key.words[word]);
            self.beyond.remove(full, handle)
        }
    }

    /// Finds flows that cover the keys of `lanes`: returns the lanes that have
    /// one, its handle in `handles`. Adds to `visited` how many tables were
    /// looked into, over all lanes.
    ///
    /// Hashes all lanes, then touches their buckets, then their flows, so that
    /// the loads of one lane go on while others are worked at.
    pub(super) fn search(
        &self,
        tools: &Tools<'_>,
        keys: &TransposedKeys,
        lanes: Lanes,
        handles: &mut Half,
        visited: &mut u64,
    ) -> Lanes {
        let Tools { store, hasher, rows } = *tools;
        let mut hashes = [0; BATCH];
        hasher.masked_lanes(&self.halves, keys, lanes, &mut hashes);
        if !self.index.is_near() {
            lanes.into_iter().for_each(|lane| self.index.prefetch(hashes[lane]));
        }
        let (mut likely, mut more) = (Lanes::NONE, Lanes::NONE);
        for lane in lanes {
            let look = self.index.look(hashes[lane]);
            thalweg_cpu::prefetch::read(&store.flows, look.handle as usize);
            handles[lane] = look.handle;
            likely.0 |= u32::from(look.found) << lane;
            more.0 |= u32::from(look.more) << lane;
        }
        *visited += lanes.count() as u64;
        let mut of_lanes = [[0; NEAR_WORDS]; BATCH];
        rows.turn(keys, &self.layout, likely, &mut of_lanes);
        let mut found = Lanes::NONE;
        for lane in likely {
            let handle = handles[lane];
            let covers = store.covers_row(handle, &self.layout, &of_lanes[lane]);
            let covers =
                covers.unwrap_or_else(|| store.covers(handle, |word| keys.word(lane, word)));
            found.0 |= u32::from(covers) << lane;
        }
        for lane in more.without(found) {
            let word = |word| keys.word(lane, word);
            let covers = |handle| store.covers(handle, word);
            let hash = hashes[lane];
            if let Some(handle) = self.search_on(store, hasher, hash, word, covers, visited) {
                handles[lane] = handle;
                found.insert(lane);
            }
        }
        found
    }

    /// All of a search for one key of which the coarse hash is known.
    fn search_on(
        &self,
        store: &Store,
        hasher: &Hasher,
        coarse: u32,
        word: impl Fn(usize) -> u64,
        covers: impl Fn(u32) -> bool,
        visited: &mut u64,
    ) -> Option<u32> {
        if let Some(handle) = self.index.candidates(coarse).find(|h| covers(*h)) {
            return Some(handle);
        }
        let mut note = self.index.note(coarse);
        while note != 0 {
            let member = self.members.get(note.trailing_zeros() as usize).copied();
            note &= note - 1;
            let Some(number) = member.filter(|m| *m != GONE) else { continue };
            *visited += 1;
            let full = store.full_hash(hasher, number, &word);
            if let Some(handle) = self.beyond.candidates(full).find(|h| covers(*h)) {
                return Some(handle);
            }
        }
        None
    }

    /// Places for flows, in both indexes.
    pub(super) fn places(&self) -> usize {
        self.index.places() + self.beyond.places()
    }

    /// The flow that covers `key` and that `wanted` wants.
    pub(super) fn peek(
        &self,
        store: &Store,
        hasher: &Hasher,
        key: &FlowKey,
        wanted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let word = |word: usize| key.words[word];
        let coarse = hasher.masked(&self.halves, word);
        let covers = |handle: u32| store.covers(handle, word) && wanted(handle);
        self.search_on(store, hasher, coarse, word, covers, &mut 0)
    }
}
