//! The hashes that a table may use.

use crate::hash::{finish, step};

/// Which hash a table uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// MurmurHash3, 32 bits, over 64-bit words with their low halves first.
    Murmur3,
    /// CRC32C over the words, with its bits spread by a multiplication: fewer
    /// instructions where the processor has SSE4.2, as good for keys that nobody
    /// chooses with malice.
    Crc32c,
}

/// A hash and its seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash {
    kind: HashKind,
    seed: u32,
    // Private: only `new` sets it, and it asks the processor.
    sse42: bool,
}

impl Hash {
    pub(super) fn new(kind: HashKind, seed: u32) -> Self {
        #[cfg(target_arch = "x86_64")]
        let sse42 = std::arch::is_x86_feature_detected!("sse4.2");
        #[cfg(not(target_arch = "x86_64"))]
        let sse42 = false;
        Self { kind, seed, sse42 }
    }

    #[inline(always)]
    pub(super) fn of<const W: usize>(&self, key: &[u64; W]) -> u32 {
        match self.kind {
            HashKind::Murmur3 => {
                let halves = key.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
                finish(halves.fold(self.seed, step), 8 * W as u32)
            }
            HashKind::Crc32c => spread(self.crc32c(key)),
        }
    }

    /// The seed, if the hash is MurmurHash3.
    #[inline(always)]
    pub(super) fn murmur3_seed(&self) -> Option<u32> {
        (self.kind == HashKind::Murmur3).then_some(self.seed)
    }

    /// The hashes of `keys`, one for each element of `hashes`.
    #[inline(always)]
    pub(super) fn of_all<const W: usize>(&self, keys: &[[u64; W]], hashes: &mut [u32]) {
        match self.kind {
            HashKind::Murmur3 => {
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
    //! `unsafe` here: an instruction of SSE4.2 is used after the processor was asked.
    #![allow(unsafe_code)]

    use std::arch::x86_64::_mm_crc32_u64;

    #[inline(always)]
    pub(super) fn crc32c<const W: usize>(seed: u32, key: &[u64; W]) -> u32 {
        // SAFETY: the caller has asked the processor for SSE4.2.
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
        // 32 bytes of zeros (RFC 3720, B.4), with the inversions that it asks for.
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
