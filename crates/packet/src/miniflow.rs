//! The compressed flow key.

use crate::key::{FlowKey, KEY_WORDS};

/// A flow key without its zero words: a bitmap of the words that are present,
/// and those words in order, as in Open vSwitch's `struct miniflow`.
#[derive(Clone, Copy, Debug)]
pub struct MiniFlow {
    bitmap: u32,
    words: [u64; KEY_WORDS],
}

impl From<&FlowKey> for MiniFlow {
    fn from(key: &FlowKey) -> Self {
        let mut mini = Self { bitmap: 0, words: [0; KEY_WORDS] };
        let mut n = 0;
        for (i, &word) in key.words.iter().enumerate().filter(|(_, w)| **w != 0) {
            mini.bitmap |= 1 << i;
            mini.words[n] = word;
            n += 1;
        }
        mini
    }
}
