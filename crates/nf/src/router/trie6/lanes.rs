//! IPv6 lookups side by side, with AVX-512: eight addresses to a register, all of whose entries
//! one instruction loads, and several registers at a time, so that their loads overlap.
//!
//! `unsafe` here: entries are gathered from the memory of the top table and of the chunks.
#![allow(unsafe_code)]

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

use thalweg_packet::Avx512;

use super::{Entry, Root, TABLE, TOP, UNIT};
use crate::router::table::HopId;

/// Addresses of a register.
const LANES: usize = 8;
/// So many that have a longer way than the others are looked up one by one instead, as each load
/// of all registers costs as much for few lanes as for all.
const FEW: usize = 4;

/// Looks up addresses from the first on, as many as fill registers; how many.
pub(super) fn lookup(_: Avx512, root: &Root, addresses: &[u128], hops: &mut [HopId]) -> usize {
    let mut done = 0;
    while let Some((kernel, len)) = kernel(addresses.len() - done) {
        let (addresses, hops) = (&addresses[done..done + len], &mut hops[done..done + len]);
        // SAFETY: who has the right has asked the processor for AVX-512.
        unsafe { kernel(root, addresses, hops) };
        done += len;
    }
    done
}

/// Looks up as many addresses as fill its registers.
type Kernel = unsafe fn(&Root, &[u128], &mut [HopId]);

/// What looks up the first of so many addresses, and how many that is.
fn kernel(left: usize) -> Option<(Kernel, usize)> {
    match left / LANES {
        0 => None,
        1..4 => Some((look::<1> as Kernel, LANES)),
        4..8 => Some((look::<4>, 4 * LANES)),
        _ => Some((look::<8>, 8 * LANES)),
    }
}

/// Looks up the addresses of `N` registers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn look<const N: usize>(root: &Root, addresses: &[u128], hops: &mut [HopId]) {
    let mut ways: [Way; N] = std::array::from_fn(|n| {
        Way::new(root, addresses[n * LANES..].first_chunk().expect("so many addresses"))
    });
    for way in &mut ways {
        way.enter();
    }
    // Up to the end of the addresses' upper halves, where groups end.
    for shift in [24, 16, 8, 0] {
        let mut left = 0;
        for way in &mut ways {
            left += way.step(shift).count_ones() as usize;
        }
        if left <= FEW.min(N) {
            break;
        }
    }
    for (way, (addresses, hops)) in
        ways.iter().zip(addresses.chunks(LANES).zip(hops.chunks_mut(LANES)))
    {
        let unfinished = way.finish(hops.first_chunk_mut().expect("as many hops"));
        for n in (0..LANES).filter(|n| unfinished >> n & 1 == 1) {
            hops[n] = root.lookup(addresses[n]);
        }
    }
}

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
