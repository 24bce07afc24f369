//! MurmurHash3 (x86, 32 bits) over the words of flow keys, seeded.
//!
//! A word of 64 bits is hashed as its two halves, low half first. [`lanes`]
//! hashes the keys of a whole batch at once; the functions here are the
//! reference.

pub(crate) mod lanes;
mod signatures;

pub(crate) use lanes::Hasher;
pub use signatures::Signatures;
use thalweg_packet::FlowKey;

/// Mixes 32 bits into the running hash `h`.
#[inline(always)]
pub(crate) const fn step(h: u32, k: u32) -> u32 {
    let k = k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (h ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// Spreads what was taken in over all bits; `bytes` is how many that were.
#[inline(always)]
pub(crate) const fn finish(h: u32, bytes: u32) -> u32 {
    let h = h ^ bytes;
    let h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    let h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

/// Folds `word` into the running 64-bit hash `h`: what the rule table uses, which
/// hashes one key at a time.
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

/// The hash of a key under a mask; `word` gives the key's words.
#[inline]
pub(crate) fn masked(seed: u32, halves: &[MaskedHalf], word: impl Fn(usize) -> u64) -> u32 {
    let h = halves.iter().fold(seed, |h, m| {
        let word = word(usize::from(m.half / 2));
        let half = if m.half % 2 == 0 { word } else { word >> 32 };
        step(h, half as u32 & m.bits)
    });
    finish(h, 4 * halves.len() as u32)
}

/// Distinguishes words in [`whole`] by their place in the key.
#[inline(always)]
const fn place(word: usize) -> u32 {
    (word as u32 + 1).wrapping_mul(0x9e37_79b9)
}

/// The hash of a whole key. Zero words are left out, so that a batch need not
/// know which words the keys of other batches have.
#[inline]
pub(crate) fn whole(seed: u32, word: impl Fn(usize) -> u64) -> u32 {
    let h = (0..thalweg_packet::KEY_WORDS).fold(seed, |h, i| match word(i) {
        0 => h,
        word => step(step(h, word as u32), (word >> 32) as u32 ^ place(i)),
    });
    finish(h, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MurmurHash3_x86_32 of `words` as little-endian bytes.
    fn murmur3(seed: u32, words: &[u64]) -> u32 {
        let mut mask = FlowKey::default();
        mask.words[..words.len()].fill(u64::MAX);
        masked(seed, &halves(&mask), |i| words[i])
    }

    #[test]
    fn the_hash_is_murmur3() {
        // As the reference implementation has them.
        let bytes = |text: &[u8; 8]| u64::from_le_bytes(*text);
        assert_eq!(murmur3(0, &[]), 0);
        assert_eq!(murmur3(1, &[]), 0x514e_28b7);
        assert_eq!(murmur3(0, &[bytes(b"thalweg!")]), 0xc708_18a6);
        assert_eq!(murmur3(0x9747_b28c, &[bytes(b"thalweg!"), bytes(b"river by")]), 0xbf6e_462e);
    }
}
