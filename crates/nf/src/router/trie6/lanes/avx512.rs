//! Eight addresses on their way down, with AVX-512.

use core::arch::asm;
use core::arch::x86_64::{
    __m256i, __m512i, __mmask8, _mm_cvtsi64_si128, _mm_storeu_si128, _mm256_and_si256,
    _mm256_cvtepi32_epi16, _mm256_mask_and_epi32, _mm256_mask_test_epi32_mask,
    _mm256_movepi32_mask, _mm256_set1_epi32, _mm512_add_epi64, _mm512_and_si512,
    _mm512_andnot_si512, _mm512_cvtepi64_epi32, _mm512_cvtepu32_epi64, _mm512_loadu_si512,
    _mm512_mask_i64gather_epi32, _mm512_mask_i64gather_epi64, _mm512_mask_mov_epi64,
    _mm512_movepi64_mask, _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setr_epi64,
    _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srl_epi64, _mm512_srli_epi64,
};
use core::ptr::null;

use super::super::{Entry, Root, TABLE, TOP, UNIT};
use crate::router::table::HopId;

/// Addresses of a register.
pub(super) const LANES: usize = 8;

kernels!("avx512f,avx512bw,avx512dq,avx512vl");

/// Eight addresses on their way down.
#[derive(Clone, Copy)]
struct Way {
    /// The upper halves of the addresses.
    upper: __m512i,
    /// Where the words of their chunks are, of those with a table.
    words: __m512i,
    /// Those with a table.
    wide: __mmask8,
    entries: __m256i,
}

impl Way {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn new(root: &Root, addresses: &[u128; LANES]) -> Self {
        let (four, others) = addresses.split_at(LANES / 2);
        // SAFETY: half of the addresses are 64 bytes; the load needs no alignment.
        let four = unsafe { _mm512_loadu_si512(four.as_ptr().cast()) };
        // SAFETY: likewise.
        let others = unsafe { _mm512_loadu_si512(others.as_ptr().cast()) };
        let second_of_each = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let upper = _mm512_permutex2var_epi64(four, second_of_each, others);

        assert!(root.tables.len() == 1 << TOP);
        let (slot, all) = (_mm512_srli_epi64::<48>(upper), all());
        let (none, tables) = (_mm512_setzero_si512(), root.tables.as_ptr().cast());
        // SAFETY: the top table has an entry for each value of 16 bits.
        let tables = unsafe { _mm512_mask_i64gather_epi64::<8>(none, all, slot, tables) };
        let wide = _mm512_movepi64_mask(tables);
        let words = _mm512_andnot_si512(_mm512_set1_epi64(TABLE as i64), tables);
        Self { upper, words, wide, entries: _mm512_cvtepi64_epi32(tables) }
    }

    /// On to the entries of the chunks' tables.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn enter(&mut self) {
        let slot = _mm512_and_si512(_mm512_srli_epi64::<32>(self.upper), number(0xffff));
        let at = _mm512_add_epi64(self.words, _mm512_slli_epi64::<2>(slot));
        // SAFETY: the tables of these lanes have an entry for each value of 16 bits, and stay as
        // long as the root, which is borrowed.
        self.entries =
            unsafe { _mm512_mask_i64gather_epi32::<1>(self.entries, self.wide, at, null()) };
    }

    /// Those that are not at a next hop.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn left(&self) -> __mmask8 {
        _mm256_movepi32_mask(self.entries)
    }

    /// On by the 8 bits of the upper halves from `shift` on; those that are not done by that.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn step(&mut self, shift: i64) -> __mmask8 {
        let of = self.left() & self.wide;
        let leaf =
            _mm256_mask_test_epi32_mask(of, self.entries, _mm256_set1_epi32(Entry::LEAF as i32));
        let place = _mm256_and_si256(self.entries, _mm256_set1_epi32(Entry::PLACE as i32));
        const { assert!(4 * UNIT == 1 << 9) };
        let group = _mm512_slli_epi64::<9>(_mm512_cvtepu32_epi64(place));
        let bits = _mm512_srl_epi64(self.upper, _mm_cvtsi64_si128(shift));
        let slot = _mm512_and_si512(bits, number(0xff));
        let (of_two, of_four) = (_mm512_slli_epi64::<1>(slot), _mm512_slli_epi64::<2>(slot));
        let within = _mm512_mask_mov_epi64(of_four, leaf, of_two);
        let at = _mm512_add_epi64(_mm512_add_epi64(self.words, group), within);
        // SAFETY: the entries of these lanes name groups of their chunks, with as many entries
        // of that size as there are values of 8 bits, and a word behind the last; they stay as
        // long as the root, which is borrowed.
        let next = unsafe { _mm512_mask_i64gather_epi32::<1>(self.entries, of, at, null()) };
        self.entries = _mm256_mask_and_epi32(next, leaf, next, _mm256_set1_epi32(0xffff));
        self.left() & self.wide
    }

    /// Writes the next hops; those of the lanes that are returned are none yet.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn finish(&self, hops: &mut [HopId; LANES]) -> __mmask8 {
        let narrowed = _mm256_cvtepi32_epi16(self.entries);
        // SAFETY: eight next hops are as many numbers of 16 bits; the store needs no alignment.
        unsafe { _mm_storeu_si128(hops.as_mut_ptr().cast(), narrowed) };
        self.left()
    }
}

/// All lanes. The compiler makes such a mask of the register k0 combined with itself, and the
/// processor waits for what k0 is of: the end of the lookups before.
#[inline]
fn all() -> __mmask8 {
    let lanes: u32;
    // SAFETY: a register is set.
    unsafe {
        asm!("mov {:e}, 0xff", out(reg) lanes, options(pure, nomem, nostack, preserves_flags));
    }
    lanes as __mmask8
}

#[target_feature(enable = "avx512f")]
#[inline]
fn number(n: u32) -> __m512i {
    _mm512_set1_epi64(n.into())
}
