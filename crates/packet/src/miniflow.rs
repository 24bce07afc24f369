//! The compressed flow key.

use std::hash::{Hash, Hasher};

use crate::key::{FlowKey, KEY_WORDS};

/// A flow key without its zero words: a bitmap of the words that are present,
/// and those words in order, as in Open vSwitch's `struct miniflow`.
#[derive(Clone, Copy, Debug)]
pub struct MiniFlow {
    bitmap: u32,
    words: [u64; KEY_WORDS],
}

impl MiniFlow {
    /// Bit `i` is set when word `i` of the key is present.
    #[inline]
    pub fn bitmap(&self) -> u32 {
        self.bitmap
    }

    /// The present words, in the order of the key.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.bitmap.count_ones() as usize]
    }

    /// Word `i` of the key; 0 when absent.
    #[inline]
    pub fn get(&self, i: usize) -> u64 {
        let Some(bit) = 1u32.checked_shl(i as u32) else { return 0 };
        if self.bitmap & bit == 0 {
            return 0;
        }
        self.words[(self.bitmap & (bit - 1)).count_ones() as usize]
    }
}

impl From<&FlowKey> for MiniFlow {
    fn from(key: &FlowKey) -> Self {
        let mut mini = Self { bitmap: 0, words: [0; KEY_WORDS] };
        let mut n = 0;
        for (i, &word) in key.words.iter().enumerate() {
            // Written always and kept only when present: no branch to miss.
            mini.words[n] = word;
            mini.bitmap |= u32::from(word != 0) << i;
            n += usize::from(word != 0);
        }
        mini
    }
}

impl From<&MiniFlow> for FlowKey {
    fn from(mini: &MiniFlow) -> Self {
        Self { words: std::array::from_fn(|i| mini.get(i)) }
    }
}

impl PartialEq for MiniFlow {
    fn eq(&self, other: &Self) -> bool {
        self.bitmap == other.bitmap && self.words() == other.words()
    }
}

impl Eq for MiniFlow {}

impl Hash for MiniFlow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bitmap.hash(state);
        self.words().hash(state);
    }
}
