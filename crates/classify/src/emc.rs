//! The first layer: whole keys, and the megaflow each met last.

use thalweg_packet::FlowKey;

use crate::hash;
use crate::megaflow::MegaflowId;

/// The most places a cache gets: 200 MiB of them.
const MAX_ENTRIES: usize = 1 << 20;

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
    /// A cache of `entries` places, rounded up to a power of two. A missed key
    /// is put in with probability 1 / `insert_inverse_probability`, so that
    /// short flows do not push out long ones. A 0 for either turns it off.
    pub(crate) fn new(entries: usize, insert_inverse_probability: u32) -> Self {
        let off = entries == 0 || insert_inverse_probability == 0;
        let places = if off { 0 } else { entries.min(MAX_ENTRIES).next_power_of_two() };
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

    /// The megaflow that `key` met last. The cache must be on.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64) -> Option<MegaflowId> {
        self.positions(hash).into_iter().find_map(|at| {
            let place = self.places[at].as_ref()?;
            (place.hash == hash && place.key == *key).then_some(place.megaflow)
        })
    }

    /// Puts `key` in, now and then. `live` says whether a megaflow still is.
    pub(crate) fn maybe_insert(
        &mut self,
        key: &FlowKey,
        hash: u64,
        megaflow: MegaflowId,
        live: impl Fn(MegaflowId) -> bool,
    ) {
        if self.is_on() && self.chance() {
            let at = self.place_for(key, hash, live);
            self.places[at] = Some(Place { hash, key: *key, megaflow });
        }
    }

    /// The place of the same key; else one that is free or stale; else either.
    fn place_for(&mut self, key: &FlowKey, hash: u64, live: impl Fn(MegaflowId) -> bool) -> usize {
        let positions = self.positions(hash);
        let place = |at: &usize| self.places[*at].as_ref();
        let same = |at: &usize| place(at).is_some_and(|p| p.hash == hash && p.key == *key);
        let vacant = |at: &usize| place(at).is_none_or(|p| !live(p.megaflow));
        let found = positions.into_iter().find(same);
        found
            .or_else(|| positions.into_iter().find(vacant))
            .unwrap_or_else(|| positions[(self.next_random() & 1) as usize])
    }

    fn chance(&mut self) -> bool {
        let n = self.insert_inverse_probability;
        n <= 1 || self.next_random().is_multiple_of(n)
    }

    /// The next of a sequence that need not be unpredictable: xorshift64
    /// (Marsaglia, "Xorshift RNGs", 2003).
    fn next_random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> FlowKey {
        let mut key = FlowKey::default();
        key.words[0] = n;
        key
    }

    fn insert(emc: &mut Emc, n: u64, live: impl Fn(MegaflowId) -> bool) {
        let (key, id) = (key(n), MegaflowId::for_test(n as u32));
        emc.maybe_insert(&key, Emc::hash(&key), id, live);
    }

    fn find(emc: &Emc, n: u64) -> Option<MegaflowId> {
        emc.find(&key(n), Emc::hash(&key(n)))
    }

    #[test]
    fn a_stale_place_is_taken_before_a_live_one() {
        // Two places in all, so that every key competes for both.
        let mut emc = Emc::new(2, 1);
        let mut n = 0;
        // Two keys that lie side by side: one stays live, one goes stale.
        while emc.places.iter().any(Option::is_none) {
            n += 1;
            insert(&mut emc, n, |_| true);
        }
        let held: Vec<_> = emc.places.iter().flatten().map(|p| p.megaflow).collect();
        let (stays, stale) = (held[0], held[1]);
        let mut replaced = 0;
        for other in 1000..1100 {
            let mut copy = emc.clone();
            let [a, b] = copy.positions(Emc::hash(&key(other)));
            insert(&mut copy, other, |id| id != stale);
            if a != b {
                assert!(copy.places.iter().flatten().any(|p| p.megaflow == stays));
                assert!(find(&copy, other).is_some());
                replaced += 1;
            }
        }
        assert!(replaced > 10, "vacuous: {replaced}");
    }

    #[test]
    fn insertion_follows_its_probability() {
        for (inverse, low, high) in [(0, 0, 0), (1, 4000, 4000), (4, 900, 1100)] {
            let mut emc = Emc::new(1 << 20, inverse);
            (0..4000).for_each(|n| insert(&mut emc, n, |_| true));
            let held = emc.places.iter().flatten().count();
            // A few of the 4000 push each other out.
            assert!((low - low / 100..=high).contains(&held), "1/{inverse}: {held}");
        }
    }

    #[test]
    fn an_absurd_size_is_cut_to_the_most_there_may_be() {
        assert_eq!(Emc::new(usize::MAX, 1).places.len(), MAX_ENTRIES);
    }
}
