//! The hashes of flow keys.
//!
//! Tables that packets fill hash by [`Nh`], with secret numbers. A word of 64 bits is hashed as its
//! two halves, low half first. [`lanes`] hashes the keys of a whole batch at once.

pub(crate) mod lanes;
pub(crate) mod murmur3;
mod nh;
mod signatures;

pub(crate) use lanes::Hasher;
pub(crate) use nh::{Nh, select};
pub use signatures::Signatures;
use thalweg_packet::FlowKey;

/// Folds `word` into the running 64-bit hash `h`: what the rule table uses, which
/// hashes one key at a time. Only rules fill that table, so the hash needs no secret: a packet
/// chooses at most the leaf that its search ends in, not how many rules lie there.
#[inline]
pub(crate) fn fold(h: u64, word: u64) -> u64 {
    // The 128-bit product's halves, joined, spread every input bit (wyhash's step).
    let product = u128::from(h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((product >> 64) as u64 ^ product as u64).rotate_left(23)
}

/// The number `n` of a random sequence (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) const fn splitmix64(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Where 64-bit hashing begins.
pub(crate) const SEED: u64 = 0x243f_6a88_85a3_08d3;

/// The 64-bit hash of `words`.
#[inline]
pub(crate) fn words(words: &[u64]) -> u64 {
    words.iter().fold(SEED, |h, w| fold(h, *w))
}

/// One half of a key's word, and which of its bits are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskedHalf {
    /// Twice the word, and one more for the high half.
    pub(crate) half: u8,
    pub(crate) bits: u32,
}

/// The halves of `mask` in which any bit is set, in the order in which they are
/// hashed.
pub(crate) fn halves(mask: &FlowKey) -> Vec<MaskedHalf> {
    let halves = mask.words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
    let masked = halves.enumerate().map(|(i, bits)| MaskedHalf { half: i as u8, bits });
    masked.filter(|half| half.bits != 0).collect()
}
