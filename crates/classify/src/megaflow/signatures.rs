//! The comparison of a bucket's signatures with one.
//!
//! `unsafe` here: functions of SSE2, which every x86-64 processor has, are called from
//! code that is not marked to need it.
#![allow(unsafe_code)]

/// Signatures of a bucket.
pub(super) const WAYS: usize = 8;

/// The ways whose signature is `signature`, as bits.
#[inline(always)]
pub(super) fn equal(signatures: &[u16; WAYS], signature: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 belongs to the architecture.
    return unsafe { sse2(signatures, signature) };
    #[cfg(not(target_arch = "x86_64"))]
    scalar(signatures, signature)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn scalar(signatures: &[u16; WAYS], signature: u16) -> u32 {
    let ways = signatures.iter().enumerate();
    ways.fold(0, |ways, (way, s)| ways | u32::from(*s == signature) << way)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn sse2(signatures: &[u16; WAYS], signature: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
        _mm_setzero_si128,
    };
    // SAFETY: the array has the 16 bytes that are read.
    let all = unsafe { _mm_loadu_si128(signatures.as_ptr().cast()) };
    let ways = _mm_cmpeq_epi16(all, _mm_set1_epi16(signature.cast_signed()));
    _mm_movemask_epi8(_mm_packs_epi16(ways, _mm_setzero_si128())) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn vectors_find_the_ways_that_the_definition_finds(
            signatures in prop::array::uniform8(prop::sample::select(vec![0, 1, 0x8000, 0xffff])),
            signature in prop::sample::select(vec![0u16, 1, 0x8000, 0xffff]),
        ) {
            prop_assert_eq!(equal(&signatures, signature), scalar(&signatures, signature));
        }
    }
}
