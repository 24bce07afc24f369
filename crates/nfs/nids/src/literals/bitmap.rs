//! A blocked Bloom filter of windows: each window sets two bits in one word.

use super::fold;
use super::index::{Place, spread};
use super::repeats::Extent;

/// The filter.
pub(super) struct Bitmap {
    /// Their number is a power of two.
    words: Box<[u32]>,
    shift: u32,
}

impl Bitmap {
    /// A filter of `1 << bits` words.
    ///
    /// # Panics
    /// If `bits` is not in 1 to 31.
    pub(super) fn new(bits: u32) -> Self {
        assert!((1..u32::BITS).contains(&bits));
        Self { words: vec![0; 1 << bits].into(), shift: u32::BITS - bits }
    }

    pub(super) fn add(&mut self, hash: u32) {
        self.words[(hash >> self.shift) as usize] |= bits(hash);
    }

    #[inline]
    pub(super) fn may_hold(&self, hash: u32) -> bool {
        let bits = bits(hash);
        self.words[(hash >> self.shift) as usize] & bits == bits
    }

    /// The words; the highest bits of a hash index its word.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The right shift that turns a hash into the index of its word.
    pub(super) fn shift(&self) -> u32 {
        self.shift
    }
}

/// The bits of a window in its word.
fn bits(hash: u32) -> u32 {
    1u32.rotate_left(hash >> 14) | 1u32.rotate_left(hash >> 9)
}

pub(super) fn hash(window: [u8; 4]) -> u32 {
    spread(fold(window))
}

/// Bytes of a long window.
pub(super) const LONG: usize = 8;

#[inline]
pub(super) fn hash_long(window: [u8; LONG]) -> u32 {
    let folded = u64::from_le_bytes(window) | 0x2020_2020_2020_2020;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Words of the check's filter for each place.
const WORDS_A_PLACE: usize = 4;

/// Filters places by eight bytes before the index is consulted: traffic matches eight bytes by
/// chance far less often than four.
pub(super) struct Check {
    long: Bitmap,
    /// For places followed by fewer than eight bytes.
    short: Bitmap,
    /// For places followed by fewer than four bytes.
    pairs: PairSet,
}

/// The first two bytes of places in any case: a bit for each pair.
struct PairSet(Box<[u64; 1 << 10]>);

impl PairSet {
    fn place(pair: [u8; 2]) -> (usize, u64) {
        let pair = u16::from_le_bytes(pair);
        (usize::from(pair / 64), 1 << (pair % 64))
    }

    fn add(&mut self, pair: [u8; 2]) {
        let cases = pair.map(|byte| [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()]);
        for (first, second) in (0..4).map(|n| (cases[0][n / 2], cases[1][n % 2])) {
            let (word, bit) = Self::place([first, second]);
            self.0[word] |= bit;
        }
    }

    #[inline]
    fn hold(&self, pair: [u8; 2]) -> bool {
        let (word, bit) = Self::place(pair);
        self.0[word] & bit != 0
    }
}

impl Check {
    /// The bytes that it looks at.
    pub(super) const EXTENT: Extent =
        Extent { before: 0, after: LONG as u32, fixed: Extent::NOWHERE };

    pub(super) fn new(literals: &[Vec<u8>], places: &[Place]) -> Self {
        // Few windows need few cache lines.
        let bits = (places.len() * WORDS_A_PLACE).next_power_of_two().ilog2();
        let mut check = Self {
            long: Bitmap::new(bits.clamp(6, 13)),
            short: Bitmap::new(bits.clamp(6, 11)),
            pairs: PairSet(Box::new([0; 1 << 10])),
        };
        for place in places {
            let bytes = place.bytes(literals);
            match (bytes.first_chunk(), bytes.first_chunk(), bytes.first_chunk()) {
                // Of a run, which may be longer in the text, one place is reported.
                (_, Some(window), _) if place.is_run(literals) => check.short.add(hash(*window)),
                (Some(window), ..) => check.long.add(hash_long(*window)),
                (None, Some(window), _) => check.short.add(hash(*window)),
                (None, None, Some(pair)) => check.pairs.add(*pair),
                (None, None, None) => unreachable!("a literal has at least two bytes"),
            }
        }
        check
    }

    /// Whether a literal's place may lie at the beginning of `rest`.
    #[inline]
    pub(super) fn passes(&self, rest: &[u8]) -> bool {
        let long = rest.first_chunk().is_some_and(|w| self.long.may_hold(hash_long(*w)));
        let short = rest.first_chunk().is_some_and(|w| self.short.may_hold(hash(*w)));
        let pair = rest.first_chunk().is_some_and(|pair| self.pairs.hold(*pair));
        long | short | pair
    }
}
