//! The hash of flow keys, which senders choose: NH with secret numbers.
//!
//! NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message Authentication",
//! CRYPTO 1999) adds a secret number to each half of a word and sums the products of pairs of halves.
//! Any two keys have the same sum of 64 bits with probability 2^-32 at most, over the secret
//! numbers. A multiplication by a secret odd number then selects 32 bits (Dietzfelbinger, Hagerup,
//! Katajainen and Penttonen, "A Reliable Randomized Algorithm for the Closest-Pair Problem", J.
//! Algorithms 1997), by which two sums become equal with probability 2^-31 at most. So a sender who
//! does not know the numbers finds no two keys that collide more often than 3 in 2^32, and no set of
//! keys whose pairs do.
//!
//! The functions here are the reference; [`lanes`](super::lanes) hashes a whole batch at once. A
//! product of 32 bits each is one vector instruction, and the sum does not depend on the order, so
//! NH takes fewer and shorter steps than a hash that mixes word after word.

use std::fmt;

use thalweg_packet::KEY_WORDS;

use super::MaskedHalf;
use crate::secret::Keys;

/// The half of no word: its number stands where a mask has an odd number of halves.
const NO_HALF: usize = 2 * KEY_WORDS;

/// The secret numbers of one hash.
#[derive(Clone, Copy)]
pub(crate) struct Nh {
    /// By half, twice the word and one more for the high half; a power of two, so that the number
    /// of a half needs no check.
    addends: [u32; 64],
    /// The products of words that are zero.
    of_zero: [u64; KEY_WORDS],
    /// Odd.
    multiplier: u64,
}

/// Without the numbers, which no log may show.
impl fmt::Debug for Nh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nh")
    }
}

#[inline(always)]
fn product(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}

/// 32 bits of a sum of NH, by a secret odd number.
#[inline(always)]
pub(crate) fn select(sum: u64, multiplier: u64) -> u32 {
    // Keys in steps, as of a scan, have sums in steps, and so have their products, which often crowd
    // a part of the buckets. Adding the halves without carries, which is one to one, breaks the
    // steps.
    ((sum ^ sum >> 32).wrapping_mul(multiplier) >> 32) as u32
}

impl Nh {
    pub(crate) fn new(keys: Keys) -> Self {
        const { assert!(NO_HALF < 64) };
        let multiplier = keys.word(0) | 1;
        let addends: [u32; 64] = std::array::from_fn(|half| keys.word(1 + half as u64) as u32);
        let of_zero = std::array::from_fn(|word| product(addends[2 * word], addends[2 * word + 1]));
        Self { addends, of_zero, multiplier }
    }

    /// The half that makes the product of its pair 0: what a sender would have to guess.
    #[cfg(test)]
    pub(crate) fn cancelling(&self, half: usize) -> u32 {
        self.addends[half].wrapping_neg()
    }

    /// The factor that a masked half becomes.
    #[inline(always)]
    pub(super) fn factor(&self, of: MaskedHalf, half: u32) -> u32 {
        (half & of.bits).wrapping_add(self.addends[usize::from(of.half) % 64])
    }

    /// What two masked halves add to the sum; `b` is `None` beside the last of an odd number.
    #[inline(always)]
    pub(super) fn pair(&self, a: (MaskedHalf, u32), b: Option<(MaskedHalf, u32)>) -> u64 {
        let b = b.map_or(self.addends[NO_HALF], |(of, half)| self.factor(of, half));
        product(self.factor(a.0, a.1), b)
    }

    /// What word `word` adds to the sum: nothing if it is zero.
    #[inline(always)]
    pub(super) fn word(&self, word: usize, low: u32, high: u32) -> u64 {
        let low = low.wrapping_add(self.addends[2 * word]);
        let high = high.wrapping_add(self.addends[2 * word + 1]);
        product(low, high).wrapping_sub(self.of_zero[word])
    }

    /// The hash that belongs to a sum.
    #[inline(always)]
    pub(super) fn finish(&self, sum: u64) -> u32 {
        select(sum, self.multiplier)
    }

    /// The hash of a key under a mask; `word` gives the key's words.
    #[inline]
    pub(crate) fn masked(&self, halves: &[MaskedHalf], word: impl Fn(usize) -> u64) -> u32 {
        let half = |of: MaskedHalf| {
            let word = word(usize::from(of.half / 2));
            (of, (word >> (of.half % 2 * 32)) as u32)
        };
        let pairs = halves.chunks(2).map(|pair| {
            let second = pair.get(1).map(|of| half(*of));
            self.pair(half(pair[0]), second)
        });
        self.finish(pairs.fold(0, u64::wrapping_add))
    }

    /// The hash of a whole key. Words that are zero add nothing, so that a batch need not know which
    /// words the keys of other batches have.
    #[inline]
    pub(crate) fn whole(&self, word: impl Fn(usize) -> u64) -> u32 {
        let words = (0..KEY_WORDS).map(|i| match word(i) {
            0 => 0,
            word => self.word(i, word as u32, (word >> 32) as u32),
        });
        self.finish(words.fold(0, u64::wrapping_add))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use thalweg_packet::{FlowKey, field};

    use super::*;
    use crate::hash::{halves, murmur3};

    fn nh(seed: u64) -> Nh {
        Nh::new(Keys::seeded(seed))
    }

    /// The number whose product with the odd `n` is 1 (Newton's iteration).
    fn inverse(n: u32) -> u32 {
        (0..5).fold(n, |x, _| x.wrapping_mul(2u32.wrapping_sub(n.wrapping_mul(x))))
    }

    /// The half whose [`murmur3::mix`] differs in `bits` from that of `half`.
    fn companion(half: u32, bits: u32) -> u32 {
        let mixed = (murmur3::mix(half) ^ bits).wrapping_mul(inverse(0x1b87_3593));
        mixed.rotate_right(15).wrapping_mul(inverse(0xcc9e_2d51))
    }

    /// A word after which MurmurHash3 is in the state of `word`, whatever the state before: the
    /// low half changes the bit that the rotation makes the uppermost, which the multiplication by
    /// five leaves alone, and the high half changes it back.
    fn same_in_murmur3(word: u64) -> u64 {
        let (low, high) =
            (companion(word as u32, 1 << 18), companion((word >> 32) as u32, 1 << 31));
        u64::from(high) << 32 | u64::from(low)
    }

    /// IPv6 addresses that have one and the same MurmurHash3 under every seed: two values for each
    /// of four words.
    fn chosen() -> Vec<[u64; 4]> {
        let first = [0x2001_0db8_0000_0001, 0xff, 0x2001_0db8_0000_0002, 0x0123_4567_89ab_cdef];
        let choose = |choice: usize, word: usize| {
            if choice >> word & 1 == 0 { first[word] } else { same_in_murmur3(first[word]) }
        };
        (0..16).map(|choice| std::array::from_fn(|word| choose(choice, word))).collect()
    }

    fn key(addresses: [u64; 4]) -> FlowKey {
        let mut key = FlowKey::default();
        let fields = field::IPV6_SRC.into_iter().chain(field::IPV6_DST);
        fields.zip(addresses).for_each(|(field, word)| key.set(field, word));
        key
    }

    #[test]
    fn keys_that_collide_in_murmur3_under_every_seed_do_not_collide_here() {
        let chosen = chosen();
        assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), 16, "the keys differ");
        let mut mask = FlowKey::default();
        let keys: Vec<FlowKey> = chosen.iter().map(|addresses| key(*addresses)).collect();
        mask.words.iter_mut().zip(keys[0].words).for_each(|(m, word)| {
            *m = if word == 0 { 0 } else { u64::MAX };
        });
        let halves = halves(&mask);
        assert_eq!(halves.len(), 8, "the mask covers both addresses");
        for seed in 0..1000 {
            let murmur3 = chosen.iter().map(|words| murmur3::hash(seed, words));
            assert_eq!(murmur3.collect::<HashSet<_>>().len(), 1, "seed {seed}");
            let nh = nh(seed.into());
            let masked = keys.iter().map(|key| nh.masked(&halves, |word| key.words[word]));
            assert_eq!(masked.collect::<HashSet<_>>().len(), 16, "seed {seed}");
            let whole = keys.iter().map(|key| nh.whole(|word| key.words[word]));
            assert_eq!(whole.collect::<HashSet<_>>().len(), 16, "seed {seed}");
        }
    }

    /// Keys in steps, as of a scan over ports or addresses, lie in buckets as random ones do.
    #[test]
    fn keys_in_steps_spread_over_buckets_as_random_ones() {
        let mut crowded = 0;
        for (word, step) in [(12, 1), (12, 1 << 32), (17, 1 << 16), (17, 0x0001_0001_0000_0000)] {
            for seed in 0..50 {
                let nh = nh(seed);
                let mut counts = [0u32; 1024];
                for n in 0..8192u64 {
                    let mut key = key([1, 2, 3, 4]);
                    key.words[word] ^= n.wrapping_mul(step);
                    counts[nh.whole(|word| key.words[word]) as usize % 1024] += 1;
                }
                // 8 on average; of random keys one bucket in 10^8 has more than 32.
                crowded += counts.iter().filter(|count| **count > 32).count();
            }
        }
        assert_eq!(crowded, 0);
    }

    #[test]
    fn every_half_counts_and_so_does_its_place() {
        let nh = nh(3);
        let hash = |word: usize, value: u64| nh.whole(|i| if i == word { value } else { 0 });
        let values = (0..KEY_WORDS).flat_map(|word| [1, 1 << 32, 7, 7 << 32].map(|v| (word, v)));
        let all: HashSet<u32> = values.map(|(word, value)| hash(word, value)).collect();
        assert_eq!(all.len(), 4 * KEY_WORDS);
        // An odd number of halves: the last one counts, too.
        let mut mask = FlowKey::default();
        (mask.words[1], mask.words[4]) = (u64::MAX, 0xff);
        let masked = |last: u64| nh.masked(&halves(&mask), |word| if word == 4 { last } else { 9 });
        assert_ne!(masked(1), masked(2));
        assert_eq!(masked(1), masked(0x101), "a bit outside the mask");
    }

    #[test]
    fn numbers_do_not_show_in_messages() {
        assert_eq!(format!("{:?}", nh(7)), "Nh");
    }
}
