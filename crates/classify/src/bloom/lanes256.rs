//! Eight keys at a time, for AVX2.
//!
//! `unsafe` here: loads and stores of whole arrays. Everything is a function that
//! the compiler lets only code for the same instructions call without `unsafe`.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_add_epi32, _mm256_blend_epi32, _mm256_loadu_si256,
    _mm256_mul_epu32, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_epi64x,
    _mm256_slli_epi32, _mm256_srl_epi32, _mm256_srli_epi32, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use thalweg_cpu::avx2;

use super::hash::{ADDEND, FINAL_MULTIPLIERS, KEY_BYTES, Reduction, SECOND_MULTIPLIER};

/// Keys of a vector.
pub(super) const LANES: usize = 8;

/// The same number in every lane.
#[inline]
#[avx2]
pub(super) fn all(n: u32) -> __m256i {
    _mm256_set1_epi32(n as i32)
}

#[inline]
#[avx2]
pub(super) fn load(from: &[u32; LANES]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[avx2]
pub(super) fn store(to: &mut [u32; LANES], v: __m256i) {
    // SAFETY: the array has the 32 bytes that are written.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) };
}

/// The hash of `Hashes::hash`, with a multiplier and a seed for each lane.
#[inline]
#[avx2]
pub(super) fn hash(keys: __m256i, multipliers: __m256i, seeds: __m256i) -> __m256i {
    let k = rotate::<15, 17>(_mm256_mullo_epi32(keys, multipliers));
    let h = _mm256_xor_si256(_mm256_mullo_epi32(k, all(SECOND_MULTIPLIER)), seeds);
    let h = rotate::<13, 19>(h);
    // Five times, as one and four times.
    let h = _mm256_add_epi32(_mm256_add_epi32(h, _mm256_slli_epi32::<2>(h)), all(ADDEND));
    let h = _mm256_xor_si256(h, all(KEY_BYTES));
    let h = _mm256_xor_si256(h, _mm256_srli_epi32::<16>(h));
    let h = _mm256_mullo_epi32(h, all(FINAL_MULTIPLIERS[0]));
    let h = _mm256_xor_si256(h, _mm256_srli_epi32::<13>(h));
    let h = _mm256_mullo_epi32(h, all(FINAL_MULTIPLIERS[1]));
    _mm256_xor_si256(h, _mm256_srli_epi32::<16>(h))
}

#[inline]
#[avx2]
fn rotate<const LEFT: i32, const RIGHT: i32>(v: __m256i) -> __m256i {
    const { assert!(LEFT + RIGHT == 32) };
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(v), _mm256_srli_epi32::<RIGHT>(v))
}

/// As `Reduction::reduce`; by a shift when `SHIFT`.
#[inline]
#[avx2]
pub(super) fn reduce<const SHIFT: bool>(reduction: Reduction, hashes: __m256i) -> __m256i {
    if SHIFT {
        let count = reduction.shift().unwrap_or(0);
        return _mm256_srl_epi32(hashes, _mm_cvtsi32_si128(count as i32));
    }
    let range = _mm256_set1_epi64x(reduction.range() as i64);
    let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(hashes, range));
    let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(hashes), range);
    _mm256_blend_epi32::<0b1010_1010>(even, odd)
}
