//! Sixteen addresses to a register.

use core::arch::x86_64::{
    __m512i, __mmask16, _mm_cvtsi32_si128, _mm256_storeu_si256 as store, _mm512_add_epi32 as add,
    _mm512_and_si512 as and, _mm512_cvtepi32_epi16 as narrow, _mm512_loadu_si512,
    _mm512_mask_and_epi32 as mask_and, _mm512_mask_i32gather_epi32 as mask_gather,
    _mm512_mask_srli_epi32 as mask_srli, _mm512_mask_test_epi32_mask as mask_test,
    _mm512_movepi32_mask as movepi32_mask, _mm512_permutex2var_epi32, _mm512_rorv_epi32 as rorv,
    _mm512_set1_epi32 as set1, _mm512_setr_epi32, _mm512_shuffle_i64x2, _mm512_slli_epi32 as slli,
    _mm512_srl_epi32 as srl, _mm512_srli_epi32 as srli,
};
use std::sync::atomic::AtomicU32;

use thalweg_cpu::avx512;

use super::super::{FEW, Kernel};
use super::all;
use crate::table::HopId;
use crate::trie6::groups::{Entry, UNIT};
use crate::trie6::{Root, TOP};

/// Addresses per register.
pub(in super::super) const LANES: usize = 16;

kernels!(avx512, 1 2 3 4);
way!(__m512i, __mmask16);

/// The first 32 bits of the addresses, and their second 32 bits.
#[avx512]
#[inline]
fn upper_halves(addresses: &[u128; LANES]) -> (__m512i, __m512i) {
    let quarters = addresses.as_chunks::<4>().0;
    // SAFETY: four addresses are 64 bytes; the load needs no alignment.
    let quarter = |n: usize| unsafe { _mm512_loadu_si512(quarters[n].as_ptr().cast()) };
    // The first words of eight addresses, then their second words.
    let words = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30);
    let these = _mm512_permutex2var_epi32(quarter(0), words, quarter(1));
    let others = _mm512_permutex2var_epi32(quarter(2), words, quarter(3));
    let first = _mm512_shuffle_i64x2::<0b01_00_01_00>(these, others);
    (first, _mm512_shuffle_i64x2::<0b11_10_11_10>(these, others))
}
