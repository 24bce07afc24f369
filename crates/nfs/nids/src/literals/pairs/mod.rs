//! Looks up 64 places at once by pairs of bytes in tables held in registers.
//!
//! The literals are distributed over eight buckets, a bit each. Four pairs of the first bytes from
//! a place on are hashed to a byte each, and a table holds the buckets with a literal that has such
//! a pair there; a place passes if all four tables agree on a bucket. After its end, a literal
//! accepts all pairs. The hash is linear over bits, takes one instruction per byte
//! (`gf2p8affineqb`), and ignores the bit that distinguishes upper from lower case. Each pair of a
//! text is hashed once and looked up in all tables; the results are then moved to their places.
//!
//! A literal of two bytes would pass one pair in 256. If there are such, the fourth table holds
//! another hash of the first pair, and both hashes together determine the pair but for its case.
//!
//! Where many places of a block pass, they are left to a second filter ([`Dense`]).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::LazyLock;

use super::affine::PairHash;
use super::buckets::{self, BUCKETS};
use super::dense::{Block, Blocks, Dense, PLACES};
use super::hits::{Hit, divide};
#[cfg(target_arch = "x86_64")]
use super::hits::{Told, tell};
use super::index::Place;
use super::traffic::SHARES;

/// The number of tables.
const TABLES: usize = 4;
/// What each table looks up: the number of the hash, and the offset of the pair.
type Layout = [(usize, usize); TABLES];
/// That for literals of some length, and that if some have two bytes.
const FAR: Layout = [(0, 0), (0, 1), (0, 2), (0, 3)];
const NEAR: Layout = [(0, 0), (0, 1), (0, 2), (1, 0)];
/// Bytes that they span.
const BYTES: usize = FAR[3].1 + 2;

/// Both hashes.
static HASHES: [PairHash; 2] = [
    PairHash::new([
        [0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80, 0x5b],
        [0x48, 0x91, 0x06, 0x1c, 0xc3, 0x12, 0x0d, 0xd5],
    ]),
    PairHash::new([
        [0x80, 0x95, 0xd2, 0x0f, 0x93, 0x95, 0x45, 0x0c],
        [0xd9, 0x18, 0x0b, 0x8e, 0xdb, 0x02, 0x4a, 0x4b],
    ]),
];

/// For each hash, the buckets; aligned to cache lines.
#[repr(C, align(64))]
struct Tables([[u8; 256]; TABLES]);

/// Reports the places of texts that pass.
#[cfg(target_arch = "x86_64")]
type Scan = for<'a> unsafe fn(&Tables, &[&[u8]], Told<'a>, &mut Blocks<'_>) -> Told<'a>;

/// The filter.
pub(super) struct Pairs {
    tables: Box<Tables>,
    /// [`FAR`] or [`NEAR`].
    layout: Layout,
    dense: Dense,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    fast: bool,
}

impl Pairs {
    /// `None` without literals.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place]) -> Option<Self> {
        if places.is_empty() {
            return None;
        }
        let places = buckets::in_order(literals, places, BYTES);
        let layout = if places[0].bytes(literals).len() == 2 { NEAR } else { FAR };
        let looked: Vec<_> =
            places.iter().map(|place| hashes_of(place.bytes(literals), layout)).collect();
        let costs = |first| {
            let mut bucket = Bucket::new(layout);
            looked[first..].iter().map(move |hashes| bucket.add(hashes))
        };
        let mut tables = Box::new(Tables([[0; 256]; TABLES]));
        let mut dense = Dense::default();
        let buckets = buckets::divide(places.len(), costs);
        for ((place, hashes), bucket) in places.iter().zip(&looked).zip(buckets) {
            let bucket = 1u8 << bucket;
            dense.add(bucket, place.bytes(literals));
            for (hash, table) in hashes.iter().zip(&mut tables.0) {
                match hash {
                    Some(hash) => table[*hash] |= bucket,
                    None => table.iter_mut().for_each(|buckets| *buckets |= bucket),
                }
            }
        }
        Some(Self { tables, layout, dense, fast: is_fast() })
    }

    /// The share of random places that pass.
    pub(super) fn passes(&self) -> f64 {
        let Tables([first, second, third, fourth]) = &*self.tables;
        let of = |table: &[u8; 256]| of_buckets(table.iter().copied());
        let (of_first, of_fourth) = if self.layout == NEAR {
            // Both look up the same pair.
            let bytes = 0..=u8::MAX;
            let pairs =
                bytes.clone().flat_map(|first| bytes.clone().map(move |second| [first, second]));
            let either = pairs.map(|pair| first[HASHES[0].of(pair)] & fourth[HASHES[1].of(pair)]);
            (of_buckets(either), [1.0; BUCKETS])
        } else {
            (of(first), of(fourth))
        };
        let each = [of_first, of(second), of(third), of_fourth];
        (0..BUCKETS).map(|bucket| each.iter().map(|shares| shares[bucket]).product::<f64>()).sum()
    }

    /// Appends each place in each of the `texts` where a literal may occur; those in `blocks` with many,
    /// whose room is reused, after all others.
    pub(super) fn scan(&self, texts: &[&[u8]], blocks: &mut Vec<Block>, hits: &mut Vec<Hit>) {
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            let places = places_of(texts);
            let mut dense = Blocks::new(blocks, places, texts.len());
            let scan = self.scan_of_layout();
            // SAFETY: `is_fast` checked that the CPU has the instructions.
            tell(hits, places, |told| unsafe { scan(&self.tables, texts, told, &mut dense) });
            // SAFETY: as above.
            unsafe { self.dense.scan(texts, dense.all(), hits) };
            return;
        }
        self.scan_scalar(texts, blocks, hits);
    }

    /// The same where the texts are `joined`, in one pass over all of them. What passes only together with
    /// the bytes of the next text may be appended, too.
    pub(super) fn scan_joined(
        &self,
        texts: &[&[u8]],
        joined: &[u8],
        blocks: &mut Vec<Block>,
        hits: &mut Vec<Hit>,
    ) {
        let first = hits.len();
        // Room for those of the whole, and then for those of each text.
        let mut dense = Blocks::new(blocks, 2 * joined.len(), 2 + texts.len());
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            let (scan, whole, places) = (self.scan_of_layout(), [joined], joined.len());
            // SAFETY: `is_fast` checked that the CPU has the instructions.
            tell(hits, places, |told| unsafe { scan(&self.tables, &whole, told, &mut dense) });
            divide(&mut hits[first..], texts);
            let dense = dense.divided(texts);
            // SAFETY: as above.
            return unsafe { self.dense.scan(texts, dense, hits) };
        }
        self.scan_each(&[joined], &mut dense, hits);
        divide(&mut hits[first..], texts);
        self.dense.scan_scalar(texts, dense.divided(texts), hits);
    }

    /// The scan by vectors for its layout.
    #[cfg(target_arch = "x86_64")]
    fn scan_of_layout(&self) -> Scan {
        if self.layout == NEAR { x86::scan::<true> } else { x86::scan::<false> }
    }

    /// The reference of [`scan`](Self::scan).
    pub(super) fn scan_scalar(
        &self,
        texts: &[&[u8]],
        blocks: &mut Vec<Block>,
        hits: &mut Vec<Hit>,
    ) {
        let mut dense = Blocks::new(blocks, places_of(texts), texts.len());
        self.scan_each(texts, &mut dense, hits);
        self.dense.scan_scalar(texts, dense.all(), hits);
    }

    /// Reports the places of all texts that pass, but those of dense blocks.
    fn scan_each(&self, texts: &[&[u8]], dense: &mut Blocks<'_>, hits: &mut Vec<Hit>) {
        for (n, text) in texts.iter().enumerate() {
            for base in (0..text.len()).step_by(PLACES) {
                let places = base..text.len().min(base + PLACES);
                let bit = |at: usize| u64::from(self.pass(text, at)) << (at - base);
                let passed = places.map(bit).fold(0, |passed, bit| passed | bit);
                hits.extend(Hit::each(dense.divert(passed, n, base), n, base));
            }
        }
    }

    /// Whether a literal may occur at a place.
    fn pass(&self, text: &[u8], at: usize) -> bool {
        let byte = |at: usize| text.get(at).copied().unwrap_or(0);
        let of_pair =
            |number: usize, pair| HASHES[number].of([byte(at + pair), byte(at + pair + 1)]);
        let each = self.layout.into_iter().zip(&self.tables.0);
        each.fold(u8::MAX, |left, ((number, pair), table)| left & table[of_pair(number, pair)]) != 0
    }
}

/// What each table looks up for a literal: nothing after its end.
fn hashes_of(bytes: &[u8], layout: Layout) -> [Option<usize>; TABLES] {
    let pair = |at| bytes.get(at..).and_then(|rest| rest.first_chunk());
    layout.map(|(number, at)| pair(at).map(|pair| HASHES[number].of(*pair)))
}

/// What a bucket lets pass of traffic, as it grows.
struct Bucket {
    layout: Layout,
    known: [[bool; 256]; TABLES],
    /// The share of the pairs that each table lets pass.
    shares: [f64; TABLES],
}

impl Bucket {
    fn new(layout: Layout) -> Self {
        Self { layout, known: [[false; 256]; TABLES], shares: [0.0; TABLES] }
    }

    /// Adds a literal by its hashes; returns the share of places that pass.
    fn add(&mut self, hashes: &[Option<usize>; TABLES]) -> f64 {
        for (table, hash) in hashes.iter().enumerate() {
            self.shares[table] += match hash {
                Some(hash) if std::mem::replace(&mut self.known[table][*hash], true) => 0.0,
                Some(hash) => TRAFFIC[self.layout[table].0][*hash],
                None => 1.0,
            };
        }
        self.shares.iter().map(|share| share.min(1.0)).product()
    }
}

/// The share of each hash among the pairs of traffic, whose bytes are taken to be independent.
static TRAFFIC: LazyLock<[[f64; 256]; 2]> = LazyLock::new(|| {
    let mut of_hashes = [[0.0; 256]; 2];
    for (hash, of_hash) in HASHES.iter().zip(&mut of_hashes) {
        for (first, share) in (0..=u8::MAX).zip(SHARES.iter()) {
            for (second, other) in (0..=u8::MAX).zip(SHARES.iter()) {
                of_hash[hash.of([first, second])] += share * other;
            }
        }
    }
    of_hashes
});

/// In which share of the items each bucket is.
fn of_buckets(items: impl Iterator<Item = u8>) -> [f64; BUCKETS] {
    let (mut all, mut counts) = (0, [0; BUCKETS]);
    for buckets in items {
        all += 1;
        for (bucket, count) in counts.iter_mut().enumerate() {
            *count += u32::from(buckets >> bucket & 1);
        }
    }
    counts.map(|count| f64::from(count) / f64::from(all))
}

fn places_of(texts: &[&[u8]]) -> usize {
    texts.iter().map(|text| text.len()).sum()
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
            unit in (any::<prop::sample::Index>(), 1usize..6, 0usize..400),
        ) {
            let (literal, most, length) = unit;
            let unit = literal.get(&literals).iter().take(most);
            let text = [&runs(&parts)[..], &unit.cycle().take(length).copied().collect::<Vec<_>>()].concat();
            let pairs = Pairs::new(&literals, &places(&literals, 0..literals.len() as u32, 4)).unwrap();
            let (mut fast, mut slow, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
            let texts = [&text[..], &text[text.len() / 2..], &[]];
            pairs.scan(&texts, &mut blocks, &mut fast);
            pairs.scan_scalar(&texts, &mut blocks, &mut slow);
            prop_assert_eq!(fast, slow);
        }
    }

    #[test]
    fn where_many_places_pass_more_must_agree() {
        // The first hash does not distinguish the brackets.
        let literals = [b"[{[{[{".to_vec()];
        let pairs = Pairs::new(&literals, &places(&literals, 0..1, 4)).unwrap();
        let (mut blocks, mut hits) = (Vec::new(), Vec::new());
        pairs.scan(&[&b"[{".repeat(50), &b"[[".repeat(50), b"[[[[[[[["], &mut blocks, &mut hits);
        let at = |number: u32| hits.iter().filter(|hit| hit.text == number).count();
        // Few places are left to the comparison.
        assert_eq!([at(0), at(1), at(2)], [48, 0, 4]);
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
            for hash in &HASHES {
                assert_eq!(hash.of([upper, b'x']), hash.of([lower, b'X']));
            }
        }
        let mut used = [[0u32; 256]; 2];
        let mut used_together = std::collections::HashMap::<_, u32>::new();
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let each = HASHES.each_ref().map(|hash| hash.of([first, second]));
                (0..2).for_each(|number| used[number][each[number]] += 1);
                *used_together.entry(each).or_default() += 1;
            }
        }
        let used = used.as_flattened();
        assert!(used.iter().all(|n| *n == 256), "every hash stands for the same number of pairs");
        assert!(used_together.values().all(|n| *n == 4), "both distinguish pairs but for two bits");
    }
}
