//! Looks up 64 places at once by pairs of bytes in tables held in registers.
//!
//! The literals are distributed over eight buckets, a bit each. Four pairs of the first bytes from
//! a place on are hashed to a byte each, and a table holds the buckets with a literal that has such
//! a pair there; a place passes if all four tables agree on a bucket. After its end, a literal
//! accepts all pairs. The hash is linear over bits, takes one instruction per byte
//! (`gf2p8affineqb`), and ignores the bit that distinguishes upper from lower case. Each pair of a
//! text is hashed once and looked up in all tables; the results are then moved to their places.
#![allow(unsafe_code)]

use super::hits::Hit;
#[cfg(target_arch = "x86_64")]
use super::hits::tell;
use super::index::{Place, WINDOW};

/// The offsets of the pairs that are looked up.
const PAIRS: [usize; 4] = [0, 1, 2, 3];
/// Bytes that they span.
const BYTES: usize = PAIRS[3] + 2;
const BUCKETS: usize = 8;

/// Rows of the matrices for the first and the second byte of a pair; each bit of the hash is
/// the parity of the byte under one of them.
const FIRST: [u8; 8] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80, 0x5b];
const SECOND: [u8; 8] = [0x48, 0x91, 0x06, 0x1c, 0xc3, 0x12, 0x0d, 0xd5];

/// For each pair and hash, the buckets; aligned to cache lines.
#[repr(C, align(64))]
struct Tables([[u8; 256]; PAIRS.len()]);

/// The filter.
pub(super) struct Pairs {
    tables: Box<Tables>,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    fast: bool,
}

impl Pairs {
    /// `None` without literals.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place]) -> Option<Self> {
        if places.is_empty() {
            return None;
        }
        // Literals of similar length share a bucket: a short one makes its whole bucket pass more.
        let mut places = places.to_vec();
        places.sort_by_key(|p| (p.bytes(literals).len().min(BYTES), p.bytes(literals)));
        let mut tables = Box::new(Tables([[0; 256]; PAIRS.len()]));
        for (n, place) in places.iter().enumerate() {
            let bucket = 1u8 << (n * BUCKETS / places.len());
            let bytes = place.bytes(literals);
            for (at, table) in PAIRS.into_iter().zip(&mut tables.0) {
                match bytes.get(at..at + 2) {
                    Some(&[first, second]) => table[usize::from(hash(first, second))] |= bucket,
                    _ => table.iter_mut().for_each(|buckets| *buckets |= bucket),
                }
            }
        }
        Some(Self { tables, fast: is_fast() })
    }

    /// The share of random places that pass.
    pub(super) fn passes(&self) -> f64 {
        let of_bucket = |bucket: usize| {
            let filled = |t: &[u8; 256]| t.iter().filter(|b| **b >> bucket & 1 != 0).count() as f64;
            self.tables.0.iter().map(|t| filled(t) / 256.0).product::<f64>()
        };
        (0..BUCKETS).map(of_bucket).sum()
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
            for base in (0..text.len()).step_by(PLACES) {
                let places = base..text.len().min(base + PLACES);
                let bit = |at: usize| u64::from(self.pass(text, at)) << (at - base);
                let passed = places.map(bit).fold(0, |passed, bit| passed | bit);
                let left = thin(passed, || in_runs(text, base));
                let places = (0..PLACES).filter(|place| left >> place & 1 == 1);
                hits.extend(places.map(|place| Hit { text: n as u32, at: (base + place) as u32 }));
            }
        }
    }

    /// Whether a literal may occur at a place.
    fn pass(&self, text: &[u8], at: usize) -> bool {
        let byte = |at: usize| text.get(at).copied().unwrap_or(0);
        let of_pair = |pair: usize| usize::from(hash(byte(at + pair), byte(at + pair + 1)));
        let each = PAIRS.into_iter().zip(&self.tables.0);
        each.fold(u8::MAX, |left, (pair, table)| left & table[of_pair(pair)]) != 0
    }
}

/// Places that are looked up at once, a bit each.
const PLACES: usize = 64;

/// At least as many of these places pass in a run, and seldom elsewhere.
const DENSE: u32 = 16;

/// Of the places of a block that have `passed`, those of a run only at its first: a run is searched as
/// a whole. `in_runs` returns the places in whose window each byte is the one before the place.
#[inline]
fn thin(passed: u64, in_runs: impl FnOnce() -> u64) -> u64 {
    let again = passed & passed << 1;
    if again.count_ones() < DENSE { passed } else { passed & !(again & in_runs()) }
}

/// Of the places from `base` on, those in whose window each byte is the one before the place.
fn in_runs(text: &[u8], base: usize) -> u64 {
    let is_like_before = |at: usize| at > 0 && at < text.len() && text[at] == text[at - 1];
    let is_in_run = |at: usize| (at..at + WINDOW).all(is_like_before);
    (0..PLACES).map(|n| u64::from(is_in_run(base + n)) << n).fold(0, |all, bit| all | bit)
}

/// Whether this CPU can look up 64 places at a time, and the active level allows it.
pub(super) fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use thalweg_cpu::Isa;
        Isa::active() == Isa::Avx512
            && std::arch::is_x86_feature_detected!("avx512vbmi")
            && std::arch::is_x86_feature_detected!("gfni")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The contribution of each byte to the hash, as the first and as the second of a pair.
const HASHES: [[u8; 256]; 2] = [hashes(FIRST), hashes(SECOND)];

const fn hashes(rows: [u8; 8]) -> [u8; 256] {
    let mut hashes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            let parity = (rows[bit] & byte as u8).count_ones() as u8 & 1;
            hashes[byte] |= parity << bit;
            bit += 1;
        }
        byte += 1;
    }
    hashes
}

fn hash(first: u8, second: u8) -> u8 {
    HASHES[0][usize::from(first)] ^ HASHES[1][usize::from(second)]
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use thalweg_cpu::avx512;

    use super::super::hits::Told;
    use super::{FIRST, PAIRS, PLACES, SECOND, Tables, WINDOW, thin};

    /// A matrix in the instruction's format: the row of the highest bit first.
    const fn matrix(rows: [u8; 8]) -> i64 {
        let mut reversed = [0; 8];
        let mut bit = 0;
        while bit < 8 {
            reversed[7 - bit] = rows[bit];
            bit += 1;
        }
        i64::from_le_bytes(reversed)
    }

    /// A table of 256 bytes, and the lookup of 64 bytes in it.
    #[derive(Clone, Copy)]
    struct Table([__m512i; 4]);

    impl Table {
        #[avx512]
        #[target_feature(enable = "avx512vbmi")]
        fn load(table: &[u8; 256]) -> Self {
            let (parts, _) = table.as_chunks::<64>();
            Self([load(&parts[0]), load(&parts[1]), load(&parts[2]), load(&parts[3])])
        }

        #[avx512]
        #[target_feature(enable = "avx512vbmi")]
        fn look_up(self, at: __m512i) -> __m512i {
            let low = _mm512_permutex2var_epi8(self.0[0], at, self.0[1]);
            let high = _mm512_permutex2var_epi8(self.0[2], at, self.0[3]);
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high)
        }
    }

    #[avx512]
    #[inline]
    fn load(bytes: &[u8; PLACES]) -> __m512i {
        // SAFETY: `bytes` has the 64 bytes that are read.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// For each of 64 bytes, the buckets of the pair that begins there, according to each table.
    type Looked = [__m512i; PAIRS.len()];

    /// The matrices and tables held in registers.
    struct Registers {
        first: __m512i,
        second: __m512i,
        tables: [Table; PAIRS.len()],
    }

    impl Registers {
        #[avx512]
        #[target_feature(enable = "avx512vbmi")]
        fn load(Tables([t0, t1, t2, t3]): &Tables) -> Self {
            Self {
                first: _mm512_set1_epi64(const { matrix(FIRST) }),
                second: _mm512_set1_epi64(const { matrix(SECOND) }),
                tables: [Table::load(t0), Table::load(t1), Table::load(t2), Table::load(t3)],
            }
        }

        /// Looks up the pairs of 64 bytes and the byte after each.
        #[avx512]
        #[target_feature(enable = "avx512vbmi,gfni")]
        #[inline]
        fn look_up(&self, first: __m512i, second: __m512i) -> Looked {
            let of_first = _mm512_gf2p8affine_epi64_epi8::<0>(first, self.first);
            let of_second = _mm512_gf2p8affine_epi64_epi8::<0>(second, self.second);
            let hash = _mm512_xor_si512(of_first, of_second);
            let [t0, t1, t2, t3] = self.tables;
            [t0.look_up(hash), t1.look_up(hash), t2.look_up(hash), t3.look_up(hash)]
        }

        /// The same for the last bytes of a text, at most 64, padded with zeros.
        #[avx512]
        #[target_feature(enable = "avx512vbmi,gfni")]
        #[inline]
        fn look_up_rest(&self, rest: &[u8]) -> Looked {
            let there = _bzhi_u64(u64::MAX, rest.len() as u32);
            // SAFETY: only bytes of the text are read.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(there, rest.as_ptr().cast()) };
            let second = behind::<1>(bytes, _mm512_setzero_si512());
            self.look_up(bytes, second)
        }

        /// Reports the places of a text that pass. Past its end, the results for zeros are used.
        #[avx512]
        #[target_feature(enable = "avx512vbmi,gfni")]
        #[inline]
        fn scan(&self, n: usize, text: &[u8], nothing: &Looked, told: &mut Told<'_>) {
            let looked = |base: usize| match text.get(base..).unwrap_or_default() {
                [] => *nothing,
                rest if rest.len() <= PLACES => self.look_up_rest(rest),
                rest => {
                    let at = rest.as_ptr();
                    // SAFETY: `rest` has at least one byte more than the load reads.
                    let first = unsafe { _mm512_loadu_si512(at.cast()) };
                    // SAFETY: as above.
                    let second = unsafe { _mm512_loadu_si512(at.wrapping_add(1).cast()) };
                    self.look_up(first, second)
                }
            };
            let mut now = looked(0);
            for base in (0..text.len()).step_by(PLACES) {
                let next = looked(base + PLACES);
                let one = behind::<{ PAIRS[1] as i32 }>(now[1], next[1]);
                let two = behind::<{ PAIRS[2] as i32 }>(now[2], next[2]);
                let three = behind::<{ PAIRS[3] as i32 }>(now[3], next[3]);
                let near = _mm512_and_si512(now[0], one);
                let far = _mm512_and_si512(two, three);
                // There are no places past the end.
                let there = (text.len() - base).min(PLACES) as u32;
                let passed = _bzhi_u64(_mm512_test_epi8_mask(near, far), there);
                told.tell_often_thinned(passed, n, base, |passed| {
                    thin(passed, || in_runs(text, base))
                });
                now = next;
            }
        }
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
        let at = text.as_ptr().wrapping_add(base);
        // SAFETY: the mask limits the load to bytes of the text.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(there, at.cast()) };
        // SAFETY: as above: each of these bytes has one before it.
        let before = unsafe { _mm512_maskz_loadu_epi8(there, at.wrapping_sub(1).cast()) };
        _mm512_mask_cmpeq_epi8_mask(there, bytes, before)
    }

    /// The values `BYTES` bytes after each of 64 places, some of them among the next 64.
    #[avx512]
    #[inline]
    fn behind<const BYTES: i32>(now: __m512i, next: __m512i) -> __m512i {
        // Shifts within each 16 bytes and the 16 that follow.
        let following = _mm512_alignr_epi64::<2>(next, now);
        _mm512_alignr_epi8::<BYTES>(following, now)
    }

    /// Neither inlined nor calling functions: either would evict the tables from the registers.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline(never)]
    pub(super) fn scan<'a>(tables: &Tables, texts: &[&[u8]], mut told: Told<'a>) -> Told<'a> {
        let registers = Registers::load(tables);
        let nothing = registers.look_up(_mm512_setzero_si512(), _mm512_setzero_si512());
        for (n, text) in texts.iter().enumerate() {
            registers.scan(n, text, &nothing, &mut told);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::literals::index::places;
    use crate::literals::tests::runs;

    proptest! {
        #[test]
        fn vectors_let_pass_what_the_reference_does(
            literals in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 2..12), 1..40),
            parts in proptest::collection::vec((any::<u8>(), prop_oneof![Just(1usize), 1usize..90]), 0..60),
        ) {
            let text = runs(&parts);
            let pairs = Pairs::new(&literals, &places(&literals, 0..literals.len() as u32, 4)).unwrap();
            let (mut fast, mut slow) = (Vec::new(), Vec::new());
            let texts = [&text[..], &text[text.len() / 2..], &[]];
            pairs.scan(&texts, &mut fast);
            pairs.scan_scalar(&texts, &mut slow);
            prop_assert_eq!(fast, slow);
        }
    }

    /// CI sets `REQUIRE_ISA` along with `THALWEG_ISA`.
    #[test]
    fn the_required_level_is_in_use() {
        if let Ok(required) = std::env::var("REQUIRE_ISA") {
            assert_eq!(is_fast(), required == "avx512");
        }
    }

    #[test]
    fn the_hash_does_not_tell_cases_apart() {
        for (upper, lower) in (b'A'..=b'Z').zip(b'a'..=b'z') {
            assert_eq!(hash(upper, b'x'), hash(lower, b'X'));
        }
        let mut used = [0u32; 256];
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                used[usize::from(hash(first, second))] += 1;
            }
        }
        assert!(used.iter().all(|n| *n == 256), "every hash stands for the same number of pairs");
    }
}
