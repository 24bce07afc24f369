//! Sixteen keys at a time: the hash, the position, and memory.
//!
//! `unsafe` here: loads and stores of whole arrays. Everything is a function that
//! the compiler lets only code for the same instructions call without `unsafe`.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm512_add_epi32, _mm512_loadu_si512, _mm512_mask_mov_epi32,
    _mm512_maskz_compress_epi32, _mm512_mul_epu32, _mm512_mullo_epi32, _mm512_rol_epi32,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_slli_epi32, _mm512_srl_epi32, _mm512_srli_epi32,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512,
};

use thalweg_cpu::avx512;

use super::hash::{ADDEND, FINAL_MULTIPLIERS, Hashes, KEY_BYTES, Reduction, SECOND_MULTIPLIER};

/// Keys of a vector.
pub(super) const LANES: usize = 16;

/// The same number in every lane.
#[inline]
#[avx512]
pub(super) fn all(n: u32) -> __m512i {
    _mm512_set1_epi32(n as i32)
}

#[inline]
#[avx512]
pub(super) fn load(from: &[u32; LANES]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[avx512]
pub(super) fn store(to: &mut [u32; LANES], v: __m512i) {
    // SAFETY: the array has the 64 bytes that are written.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) };
}

/// Writes the lanes of `chosen` to `to[at..at + 16]`, in order; what lies past them
/// is overwritten with zeros.
///
/// The lanes are compressed in the register: compressing into memory is microcode
/// on AMD's processors.
#[inline]
#[avx512]
pub(super) fn append(to: &mut [u32], at: usize, chosen: u16, v: __m512i) {
    let whole = to[at..].first_chunk_mut().expect("there is room for a whole vector");
    store(whole, _mm512_maskz_compress_epi32(chosen, v));
}

/// One hash function in registers, the same for all lanes or one for each.
#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) multiplier: __m512i,
    pub(super) seed: __m512i,
}

impl Function {
    /// Function `n` in every lane.
    #[inline]
    #[avx512]
    pub(super) fn new(hashes: &Hashes, n: usize) -> Self {
        Self { multiplier: all(hashes.multipliers[n]), seed: all(hashes.seeds[n]) }
    }

    /// As `Hashes::hash`.
    #[inline]
    #[avx512]
    pub(super) fn hash(self, keys: __m512i) -> __m512i {
        let k = _mm512_rol_epi32::<15>(_mm512_mullo_epi32(keys, self.multiplier));
        let h = _mm512_xor_si512(_mm512_mullo_epi32(k, all(SECOND_MULTIPLIER)), self.seed);
        let h = _mm512_rol_epi32::<13>(h);
        // Five times, as one and four times.
        let h = _mm512_add_epi32(_mm512_add_epi32(h, _mm512_slli_epi32::<2>(h)), all(ADDEND));
        let h = _mm512_xor_si512(h, all(KEY_BYTES));
        let h = _mm512_xor_si512(h, _mm512_srli_epi32::<16>(h));
        let h = _mm512_mullo_epi32(h, all(FINAL_MULTIPLIERS[0]));
        let h = _mm512_xor_si512(h, _mm512_srli_epi32::<13>(h));
        let h = _mm512_mullo_epi32(h, all(FINAL_MULTIPLIERS[1]));
        _mm512_xor_si512(h, _mm512_srli_epi32::<16>(h))
    }
}

/// As `Reduction::reduce`; by a shift when `SHIFT`.
#[inline]
#[avx512]
pub(super) fn reduce<const SHIFT: bool>(reduction: Reduction, hashes: __m512i) -> __m512i {
    if SHIFT {
        let count = reduction.shift().unwrap_or(0);
        return _mm512_srl_epi32(hashes, _mm_cvtsi32_si128(count as i32));
    }
    let range = _mm512_set1_epi64(reduction.range() as i64);
    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(hashes, range));
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(hashes), range);
    _mm512_mask_mov_epi32(even, 0xaaaa, odd)
}
