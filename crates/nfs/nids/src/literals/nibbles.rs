//! Looks up 32 places at once by halves of bytes in tables held in registers, as Hyperscan's Teddy
//! does (Wang et al., NSDI 2019): for processors with AVX2 but without the extensions that
//! [`Pairs`] requires.
//!
//! The literals are distributed over eight buckets, a bit each. For each of the first bytes from a
//! place on, one table holds, by the byte's lower half, the buckets with a literal that has such a
//! byte there, and another does by its upper half; a place passes if all tables agree on a bucket.
//! After its end, a literal accepts all bytes.
//!
//! [`Pairs`]: super::pairs::Pairs
#![allow(unsafe_code)]

use super::buckets::{self, BUCKETS};
use super::hits::Hit;
#[cfg(target_arch = "x86_64")]
use super::hits::tell;
use super::index::Place;

/// The maximum and the minimum number of bytes looked up from a place on.
const BYTES: usize = 5;
const LEAST: usize = 2;
/// The lookups may pass one random place in this many; otherwise another byte is looked up.
const RARE: f64 = 1000.0;

/// The buckets by the lower and by the upper half of a byte.
#[derive(Clone, Copy, Default)]
struct Tables {
    low: [u8; 16],
    high: [u8; 16],
}

/// The filter.
pub(super) struct Nibbles {
    tables: Vec<Tables>,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    fast: bool,
}

impl Nibbles {
    /// `None` without literals.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place]) -> Option<Self> {
        if places.is_empty() {
            return None;
        }
        let places = buckets::in_order(literals, places, BYTES);
        let mut tables = vec![Tables::default(); BYTES];
        for (n, place) in places.iter().enumerate() {
            let bucket = 1u8 << (n * BUCKETS / places.len());
            let bytes = place.bytes(literals);
            for (at, table) in tables.iter_mut().enumerate() {
                match bytes.get(at) {
                    Some(byte) => {
                        table.add(byte.to_ascii_lowercase(), bucket);
                        table.add(byte.to_ascii_uppercase(), bucket);
                    }
                    None => (0..=u8::MAX).for_each(|byte| table.add(byte, bucket)),
                }
            }
        }
        let enough = |bytes: &usize| passes(&tables[..*bytes]) * RARE <= 1.0;
        tables.truncate((LEAST..BYTES).find(enough).unwrap_or(BYTES));
        Some(Self { tables, fast: is_fast() })
    }

    /// The share of random places that pass.
    pub(super) fn passes(&self) -> f64 {
        passes(&self.tables)
    }

    /// Whether so few places pass that their cost is negligible.
    pub(super) fn is_selective(&self) -> bool {
        self.passes() * RARE <= 1.0
    }

    /// Appends each place in each of the `texts` where a literal may occur.
    pub(super) fn scan(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            let places = texts.iter().map(|text| text.len()).sum();
            // SAFETY: `is_fast` checked that the CPU has the instructions.
            tell(hits, places, |told| unsafe { x86::scan(&self.tables, texts, told) });
            return;
        }
        self.scan_scalar(texts, hits);
    }

    /// The reference of [`scan`](Self::scan).
    pub(super) fn scan_scalar(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            for at in 0..text.len() {
                let byte = |at: usize| text.get(at).copied().unwrap_or(0);
                let mut buckets = u8::MAX;
                for (offset, table) in self.tables.iter().enumerate() {
                    buckets &= table.buckets(byte(at + offset));
                    if buckets == 0 {
                        break;
                    }
                }
                if buckets != 0 {
                    hits.push(Hit { text: n as u32, at: at as u32 });
                }
            }
        }
    }
}

impl Tables {
    fn add(&mut self, byte: u8, bucket: u8) {
        self.low[usize::from(byte & 0xf)] |= bucket;
        self.high[usize::from(byte >> 4)] |= bucket;
    }

    fn buckets(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 0xf)] & self.high[usize::from(byte >> 4)]
    }
}

/// The share of random places that the tables pass.
fn passes(tables: &[Tables]) -> f64 {
    let part = |half: &[u8; 16], bucket: usize| {
        half.iter().filter(|b| **b >> bucket & 1 != 0).count() as f64 / 16.0
    };
    let of_bucket = |bucket: usize| {
        let tables = tables.iter();
        tables.map(|t| part(&t.low, bucket) * part(&t.high, bucket)).product::<f64>()
    };
    (0..BUCKETS).map(of_bucket).sum()
}

/// Whether this CPU can look up 32 places at a time, and the active level allows it.
pub(super) fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use thalweg_cpu::Isa;
        Isa::active() >= Isa::Avx2
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use thalweg_cpu::avx2;

    use super::super::hits::Told;
    use super::{BYTES, Tables};

    /// Places looked up at once.
    const SPAN: usize = 32;
    /// Bytes needed to look them up.
    const NEEDED: usize = SPAN + BYTES - 1;

    #[avx2]
    pub(super) fn scan<'a>(tables: &[Tables], texts: &[&[u8]], told: Told<'a>) -> Told<'a> {
        match tables {
            [t0, t1] => scan_by(&[*t0, *t1], texts, told),
            [t0, t1, t2] => scan_by(&[*t0, *t1, *t2], texts, told),
            [t0, t1, t2, t3] => scan_by(&[*t0, *t1, *t2, *t3], texts, told),
            [t0, t1, t2, t3, t4] => scan_by(&[*t0, *t1, *t2, *t3, *t4], texts, told),
            _ => unreachable!("there are LEAST to BYTES tables"),
        }
    }

    #[avx2]
    fn scan_by<'a, const N: usize>(
        tables: &[Tables; N],
        texts: &[&[u8]],
        mut told: Told<'a>,
    ) -> Told<'a> {
        let mut registers = [[_mm256_setzero_si256(); 2]; N];
        for (registers, Tables { low, high }) in registers.iter_mut().zip(tables) {
            for (register, half) in registers.iter_mut().zip([low, high]) {
                // SAFETY: a table has 16 bytes; the load needs no alignment.
                let half = unsafe { _mm_loadu_si128(half.as_ptr().cast()) };
                *register = _mm256_broadcastsi128_si256(half);
            }
        }
        for (n, text) in texts.iter().enumerate() {
            let mut base = 0;
            while let Some(bytes) = text[base..].first_chunk() {
                told.tell(passes(&registers, bytes).into(), n, base);
                base += SPAN;
            }
            // The rest is shorter than a span and the bytes needed after it: pad it with zeros.
            let mut rest = [0; SPAN + NEEDED];
            let left = text.len() - base;
            rest[..left].copy_from_slice(&text[base..]);
            for at in (0..left).step_by(SPAN) {
                let Some(bytes) = rest[at..].first_chunk() else { break };
                // There are no places past the end.
                let there = (1u64 << (left - at).min(SPAN)) - 1;
                told.tell(u64::from(passes(&registers, bytes)) & there, n, base + at);
            }
        }
        told
    }

    /// The places that pass.
    #[avx2]
    #[inline]
    fn passes<const N: usize>(tables: &[[__m256i; 2]; N], bytes: &[u8; NEEDED]) -> u32 {
        let half = _mm256_set1_epi8(0xf);
        let mut buckets = _mm256_set1_epi8(-1);
        for (offset, [low, high]) in tables.iter().enumerate() {
            // SAFETY: from each of the offsets on, `bytes` fills a register.
            let there = unsafe { _mm256_loadu_si256(bytes.as_ptr().wrapping_add(offset).cast()) };
            let by_low = _mm256_shuffle_epi8(*low, _mm256_and_si256(there, half));
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(there), half);
            let both = _mm256_and_si256(by_low, _mm256_shuffle_epi8(*high, upper));
            buckets = _mm256_and_si256(buckets, both);
        }
        let none = _mm256_cmpeq_epi8(buckets, _mm256_setzero_si256());
        !_mm256_movemask_epi8(none) as u32
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
            literals in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 2..8), 1..40),
            text in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let nibbles = Nibbles::new(&literals, &places(&literals, 0..literals.len() as u32, 4)).unwrap();
            let (mut fast, mut slow) = (Vec::new(), Vec::new());
            let texts = [&text[..], &text[text.len() / 2..], &[]];
            nibbles.scan(&texts, &mut fast);
            nibbles.scan_scalar(&texts, &mut slow);
            prop_assert_eq!(fast, slow);
        }
    }

    /// CI sets `REQUIRE_ISA` along with `THALWEG_ISA`.
    #[test]
    fn the_required_level_is_in_use() {
        if let Ok(required) = std::env::var("REQUIRE_ISA") {
            assert_eq!(is_fast(), required != "scalar");
        }
    }
}
