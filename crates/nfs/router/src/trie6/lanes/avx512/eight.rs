//! Eight addresses to a register.

use core::arch::x86_64::{
    __m256i, __mmask8, _mm_cvtsi32_si128, _mm_storeu_si128 as store, _mm256_add_epi32 as add,
    _mm256_and_si256 as and, _mm256_cvtepi32_epi16 as narrow, _mm256_loadu_si256,
    _mm256_mask_and_epi32 as mask_and, _mm256_mask_srli_epi32 as mask_srli,
    _mm256_mask_test_epi32_mask as mask_test, _mm256_mmask_i32gather_epi32 as mask_gather,
    _mm256_movepi32_mask as movepi32_mask, _mm256_permute2x128_si256, _mm256_permutex2var_epi32,
    _mm256_rorv_epi32 as rorv, _mm256_set1_epi32 as set1, _mm256_setr_epi32,
    _mm256_slli_epi32 as slli, _mm256_srl_epi32 as srl, _mm256_srli_epi32 as srli,
};
use std::sync::atomic::AtomicU32;

use thalweg_cpu::avx512;

use super::super::{FEW, Kernel};
use super::all;
use crate::table::HopId;
use crate::trie6::groups::{Entry, UNIT};
use crate::trie6::{Root, TOP};

/// Addresses per register: four registers hold a batch.
pub(in super::super) const LANES: usize = 8;

kernels!(avx512, 1 2 3 4);
way!(__m256i, __mmask8);

/// The first 32 bits of the addresses, and their second 32 bits.
#[avx512]
#[inline]
fn upper_halves(addresses: &[u128; LANES]) -> (__m256i, __m256i) {
    let pairs = addresses.as_chunks::<2>().0;
    // SAFETY: two addresses are 32 bytes; the load needs no alignment.
    let pair = |n: usize| unsafe { _mm256_loadu_si256(pairs[n].as_ptr().cast()) };
    // The first words of four addresses, then their second words.
    let words = _mm256_setr_epi32(3, 7, 11, 15, 2, 6, 10, 14);
    let these = _mm256_permutex2var_epi32(pair(0), words, pair(1));
    let others = _mm256_permutex2var_epi32(pair(2), words, pair(3));
    let first = _mm256_permute2x128_si256::<0x20>(these, others);
    (first, _mm256_permute2x128_si256::<0x31>(these, others))
}
