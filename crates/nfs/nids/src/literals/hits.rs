//! Places where a literal may occur, as the filters report them.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm512_add_epi64, _mm512_maskz_compress_epi64, _mm512_set1_epi64, _mm512_setr_epi64,
    _mm512_storeu_si512,
};
use std::mem::MaybeUninit;

use super::index::WINDOW;

#[cfg(target_arch = "x86_64")]
use thalweg_cpu::avx512;

/// A place in one of several texts where a literal may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Hit {
    pub(super) text: u32,
    pub(super) at: u32,
}

/// The output of a scan, with room for all places: appending one is a store without a call. Scans
/// own it and return it, so that the count can stay in a register.
pub(super) struct Told<'a> {
    room: &'a mut [MaybeUninit<Hit>],
    count: usize,
}

/// Appends the places that `scan` reports, at most `most`.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no vectors"))]
pub(super) fn tell(
    hits: &mut Vec<Hit>,
    most: usize,
    scan: impl for<'a> FnOnce(Told<'a>) -> Told<'a>,
) {
    // A store may write up to eight places, more than are counted; reserve the slack.
    hits.reserve(most + EIGHT);
    let count = scan(Told { room: hits.spare_capacity_mut(), count: 0 }).count;
    // SAFETY: `scan` wrote `count` hits after the existing ones.
    unsafe { hits.set_len(hits.len() + count) };
}

/// Places that are reported at once.
const EIGHT: usize = 8;

#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no vectors"))]
impl Told<'_> {
    /// Reports those of eight places in a text whose bits are set; the first is at `base`, and
    /// each is `STRIDE` bytes after the previous one.
    #[cfg(target_arch = "x86_64")]
    #[avx512]
    #[inline]
    pub(super) fn tell_of_eight<const STRIDE: i64>(
        &mut self,
        passed: u8,
        text: usize,
        base: usize,
    ) {
        let Some(room) = self.room[self.count..].first_chunk_mut::<EIGHT>() else { return };
        let at = STRIDE << 32;
        let steps = _mm512_setr_epi64(0, at, 2 * at, 3 * at, 4 * at, 5 * at, 6 * at, 7 * at);
        let first = Hit { text: text as u32, at: base as u32 };
        let all = _mm512_add_epi64(_mm512_set1_epi64(first.as_number()), steps);
        let those = _mm512_maskz_compress_epi64(passed, all);
        // SAFETY: there is room for eight.
        unsafe { _mm512_storeu_si512(room.as_mut_ptr().cast(), those) };
        self.count += passed.count_ones() as usize;
    }

    /// Reports the places from `base` on in a text whose bits are set.
    #[inline]
    pub(super) fn tell(&mut self, mut passed: u64, text: usize, base: usize) {
        while passed != 0 {
            self.room[self.count].write(Hit::first(passed, text, base));
            self.count += 1;
            passed &= passed - 1;
        }
    }

    /// The same for places that occur often, which defeats branch prediction: always writes two,
    /// and counts those that exist.
    #[inline]
    pub(super) fn tell_often(&mut self, passed: u64, text: usize, base: usize) {
        self.tell_often_but(passed, text, base, |many| many);
    }

    /// The same; of more than two places, those that `left` leaves.
    #[inline]
    pub(super) fn tell_often_but(
        &mut self,
        passed: u64,
        text: usize,
        base: usize,
        left: impl FnOnce(u64) -> u64,
    ) {
        let second = passed & passed.wrapping_sub(1);
        if let Some([one, other]) = self.room[self.count..].first_chunk_mut() {
            one.write(Hit::first(passed, text, base));
            other.write(Hit::first(second, text, base));
            let count = passed.count_ones() as usize;
            if count <= 2 {
                self.count += count;
            } else {
                self.tell(left(passed), text, base);
            }
        }
    }
}

/// Turns places in a text that consists of `texts`, in order, into places in each of those.
pub(super) fn divide(hits: &mut [Hit], texts: &[&[u8]]) {
    let (mut text, mut begin, mut end) = (0, 0, texts.first().map_or(0, |text| text.len()));
    for hit in hits {
        let at = hit.at as usize;
        while at >= end {
            text += 1;
            (begin, end) = (end, end + texts[text].len());
        }
        *hit = Hit { text: text as u32, at: (at - begin) as u32 };
    }
}

impl Hit {
    /// Whether its window overlaps that of `before`, an earlier one, or follows it at once.
    #[inline]
    pub(super) fn adjoins(self, before: Self) -> bool {
        let steps = self.at.wrapping_sub(before.at);
        self.text == before.text && steps <= WINDOW as u32
    }

    /// The places from `base` on in a text whose bits are set.
    pub(super) fn each(passed: u64, text: usize, base: usize) -> impl Iterator<Item = Self> {
        let places = (0..u64::BITS as usize).filter(move |place| passed >> place & 1 == 1);
        places.map(move |place| Self { text: text as u32, at: (base + place) as u32 })
    }

    /// The hit as one number with the text in its lower half.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn as_number(self) -> i64 {
        i64::from(self.text) | i64::from(self.at) << 32
    }

    /// The hit of the lowest set bit; meaningless if no bit is set.
    #[inline]
    fn first(passed: u64, text: usize, base: usize) -> Self {
        let at = base + passed.trailing_zeros() as usize;
        Self { text: text as u32, at: at as u32 }
    }
}
