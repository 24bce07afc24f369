//! Which keys may lie in their second bucket: a help for lookups in large tables.
//!
//! A lookup asks for both buckets of a key before it knows where the key is, or waits
//! twice. Most keys lie in their first bucket; so a bit for each of four hashes a
//! place, set when a key with that hash is put into its second bucket, saves most
//! of the lines that nobody needs (a Bloom filter with one function). It is a help
//! only: what it says decides what is asked for early, and nothing else. Bits are
//! not cleared when keys go, until the table grows.

use super::sync::{AtomicU64, Ordering};
use super::zeroed::Zeroed;

/// Bits for each place of the table.
const BITS_A_PLACE: usize = 4;

/// The bits.
#[derive(Debug)]
pub(super) struct Hints {
    words: Zeroed<AtomicU64>,
    /// The bits of a hash that number its hint.
    mask: u32,
}

impl Hints {
    pub(super) fn new(places: usize) -> std::io::Result<Self> {
        let bits = (places * BITS_A_PLACE).next_power_of_two().clamp(64, 1 << 32);
        // The model checker has nothing to find here.
        let words = if cfg!(loom) { 0 } else { bits / 64 };
        Ok(Self { words: Zeroed::new(words)?, mask: (bits - 1) as u32 })
    }

    /// Notes that a key with `hash` lies in its second bucket; for the writer.
    pub(super) fn set(&self, hash: u32) {
        let at = hash & self.mask;
        if let Some(word) = self.words.get(at as usize / 64) {
            // One writer: nobody stores in between.
            word.store(word.load(Ordering::Relaxed) | 1 << (at % 64), Ordering::Relaxed);
        }
    }

    /// The bits of a hash that number its hint. All are within [`words`](Self::words).
    #[inline(always)]
    pub(super) fn mask(&self) -> u32 {
        self.mask
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}
