//! The hashes of all keys of a transposed batch.
//!
//! The loops over lanes are plain arithmetic on arrays: compiled for AVX2 and for
//! AVX-512, they become vector instructions. So all levels run the same text,
//! and differ only in the instructions that the compiler may use.
//!
//! `unsafe` here: functions compiled for more than the build's target are called
//! after the processor was checked.
#![allow(unsafe_code)]

use thalweg_cpu::Isa;
use thalweg_packet::{BATCH, Half, Lanes, TransposedKeys};

use super::{MaskedHalf, Nh};
use crate::secret::Keys;

/// With fewer packets left than this, they are hashed one by one. The paper has
/// 8; measured here (`bench/`), the vector form of a whole batch costs as much
/// as two or three scalar hashes.
pub(crate) const LEAST_LANES: usize = 3;

/// Lanes that are hashed side by side, so that their sums stay in registers: two of
/// AVX-512, four of AVX2.
const GROUP: usize = 16;

/// Hashes keys, one or a batch of them, with the numbers of one [`Nh`] and the instructions
/// of one level.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    // Private: only `new` creates one, and it checks the processor.
    isa: Isa,
    nh: Nh,
}

impl Hasher {
    /// # Panics
    /// When the processor lacks the instructions of `isa`.
    pub(crate) fn new(isa: Isa, keys: Keys) -> Self {
        assert!(isa.is_available(), "the processor lacks {isa}");
        Self { isa, nh: Nh::new(keys) }
    }

    #[cfg(test)]
    pub(crate) fn nh(&self) -> &Nh {
        &self.nh
    }

    /// The hash of one key under a mask; `word` gives the key's words.
    #[inline]
    pub(crate) fn masked(&self, halves: &[MaskedHalf], word: impl Fn(usize) -> u64) -> u32 {
        self.nh.masked(halves, word)
    }

    /// The hash of one whole key.
    #[inline]
    pub(crate) fn whole(&self, word: impl Fn(usize) -> u64) -> u32 {
        self.nh.whole(word)
    }

    /// The hashes of the keys of `lanes` under a mask; those of other lanes are
    /// unspecified.
    #[inline]
    pub(crate) fn masked_lanes(
        &self,
        halves: &[MaskedHalf],
        keys: &TransposedKeys,
        lanes: Lanes,
        out: &mut Half,
    ) {
        if self.isa == Isa::Scalar || lanes.count() < LEAST_LANES {
            for lane in lanes {
                out[lane] = self.masked(halves, |word| keys.word(lane, word));
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        match self.isa {
            // SAFETY: `new` checked that the processor has the level.
            Isa::Avx512 => unsafe { x86::masked_avx512(&self.nh, halves, keys, out) },
            // SAFETY: likewise.
            _ => unsafe { x86::masked_avx2(&self.nh, halves, keys, out) },
        }
    }

    /// The hashes of the whole keys of `lanes`; those of other lanes are unspecified.
    #[inline]
    pub(crate) fn whole_lanes(&self, keys: &TransposedKeys, lanes: Lanes, out: &mut Half) {
        if self.isa == Isa::Scalar || lanes.count() < LEAST_LANES {
            for lane in lanes {
                out[lane] = self.whole(|word| keys.word(lane, word));
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        match self.isa {
            // SAFETY: `new` checked that the processor has the level.
            Isa::Avx512 => unsafe { x86::whole_avx512(&self.nh, keys, out) },
            // SAFETY: likewise.
            _ => unsafe { x86::whole_avx2(&self.nh, keys, out) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use thalweg_cpu::{avx2, avx512};

    use super::{Half, MaskedHalf, Nh, TransposedKeys, all_masked, all_whole};

    #[avx512]
    pub(super) fn masked_avx512(
        nh: &Nh,
        halves: &[MaskedHalf],
        keys: &TransposedKeys,
        out: &mut Half,
    ) {
        all_masked(nh, halves, keys, out);
    }

    #[avx2]
    pub(super) fn masked_avx2(
        nh: &Nh,
        halves: &[MaskedHalf],
        keys: &TransposedKeys,
        out: &mut Half,
    ) {
        all_masked(nh, halves, keys, out);
    }

    #[avx512]
    pub(super) fn whole_avx512(nh: &Nh, keys: &TransposedKeys, out: &mut Half) {
        all_whole(nh, keys, out);
    }

    #[avx2]
    pub(super) fn whole_avx2(nh: &Nh, keys: &TransposedKeys, out: &mut Half) {
        all_whole(nh, keys, out);
    }
}

#[inline(always)]
fn all_masked(nh: &Nh, halves: &[MaskedHalf], keys: &TransposedKeys, out: &mut Half) {
    let (pairs, last) = halves.as_chunks();
    for first in (0..BATCH).step_by(GROUP) {
        let mut sums = [0u64; GROUP];
        let lanes_of = |of: MaskedHalf| &keys.half(usize::from(of.half))[first..first + GROUP];
        for &[a, b] in pairs {
            for ((sum, of_a), of_b) in sums.iter_mut().zip(lanes_of(a)).zip(lanes_of(b)) {
                *sum = sum.wrapping_add(nh.pair((a, *of_a), Some((b, *of_b))));
            }
        }
        for &a in last {
            for (sum, of_a) in sums.iter_mut().zip(lanes_of(a)) {
                *sum = sum.wrapping_add(nh.pair((a, *of_a), None));
            }
        }
        for (out, sum) in out[first..].iter_mut().zip(sums) {
            *out = nh.finish(sum);
        }
    }
}

#[inline(always)]
fn all_whole(nh: &Nh, keys: &TransposedKeys, out: &mut Half) {
    for first in (0..BATCH).step_by(GROUP) {
        let mut sums = [0u64; GROUP];
        let mut present = keys.present();
        while present != 0 {
            let word = present.trailing_zeros() as usize;
            present &= present - 1;
            let low = &keys.half(2 * word)[first..first + GROUP];
            let high = &keys.half(2 * word + 1)[first..first + GROUP];
            for ((sum, low), high) in sums.iter_mut().zip(low).zip(high) {
                *sum = sum.wrapping_add(nh.word(word, *low, *high));
            }
        }
        for (out, sum) in out[first..].iter_mut().zip(sums) {
            *out = nh.finish(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_packet::{FlowKey, KEY_WORDS};

    use super::*;

    fn sparse_key() -> impl Strategy<Value = FlowKey> {
        let word = prop_oneof![Just(0), Just(1), Just(1 << 32), Just(u64::MAX), any::<u64>()];
        prop::collection::vec((0..KEY_WORDS, word), 0..6).prop_map(|words| {
            let mut key = FlowKey::default();
            words.into_iter().for_each(|(i, word)| key.words[i] = word);
            key
        })
    }

    proptest! {
        #[test]
        fn every_level_hashes_as_the_scalar_reference(
            keys in prop::collection::vec(sparse_key(), BATCH),
            mask in sparse_key(),
            seed in any::<u64>(),
            lanes in any::<u32>(),
        ) {
            let keys: [FlowKey; BATCH] = keys.try_into().unwrap();
            let transposed = TransposedKeys::from_keys(&keys);
            let halves = crate::hash::halves(&mask);
            for isa in Isa::available() {
                let (mut of_mask, mut of_whole) = ([0; BATCH], [0; BATCH]);
                let hasher = Hasher::new(isa, Keys::seeded(seed));
                let nh = Nh::new(Keys::seeded(seed));
                hasher.masked_lanes(&halves, &transposed, Lanes(lanes), &mut of_mask);
                hasher.whole_lanes(&transposed, Lanes(lanes), &mut of_whole);
                for lane in Lanes(lanes) {
                    let word = |i: usize| keys[lane].words[i];
                    prop_assert_eq!(of_mask[lane], nh.masked(&halves, word));
                    prop_assert_eq!(of_whole[lane], nh.whole(word));
                }
            }
        }
    }
}
