//! Decides the places of dense blocks, of which many pass the first filter.
//!
//! Texts that repeat a few bytes can pass the hashes of the [first filter](super::pairs) at every
//! place, and each would cost a comparison. Four other hashes of pairs, of the bytes in lower case, must
//! agree on a bucket as well. Of a run of one byte, only the first place is reported.
#![allow(unsafe_code)]

use super::affine::PairHash;
use super::hits::Hit;
#[cfg(target_arch = "x86_64")]
use super::hits::tell;
use super::index::WINDOW;

/// Places of a block, a bit each.
pub(super) const PLACES: usize = 64;

/// In most traffic, fewer places of a block pass.
const DENSE: u32 = 8;

/// At least as many places of a run pass.
const RUN: u32 = 16;

/// Other hashes than those of the first filter.
static HASHES: [PairHash; 2] = [
    PairHash::new([
        [0x5b, 0xe6, 0x76, 0xaa, 0x96, 0xd1, 0xe8, 0x85],
        [0xb8, 0xc9, 0xe2, 0x99, 0x64, 0xc4, 0x54, 0xb9],
    ]),
    PairHash::new([
        [0x2f, 0x91, 0x38, 0x0b, 0x67, 0xf1, 0x85, 0x29],
        [0x99, 0xa6, 0x95, 0x72, 0x9b, 0xf0, 0x85, 0xbc],
    ]),
];

/// The pairs that are looked up: the number of the hash, and the offset of the pair. Both hashes of the
/// first pair almost determine it.
const PAIRS: [(usize, usize); 4] = [(0, 0), (1, 0), (0, 1), (1, 2)];

/// A block of a text: those of its places that passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    text: u32,
    base: u32,
    passed: u64,
}

/// The dense blocks of some texts.
pub(super) struct Blocks<'a> {
    room: &'a mut [Block],
    count: usize,
}

impl<'a> Blocks<'a> {
    /// Room for the blocks of `texts` texts that have `places` places in all.
    pub(super) fn new(room: &'a mut Vec<Block>, places: usize, texts: usize) -> Self {
        let most = places / PLACES + texts;
        if room.len() < most {
            room.resize(most, Block::default());
        }
        Self { room, count: 0 }
    }

    /// Keeps the places of a block if they are many; returns them if they are few.
    #[inline]
    pub(super) fn divert(&mut self, passed: u64, text: usize, base: usize) -> u64 {
        if passed.count_ones() <= DENSE {
            return passed;
        }
        self.room[self.count] = Block { text: text as u32, base: base as u32, passed };
        self.count += 1;
        0
    }

    pub(super) fn all(&self) -> &[Block] {
        &self.room[..self.count]
    }

    /// Blocks of a text that consists of `texts`, in order, as blocks of each of those: a run that is
    /// reported as a whole must not reach from one into the next.
    pub(super) fn divided(self, texts: &[&[u8]]) -> &'a [Block] {
        let Self { room, count } = self;
        let (mut texts, mut begin, mut made) = (texts.iter().zip(0u32..).peekable(), 0, count);
        for n in 0..count {
            let Block { base, passed, .. } = room[n];
            let base = base as usize;
            while let Some((text, number)) = texts.peek() {
                let end = begin + text.len();
                let (from, to) = (begin.max(base), end.min(base + PLACES));
                if from < to {
                    let of_text = passed >> (from - base) & (u64::MAX >> (PLACES - (to - from)));
                    let at = (from - begin) as u32;
                    room[made] = Block { text: *number, base: at, passed: of_text };
                    made += 1;
                }
                if end > base + PLACES {
                    break;
                }
                begin = end;
                texts.next();
            }
        }
        &room[count..made]
    }
}

/// For each of the [`PAIRS`] and each hash, the buckets; aligned to cache lines.
#[repr(C, align(64))]
struct Tables([[u8; 256]; PAIRS.len()]);

/// The filter.
pub(super) struct Dense(Box<Tables>);

impl Default for Dense {
    fn default() -> Self {
        Self(Box::new(Tables([[0; 256]; PAIRS.len()])))
    }
}

impl Dense {
    /// Adds a literal to a bucket, from its place on.
    pub(super) fn add(&mut self, bucket: u8, bytes: &[u8]) {
        for ((number, at), table) in PAIRS.into_iter().zip(&mut self.0.0) {
            match bytes.get(at..at + 2).map(<[u8]>::to_ascii_lowercase).as_deref() {
                Some(&[first, second]) => {
                    table[HASHES[number].of([first, second])] |= bucket;
                }
                _ => table.iter_mut().for_each(|buckets| *buckets |= bucket),
            }
        }
    }

    /// Appends those places of the `blocks` where a literal may occur.
    ///
    /// # Safety
    /// The CPU must have the instructions that [`is_fast`](super::pairs::is_fast) checks.
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn scan(&self, texts: &[&[u8]], blocks: &[Block], hits: &mut Vec<Hit>) {
        if !blocks.is_empty() {
            let places = blocks.len() * PLACES;
            // SAFETY: the caller checked the instructions.
            tell(hits, places, |told| unsafe { x86::scan(&self.0, texts, blocks, told) });
        }
    }

    /// The reference of [`scan`](Self::scan).
    pub(super) fn scan_scalar(&self, texts: &[&[u8]], blocks: &[Block], hits: &mut Vec<Hit>) {
        for &Block { text: number, base, passed } in blocks {
            let (number, base) = (number as usize, base as usize);
            let text = texts[number];
            let bit = |place: usize| u64::from(self.pass(text, base + place)) << place;
            let also = (0..PLACES).map(bit).fold(0, |all, bit| all | bit);
            let left = thin(passed & also, || in_runs(text, base));
            hits.extend(Hit::each(left, number, base));
        }
    }

    /// Whether a literal may occur at a place.
    fn pass(&self, text: &[u8], at: usize) -> bool {
        let byte = |at: usize| text.get(at).copied().unwrap_or(0).to_ascii_lowercase();
        let each = PAIRS.into_iter().zip(&self.0.0);
        let buckets = each.fold(u8::MAX, |left, ((number, pair), table)| {
            left & table[HASHES[number].of([byte(at + pair), byte(at + pair + 1)])]
        });
        buckets != 0
    }
}

/// Of the places of a block that have `passed`, those of a run only at its first: a run is searched as
/// a whole. `in_runs` returns the places in whose window each byte is the one before the place.
#[inline]
fn thin(passed: u64, in_runs: impl FnOnce() -> u64) -> u64 {
    let again = passed & passed << 1;
    if again.count_ones() < RUN { passed } else { passed & !(again & in_runs()) }
}

/// Of the places from `base` on, those in whose window each byte is the one before the place.
fn in_runs(text: &[u8], base: usize) -> u64 {
    let is_like_before = |at: usize| at > 0 && at < text.len() && text[at] == text[at - 1];
    let is_in_run = |at: usize| (at..at + WINDOW).all(is_like_before);
    (0..PLACES).map(|n| u64::from(is_in_run(base + n)) << n).fold(0, |all, bit| all | bit)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use thalweg_cpu::avx512;

    use super::super::affine::x86::{Matrices, Table};
    use super::super::hits::Told;
    use super::{Block, HASHES, PAIRS, PLACES, Tables, WINDOW, thin};

    /// Reports the places of the blocks that pass.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    pub(super) fn scan<'a>(
        tables: &Tables,
        texts: &[&[u8]],
        blocks: &[Block],
        mut told: Told<'a>,
    ) -> Told<'a> {
        let tables = [0, 1, 2, 3].map(|n: usize| Table::load(&tables.0[n]));
        for &Block { text: number, base, passed } in blocks {
            let (number, base) = (number as usize, base as usize);
            let text = texts[number];
            let passed = passed & passes(&tables, text, base);
            told.tell(thin(passed, || in_runs(text, base)), number, base);
        }
        told
    }

    /// The places of a block that pass. Past the end of the text, there are zeros.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline]
    fn passes(tables: &[Table; PAIRS.len()], text: &[u8], base: usize) -> u64 {
        let bytes = [0, 1, 2, 3].map(|behind: usize| lower(load(text, base + behind)));
        let look_up = |n: usize| {
            let (number, at) = PAIRS[n];
            tables[n].look_up(Matrices::load(&HASHES[number]).hash(bytes[at], bytes[at + 1]))
        };
        let near = _mm512_and_si512(look_up(0), look_up(1));
        _mm512_test_epi8_mask(near, _mm512_and_si512(look_up(2), look_up(3)))
    }

    /// 64 bytes of a text, zeros past its end.
    #[avx512]
    #[inline]
    fn load(text: &[u8], from: usize) -> __m512i {
        let there = _bzhi_u64(u64::MAX, text.len().saturating_sub(from).min(PLACES) as u32);
        // SAFETY: the mask limits the load to bytes of the text.
        unsafe { _mm512_maskz_loadu_epi8(there, text.as_ptr().wrapping_add(from).cast()) }
    }

    #[avx512]
    #[inline]
    fn lower(bytes: __m512i) -> __m512i {
        let from_a = _mm512_sub_epi8(bytes, _mm512_set1_epi8(b'A' as i8));
        let is_upper = _mm512_cmple_epu8_mask(from_a, _mm512_set1_epi8((b'Z' - b'A') as i8));
        _mm512_mask_add_epi8(bytes, is_upper, bytes, _mm512_set1_epi8(0x20))
    }

    /// As [`in_runs`](super::in_runs).
    #[avx512]
    #[inline]
    fn in_runs(text: &[u8], base: usize) -> u64 {
        const { assert!(WINDOW == 4) };
        let (now, next) = (like_before(text, base), like_before(text, base + PLACES));
        let behind = |bytes: u32| now >> bytes | next << (PLACES as u32 - bytes);
        now & behind(1) & behind(2) & behind(3)
    }

    /// Which of the bytes from `base` on are like the byte before.
    #[avx512]
    #[inline]
    fn like_before(text: &[u8], base: usize) -> u64 {
        let there = _bzhi_u64(u64::MAX, text.len().saturating_sub(base).min(PLACES) as u32);
        // The first byte of the text has none before it.
        let there = there & (u64::MAX << u32::from(base == 0));
        let before = text.as_ptr().wrapping_add(base).wrapping_sub(1);
        // SAFETY: the mask limits the load to bytes of the text, each of which has one before it.
        let before = unsafe { _mm512_maskz_loadu_epi8(there, before.cast()) };
        _mm512_mask_cmpeq_epi8_mask(there, load(text, base), before)
    }
}
