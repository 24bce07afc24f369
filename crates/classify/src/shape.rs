//! A mask, prepared for hashing and comparing keys under it.

use thalweg_packet::{FlowKey, KEY_WORDS};

use crate::hash;

/// A mask and which of its words are not zero: only those are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    mask: FlowKey,
    words: [u8; KEY_WORDS],
    count: u8,
}

impl Shape {
    pub(crate) fn new(mask: FlowKey) -> Self {
        let mut words = [0; KEY_WORDS];
        let mut count = 0;
        for (i, _) in mask.words.iter().enumerate().filter(|(_, w)| **w != 0) {
            words[count] = i as u8;
            count += 1;
        }
        Self { mask, words, count: count as u8 }
    }

    pub(crate) fn mask(&self) -> &FlowKey {
        &self.mask
    }

    /// The hash of `key` under the mask.
    #[inline]
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        self.words[..self.count as usize].iter().fold(hash::SEED, |h, &i| {
            let i = i as usize;
            hash::fold(h, key.words[i] & self.mask.words[i])
        })
    }

    /// Whether `key` under the mask is `masked`.
    #[inline]
    pub(crate) fn equal(&self, masked: &FlowKey, key: &FlowKey) -> bool {
        self.words[..self.count as usize].iter().all(|&i| {
            let i = i as usize;
            masked.words[i] == key.words[i] & self.mask.words[i]
        })
    }
}
