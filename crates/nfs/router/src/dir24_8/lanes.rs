//! Entries of IPv4 addresses side by side, with AVX-512: sixteen addresses to a register, all of
//! whose entries one instruction loads.
//!
//! **Other threads.** The writer changes entries while they are gathered. That is no data race:
//! the gathers are written in assembly, whose loads the language treats as atomic, and each loads
//! words of four bytes at multiples of four; an entry is a byte of such a word.
//!
//! `unsafe` here: entries are gathered from the tables' memory.
#![allow(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, __mmask16, _mm256_mask_storeu_epi16, _mm512_and_si512, _mm512_cmpeq_epi32_mask,
    _mm512_cvtepi32_epi16, _mm512_maskz_loadu_epi32, _mm512_max_epu32, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_srli_epi32, _mm512_srlv_epi32,
};
use thalweg_cpu::{Avx512, avx512};
use thalweg_packet::BATCH;

use super::{Bytes, MORE};
use crate::table::HopId;

/// Addresses per register.
const LANES: usize = 16;
/// Registers whose addresses are looked up together.
const PAIR: usize = 2;

/// Loads the entries of `addresses` into `hops`; returns whether one of them is [`MORE`].
#[inline]
pub(super) fn look_at_bytes(
    _: Avx512,
    bytes: &Bytes,
    addresses: &[u32],
    hops: &mut [HopId],
) -> bool {
    // SAFETY: an `Avx512` exists only if the processor has AVX-512.
    unsafe { load_all(bytes, addresses, hops) }
}

#[avx512]
fn load_all(bytes: &Bytes, addresses: &[u32], hops: &mut [HopId]) -> bool {
    // The usual request of a busy router: at 0.7 ns an address, the loops below cost too much.
    if let (Ok(addresses), Ok(hops)) =
        (<&[u32; BATCH]>::try_from(addresses), <&mut [HopId; BATCH]>::try_from(&mut *hops))
    {
        return load::<PAIR>(bytes, addresses, hops);
    }
    let mut more = false;
    let (pairs, rest) = addresses.as_chunks::<{ PAIR * LANES }>();
    let (hops, rest_hops) = hops.as_chunks_mut::<{ PAIR * LANES }>();
    for (addresses, hops) in pairs.iter().zip(hops) {
        more |= load::<PAIR>(bytes, addresses, hops);
    }
    for (addresses, hops) in rest.chunks(LANES).zip(rest_hops.chunks_mut(LANES)) {
        more |= load::<1>(bytes, addresses, hops);
    }
    more
}

/// Looks up at most `N` registers of addresses; returns whether one of their entries is [`MORE`].
#[avx512]
#[inline]
fn load<const N: usize>(bytes: &Bytes, addresses: &[u32], hops: &mut [HopId]) -> bool {
    let len = addresses.len().min(hops.len());
    let mut largest = _mm512_setzero_si512();
    for n in 0..N {
        let lanes = first(len.saturating_sub(n * LANES));
        let (from, to) = (addresses.as_ptr(), hops.as_mut_ptr());
        // SAFETY: only lanes that hold addresses are loaded.
        let addresses =
            unsafe { _mm512_maskz_loadu_epi32(lanes, from.wrapping_add(n * LANES).cast()) };
        let loaded = gather(bytes, lanes, addresses);
        let entries = _mm512_and_si512(loaded, _mm512_set1_epi32(u8::MAX.into()));
        largest = _mm512_max_epu32(largest, entries);
        let (to, narrowed) = (to.wrapping_add(n * LANES), _mm512_cvtepi32_epi16(entries));
        // SAFETY: only lanes that hold next hops, numbers of 16 bits, are stored.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), lanes, narrowed) };
    }
    _mm512_cmpeq_epi32_mask(largest, _mm512_set1_epi32(MORE.into())) != 0
}

/// The first `len` lanes, or all.
fn first(len: usize) -> __mmask16 {
    let lanes = LANES.saturating_sub(len) as u32;
    u16::MAX.checked_shr(lanes).unwrap_or(0)
}

/// Loads the entries of `addresses` into the lowest bytes of `lanes`. The bytes above, and other
/// lanes, are undefined.
#[avx512]
#[inline]
fn gather(bytes: &Bytes, lanes: __mmask16, addresses: __m512i) -> __m512i {
    // An address shifted by 8 bits numbers one of 2^24 entries; four of them form a word.
    let words = _mm512_srli_epi32::<10>(addresses);
    let loaded: __m512i;
    // SAFETY: each of the 2^22 words of 4 bytes is within the table, whose entries are bytes.
    // The module's comment covers other threads.
    unsafe {
        // The intrinsic would compute the mask of all lanes from the register k0 and itself, and
        // so wait for the last write to k0: the end of the lookups before.
        asm!(
            "vpxord {loaded}, {loaded}, {loaded}",
            "kmovw {left}, {lanes:e}",
            "vpgatherdd {loaded}{{{left}}}, [{table} + {words} * 4]",
            loaded = out(zmm_reg) loaded,
            lanes = in(reg) u32::from(lanes),
            left = out(kreg) _,
            words = in(zmm_reg) words,
            table = in(reg) bytes,
            options(nostack, preserves_flags, readonly),
        );
    }
    // The entry of a word's first /24 is in its lowest bits, and so on, 8 bits each.
    let before = _mm512_and_si512(_mm512_srli_epi32::<5>(addresses), _mm512_set1_epi32(24));
    _mm512_srlv_epi32(loaded, before)
}
