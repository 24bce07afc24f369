//! The hash of masked key words.
//!
//! Kept behind one function: which hash is fastest is a question of its own.

/// Folds `word` into the running hash `h`.
#[inline]
pub(crate) fn fold(h: u64, word: u64) -> u64 {
    // The 128-bit product's halves, joined, spread every input bit (wyhash's step).
    let product = u128::from(h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((product >> 64) as u64 ^ product as u64).rotate_left(23)
}

/// Where hashing begins.
pub(crate) const SEED: u64 = 0x243f_6a88_85a3_08d3;

/// The hash of `words`.
#[inline]
pub(crate) fn words(words: &[u64]) -> u64 {
    words.iter().fold(SEED, |h, w| fold(h, *w))
}
