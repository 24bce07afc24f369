//! Sets of rules, by packet.
//!
//! A pattern that many rules share, such as four zeros, chooses many rules for a packet, of which its
//! header suits few. Sets of bits keep the rules in order and unite patterns without sorting; only the
//! words that hold rules are touched.

use thalweg_packet::{BATCH, Lanes};

use super::heads::{Suiting, ones};

/// Rules that belong together, such as those of a pattern: numbers of words with their bits, in order.
#[derive(Debug, Default)]
pub(super) struct RuleSet(Vec<(u32, u64)>);

#[cfg(test)]
impl RuleSet {
    /// The rules, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let rules = |(word, bits): &(u32, u64)| {
            let first = word * u64::BITS;
            ones(*bits).map(move |bit| first + bit as u32)
        };
        self.0.iter().flat_map(rules)
    }
}

impl FromIterator<u32> for RuleSet {
    /// The rules have to be in order.
    fn from_iter<T: IntoIterator<Item = u32>>(rules: T) -> Self {
        let mut words: Vec<(u32, u64)> = Vec::new();
        for rule in rules {
            let (word, bit) = (rule / u64::BITS, 1 << (rule % u64::BITS));
            match words.last_mut() {
                Some((last, bits)) if *last == word => *bits |= bit,
                _ => words.push((word, bit)),
            }
        }
        Self(words)
    }
}

/// The rules chosen for each packet of a batch; reused.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// By lane, a bit for each rule; all 0 where nothing is chosen.
    bits: Vec<u64>,
    /// By lane, a bit for each of its words that is not 0.
    touched: Vec<u64>,
    /// Words of `bits` and of `touched` per lane.
    words: [usize; 2],
    /// Lanes with rules.
    lanes: Lanes,
}

impl Chosen {
    /// Makes room for the numbers of `rules` rules; nothing is chosen then.
    pub(super) fn begin(&mut self, rules: usize) {
        let words = rules.div_ceil(u64::BITS as usize);
        let words = [words, words.div_ceil(u64::BITS as usize)];
        if words != self.words {
            self.words = words;
            for (sets, words) in [(&mut self.bits, words[0]), (&mut self.touched, words[1])] {
                sets.clear();
                sets.resize(BATCH * words, 0);
            }
        }
    }

    /// Chooses rules for the packet of a lane.
    #[inline]
    pub(super) fn add(&mut self, lane: usize, rules: &RuleSet) {
        for (word, bits) in &rules.0 {
            self.add_word(lane, *word as usize, *bits);
        }
    }

    /// Chooses one rule for the packet of a lane.
    #[inline]
    pub(super) fn add_rule(&mut self, lane: usize, rule: u32) {
        self.add_word(lane, (rule / u64::BITS) as usize, 1 << (rule % u64::BITS));
    }

    #[inline]
    fn add_word(&mut self, lane: usize, word: usize, bits: u64) {
        let [words, summaries] = self.words;
        self.bits[lane * words + word] |= bits;
        self.touched[lane * summaries + word / 64] |= 1 << (word % 64);
        self.lanes.insert(lane);
    }

    /// The lanes with rules.
    pub(super) fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// Takes the rules of a lane, and passes those that `suiting` has to `tell`, in order.
    #[inline]
    pub(super) fn take(
        &mut self,
        lane: usize,
        suiting: Option<Suiting<'_>>,
        mut tell: impl FnMut(u32),
    ) {
        self.lanes.remove(lane);
        let [words, summaries] = self.words;
        let bits = &mut self.bits[lane * words..][..words];
        let touched = &mut self.touched[lane * summaries..][..summaries];
        for (n, touched) in touched.iter_mut().enumerate() {
            for word in ones(std::mem::take(touched)).map(|bit| 64 * n + bit) {
                let suit = suiting.map_or(u64::MAX, |suiting| suiting.word(word));
                let rules = std::mem::take(&mut bits[word]) & suit;
                ones(rules).for_each(|bit| tell((64 * word + bit) as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_chosen_is_taken_once_and_in_order(
            batches in proptest::collection::vec(proptest::collection::vec(
                (0..BATCH, proptest::collection::btree_set(0u32..9000, 0..40)), 0..12), 1..4),
        ) {
            let mut chosen = Chosen::default();
            for sets in batches {
                chosen.begin(9000);
                let mut expected = vec![BTreeSet::new(); BATCH];
                for (lane, rules) in sets {
                    chosen.add(lane, &rules.iter().copied().collect());
                    expected[lane].extend(rules);
                }
                for (lane, expected) in expected.into_iter().enumerate() {
                    prop_assert_eq!(chosen.lanes().contains(lane), !expected.is_empty());
                    let mut rules = Vec::new();
                    chosen.take(lane, None, |rule| rules.push(rule));
                    prop_assert!(rules.into_iter().eq(expected));
                }
            }
        }
    }
}
