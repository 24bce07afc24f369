//! AES-CBC with AVX-512 and VAES.
//!
//! CBC encrypts a block only after the one before it, so that one packet keeps a core waiting:
//! many are encrypted side by side, four to a register, each with its own key. A packet's blocks
//! are decrypted all at once.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m128i, __m512i, __mmask8, _MM_HINT_T0, _mm_aesimc_si128, _mm_aeskeygenassist_si128,
    _mm_cvtsi128_si32, _mm_loadu_si128, _mm_prefetch, _mm_set1_epi32, _mm_storeu_si128,
    _mm512_aesdec_epi128, _mm512_aesdeclast_epi128, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_extracti32x4_epi32, _mm512_inserti32x4,
    _mm512_mask_storeu_epi64, _mm512_maskz_loadu_epi64, _mm512_setzero_si512,
    _mm512_ternarylogic_epi32, _mm512_xor_si512,
};

use thalweg_cpu::avx512;
use thalweg_packet::BATCH;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::hmac_lanes::XOR3;
use super::lanes::Packet;

/// Bytes of a block.
pub(super) const BLOCK: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Packets per register.
pub(super) const PER_REGISTER: usize = 4;
/// Registers for the packets of a batch.
pub(super) const REGISTERS: usize = BATCH / PER_REGISTER;
/// Round keys of the longest schedule (AES-256), and the initial one.
pub(super) const MOST_KEYS: usize = 15;

/// A key, expanded (FIPS 197, section 5.2).
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct AesKeys {
    rounds: usize,
    encrypt: [[u8; BLOCK]; MOST_KEYS],
    decrypt: [[u8; BLOCK]; MOST_KEYS],
}

impl AesKeys {
    /// Expands a key of 16, 24 or 32 bytes.
    #[target_feature(enable = "aes")]
    pub(super) fn new(key: &[u8]) -> Self {
        let (nk, rounds) = (key.len() / 4, key.len() / 4 + 6);
        let mut words = [0u32; MOST_KEYS * 4];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let mut constant = 1;
        for i in nk..4 * (rounds + 1) {
            let before = words[i - 1];
            let mixed = if i % nk == 0 {
                let mixed = substitute(before).rotate_right(8) ^ constant;
                constant = constant << 1 ^ if constant & 0x80 == 0 { 0 } else { 0x11b };
                mixed
            } else if nk > 6 && i % nk == 4 {
                substitute(before)
            } else {
                before
            };
            words[i] = words[i - nk] ^ mixed;
        }
        let mut keys =
            Self { rounds, encrypt: [[0; BLOCK]; MOST_KEYS], decrypt: [[0; BLOCK]; MOST_KEYS] };
        for (key, words) in keys.encrypt.iter_mut().zip(words.as_chunks::<4>().0) {
            for (bytes, word) in key.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *bytes = word.to_le_bytes();
            }
        }
        words.zeroize();
        for round in 0..=rounds {
            let key = load(&keys.encrypt[rounds - round]);
            let inner = (1..rounds).contains(&round);
            store(if inner { _mm_aesimc_si128(key) } else { key }, &mut keys.decrypt[round]);
        }
        keys
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    /// The encryption keys, of which [`rounds`](Self::rounds) and one more are used.
    pub(super) fn encryption(&self) -> [__m128i; MOST_KEYS] {
        self.encrypt.each_ref().map(load)
    }

    /// As [`encryption`](Self::encryption), for decryption.
    pub(super) fn decryption(&self) -> [__m128i; MOST_KEYS] {
        self.decrypt.each_ref().map(load)
    }
}

/// Applies the S-box to each byte of a word.
#[target_feature(enable = "aes")]
fn substitute(word: u32) -> u32 {
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(_mm_set1_epi32(word as i32))) as u32
}

#[inline]
pub(super) fn load(block: &[u8; BLOCK]) -> __m128i {
    // SAFETY: the block is as long as the register; the load needs no alignment.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

#[inline]
pub(super) fn store(value: __m128i, block: &mut [u8; BLOCK]) {
    // SAFETY: as in `load`.
    unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), value) }
}

/// The encryption of up to a batch of packets, in place and side by side, in progress.
pub(super) struct Encryption<'a, 'p> {
    packets: &'p [Packet<'a>],
    keys: Keys<'a>,
    /// The block before the next one, for packets that are not done; for the others, `idle`'s.
    at: [*mut u8; BATCH],
    /// Blocks encrypted so far.
    done: usize,
    /// Packets that are not done.
    active: usize,
}

/// Expanded keys by round.
enum Keys<'a> {
    Same(&'a AesKeys),
    /// One key per round and register of packets; the number of rounds.
    Different(Box<[[__m512i; REGISTERS]; MOST_KEYS]>, usize),
}

impl<'a, 'p> Encryption<'a, 'p> {
    /// The encryption of packets, the longest first, whose keys have the same number of rounds and
    /// may be `alike`. Lanes without a packet read and write `idle`, from a block before an IV on.
    ///
    /// # Panics
    /// If there are none, or more than in a batch, or `idle` is shorter than one of them.
    #[avx512]
    pub(super) fn new(packets: &'p [Packet<'a>], alike: bool, idle: &mut [u8]) -> Self {
        let keys = &packets[0].keys.aes;
        let keys = if alike {
            Keys::Same(keys)
        } else {
            Keys::Different(Box::new(lane_keys(packets)), keys.rounds)
        };
        // Filled in place: a copy would wait for the stores just made.
        let at = [idle_iv(idle); BATCH];
        let mut new = Self { packets, keys, at, done: 0, active: packets.len() };
        for (at, packet) in new.at[..packets.len()].iter_mut().zip(packets) {
            assert!(idle.len() >= idle_len(packet.blocks));
            *at = packet.iv();
        }
        new
    }

    /// Continues until `end` blocks of each packet are done, or all that it has. Returns the number
    /// of packets, from the first on, that are not done.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    #[avx512]
    #[target_feature(enable = "vaes")]
    pub(super) unsafe fn advance(&mut self, end: usize, idle: &mut [u8]) -> usize {
        while self.active > 0 && self.done < end {
            let count = self.all_have().min(end - self.done);
            // SAFETY: the caller guarantees it.
            unsafe { self.step(count, idle, &mut Alone(count)) };
        }
        self.active
    }

    /// Packets that are not done.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Blocks encrypted of each packet that has that many.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Blocks that every packet that is not done has left.
    pub(super) fn all_have(&self) -> usize {
        self.active.checked_sub(1).map_or(0, |last| self.packets[last].blocks - self.done)
    }

    /// Encrypts, by `how`, the next `count` blocks of the packets that are not done.
    ///
    /// # Safety
    /// The packets are valid memory and not shared; `idle` is that of [`new`](Self::new); all that
    /// are not done have `count` blocks left.
    #[avx512]
    #[target_feature(enable = "vaes")]
    pub(super) unsafe fn step(&mut self, count: usize, idle: &mut [u8], how: &mut impl Blocks) {
        let registers = self.active.div_ceil(PER_REGISTER);
        match &self.keys {
            Keys::Same(keys) => {
                let mut wide = [[_mm512_setzero_si512()]; MOST_KEYS];
                let keys = broadcast(&keys.encrypt, keys.rounds, &mut wide);
                // SAFETY: the packets that are not done have `count` blocks after their position,
                // as the caller guarantees; the others have `idle`, as long as the longest.
                unsafe { how.encrypt(registers, keys, &self.at) };
            }
            Keys::Different(keys, rounds) => {
                // SAFETY: as above.
                unsafe { how.encrypt(registers, &keys[..=*rounds], &self.at) };
            }
        }
        self.done += count;
        let at = &mut self.at[..self.active];
        at.iter_mut().for_each(|at| *at = at.wrapping_add(count * BLOCK));
        while self.active > 0 && self.packets[self.active - 1].blocks == self.done {
            self.active -= 1;
            self.at[self.active] = idle_iv(idle);
        }
    }
}

/// Bytes that idle lanes need beside packets of `blocks` blocks: also an IV, and a block before it.
pub(super) fn idle_len(blocks: usize) -> usize {
    (blocks + 2) * BLOCK
}

fn idle_iv(idle: &mut [u8]) -> *mut u8 {
    idle.as_mut_ptr().wrapping_add(BLOCK)
}

/// A way to encrypt some number of blocks of each packet.
pub(super) trait Blocks {
    /// Encrypts the next blocks of the packets of the first `registers` registers.
    ///
    /// # Safety
    /// Each lane of the registers has that many blocks after the one at its position, and the
    /// processor has the instructions.
    unsafe fn encrypt<const K: usize>(
        &mut self,
        registers: usize,
        keys: &[[__m512i; K]],
        at: &[*mut u8; BATCH],
    );
}

/// Encryption alone, of a number of blocks.
struct Alone(usize);

impl Blocks for Alone {
    unsafe fn encrypt<const K: usize>(
        &mut self,
        registers: usize,
        keys: &[[__m512i; K]],
        at: &[*mut u8; BATCH],
    ) {
        let run = match registers {
            1 => run::<1, K>,
            2 => run::<2, K>,
            3 => run::<3, K>,
            4 => run::<4, K>,
            5 => run::<5, K>,
            6 => run::<6, K>,
            7 => run::<7, K>,
            _ => run::<REGISTERS, K> as Run<K>,
        };
        // SAFETY: the caller guarantees it.
        unsafe { run(keys, at, self.0) }
    }
}

/// Broadcasts the round keys that are used to whole registers, into `wide`.
#[avx512]
#[inline]
fn broadcast<'a>(
    keys: &[[u8; BLOCK]; MOST_KEYS],
    rounds: usize,
    wide: &'a mut [[__m512i; 1]; MOST_KEYS],
) -> &'a [[__m512i; 1]] {
    let wide = &mut wide[..=rounds];
    for (register, key) in wide.iter_mut().zip(keys) {
        *register = [_mm512_broadcast_i32x4(load(key))];
    }
    wide
}

#[avx512]
fn lane_keys(packets: &[Packet<'_>]) -> [[__m512i; REGISTERS]; MOST_KEYS] {
    let mut keys = [[_mm512_setzero_si512(); REGISTERS]; MOST_KEYS];
    for (round, keys) in keys.iter_mut().enumerate() {
        for (register, packets) in keys.iter_mut().zip(packets.chunks(PER_REGISTER)) {
            let of = |lane: usize| packets.get(lane).unwrap_or(&packets[0]).keys.aes.encrypt[round];
            *register = join([load(&of(0)), load(&of(1)), load(&of(2)), load(&of(3))]);
        }
    }
    keys
}

#[avx512]
#[inline]
fn join(blocks: [__m128i; PER_REGISTER]) -> __m512i {
    let joined = _mm512_castsi128_si512(blocks[0]);
    let joined = _mm512_inserti32x4::<1>(joined, blocks[1]);
    let joined = _mm512_inserti32x4::<2>(joined, blocks[2]);
    _mm512_inserti32x4::<3>(joined, blocks[3])
}

/// Loads the blocks `offset` bytes after the positions of the first lanes.
///
/// # Safety
/// The blocks are valid memory.
#[avx512]
#[inline]
pub(super) unsafe fn gather<const N: usize>(at: &[*mut u8; BATCH], offset: usize) -> [__m512i; N] {
    let block = |lane: usize| {
        let at = at[lane].wrapping_add(offset);
        // SAFETY: the caller guarantees it.
        unsafe { _mm_loadu_si128(at.cast()) }
    };
    let mut blocks = [_mm512_setzero_si512(); N];
    for (n, blocks) in blocks.iter_mut().enumerate() {
        let first = n * PER_REGISTER;
        *blocks = join([block(first), block(first + 1), block(first + 2), block(first + 3)]);
    }
    blocks
}

/// Stores blocks `offset` bytes after the positions of the first lanes.
///
/// # Safety
/// The blocks are valid memory and not shared.
#[avx512]
#[inline]
unsafe fn scatter<const N: usize>(blocks: &[__m512i; N], at: &[*mut u8; BATCH], offset: usize) {
    let put = |lane: usize, block: __m128i| {
        let at = at[lane].wrapping_add(offset);
        // SAFETY: the caller guarantees it.
        unsafe { _mm_storeu_si128(at.cast(), block) }
    };
    for (n, blocks) in blocks.iter().enumerate() {
        let first = n * PER_REGISTER;
        put(first, _mm512_extracti32x4_epi32::<0>(*blocks));
        put(first + 1, _mm512_extracti32x4_epi32::<1>(*blocks));
        put(first + 2, _mm512_extracti32x4_epi32::<2>(*blocks));
        put(first + 3, _mm512_extracti32x4_epi32::<3>(*blocks));
    }
}

/// [`run`] for some number of registers.
type Run<const K: usize> = unsafe fn(&[[__m512i; K]], &[*mut u8; BATCH], usize);

/// Encrypts the next `count` blocks of the packets of the first `N` registers.
///
/// # Safety
/// Each of those lanes has that many blocks after the one at its position.
#[avx512]
#[target_feature(enable = "vaes")]
unsafe fn run<const N: usize, const K: usize>(
    keys: &[[__m512i; K]],
    at: &[*mut u8; BATCH],
    count: usize,
) {
    // SAFETY: the caller guarantees it; likewise below.
    let mut chain = unsafe { gather::<N>(at, 0) };
    for block in 1..=count {
        if block % (LINE / BLOCK) == 1 {
            prefetch(&at[..N * PER_REGISTER], block * BLOCK);
        }
        // SAFETY: as above.
        unsafe { encrypt(keys, at, block * BLOCK, &mut chain) };
    }
}

/// Prefetches two cache lines past `offset` in each packet: the packets are more streams than the
/// processor's own prefetcher follows.
#[inline]
pub(super) fn prefetch(at: &[*mut u8], offset: usize) {
    for at in at {
        // SAFETY: a prefetch accesses no memory architecturally.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(offset + 2 * LINE).cast()) };
    }
}

/// Encrypts the blocks `offset` bytes after the positions of the packets of `N` registers. `chain`
/// holds the blocks before them, and then the encrypted ones: in registers, as this is inlined into
/// functions that enable the instructions.
///
/// # Safety
/// The blocks are valid memory, and the processor has AVX-512 and VAES.
#[inline(always)]
pub(super) unsafe fn encrypt<const N: usize, const K: usize>(
    keys: &[[__m512i; K]],
    at: &[*mut u8; BATCH],
    offset: usize,
    chain: &mut [__m512i; N],
) {
    let [first, inner @ .., last] = keys else { return };
    // SAFETY: the caller guarantees it; likewise below.
    let clear = unsafe { gather::<N>(at, offset) };
    for n in 0..N {
        let key = first[n % K];
        // SAFETY: as above.
        chain[n] = unsafe { _mm512_ternarylogic_epi32::<XOR3>(clear[n], key, chain[n]) };
    }
    for keys in inner {
        for n in 0..N {
            // SAFETY: as above.
            chain[n] = unsafe { _mm512_aesenc_epi128(chain[n], keys[n % K]) };
        }
    }
    for n in 0..N {
        // SAFETY: as above.
        chain[n] = unsafe { _mm512_aesenclast_epi128(chain[n], last[n % K]) };
    }
    // SAFETY: as above.
    unsafe { scatter(chain, at, offset) };
}

/// Decrypts a packet's blocks, which follow their IV, in place.
#[avx512]
#[target_feature(enable = "vaes")]
pub(super) fn decrypt(keys: &AesKeys, text: &mut [u8]) {
    /// Registers processed at a time.
    const STEP: usize = 4;
    const BYTES: usize = 64;
    let mut wide = [[_mm512_setzero_si512()]; MOST_KEYS];
    let keys = broadcast(&keys.decrypt, keys.rounds, &mut wide);
    let mut end = text.len() / BLOCK * BLOCK;
    // From the end, as each block is needed to decrypt the next one.
    while end >= BLOCK + STEP * BYTES {
        let start = end - STEP * BYTES;
        let at = text[start - BLOCK..end].as_mut_ptr();
        // SAFETY: from `at` on there is a block, and registers after it.
        unsafe { decrypt_at::<STEP>(keys, at, u8::MAX) };
        end = start;
    }
    while end > BLOCK {
        let start = end.saturating_sub(BYTES).max(BLOCK);
        let at = text[start - BLOCK..end].as_mut_ptr();
        let words = (end - start) / 8;
        // SAFETY: from `at` on there is a block, and as many words as the mask has bits.
        unsafe { decrypt_at::<1>(keys, at, u8::MAX >> (8 - words)) };
        end = start;
    }
}

/// Decrypts the words of `mask` of `N` registers that follow a block at `at`.
///
/// # Safety
/// The words are valid memory.
#[avx512]
#[target_feature(enable = "vaes")]
#[inline]
unsafe fn decrypt_at<const N: usize>(keys: &[[__m512i; 1]], at: *mut u8, mask: __mmask8) {
    let [[first], inner @ .., [last]] = keys else { return };
    let fetch = |behind: usize| {
        let at = at.wrapping_add(behind);
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_maskz_loadu_epi64(mask, at.cast()) }
    };
    let mut state = [_mm512_setzero_si512(); N];
    let mut before = [_mm512_setzero_si512(); N];
    for n in 0..N {
        state[n] = _mm512_xor_si512(fetch(BLOCK + n * 64), *first);
        before[n] = fetch(n * 64);
    }
    for [key] in inner {
        for state in &mut state {
            *state = _mm512_aesdec_epi128(*state, *key);
        }
    }
    for n in 0..N {
        let clear = _mm512_xor_si512(_mm512_aesdeclast_epi128(state[n], *last), before[n]);
        let to = at.wrapping_add(BLOCK + n * 64);
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_mask_storeu_epi64(to.cast(), mask, clear) };
    }
}
