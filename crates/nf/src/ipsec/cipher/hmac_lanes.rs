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

use std::array::from_mut;

use thalweg_packet::BATCH;

use super::sha::{self, BLOCK, HmacKeys, WORDS, Words, compress, sixteen};

/// Messages of a register.
pub(super) const LANES: usize = 16;
/// Sixteens that are hashed side by side: each round of one waits for the round before it.
pub(super) const STREAMS: usize = BATCH / LANES;
/// The hashes' states, word by word.
pub(super) type State = sha::State<__m512i>;
/// Bytes of a tag; of those of SHA-1, the first twelve count.
pub(super) const TAG: usize = 16;

/// The exclusive or of three, as a table of its values.
pub(super) const XOR3: i32 = 0x96;
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;

/// Sixteen messages. Used only where the processor has AVX-512, into which all of it is inlined.
impl Words for __m512i {
    const AT_HAND: usize = 32;

    #[inline(always)]
    fn forget() {
        // SAFETY: nothing is done.
        unsafe { asm!("", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn all(word: u32) -> Self {
        // SAFETY: whoever uses sixteen has AVX-512; so below.
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

#[target_feature(enable = "avx512f")]
#[inline]
fn shift_right<const N: i32>(words: __m512i) -> __m512i {
    _mm512_srl_epi32(words, _mm_cvtsi32_si128(N))
}

/// A message to be authenticated.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) keys: &'a HmacKeys,
    pub(super) start: *const u8,
    pub(super) len: usize,
}

impl Message<'_> {
    /// Blocks with padding.
    fn blocks(&self) -> usize {
        (self.len + 9).div_ceil(BLOCK)
    }

    /// Bytes of whole blocks.
    fn whole(&self) -> usize {
        self.len / BLOCK * BLOCK
    }
}

/// What stands behind the last whole block of a message: its rest and padding.
#[repr(C, align(64))]
pub(super) struct Tail([[u8; BLOCK]; 2]);

impl Tail {
    pub(super) const EMPTY: Self = Self([[0; BLOCK]; 2]);
}

/// The HMACs of up to a batch of messages, as far as they have come.
pub(super) struct Authentication<'a, 'm> {
    messages: &'m [Message<'a>],
    /// Whether they have one key.
    alike: bool,
    /// As many as a batch has.
    tails: *mut Tail,
    cursors: [[Cursor; LANES]; STREAMS],
    state: [State; STREAMS],
    /// Blocks that are hashed.
    done: usize,
    /// Messages that are not, from the longest on.
    active: usize,
    /// Messages whose tails are not written, from the longest on.
    open: usize,
}

impl<'a, 'm> Authentication<'a, 'm> {
    /// Of messages of which the longest is first. `tails` is for their ends.
    ///
    /// # Panics
    /// When there are more than in a batch.
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(messages: &'m [Message<'a>], tails: &'m mut [Tail; BATCH]) -> Self {
        assert!((1..=BATCH).contains(&messages.len()));
        let tails = tails.as_mut_ptr();
        let alike = messages.iter().all(|message| std::ptr::eq(message.keys, messages[0].keys));
        // Filled where it stays: a copy would wait for what was just stored.
        let mut new = Self {
            messages,
            alike,
            tails,
            cursors: [[Cursor::NONE; LANES]; STREAMS],
            state: states(messages, alike, |keys| &keys.inner),
            done: 0,
            active: messages.len(),
            open: messages.len(),
        };
        let cursors = new.cursors.as_flattened_mut();
        for (lane, (cursor, message)) in cursors.iter_mut().zip(messages).enumerate() {
            *cursor = Cursor::of(message, tails.wrapping_add(lane).cast());
        }
        // A lane without a message does what the first does.
        let first = cursors[0];
        cursors[messages.len()..].fill(first);
        new
    }

    /// Goes on as far as `ready` bytes of each message, from its start on, are there, and all
    /// of those from number `unfinished` on.
    ///
    /// # Safety
    /// They are there, and no message is longer than the one before it.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn advance<const SHA256: bool>(&mut self, ready: usize, unfinished: usize) {
        for open in unfinished..self.open {
            // SAFETY: there is a tail for each message, and only `self` has them.
            let tail = unsafe { &mut *self.tails.wrapping_add(open) };
            // SAFETY: the message is there, as the caller says.
            unsafe { pad(&self.messages[open], tail) };
        }
        self.open = self.open.min(unfinished);
        let all = self.messages[0].blocks();
        let end = if unfinished == 0 { all } else { ready / BLOCK };
        while self.done < end {
            while self.messages[self.active - 1].blocks() <= self.done {
                self.active -= 1;
                self.cursors[self.active / LANES][self.active % LANES] = self.cursors[0][0];
            }
            let lanes = self.lanes();
            if self.active > LANES {
                advance::<SHA256, STREAMS>(&mut self.state, &mut self.cursors, lanes);
            } else {
                let ([state, _], [cursors, _]) = (&mut self.state, &mut self.cursors);
                advance::<SHA256, 1>(from_mut(state), from_mut(cursors), [lanes[0]]);
            }
            self.done += 1;
        }
    }

    /// What the blocks that are hashed have come to.
    pub(super) fn states(&self) -> &[State; STREAMS] {
        &self.state
    }

    /// Blocks of each message that are hashed, of those that have so many.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Messages that are not hashed, from the longest on.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Takes the next `blocks` of the messages that are not hashed, which are whole ones, for
    /// hashed, to `states`.
    #[target_feature(enable = "avx512f")]
    pub(super) fn skip(&mut self, blocks: usize, states: &[State; STREAMS]) {
        self.done += blocks;
        let cursors = self.cursors.as_flattened_mut();
        for (cursor, message) in cursors.iter_mut().zip(&self.messages[..self.active]) {
            *cursor = cursor.moved_to(message.start.wrapping_add(self.done * BLOCK));
        }
        // A lane without a message does what the first does.
        let first = cursors[0];
        cursors[self.active..].fill(first);
        let lanes = self.lanes();
        for ((state, next), lanes) in self.state.iter_mut().zip(states).zip(lanes) {
            keep(state, next, lanes);
        }
    }

    /// The messages that are not hashed.
    fn lanes(&self) -> [__mmask16; STREAMS] {
        let lanes = u32::MAX >> (BATCH - self.active);
        [lanes as __mmask16, (lanes >> LANES) as __mmask16]
    }

    /// The first bytes of the HMACs.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn finish<const SHA256: bool>(self, tags: &mut [[u8; TAG]; BATCH]) {
        finish::<SHA256>(&self.state, states(self.messages, self.alike, |keys| &keys.outer), tags);
    }
}

/// Hashes the next blocks of the lanes of `N` streams.
#[target_feature(enable = "avx512f,avx512bw")]
fn advance<const SHA256: bool, const N: usize>(
    state: &mut [State; N],
    cursors: &mut [[Cursor; LANES]; N],
    lanes: [__mmask16; N],
) {
    let mut words = [[_mm512_setzero_si512(); LANES]; N];
    for stream in 0..N {
        fetch(&mut cursors[stream], &mut words[stream]);
    }
    let mut next = *state;
    hash::<SHA256, N>(&mut next, &mut words);
    for stream in 0..N {
        keep(&mut state[stream], &next[stream], lanes[stream]);
    }
}

/// Makes a state the next one in so many lanes.
#[target_feature(enable = "avx512f")]
#[inline]
fn keep(state: &mut State, next: &State, lanes: __mmask16) {
    for (word, next) in state.iter_mut().zip(next) {
        *word = _mm512_mask_mov_epi32(*word, lanes, *next);
    }
}

/// Hashes a block in each lane of `N` streams. Not inlined: it is long, and the less code a batch
/// goes through, the more of it the processor has at hand.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline(never)]
pub(super) fn hash<const SHA256: bool, const N: usize>(
    state: &mut [State; N],
    words: &mut [[__m512i; LANES]; N],
) {
    compress::<SHA256, N, _>(state, words);
}

/// The hash of the keys' outer block and the inner digest.
#[target_feature(enable = "avx512f,avx512bw")]
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
        // Those of every fourth lane, from lanes 0, 1, 2 and 3 on.
        for (first, fourths) in columns_of_four([w0, w1, w2, w3]).into_iter().enumerate() {
            put_fourths(fourths, tags, first);
        }
    }
}

/// Writes four tags, of words whose highest byte comes first, to every fourth place.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn put_fourths(fourths: __m512i, tags: &mut [[u8; TAG]], first: usize) {
    let mut bytes = [0; BLOCK];
    store_block(_mm512_shuffle_epi8(fourths, big_endian()), &mut bytes);
    for (tag, bytes) in tags[first..].iter_mut().step_by(4).zip(bytes.as_chunks().0) {
        *tag = *bytes;
    }
}

/// What puts the highest byte of each word first.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn big_endian() -> __m512i {
    _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203)
}

/// One state of the keys of each lane, which may all be `alike`.
#[target_feature(enable = "avx512f")]
#[inline]
fn states(
    messages: &[Message<'_>],
    alike: bool,
    which: impl Fn(&HmacKeys) -> &[u32; WORDS],
) -> [State; STREAMS] {
    if alike {
        return [which(messages[0].keys).map(|word| number(word)); STREAMS];
    }
    let mut words = [[[0; LANES]; WORDS]; STREAMS];
    for (lane, message) in messages.iter().enumerate() {
        let (state, words) = (which(message.keys), &mut words[lane / LANES]);
        (0..WORDS).for_each(|word| words[word][lane % LANES] = state[word]);
    }
    // SAFETY: a register has as many words.
    words.map(|words| words.map(|words| unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }))
}

/// Writes what stands behind the last whole block of a message.
///
/// # Safety
/// The message is there.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn pad(message: &Message<'_>, tail: &mut Tail) {
    let rest = message.len - message.whole();
    let mask = (1u64 << rest) - 1;
    let at = message.start.wrapping_add(message.whole());
    // SAFETY: the mask has a bit for each byte behind the last whole block.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, at.cast()) };
    let bytes = _mm512_mask_mov_epi8(bytes, 1 << rest, _mm512_set1_epi8(0x80u8 as i8));
    // The block of the key counts too. The length is the last word of the last block.
    let bits = ((BLOCK + message.len) as u64 * 8).swap_bytes();
    let len = _mm512_maskz_set1_epi64(0x80, bits as i64);
    let fits = rest < BLOCK - 8;
    let first = if fits { _mm512_or_si512(bytes, len) } else { bytes };
    let [first_block, second_block] = &mut tail.0;
    store_block(first, first_block);
    if !fits {
        store_block(len, second_block);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_block(value: __m512i, block: &mut [u8; BLOCK]) {
    // SAFETY: a block is as long as a register.
    unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), value) }
}

/// Where the next block of a message stands.
#[derive(Clone, Copy)]
struct Cursor {
    at: *const u8,
    /// The end of the message's whole blocks, and what follows there.
    end: *const u8,
    tail: *const u8,
}

impl Cursor {
    const NONE: Self = Self { at: std::ptr::null(), end: std::ptr::null(), tail: std::ptr::null() };

    #[inline]
    fn of(message: &Message<'_>, tail: *const u8) -> Self {
        let start = message.start;
        let end = start.wrapping_add(message.whole());
        Self { at: start, end, tail }.moved_to(start)
    }

    /// The same at a place in its message's whole blocks, or, where they end, at what follows.
    #[inline]
    fn moved_to(self, at: *const u8) -> Self {
        Self { at: if at == self.end { self.tail } else { at }, ..self }
    }

    fn next(&mut self) -> *const u8 {
        let at = self.at;
        *self = self.moved_to(at.wrapping_add(BLOCK));
        at
    }
}

/// The words of the next blocks: transposed, the first byte of each highest.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn fetch(cursors: &mut [Cursor; LANES], words: &mut [__m512i; LANES]) {
    let big_endian = big_endian();
    let mut rows = [_mm512_setzero_si512(); LANES];
    macro_rules! row {
        ($lane:expr) => {
            let at = cursors[$lane].next();
            // SAFETY: a cursor stands at a whole block until its message ends, and then another
            // takes its place.
            let block = unsafe { _mm512_loadu_si512(at.cast()) };
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(2 * BLOCK).cast());
            rows[$lane] = _mm512_shuffle_epi8(block, big_endian);
        };
    }
    sixteen!(row);
    *words = transpose(&rows);
}

/// Rows to columns of 16 by 16 words.
#[target_feature(enable = "avx512f")]
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
#[target_feature(enable = "avx512f")]
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

#[target_feature(enable = "avx512f")]
#[inline]
fn number(n: u32) -> __m512i {
    _mm512_set1_epi32(n as i32)
}
