//! Buckets: where keys and values lie, and how they are found and changed.
//!
//! A bucket is one line, in one of two forms by the size of the keys:
//!
//! - Keys of up to 16 bytes lie in the line itself: three of them, 16 bytes each, and
//!   after them their values of 32 bits. A lookup touches one line.
//! - Longer keys lie in memory of their own, each where its bucket and way say; the
//!   line has eight signatures of 16 bits (none is 0 but for a free place) and eight
//!   values. A lookup touches the line and, as a rule, one key.

use super::line::{Line, State, TAKEN_BITS, WORDS};
use super::sync::{AtomicU64, Ordering};
use super::zeroed::Zeroed;

/// The form of a bucket for keys of `W` words.
pub(super) struct Form<const W: usize>;

impl<const W: usize> Form<W> {
    /// Whether keys lie in the line.
    pub(super) const INLINE: bool = W <= 2;
    /// Places of a bucket; few for the model checker, which tries all orders of all
    /// steps.
    pub(super) const WAYS: usize = match W {
        _ if cfg!(loom) => 2,
        1 | 2 => 3,
        _ => 8,
    };
    /// The half of the line that has the first value.
    pub(super) const VALUES: usize =
        if Self::INLINE { 2 * WORDS - 1 - Self::WAYS } else { SIGNATURES / 2 };
    const FITS: () = assert!(
        !Self::INLINE
            || Self::VALUES >= 2 * SLOT * Self::WAYS
                && TAKEN_BITS as usize > SLOT * (Self::WAYS - 1)
    );

    /// The bit of the line's state that marks `way` as taken. Inline only; it lies
    /// where comparing all words of a line with a key, word by word, has its first
    /// result.
    pub(super) const fn taken(way: usize) -> u32 {
        1 << (way * SLOT)
    }
}

/// Words that a key in a line takes; those that it does not have are 0.
const SLOT: usize = 2;
/// Signatures in a line with signatures.
const SIGNATURES: usize = 8;
/// Their width in bits.
const SIGNATURE: usize = 16;

/// All buckets of a table.
#[derive(Debug)]
pub(super) struct Store<const W: usize> {
    lines: Zeroed<Line>,
    keys: Zeroed<AtomicU64>,
}

impl<const W: usize> Store<W> {
    /// `buckets` empty buckets.
    pub(super) fn new(buckets: usize) -> std::io::Result<Self> {
        const { Form::<W>::FITS };
        let keys = if Form::<W>::INLINE { 0 } else { buckets * Form::<W>::WAYS * W };
        Ok(Self { lines: Zeroed::new(buckets)?, keys: Zeroed::new(keys)? })
    }

    /// The bytes of `buckets` buckets.
    pub(super) fn bytes(buckets: usize) -> usize {
        let words = if Form::<W>::INLINE { 0 } else { Form::<W>::WAYS * W };
        buckets * (size_of::<Line>() + words * size_of::<AtomicU64>())
    }

    #[inline(always)]
    pub(super) fn buckets(&self) -> usize {
        self.lines.len()
    }

    #[inline(always)]
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The words of all keys that do not lie in lines.
    #[inline(always)]
    pub(super) fn keys(&self) -> &[AtomicU64] {
        &self.keys
    }

    #[inline(always)]
    pub(super) fn line(&self, bucket: usize) -> &Line {
        &self.lines[bucket]
    }

    /// Where the key of a place begins in `keys`.
    #[inline(always)]
    pub(super) fn key_at(bucket: usize, way: usize) -> usize {
        (bucket * Form::<W>::WAYS + way) * W
    }

    #[inline(always)]
    fn key_word(&self, bucket: usize, way: usize, n: usize) -> u64 {
        if Form::<W>::INLINE {
            self.line(bucket).word(way * SLOT + n)
        } else {
            self.keys[Self::key_at(bucket, way) + n].load(Ordering::Relaxed)
        }
    }

    /// The key of a place that is taken.
    pub(super) fn key(&self, bucket: usize, way: usize) -> [u64; W] {
        std::array::from_fn(|n| self.key_word(bucket, way, n))
    }

    /// The value of a place that is taken.
    #[inline(always)]
    pub(super) fn value(&self, bucket: usize, way: usize) -> u32 {
        self.line(bucket).half(Form::<W>::VALUES + way)
    }

    /// The signature of a place, 0 if it is free; not inline.
    #[inline(always)]
    pub(super) fn signature(&self, bucket: usize, way: usize) -> u16 {
        (self.line(bucket).word(way * SIGNATURE / 64) >> (way * SIGNATURE % 64)) as u16
    }

    /// Whether a place is taken, when its line is in `state`.
    #[inline(always)]
    pub(super) fn is_taken(&self, bucket: usize, way: usize, state: State) -> bool {
        if Form::<W>::INLINE {
            state.taken() & Form::<W>::taken(way) != 0
        } else {
            self.signature(bucket, way) != 0
        }
    }

    /// A free place of `bucket`; for the writer.
    pub(super) fn free_way(&self, bucket: usize) -> Option<usize> {
        let state = self.line(bucket).state();
        (0..Form::<W>::WAYS).find(|way| !self.is_taken(bucket, *way, state))
    }

    /// The way of `bucket`, whose line is in `state`, that has `key`.
    #[inline(always)]
    pub(super) fn way_of(
        &self,
        bucket: usize,
        state: State,
        key: &[u64; W],
        signature: u16,
    ) -> Option<usize> {
        (0..Form::<W>::WAYS).find(|way| {
            let may_be = if Form::<W>::INLINE {
                self.is_taken(bucket, *way, state)
            } else {
                self.signature(bucket, *way) == signature
            };
            may_be && (0..W).all(|n| self.key_word(bucket, *way, n) == key[n])
        })
    }

    /// Fills a free place; for the writer.
    pub(super) fn fill(
        &self,
        (bucket, way): (usize, usize),
        key: &[u64; W],
        signature: u16,
        value: u32,
    ) {
        let line = self.line(bucket);
        let taken =
            |before| if Form::<W>::INLINE { before | Form::<W>::taken(way) } else { before };
        line.change(taken, || {
            for (n, word) in key.iter().enumerate() {
                if Form::<W>::INLINE {
                    line.set_word(way * SLOT + n, *word);
                } else {
                    self.keys[Self::key_at(bucket, way) + n].store(*word, Ordering::Relaxed);
                }
            }
            if !Form::<W>::INLINE {
                line.set_part(way, SIGNATURE, u64::from(signature));
            }
            self.set_value((bucket, way), value);
        });
    }

    /// Changes the value of a place; readers see the old one or the new. For the
    /// writer.
    pub(super) fn set_value(&self, (bucket, way): (usize, usize), value: u32) {
        self.line(bucket).set_part(Form::<W>::VALUES + way, 32, u64::from(value));
    }

    /// Frees a place; for the writer.
    pub(super) fn free(&self, (bucket, way): (usize, usize)) {
        let line = self.line(bucket);
        let taken =
            |before| if Form::<W>::INLINE { before & !Form::<W>::taken(way) } else { before };
        line.change(taken, || {
            if !Form::<W>::INLINE {
                line.set_part(way, SIGNATURE, 0);
            }
        });
    }

    /// The ways of `bucket` that are taken; for the writer.
    pub(super) fn taken_in(&self, bucket: usize) -> impl Iterator<Item = usize> + '_ {
        let state = self.line(bucket).state();
        (0..Form::<W>::WAYS).filter(move |way| self.is_taken(bucket, *way, state))
    }

    /// Everything that is taken, as (bucket, way); for the writer.
    pub(super) fn taken(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.buckets()).flat_map(|bucket| self.taken_in(bucket).map(move |way| (bucket, way)))
    }
}
