//! A few words of each key of a batch, side by side.
//!
//! A megaflow is compared with one key at a time, so for that the words of a key
//! must lie together again. Four words of 16 keys are turned back in some forty
//! instructions, and then each comparison is one of 32 bytes with 32 bytes.
//!
//! `unsafe` here: vectors are loaded from and stored to arrays, and a function
//! compiled for AVX-512 is called after the processor was checked.
#![allow(unsafe_code)]

use thalweg_cpu::Isa;
use thalweg_packet::{BATCH, Lanes, TransposedKeys};

use super::flow::{Layout, NEAR_WORDS};

/// Some words of one key.
pub(super) type Row = [u64; NEAR_WORDS];

/// Turns words of transposed keys back into rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    // Private: only `new` creates one, and it checks the processor.
    isa: Isa,
}

impl Rows {
    /// # Panics
    /// When the processor lacks the instructions of `isa`.
    pub(super) fn new(isa: Isa) -> Self {
        assert!(isa.is_available(), "the processor lacks {isa}");
        Self { isa }
    }

    /// Puts the words numbered `words` of the keys of `lanes` into `rows`. Rows of
    /// other lanes are unspecified.
    #[inline]
    pub(super) fn turn(
        self,
        keys: &TransposedKeys,
        words: &Layout,
        lanes: Lanes,
        rows: &mut [Row; BATCH],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx512 && lanes.count() >= LEAST_LANES {
            // SAFETY: `new` checked that the processor has AVX-512.
            return unsafe { x86::turn(keys, words, rows) };
        }
        for lane in lanes {
            rows[lane] = words.map(|word| keys.word(lane, usize::from(word)));
        }
    }
}

/// With fewer lanes, turning them one by one costs less.
const LEAST_LANES: usize = 4;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512i, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_shuffle_i64x2,
        _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
        _mm512_unpacklo_epi64,
    };

    use thalweg_cpu::avx512;

    use super::{BATCH, Layout, NEAR_WORDS, Row, TransposedKeys};

    #[avx512]
    pub(super) fn turn(keys: &TransposedKeys, words: &Layout, rows: &mut [Row; BATCH]) {
        for first in [0, 16] {
            // Words of 64 bits: `low` of lanes 0, 1, 4, 5, 8, ..., `high` of 2, 3, 6, ...
            let mut low = [_mm512_setzero_si512(); NEAR_WORDS];
            let mut high = low;
            for (i, word) in words.iter().enumerate() {
                let half = 2 * usize::from(*word);
                let (l, h) = (load(keys.half(half), first), load(keys.half(half + 1), first));
                low[i] = _mm512_unpacklo_epi32(l, h);
                high[i] = _mm512_unpackhi_epi32(l, h);
            }
            for (at, w) in [(0, low), (2, high)] {
                // Words 0 and 1, and 2 and 3, of every fourth lane from `at` on, then of
                // those after them.
                let pairs = [
                    (_mm512_unpacklo_epi64(w[0], w[1]), _mm512_unpacklo_epi64(w[2], w[3])),
                    (_mm512_unpackhi_epi64(w[0], w[1]), _mm512_unpackhi_epi64(w[2], w[3])),
                ];
                for (next, (a, b)) in pairs.into_iter().enumerate() {
                    let lane = first + at + next;
                    // 128-bit quarters: a0 a1 b0 b1 and a2 a3 b2 b3.
                    let (front, back) =
                        (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b));
                    store_rows(rows, lane, _mm512_shuffle_i64x2::<0xd8>(front, front));
                    store_rows(rows, lane + 8, _mm512_shuffle_i64x2::<0xd8>(back, back));
                }
            }
        }
    }

    /// Stores the rows of `lane` and of the lane four further on.
    #[avx512]
    #[inline]
    fn store_rows(rows: &mut [Row; BATCH], lane: usize, v: __m512i) {
        let mut both = [0; 2 * NEAR_WORDS];
        // SAFETY: the array has 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(both.as_mut_ptr().cast(), v) };
        rows[lane].copy_from_slice(&both[..NEAR_WORDS]);
        rows[lane + 4].copy_from_slice(&both[NEAR_WORDS..]);
    }

    #[avx512]
    #[inline]
    fn load(half: &[u32; BATCH], first: usize) -> __m512i {
        let lanes = &half[first..first + 16];
        // SAFETY: the slice has 64 bytes; the load needs no alignment.
        unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_packet::FlowKey;

    use super::*;

    #[test]
    fn every_level_turns_the_words_back() {
        let mut keys: [FlowKey; BATCH] = std::array::from_fn(|lane| FlowKey {
            words: std::array::from_fn(|i| {
                ((lane * 100 + i) as u64).wrapping_mul(0x0123_4567_89ab_cdef)
            }),
        });
        keys.iter_mut().for_each(|key| key.words[4] = 0);
        let transposed = TransposedKeys::from_keys(&keys);
        for isa in Isa::available() {
            for (words, lanes) in [([0, 7, 22, 4], Lanes::ALL), ([4, 4, 4, 1], Lanes(0x8100_0101))]
            {
                let mut rows = [[1; NEAR_WORDS]; BATCH];
                Rows::new(isa).turn(&transposed, &words, lanes, &mut rows);
                for lane in lanes {
                    let expected = words.map(|word| keys[lane].words[usize::from(word)]);
                    assert_eq!(rows[lane], expected, "{isa} lane {lane}");
                }
            }
        }
    }
}
