//! All patterns of one mask.

use thalweg_packet::{FlowKey, PacketType};

use super::fields::{FIELDS, TRACKED};
use super::hash_trie::{HashTrie, Item};
use super::stages::StagedMask;
use crate::hash;
use crate::rule::Rank;

/// A rule's rank and the type it gives.
pub(super) type Ranked = (Rank, PacketType);

/// The entries of subtables up to this size are compared with the key one by one, to
/// see whether the bits already looked at rule them all out.
const FEW: usize = 8;

/// The patterns of one mask, and the rules that have them.
#[derive(Clone, Debug)]
pub(super) struct Subtable {
    staged: StagedMask,
    entries: HashTrie<Entry>,
    /// For each stage but the last: the hashes of the entries' words up to there.
    known: Vec<HashTrie<Count>>,
}

/// A pattern and the rules that have it; there is always one.
#[derive(Clone, Debug)]
struct Entry {
    words: Box<[u64]>,
    best: Ranked,
    /// Further rules of the same pattern, best first; none of them can win.
    others: Vec<Ranked>,
}

/// How many entries have the same hash up to some stage.
#[derive(Clone, Copy, Debug)]
struct Count(u32);

impl Item for Entry {
    type Weight = Rank;
    fn weight(&self) -> Rank {
        self.best.0
    }
}

impl Item for Count {
    type Weight = ();
    fn weight(&self) {}
}

/// The effect of adding or removing a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The subtable has, or had, the pattern by another rule too.
    Rules,
    /// The pattern itself is new, or was removed.
    Pattern,
    /// There was nothing to do.
    Nothing,
}

/// How far a search got.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reached {
    /// It found this entry.
    Match(Ranked),
    /// No pattern has the key's bits up to this stage.
    Stage(usize),
}

impl Subtable {
    pub(super) fn new(mask: FlowKey) -> Self {
        let staged = StagedMask::new(mask);
        let known = vec![HashTrie::default(); staged.stages().saturating_sub(1)];
        Self { staged, entries: HashTrie::default(), known }
    }

    pub(super) fn mask(&self) -> &FlowKey {
        self.staged.mask()
    }

    /// The best rank of any rule; `None` when there are none.
    pub(super) fn best(&self) -> Option<Rank> {
        self.entries.least()
    }

    /// How many bits of each tracked field the mask begins with.
    pub(super) fn prefix_lens(&self) -> [u8; FIELDS] {
        TRACKED.map(|field| field.prefix_len(self.mask()))
    }

    /// Adds a rule of the pattern `value`.
    pub(super) fn insert(&mut self, value: &FlowKey, rule: Ranked) -> Change {
        let staged = &self.staged;
        let mut result = Change::Rules;
        let hash = hash_all(staged, value);
        let is = |e: &Entry| staged.matches(&e.words, value);
        let known = self.entries.change(hash, is, |entry| {
            if !entry.add(rule) {
                result = Change::Nothing;
            }
            true
        });
        if known {
            return result;
        }
        let entry = Entry { words: staged.pack(value), best: rule, others: Vec::new() };
        self.entries.insert(hash, entry);
        let mut hash = hash::SEED;
        for (stage, known) in self.known.iter_mut().enumerate() {
            hash = staged.fold(hash, value, stage);
            let counted = known.change(
                hash,
                |_| true,
                |count| {
                    count.0 += 1;
                    true
                },
            );
            if !counted {
                known.insert(hash, Count(1));
            }
        }
        Change::Pattern
    }

    /// Removes the rule of the pattern `value` that has `rank`.
    pub(super) fn remove(&mut self, value: &FlowKey, rank: Rank) -> Change {
        let staged = &self.staged;
        let mut result = Change::Nothing;
        let is = |e: &Entry| staged.matches(&e.words, value);
        self.entries.change(hash_all(staged, value), is, |entry| {
            result = entry.take(rank);
            result != Change::Pattern
        });
        if result == Change::Pattern {
            let mut hash = hash::SEED;
            for (stage, known) in self.known.iter_mut().enumerate() {
                hash = staged.fold(hash, value, stage);
                known.change(
                    hash,
                    |_| true,
                    |count| {
                        count.0 -= 1;
                        count.0 > 0
                    },
                );
            }
        }
        result
    }

    /// Searches stage by stage.
    pub(super) fn search(&self, key: &FlowKey) -> Reached {
        let mut hash = hash::SEED;
        for (stage, known) in self.known.iter().enumerate() {
            hash = self.staged.fold(hash, key, stage);
            if known.find(hash, |_| true).is_none() {
                return Reached::Stage(stage);
            }
        }
        let last = self.known.len();
        if last < self.staged.stages() {
            hash = self.staged.fold(hash, key, last);
        }
        let found = self.entries.find(hash, |e| self.staged.matches(&e.words, key));
        found.map_or(Reached::Stage(last), |e| Reached::Match(e.best))
    }

    /// The best rule whose pattern `key` has.
    pub(super) fn find(&self, key: &FlowKey) -> Option<Ranked> {
        let hash = hash_all(&self.staged, key);
        self.entries.find(hash, |e| self.staged.matches(&e.words, key)).map(|e| e.best)
    }

    /// Adds the bits examined by a search that got as far as `reached`.
    pub(super) fn add_examined(&self, reached: Reached, mask: &mut FlowKey) {
        match reached {
            Reached::Match(_) => *mask = mask.union(self.mask()),
            Reached::Stage(stage) => self.staged.add_stages(stage, mask),
        }
    }

    /// How many bits the mask has that `examined` has not.
    pub(super) fn bits_beyond(&self, examined: &FlowKey) -> u32 {
        let words = self.mask().words.iter().zip(&examined.words);
        words.map(|(mask, examined)| (mask & !examined).count_ones()).sum()
    }

    /// Whether `examined` has all bits that a search looks at, which finds nothing.
    pub(super) fn is_shown_to_fail(&self, key: &FlowKey, examined: &FlowKey) -> bool {
        let mut all = *examined;
        self.add_examined(self.search(key), &mut all);
        all == *examined
    }

    /// Whether the bits in `examined` alone show that `key` has none of the
    /// patterns. Only for subtables of few entries: many would take long.
    pub(super) fn is_ruled_out(&self, key: &FlowKey, examined: &FlowKey) -> bool {
        let differs = |e: &Entry| self.staged.differs(&e.words, key, examined);
        self.entries.len() <= FEW && self.entries.all(differs)
    }
}

impl Entry {
    /// Adds `rule`, unless it is there.
    fn add(&mut self, mut rule: Ranked) -> bool {
        if rule.0 == self.best.0 {
            return false;
        }
        if rule < self.best {
            std::mem::swap(&mut self.best, &mut rule);
        }
        let place = self.others.binary_search(&rule);
        if let Err(at) = place {
            self.others.insert(at, rule);
        }
        place.is_err()
    }

    /// Removes the rule of `rank`.
    fn take(&mut self, rank: Rank) -> Change {
        if rank != self.best.0 {
            let before = self.others.len();
            self.others.retain(|(r, _)| *r != rank);
            return if self.others.len() < before { Change::Rules } else { Change::Nothing };
        }
        if self.others.is_empty() {
            return Change::Pattern;
        }
        self.best = self.others.remove(0);
        Change::Rules
    }
}

fn hash_all(staged: &StagedMask, key: &FlowKey) -> u64 {
    staged.fold_all(key)
}
