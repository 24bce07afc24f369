//! Vectors: loads, stores, and what sixteen numbers are worked at with.
//!
//! `unsafe` here: loads and stores of whole arrays. Lines and keys are loaded by
//! instructions that the compiler does not look into: to the language, a load that is
//! no atomic one and meets another thread's store is an error, and there are no
//! atomic ones of 64 bytes. To the processor the instruction is a number of loads that
//! come after the loads before it and before those after it; that what they gave is of
//! one moment, the version of the line shows, which is read before and after.
#![allow(unsafe_code)]

use std::arch::asm;
use std::sync::atomic::AtomicU64;

use core::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_epi64,
    _mm512_castsi512_si256, _mm512_cmpeq_epi32_mask, _mm512_cvtepi64_epi32, _mm512_cvtepu8_epi32,
    _mm512_inserti64x4, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_mullo_epi32,
    _mm512_mullo_epi64, _mm512_permutex2var_epi32, _mm512_rol_epi32, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_setr_epi32, _mm512_setzero_si512, _mm512_shuffle_i64x2,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_srli_epi64, _mm512_storeu_si512,
    _mm512_testn_epi32_mask, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use thalweg_cpu::avx512;

use super::{LANES, STEP};
use crate::cuckoo::hash::Nh;
use crate::cuckoo::line::{Line, State};

/// The numbers of the bits that are set.
#[inline(always)]
pub(super) fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let n = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            n
        })
    })
}

/// The numbers of lanes from `lane` on.
#[inline]
#[avx512]
pub(super) fn from_lane(lane: usize) -> __m512i {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(lanes, _mm512_set1_epi32(lane as i32))
}

/// The sixteen numbers from `from` on.
#[inline]
#[avx512]
pub(super) fn load(of: &[u32], from: usize) -> __m512i {
    let of: &[u32; LANES] = of[from..].first_chunk().expect("sixteen numbers");
    // SAFETY: the array has the 64 bytes that are read.
    unsafe { _mm512_loadu_si512(of.as_ptr().cast()) }
}

#[inline]
#[avx512]
pub(super) fn store(to: &mut [u32], from: usize, v: __m512i) {
    let to: &mut [u32; LANES] = to[from..].first_chunk_mut().expect("sixteen numbers");
    // SAFETY: the array has the 64 bytes that are written.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) };
}

/// Sixteen bytes from `from` on, each in a lane.
#[inline]
#[avx512]
pub(super) fn bytes(of: &[u8; STEP], from: usize) -> __m512i {
    let of: &[u8; LANES] = of[from..].first_chunk().expect("sixteen bytes");
    // SAFETY: the array has the 16 bytes that are read.
    _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(of.as_ptr().cast()) })
}

/// Whether lines were as at one moment, by their states before and after.
#[inline]
#[avx512]
pub(super) fn is_whole(before: __m512i, after: __m512i) -> u16 {
    let changing = _mm512_set1_epi32(State::CHANGING as i32);
    _mm512_cmpeq_epi32_mask(before, after) & _mm512_testn_epi32_mask(before, changing)
}

/// The columns of sixteen rows of four numbers, four rows in a vector.
#[inline]
#[avx512]
pub(super) fn columns(rows: [__m512i; 4]) -> [__m512i; 4] {
    let [a, b, c, d] = rows;
    let two = |of: __m512i| {
        let low = _mm512_permutex2var_epi32(a, of, b);
        let high = _mm512_permutex2var_epi32(c, of, d);
        let first = _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high));
        [first, _mm512_shuffle_i64x2::<0b11_10_11_10>(low, high)]
    };
    let of = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    let ([first, second], [third, fourth]) =
        (two(of), two(_mm512_add_epi32(of, _mm512_set1_epi32(2))));
    [first, second, third, fourth]
}

/// MurmurHash3 of sixteen keys of two words.
#[inline]
#[avx512]
pub(super) fn murmur3(seed: u32, keys: &[u64; 2 * LANES]) -> __m512i {
    let (rows, _) = keys.as_chunks();
    let halves = columns([0, 1, 2, 3].map(|n| {
        let row: &[u64; LANES / 2] = &rows[n];
        // SAFETY: the array has the 64 bytes that are read.
        unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
    }));
    let all = |n: u32| _mm512_set1_epi32(n as i32);
    let mut hash = all(seed);
    for half in halves {
        let half = _mm512_rol_epi32::<15>(_mm512_mullo_epi32(half, all(0xcc9e_2d51)));
        hash = _mm512_xor_si512(hash, _mm512_mullo_epi32(half, all(0x1b87_3593)));
        hash = _mm512_rol_epi32::<13>(hash);
        // Five times, as one and four times.
        hash = _mm512_add_epi32(hash, _mm512_slli_epi32::<2>(hash));
        hash = _mm512_add_epi32(hash, all(0xe654_6b64));
    }
    let hash = _mm512_xor_si512(hash, all(16));
    let hash = _mm512_xor_si512(hash, _mm512_srli_epi32::<16>(hash));
    let hash = _mm512_mullo_epi32(hash, all(0x85eb_ca6b));
    let hash = _mm512_xor_si512(hash, _mm512_srli_epi32::<13>(hash));
    let hash = _mm512_mullo_epi32(hash, all(0xc2b2_ae35));
    _mm512_xor_si512(hash, _mm512_srli_epi32::<16>(hash))
}

/// NH of keys of a multiple of eight words.
#[inline]
#[avx512]
pub(super) fn nh<const W: usize>(numbers: &Nh, keys: &[[u64; W]], hashes: &mut [u32; LANES]) {
    let (groups, _) = keys.as_chunks::<8>();
    let (hashes_of, _) = hashes.as_chunks_mut::<8>();
    for (keys, hashes) in groups.iter().zip(hashes_of) {
        let mut products = [_mm512_setzero_si512(); 8];
        for (all, key) in products.iter_mut().zip(keys) {
            *all = nh_products(numbers, key);
        }
        let sums = sums(products);
        // As `hash::select`.
        let mixed = _mm512_xor_si512(sums, _mm512_srli_epi64::<32>(sums));
        let multiplier = _mm512_set1_epi64(numbers.multiplier.cast_signed());
        let selected = _mm512_srli_epi64::<32>(_mm512_mullo_epi64(mixed, multiplier));
        let selected = _mm512_cvtepi64_epi32(selected);
        // SAFETY: the array has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().cast(), selected) };
    }
}

/// The products of NH, the n-th of each line of a key added up.
#[inline]
#[avx512]
fn nh_products<const W: usize>(numbers: &Nh, key: &[u64; W]) -> __m512i {
    let (lines, _) = key.as_chunks::<8>();
    let (addends, _) = numbers.addends.as_chunks::<8>();
    let mut all = _mm512_setzero_si512();
    for (line, addends) in lines.iter().zip(addends) {
        // SAFETY: the array has the 64 bytes that are read.
        let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        // SAFETY: likewise.
        let addends = unsafe { _mm512_loadu_si512(addends.as_ptr().cast()) };
        let halves = _mm512_add_epi32(line, addends);
        let products = _mm512_mul_epu32(halves, _mm512_srli_epi64::<32>(halves));
        all = _mm512_add_epi64(all, products);
    }
    all
}

/// The sum of each vector, in the order of the vectors.
#[inline]
#[avx512]
fn sums(of: [__m512i; 8]) -> __m512i {
    // Two vectors with both halves of each 128 bits added, then four, then eight.
    let two = |a, b| _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let more = |a, b| {
        let even = _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b);
        _mm512_add_epi64(even, _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b))
    };
    let [a, b, c, d, e, f, g, h] = of;
    more(more(two(a, b), two(c, d)), more(two(e, f), two(g, h)))
}

/// The words of a line.
#[inline]
#[avx512]
pub(super) fn load_line(line: &Line) -> __m512i {
    let words: __m512i;
    // SAFETY: the line has the 64 bytes that are read, and begins at a multiple of 64.
    // See the module for other threads.
    unsafe {
        asm!("vmovdqa64 {}, [{}]", out(zmm_reg) words, in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
    words
}

/// Eight words that another thread may write.
#[inline]
#[avx512]
pub(super) fn load_words(from: &[AtomicU64; 8]) -> __m512i {
    let words: __m512i;
    // SAFETY: the array has the 64 bytes that are read. See the module for other
    // threads.
    unsafe {
        asm!("vmovdqu64 {}, [{}]", out(zmm_reg) words, in(reg) from,
            options(nostack, preserves_flags, readonly));
    }
    words
}

/// The signatures of a line.
#[inline]
#[avx512]
pub(super) fn load_signatures(line: &Line) -> __m128i {
    let signatures: __m128i;
    // SAFETY: the line has more than the 16 bytes that are read. See the module for
    // other threads.
    unsafe {
        asm!("vmovdqa {}, [{}]", out(xmm_reg) signatures, in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
    signatures
}
