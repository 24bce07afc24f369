//! HMACs of messages, eight to a register.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m256i, _mm_set_epi32, _mm_storeu_si128, _mm256_add_epi32, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_castsi256_si128, _mm256_cmpgt_epi32, _mm256_loadu_si256,
    _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set_epi32, _mm256_set_m128i,
    _mm256_set1_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32,
    _mm256_srli_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64, _mm256_xor_si256,
};
use std::array::from_mut;
use std::ptr::{self, copy_nonoverlapping};

use thalweg_cpu::avx2;

use super::super::hmac_lanes::TAG;
use super::super::lanes::{Packet, alike};
use super::super::sha::{BLOCK, HmacKeys, State, WORDS, Words, compress};

/// Messages per register.
pub(super) const LANES: usize = 8;
/// Bytes per register.
const BYTES: usize = 32;

/// Eight messages. Used and inlined only in code that runs with AVX2.
impl Words for __m256i {
    // AVX2 has sixteen: leaving the words in memory gained nothing here.
    const AT_HAND: usize = usize::MAX;

    #[inline(always)]
    fn all(word: u32) -> Self {
        // SAFETY: code that uses eight messages runs with AVX2; likewise below.
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(self, other) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_srli_epi32::<N>(self) }
    }

    #[inline(always)]
    fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: as above.
        unsafe { rotate_left::<LEFT, RIGHT>(self) }
    }

    #[inline(always)]
    fn choose(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { choose(self, b, c) }
    }

    #[inline(always)]
    fn majority(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { majority(self, b, c) }
    }
}

#[avx2]
#[inline]
fn rotate_left<const LEFT: i32, const RIGHT: i32>(a: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(a), _mm256_srli_epi32::<RIGHT>(a))
}

#[avx2]
#[inline]
fn choose(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(c, _mm256_and_si256(a, _mm256_xor_si256(b, c)))
}

#[avx2]
#[inline]
fn majority(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    let with_first = _mm256_and_si256(a, _mm256_or_si256(b, c));
    _mm256_or_si256(with_first, _mm256_and_si256(b, c))
}

/// Writes the first bytes of the HMACs of up to [`LANES`] messages into as many tags.
///
/// # Panics
/// If there are more.
///
/// # Safety
/// The messages are valid memory.
#[avx2]
pub(super) unsafe fn authenticate<const SHA256: bool>(
    messages: &[Packet<'_>],
    tags: &mut [[u8; TAG]],
) {
    assert!(messages.len() <= LANES);
    let Some(first) = messages.first() else { return };
    let alike = alike(messages);
    // A lane without a message repeats the first.
    let mut messages_of = [first; LANES];
    messages_of.iter_mut().zip(messages).for_each(|(of, message)| *of = message);
    let messages = messages_of;
    let mut ends = [const { End::EMPTY }; LANES];
    for (end, message) in ends.iter_mut().zip(messages) {
        // SAFETY: the caller guarantees it.
        unsafe { end.fill(message) };
    }
    let mut state = states(&messages, alike, |keys| &keys.inner);
    let most = ends.iter().map(|end| end.blocks).max().unwrap_or(0);
    for block in 0..most {
        let mut at = [ptr::null(); LANES];
        for (at, (end, message)) in at.iter_mut().zip(ends.iter().zip(messages)) {
            *at = end.block(message, block);
        }
        // SAFETY: each position is a block of a message or of its end.
        let mut words = unsafe { fetch(&at) };
        let before = state;
        compress::<SHA256, 1, _>(from_mut(&mut state), from_mut(&mut words));
        if ends.iter().any(|end| end.blocks <= block) {
            keep(&mut state, before, &ends, block);
        }
    }
    finish::<SHA256>(state, states(&messages, alike, |keys| &keys.outer), tags);
}

/// Restores the state of messages that have no such block.
#[avx2]
#[inline]
fn keep(state: &mut State<__m256i>, before: State<__m256i>, ends: &[End; LANES], block: usize) {
    let blocks = |lane: usize| ends[lane].blocks as i32;
    let low = _mm_set_epi32(blocks(3), blocks(2), blocks(1), blocks(0));
    let high = _mm_set_epi32(blocks(7), blocks(6), blocks(5), blocks(4));
    let blocks = _mm256_set_m128i(high, low);
    let has = _mm256_cmpgt_epi32(blocks, _mm256_set1_epi32(block as i32));
    for (after, before) in state.iter_mut().zip(before) {
        *after = _mm256_blendv_epi8(before, *after, has);
    }
}

/// The hash of the keys' outer block and the inner digest.
#[avx2]
#[inline]
fn finish<const SHA256: bool>(
    inner: State<__m256i>,
    mut outer: State<__m256i>,
    tags: &mut [[u8; TAG]],
) {
    let len = if SHA256 { 8 } else { 5 };
    let mut words = [_mm256_setzero_si256(); BLOCK / 4];
    words[..len].copy_from_slice(&inner[..len]);
    words[len] = Words::all(1 << 31);
    words[15] = Words::all((BLOCK as u32 + 4 * len as u32) * 8);
    compress::<SHA256, 1, _>(from_mut(&mut outer), from_mut(&mut words));
    for (tag, digest) in tags.iter_mut().zip(transpose(outer)) {
        let digest = _mm256_castsi256_si128(_mm256_shuffle_epi8(digest, big_endian()));
        // SAFETY: a tag is as long as half a register.
        unsafe { _mm_storeu_si128(tag.as_mut_ptr().cast(), digest) };
    }
}

/// The part after the last whole block of a message: its remaining bytes and padding.
struct End {
    bytes: [[u8; BLOCK]; 2],
    /// Whole blocks before it, and all blocks.
    whole: usize,
    blocks: usize,
}

impl End {
    const EMPTY: Self = Self { bytes: [[0; BLOCK]; 2], whole: 0, blocks: 0 };

    /// # Safety
    /// The message is valid memory; `self` is [`EMPTY`](Self::EMPTY).
    #[inline]
    unsafe fn fill(&mut self, message: &Packet<'_>) {
        let (whole, rest) = (message.len / BLOCK, message.len % BLOCK);
        let bytes = self.bytes.as_flattened_mut();
        // In powers of two, which compile to moves, as a call takes longer.
        let mut done = 0;
        for size in [32, 16, 8, 4, 2, 1] {
            if rest & size != 0 {
                let from = message.start.wrapping_add(whole * BLOCK + done);
                // SAFETY: the message has that many bytes after its whole blocks, fewer than two
                // blocks.
                unsafe { copy_nonoverlapping(from, bytes[done..].as_mut_ptr(), size) };
                done += size;
            }
        }
        bytes[rest] = 0x80;
        let blocks = (message.len + 9).div_ceil(BLOCK);
        // The block of the key counts too.
        let bits = (BLOCK + message.len) as u64 * 8;
        self.bytes[blocks - whole - 1][BLOCK - 8..].copy_from_slice(&bits.to_be_bytes());
        (self.whole, self.blocks) = (whole, blocks);
    }

    /// The position of a block; for a message without such a block, that of another.
    #[inline]
    fn block(&self, message: &Packet<'_>, block: usize) -> *const u8 {
        if block < self.whole {
            message.start.wrapping_add(block * BLOCK)
        } else {
            self.bytes[usize::from(block > self.whole)].as_ptr()
        }
    }
}

/// The shuffle that puts the highest byte of each word first.
#[avx2]
#[inline]
fn big_endian() -> __m256i {
    let [a, b, c, d] = [0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f];
    _mm256_set_epi32(d, c, b, a, d, c, b, a)
}

/// One state of the keys of each lane, which may all be `alike`.
#[avx2]
#[inline]
fn states(
    messages: &[&Packet<'_>; LANES],
    alike: bool,
    which: impl Fn(&HmacKeys) -> &[u32; WORDS],
) -> State<__m256i> {
    let mut state = [_mm256_setzero_si256(); WORDS];
    if alike {
        for (word, of_keys) in state.iter_mut().zip(which(&messages[0].keys.hmac)) {
            *word = Words::all(*of_keys);
        }
        return state;
    }
    for (row, message) in state.iter_mut().zip(messages) {
        // SAFETY: a state has as many words as a register.
        *row = unsafe { _mm256_loadu_si256(which(&message.keys.hmac).as_ptr().cast()) };
    }
    transpose(state)
}

/// Loads the words of the next blocks: transposed, the first byte of each word highest.
///
/// # Safety
/// There is a block at each position.
#[avx2]
#[inline]
unsafe fn fetch(at: &[*const u8; LANES]) -> [__m256i; BLOCK / 4] {
    let mut words = [_mm256_setzero_si256(); BLOCK / 4];
    for (half, words) in words.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        for (row, at) in words.iter_mut().zip(at) {
            let at = at.wrapping_add(half * BYTES).cast();
            // SAFETY: half a block is as long as a register; the load needs no alignment.
            *row = _mm256_shuffle_epi8(unsafe { _mm256_loadu_si256(at) }, big_endian());
        }
        *words = transpose(*words);
    }
    words
}

/// Rows to columns of 8 by 8 words.
#[avx2]
#[inline]
fn transpose(rows: [__m256i; LANES]) -> [__m256i; LANES] {
    // Each half of `fours[4 i + j]` holds word j of its half for rows 4 i to 4 i + 3.
    let mut fours = [_mm256_setzero_si256(); LANES];
    for i in 0..2 {
        let [r0, r1, r2, r3] = [0, 1, 2, 3].map(|row| rows[4 * i + row]);
        let (low01, low23) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpacklo_epi32(r2, r3));
        let (high01, high23) = (_mm256_unpackhi_epi32(r0, r1), _mm256_unpackhi_epi32(r2, r3));
        fours[4 * i] = _mm256_unpacklo_epi64(low01, low23);
        fours[4 * i + 1] = _mm256_unpackhi_epi64(low01, low23);
        fours[4 * i + 2] = _mm256_unpacklo_epi64(high01, high23);
        fours[4 * i + 3] = _mm256_unpackhi_epi64(high01, high23);
    }
    let mut columns = [_mm256_setzero_si256(); LANES];
    for j in 0..4 {
        columns[j] = _mm256_permute2x128_si256::<0x20>(fours[j], fours[4 + j]);
        columns[4 + j] = _mm256_permute2x128_si256::<0x31>(fours[j], fours[4 + j]);
    }
    columns
}
