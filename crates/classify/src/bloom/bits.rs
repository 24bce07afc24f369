//! The view of a filter that every kernel uses, and the scalar reference.

use super::hash::{Hashes, Reduction};

/// A filter's bits and hash functions. Positions that [`Reduction`] gives lie within
/// the words: the vector forms' gathers rest on that.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    // Private: `new` has compared the words with the range.
    words: &'a [u32],
    reduction: Reduction,
    hashes: &'a Hashes,
}

/// The keys and payloads to look up.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) keys: &'a [u32],
    pub(super) payloads: &'a [u32],
}

/// Where the qualifying keys and payloads go; at least as long as the input.
pub(super) struct Output<'a> {
    pub(super) keys: &'a mut [u32],
    pub(super) payloads: &'a mut [u32],
}

impl<'a> Bits<'a> {
    /// # Panics
    /// When there are fewer words than the range has bits.
    pub(super) fn new(words: &'a [u32], reduction: Reduction, hashes: &'a Hashes) -> Self {
        assert!(reduction.range() <= words.len() as u64 * 32, "too few words");
        Self { words, reduction, hashes }
    }

    /// At least as many as `reduction().range()` bits.
    #[inline]
    pub(super) fn words(&self) -> &'a [u32] {
        self.words
    }

    #[inline]
    pub(super) fn reduction(&self) -> Reduction {
        self.reduction
    }

    #[inline]
    pub(super) fn hashes(&self) -> &'a Hashes {
        self.hashes
    }

    /// Whether the bits of the functions from `first` on are set for `key`.
    #[inline]
    pub(super) fn contains_from(&self, first: usize, key: u32) -> bool {
        (first..self.hashes.count).all(|n| {
            let position = self.reduction.reduce(self.hashes.hash(n, key));
            self.words[position as usize / 32] >> (position % 32) & 1 == 1
        })
    }
}

impl<'a> Input<'a> {
    /// # Panics
    /// When there are not as many payloads as keys.
    pub(super) fn new(keys: &'a [u32], payloads: &'a [u32]) -> Self {
        assert_eq!(keys.len(), payloads.len(), "each key has a payload");
        Self { keys, payloads }
    }
}

impl<'a> Output<'a> {
    /// Cuts both slices to the length of the input.
    ///
    /// # Panics
    /// When one is shorter.
    pub(super) fn new(input: Input, keys: &'a mut [u32], payloads: &'a mut [u32]) -> Self {
        let len = input.keys.len();
        assert!(keys.len() >= len && payloads.len() >= len, "no room for {len} results");
        Self { keys: &mut keys[..len], payloads: &mut payloads[..len] }
    }

    /// Writes one pair at `at`.
    #[inline]
    pub(super) fn put(&mut self, at: usize, key: u32, payload: u32) {
        self.keys[at] = key;
        self.payloads[at] = payload;
    }

    /// Moves `count` pairs from `from` down to `to`.
    pub(super) fn move_down(&mut self, from: usize, count: usize, to: usize) {
        if from != to {
            self.keys.copy_within(from..from + count, to);
            self.payloads.copy_within(from..from + count, to);
        }
    }
}

/// The reference lookup: key by key, in order.
pub(super) fn scalar(bits: &Bits, input: Input, output: &mut Output) -> usize {
    let mut found = 0;
    for (key, payload) in input.keys.iter().zip(input.payloads) {
        if bits.contains_from(0, *key) {
            output.put(found, *key, *payload);
            found += 1;
        }
    }
    found
}
