//! Searching, while another thread writes.

use thalweg_cpu::Isa;

use super::STEP;
use super::sync::wait;
use super::table::{Core, Places};
use thalweg_cpu::prefetch;

/// Where the keys of a step may be.
pub(super) struct AllPlaces {
    pub(super) signature: [u16; STEP],
    pub(super) first: [u32; STEP],
    pub(super) second: [u32; STEP],
}

impl AllPlaces {
    pub(super) const fn new() -> Self {
        Self { signature: [0; STEP], first: [0; STEP], second: [0; STEP] }
    }

    /// Sets the places of the keys from `from` on, by their hashes.
    #[inline(always)]
    pub(super) fn set<const W: usize, const N: usize>(
        &mut self,
        core: &Core<W>,
        from: usize,
        hashes: &[u32; N],
    ) {
        // Into arrays of their own, which the compiler knows apart.
        let (mut signature, mut first, mut second) = ([0; N], [0; N], [0; N]);
        for n in 0..N {
            let places = core.places_of(hashes[n]);
            signature[n] = places.signature;
            first[n] = places.first;
            second[n] = places.second;
        }
        self.signature[from..from + N].copy_from_slice(&signature);
        self.first[from..from + N].copy_from_slice(&first);
        self.second[from..from + N].copy_from_slice(&second);
    }

    /// Where key `n` may be.
    #[inline(always)]
    pub(super) fn of(&self, n: usize) -> Places {
        Places { signature: self.signature[n], first: self.first[n], second: self.second[n] }
    }
}

impl<const W: usize> Core<W> {
    /// The value of `key`.
    pub(super) fn get(&self, key: &[u64; W]) -> Option<u32> {
        self.search(key, self.places_of(self.hash().of(key)))
    }

    /// Searches both buckets until they were seen as they were at one moment.
    pub(super) fn search(&self, key: &[u64; W], places: Places) -> Option<u32> {
        let buckets = [places.first as usize, places.second as usize];
        let store = self.store();
        loop {
            let states = buckets.map(|bucket| store.line(bucket).state());
            let found = buckets.into_iter().zip(states).find_map(|(bucket, state)| {
                let way = store.way_of(bucket, state, key, places.signature)?;
                Some(store.value(bucket, way))
            });
            let mut lines = buckets.into_iter().zip(states);
            if lines.all(|(bucket, state)| store.line(bucket).is_still(state)) {
                return found;
            }
            wait();
        }
    }

    /// As [`Reader::get_many`](super::Reader::get_many).
    pub(super) fn get_many(&self, keys: &[[u64; W]], values: &mut [u32], found: &mut [u32]) {
        assert_eq!(keys.len(), values.len(), "each key has a value");
        assert_eq!(keys.len().div_ceil(STEP), found.len(), "each step has a word of bits");
        match self.level() {
            #[cfg(all(target_arch = "x86_64", not(loom)))]
            Level::Avx512(avx512) => {
                super::lanes::get_many(avx512, self, keys, values, found);
            }
            Level::Plain => {
                let steps = keys.chunks(STEP).zip(values.chunks_mut(STEP)).zip(found);
                steps.for_each(|((keys, values), found)| *found = self.one_by_one(keys, values));
            }
        }
    }

    /// As [`Reader::get_step`](super::Reader::get_step).
    #[inline]
    pub(super) fn get_step(&self, keys: &[[u64; W]], values: &mut [u32; STEP]) -> u32 {
        assert!(keys.len() <= STEP, "{} keys are more than a step", keys.len());
        match self.level() {
            #[cfg(all(target_arch = "x86_64", not(loom)))]
            Level::Avx512(avx512) => super::lanes::get_step(avx512, self, keys, values),
            Level::Plain => self.one_by_one(keys, values),
        }
    }

    /// Hashes up to [`STEP`] keys and prefetches their buckets, then searches one by one.
    fn one_by_one(&self, keys: &[[u64; W]], values: &mut [u32]) -> u32 {
        let (mut places, mut hashes) = (AllPlaces::new(), [0; STEP]);
        self.hash().of_all(keys, &mut hashes);
        places.set(self, 0, &hashes);
        for n in 0..keys.len() {
            prefetch::read(self.store().lines(), places.first[n] as usize);
            prefetch::read(self.store().lines(), places.second[n] as usize);
        }
        let mut found = 0;
        for (n, key) in keys.iter().enumerate() {
            if let Some(value) = self.search(key, places.of(n)) {
                values[n] = value;
                found |= 1 << n;
            }
        }
        found
    }
}

/// The instructions that a batch lookup uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Plain,
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    Avx512(thalweg_cpu::Avx512),
}

impl Level {
    /// The best of at most `isa`.
    pub(super) fn of(isa: Isa) -> Self {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        if let Some(avx512) = isa.avx512() {
            return Self::Avx512(avx512);
        }
        let _ = isa;
        Self::Plain
    }
}
