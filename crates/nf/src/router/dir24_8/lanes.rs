//! IPv4 lookups side by side, with AVX-512: sixteen addresses to a register, all of whose entries
//! one instruction loads.
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
    _mm512_mask_mov_epi32, _mm512_maskz_loadu_epi32, _mm512_or_si512, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_srlv_epi32,
    _mm512_test_epi32_mask,
};
use std::sync::atomic::AtomicU16;

use thalweg_packet::Avx512;

use super::{GROUP, Tbl8, Tbl24};
use crate::router::table::HopId;

/// Addresses of a register.
const LANES: usize = 16;

/// Looks up `addresses` into `hops`; whether one of them lies in a group.
#[inline]
pub(super) fn lookup(
    _: Avx512,
    tbl24: &Tbl24,
    tbl8: &Tbl8,
    addresses: &[u32],
    hops: &mut [HopId],
) -> bool {
    // SAFETY: who has the right has asked the processor for AVX-512.
    unsafe { look_all(tbl24, tbl8, addresses, hops) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn look_all(tbl24: &Tbl24, tbl8: &Tbl8, addresses: &[u32], hops: &mut [HopId]) -> bool {
    let mut groups = false;
    let (pairs, rest) = addresses.as_chunks::<{ 2 * LANES }>();
    let (hops, rest_hops) = hops.as_chunks_mut::<{ 2 * LANES }>();
    for (addresses, hops) in pairs.iter().zip(hops) {
        groups |= look::<2>(tbl24, tbl8, addresses, hops);
    }
    for (addresses, hops) in rest.chunks(LANES).zip(rest_hops.chunks_mut(LANES)) {
        groups |= look::<1>(tbl24, tbl8, addresses, hops);
    }
    groups
}

/// Looks up at most `N` registers of addresses; whether one of them lies in a group.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn look<const N: usize>(tbl24: &Tbl24, tbl8: &Tbl8, addresses: &[u32], hops: &mut [HopId]) -> bool {
    let len = addresses.len().min(hops.len());
    let lanes: [__mmask16; N] = std::array::from_fn(|n| first(len.saturating_sub(n * LANES)));
    // SAFETY: those lanes are loaded that are addresses.
    let addresses: [__m512i; N] = std::array::from_fn(|n| unsafe {
        _mm512_maskz_loadu_epi32(lanes[n], addresses.as_ptr().wrapping_add(n * LANES).cast())
    });
    // An address shifted by 8 bits numbers one of 2^24 entries.
    let mut entries: [__m512i; N] =
        std::array::from_fn(|n| gather(tbl24, lanes[n], _mm512_srli_epi32::<8>(addresses[n])));
    let seen = entries.iter().fold(_mm512_setzero_si512(), |all, one| _mm512_or_si512(all, *one));
    let groups = _mm512_test_epi32_mask(seen, number(GROUP)) != 0;
    if groups {
        for (entries, addresses) in entries.iter_mut().zip(addresses) {
            *entries = enter(tbl8, *entries, addresses);
        }
    }
    for (n, entries) in entries.into_iter().enumerate() {
        let (to, narrowed) = (hops.as_mut_ptr(), _mm512_cvtepi32_epi16(entries));
        let to = to.wrapping_add(n * LANES).cast();
        // SAFETY: those lanes are stored that are next hops, which are numbers of 16 bits.
        unsafe { _mm256_mask_storeu_epi16(to, lanes[n], narrowed) };
    }
    groups
}

/// The first `len` lanes, or all.
fn first(len: usize) -> __mmask16 {
    let lanes = LANES.saturating_sub(len) as u32;
    u16::MAX.checked_shr(lanes).unwrap_or(0)
}

/// The entries of `addresses` in the groups that `entries` name; those that name none are kept.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn enter(tbl8: &Tbl8, entries: __m512i, addresses: __m512i) -> __m512i {
    let long = _mm512_test_epi32_mask(entries, number(GROUP));
    let group = _mm512_slli_epi32::<8>(_mm512_and_si512(entries, number(!GROUP)));
    let place = _mm512_or_si512(group, _mm512_and_si512(addresses, number(0xff)));
    _mm512_mask_mov_epi32(entries, long, gather(tbl8, long, place))
}

/// Loads the entries of `table` that `places` number, which wrap at the table's length, a power
/// of two; 0 in other lanes than `lanes`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn gather<const N: usize>(table: &[AtomicU16; N], lanes: __mmask16, places: __m512i) -> __m512i {
    const { assert!(N.is_power_of_two() && N <= 1 << 31) };
    let words = _mm512_srli_epi32::<1>(_mm512_and_si512(places, _mm512_set1_epi32(N as i32 - 1)));
    let loaded: __m512i;
    // SAFETY: each of the words of 4 bytes is within the table, whose entries are 2 bytes. See
    // the module for other threads.
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
            table = in(reg) table,
            options(nostack, preserves_flags, readonly),
        );
    }
    let odd = _mm512_and_si512(places, _mm512_set1_epi32(1));
    let entries = _mm512_srlv_epi32(loaded, _mm512_slli_epi32::<4>(odd));
    _mm512_and_si512(entries, number(u16::MAX))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn number(n: u16) -> __m512i {
    _mm512_set1_epi32(n.into())
}
