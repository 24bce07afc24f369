//! One bucket: a cache line that one thread writes and others read.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Places of a bucket; few for the model checker, which tries all orders of all steps.
pub(super) const WAYS: usize = if cfg!(loom) { 2 } else { 8 };
/// Signatures in one word, and words of signatures.
const IN_WORD: usize = 4;
const WORDS: usize = WAYS.div_ceil(IN_WORD);
/// Nothing lies here; no signature is 0.
pub(super) const EMPTY: u16 = 0;

/// Signatures and numbers of entries, under a version that is odd while they are
/// written.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    version: AtomicU32,
    /// Eight signatures of 16 bits, the first in the lowest bits.
    signatures: [AtomicU64; WORDS],
    entries: [AtomicU32; WAYS],
}

/// The signatures of a bucket at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signatures([u64; WORDS]);

impl Signatures {
    /// The ways that have `signature`, as bits.
    #[inline]
    pub(super) fn equal(self, signature: u16) -> u32 {
        let words = self.0.iter().enumerate();
        let all = words.fold(0, |ways, (i, word)| ways | equal(*word, signature) << (i * IN_WORD));
        all & ((1 << WAYS) - 1)
    }

    /// The signature of `way`.
    #[inline]
    pub(super) fn get(self, way: usize) -> u16 {
        (self.0[way / IN_WORD] >> (way % IN_WORD * 16)) as u16
    }
}

/// Which of the four numbers of 16 bits in `word` are `signature`, as bits: all four
/// are compared at once.
#[inline]
fn equal(word: u64, signature: u16) -> u32 {
    const ONES: u64 = 0x0001_0001_0001_0001;
    const HIGH: u64 = ONES << 15;
    let difference = word ^ (u64::from(signature) * ONES);
    // The high bit of each number that is not zero; no carry leaves a number.
    let other = ((difference & !HIGH) + !HIGH) | difference;
    let same = (!other & HIGH) >> 15;
    // Moves bits 0, 16, 32 and 48 to 48, 49, 50 and 51.
    (same.wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48) as u32 & 0xf
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self {
            version: AtomicU32::new(0),
            signatures: std::array::from_fn(|_| AtomicU64::new(0)),
            entries: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Begins a read; `None` while the bucket is written.
    #[inline]
    pub(super) fn version(&self) -> Option<u32> {
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Whether nothing was written since a read began at `version`. What was read
    /// in between is then of one moment.
    #[inline]
    pub(super) fn is_still(&self, version: u32) -> bool {
        // The reads before must not come after the load.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    #[inline]
    pub(super) fn signatures(&self) -> Signatures {
        Signatures(std::array::from_fn(|i| self.signatures[i].load(Ordering::Relaxed)))
    }

    #[inline]
    pub(super) fn entry(&self, way: usize) -> u32 {
        self.entries[way].load(Ordering::Relaxed)
    }

    /// Writes one place; for the one writer.
    pub(super) fn set(&self, way: usize, signature: u16, entry: u32) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // The writes that follow must not come before the store.
        fence(Ordering::Release);
        let (word, shift) = (&self.signatures[way / IN_WORD], way % IN_WORD * 16);
        let others = word.load(Ordering::Relaxed) & !(0xffff << shift);
        word.store(others | u64::from(signature) << shift, Ordering::Relaxed);
        self.entries[way].store(entry, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}
