//! Bloom filters over 32-bit keys with payloads.
//!
//! A filter answers "is this key in the set?" with "no" or "perhaps", from a few bits
//! a key (Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM
//! 13, 1970). [`BloomFilter`] has the false-positive rate of theory and looks up many
//! keys at a time with the fastest [`Variant`] for its size; [`SplitBlockFilter`]
//! touches one cache line a key, and pays with more false positives.
//!
//! ```
//! use thalweg_classify::bloom::BloomFilter;
//!
//! let mut filter = BloomFilter::for_keys(1000, 0.01, 7)?;
//! filter.insert_all(&[3, 5]);
//! let (mut keys, mut payloads) = ([0; 3], [0; 3]);
//! let found = filter.select(&[3, 4, 5], &[30, 40, 50], &mut keys, &mut payloads);
//! assert_eq!((&keys[..found], &payloads[..found]), (&[3, 5][..], &[30, 50][..]));
//! # Ok::<(), thalweg_classify::bloom::BloomError>(())
//! ```

mod bits;
mod hash;
#[cfg(target_arch = "x86_64")]
mod lanes256;
#[cfg(target_arch = "x86_64")]
mod lanes512;
mod split_block;
#[cfg(target_arch = "x86_64")]
mod split_block_lanes;
#[cfg(target_arch = "x86_64")]
mod staged;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod unrolled256;
#[cfg(target_arch = "x86_64")]
mod unrolled512;
mod variant;

use thalweg_cpu::Isa;

use bits::{Bits, Input, Output};
pub use hash::MAX_HASHES;
use hash::{Hashes, Reduction};
pub use split_block::SplitBlockFilter;
use thalweg_cpu::memory::{Pages, Zeroed};
use thalweg_cpu::prefetch;
pub use variant::{Unroll, Variant};

/// The most bits that a filter can have: a hash has 32 bits.
pub const MAX_BITS: u64 = 1 << 32;

/// Why a filter cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BloomError {
    /// It would have no bit, or more than [`MAX_BITS`].
    #[error("invalid size of a Bloom filter: {0} bits; expected 1 to {MAX_BITS}")]
    Bits(u64),
    /// It would have no hash function, or more than [`MAX_HASHES`].
    #[error("invalid number of hash functions of a Bloom filter: {0}; expected 1 to {MAX_HASHES}")]
    Hashes(usize),
    /// The rate is not a probability, or is one that no filter of a valid size has.
    #[error(
        "invalid false-positive rate of a Bloom filter: {0}; expected a number between 0 and 1"
    )]
    Rate(f64),
    /// There is no memory for it.
    #[error("cannot allocate a Bloom filter of {bits} bits")]
    Memory {
        /// How many bits it would have.
        bits: u64,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A Bloom filter: `k` bits in the whole of it for each key.
#[derive(Debug)]
pub struct BloomFilter {
    words: Zeroed<u32>,
    reduction: Reduction,
    hashes: Hashes,
    variant: Variant,
}

impl BloomFilter {
    /// An empty filter of `bits` bits with `hashes` hash functions, drawn by `seed`. A
    /// power of two makes the lookup somewhat cheaper.
    pub fn new(bits: u64, hashes: usize, seed: u64) -> Result<Self, BloomError> {
        if !(1..=MAX_BITS).contains(&bits) {
            return Err(BloomError::Bits(bits));
        }
        if !(1..=MAX_HASHES).contains(&hashes) {
            return Err(BloomError::Hashes(hashes));
        }
        let words = Zeroed::<u32>::new(bits.div_ceil(32) as usize)
            .map_err(|source| BloomError::Memory { bits, source })?;
        Ok(Self {
            words,
            reduction: Reduction::new(bits),
            hashes: Hashes::new(hashes, seed),
            variant: Variant::best(Isa::active(), bits / 8),
        })
    }

    /// An empty filter that has a false-positive rate of at most `rate` with `keys`
    /// keys, with as few bits and functions as that takes.
    pub fn for_keys(keys: u64, rate: f64, seed: u64) -> Result<Self, BloomError> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(BloomError::Rate(rate));
        }
        // The best number of functions makes half of the bits ones.
        let hashes = (-rate.log2()).round().clamp(1.0, MAX_HASHES as f64);
        // The rate is (1 - e^(-hashes * keys / bits))^hashes.
        let bits = -hashes * keys.max(1) as f64 / (1.0 - rate.powf(1.0 / hashes)).ln();
        Self::new(bits.ceil() as u64, hashes as usize, seed)
    }

    /// How many bits there are.
    pub fn bits(&self) -> u64 {
        self.reduction.range()
    }

    /// How many hash functions there are.
    pub fn hashes(&self) -> usize {
        self.hashes.count
    }

    /// The pages that the bits lie on; large filters are slower on small pages.
    pub fn pages(&self) -> Pages {
        self.words.pages()
    }

    /// The variant that [`select`](Self::select) uses.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The false-positive rate to be expected with `keys` different keys, drawn at
    /// random from all 2^32.
    ///
    /// The hash functions are permutations of 32-bit numbers, so a bit that has `r =
    /// 2^32 / bits` numbers for each function is set by one of `k r` keys, or, when
    /// it is the bit of a key that is not in the filter, by one of the `k r - 1`
    /// others. For few keys that is the known `(1 - e^(-k keys / bits))^k`; for many
    /// it is less.
    pub fn expected_rate(&self, keys: u64) -> f64 {
        let (k, all) = (self.hashes.count as f64, MAX_BITS as f64);
        let others = k * all / self.bits() as f64 - 1.0;
        let set = 1.0 - (1.0 - (keys as f64 / all).min(1.0)).powf(others);
        set.powf(k)
    }

    /// Puts `key` into the set.
    pub fn insert(&mut self, key: u32) {
        for n in 0..self.hashes.count {
            let position = self.reduction.reduce(self.hashes.hash(n, key));
            self.words[position as usize / 32] |= 1 << (position % 32);
        }
    }

    /// Puts `keys` into the set; faster than one by one.
    pub fn insert_all(&mut self, keys: &[u32]) {
        /// How many keys ahead of their insertion the words are prefetched.
        const AHEAD: usize = 16;
        for n in 0..keys.len() + AHEAD {
            if let Some(key) = keys.get(n) {
                for function in 0..self.hashes.count {
                    let position = self.reduction.reduce(self.hashes.hash(function, *key));
                    prefetch::read(&self.words, position as usize / 32);
                }
            }
            if let Some(key) = n.checked_sub(AHEAD).and_then(|n| keys.get(n)) {
                self.insert(*key);
            }
        }
    }

    /// Whether `key` may be in the set; a key that is in it always may.
    pub fn contains(&self, key: u32) -> bool {
        self.seen().contains_from(0, key)
    }

    /// The keys that may be in the set and their payloads, to the front of
    /// `found_keys` and `found_payloads`; returns how many. What lies past them is
    /// overwritten.
    ///
    /// # Panics
    /// When there are not as many payloads as keys, or the slices for the results are
    /// shorter than the input.
    pub fn select(
        &self,
        keys: &[u32],
        payloads: &[u32],
        found_keys: &mut [u32],
        found_payloads: &mut [u32],
    ) -> usize {
        self.select_by(self.variant, keys, payloads, found_keys, found_payloads)
    }

    /// As [`select`](Self::select), by `variant`.
    ///
    /// # Panics
    /// As `select`, and when the processor lacks the instructions.
    pub fn select_by(
        &self,
        variant: Variant,
        keys: &[u32],
        payloads: &[u32],
        found_keys: &mut [u32],
        found_payloads: &mut [u32],
    ) -> usize {
        let input = Input::new(keys, payloads);
        let mut output = Output::new(input, found_keys, found_payloads);
        variant.select(&self.seen(), input, &mut output)
    }

    fn seen(&self) -> Bits<'_> {
        Bits::new(&self.words, self.reduction, &self.hashes)
    }
}
