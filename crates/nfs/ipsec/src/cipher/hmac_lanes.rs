//! HMAC-SHA-1 and HMAC-SHA-256 (RFC 2104, FIPS 180-4) of a batch of messages at once,
//! with AVX-512: each lane of a register holds a word of one message.
#![allow(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, __mmask16, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_prefetch, _mm512_add_epi32,
    _mm512_loadu_si512, _mm512_mask_mov_epi8, _mm512_mask_mov_epi32, _mm512_maskz_loadu_epi8,
    _mm512_maskz_set1_epi64, _mm512_or_si512, _mm512_rol_epi32, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set4_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_shuffle_i32x4, _mm512_srl_epi32, _mm512_storeu_si512, _mm512_ternarylogic_epi32,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    _mm512_xor_si512,
};

use std::array::{from_mut, from_ref};

use thalweg_cpu::avx512;
use thalweg_packet::BATCH;

use super::lanes::Packet;
use super::sha::{self, BLOCK, HmacKeys, WORDS, Words, compress, sixteen};

/// Messages per register.
pub(super) const LANES: usize = 16;
/// Registers hashed side by side: each round of one waits for the round before it.
pub(super) const STREAMS: usize = BATCH / LANES;
/// The hashes' states, word by word.
pub(super) type State = sha::State<__m512i>;
/// Bytes of a tag; for SHA-1 the first twelve count.
pub(super) const TAG: usize = 16;

/// The exclusive or of three, as a truth table.
pub(super) const XOR3: i32 = 0x96;
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;

/// Sixteen messages. Used and inlined only in code that runs with AVX-512.
impl Words for __m512i {
    const AT_HAND: usize = 32;

    #[inline(always)]
    fn forget() {
        // SAFETY: the assembly is empty.
        unsafe { asm!("", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn all(word: u32) -> Self {
        // SAFETY: code that uses sixteen messages runs with AVX-512; likewise below.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(self, other) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self) -> Self {
        // SAFETY: as above.
        unsafe { shift_right::<N>(self) }
    }

    #[inline(always)]
    fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_rol_epi32::<LEFT>(self) }
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_ternarylogic_epi32::<XOR3>(self, b, c) }
    }

    #[inline(always)]
    fn choose(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_ternarylogic_epi32::<CHOOSE>(self, b, c) }
    }

    #[inline(always)]
    fn majority(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_ternarylogic_epi32::<MAJORITY>(self, b, c) }
    }
}

#[avx512]
#[inline]
fn shift_right<const N: i32>(words: __m512i) -> __m512i {
    _mm512_srl_epi32(words, _mm_cvtsi32_si128(N))
}

/// The blocks of a packet that are hashed.
impl Packet<'_> {
    /// Blocks with padding.
    fn padded_blocks(&self) -> usize {
        (self.len + 9).div_ceil(BLOCK)
    }

    /// Blocks without it.
    fn whole_blocks(&self) -> usize {
        self.len / BLOCK
    }
}

/// The part after the last whole block of a packet: its remaining bytes and padding.
#[repr(C, align(64))]
pub(super) struct Tail([[u8; BLOCK]; 2]);

impl Tail {
    pub(super) const EMPTY: Self = Self([[0; BLOCK]; 2]);
}

/// The HMACs of up to a batch of packets, in progress.
pub(super) struct Authentication<'a, 'p> {
    packets: &'p [Packet<'a>],
    /// Whether they share one key.
    alike: bool,
    /// One per packet of a batch.
    tails: *mut Tail,
    /// Where each packet's first block would be if all blocks were contiguous with the next one.
    at: [[*const u8; LANES]; STREAMS],
    state: [State; STREAMS],
    /// Blocks hashed so far.
    done: usize,
    /// Packets that are not fully hashed, from the longest on.
    active: usize,
    /// Packets with whole blocks not yet hashed, from the longest on.
    whole: usize,
}

impl<'a, 'p> Authentication<'a, 'p> {
    /// The HMACs of packets, the longest first, whose keys may be `alike`. `tails` receives their
    /// ends.
    ///
    /// # Panics
    /// If there are none, or more than in a batch.
    #[avx512]
    pub(super) fn new(
        packets: &'p [Packet<'a>],
        alike: bool,
        tails: &'p mut [Tail; BATCH],
    ) -> Self {
        let (first, count) = (packets[0].start, packets.len());
        // Filled in place: a copy would wait for the stores just made.
        let mut new = Self {
            packets,
            alike,
            tails: tails.as_mut_ptr(),
            at: [[first; LANES]; STREAMS],
            state: states(packets, alike, |keys| &keys.inner),
            done: 0,
            active: count,
            whole: count,
        };
        let at = &mut new.at.as_flattened_mut()[..count];
        at.iter_mut().zip(packets).for_each(|(at, packet)| *at = packet.start);
        new
    }

    /// Continues as far as `ready` bytes of each packet allow; packets from number `unfinished` on
    /// are ready in full.
    ///
    /// # Safety
    /// These bytes are valid memory, and no packet is longer than the one before it.
    #[avx512]
    pub(super) unsafe fn advance<const SHA256: bool>(&mut self, ready: usize, unfinished: usize) {
        let all = self.packets[0].padded_blocks();
        let end = if unfinished == 0 { all } else { ready / BLOCK };
        while self.done < end {
            // SAFETY: packets whose whole blocks end within the ready bytes are ready in full.
            unsafe { self.move_on() };
            let (lanes, offset) = (self.lanes(), self.done * BLOCK);
            // Each lane is at a whole block of a packet, whose bytes are ready, or in a tail that
            // is written.
            if self.active > LANES {
                // SAFETY: as above.
                unsafe { advance::<SHA256, STREAMS>(&mut self.state, &self.at, offset, lanes) };
            } else {
                let ([state, _], [at, _]) = (&mut self.state, &self.at);
                let (state, at) = (from_mut(state), from_ref(at));
                // SAFETY: as above.
                unsafe { advance::<SHA256, 1>(state, at, offset, [lanes[0]]) };
            }
            self.done += 1;
        }
    }

    /// Drops packets that are hashed, and moves to the tails of those whose whole blocks are.
    ///
    /// # Safety
    /// The latter are valid memory.
    #[avx512]
    unsafe fn move_on(&mut self) {
        while self.packets[self.active - 1].padded_blocks() <= self.done {
            self.active -= 1;
        }
        let at = self.at.as_flattened_mut();
        while self.whole > 0 && self.packets[self.whole - 1].whole_blocks() <= self.done {
            self.whole -= 1;
            let (packet, tail) = (&self.packets[self.whole], self.tails.wrapping_add(self.whole));
            // SAFETY: there is a tail for each packet, and only `self` uses them.
            let to = unsafe { &mut *tail };
            // SAFETY: the packet is valid memory, as the caller guarantees.
            unsafe { pad(packet, to) };
            at[self.whole] = tail.cast::<u8>().wrapping_sub(packet.whole_blocks() * BLOCK);
        }
        // A lane without a packet repeats the first.
        let first = at[0];
        at[self.active..].fill(first);
    }

    /// The states after the blocks hashed so far.
    pub(super) fn states(&self) -> &[State; STREAMS] {
        &self.state
    }

    /// Blocks hashed of each packet that has that many.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Packets that are not fully hashed, from the longest on.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Marks the next `blocks`, whole ones, of the packets that are not fully hashed as hashed, and
    /// takes over the resulting `states`.
    #[avx512]
    pub(super) fn skip(&mut self, blocks: usize, states: &[State; STREAMS]) {
        self.done += blocks;
        let lanes = self.lanes();
        for ((state, next), lanes) in self.state.iter_mut().zip(states).zip(lanes) {
            keep(state, next, lanes);
        }
    }

    /// The lanes of packets that are not fully hashed.
    fn lanes(&self) -> [__mmask16; STREAMS] {
        let lanes = u32::MAX >> (BATCH - self.active);
        [lanes as __mmask16, (lanes >> LANES) as __mmask16]
    }

    /// The first bytes of the HMACs.
    #[avx512]
    pub(super) fn finish<const SHA256: bool>(self, tags: &mut [[u8; TAG]; BATCH]) {
        finish::<SHA256>(&self.state, states(self.packets, self.alike, |keys| &keys.outer), tags);
    }
}

/// Hashes the blocks `offset` bytes after the positions of `N` streams, in the given lanes.
///
/// # Safety
/// The blocks are valid memory.
#[avx512]
unsafe fn advance<const SHA256: bool, const N: usize>(
    state: &mut [State; N],
    at: &[[*const u8; LANES]; N],
    offset: usize,
    lanes: [__mmask16; N],
) {
    let mut words = [[_mm512_setzero_si512(); LANES]; N];
    for stream in 0..N {
        // SAFETY: the caller guarantees it.
        unsafe { fetch(&at[stream], offset, &mut words[stream]) };
    }
    let mut next = *state;
    hash::<SHA256, N>(&mut next, &mut words);
    for stream in 0..N {
        keep(&mut state[stream], &next[stream], lanes[stream]);
    }
}

/// Replaces a state by the next one in the given lanes.
#[avx512]
#[inline]
fn keep(state: &mut State, next: &State, lanes: __mmask16) {
    for (word, next) in state.iter_mut().zip(next) {
        *word = _mm512_mask_mov_epi32(*word, lanes, *next);
    }
}

/// Hashes a block in each lane of `N` streams. Not inlined: it is long, and the less code a batch
/// runs through, the more of it stays in the processor's caches.
#[avx512]
#[inline(never)]
pub(super) fn hash<const SHA256: bool, const N: usize>(
    state: &mut [State; N],
    words: &mut [[__m512i; LANES]; N],
) {
    compress::<SHA256, N, _>(state, words);
}

/// The hash of the keys' outer block and the inner digest.
#[avx512]
fn finish<const SHA256: bool>(
    inner: &[State; STREAMS],
    mut outer: [State; STREAMS],
    tags: &mut [[u8; TAG]; BATCH],
) {
    let len = if SHA256 { 8 } else { 5 };
    let mut words = [[_mm512_setzero_si512(); LANES]; STREAMS];
    for (words, inner) in words.iter_mut().zip(inner) {
        words[..len].copy_from_slice(&inner[..len]);
        words[len] = number(1 << 31);
        words[15] = number((BLOCK as u32 + 4 * len as u32) * 8);
    }
    hash::<SHA256, STREAMS>(&mut outer, &mut words);
    for (tags, digest) in tags.chunks_mut(LANES).zip(outer) {
        let [w0, w1, w2, w3, ..] = digest;
        // The tags of every fourth lane, from lanes 0, 1, 2 and 3 on.
        for (first, fourths) in columns_of_four([w0, w1, w2, w3]).into_iter().enumerate() {
            put_fourths(fourths, tags, first);
        }
    }
}

/// Writes four tags, the highest byte of each word first, to every fourth place.
#[avx512]
#[inline]
fn put_fourths(fourths: __m512i, tags: &mut [[u8; TAG]], first: usize) {
    let mut bytes = [0; BLOCK];
    store_block(_mm512_shuffle_epi8(fourths, big_endian()), &mut bytes);
    for (tag, bytes) in tags[first..].iter_mut().step_by(4).zip(bytes.as_chunks().0) {
        *tag = *bytes;
    }
}

/// The shuffle that puts the highest byte of each word first.
#[avx512]
#[inline]
pub(super) fn big_endian() -> __m512i {
    _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203)
}

/// One state of the keys of each lane, which may all be `alike`.
#[avx512]
#[inline]
fn states(
    packets: &[Packet<'_>],
    alike: bool,
    which: impl Fn(&HmacKeys) -> &[u32; WORDS],
) -> [State; STREAMS] {
    if alike {
        return [which(&packets[0].keys.hmac).map(|word| number(word)); STREAMS];
    }
    let mut words = [[[0; LANES]; WORDS]; STREAMS];
    for (lane, packet) in packets.iter().enumerate() {
        let (state, words) = (which(&packet.keys.hmac), &mut words[lane / LANES]);
        (0..WORDS).for_each(|word| words[word][lane % LANES] = state[word]);
    }
    // SAFETY: a register has as many words.
    words.map(|words| words.map(|words| unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }))
}

/// Writes the part after the last whole block of a packet.
///
/// # Safety
/// The packet is valid memory.
#[avx512]
#[inline]
unsafe fn pad(packet: &Packet<'_>, tail: &mut Tail) {
    let whole = packet.whole_blocks() * BLOCK;
    let rest = packet.len - whole;
    let mask = (1u64 << rest) - 1;
    let at = packet.start.wrapping_add(whole).cast_const();
    // SAFETY: the mask has a bit for each byte after the last whole block.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, at.cast()) };
    let bytes = _mm512_mask_mov_epi8(bytes, 1 << rest, _mm512_set1_epi8(0x80u8 as i8));
    // The block of the key counts too. The length is the last word of the last block.
    let bits = ((BLOCK + packet.len) as u64 * 8).swap_bytes();
    let len = _mm512_maskz_set1_epi64(0x80, bits as i64);
    let fits = rest < BLOCK - 8;
    let first = if fits { _mm512_or_si512(bytes, len) } else { bytes };
    let [first_block, second_block] = &mut tail.0;
    store_block(first, first_block);
    if !fits {
        store_block(len, second_block);
    }
}

#[avx512]
#[inline]
fn store_block(value: __m512i, block: &mut [u8; BLOCK]) {
    // SAFETY: a block is as long as a register.
    unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), value) }
}

/// Loads the words of the blocks `offset` bytes after the given positions: transposed, the first
/// byte of each word highest.
///
/// # Safety
/// The blocks are valid memory.
#[avx512]
#[inline]
unsafe fn fetch(at: &[*const u8; LANES], offset: usize, words: &mut [__m512i; LANES]) {
    let big_endian = big_endian();
    let mut rows = [_mm512_setzero_si512(); LANES];
    macro_rules! row {
        ($lane:expr) => {
            let at = at[$lane].wrapping_add(offset);
            // SAFETY: the caller guarantees it.
            let block = unsafe { _mm512_loadu_si512(at.cast()) };
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(2 * BLOCK).cast());
            rows[$lane] = _mm512_shuffle_epi8(block, big_endian);
        };
    }
    sixteen!(row);
    *words = transpose(&rows);
}

/// Rows to columns of 16 by 16 words.
#[avx512]
#[inline]
fn transpose(rows: &[__m512i; LANES]) -> [__m512i; LANES] {
    // Each 128-bit lane of `fours[4 i + j]` holds word j of its quarter for rows 4 i to 4 i + 3.
    let mut fours = [_mm512_setzero_si512(); LANES];
    for i in 0..4 {
        let rows = [0, 1, 2, 3].map(|row| rows[4 * i + row]);
        fours[4 * i..4 * i + 4].copy_from_slice(&columns_of_four(rows));
    }
    let mut columns = [_mm512_setzero_si512(); LANES];
    for j in 0..4 {
        let [f0, f1, f2, f3] = [0, 4, 8, 12].map(|four| fours[four + j]);
        let even01 = _mm512_shuffle_i32x4::<0x88>(f0, f1);
        let even23 = _mm512_shuffle_i32x4::<0x88>(f2, f3);
        let odd01 = _mm512_shuffle_i32x4::<0xdd>(f0, f1);
        let odd23 = _mm512_shuffle_i32x4::<0xdd>(f2, f3);
        columns[j] = _mm512_shuffle_i32x4::<0x88>(even01, even23);
        columns[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd01, odd23);
        columns[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even01, even23);
        columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd01, odd23);
    }
    columns
}

/// Rows to columns of 4 by 4 words, in each 128-bit lane.
#[avx512]
#[inline]
pub(super) fn columns_of_four([r0, r1, r2, r3]: [__m512i; 4]) -> [__m512i; 4] {
    let (low01, low23) = (_mm512_unpacklo_epi32(r0, r1), _mm512_unpacklo_epi32(r2, r3));
    let (high01, high23) = (_mm512_unpackhi_epi32(r0, r1), _mm512_unpackhi_epi32(r2, r3));
    [
        _mm512_unpacklo_epi64(low01, low23),
        _mm512_unpackhi_epi64(low01, low23),
        _mm512_unpacklo_epi64(high01, high23),
        _mm512_unpackhi_epi64(high01, high23),
    ]
}

#[avx512]
#[inline]
fn number(n: u32) -> __m512i {
    _mm512_set1_epi32(n as i32)
}
