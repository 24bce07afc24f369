//! Lookup in a split-block filter, sixteen keys at a time.
//!
//! The hashes of a vector of keys are found some vectors before its blocks are
//! tested, so that the blocks come while other keys are hashed; the eight bits of a
//! key are tested by one instruction.
//!
//! `unsafe` here: blocks are loaded by position without a check against their number
//! each time, by functions compiled for more than the build's target.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m256i, _mm_cmpeq_epi8_mask, _mm_set1_epi8, _mm_setr_epi16, _mm256_mullo_epi32,
    _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_testc_si256, _mm512_add_epi32,
    _mm512_castsi256_si512, _mm512_inserti64x4, _mm512_mullo_epi32, _mm512_permutexvar_epi32,
    _mm512_setr_epi32, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_test_epi32_mask,
};

use thalweg_cpu::{Isa, avx2, avx512};

use super::bits::{Input, Output};
use super::lanes512::{Function, LANES, append};
use super::split_block::{Blocks, SALTS, WORDS};
use super::{lanes256, lanes512};
use thalweg_cpu::prefetch;

/// Vectors whose hashes are kept: a power of two more than `BEHIND`.
const RING: usize = 16;
/// How many vectors testing lags behind hashing.
const BEHIND: usize = 8;
/// How far ahead the input is prefetched, in keys.
const AHEAD: usize = 1024;
/// From this many bytes on, filters do not stay in the first-level cache.
const FAR_FROM: usize = 32 << 10;

/// The blocks and bits of a vector of keys.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Hashed {
    blocks: [u32; LANES],
    bits: [u32; LANES],
}

/// The keys that are in the filter, in order.
///
/// # Panics
/// When the processor lacks the instructions of `isa`, or they are none.
pub(super) fn select(isa: Isa, blocks: &Blocks, input: Input, output: &mut Output) -> usize {
    assert!(isa.is_available(), "the processor lacks {isa}");
    let shift = blocks.reduction().shift().is_some();
    let far = size_of_val(blocks.blocks()) >= FAR_FROM;
    macro_rules! call {
        ($function:ident) => {
            match (shift, far) {
                // SAFETY: the processor's support was checked above.
                (true, true) => unsafe { $function::<true, true>(blocks, input, output) },
                // SAFETY: likewise.
                (true, false) => unsafe { $function::<true, false>(blocks, input, output) },
                // SAFETY: likewise.
                (false, true) => unsafe { $function::<false, true>(blocks, input, output) },
                // SAFETY: likewise.
                (false, false) => unsafe { $function::<false, false>(blocks, input, output) },
            }
        };
    }
    match isa {
        Isa::Scalar => blocks.scalar(input, output),
        Isa::Avx2 => call!(with_avx2),
        Isa::Avx512 => call!(with_avx512),
    }
}

#[avx512]
fn with_avx512<const SHIFT: bool, const FAR: bool>(
    blocks: &Blocks,
    input: Input,
    output: &mut Output,
) -> usize {
    let functions = [0, 1].map(|n| Function::new(blocks.hashes(), n));
    let mut ring = [Hashed { blocks: [0; LANES], bits: [0; LANES] }; RING];
    let (whole, rest) = input.keys.as_chunks::<LANES>();
    let (payloads, _) = input.payloads.as_chunks::<LANES>();
    let mut found = 0;
    for v in 0..whole.len() + BEHIND {
        if let Some(keys) = whole.get(v) {
            prefetch::ahead(keys, AHEAD);
            let hashed = &mut ring[v % RING];
            let keys = lanes512::load(keys);
            let at = lanes512::reduce::<SHIFT>(blocks.reduction(), functions[0].hash(keys));
            lanes512::store(&mut hashed.blocks, at);
            lanes512::store(&mut hashed.bits, functions[1].hash(keys));
            if FAR {
                ask(blocks, hashed);
            }
        }
        if v >= BEHIND {
            let v = v - BEHIND;
            let passed = test_pairs(blocks, &ring[v % RING]);
            append(output.keys, found, passed, lanes512::load(&whole[v]));
            append(output.payloads, found, passed, lanes512::load(&payloads[v]));
            found += passed.count_ones() as usize;
        }
    }
    finish(blocks, input, output, rest.len(), found)
}

#[avx2]
fn with_avx2<const SHIFT: bool, const FAR: bool>(
    blocks: &Blocks,
    input: Input,
    output: &mut Output,
) -> usize {
    let hashes = blocks.hashes();
    let all = |table: &[u32], n: usize| lanes256::all(table[n]);
    let mut ring = [Hashed { blocks: [0; LANES], bits: [0; LANES] }; RING];
    let (whole, rest) = input.keys.as_chunks::<LANES>();
    let (payloads, _) = input.payloads.as_chunks::<LANES>();
    let mut found = 0;
    for v in 0..whole.len() + BEHIND {
        if let Some(keys) = whole.get(v) {
            let hashed = &mut ring[v % RING];
            let halves = keys.as_chunks().0.iter().zip(hashed.blocks.as_chunks_mut().0);
            for ((keys, at), bits) in halves.zip(hashed.bits.as_chunks_mut().0) {
                let keys = lanes256::load(keys);
                let hash =
                    |n| lanes256::hash(keys, all(&hashes.multipliers, n), all(&hashes.seeds, n));
                lanes256::store(at, lanes256::reduce::<SHIFT>(blocks.reduction(), hash(0)));
                lanes256::store(bits, hash(1));
            }
            if FAR {
                ask(blocks, hashed);
            }
        }
        if v >= BEHIND {
            let v = v - BEHIND;
            let mut passed = test(blocks, &ring[v % RING]);
            while passed != 0 {
                let lane = passed.trailing_zeros() as usize;
                output.put(found, whole[v][lane], payloads[v][lane]);
                found += 1;
                passed &= passed - 1;
            }
        }
    }
    finish(blocks, input, output, rest.len(), found)
}

/// Looks the last `rest` keys up one by one.
fn finish(blocks: &Blocks, input: Input, output: &mut Output, rest: usize, found: usize) -> usize {
    let from = input.keys.len() - rest;
    let last = Input { keys: &input.keys[from..], payloads: &input.payloads[from..] };
    let mut output =
        Output { keys: &mut output.keys[found..], payloads: &mut output.payloads[found..] };
    found + blocks.scalar(last, &mut output)
}

/// Prefetches the blocks of a vector of keys.
#[inline]
fn ask(blocks: &Blocks, hashed: &Hashed) {
    for at in hashed.blocks {
        prefetch::read(blocks.blocks(), at as usize);
    }
}

/// The keys of a vector whose bits are all set, as bits.
#[inline]
#[avx2]
fn test(blocks: &Blocks, hashed: &Hashed) -> u16 {
    let salts = lanes256::load(&SALTS);
    let mut passed = 0;
    for (lane, (at, bits)) in hashed.blocks.iter().zip(hashed.bits).enumerate() {
        let positions = _mm256_srli_epi32::<27>(_mm256_mullo_epi32(lanes256::all(bits), salts));
        let bits = _mm256_sllv_epi32(lanes256::all(1), positions);
        passed |= (_mm256_testc_si256(block(blocks, *at), bits) as u16) << lane;
    }
    passed
}

/// As `test`, two keys at a time.
#[inline]
#[avx512]
fn test_pairs(blocks: &Blocks, hashed: &Hashed) -> u16 {
    let salts = lanes256::load(&SALTS);
    let salts = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(salts), salts);
    let all_bits = lanes512::load(&hashed.bits);
    // The first key of a pair in the lower half, the second in the upper.
    let mut pair = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    // A byte for each key: the words that have its bits.
    let mut words = [0u16; LANES / 2];
    for (words, at) in words.iter_mut().zip(hashed.blocks.as_chunks::<2>().0) {
        let bits = _mm512_mullo_epi32(_mm512_permutexvar_epi32(pair, all_bits), salts);
        let bits = _mm512_sllv_epi32(lanes512::all(1), _mm512_srli_epi32::<27>(bits));
        let [first, second] = at.map(|at| block(blocks, at));
        let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
        *words = _mm512_test_epi32_mask(both, bits);
        pair = _mm512_add_epi32(pair, lanes512::all(2));
    }
    let words = words.map(|words| i16::from_ne_bytes(words.to_le_bytes()));
    let [a, b, c, d, e, f, g, h] = words;
    let words = _mm_setr_epi16(a, b, c, d, e, f, g, h);
    _mm_cmpeq_epi8_mask(words, _mm_set1_epi8(-1))
}

#[inline]
#[avx2]
fn block(blocks: &Blocks, at: u32) -> __m256i {
    const { assert!(WORDS == lanes256::LANES) };
    // SAFETY: reduced hashes are less than the range, and there are as many blocks
    // (`Blocks`).
    let block = unsafe { blocks.blocks().get_unchecked(at as usize) };
    lanes256::load(block)
}
