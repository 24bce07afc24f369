//! A blocked Bloom filter of windows: each window sets two bits in one word.

use super::index::{Place, spread};
use super::{fold, lower, lower_long};

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

/// The hash of eight bytes in lower case.
fn hash_long(window: u64) -> u32 {
    (window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
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

/// The first two bytes of places, in lower case: a bit for each pair.
struct PairSet(Box<[u64; 1 << 10]>);

impl PairSet {
    fn place(pair: u16) -> (usize, u64) {
        (usize::from(pair / 64), 1 << (pair % 64))
    }

    fn add(&mut self, pair: u16) {
        let (word, bit) = Self::place(pair);
        self.0[word] |= bit;
    }

    #[inline]
    fn hold(&self, pair: u16) -> bool {
        let (word, bit) = Self::place(pair);
        self.0[word] & bit != 0
    }
}

impl Check {
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
                (Some(window), ..) => {
                    check.long.add(hash_long(lower_long(u64::from_le_bytes(*window))));
                }
                (None, Some(window), _) => check.short.add(spread(lower(*window))),
                (None, None, Some([a, b])) => check.pairs.add(lower([*a, *b, 0, 0]) as u16),
                (None, None, None) => unreachable!("a literal has at least two bytes"),
            }
        }
        check
    }

    /// Whether a literal's place may lie at the beginning of `rest`.
    #[inline]
    pub(super) fn passes(&self, rest: &[u8]) -> bool {
        let Some(window) = rest.first_chunk() else { return self.passes_at_end(rest) };
        let window = lower_long(u64::from_le_bytes(*window));
        let long = self.long.may_hold(hash_long(window));
        long | self.short.may_hold(spread(window as u32)) | self.pairs.hold(window as u16)
    }

    /// The same where fewer than eight bytes follow.
    #[cold]
    fn passes_at_end(&self, rest: &[u8]) -> bool {
        let pair = |[a, b]: &[u8; 2]| self.pairs.hold(lower([*a, *b, 0, 0]) as u16);
        let short = |window: &[u8; 4]| self.short.may_hold(spread(lower(*window)));
        rest.first_chunk().is_some_and(short) || rest.first_chunk().is_some_and(pair)
    }
}
