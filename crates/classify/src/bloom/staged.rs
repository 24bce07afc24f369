//! A block of keys in passes, one for each hash function.
//!
//! A pass has a constant multiplier and seed, so nothing is permuted to find them;
//! the keys that pass are compacted into a buffer in the first-level cache for the
//! next pass, and keep their order. What the paper's form does key by key (which
//! function comes next?) is done once a block.
//!
//! In small filters the words are fetched some vectors after the hash, by broadcasts
//! that are masked to one lane: hashing goes on while they come, and on the
//! processors measured that outruns the gather instruction. In filters beyond the
//! cache each word is prefetched early, fetched later and tested last.
//!
//! A payload is looked up when its key has passed all: most keys never need theirs.
//!
//! `unsafe` here: loads that are not checked against the words' length each time.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m128i, __m512i, _mm_cvtsi32_si128, _mm_mask_set1_epi32, _mm_storeu_si128, _mm512_add_epi32,
    _mm512_rolv_epi32, _mm512_setr_epi32, _mm512_srli_epi32, _mm512_test_epi32_mask,
};

use super::bits::{Bits, Input, Output};
pub(super) use super::lanes512::LANES;
use super::lanes512::{Function, all, append, load, reduce, store};
use thalweg_cpu::{avx512, prefetch};

/// How many vectors the fetch lags behind the hash, when words are not
/// prefetched.
const BEHIND: usize = 8;
/// The same, when each word is prefetched before it is fetched: by how many vectors
/// prefetching, fetching and testing lag behind the hash.
const ASK: usize = 8;
const FETCH: usize = 16;
const TEST: usize = 24;
/// How far ahead the input is prefetched, in keys.
const AHEAD: usize = 1024;

/// Sixteen keys.
type Vector = [u32; LANES];
/// The lanes of four, as masks. Read so that the compiler does not know them: it has
/// other ideas of how to fill known lanes, and they are slower.
static ONE_LANE: [u8; 4] = [1, 2, 4, 8];

/// What is known of a block of `V` vectors of keys.
#[repr(align(64))]
struct Block<const V: usize> {
    keys: [Vector; V],
    /// Where in the block the keys were.
    places: [Vector; V],
    positions: [Vector; V],
    /// First the numbers of the words that the positions lie in, then the words.
    words: [Vector; V],
}

/// The keys that are in the filter, by blocks of `V` vectors; `SHIFT` when its range
/// is a power of two, `FAR` when it is larger than the cache.
#[avx512]
pub(super) fn select<const V: usize, const SHIFT: bool, const FAR: bool>(
    bits: &Bits,
    input: Input,
    output: &mut Output,
) -> usize {
    let mut block = Block::<V> {
        keys: [[0; LANES]; V],
        places: [[0; LANES]; V],
        positions: [[0; LANES]; V],
        words: [[0; LANES]; V],
    };
    let mut found = 0;
    let (keys, payloads) = (input.keys, input.payloads);
    for (keys, payloads) in keys.chunks(V * LANES).zip(payloads.chunks(V * LANES)) {
        let mut left = if keys.len() == V * LANES {
            let (whole, _) = keys.as_chunks();
            block.pass::<true, SHIFT, FAR>(bits, 0, whole, keys.len())
        } else {
            block.take(keys);
            block.pass::<false, SHIFT, FAR>(bits, 0, &[], keys.len())
        };
        for n in 1..bits.hashes().count {
            left = block.pass::<false, SHIFT, FAR>(bits, n, &[], left);
        }
        block.give(left, payloads, output, found);
        found += left;
    }
    found
}

impl<const V: usize> Block<V> {
    /// Takes the keys of a block that is not whole.
    fn take(&mut self, keys: &[u32]) {
        self.keys.as_flattened_mut()[..keys.len()].copy_from_slice(keys);
        for (n, place) in self.places.as_flattened_mut()[..keys.len()].iter_mut().enumerate() {
            *place = n as u32;
        }
    }

    /// Writes the keys that are left and their payloads to `output`, from `at` on.
    #[inline]
    fn give(&self, left: usize, payloads: &[u32], output: &mut Output, at: usize) {
        output.keys[at..at + left].copy_from_slice(&self.keys.as_flattened()[..left]);
        let output = &mut output.payloads[at..at + left];
        if left == payloads.len() {
            output.copy_from_slice(payloads);
            return;
        }
        for (payload, place) in output.iter_mut().zip(self.places.as_flattened()) {
            *payload = payloads[*place as usize];
        }
    }

    /// Function `n` of `count` keys, which are `whole` when this is the `FIRST` pass
    /// over a whole block: keeps those that pass, and returns how many.
    #[inline]
    #[avx512]
    fn pass<const FIRST: bool, const SHIFT: bool, const FAR: bool>(
        &mut self,
        bits: &Bits,
        n: usize,
        whole: &[Vector],
        count: usize,
    ) -> usize {
        let function = Function::new(bits.hashes(), n);
        let vectors = count.div_ceil(LANES);
        // SAFETY: a reference can be read.
        let lanes = unsafe { std::ptr::from_ref(&ONE_LANE).read_volatile() };
        let mut left = 0;
        if FAR {
            for v in 0..vectors + TEST {
                if v < vectors {
                    self.find::<FIRST, SHIFT>(bits, function, whole, v);
                }
                if (ASK..vectors + ASK).contains(&v) {
                    self.ask(bits, v - ASK);
                }
                if (FETCH..vectors + FETCH).contains(&v) {
                    self.fetch(bits, v - FETCH, lanes);
                }
                if v >= TEST {
                    left = self.test::<FIRST>(whole, v - TEST, count, left);
                }
            }
            return left;
        }
        for v in 0..vectors + BEHIND {
            if v < vectors {
                self.find::<FIRST, SHIFT>(bits, function, whole, v);
            }
            if v >= BEHIND {
                self.fetch(bits, v - BEHIND, lanes);
            }
        }
        for v in 0..vectors {
            left = self.test::<FIRST>(whole, v, count, left);
        }
        left
    }

    /// Finds the positions of vector `v`.
    #[inline]
    #[avx512]
    fn find<const FIRST: bool, const SHIFT: bool>(
        &mut self,
        bits: &Bits,
        function: Function,
        whole: &[Vector],
        v: usize,
    ) {
        let keys = if FIRST { &whole[v] } else { &self.keys[v] };
        if FIRST {
            prefetch::ahead(keys, AHEAD);
        }
        let positions = reduce::<SHIFT>(bits.reduction(), function.hash(load(keys)));
        store(&mut self.positions[v], positions);
        store(&mut self.words[v], _mm512_srli_epi32::<5>(positions));
    }

    /// Prefetches the words of vector `v`.
    #[inline]
    fn ask(&mut self, bits: &Bits, v: usize) {
        for word in &self.words[v] {
            prefetch::read(bits.words(), *word as usize);
        }
    }

    /// Fetches the words of vector `v`.
    #[inline]
    #[avx512]
    fn fetch(&mut self, bits: &Bits, v: usize, lanes: [u8; 4]) {
        let (fours, _) = self.words[v].as_chunks_mut::<4>();
        for four in fours {
            let [a, b, c, d] = four.each_ref().map(|number| word(bits, number));
            let words = _mm_mask_set1_epi32(_mm_cvtsi32_si128(a), lanes[1], b);
            let words = _mm_mask_set1_epi32(words, lanes[2], c);
            store4(four, _mm_mask_set1_epi32(words, lanes[3], d));
        }
    }

    /// Tests the bits of vector `v` and appends the keys that pass to the `left`
    /// before; `count` is how many keys all vectors have.
    #[inline]
    #[avx512]
    fn test<const FIRST: bool>(
        &mut self,
        whole: &[Vector],
        v: usize,
        count: usize,
        left: usize,
    ) -> usize {
        let bit = _mm512_rolv_epi32(all(1), load(&self.positions[v]));
        let set = _mm512_test_epi32_mask(load(&self.words[v]), bit);
        let there = (count - v * LANES).min(LANES);
        let passed = set & (u16::MAX >> (LANES - there));
        let keys = load(if FIRST { &whole[v] } else { &self.keys[v] });
        let places = if FIRST {
            _mm512_add_epi32(all((v * LANES) as u32), counting())
        } else {
            load(&self.places[v])
        };
        append(self.keys.as_flattened_mut(), left, passed, keys);
        append(self.places.as_flattened_mut(), left, passed, places);
        left + passed.count_ones() as usize
    }
}

/// 0 to 15.
#[inline]
#[avx512]
fn counting() -> __m512i {
    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
}

/// The word of `number`, one of those that positions lie in.
#[inline]
fn word(bits: &Bits, number: &u32) -> i32 {
    // Volatile, or the compiler emits vector loads and splits them.
    // SAFETY: a reference can be read.
    let number = unsafe { std::ptr::from_ref(number).read_volatile() };
    // SAFETY: positions are less than the range, whose words there are (`Bits`).
    *unsafe { bits.words().get_unchecked(number as usize) } as i32
}

#[inline]
#[target_feature(enable = "sse2")]
fn store4(to: &mut [u32; 4], v: __m128i) {
    // SAFETY: the array has the 16 bytes that are written.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), v) };
}
