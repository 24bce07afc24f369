//! The hash functions of a filter, and how a hash becomes a position.
//!
//! MurmurHash3 (x86, 32 bits; Austin Appleby, 2011) of a four-byte key, with a
//! multiplier for each function besides a seed. **The seed alone does not make
//! independent functions:** the key enters as `seed ^ f(key)`, so that with one
//! `f`, `h1(x) = h2(y)` and `h2(x) = h1(y)` hold together for
//! `f(y) = f(x) ^ seed1 ^ seed2`: two of the bits of `x` are then set by one other
//! key, and the false-positive rate of a filter of 256 MB is 1.7 times what
//! it should be. With a multiplier of its own, each function has its own `f`.

use crate::hash::splitmix64;

/// The most hash functions a filter can have.
pub const MAX_HASHES: usize = 8;

/// Odd multipliers without a common pattern: that of MurmurHash3, the five primes
/// of xxHash, and those of two congruential generators modulo 2^32 (L'Ecuyer,
/// Mathematics of Computation 68, 1999; O'Neill's PCG, 2014).
const MULTIPLIERS: [u32; MAX_HASHES] = [
    0xcc9e_2d51,
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
    0xac56_4b05,
    0x2c92_77b5,
];

// The other constants of MurmurHash3, which the vector forms use too.
pub(super) const SECOND_MULTIPLIER: u32 = 0x1b87_3593;
pub(super) const ADDEND: u32 = 0xe654_6b64;
pub(super) const KEY_BYTES: u32 = 4;
pub(super) const FINAL_MULTIPLIERS: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];

/// A family of up to [`MAX_HASHES`] functions. The tables are whole, so that a
/// vector register can be filled from them.
#[derive(Clone, Debug)]
pub(super) struct Hashes {
    pub(super) multipliers: [u32; MAX_HASHES],
    pub(super) seeds: [u32; MAX_HASHES],
    pub(super) count: usize,
}

impl Hashes {
    /// `count` functions drawn by `seed`.
    pub(super) fn new(count: usize, seed: u64) -> Self {
        assert!((1..=MAX_HASHES).contains(&count), "{count} hash functions");
        let seeds = std::array::from_fn(|n| splitmix64(seed.wrapping_add(n as u64)) as u32);
        Self { multipliers: MULTIPLIERS, seeds, count }
    }

    /// Function `n` of `key`.
    #[inline]
    pub(super) fn hash(&self, n: usize, key: u32) -> u32 {
        let k = key.wrapping_mul(self.multipliers[n]).rotate_left(15);
        let h = (k.wrapping_mul(SECOND_MULTIPLIER) ^ self.seeds[n]).rotate_left(13);
        let h = h.wrapping_mul(5).wrapping_add(ADDEND) ^ KEY_BYTES;
        let h = (h ^ h >> 16).wrapping_mul(FINAL_MULTIPLIERS[0]);
        let h = (h ^ h >> 13).wrapping_mul(FINAL_MULTIPLIERS[1]);
        h ^ h >> 16
    }
}

/// Maps hashes to `0..range`: the high half of the product (Lemire, "Fast random
/// integer generation in an interval", 2019). For a power of two that is a shift,
/// which the vector forms take because it is cheaper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    range: u64,
}

impl Reduction {
    /// # Panics
    /// When `range` is not in `1..=2^32`.
    pub(super) fn new(range: u64) -> Self {
        assert!((1..=1 << 32).contains(&range), "a range of {range}");
        Self { range }
    }

    /// One more than the greatest result.
    pub(super) fn range(self) -> u64 {
        self.range
    }

    /// By how much a hash is shifted, for a power of two: 0 to 32.
    pub(super) fn shift(self) -> Option<u32> {
        self.range.is_power_of_two().then(|| 32 - self.range.trailing_zeros())
    }

    /// Less than the range.
    #[inline]
    pub(super) fn reduce(self, hash: u32) -> u32 {
        ((u64::from(hash) * self.range) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first function with seed 0 is the published one:
    /// `MurmurHash3_x86_32` of four bytes.
    #[test]
    fn the_first_function_is_murmur3() {
        let mut hashes = Hashes::new(1, 0);
        hashes.seeds[0] = 0;
        assert_eq!(hashes.hash(0, 0), 0x2362_f9de);
        assert_eq!(hashes.hash(0, u32::MAX), 0x7629_3b50);
        assert_eq!(hashes.hash(0, 0x8765_4321), 0xf55b_516b);
        hashes.seeds[0] = 0x5082_edee;
        assert_eq!(hashes.hash(0, 0x8765_4321), 0x2362_f9de);
    }

    #[test]
    fn a_position_is_within_the_range() {
        for range in [1, 2, 3, 31, 32, 33, 1000, 1 << 20, (1 << 32) - 1, 1 << 32] {
            let reduction = Reduction::new(range);
            assert_eq!(u64::from(reduction.reduce(u32::MAX)), range - 1);
            assert_eq!(reduction.reduce(0), 0);
            if let Some(shift) = reduction.shift() {
                let shifted = 0x9abc_def0_u32.checked_shr(shift).unwrap_or(0);
                assert_eq!(reduction.reduce(0x9abc_def0), shifted);
            }
        }
    }
}
