//! Each fourth place of a text, or each second one, looked up in a bitmap of what stands in
//! literals.
//!
//! As many windows of a literal that lie side by side are in the bitmap, so that one of them is
//! met wherever the literal stands.

#![allow(unsafe_code)]

use std::ops::RangeInclusive;

use super::Hit;
use super::bitmap::{Bitmap, hash};
use super::index::{Place, WINDOW};
use thalweg_packet::Isa;

/// Of the bitmap's size: at most 32 KiB, which stay in the first-level cache, and less for few
/// windows.
const BITS: RangeInclusive<u32> = 10..=13;

/// The filter.
pub(super) struct Windows {
    bitmap: Bitmap,
    /// Bytes from one place that is looked up to the next, and windows of a literal.
    stride: usize,
    isa: Isa,
}

impl Windows {
    /// The strides that there are.
    pub(super) const SPARSE: usize = WINDOW;
    pub(super) const DENSE: usize = WINDOW / 2;

    /// The fewest bytes of a literal: all windows.
    pub(super) const fn least(stride: usize) -> usize {
        WINDOW + stride - 1
    }

    /// `None` without literals.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place], stride: usize) -> Option<Self> {
        assert!(matches!(stride, Self::SPARSE | Self::DENSE));
        if places.is_empty() {
            return None;
        }
        // Half a window to a word.
        let bits = (2 * stride * places.len()).next_power_of_two().ilog2();
        let mut bitmap = Bitmap::new(bits.clamp(*BITS.start(), *BITS.end()));
        for place in places.iter().flat_map(|p| p.side_by_side(stride)) {
            if let Some(window) = place.bytes(literals).first_chunk() {
                bitmap.add(hash(*window));
            }
        }
        Some(Self { bitmap, stride, isa: Isa::active() })
    }

    /// Appends each place of each of the `texts` that may be a window.
    pub(super) fn scan(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        match (self.isa, self.stride) {
            // SAFETY: the CPU has the instructions of the level that is in use.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Self::SPARSE) => unsafe { avx512::scan(&self.bitmap, texts, hits) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Self::SPARSE) => unsafe {
                avx2::scan::<{ Self::SPARSE }>(&self.bitmap, texts, hits);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2 | Isa::Avx512, _) => unsafe {
                avx2::scan::<{ Self::DENSE }>(&self.bitmap, texts, hits);
            },
            _ => self.scan_scalar(texts, hits),
        }
    }

    /// The reference of [`scan`](Self::scan).
    pub(super) fn scan_scalar(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            for (at, window) in text.windows(WINDOW).enumerate().step_by(self.stride) {
                let window = window.first_chunk().expect("it has so many bytes");
                if self.bitmap.may_hold(hash(*window)) {
                    hits.push(Hit { text: n as u32, at: at as u32 });
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use super::super::index::MULTIPLIER;
    use super::super::tell_often;
    use super::{Bitmap, Hit, WINDOW};

    /// Bytes of text that are looked up at once.
    const SPAN: usize = 64;

    /// Sixteen places at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,popcnt")]
    pub(super) fn scan(bitmap: &Bitmap, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            let (spans, rest) = text.as_chunks::<SPAN>();
            for (span, base) in spans.iter().zip((0..).step_by(SPAN)) {
                // SAFETY: so many bytes are there.
                let bytes = unsafe { _mm512_loadu_si512(span.as_ptr().cast()) };
                tell_windows(passes(bitmap, bytes), n, base, hits);
            }
            // A window that the text ends in is none.
            let whole = (1u16 << (rest.len() / WINDOW)) - 1;
            if whole != 0 {
                // SAFETY: only windows that are whole are read.
                let bytes = unsafe { _mm512_maskz_loadu_epi32(whole, rest.as_ptr().cast()) };
                tell_windows(passes(bitmap, bytes) & whole, n, text.len() - rest.len(), hits);
            }
        }
    }

    /// Appends the windows from `base` on whose bits are set.
    #[target_feature(enable = "bmi1,bmi2,popcnt")]
    #[inline]
    fn tell_windows(passed: u16, text: usize, base: usize, hits: &mut Vec<Hit>) {
        const { assert!(WINDOW == 4) };
        tell_often(_pdep_u64(passed.into(), 0x1111_1111_1111_1111), text, base, hits);
    }

    /// Which of sixteen windows, one behind the other, may be in the bitmap.
    #[target_feature(enable = "avx512f,avx2")]
    #[inline]
    fn passes(bitmap: &Bitmap, windows: __m512i) -> u16 {
        let folded = _mm512_or_si512(windows, _mm512_set1_epi8(0x20));
        let hash = _mm512_mullo_epi32(folded, _mm512_set1_epi32(MULTIPLIER as i32));
        let place = _mm512_srl_epi32(hash, _mm_cvtsi32_si128(bitmap.shift() as i32));
        // Two halves are gathered faster than the whole.
        let words = bitmap.words().as_ptr();
        // SAFETY: a shifted hash numbers one of the words.
        let half = |places| unsafe { _mm256_i32gather_epi32::<4>(words.cast(), places) };
        let low = half(_mm512_castsi512_si256(place));
        let high = half(_mm512_extracti64x4_epi64::<1>(place));
        let word = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        let one = _mm512_set1_epi32(1);
        // Rotations take the count's lowest five bits, and no more.
        let first = _mm512_rolv_epi32(one, _mm512_srli_epi32::<14>(hash));
        let second = _mm512_rolv_epi32(one, _mm512_srli_epi32::<9>(hash));
        let missing = _mm512_andnot_si512(word, _mm512_or_si512(first, second));
        _mm512_testn_epi32_mask(missing, missing)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use super::super::index::MULTIPLIER;
    use super::super::tell_often;
    use super::{Bitmap, Hit, WINDOW};

    /// Windows that are looked up at once, and the bytes that they fill.
    const WINDOWS: usize = 8;
    const SPAN: usize = WINDOWS * WINDOW;
    /// Bytes that the windows from each place of the first one on fill.
    const NEEDED: usize = SPAN + WINDOW;

    /// Eight places at a time.
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    pub(super) fn scan<const STRIDE: usize>(bitmap: &Bitmap, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            let mut base = 0;
            while let Some(bytes) = text[base..].first_chunk() {
                let passed = passes::<STRIDE>(bitmap, bytes);
                tell_often(passed.into(), n, base, hits);
                base += SPAN;
            }
            for base in (base..text.len()).step_by(SPAN) {
                let passed = passes_at_end::<STRIDE>(bitmap, &text[base..]);
                tell_often(passed.into(), n, base, hits);
            }
        }
    }

    /// Which windows may be in the bitmap: the bit of each one's first byte.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn passes<const STRIDE: usize>(bitmap: &Bitmap, bytes: &[u8; NEEDED]) -> u32 {
        let mut passed = 0;
        for from in (0..WINDOW).step_by(STRIDE) {
            // SAFETY: from each place in a window on there are as many bytes as in a register.
            let windows = unsafe { _mm256_loadu_si256(bytes.as_ptr().wrapping_add(from).cast()) };
            passed |= side_by_side(bitmap, windows) << from;
        }
        passed
    }

    /// The same for the last bytes of a text.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn passes_at_end<const STRIDE: usize>(bitmap: &Bitmap, bytes: &[u8]) -> u32 {
        let mut passed = 0;
        for from in (0..WINDOW).step_by(STRIDE) {
            let bytes = bytes.get(from..).unwrap_or_default();
            // A window that the text ends in is none.
            let whole = _mm256_set1_epi32((bytes.len() / WINDOW).min(WINDOWS) as i32);
            let there = _mm256_cmpgt_epi32(whole, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            // SAFETY: only windows that are whole are read.
            let windows = unsafe { _mm256_maskload_epi32(bytes.as_ptr().cast(), there) };
            let there = _mm256_movemask_epi8(there) as u32;
            passed |= (side_by_side(bitmap, windows) & there) << from;
        }
        passed
    }

    /// Which of eight windows, one behind the other, may be in the bitmap.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn side_by_side(bitmap: &Bitmap, windows: __m256i) -> u32 {
        let folded = _mm256_or_si256(windows, _mm256_set1_epi8(0x20));
        let hash = _mm256_mullo_epi32(folded, _mm256_set1_epi32(MULTIPLIER as i32));
        let place = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(bitmap.shift() as i32));
        let word = look_up(bitmap, place);
        // The lowest five bits of a count say which bit. Shifted to the top, it is the sign.
        let bit = |count: __m256i| {
            let left = _mm256_andnot_si256(count, _mm256_set1_epi32(31));
            _mm256_sllv_epi32(word, left)
        };
        let both =
            _mm256_and_si256(bit(_mm256_srli_epi32::<14>(hash)), bit(_mm256_srli_epi32::<9>(hash)));
        _mm256_movemask_epi8(_mm256_srai_epi32::<31>(both)) as u32 & 0x1111_1111
    }

    /// The words at eight places, which are shifted hashes. Processors that have AVX2 and no more
    /// load them one by one in less time than their gathers take.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn look_up(bitmap: &Bitmap, places: __m256i) -> __m256i {
        let low = four(bitmap, _mm256_castsi256_si128(places));
        let high = four(bitmap, _mm256_extracti128_si256::<1>(places));
        _mm256_set_m128i(high, low)
    }

    /// The words at four places.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn four(bitmap: &Bitmap, places: __m128i) -> __m128i {
        // SAFETY: a shifted hash numbers one of the words.
        let word = |place: u32| unsafe { *bitmap.words().get_unchecked(place as usize) as i32 };
        // Numbers leave a register one a cycle: so two of them at a time.
        let (low, high) = (_mm_cvtsi128_si64(places) as u64, _mm_extract_epi64::<1>(places) as u64);
        _mm_setr_epi32(
            word(low as u32),
            word((low >> 32) as u32),
            word(high as u32),
            word((high >> 32) as u32),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nids::literals::index::places;

    proptest! {
        #[test]
        fn vectors_let_pass_what_the_reference_does(
            literals in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 7..14), 1..60),
            text in proptest::collection::vec(any::<u8>(), 0..200),
            stand in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut text = text;
            text.extend(stand.iter().flat_map(|i| &literals[i.index(literals.len())]));
            for stride in [Windows::SPARSE, Windows::DENSE] {
                let places = places(&literals, 0..literals.len() as u32, stride);
                let windows = Windows::new(&literals, &places, stride).unwrap();
                let (mut fast, mut slow) = (Vec::new(), Vec::new());
                let texts = [&text[..], &text[text.len() / 2..], &[]];
                windows.scan(&texts, &mut fast);
                windows.scan_scalar(&texts, &mut slow);
                prop_assert_eq!(fast, slow);
            }
        }
    }
}
