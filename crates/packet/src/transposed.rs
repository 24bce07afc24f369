//! The transposed batch: the flow keys of a batch as arrays over lanes.

use std::fmt;

use crate::key::{Field, FlowKey, KEY_WORDS};
use crate::lanes::BATCH;

/// The same half of the same word of every lane's key.
pub type Half = [u32; BATCH];

/// The flow keys of a batch as 32-bit halves of their words, one array a half,
/// one element a lane: the form in which vector instructions hash and compare
/// the keys of many packets at once (Li, Han and Han, "Leveraging SIMD
/// parallelism for accelerating network applications", APNet 2020).
///
/// Packets of one batch use few of the words, and mostly the same ones. Only
/// words that some lane has are maintained ([`present`](Self::present)); all others
/// are zero in every lane, whatever lies in their arrays. So a lane whose packet
/// is of another shape than its neighbours' has zeros where they have fields,
/// and hashes correctly without special treatment.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct TransposedKeys {
    /// Low half of word 0, high half of word 0, low half of word 1, ...
    halves: [Half; 2 * KEY_WORDS],
    present: u32,
}

impl Default for TransposedKeys {
    fn default() -> Self {
        Self { halves: [[0; BATCH]; 2 * KEY_WORDS], present: 0 }
    }
}

impl fmt::Debug for TransposedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..BATCH).map(|lane| self.key(lane))).finish()
    }
}

impl TransposedKeys {
    /// The transposed form of `keys`, lane by lane.
    pub fn from_keys(keys: &[FlowKey; BATCH]) -> Self {
        let mut transposed = Self::default();
        for (lane, key) in keys.iter().enumerate() {
            transposed.set(lane, key);
        }
        transposed
    }

    /// Makes every key zero.
    #[inline]
    pub fn clear(&mut self) {
        self.present = 0;
    }

    /// The words that some lane may have: bit `i` stands for word `i`. A word
    /// that is not present is zero in all lanes.
    #[inline]
    pub fn present(&self) -> u32 {
        self.present
    }

    /// Whether some lane may have word `word`.
    #[inline]
    pub fn has(&self, word: usize) -> bool {
        word < KEY_WORDS && self.present >> word & 1 == 1
    }

    /// The low and the high half of word `word` over all lanes, or `None` when
    /// the word is zero in all of them.
    #[inline]
    pub fn halves(&self, word: usize) -> Option<(&Half, &Half)> {
        self.has(word).then(|| (&self.halves[2 * word], &self.halves[2 * word + 1]))
    }

    /// Half `half` over all lanes: the low half of word `half / 2` when it is
    /// even, its high half when it is odd. Zeros when the word is not present.
    ///
    /// # Panics
    /// When a key has no such half.
    #[inline]
    pub fn half(&self, half: usize) -> &Half {
        const ZEROS: &Half = &[0; BATCH];
        let place = &self.halves[half];
        if self.has(half / 2) { place } else { ZEROS }
    }

    /// Word `word` of the key in `lane`.
    ///
    /// # Panics
    /// When `lane` is not below [`BATCH`].
    #[inline]
    pub fn word(&self, lane: usize, word: usize) -> u64 {
        self.halves(word)
            .map_or(0, |(low, high)| u64::from(high[lane]) << 32 | u64::from(low[lane]))
    }

    /// The value of `field` of the key in `lane`, right-aligned.
    ///
    /// # Panics
    /// When `lane` is not below [`BATCH`].
    #[inline]
    pub fn get(&self, lane: usize, field: Field) -> u64 {
        self.word(lane, field.word as usize) >> field.shift & field.max()
    }

    /// The key in `lane`.
    ///
    /// # Panics
    /// When `lane` is not below [`BATCH`].
    pub fn key(&self, lane: usize) -> FlowKey {
        let mut key = FlowKey::default();
        for word in bits(self.present) {
            key.words[word] = self.word(lane, word);
        }
        key
    }

    /// Sets the key in `lane`.
    ///
    /// # Panics
    /// When `lane` is not below [`BATCH`].
    pub fn set(&mut self, lane: usize, key: &FlowKey) {
        let words = key.words.iter().enumerate().filter(|(_, word)| **word != 0);
        let needed = words.fold(0, |set, (i, _)| set | 1 << i);
        self.make_present(needed);
        for word in bits(self.present) {
            self.halves[2 * word][lane] = key.words[word] as u32;
            self.halves[2 * word + 1][lane] = (key.words[word] >> 32) as u32;
        }
    }

    /// Sets the key in `lane`: the `words`, in the order of the `fields` that lie in them, and zeros
    /// elsewhere.
    #[inline]
    pub(crate) fn set_only<const N: usize>(
        &mut self,
        lane: usize,
        fields: [Field; N],
        words: [u64; N],
    ) {
        let needed = fields.iter().fold(0, |set, field| set | 1 << field.word);
        if needed & !self.present != 0 {
            self.make_present(needed);
        }
        let mut write = |word: usize, value: u64| {
            self.halves[2 * word][lane] = value as u32;
            self.halves[2 * word + 1][lane] = (value >> 32) as u32;
        };
        for (field, value) in fields.into_iter().zip(words) {
            write(field.word.into(), value);
        }
        for word in bits(self.present & !needed) {
            write(word, 0);
        }
    }

    /// Maintains the words of the set `words` from now on.
    #[inline]
    pub(crate) fn make_present(&mut self, words: u32) {
        for word in bits(words & !self.present) {
            self.halves[2 * word] = [0; BATCH];
            self.halves[2 * word + 1] = [0; BATCH];
        }
        self.present |= words;
    }

    /// Half `half` (twice the word, and one more for its high half), to be
    /// written; its word must be present.
    #[inline]
    pub(crate) fn half_mut(&mut self, half: usize) -> &mut Half {
        debug_assert!(self.has(half / 2), "half {half} is not kept up");
        &mut self.halves[half]
    }
}

/// The positions of the bits of `set`.
pub(crate) fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        bit
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_lane_keeps_the_last_key_set(
            sets in prop::collection::vec(
                (0..BATCH, prop::collection::vec((0..KEY_WORDS, any::<u64>()), 0..6)),
                0..100,
            ),
            cleared_at in 0..100usize,
        ) {
            let mut transposed = TransposedKeys::default();
            let mut keys = [FlowKey::default(); BATCH];
            for (n, (lane, words)) in sets.into_iter().enumerate() {
                if n == cleared_at {
                    transposed.clear();
                    keys = [FlowKey::default(); BATCH];
                }
                let mut key = FlowKey::default();
                words.into_iter().for_each(|(i, word)| key.words[i] = word);
                transposed.set(lane, &key);
                keys[lane] = key;
            }
            for (lane, key) in keys.iter().enumerate() {
                prop_assert_eq!(&transposed.key(lane), key);
                for word in 0..KEY_WORDS {
                    prop_assert_eq!(transposed.word(lane, word), key.words[word]);
                    prop_assert!(key.words[word] == 0 || transposed.has(word));
                }
            }
        }
    }
}
