//! Each fourth place of a text, looked up in a bitmap of what stands in literals.
//!
//! Four windows of a literal that lie side by side are in the bitmap, so that one of them is
//! met wherever the literal stands.

#![allow(unsafe_code)]

use super::Hit;
use super::bitmap::{Bitmap, hash};
use super::index::{Place, WINDOW};

/// Of the bitmap's size: 32 KiB, which stay in the first-level cache.
const BITS: u32 = 13;
/// Bytes from one place that is looked up to the next, and windows of a literal.
pub(super) const STRIDE: usize = 4;

/// The filter.
pub(super) struct Windows {
    bitmap: Bitmap<BITS>,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    fast: bool,
}

impl Windows {
    /// The fewest bytes of a literal: all windows.
    pub(super) const LEAST: usize = WINDOW + STRIDE - 1;

    /// `None` without literals.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place]) -> Option<Self> {
        if places.is_empty() {
            return None;
        }
        let mut bitmap = Bitmap::new();
        for place in places.iter().flat_map(|p| p.side_by_side()) {
            if let Some(window) = place.bytes(literals).first_chunk() {
                bitmap.add(hash(*window));
            }
        }
        Some(Self { bitmap, fast: is_fast() })
    }

    /// Appends each place of each of the `texts` that may be a window.
    pub(super) fn scan(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            // SAFETY: `is_fast` saw that the CPU has the instructions.
            unsafe { x86::scan(&self.bitmap, texts, hits) };
            return;
        }
        self.scan_scalar(texts, hits);
    }

    /// The reference of [`scan`](Self::scan).
    pub(super) fn scan_scalar(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            let (windows, _) = text.as_chunks::<STRIDE>();
            for (at, window) in windows.iter().enumerate() {
                if self.bitmap.may_hold(hash(*window)) {
                    hits.push(Hit { text: n as u32, at: (STRIDE * at) as u32 });
                }
            }
        }
    }
}

/// Whether this CPU looks sixteen places up at a time, and may.
fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use thalweg_packet::Isa;
        Isa::active() == Isa::Avx512
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use super::super::index::MULTIPLIER;
    use super::{BITS, Bitmap, Hit, STRIDE};

    /// Bytes of text that are looked up at once.
    const SPAN: usize = 64;

    #[target_feature(enable = "avx512f,avx512bw,avx2")]
    pub(super) fn scan(bitmap: &Bitmap<BITS>, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        let case = _mm512_set1_epi8(0x20);
        let multiplier = _mm512_set1_epi32(MULTIPLIER as i32);
        for (n, text) in texts.iter().enumerate() {
            for base in (0..text.len()).step_by(SPAN) {
                let rest = &text[base..];
                let there = if rest.len() >= SPAN { u64::MAX } else { (1 << rest.len()) - 1 };
                // SAFETY: only bytes of `rest` are read.
                let bytes = unsafe { _mm512_maskz_loadu_epi8(there, rest.as_ptr().cast()) };
                let hash = _mm512_mullo_epi32(_mm512_or_si512(bytes, case), multiplier);
                // A window that the text ends in is none.
                let whole = (1u32 << (rest.len().min(SPAN) / STRIDE)) - 1;
                let mut passed = u32::from(passes(bitmap, hash)) & whole;
                while passed != 0 {
                    let at = base + STRIDE * passed.trailing_zeros() as usize;
                    hits.push(Hit { text: n as u32, at: at as u32 });
                    passed &= passed - 1;
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx2")]
    fn passes(bitmap: &Bitmap<BITS>, hash: __m512i) -> u16 {
        let place = _mm512_srli_epi32::<{ 32 - BITS }>(hash);
        // Two halves are gathered faster than the whole.
        let words = bitmap.words().as_ptr();
        // SAFETY: a place has BITS bits, and there are as many words.
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
            let places = places(&literals, 0..literals.len() as u32);
            let windows = Windows::new(&literals, &places).unwrap();
            let (mut fast, mut slow) = (Vec::new(), Vec::new());
            let texts = [&text[..], &text[text.len() / 2..], &[]];
            windows.scan(&texts, &mut fast);
            windows.scan_scalar(&texts, &mut slow);
            prop_assert_eq!(fast, slow);
        }
    }
}
