//! The hashes that a table may use.

use std::fmt;

use crate::hash::{murmur3, select};
use crate::secret::Keys;

/// Which hash a table uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// MurmurHash3, 32 bits, over 64-bit words with their low halves first: for keys that no
    /// attacker chooses.
    Murmur3,
    /// NH, the universal hash of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway,
    /// "UMAC: Fast and Secure Message Authentication", CRYPTO 1999): a sum of products
    /// of halves, each with a random number added, of which a multiplication by a random odd
    /// number selects 32 bits (multiply-shift; Dietzfelbinger et al., 1997). Any two keys have the
    /// same hash with probability 3 in 2^32 at most, over the numbers: the hash for keys
    /// that an attacker chooses. The fastest for keys of 64 bytes, where vectors do all products of
    /// a key at once.
    Nh,
    /// CRC32C over the words, with its bits spread by a multiplication: fewer
    /// instructions where the processor has SSE4.2, as good for keys that no attacker
    /// chooses.
    Crc32c,
}

/// The most words of a key.
pub(super) const MAX_WORDS: usize = 32;

/// A hash and its keys.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    kind: HashKind,
    /// Of MurmurHash3 and CRC32C.
    seed: u32,
    nh: Nh,
    // Private: only `new` sets it, and it checks the processor.
    sse42: bool,
}

/// The secret numbers of NH.
#[derive(Clone, Copy)]
pub(super) struct Nh {
    /// What is added to the low and the high half of each word, in one.
    pub(super) addends: [u64; MAX_WORDS],
    /// Odd.
    pub(super) multiplier: u64,
}

/// Without the keys, which no log may show.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl Hash {
    /// The hash with keys that `seed` gives.
    pub(super) fn new(kind: HashKind, seed: u32) -> Self {
        Self::with_keys(kind, seed, Keys::seeded(seed.into()))
    }

    /// NH with keys of its own, drawn from the secret of the process.
    pub(super) fn secret() -> Self {
        Self::with_keys(HashKind::Nh, 0, Keys::draw())
    }

    fn with_keys(kind: HashKind, seed: u32, keys: Keys) -> Self {
        #[cfg(target_arch = "x86_64")]
        let sse42 = std::arch::is_x86_feature_detected!("sse4.2");
        #[cfg(not(target_arch = "x86_64"))]
        let sse42 = false;
        Self { kind, seed, nh: Nh::new(keys), sse42 }
    }

    #[inline(always)]
    pub(super) fn of<const W: usize>(&self, key: &[u64; W]) -> u32 {
        match self.kind {
            HashKind::Murmur3 => murmur3::hash(self.seed, key),
            HashKind::Nh => self.nh.finish(self.nh.sum(key)),
            HashKind::Crc32c => spread(self.crc32c(key)),
        }
    }

    /// The seed, if the hash is MurmurHash3.
    #[inline(always)]
    pub(super) fn murmur3_seed(&self) -> Option<u32> {
        (self.kind == HashKind::Murmur3).then_some(self.seed)
    }

    /// The numbers of NH, if the hash is NH.
    #[inline(always)]
    pub(super) fn nh(&self) -> Option<&Nh> {
        (self.kind == HashKind::Nh).then_some(&self.nh)
    }

    /// The hashes of `keys`, one for each element of `hashes`.
    #[inline(always)]
    pub(super) fn of_all<const W: usize>(&self, keys: &[[u64; W]], hashes: &mut [u32]) {
        match self.kind {
            HashKind::Murmur3 | HashKind::Nh => {
                for (hash, key) in hashes.iter_mut().zip(keys) {
                    *hash = self.of(key);
                }
            }
            HashKind::Crc32c => {
                for (hash, key) in hashes.iter_mut().zip(keys) {
                    *hash = self.crc32c(key);
                }
                // By itself, so that it becomes vector instructions.
                for hash in hashes {
                    *hash = spread(*hash);
                }
            }
        }
    }

    #[inline(always)]
    fn crc32c<const W: usize>(&self, key: &[u64; W]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.sse42 {
            return x86::crc32c(self.seed, key);
        }
        key.iter().fold(self.seed, |crc, word| crc32c_word(crc, *word))
    }
}

impl Nh {
    fn new(keys: Keys) -> Self {
        let addends = std::array::from_fn(|word| keys.word(1 + word as u64));
        Self { addends, multiplier: keys.word(0) | 1 }
    }

    #[inline(always)]
    fn sum<const W: usize>(&self, key: &[u64; W]) -> u64 {
        key.iter().zip(&self.addends).fold(0u64, |sum, (word, addend)| {
            let low = (*word as u32).wrapping_add(*addend as u32);
            let high = ((word >> 32) as u32).wrapping_add((addend >> 32) as u32);
            sum.wrapping_add(u64::from(low) * u64::from(high))
        })
    }

    /// 32 bits that depend on all of the sum.
    #[inline(always)]
    pub(super) fn finish(&self, sum: u64) -> u32 {
        select(sum, self.multiplier)
    }
}

/// CRC is linear: keys that differ little have checksums that differ alike. A
/// multiplication makes the bits depend on each other.
#[inline(always)]
fn spread(crc: u32) -> u32 {
    let product = u64::from(crc) * 0x9e37_79b1;
    (product >> 32) as u32 ^ product as u32
}

/// CRC32C (polynomial 0x1edc6f41, reflected) of one more word, without inversion
/// before and after: what the instruction does.
fn crc32c_word(crc: u32, word: u64) -> u32 {
    let mut crc = u64::from(crc) ^ word;
    for _ in 0..64 {
        crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    }
    crc as u32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! `unsafe` here: an instruction of SSE4.2 is used after the processor was checked.
    #![allow(unsafe_code)]

    use std::arch::x86_64::_mm_crc32_u64;

    #[inline(always)]
    pub(super) fn crc32c<const W: usize>(seed: u32, key: &[u64; W]) -> u32 {
        // SAFETY: the caller has checked that the processor has SSE4.2.
        unsafe { with_sse42(seed, key) }
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn with_sse42<const W: usize>(seed: u32, key: &[u64; W]) -> u32 {
        key.iter().fold(u64::from(seed), |crc, word| _mm_crc32_u64(crc, *word)) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crc32c_is_that_of_rfc_3720() {
        // 32 bytes of zeros (RFC 3720, B.4), with the inversions that it requires.
        let crc = (0..4).fold(u32::MAX, |crc, _| crc32c_word(crc, 0));
        assert_eq!(!crc, 0x8a91_36aa);
    }

    proptest! {
        #[test]
        fn the_instruction_does_as_the_loop(key in any::<[u64; 3]>(), seed in any::<u32>()) {
            let hash = Hash::new(HashKind::Crc32c, seed);
            let loops = Hash { sse42: false, ..hash };
            prop_assert_eq!(hash.of(&key), loops.of(&key));
        }
    }
}
