//! The first layer: whole keys, and the megaflow each met last.

use thalweg_packet::FlowKey;

use crate::hash;
use crate::megaflow::MegaflowId;

/// One worker's exact-match cache: two places for each key, as in Open vSwitch.
/// A place may name a megaflow that is gone; such a hit is a miss.
#[derive(Clone, Debug)]
pub(crate) struct Emc {
    places: Vec<Option<Place>>,
    insert_inverse_probability: u32,
    random: u64,
}

#[derive(Clone, Debug)]
struct Place {
    hash: u64,
    key: FlowKey,
    megaflow: MegaflowId,
}

impl Emc {
    /// A cache of `entries` places, rounded up to a power of two; 0 turns it
    /// off. A missed key is put in with probability
    /// 1 / `insert_inverse_probability`, so that short flows do not push out
    /// long ones.
    pub(crate) fn new(entries: usize, insert_inverse_probability: u32) -> Self {
        let places = if entries == 0 { 0 } else { entries.next_power_of_two() };
        Self { places: vec![None; places], insert_inverse_probability, random: hash::SEED }
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.places.is_empty()
    }

    /// The hash to call the other methods with.
    #[inline]
    pub(crate) fn hash(key: &FlowKey) -> u64 {
        hash::words(&key.words)
    }

    fn positions(&self, hash: u64) -> [usize; 2] {
        let mask = self.places.len() - 1;
        [hash as usize & mask, (hash >> 32) as usize & mask]
    }

    /// The megaflow that `key` met last.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64) -> Option<MegaflowId> {
        self.positions(hash).into_iter().find_map(|at| {
            let place = self.places[at].as_ref()?;
            (place.hash == hash && place.key == *key).then_some(place.megaflow)
        })
    }

    /// Puts `key` in, now and then.
    pub(crate) fn maybe_insert(&mut self, key: &FlowKey, hash: u64, megaflow: MegaflowId) {
        if self.is_on() && self.chance() {
            let [first, second] = self.positions(hash);
            // A place of the same key is renewed; else a free one, else the first.
            let holds = |at: usize| self.places[at].as_ref().is_some_and(|p| p.hash == hash);
            let at = match (holds(first), holds(second), &self.places[first]) {
                (true, _, _) | (_, false, None) => first,
                (_, true, _) => second,
                _ if self.places[second].is_none() => second,
                _ => first,
            };
            self.places[at] = Some(Place { hash, key: *key, megaflow });
        }
    }

    fn chance(&mut self) -> bool {
        if self.insert_inverse_probability <= 1 {
            return true;
        }
        // xorshift64 (Marsaglia 2003)
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32 % self.insert_inverse_probability == 0
    }
}
