//! Keys that lie by themselves, with signatures in the lines.
//!
//! `unsafe` here: keys are found by position without a check against their number
//! each time.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use core::arch::x86_64::{
    _mm_cmpeq_epi16_mask, _mm_set1_epi16, _mm512_and_si512, _mm512_cmpeq_epi64_mask,
    _mm512_loadu_si512, _mm512_lzcnt_epi32, _mm512_or_si512, _mm512_set1_epi32, _mm512_sub_epi32,
    _mm512_test_epi32_mask,
};

use super::vectors::{bytes, is_whole, load, load_signatures, load_words, ones, store};
use super::{GROUPS, LANES, STEP, line};
use crate::cuckoo::search::AllPlaces;
use crate::cuckoo::store::{Form, Store};
use crate::cuckoo::table::Core;
use thalweg_cpu::{avx512, prefetch};

/// Where keys may lie by their signatures.
#[repr(align(64))]
pub(super) struct Candidates {
    /// What is equal to the signature in lines, as bits.
    equal: [u8; STEP],
    /// The lines' buckets, and their states before.
    bucket: [u32; STEP],
    before: [u32; STEP],
    /// The first way that is equal.
    way: [u32; STEP],
    /// For which keys there is one, as bits.
    are_there: u32,
}

impl Candidates {
    pub(super) const fn new() -> Self {
        Self {
            equal: [0; STEP],
            bucket: [0; STEP],
            before: [0; STEP],
            way: [0; STEP],
            are_there: 0,
        }
    }

    /// Finds where keys may lie, and prefetches those places.
    #[inline]
    #[avx512]
    pub(super) fn find<const W: usize>(&mut self, core: &Core<W>, places: &AllPlaces) {
        self.bucket = places.first;
        for n in 0..STEP {
            self.look(core, n, places);
        }
        self.are_there = self.choose(core, u32::MAX);
        // Most of the others lie in their second line.
        let rest = !self.are_there;
        for n in ones(rest) {
            self.bucket[n] = places.second[n];
            self.look(core, n, places);
        }
        if rest != 0 {
            self.are_there |= self.choose(core, rest);
        }
    }

    /// Compares the signature of key `n` with those in its line.
    #[inline]
    #[avx512]
    fn look<const W: usize>(&mut self, core: &Core<W>, n: usize, places: &AllPlaces) {
        let line = line(core, self.bucket[n]);
        self.before[n] = line.state().0;
        let signature = _mm_set1_epi16(places.signature[n] as i16);
        self.equal[n] = _mm_cmpeq_epi16_mask(load_signatures(line), signature);
    }

    /// Chooses the first way that is equal, for all keys, and prefetches it
    /// for `some`; returns for which of these there is one.
    #[inline]
    #[avx512]
    fn choose<const W: usize>(&mut self, core: &Core<W>, some: u32) -> u32 {
        let number = |n: i32| _mm512_set1_epi32(n);
        let mut are_there = 0;
        for from in GROUPS {
            let equal = bytes(&self.equal, from);
            are_there |= u32::from(_mm512_test_epi32_mask(equal, equal)) << from;
            // The lowest bit; the last way if there is none.
            let equal = _mm512_or_si512(equal, number(1 << (Form::<W>::WAYS - 1)));
            let lowest = _mm512_and_si512(equal, _mm512_sub_epi32(number(0), equal));
            let way = _mm512_sub_epi32(number(31), _mm512_lzcnt_epi32(lowest));
            store(&mut self.way, from, way);
        }
        let words = core.store().keys();
        let ask = |n: usize| {
            let at = Store::<W>::key_at(self.bucket[n] as usize, self.way[n] as usize);
            (0..W.div_ceil(8)).for_each(|line| prefetch::near(words, at + 8 * line));
        };
        if some == u32::MAX {
            (0..STEP).for_each(ask);
        } else {
            ones(some).for_each(ask);
        }
        are_there & some
    }

    /// Compares all keys with those in the chosen places, and returns the values there,
    /// and for which keys the places have them.
    #[inline]
    #[avx512]
    pub(super) fn compare<const W: usize>(
        &self,
        core: &Core<W>,
        keys: &[[u64; W]; STEP],
        values: &mut [u32; STEP],
    ) -> u32 {
        let words = core.store().keys();
        let (mut after, mut equal) = ([0; STEP], 0);
        for n in 0..STEP {
            let (bucket, way) = (self.bucket[n], self.way[n] as usize);
            let at = Store::<W>::key_at(bucket as usize, way);
            // SAFETY: `line` has the proof for buckets; ways are those of a bucket, and there
            // are `W` words for each.
            let there = unsafe { words.get_unchecked(at..at + W) };
            equal |= u32::from(is_equal(there, &keys[n])) << n;
            let line = line(core, bucket);
            values[n] = line.half(Form::<W>::VALUES + way);
            after[n] = line.state_after().0;
        }
        let whole = |from| u32::from(is_whole(load(&self.before, from), load(&after, from)));
        self.are_there & equal & (whole(0) | whole(LANES) << LANES)
    }
}

/// Whether `there` are the words of `key`.
#[inline]
#[avx512]
fn is_equal<const W: usize>(there: &[AtomicU64], key: &[u64; W]) -> bool {
    let (lines, words) = key.as_chunks::<8>();
    let (lines_there, words_there) = there.as_chunks::<8>();
    let lines = lines.iter().zip(lines_there).fold(u8::MAX, |equal, (line, there)| {
        // SAFETY: the array has the 64 bytes that are read.
        let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        equal & _mm512_cmpeq_epi64_mask(load_words(there), line)
    });
    let words = words
        .iter()
        .zip(words_there)
        .fold(0, |other, (word, there)| other | word ^ there.load(Ordering::Relaxed));
    lines == u8::MAX && words == 0
}
