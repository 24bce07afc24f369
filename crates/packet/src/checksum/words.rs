//! The sum of the words of a text, by vectors.
//!
//! A one's-complement sum does not depend on the order of the bytes in its words (RFC 1071, 2), so words
//! are added as they lie in memory, 32 bits each, and only the result is put in order.
//!
//! `unsafe` here: a function compiled for more than the build's target is called after the processor
//! was checked.
#![allow(unsafe_code)]

use thalweg_cpu::Isa;
#[cfg(target_arch = "x86_64")]
use thalweg_cpu::{avx2, avx512};

/// Fewer bytes take less time without vectors.
const MANY: usize = 128;

/// The sum of the words of 32 bits, each as it lies in memory; zeros follow the last one. At most 2^32
/// bytes.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() < MANY { sum_one_by_one(bytes) } else { sum_at(Isa::active(), bytes) }
}

/// The same at a level.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
fn sum_at(isa: Isa, bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    match isa {
        // SAFETY: the processor has the instructions of an available level.
        Isa::Avx512 if isa.is_available() => return unsafe { sum_by_avx512(bytes) },
        // SAFETY: as above.
        Isa::Avx2 if isa.is_available() => return unsafe { sum_by_avx2(bytes) },
        _ => {}
    }
    sum_one_by_one(bytes)
}

/// The reference.
#[inline]
fn sum_one_by_one(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

#[cfg(target_arch = "x86_64")]
#[avx512]
fn sum_by_avx512(bytes: &[u8]) -> u64 {
    sum_side_by_side(bytes)
}

#[cfg(target_arch = "x86_64")]
#[avx2]
fn sum_by_avx2(bytes: &[u8]) -> u64 {
    sum_side_by_side(bytes)
}

/// The same, in a form that compilers turn into vectors: the halves of words of 64 bits are added each for
/// itself, so that nothing carries over.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn sum_side_by_side(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut lower, mut upper) = (0, 0);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        lower += word & u64::from(u32::MAX);
        upper += word >> 32;
    }
    lower + upper + sum_one_by_one(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_level_sums_as_the_reference_does(
            bytes in proptest::collection::vec(prop_oneof![Just(0xff), any::<u8>()], 0..2000),
        ) {
            for isa in Isa::available() {
                prop_assert_eq!(sum_at(isa, &bytes), sum_one_by_one(&bytes));
            }
            prop_assert_eq!(sum(&bytes), sum_one_by_one(&bytes));
        }
    }
}
