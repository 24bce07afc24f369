//! Sixteen addresses on their way down, with AVX-512.

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, __mmask16, _mm_cvtsi32_si128, _mm256_storeu_si256, _mm512_add_epi32, _mm512_and_si512,
    _mm512_cvtepi32_epi16, _mm512_loadu_si512, _mm512_mask_and_epi32, _mm512_mask_i32gather_epi32,
    _mm512_mask_srli_epi32, _mm512_mask_test_epi32_mask, _mm512_movepi32_mask,
    _mm512_permutex2var_epi32, _mm512_rorv_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
    _mm512_setzero_si512, _mm512_shuffle_i64x2, _mm512_slli_epi32, _mm512_srl_epi32,
    _mm512_srli_epi32,
};
use std::sync::atomic::AtomicU32;

use super::super::groups::{Entry, UNIT};
use super::super::{Root, TOP};
use crate::router::table::HopId;

/// Addresses of a register.
pub(super) const LANES: usize = 16;

kernels!("avx512f,avx512bw,avx512dq,avx512vl,popcnt", 1 2 3 4);

/// Sixteen addresses on their way down.
#[derive(Clone, Copy)]
struct Way {
    /// The first 32 bits of the addresses.
    first: __m512i,
    /// The second 32 bits.
    second: __m512i,
    entries: __m512i,
}

impl Way {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn new(root: &Root, addresses: &[u128; LANES]) -> Self {
        let quarters = addresses.as_chunks::<4>().0;
        // SAFETY: four addresses are 64 bytes; the load needs no alignment.
        let quarter = |n: usize| unsafe { _mm512_loadu_si512(quarters[n].as_ptr().cast()) };
        // The first of eight addresses, and their second.
        let words = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30);
        let these = _mm512_permutex2var_epi32(quarter(0), words, quarter(1));
        let others = _mm512_permutex2var_epi32(quarter(2), words, quarter(3));
        let first = _mm512_shuffle_i64x2::<0b01_00_01_00>(these, others);
        let second = _mm512_shuffle_i64x2::<0b11_10_11_10>(these, others);

        assert!(root.top.len() == 1 << TOP);
        let (slots, none) = (_mm512_srli_epi32::<16>(first), _mm512_setzero_si512());
        let top = root.top.as_ptr().cast();
        // SAFETY: the top table has an entry, which is a word, for each value of 16 bits.
        let entries = unsafe { _mm512_mask_i32gather_epi32::<4>(none, all(), slots, top) };
        Self { first, second, entries }
    }

    /// The lowest 8 bits of the lanes are those of the first 32 bits from `shift` on.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn first_bits(&self, shift: i32) -> __m512i {
        _mm512_srl_epi32(self.first, _mm_cvtsi32_si128(shift))
    }

    /// Likewise of the second 32 bits.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn second_bits(&self, shift: i32) -> __m512i {
        _mm512_srl_epi32(self.second, _mm_cvtsi32_si128(shift))
    }

    /// On by 8 bits, the lowest of the lanes of `bits`; those that are not done by that.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn step(&mut self, words: &[AtomicU32], bits: __m512i) -> __mmask16 {
        let of = _mm512_movepi32_mask(self.entries);
        let number = |n: u32| _mm512_set1_epi32(n.cast_signed());
        let leaf = _mm512_mask_test_epi32_mask(of, self.entries, number(Entry::LEAF));
        let slot = _mm512_and_si512(bits, number(0xff));
        // The flags are shifted out.
        const { assert!(UNIT == 1 << 6 && Entry::LEAF >= 1 << (u32::BITS - 6)) };
        let group = _mm512_slli_epi32::<6>(self.entries);
        let at = _mm512_add_epi32(group, _mm512_mask_srli_epi32::<2>(slot, leaf, slot));
        let words = words.as_ptr().cast();
        // SAFETY: the entries of these lanes name groups of the arena, with a word for each value
        // of 8 bits, or of 6 where they are leaves.
        let next = unsafe { _mm512_mask_i32gather_epi32::<4>(self.entries, of, at, words) };
        // Of a leaf's word, which has four entries, the right one. Only the lowest 5 bits say how
        // far it is.
        let right = _mm512_rorv_epi32(next, _mm512_slli_epi32::<3>(bits));
        self.entries = _mm512_mask_and_epi32(next, leaf, right, number(0xff));
        _mm512_movepi32_mask(self.entries)
    }

    /// Writes the next hops; those of the lanes that are returned are none yet.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn finish(&self, hops: &mut [HopId; LANES]) -> __mmask16 {
        let narrowed = _mm512_cvtepi32_epi16(self.entries);
        // SAFETY: sixteen next hops are as many numbers of 16 bits; the store needs no alignment.
        unsafe { _mm256_storeu_si256(hops.as_mut_ptr().cast(), narrowed) };
        _mm512_movepi32_mask(self.entries)
    }
}

/// All lanes. The compiler makes such a mask of the register k0 combined with itself, and the
/// processor waits for what k0 is of: the end of the lookups before.
#[inline]
fn all() -> __mmask16 {
    let lanes: u32;
    // SAFETY: a register is set.
    unsafe {
        asm!("mov {:e}, 0xffff", out(reg) lanes, options(pure, nomem, nostack, preserves_flags));
    }
    lanes as __mmask16
}
