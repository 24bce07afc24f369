//! Looks up every eighth, fourth or second place of a text in a bitmap of the literals' windows.
//!
//! The bitmap holds as many adjacent windows of each literal as the stride has bytes, so that one
//! of them is looked up wherever the literal occurs.

#![allow(unsafe_code)]

use std::ops::RangeInclusive;

use super::bitmap::{Bitmap, hash};
use super::hits::Hit;
#[cfg(target_arch = "x86_64")]
use super::hits::{Told, tell};
use super::index::{Place, WINDOW};
use thalweg_cpu::Isa;

/// The logarithm of the bitmap's size: at most 32 KiB, which fits the first-level cache, and less
/// for few windows.
const BITS: RangeInclusive<u32> = 10..=13;

/// Reports the windows of texts that may be in a bitmap.
#[cfg(target_arch = "x86_64")]
type Scan = for<'a> unsafe fn(&Bitmap, &[&[u8]], Told<'a>) -> Told<'a>;

/// The filter.
pub(super) struct Windows {
    bitmap: Bitmap,
    /// Bytes from one looked-up place to the next, and the number of windows per literal.
    stride: usize,
    isa: Isa,
    /// Whether the processor gathers words faster than it loads them one by one.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    gathers: bool,
}

impl Windows {
    /// The supported strides.
    pub(super) const WIDE: usize = 2 * WINDOW;
    pub(super) const SPARSE: usize = WINDOW;
    pub(super) const DENSE: usize = WINDOW / 2;

    /// The minimum length of a literal, which must contain all windows.
    pub(super) const fn least(stride: usize) -> usize {
        WINDOW + stride - 1
    }

    /// `None` without literals.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place], stride: usize) -> Option<Self> {
        assert!(matches!(stride, Self::WIDE | Self::SPARSE | Self::DENSE));
        if places.is_empty() {
            return None;
        }
        // Two words per window.
        let bits = (2 * stride * places.len()).next_power_of_two().ilog2();
        let mut bitmap = Bitmap::new(bits.clamp(*BITS.start(), *BITS.end()));
        for place in places.iter().flat_map(|p| p.side_by_side(stride)) {
            if let Some(window) = place.bytes(literals).first_chunk() {
                bitmap.add(hash(*window));
            }
        }
        Some(Self { bitmap, stride, isa: Isa::active(), gathers: gathers_fast() })
    }

    /// Appends each place in each of the `texts` that may be a window.
    pub(super) fn scan(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        #[cfg(target_arch = "x86_64")]
        {
            let scan: Scan = match (self.isa, self.stride) {
                (Isa::Avx512, Self::WIDE) if self.gathers => avx512::scan_wide::<true>,
                (Isa::Avx512, Self::WIDE) => avx512::scan_wide::<false>,
                (Isa::Avx512, Self::SPARSE) => avx512::scan,
                (Isa::Avx2, Self::SPARSE) => avx2::scan::<{ Self::SPARSE }>,
                (Isa::Avx512 | Isa::Avx2, Self::DENSE) => avx2::scan::<{ Self::DENSE }>,
                _ => return self.scan_scalar(texts, hits),
            };
            let places = texts.iter().map(|text| text.len().div_ceil(self.stride)).sum();
            // SAFETY: the CPU has the instructions of the active level.
            tell(hits, places, |told| unsafe { scan(&self.bitmap, texts, told) });
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.scan_scalar(texts, hits);
    }

    /// The reference of [`scan`](Self::scan).
    pub(super) fn scan_scalar(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            for (at, window) in text.windows(WINDOW).enumerate().step_by(self.stride) {
                let window = window.first_chunk().expect("a window has WINDOW bytes");
                if self.bitmap.may_hold(hash(*window)) {
                    hits.push(Hit { text: n as u32, at: at as u32 });
                }
            }
        }
    }
}

/// AMD's do not: on a Zen 4, a search for 3,000 literals takes 6 % less time with loads.
fn gathers_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() != b"AuthenticAMD"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use thalweg_cpu::avx512;

    use super::super::index::MULTIPLIER;
    use super::avx2::look_up;
    use super::{Bitmap, Told, WINDOW, Windows};

    /// Bytes of text looked up at once.
    const SPAN: usize = 64;

    /// Scans every fourth place, sixteen at a time.
    #[avx512]
    pub(super) fn scan<'a>(bitmap: &Bitmap, texts: &[&[u8]], told: Told<'a>) -> Told<'a> {
        const PLACES: u64 = 0x1111_1111_1111_1111;
        scan_spans(texts, told, |told, windows, whole, n, base| {
            let passed = passes(bitmap, windows) & whole;
            told.tell_often(_pdep_u64(passed.into(), PLACES), n, base);
        })
    }

    /// Scans every eighth place, eight at a time.
    #[avx512]
    pub(super) fn scan_wide<'a, const GATHER: bool>(
        bitmap: &Bitmap,
        texts: &[&[u8]],
        told: Told<'a>,
    ) -> Told<'a> {
        const STRIDE: i64 = Windows::WIDE as i64;
        scan_spans(texts, told, |told, windows, whole, n, base| {
            let whole = _pext_u32(whole.into(), 0x5555) as u8;
            let passed = half_passes::<GATHER>(bitmap, each_second(windows)) & whole;
            told.tell_of_eight::<STRIDE>(passed, n, base);
        })
    }

    /// Calls `scan` with the windows at every fourth place of each span of the texts, which of them
    /// are complete, the text's number, and the span's place in it.
    #[avx512]
    #[inline]
    fn scan_spans<'a>(
        texts: &[&[u8]],
        mut told: Told<'a>,
        scan: impl Fn(&mut Told<'a>, __m512i, u16, usize, usize),
    ) -> Told<'a> {
        const { assert!(WINDOW == 4) };
        for (n, text) in texts.iter().enumerate() {
            let (spans, rest) = text.as_chunks();
            for (span, base) in spans.iter().zip((0..).step_by(SPAN)) {
                scan(&mut told, load(span), u16::MAX, n, base);
            }
            let (windows, whole) = load_rest(rest);
            if whole != 0 {
                scan(&mut told, windows, whole, n, text.len() - rest.len());
            }
        }
        told
    }

    #[avx512]
    #[inline]
    fn load(span: &[u8; SPAN]) -> __m512i {
        // SAFETY: `span` has as many bytes as the load reads.
        unsafe { _mm512_loadu_si512(span.as_ptr().cast()) }
    }

    /// The windows at every fourth place of less than a span, and which of them are complete.
    #[avx512]
    #[inline]
    fn load_rest(rest: &[u8]) -> (__m512i, u16) {
        let whole = (1u16 << (rest.len() / WINDOW)) - 1;
        // SAFETY: the mask limits the load to complete windows.
        (unsafe { _mm512_maskz_loadu_epi32(whole, rest.as_ptr().cast()) }, whole)
    }

    /// The first, third, fifth and so on of sixteen windows.
    #[avx512]
    #[inline]
    fn each_second(windows: __m512i) -> __m256i {
        _mm512_cvtepi64_epi32(windows)
    }

    /// Which of eight windows may be in the bitmap.
    #[avx512]
    #[inline]
    fn half_passes<const GATHER: bool>(bitmap: &Bitmap, windows: __m256i) -> u8 {
        let folded = _mm256_or_si256(windows, _mm256_set1_epi8(0x20));
        let hash = _mm256_mullo_epi32(folded, _mm256_set1_epi32(MULTIPLIER as i32));
        let place = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(bitmap.shift() as i32));
        let word = if GATHER {
            // SAFETY: a shifted hash is the index of a word.
            unsafe { _mm256_i32gather_epi32::<4>(bitmap.words().as_ptr().cast(), place) }
        } else {
            look_up(bitmap, place)
        };
        let one = _mm256_set1_epi32(1);
        // Rotations use only the lowest five bits of the count.
        let first = _mm256_rolv_epi32(one, _mm256_srli_epi32::<14>(hash));
        let second = _mm256_rolv_epi32(one, _mm256_srli_epi32::<9>(hash));
        let missing = _mm256_andnot_si256(word, _mm256_or_si256(first, second));
        _mm256_testn_epi32_mask(missing, missing)
    }

    /// Which of sixteen consecutive windows may be in the bitmap.
    #[avx512]
    #[inline]
    fn passes(bitmap: &Bitmap, windows: __m512i) -> u16 {
        let folded = _mm512_or_si512(windows, _mm512_set1_epi8(0x20));
        let hash = _mm512_mullo_epi32(folded, _mm512_set1_epi32(MULTIPLIER as i32));
        let place = _mm512_srl_epi32(hash, _mm_cvtsi32_si128(bitmap.shift() as i32));
        // Two gathers of half the words are faster than one of all.
        let words = bitmap.words().as_ptr();
        // SAFETY: a shifted hash is the index of a word.
        let half = |places| unsafe { _mm256_i32gather_epi32::<4>(words.cast(), places) };
        let low = half(_mm512_castsi512_si256(place));
        let high = half(_mm512_extracti64x4_epi64::<1>(place));
        let word = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        let one = _mm512_set1_epi32(1);
        // Rotations use only the lowest five bits of the count.
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

    use thalweg_cpu::avx2;

    use super::super::index::MULTIPLIER;
    use super::{Bitmap, Told, WINDOW};

    /// Windows looked up at once, and the bytes that they occupy.
    const WINDOWS: usize = 8;
    const SPAN: usize = WINDOWS * WINDOW;
    /// Bytes occupied by the windows from any place in the first one on.
    const NEEDED: usize = SPAN + WINDOW;

    /// Scans eight places at a time.
    #[avx2]
    pub(super) fn scan<'a, const STRIDE: usize>(
        bitmap: &Bitmap,
        texts: &[&[u8]],
        mut told: Told<'a>,
    ) -> Told<'a> {
        for (n, text) in texts.iter().enumerate() {
            let mut base = 0;
            while let Some(bytes) = text[base..].first_chunk() {
                let passed = passes::<STRIDE>(bitmap, bytes);
                told.tell_often(passed.into(), n, base);
                base += SPAN;
            }
            for base in (base..text.len()).step_by(SPAN) {
                let passed = passes_at_end::<STRIDE>(bitmap, &text[base..]);
                told.tell_often(passed.into(), n, base);
            }
        }
        told
    }

    /// Which windows may be in the bitmap, as the bits of their first bytes.
    #[avx2]
    #[inline]
    fn passes<const STRIDE: usize>(bitmap: &Bitmap, bytes: &[u8; NEEDED]) -> u32 {
        let mut passed = 0;
        for from in (0..WINDOW).step_by(STRIDE) {
            // SAFETY: from each place in the first window on, `bytes` fills a register.
            let windows = unsafe { _mm256_loadu_si256(bytes.as_ptr().wrapping_add(from).cast()) };
            passed |= side_by_side(bitmap, windows) << from;
        }
        passed
    }

    /// The same for the last bytes of a text.
    #[avx2]
    #[inline]
    fn passes_at_end<const STRIDE: usize>(bitmap: &Bitmap, bytes: &[u8]) -> u32 {
        let mut passed = 0;
        for from in (0..WINDOW).step_by(STRIDE) {
            let bytes = bytes.get(from..).unwrap_or_default();
            // A window that extends past the end of the text does not count.
            let whole = _mm256_set1_epi32((bytes.len() / WINDOW).min(WINDOWS) as i32);
            let there = _mm256_cmpgt_epi32(whole, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            // SAFETY: the mask limits the load to complete windows.
            let windows = unsafe { _mm256_maskload_epi32(bytes.as_ptr().cast(), there) };
            let there = _mm256_movemask_epi8(there) as u32;
            passed |= (side_by_side(bitmap, windows) & there) << from;
        }
        passed
    }

    /// Which of eight consecutive windows may be in the bitmap.
    #[avx2]
    #[inline]
    fn side_by_side(bitmap: &Bitmap, windows: __m256i) -> u32 {
        let folded = _mm256_or_si256(windows, _mm256_set1_epi8(0x20));
        let hash = _mm256_mullo_epi32(folded, _mm256_set1_epi32(MULTIPLIER as i32));
        let place = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(bitmap.shift() as i32));
        let word = look_up(bitmap, place);
        // The lowest five bits of a count select the bit. Shifted to the top, it is the sign.
        let bit = |count: __m256i| {
            let left = _mm256_andnot_si256(count, _mm256_set1_epi32(31));
            _mm256_sllv_epi32(word, left)
        };
        let both =
            _mm256_and_si256(bit(_mm256_srli_epi32::<14>(hash)), bit(_mm256_srli_epi32::<9>(hash)));
        _mm256_movemask_epi8(_mm256_srai_epi32::<31>(both)) as u32 & 0x1111_1111
    }

    /// The words at eight places, which are shifted hashes. On processors with AVX2 only, loading
    /// them one by one is faster than a gather.
    #[avx2]
    #[inline]
    pub(super) fn look_up(bitmap: &Bitmap, places: __m256i) -> __m256i {
        let low = four(bitmap, _mm256_castsi256_si128(places));
        let high = four(bitmap, _mm256_extracti128_si256::<1>(places));
        _mm256_set_m128i(high, low)
    }

    /// The words at four places.
    #[avx2]
    #[inline]
    fn four(bitmap: &Bitmap, places: __m128i) -> __m128i {
        // SAFETY: a shifted hash is the index of a word.
        let word = |place: u32| unsafe { *bitmap.words().get_unchecked(place as usize) as i32 };
        // Registers deliver one number per cycle, so two places are moved at a time.
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
    use crate::literals::index::places;

    proptest! {
        #[test]
        fn vectors_let_pass_what_the_reference_does(
            literals in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 11..18), 1..60),
            text in proptest::collection::vec(any::<u8>(), 0..200),
            stand in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut text = text;
            text.extend(stand.iter().flat_map(|i| &literals[i.index(literals.len())]));
            for stride in [Windows::WIDE, Windows::SPARSE, Windows::DENSE] {
                let places = places(&literals, 0..literals.len() as u32, stride);
                let mut windows = Windows::new(&literals, &places, stride).unwrap();
                let texts = [&text[..], &text[text.len() / 2..], &[]];
                let mut slow = Vec::new();
                windows.scan_scalar(&texts, &mut slow);
                for gathers in [false, true] {
                    let mut fast = Vec::new();
                    windows.gathers = gathers;
                    windows.scan(&texts, &mut fast);
                    prop_assert_eq!(&fast, &slow);
                }
            }
        }
    }
}
