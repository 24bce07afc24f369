//! A mask divided into the stages of a search.

use std::ops::Range;

use thalweg_packet::{FlowKey, KEY_WORDS, field};

use crate::hash;

/// Where stages end: after the tunnel and metadata words, the Ethernet and VLAN
/// words, and the words up to IP. The remaining words are of the transport layer. As in
/// Pfaff et al., NSDI 2015, section 5.3.
const STAGE_ENDS: [usize; STAGES] = [
    field::METADATA.word as usize + 1,
    field::VLAN_TCI.word as usize + 1,
    field::IPV6_LABEL.word as usize + 1,
    KEY_WORDS,
];

/// The most stages a mask has.
const STAGES: usize = 4;

/// The words of a mask that are not zero, and the stages they belong to. Stages
/// without a word are left out.
#[derive(Clone, Debug)]
pub(super) struct StagedMask {
    mask: FlowKey,
    words: Vec<(usize, u64)>,
    stages: Vec<Range<usize>>,
}

impl StagedMask {
    pub(super) fn new(mask: FlowKey) -> Self {
        let set = mask.words.iter().copied().enumerate().filter(|(_, w)| *w != 0);
        let words: Vec<_> = set.collect();
        let mut stages = Vec::new();
        let mut start = 0;
        for end in STAGE_ENDS {
            let end = words.partition_point(|(i, _)| *i < end);
            if start < end {
                stages.push(start..end);
            }
            start = end;
        }
        Self { mask, words, stages }
    }

    pub(super) fn mask(&self) -> &FlowKey {
        &self.mask
    }

    /// How many stages have a word.
    pub(super) fn stages(&self) -> usize {
        self.stages.len()
    }

    /// Continues the hash `h` of `key` through `stage`.
    #[inline]
    pub(super) fn fold(&self, h: u64, key: &FlowKey, stage: usize) -> u64 {
        let words = &self.words[self.stages[stage].clone()];
        words.iter().fold(h, |h, &(i, mask)| hash::fold(h, key.words[i] & mask))
    }

    /// The hash of `key` through all stages.
    #[inline]
    pub(super) fn fold_all(&self, key: &FlowKey) -> u64 {
        let words = self.words.iter();
        words.fold(hash::SEED, |h, &(i, mask)| hash::fold(h, key.words[i] & mask))
    }

    /// Adds the bits that the stages up to `last` look at to `mask`.
    pub(super) fn add_stages(&self, last: usize, mask: &mut FlowKey) {
        for &(i, word) in &self.words[..self.stages[last].end] {
            mask.words[i] |= word;
        }
    }

    /// The words of `key` that the mask looks at.
    pub(super) fn pack(&self, key: &FlowKey) -> Box<[u64]> {
        self.words.iter().map(|&(i, mask)| key.words[i] & mask).collect()
    }

    /// Whether `key` has the words `packed`.
    #[inline]
    pub(super) fn matches(&self, packed: &[u64], key: &FlowKey) -> bool {
        self.words.iter().zip(packed).all(|(&(i, mask), word)| key.words[i] & mask == *word)
    }

    /// Whether the bits in `examined` show that `key` has not the words `packed`.
    pub(super) fn differs(&self, packed: &[u64], key: &FlowKey, examined: &FlowKey) -> bool {
        let mut words = self.words.iter().zip(packed);
        words.any(|(&(i, mask), word)| (key.words[i] ^ word) & mask & examined.words[i] != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_the_layers_and_empty_ones_are_left_out() {
        let mut mask = FlowKey::default();
        mask.set(field::IN_PORT, 0xffff);
        mask.set(field::NW_PROTO, 0xff);
        mask.set(field::NW_DST, 0xff00_0000);
        mask.set(field::TP_DST, 0xffff);
        let staged = StagedMask::new(mask);
        assert_eq!(staged.stages(), 3);
        let mut seen = FlowKey::default();
        staged.add_stages(0, &mut seen);
        assert_eq!((seen.get(field::IN_PORT), seen.get(field::NW_PROTO)), (0xffff, 0));
        staged.add_stages(1, &mut seen);
        assert_eq!((seen.get(field::NW_DST), seen.get(field::TP_DST)), (0xff00_0000, 0));
        staged.add_stages(2, &mut seen);
        assert_eq!(seen, mask);
    }
}
