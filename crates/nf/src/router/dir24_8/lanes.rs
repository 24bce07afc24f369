//! Entries of IPv4 addresses side by side, with AVX-512: sixteen addresses to a register, all of
//! whose entries one instruction loads.
//!
//! **Other threads.** The writer changes entries while they are gathered. That is no data race:
//! the gathers are written in assembly, whose loads the language treats as atomic, and each loads
//! words of four bytes at multiples of four, of which an entry is one half.
//!
//! `unsafe` here: entries are gathered from the tables' memory.
#![allow(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, __mmask16, _mm256_mask_storeu_epi16, _mm512_and_si512, _mm512_cvtepi32_epi16,
    _mm512_maskz_loadu_epi32, _mm512_or_si512, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_srlv_epi32, _mm512_test_epi32_mask,
};
use thalweg_packet::{Avx512, BATCH};

use super::{GROUP, Tbl24};
use crate::router::table::HopId;

/// Addresses of a register.
const LANES: usize = 16;
/// Registers whose addresses are looked up together.
const PAIR: usize = 2;

/// Loads the entries of `addresses` into `hops`; whether one of them names a group.
#[inline]
pub(super) fn lookup(_: Avx512, tbl24: &Tbl24, addresses: &[u32], hops: &mut [HopId]) -> bool {
    // SAFETY: who has the right has asked the processor for AVX-512.
    unsafe { look_all(tbl24, addresses, hops) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn look_all(tbl24: &Tbl24, addresses: &[u32], hops: &mut [HopId]) -> bool {
    // What the router asks for when it is busy: at 0.7 ns an address, loops around it are felt.
    if let (Ok(addresses), Ok(hops)) =
        (<&[u32; BATCH]>::try_from(addresses), <&mut [HopId; BATCH]>::try_from(&mut *hops))
    {
        return look::<PAIR>(tbl24, addresses, hops);
    }
    let mut groups = false;
    let (pairs, rest) = addresses.as_chunks::<{ PAIR * LANES }>();
    let (hops, rest_hops) = hops.as_chunks_mut::<{ PAIR * LANES }>();
    for (addresses, hops) in pairs.iter().zip(hops) {
        groups |= look::<PAIR>(tbl24, addresses, hops);
    }
    for (addresses, hops) in rest.chunks(LANES).zip(rest_hops.chunks_mut(LANES)) {
        groups |= look::<1>(tbl24, addresses, hops);
    }
    groups
}

/// Looks up at most `N` registers of addresses; whether one of their entries names a group.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn look<const N: usize>(tbl24: &Tbl24, addresses: &[u32], hops: &mut [HopId]) -> bool {
    let len = addresses.len().min(hops.len());
    let mut seen = _mm512_setzero_si512();
    for n in 0..N {
        let lanes = first(len.saturating_sub(n * LANES));
        let (from, to) = (addresses.as_ptr(), hops.as_mut_ptr());
        // SAFETY: those lanes are loaded that are addresses.
        let addresses =
            unsafe { _mm512_maskz_loadu_epi32(lanes, from.wrapping_add(n * LANES).cast()) };
        let entries = gather(tbl24, lanes, addresses);
        seen = _mm512_or_si512(seen, entries);
        let (to, narrowed) = (to.wrapping_add(n * LANES), _mm512_cvtepi32_epi16(entries));
        // SAFETY: those lanes are stored that are next hops, which are numbers of 16 bits.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), lanes, narrowed) };
    }
    _mm512_test_epi32_mask(seen, _mm512_set1_epi32(GROUP.into())) != 0
}

/// The first `len` lanes, or all.
fn first(len: usize) -> __mmask16 {
    let lanes = LANES.saturating_sub(len) as u32;
    u16::MAX.checked_shr(lanes).unwrap_or(0)
}

/// Loads the entries of `addresses` into the lower halves of `lanes`. Those of other lanes are 0;
/// what is in the upper halves means nothing.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn gather(tbl24: &Tbl24, lanes: __mmask16, addresses: __m512i) -> __m512i {
    // An address shifted by 8 bits numbers one of 2^24 entries, of which two are a word.
    let words = _mm512_srli_epi32::<9>(addresses);
    let loaded: __m512i;
    // SAFETY: each of the 2^23 words of 4 bytes is within the table, whose entries are 2 bytes.
    // See the module for other threads.
    unsafe {
        // The compiler's own would make the mask of all lanes of the register k0 combined with
        // itself, and wait for what k0 is of: the end of the lookups before.
        asm!(
            "vpxord {loaded}, {loaded}, {loaded}",
            "kmovw {left}, {lanes:e}",
            "vpgatherdd {loaded}{{{left}}}, [{table} + {words} * 4]",
            loaded = out(zmm_reg) loaded,
            lanes = in(reg) u32::from(lanes),
            left = out(kreg) _,
            words = in(zmm_reg) words,
            table = in(reg) tbl24,
            options(nostack, preserves_flags, readonly),
        );
    }
    // The entry of an odd /24 is the word's upper half.
    let odd = _mm512_and_si512(_mm512_srli_epi32::<8>(addresses), _mm512_set1_epi32(1));
    _mm512_srlv_epi32(loaded, _mm512_slli_epi32::<4>(odd))
}
