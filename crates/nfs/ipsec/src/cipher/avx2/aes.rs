//! AES-CBC of many packets side by side, a block of each at a time: eight packets, or sixteen,
//! two to a register, where there is VAES.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m128i, __m256i, _mm_aesdec_si128, _mm_aesdeclast_si128, _mm_aesenc_si128,
    _mm_aesenclast_si128, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_xor_si128,
    _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_extracti128_si256, _mm256_set_m128i,
    _mm256_xor_si256,
};

use thalweg_cpu::avx2;

use super::super::aes_lanes::{AesKeys, BLOCK, MOST_KEYS, load, store};
use super::super::lanes::{Packet, alike};

/// Registers whose blocks are encrypted side by side: each round of one waits for the round
/// before it.
const REGISTERS: usize = 8;
/// The most packets that fill them.
pub(super) const AT_ONCE: usize = 2 * REGISTERS;

/// [`encrypt`] or [`encrypt_vaes`].
pub(super) type Encrypt = unsafe fn(&[Packet<'_>], &mut [u8]);

/// Blocks of one packet or more. Used and inlined only in code that runs with the instructions.
trait Blocks: Copy {
    /// The number of packets.
    const PACKETS: usize;
    /// The first [`PACKETS`](Self::PACKETS) blocks that `of` returns.
    fn from(of: impl Fn(usize) -> __m128i) -> Self;
    fn block(self, packet: usize) -> __m128i;
    fn xor(self, other: Self) -> Self;
    fn round(self, key: Self) -> Self;
    fn last_round(self, key: Self) -> Self;
}

impl Blocks for __m128i {
    const PACKETS: usize = 1;

    #[inline(always)]
    fn from(of: impl Fn(usize) -> __m128i) -> Self {
        of(0)
    }

    #[inline(always)]
    fn block(self, _: usize) -> __m128i {
        self
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: code that uses these runs with AES-NI; likewise below.
        unsafe { _mm_xor_si128(self, other) }
    }

    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_aesenc_si128(self, key) }
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_aesenclast_si128(self, key) }
    }
}

impl Blocks for __m256i {
    const PACKETS: usize = 2;

    #[inline(always)]
    fn from(of: impl Fn(usize) -> __m128i) -> Self {
        // SAFETY: code that uses these runs with AVX2 and VAES; likewise below.
        unsafe { _mm256_set_m128i(of(1), of(0)) }
    }

    #[inline(always)]
    fn block(self, packet: usize) -> __m128i {
        // SAFETY: as above.
        unsafe { half(self, packet) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_aesenc_epi128(self, key) }
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_aesenclast_epi128(self, key) }
    }
}

#[avx2]
#[inline]
fn half(blocks: __m256i, which: usize) -> __m128i {
    match which {
        0 => _mm256_extracti128_si256::<0>(blocks),
        _ => _mm256_extracti128_si256::<1>(blocks),
    }
}

/// Encrypts up to [`AT_ONCE`] packets, whose keys have the same number of rounds, in place, the
/// longest first.
/// Lanes without a packet, or whose packet is done, read and write `idle`.
///
/// # Panics
/// If there are more, or `idle` is shorter than a packet.
///
/// # Safety
/// The packets are valid memory and not shared.
#[avx2]
#[target_feature(enable = "aes")]
pub(super) unsafe fn encrypt(packets: &[Packet<'_>], idle: &mut [u8]) {
    for packets in packets.chunks(REGISTERS) {
        // SAFETY: the caller guarantees it.
        unsafe { encrypt_by::<__m128i>(packets, idle) };
    }
}

/// [`encrypt`] with VAES.
///
/// # Safety
/// As for [`encrypt`].
#[avx2]
#[target_feature(enable = "vaes")]
pub(super) unsafe fn encrypt_vaes(packets: &[Packet<'_>], idle: &mut [u8]) {
    // SAFETY: the caller guarantees it.
    unsafe { encrypt_by::<__m256i>(packets, idle) };
}

/// # Safety
/// As for [`encrypt`].
#[inline(always)]
unsafe fn encrypt_by<B: Blocks>(packets: &[Packet<'_>], idle: &mut [u8]) {
    assert!(packets.len() <= REGISTERS * B::PACKETS);
    let Some(first) = packets.first() else { return };
    assert!(idle.len() >= (first.blocks + 1) * BLOCK);
    let mut at = [idle.as_mut_ptr(); AT_ONCE];
    for (at, packet) in at.iter_mut().zip(packets) {
        *at = packet.iv();
    }
    // SAFETY: there are IVs, as the caller guarantees, or that many bytes of `idle`.
    let first_blocks = unsafe { fetch(&at, 0, 0) };
    let mut chain: [B; REGISTERS] = [first_blocks; REGISTERS];
    for (n, chain) in chain.iter_mut().enumerate().skip(1) {
        // SAFETY: as above.
        *chain = unsafe { fetch(&at, n, 0) };
    }
    let rounds = first.keys.aes.rounds();
    let (same, different): ([[B; 1]; MOST_KEYS], _);
    let keys: Keys<'_, B> = if alike(packets) {
        same = first.keys.aes.encryption().map(|key| [B::from(|_| key)]);
        Keys::Same(&same[..=rounds])
    } else {
        different = lane_keys::<B>(packets);
        Keys::Different(&different[..=rounds])
    };
    let (mut done, mut active) = (0, packets.len());
    while active > 0 {
        let count = packets[active - 1].blocks - done;
        match keys {
            // SAFETY: packets that are not done have that many blocks after their position, as the
            // caller guarantees; `idle` is as long as the longest.
            Keys::Same(keys) => unsafe { run(keys, &at, &mut chain, count) },
            // SAFETY: as above.
            Keys::Different(keys) => unsafe { run(keys, &at, &mut chain, count) },
        }
        done += count;
        for at in &mut at[..active] {
            *at = at.wrapping_add(count * BLOCK);
        }
        while active > 0 && packets[active - 1].blocks == done {
            active -= 1;
            at[active] = idle.as_mut_ptr();
        }
    }
}

/// Expanded keys by round.
#[derive(Clone, Copy)]
enum Keys<'a, B> {
    Same(&'a [[B; 1]]),
    Different(&'a [[B; REGISTERS]]),
}

#[inline(always)]
fn lane_keys<B: Blocks>(packets: &[Packet<'_>]) -> [[B; REGISTERS]; MOST_KEYS] {
    let keys: [_; AT_ONCE] =
        std::array::from_fn(|lane| packets.get(lane).unwrap_or(&packets[0]).keys.aes.encryption());
    let of = |round: usize, n: usize| B::from(|packet| keys[n * B::PACKETS + packet][round]);
    std::array::from_fn(|round| std::array::from_fn(|n| of(round, n)))
}

/// The blocks `offset` bytes after the positions of register `n`.
///
/// # Safety
/// The blocks are valid memory.
#[inline(always)]
unsafe fn fetch<B: Blocks>(at: &[*mut u8; AT_ONCE], n: usize, offset: usize) -> B {
    B::from(|packet| {
        let at = at[n * B::PACKETS + packet].wrapping_add(offset);
        // SAFETY: the caller guarantees it.
        unsafe { _mm_loadu_si128(at.cast()) }
    })
}

/// Encrypts the next `count` blocks of each lane.
///
/// # Safety
/// The blocks are valid memory and not shared.
#[inline(always)]
unsafe fn run<B: Blocks, const K: usize>(
    keys: &[[B; K]],
    at: &[*mut u8; AT_ONCE],
    chain: &mut [B; REGISTERS],
    count: usize,
) {
    let [first, inner @ .., last] = keys else { return };
    let mut state = *chain;
    for offset in (1..=count).map(|block| block * BLOCK) {
        for n in 0..REGISTERS {
            // SAFETY: the caller guarantees it.
            let clear: B = unsafe { fetch(at, n, offset) };
            state[n] = clear.xor(first[n % K]).xor(state[n]);
        }
        for keys in inner {
            for n in 0..REGISTERS {
                state[n] = state[n].round(keys[n % K]);
            }
        }
        for n in 0..REGISTERS {
            state[n] = state[n].last_round(last[n % K]);
            for packet in 0..B::PACKETS {
                let to = at[n * B::PACKETS + packet].wrapping_add(offset);
                // SAFETY: the caller guarantees it.
                unsafe { _mm_storeu_si128(to.cast(), state[n].block(packet)) };
            }
        }
    }
    *chain = state;
}

/// Decrypts a packet's blocks, which follow their IV, in place.
#[avx2]
#[target_feature(enable = "aes")]
pub(in super::super) fn decrypt(keys: &AesKeys, text: &mut [u8]) {
    let (blocks, _) = text.as_chunks_mut::<BLOCK>();
    let (all, rounds) = (keys.decryption(), keys.rounds());
    let keys = &all[..=rounds];
    // From the end, as each block is needed to decrypt the next one.
    let mut end = blocks.len();
    while end > REGISTERS {
        decrypt_last::<REGISTERS>(keys, &mut blocks[..end]);
        end -= REGISTERS;
    }
    while end > 1 {
        decrypt_last::<1>(keys, &mut blocks[..end]);
        end -= 1;
    }
}

/// Decrypts the last `N` of the blocks; at least one more comes before them.
#[avx2]
#[target_feature(enable = "aes")]
#[inline]
fn decrypt_last<const N: usize>(keys: &[__m128i], blocks: &mut [[u8; BLOCK]]) {
    let ([first, inner @ .., last], Some(from)) = (keys, blocks.len().checked_sub(N + 1)) else {
        return;
    };
    let blocks = &mut blocks[from..];
    let mut state = [_mm_setzero_si128(); N];
    for n in 0..N {
        state[n] = _mm_xor_si128(load(&blocks[n + 1]), *first);
    }
    for key in inner {
        for state in &mut state {
            *state = _mm_aesdec_si128(*state, *key);
        }
    }
    for n in (0..N).rev() {
        let clear = _mm_aesdeclast_si128(state[n], *last);
        let before = load(&blocks[n]);
        store(_mm_xor_si128(clear, before), &mut blocks[n + 1]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_cpu::Isa;

    use super::super::super::lanes::Keys;
    use super::*;
    use crate::suite::{Aes, HEADER, Hash, Suite};

    proptest! {
        /// Which of the two is used depends on the processor, not on a level.
        #[test]
        fn one_packet_to_a_register_and_two_give_the_same(
            mut blocks in prop::collection::vec(1..40usize, 1..=AT_ONCE),
            len in prop::sample::select(vec![16, 24, 32]), different in any::<bool>(),
        ) {
            if !Isa::Avx2.is_available() || !std::arch::is_x86_feature_detected!("vaes") {
                return Ok(());
            }
            blocks.sort_unstable_by_key(|blocks| std::cmp::Reverse(*blocks));
            let suite = Suite::Cbc(Aes::Bits128, Hash::Sha1);
            let key = |n: usize| Keys::new(suite, &vec![n as u8 ^ 0x5a; len], &[0; 20]);
            let keys: Vec<Keys> = (0..AT_ONCE).filter_map(key).collect();
            let len = |n: usize| HEADER + (blocks[n] + 1) * BLOCK;
            let clear = |n: usize| (0..len(n)).map(|i| (i * n) as u8).collect();
            let clear: Vec<Vec<u8>> = (0..blocks.len()).map(clear).collect();
            let sealed = [encrypt, encrypt_vaes].map(|encrypt: Encrypt| {
                let (mut buffers, mut idle) = (clear.clone(), vec![0; 41 * BLOCK]);
                let of = |(n, buffer): (usize, &mut Vec<u8>)| Packet {
                    keys: &keys[if different { n } else { 0 }],
                    start: buffer.as_mut_ptr(),
                    blocks: blocks[n],
                    len: buffer.len(),
                };
                let packets: Vec<Packet<'_>> = buffers.iter_mut().enumerate().map(of).collect();
                // SAFETY: the processor has the instructions, and the buffers are long enough.
                unsafe { encrypt(&packets, &mut idle) };
                buffers
            });
            prop_assert_eq!(&sealed[0], &sealed[1]);
            let [_, mut opened] = sealed;
            for (n, packet) in opened.iter_mut().enumerate() {
                // SAFETY: as above.
                unsafe { decrypt(&keys[if different { n } else { 0 }].aes, &mut packet[HEADER..]) };
            }
            prop_assert_eq!(opened, clear);
        }
    }
}
