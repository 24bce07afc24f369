//! Stores that later loads may need.

use crate::calendar::Cycle;
use crate::machine::Address;

/// Words that are remembered.
const WORDS: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    word: u64,
    /// When the data is known.
    known: Cycle,
    /// When it is in the cache.
    drained: Cycle,
}

/// The latest store to each word of eight bytes.
#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    words: Box<[Stored]>,
}

impl StoreBuffer {
    pub(super) fn new() -> Self {
        Self { words: vec![Stored::default(); WORDS].into() }
    }

    pub(super) fn store(&mut self, address: Address, known: Cycle, drained: Cycle) {
        let word = address.word();
        self.words[word as usize % WORDS] = Stored { word, known, drained };
    }

    /// When a load at `now` can take its value from a store: `None` when there is none
    /// that has not reached the cache.
    #[inline]
    pub(super) fn forward(&self, address: Address, now: Cycle) -> Option<Cycle> {
        let stored = self.words[address.word() as usize % WORDS];
        let waits = stored.word == address.word() && stored.drained > now;
        waits.then_some(stored.known)
    }

    /// When a load at `now` of the line that begins at `address` can read what stores to
    /// parts of it have written, which is when all have reached the cache: `None` when
    /// they have.
    #[inline]
    pub(super) fn whole(&self, address: Address, now: Cycle) -> Option<Cycle> {
        let words = (0..8).map(|n| address.word() + n);
        let stored = words.map(|word| (word, self.words[word as usize % WORDS]));
        let waits = stored.filter(|(word, stored)| stored.word == *word && stored.drained > now);
        waits.map(|(_, stored)| stored.drained).max()
    }
}
