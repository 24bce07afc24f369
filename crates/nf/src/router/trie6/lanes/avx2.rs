//! Four addresses on their way down, with AVX2.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_andnot_si128, _mm_castsi128_ps, _mm_cvtsi64_si128,
    _mm_movemask_ps, _mm_set1_epi32, _mm_setr_epi8, _mm_shuffle_epi8, _mm_slli_epi32,
    _mm_srai_epi32, _mm_srli_epi32, _mm_storel_epi64, _mm_sub_epi32, _mm256_add_epi64,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_castsi256_si128, _mm256_cvtepu32_epi64,
    _mm256_extracti128_si256, _mm256_i64gather_epi64, _mm256_loadu_si256,
    _mm256_mask_i64gather_epi32, _mm256_permute4x64_epi64, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_slli_epi64, _mm256_sllv_epi64, _mm256_srl_epi64,
    _mm256_srli_epi64, _mm256_unpackhi_epi64,
};
use core::ptr::null;

use super::super::{Entry, Root, TABLE, TOP, UNIT};
use crate::router::table::HopId;

/// Addresses of a register.
pub(super) const LANES: usize = 4;

kernels!("avx2");

/// Four addresses on their way down.
#[derive(Clone, Copy)]
struct Way {
    /// The upper halves of the addresses.
    upper: __m256i,
    /// Where the words of their chunks are, of those with a table.
    words: __m256i,
    /// The uppermost bit is set of those with a table.
    wide: __m128i,
    entries: __m128i,
}

impl Way {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn new(root: &Root, addresses: &[u128; LANES]) -> Self {
        let (two, others) = addresses.split_at(LANES / 2);
        // SAFETY: two of the addresses are 32 bytes; the load needs no alignment.
        let two = unsafe { _mm256_loadu_si256(two.as_ptr().cast()) };
        // SAFETY: likewise.
        let others = unsafe { _mm256_loadu_si256(others.as_ptr().cast()) };
        let first_third_second_fourth = _mm256_unpackhi_epi64(two, others);
        let upper = _mm256_permute4x64_epi64::<0b11_01_10_00>(first_third_second_fourth);

        assert!(root.tables.len() == 1 << TOP);
        let slot = _mm256_srli_epi64::<48>(upper);
        // SAFETY: the top table has an entry for each value of 16 bits.
        let tables = unsafe { _mm256_i64gather_epi64::<8>(root.tables.as_ptr().cast(), slot) };
        let words = _mm256_andnot_si256(_mm256_set1_epi64x(TABLE as i64), tables);
        let halves = _mm256_permutevar8x32_epi32(tables, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
        let (entries, wide) =
            (_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
        Self { upper, words, wide, entries }
    }

    /// On to the entries of the chunks' tables.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn enter(&mut self) {
        let slot =
            _mm256_and_si256(_mm256_srli_epi64::<32>(self.upper), _mm256_set1_epi64x(0xffff));
        let at = _mm256_add_epi64(self.words, _mm256_slli_epi64::<2>(slot));
        // SAFETY: the tables of these lanes have an entry for each value of 16 bits, and stay as
        // long as the root, which is borrowed.
        self.entries =
            unsafe { _mm256_mask_i64gather_epi32::<1>(self.entries, null(), at, self.wide) };
    }

    /// On by the 8 bits of the upper halves from `shift` on; those that are not done by that.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn step(&mut self, shift: i64) -> u8 {
        let of = _mm_and_si128(self.entries, self.wide);
        let place = _mm_and_si128(self.entries, _mm_set1_epi32(Entry::PLACE as i32));
        const { assert!(4 * UNIT == 1 << 9) };
        let group = _mm256_slli_epi64::<9>(_mm256_cvtepu32_epi64(place));
        let bits = _mm256_srl_epi64(self.upper, _mm_cvtsi64_si128(shift));
        let slot = _mm256_and_si256(bits, _mm256_set1_epi64x(0xff));
        // Entries have 2 bytes in a leaf, whose upper bits are 3, and 4 in other groups, with 2.
        const { assert!(Entry::GROUP == 2 << 30 && Entry::LEAF == 1 << 30) };
        let size = _mm_sub_epi32(_mm_set1_epi32(4), _mm_srli_epi32::<30>(self.entries));
        let within = _mm256_sllv_epi64(slot, _mm256_cvtepu32_epi64(size));
        let at = _mm256_add_epi64(_mm256_add_epi64(self.words, group), within);
        // SAFETY: the entries of these lanes name groups of their chunks, with as many entries
        // of that size as there are values of 8 bits, and a word behind the last; they stay as
        // long as the root, which is borrowed.
        let next = unsafe { _mm256_mask_i64gather_epi32::<1>(self.entries, null(), at, of) };
        let leaf = _mm_srai_epi32::<31>(_mm_slli_epi32::<1>(self.entries));
        self.entries = _mm_andnot_si128(_mm_slli_epi32::<16>(leaf), next);
        set(_mm_and_si128(self.entries, self.wide))
    }

    /// Writes the next hops; those of the lanes that are returned are none yet.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn finish(&self, hops: &mut [HopId; LANES]) -> u8 {
        let lower = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
        let narrowed = _mm_shuffle_epi8(self.entries, lower);
        // SAFETY: four next hops are as many numbers of 16 bits; the store needs no alignment.
        unsafe { _mm_storel_epi64(hops.as_mut_ptr().cast(), narrowed) };
        set(self.entries)
    }
}

/// The lanes whose uppermost bit is set.
#[target_feature(enable = "avx2")]
#[inline]
fn set(lanes: __m128i) -> u8 {
    _mm_movemask_ps(_mm_castsi128_ps(lanes)) as u8
}
