//! MurmurHash3 (x86, 32 bits): for keys that no sender chooses.
//!
//! A seed makes it no secret: two words can be changed together such that the hash stays the same
//! under every seed (Aumasson, Bernstein and Boßlet, "Hash-flooding DoS reloaded", 29C3, 2012). The
//! test of the keyed hash beside it shows how.

/// The bits that `k` changes in the running hash.
#[inline(always)]
pub(super) const fn mix(k: u32) -> u32 {
    k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

/// Mixes 32 bits into the running hash `h`.
#[inline(always)]
pub(crate) const fn step(h: u32, k: u32) -> u32 {
    (h ^ mix(k)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// Spreads what was taken in over all bits; `bytes` is how many that were.
#[inline(always)]
pub(crate) const fn finish(h: u32, bytes: u32) -> u32 {
    let h = h ^ bytes;
    let h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    let h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

/// The hash of `words`, each as its two halves, low half first.
#[inline(always)]
pub(crate) fn hash(seed: u32, words: &[u64]) -> u32 {
    let halves = words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
    finish(halves.fold(seed, step), 8 * words.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_murmur3() {
        // As the reference implementation has them.
        let bytes = |text: &[u8; 8]| u64::from_le_bytes(*text);
        assert_eq!(hash(0, &[]), 0);
        assert_eq!(hash(1, &[]), 0x514e_28b7);
        assert_eq!(hash(0, &[bytes(b"thalweg!")]), 0xc708_18a6);
        assert_eq!(hash(0x9747_b28c, &[bytes(b"thalweg!"), bytes(b"river by")]), 0xbf6e_462e);
    }
}
