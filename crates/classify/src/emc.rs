//! The first layer: whole keys, and the megaflow that each hit last.

use crate::random::Random;
use thalweg_packet::{BATCH, FlowKey, Half, KEY_WORDS, Lanes, TransposedKeys};

/// The most places a cache gets: 128 MiB of them.
pub(crate) const MAX_ENTRIES: usize = 1 << 20;

/// Words of a key that a place has room for. Keys with more are not cached;
/// those of TCP over IPv4 have 6, and lie in one cache line.
const WORDS: usize = 14;

/// All words of a key.
const ALL_WORDS: u32 = (1 << KEY_WORDS) - 1;

/// A classifier's exact-match cache: two places for each key, as in Open vSwitch.
/// A place may name a megaflow that was removed; such a hit is a miss.
#[derive(Clone, Debug)]
pub(crate) struct Emc {
    places: Vec<Place>,
    insert_inverse_probability: u32,
    /// Need not be unpredictable.
    random: Random,
}

/// A cached key; empty when the stamp is 0.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Place {
    hash: u32,
    cached: Cached,
    /// The words of the key that are not zero.
    present: u32,
    words: [u64; WORDS],
}

/// A reference to a megaflow, which has been removed if its stamp differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Cached {
    pub(crate) handle: u32,
    pub(crate) stamp: u32,
}

const EMPTY: Place =
    Place { hash: 0, cached: Cached { handle: 0, stamp: 0 }, present: 0, words: [0; WORDS] };

impl Place {
    fn new(hash: u32, key: &FlowKey, cached: Cached) -> Option<Self> {
        let mut place = Self { hash, cached, ..EMPTY };
        let words = key.words.iter().enumerate().filter(|(_, word)| **word != 0);
        let mut room = place.words.iter_mut();
        for (i, word) in words {
            *room.next()? = *word;
            place.present |= 1 << i;
        }
        Some(place)
    }

    fn is_empty(&self) -> bool {
        self.cached.stamp == 0
    }

    /// Whether this is the key with this hash of which `word` gives the words;
    /// only the words of `present` can be other than zero.
    #[inline]
    fn holds(&self, hash: u32, present: u32, word: impl Fn(usize) -> u64) -> bool {
        if self.hash != hash || self.is_empty() || self.present & !present != 0 {
            return false;
        }
        let (mut rest, mut at, mut difference) = (present, 0, 0);
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let here = u64::from(self.present >> i & 1);
            // Without a branch: a word that is absent here must be zero there.
            difference |= word(i) ^ self.words[at] & here.wrapping_neg();
            at = (at + here as usize).min(WORDS - 1);
        }
        difference == 0
    }
}

impl Emc {
    /// A cache of `entries` places, rounded up to a power of two. A missed key
    /// is put in with probability 1 / `insert_inverse_probability`, so that
    /// short flows do not evict long ones. A 0 for either turns it off.
    pub(crate) fn new(entries: usize, insert_inverse_probability: u32) -> Self {
        let off = entries == 0 || insert_inverse_probability == 0;
        let mut emc = Self {
            places: Vec::new(),
            insert_inverse_probability,
            random: Random::new(0x243f_6a88_85a3_08d3),
        };
        if !off {
            emc.resize(entries);
        }
        emc
    }

    /// Empties the cache and gives it `entries` places, rounded up to a power of
    /// two.
    pub(crate) fn resize(&mut self, entries: usize) {
        let places = entries.clamp(2, MAX_ENTRIES).next_power_of_two();
        self.places.clear();
        self.places.resize(places, EMPTY);
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.places.is_empty()
    }

    pub(crate) fn entries(&self) -> usize {
        self.places.len()
    }

    #[inline]
    fn positions(&self, hash: u32) -> [usize; 2] {
        let mask = self.places.len() - 1;
        let other = hash.wrapping_mul(0x9e37_79b1).rotate_left(15);
        [hash as usize & mask, other as usize & mask]
    }

    /// Finds the keys of `lanes`. Returns the lanes whose key is cached; the
    /// megaflow each met is in `cached`. The cache must be on.
    #[inline]
    pub(crate) fn find_batch(
        &self,
        keys: &TransposedKeys,
        lanes: Lanes,
        hashes: &Half,
        cached: &mut [Cached; BATCH],
    ) -> Lanes {
        for lane in lanes {
            for at in self.positions(hashes[lane]) {
                thalweg_cpu::prefetch::read(&self.places, at);
            }
        }
        let mut found = Lanes::NONE;
        for lane in lanes {
            let word = |i| keys.word(lane, i);
            if let Some(hit) = self.find_on(hashes[lane], keys.present(), word) {
                cached[lane] = hit;
                found.insert(lane);
            }
        }
        found
    }

    #[inline]
    fn find_on(&self, hash: u32, present: u32, word: impl Fn(usize) -> u64) -> Option<Cached> {
        let mut places = self.positions(hash).into_iter().map(|at| &self.places[at]);
        places.find(|place| place.holds(hash, present, &word)).map(|place| place.cached)
    }

    /// The megaflow that `key` met last. The cache must be on.
    pub(crate) fn find(&self, key: &FlowKey, hash: u32) -> Option<Cached> {
        self.find_on(hash, ALL_WORDS, |i| key.words[i])
    }

    /// Whether a missed key is to be cached this time; `always` overrides the probability.
    #[inline]
    pub(crate) fn wants(&mut self, always: bool) -> bool {
        let n = self.insert_inverse_probability;
        always || n == 1 || n > 1 && self.random.next().is_multiple_of(n)
    }

    /// Caches `key`, unless it has more words than a place has room for. `live`
    /// returns whether a megaflow still exists.
    pub(crate) fn insert(
        &mut self,
        key: &FlowKey,
        hash: u32,
        cached: Cached,
        live: impl Fn(Cached) -> bool,
    ) {
        if let Some(place) = Place::new(hash, key, cached) {
            let at = self.place_for(key, hash, live);
            self.places[at] = place;
        }
    }

    /// The place of the same key; else one that is free or stale; else either.
    fn place_for(&mut self, key: &FlowKey, hash: u32, live: impl Fn(Cached) -> bool) -> usize {
        let positions = self.positions(hash);
        let same = |at: &usize| self.places[*at].holds(hash, ALL_WORDS, |i| key.words[i]);
        let vacant = |at: &usize| self.places[*at].is_empty() || !live(self.places[*at].cached);
        let found = positions.into_iter().find(same);
        found
            .or_else(|| positions.into_iter().find(vacant))
            .unwrap_or_else(|| positions[(self.random.next() & 1) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Nh;
    use crate::secret::Keys;

    fn key(n: u64) -> FlowKey {
        let mut key = FlowKey::default();
        (key.words[3], key.words[12]) = (n, n << 40 | 5);
        key
    }

    fn hash(n: u64) -> u32 {
        Nh::new(Keys::seeded(1)).whole(|i| key(n).words[i])
    }

    fn cached(n: u64) -> Cached {
        Cached { handle: n as u32, stamp: n as u32 + 1 }
    }

    fn insert(emc: &mut Emc, n: u64, live: impl Fn(Cached) -> bool) {
        emc.insert(&key(n), hash(n), cached(n), live);
    }

    fn held(emc: &Emc) -> Vec<Cached> {
        emc.places.iter().filter(|p| !p.is_empty()).map(|p| p.cached).collect()
    }

    #[test]
    fn a_stale_place_is_taken_before_a_live_one() {
        // Two places in all, so that every key competes for both.
        let mut emc = Emc::new(2, 1);
        let mut n = 0;
        // Two keys that lie side by side: one stays live, one goes stale.
        while held(&emc).len() < 2 {
            n += 1;
            insert(&mut emc, n, |_| true);
        }
        let (stays, stale) = (held(&emc)[0], held(&emc)[1]);
        let mut replaced = 0;
        for other in 1000..1100 {
            let mut copy = emc.clone();
            let [a, b] = copy.positions(hash(other));
            insert(&mut copy, other, |id| id != stale);
            if a != b {
                assert!(held(&copy).contains(&stays));
                assert_eq!(copy.find(&key(other), hash(other)), Some(cached(other)));
                replaced += 1;
            }
        }
        assert!(replaced > 10, "vacuous: {replaced}");
    }

    #[test]
    fn insertion_follows_its_probability() {
        for (inverse, low, high) in [(0, 0, 0), (1, 4000, 4000), (4, 900, 1100)] {
            let mut emc = Emc::new(1 << 10, inverse);
            let wanted = (0..4000).filter(|_| emc.wants(false)).count();
            assert!((low..=high).contains(&wanted), "1/{inverse}: {wanted}");
            assert!(emc.wants(true));
        }
    }

    #[test]
    fn an_absurd_size_is_cut_to_the_most_there_may_be() {
        assert_eq!(Emc::new(usize::MAX, 1).entries(), MAX_ENTRIES);
    }

    #[test]
    fn a_key_is_found_by_all_its_words_whatever_its_batch_has() {
        let mut emc = Emc::new(64, 1);
        let mut full = FlowKey::EXACT;
        emc.insert(&full, 9, cached(1), |_| true);
        assert_eq!(emc.find(&full, 9), None, "a key that has no room is not cached");
        full.words[14..].fill(0);
        emc.insert(&full, 9, cached(2), |_| true);
        emc.insert(&FlowKey::default(), 9, cached(3), |_| true);
        let mut keys = [FlowKey::EXACT; BATCH];
        (keys[1], keys[2]) = (full, FlowKey::default());
        for (i, key) in keys[3..].iter_mut().enumerate() {
            *key = full;
            key.words[i % KEY_WORDS] ^= 1 << i;
        }
        let (mut hits, hashes) = ([cached(0); BATCH], [9; BATCH]);
        let keys = TransposedKeys::from_keys(&keys);
        let found = emc.find_batch(&keys, Lanes::ALL, &hashes, &mut hits);
        assert_eq!(found, Lanes(0b110));
        assert_eq!((hits[1], hits[2]), (cached(2), cached(3)));
    }
}
