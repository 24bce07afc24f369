//! CBC and HMAC of packets in step, with AVX-512: the whole blocks that all of them have.
//!
//! The hash takes its words from the registers in which AES leaves them, so that no hashed data is
//! read again, and half of the transposition of blocks into words is saved. (Gopal et al., "Fast
//! Cryptographic Computation on Intel Architecture Processors Via Function Stitching", 2010, go
//! further and mix the instructions of both; here the processor does.)
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, _mm512_permutexvar_epi32, _mm512_set_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8,
};

use std::array::from_mut;

use thalweg_cpu::avx512;
use thalweg_packet::BATCH;

use super::aes_lanes::{
    self, BLOCK as AES_BLOCK, Blocks, Encryption, PER_REGISTER, REGISTERS, encrypt, gather,
};
use super::hmac_lanes::{Authentication, LANES, STREAMS, State, big_endian, columns_of_four, hash};
use super::sha::BLOCK as SHA_BLOCK;
use crate::suite::HEADER;

/// Blocks of AES in one of the hash.
const STEP: usize = SHA_BLOCK / AES_BLOCK;
/// Words of a block of AES.
const WORDS: usize = AES_BLOCK / 4;
/// Words before what is encrypted: ESP's header and the IV.
const AHEAD: usize = HEADER / 4 + WORDS;
/// The least number of steps that pay off: the hash states are permuted before and after.
const LEAST: usize = 2;
/// Registers of AES per register of the hash.
const FOUR: usize = LANES / PER_REGISTER;

/// Encrypts and hashes the whole blocks of the hash that all unfinished packets have, if encryption
/// and hash are at the same block.
///
/// # Safety
/// The packets of both are the same, are valid memory, and are not shared; `idle` is that of
/// `encryption`.
#[avx512]
#[target_feature(enable = "vaes")]
pub(super) unsafe fn advance<const SHA256: bool>(
    encryption: &mut Encryption<'_, '_>,
    authentication: &mut Authentication<'_, '_>,
    idle: &mut [u8],
) {
    let steps = encryption.all_have() / STEP;
    let level = encryption.done() == authentication.done() * STEP
        && encryption.active() == authentication.active();
    if steps < LEAST || !level {
        return;
    }
    let mut states = by_columns(authentication.states());
    let mut in_step = InStep::<SHA256> { states: &mut states, steps };
    // SAFETY: the caller guarantees it, and all packets have that many blocks.
    unsafe { encryption.step(steps * STEP, idle, &mut in_step) };
    authentication.skip(steps, &by_columns(&states));
}

/// A number of blocks of the hash, and its states.
struct InStep<'a, const SHA256: bool> {
    /// Packets in the order of [`by_columns`].
    states: &'a mut [State; STREAMS],
    steps: usize,
}

impl<const SHA256: bool> Blocks for InStep<'_, SHA256> {
    unsafe fn encrypt<const K: usize>(
        &mut self,
        registers: usize,
        keys: &[[__m512i; K]],
        at: &[*mut u8; BATCH],
    ) {
        let Self { states, steps } = self;
        let [first, _] = &mut **states;
        if registers > FOUR {
            // SAFETY: the caller guarantees it.
            unsafe { both::<SHA256, STREAMS, REGISTERS, K>(keys, at, states, *steps) };
        } else {
            // SAFETY: as above.
            unsafe { both::<SHA256, 1, FOUR, K>(keys, at, from_mut(first), *steps) };
        }
    }
}

/// Encrypts the next `STEP * steps` blocks of the packets of `N` registers of AES, and hashes
/// `steps` blocks of them, which begin with the header before the IV at each position.
///
/// # Safety
/// Each lane has that many blocks after its position, and a header before it.
#[avx512]
#[target_feature(enable = "vaes")]
unsafe fn both<const SHA256: bool, const S: usize, const N: usize, const K: usize>(
    keys: &[[__m512i; K]],
    at: &[*mut u8; BATCH],
    states: &mut [State; S],
    steps: usize,
) {
    const { assert!(N == S * FOUR) };
    let mut words = [[_mm512_setzero_si512(); SHA_BLOCK / 4]; S];
    // SAFETY: there are header and IV, as the caller guarantees; likewise below.
    let start = unsafe { gather::<N>(at, 0usize.wrapping_sub(HEADER)) };
    put::<S, N>(&start, 0, &mut words);
    // SAFETY: as above. The second half is not encrypted yet, and is replaced later.
    let middle = unsafe { gather::<N>(at, HEADER) };
    put::<S, N>(&middle, WORDS, &mut words);
    // SAFETY: as above.
    let mut chain = unsafe { gather::<N>(at, 0) };
    for step in 0..steps {
        let offset = AES_BLOCK + step * SHA_BLOCK;
        aes_lanes::prefetch(&at[..N * PER_REGISTER], offset);
        for block in 0..2 {
            // SAFETY: as above.
            unsafe { encrypt(keys, at, offset + block * AES_BLOCK, &mut chain) };
            put::<S, N>(&chain, AHEAD + block * WORDS, &mut words);
        }
        // SAFETY: as above.
        unsafe { encrypt(keys, at, offset + 2 * AES_BLOCK, &mut chain) };
        let left = put_half::<S, N>(&chain, &mut words);
        hash::<SHA256, S>(states, &mut words);
        for (words, left) in words.iter_mut().zip(left) {
            words[..left.len()].copy_from_slice(&left);
        }
        // SAFETY: as above.
        unsafe { encrypt(keys, at, offset + 3 * AES_BLOCK, &mut chain) };
        put::<S, N>(&chain, AHEAD - WORDS, &mut words);
    }
}

/// Puts the words of blocks into `words` from `first` on.
#[avx512]
#[inline]
fn put<const S: usize, const N: usize>(
    blocks: &[__m512i; N],
    first: usize,
    words: &mut [[__m512i; SHA_BLOCK / 4]; S],
) {
    for (s, words) in words.iter_mut().enumerate() {
        words[first..first + WORDS].copy_from_slice(&columns(blocks, s));
    }
}

/// Puts the first half of the words of blocks at the end, and returns the other half.
#[avx512]
#[inline]
fn put_half<const S: usize, const N: usize>(
    blocks: &[__m512i; N],
    words: &mut [[__m512i; SHA_BLOCK / 4]; S],
) -> [[__m512i; WORDS / 2]; S] {
    let mut left = [[_mm512_setzero_si512(); WORDS / 2]; S];
    for (s, (words, left)) in words.iter_mut().zip(&mut left).enumerate() {
        let [a, b, c, d] = columns(blocks, s);
        (words[14], words[15]) = (a, b);
        *left = [c, d];
    }
    left
}

/// The words of the blocks of sixteen packets, highest byte first.
#[avx512]
#[inline]
fn columns<const N: usize>(blocks: &[__m512i; N], s: usize) -> [__m512i; WORDS] {
    let mut rows = [_mm512_setzero_si512(); FOUR];
    for (n, row) in rows.iter_mut().enumerate() {
        *row = _mm512_shuffle_epi8(blocks[s * FOUR + n], big_endian());
    }
    columns_of_four(rows)
}

/// States with the packets of each sixteen in the order that [`columns_of_four`] produces from four
/// registers of four packets: the first of each register, the second of each, and so on. Applied
/// twice, it restores the order.
#[avx512]
#[inline]
fn by_columns(states: &[State; STREAMS]) -> [State; STREAMS] {
    let order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    let mut ordered = *states;
    for word in ordered.iter_mut().flatten() {
        *word = _mm512_permutexvar_epi32(order, *word);
    }
    ordered
}
