//! The descent of eight addresses, with AVX2.

use core::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm_packus_epi32, _mm_storeu_si128, _mm256_add_epi32,
    _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_i32gather_epi32, _mm256_loadu_si256,
    _mm256_mask_i32gather_epi32, _mm256_movemask_ps, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi32, _mm256_setr_epi32, _mm256_shuffle_ps, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_srl_epi32, _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_unpackhi_epi64,
};
use std::sync::atomic::AtomicU32;

use thalweg_cpu::avx2;

use super::super::groups::{Entry, UNIT};
use super::super::{Root, TOP};
use super::{FEW, Kernel};
use crate::table::HopId;

/// Addresses per register.
pub(super) const LANES: usize = 8;

kernels!(avx2, 1 2 3 4 5 6 7 8);

/// The descent of eight addresses.
#[derive(Clone, Copy)]
struct Way {
    /// The first 32 bits of the addresses.
    first: __m256i,
    /// The second 32 bits.
    second: __m256i,
    entries: __m256i,
}

impl Way {
    #[avx2]
    #[inline]
    fn new(root: &Root, addresses: &[u128; LANES]) -> Self {
        let pairs = addresses.as_chunks::<2>().0;
        // SAFETY: two addresses are 32 bytes; the load needs no alignment.
        let pair = |n: usize| unsafe { _mm256_loadu_si256(pairs[n].as_ptr().cast()) };
        let upper = |n| _mm256_castsi256_ps(_mm256_unpackhi_epi64(pair(n), pair(n + 1)));
        let (these, others) = (upper(0), upper(2));
        // In the order of addresses 0, 2, 4, 6, 1, 3, 5 and 7.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let in_order = |lanes| _mm256_permutevar8x32_epi32(_mm256_castps_si256(lanes), order);
        let first = in_order(_mm256_shuffle_ps::<0b11_01_11_01>(these, others));
        let second = in_order(_mm256_shuffle_ps::<0b10_00_10_00>(these, others));

        assert!(root.top.len() == 1 << TOP);
        let (slots, top) = (_mm256_srli_epi32::<16>(first), root.top.as_ptr().cast());
        // SAFETY: the top table has an entry, which is a word, for each value of 16 bits.
        let entries = unsafe { _mm256_i32gather_epi32::<4>(top, slots) };
        Self { first, second, entries }
    }

    /// The lowest 8 bits of the lanes are those of the first 32 bits from `shift` on.
    #[avx2]
    #[inline]
    fn first_bits(&self, shift: i32) -> __m256i {
        _mm256_srl_epi32(self.first, _mm_cvtsi32_si128(shift))
    }

    /// Likewise of the second 32 bits.
    #[avx2]
    #[inline]
    fn second_bits(&self, shift: i32) -> __m256i {
        _mm256_srl_epi32(self.second, _mm_cvtsi32_si128(shift))
    }

    /// Descends by 8 bits, the lowest of each lane of `bits`; returns the lanes that are not done.
    #[avx2]
    #[inline]
    fn step(&mut self, words: &[AtomicU32], bits: __m256i) -> u8 {
        let of = self.entries;
        let number = |n: u32| _mm256_set1_epi32(n.cast_signed());
        // All bits set in the lanes of leaves. No next hop has the flag.
        let leaf = _mm256_srai_epi32::<31>(_mm256_slli_epi32::<1>(of));
        let slot = _mm256_and_si256(bits, number(0xff));
        // The flags are shifted out.
        const { assert!(UNIT == 1 << 6 && Entry::LEAF >= 1 << (u32::BITS - 6)) };
        let group = _mm256_slli_epi32::<6>(of);
        let two = _mm256_and_si256(leaf, number(2));
        let at = _mm256_add_epi32(group, _mm256_srlv_epi32(slot, two));
        let words = words.as_ptr().cast();
        // SAFETY: the entries of these lanes name groups of the arena, with a word for each value
        // of 8 bits, or of 6 where they are leaves.
        let next = unsafe { _mm256_mask_i32gather_epi32::<4>(of, words, at, of) };
        // Selects the entry in a leaf's word, which has four.
        let before = _mm256_and_si256(_mm256_slli_epi32::<3>(slot), number(24));
        let byte = _mm256_and_si256(_mm256_srlv_epi32(next, before), number(0xff));
        self.entries = _mm256_blendv_epi8(next, byte, leaf);
        set(self.entries)
    }

    /// Writes the next hops; returns the lanes that have none yet.
    #[avx2]
    #[inline]
    fn finish(&self, hops: &mut [HopId; LANES]) -> u8 {
        let lower = _mm256_and_si256(self.entries, _mm256_set1_epi32(0xffff));
        let (four, others) = (_mm256_castsi256_si128(lower), _mm256_extracti128_si256::<1>(lower));
        let narrowed = _mm_packus_epi32(four, others);
        // SAFETY: eight next hops are eight numbers of 16 bits; the store needs no alignment.
        unsafe { _mm_storeu_si128(hops.as_mut_ptr().cast(), narrowed) };
        set(self.entries)
    }
}

/// The lanes whose uppermost bit is set.
#[avx2]
#[inline]
fn set(lanes: __m256i) -> u8 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8
}
