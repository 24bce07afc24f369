//! A split-block filter: eight bits for each key, one in each word of one block.
//!
//! A block has 256 bits, so a lookup touches one cache line and tests all bits with
//! one instruction (Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient
//! Bloom Filters", 2009; the layout is that of Apache Parquet and Impala). Keys are
//! spread over blocks unevenly, which costs false positives.

use thalweg_cpu::Isa;

use super::BloomError;
use super::bits::{Input, Output};
use super::hash::{Hashes, Reduction};
#[cfg(target_arch = "x86_64")]
use super::split_block_lanes as lanes;
use thalweg_cpu::memory::{Pages, Zeroed};
use thalweg_cpu::prefetch;

/// Words of a block.
pub(super) const WORDS: usize = 8;
/// The bits of a block.
const BLOCK_BITS: u64 = 32 * WORDS as u64;
/// One odd multiplier for each word of a block, as in Apache Parquet.
pub(super) const SALTS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// A Bloom filter that touches one cache line a key.
#[derive(Debug)]
pub struct SplitBlockFilter {
    words: Zeroed<u32>,
    blocks: Reduction,
    /// One function finds the block, the other the bits in it.
    hashes: Hashes,
    isa: Isa,
}

/// What a lookup sees of a filter.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    // Private: `new` has compared the blocks with the range.
    blocks: &'a [[u32; WORDS]],
    reduction: Reduction,
    hashes: &'a Hashes,
}

impl SplitBlockFilter {
    /// An empty filter of `bits` bits, or somewhat more (whole blocks of 256), with
    /// hash functions drawn by `seed`.
    pub fn new(bits: u64, seed: u64) -> Result<Self, BloomError> {
        let blocks = bits.div_ceil(BLOCK_BITS);
        if !(1..=1 << 32).contains(&blocks) {
            return Err(BloomError::Bits(bits));
        }
        let words = Zeroed::<u32>::new(blocks as usize * WORDS)
            .map_err(|source| BloomError::Memory { bits, source })?;
        let (blocks, hashes) = (Reduction::new(blocks), Hashes::new(2, seed));
        Ok(Self { words, blocks, hashes, isa: Isa::active() })
    }

    /// How many bits there are.
    pub fn bits(&self) -> u64 {
        self.blocks.range() * BLOCK_BITS
    }

    /// The pages that the bits lie on; large filters are slower on small pages.
    pub fn pages(&self) -> Pages {
        self.words.pages()
    }

    /// The false-positive rate to be expected with `keys` different keys, drawn at
    /// random.
    ///
    /// A block has as many keys as chance gives it (a Poisson distribution), and each
    /// of them sets one bit of 32 in each of the eight words. With many keys it is
    /// less, as the hash functions are permutations: see
    /// [`BloomFilter::expected_rate`](super::BloomFilter::expected_rate).
    pub fn expected_rate(&self, keys: u64) -> f64 {
        let mean = keys as f64 / self.blocks.range() as f64;
        let (mut part, mut rate) = ((-mean).exp(), 0.0);
        let most = mean + 20.0 * mean.sqrt() + 20.0;
        let mut count = 0.0;
        while count <= most {
            rate += part * (1.0 - (31.0f64 / 32.0).powf(count)).powi(WORDS as i32);
            count += 1.0;
            part *= mean / count;
        }
        rate
    }

    /// Puts `key` into the set.
    pub fn insert(&mut self, key: u32) {
        let (block, bits) = (self.seen().block_of(key), self.seen().bits_of(key));
        let block = &mut self.words[block * WORDS..][..WORDS];
        for (word, bit) in block.iter_mut().zip(bits) {
            *word |= bit;
        }
    }

    /// Puts `keys` into the set; faster than one by one.
    pub fn insert_all(&mut self, keys: &[u32]) {
        /// How many keys ahead of their insertion the blocks are prefetched.
        const AHEAD: usize = 16;
        for n in 0..keys.len() + AHEAD {
            if let Some(key) = keys.get(n) {
                prefetch::read(self.seen().blocks, self.seen().block_of(*key));
            }
            if let Some(key) = n.checked_sub(AHEAD).and_then(|n| keys.get(n)) {
                self.insert(*key);
            }
        }
    }

    /// Whether `key` may be in the set; a key that is in it always may.
    pub fn contains(&self, key: u32) -> bool {
        self.seen().contains(key)
    }

    /// The keys that may be in the set and their payloads, in order, to the front of
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
        self.select_at(self.isa, keys, payloads, found_keys, found_payloads)
    }

    /// As [`select`](Self::select), with the instructions of `isa`.
    ///
    /// # Panics
    /// As `select`, and when the processor lacks the instructions.
    pub fn select_at(
        &self,
        isa: Isa,
        keys: &[u32],
        payloads: &[u32],
        found_keys: &mut [u32],
        found_payloads: &mut [u32],
    ) -> usize {
        let input = Input::new(keys, payloads);
        let mut output = Output::new(input, found_keys, found_payloads);
        #[cfg(target_arch = "x86_64")]
        if isa != Isa::Scalar {
            return lanes::select(isa, &self.seen(), input, &mut output);
        }
        assert_eq!(isa, Isa::Scalar, "the processor lacks the instructions");
        self.seen().scalar(input, &mut output)
    }

    fn seen(&self) -> Blocks<'_> {
        let (blocks, _) = &self.words.as_chunks();
        Blocks::new(blocks, self.blocks, &self.hashes)
    }
}

impl<'a> Blocks<'a> {
    /// # Panics
    /// When there are fewer blocks than the range.
    fn new(blocks: &'a [[u32; WORDS]], reduction: Reduction, hashes: &'a Hashes) -> Self {
        assert!(reduction.range() <= blocks.len() as u64, "too few blocks");
        Self { blocks, reduction, hashes }
    }

    /// At least as many as `reduction().range()`.
    #[inline]
    pub(super) fn blocks(&self) -> &'a [[u32; WORDS]] {
        self.blocks
    }

    #[inline]
    pub(super) fn reduction(&self) -> Reduction {
        self.reduction
    }

    #[inline]
    pub(super) fn hashes(&self) -> &'a Hashes {
        self.hashes
    }

    fn block_of(&self, key: u32) -> usize {
        self.reduction.reduce(self.hashes.hash(0, key)) as usize
    }

    fn bits_of(&self, key: u32) -> [u32; WORDS] {
        let hash = self.hashes.hash(1, key);
        SALTS.map(|salt| 1 << (hash.wrapping_mul(salt) >> 27))
    }

    /// Whether all bits of `key` are set.
    pub(super) fn contains(&self, key: u32) -> bool {
        let block = &self.blocks[self.block_of(key)];
        block.iter().zip(self.bits_of(key)).all(|(word, bit)| word & bit != 0)
    }

    /// The definition of a lookup: each key by itself.
    pub(super) fn scalar(&self, input: Input, output: &mut Output) -> usize {
        let mut found = 0;
        for (key, payload) in input.keys.iter().zip(input.payloads) {
            if self.contains(*key) {
                output.put(found, *key, *payload);
                found += 1;
            }
        }
        found
    }
}
