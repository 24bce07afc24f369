//! One key at a time: `Reader::get`.

use thalweg_classify::cuckoo::Walk;

use crate::engine::Tag;
use crate::machine::{Address, Machine};
use crate::software::{Answer, KeyAt};

use super::{OwnTable, STATE, VALUES, WAYS, word};

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const CURRENT: u32 = 200;
    pub(super) const HASH: u32 = 201;
    pub(super) const JUMP: u32 = 202;
    pub(super) const BOUNDS: u32 = 203;
    pub(super) const RETURN: u32 = 204;
    /// Four of them.
    pub(super) const WHOLE: u32 = 205;
    pub(super) const VALUE_BOUNDS: u32 = 209;
    /// And one for each place of both buckets.
    pub(super) const FREE: u32 = 210;
    pub(super) const FIRST_WORD: u32 = 220;
    pub(super) const SECOND_WORD: u32 = 230;
}

/// Where a key is looked for, as values of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) buckets: [Tag; 2],
}

impl OwnTable {
    /// Looks one key up.
    pub fn get(&self, m: &mut Machine, key: KeyAt, walk: &Walk) -> Answer {
        self.save(m, 0, 3);
        m.alus(2, &[]);
        // Is the table that the reader knows still the table?
        let shared = m.load(self.reader.at(0), &[]);
        let known = m.load(self.reader.at(8), &[]);
        m.alu(&[known]);
        let current = m.load(self.shared.at(0), &[shared]);
        m.fused_branch(pc::CURRENT, true, &[current, known]);
        m.alu(&[]);
        let kind = m.load(self.core.at(0), &[known]);
        m.fused_branch(pc::HASH, true, &[kind]);
        let words = [0, 8].map(|at| m.load(key.address.plus(at), &[key.from]));
        let hash = self.hash(m, words, known);
        m.fused_branch(pc::JUMP, true, &[]);
        let places = self.places(m, hash, known);
        m.alus(2, &[]);
        let answer = self.search(m, words, places, walk);
        m.alu(&[]);
        self.restore(m, 0, 3);
        answer
    }

    pub(super) fn save(&self, m: &mut Machine, from: u64, registers: u64) {
        for n in from..from + registers {
            m.store(self.stack.at(8 * n), &[]);
        }
    }

    pub(super) fn restore(&self, m: &mut Machine, from: u64, registers: u64) {
        for n in from..from + registers {
            m.load(self.stack.at(8 * n), &[]);
        }
        m.fused_branch(pc::RETURN, true, &[]);
    }

    /// MurmurHash3 of the four halves.
    fn hash(&self, m: &mut Machine, words: [Tag; 2], known: Tag) -> Tag {
        let mut hash = m.load(self.core.at(8), &[known]);
        for n in 0..4 {
            let mut half = words[n / 2];
            if n % 2 == 1 {
                half = m.alu(&[half]);
                half = m.alu(&[half]);
            }
            let half = m.multiply(&[half]);
            let half = m.alu(&[half]);
            let half = m.multiply(&[half]);
            hash = m.alu(&[hash, half]);
            hash = m.chain(3, hash);
        }
        m.alu(&[hash]);
        let hash = m.chain(3, hash);
        let hash = m.multiply(&[hash]);
        m.alu(&[hash]);
        let hash = m.chain(2, hash);
        let hash = m.multiply(&[hash]);
        m.alu(&[hash]);
        m.chain(2, hash)
    }

    /// Both buckets, each by two multiplications of the hash.
    fn places(&self, m: &mut Machine, hash: Tag, known: Tag) -> Places {
        let buckets = m.load(self.core.at(16), &[known]);
        m.alus(3, &[hash]);
        let first = m.multiply(&[hash, buckets]);
        let first = m.alu(&[first]);
        let signature = m.multiply(&[hash]);
        let signature = m.chain(4, signature);
        m.alu(&[]);
        let sum = m.multiply(&[signature]);
        let sum = m.multiply(&[sum, buckets]);
        let sum = m.alu(&[sum]);
        let difference = m.alu(&[sum]);
        let difference = m.alu(&[difference, first]);
        m.alu(&[]);
        let below = m.alu(&[sum, first]);
        let more = m.alu(&[below, buckets]);
        let second = m.alu(&[difference, more]);
        Places { buckets: [first, second] }
    }

    /// Searches both buckets; no thread writes at the same time.
    pub(super) fn search(
        &self,
        m: &mut Machine,
        key: [Tag; 2],
        places: Places,
        walk: &Walk,
    ) -> Answer {
        self.save(m, 4, 5);
        m.alus(2, &[]);
        let length = m.load(self.core.at(24), &[]);
        let at = m.load(self.core.at(32), &[]);
        let base = m.load(self.core.at(40), &[]);
        let base = m.alu(&[base, at]);
        let lines = places.buckets.map(|bucket| {
            m.fused_branch(pc::BOUNDS, false, &[bucket, length]);
            m.alu(&[bucket]);
            let offset = m.alu(&[bucket]);
            m.alu(&[offset, base])
        });
        m.fused_branch(pc::JUMP, true, &[]);
        let at = walk.buckets.map(|bucket| self.line(bucket));
        let states = [0, 1].map(|n| m.load(word(at[n], STATE), &[lines[n]]));
        m.chain(2, states[0]);
        let found =
            [0, 1].into_iter().any(|n| in_line(m, n, at[n], lines[n], states[n], key, walk));
        let tag = if found { self.value(m, walk, lines, length) } else { m.alu(&[]) };
        // Were both as they are at one moment?
        for n in [0, 1] {
            let after = m.load(word(at[n], STATE), &[lines[n]]);
            m.fused_branch(pc::WHOLE + 2 * n as u32, n == 0, &[states[n]]);
            let differs = m.alu(&[after, states[n]]);
            m.fused_branch(pc::WHOLE + 2 * n as u32 + 1, false, &[differs]);
        }
        m.alus(2, &[]);
        self.restore(m, 4, 5);
        Answer { tag, found }
    }

    /// The value of the place that has the key.
    fn value(&self, m: &mut Machine, walk: &Walk, lines: [Tag; 2], length: Tag) -> Tag {
        let (bucket, way) = walk.found.expect("it was found");
        m.fused_branch(pc::VALUE_BOUNDS, false, &[length]);
        m.chain(2, Tag::NONE);
        let offset = m.chain(2, Tag::NONE);
        let value = word(self.line(walk.buckets[bucket]), VALUES + way as u64 / 2);
        let value = m.load(value, &[lines[bucket], offset]);
        m.alu(&[]);
        let value = m.alu(&[value]);
        m.alu(&[]);
        value
    }
}

/// Place after place of line `n` until one has the key; whether one has.
fn in_line(
    m: &mut Machine,
    n: usize,
    at: Address,
    line: Tag,
    state: Tag,
    key: [Tag; 2],
    walk: &Walk,
) -> bool {
    if n == 1 {
        m.chain(2, state);
    }
    for way in 0..WAYS {
        let place = (WAYS * n + way) as u32;
        let taken = walk.taken[n] >> way & 1 == 1;
        m.fused_branch(pc::FREE + place, !taken, &[state]);
        if !taken {
            continue;
        }
        let here = walk.found == Some((n, way));
        let first = m.load(word(at, 2 * way as u64), &[line]);
        m.fused_branch(pc::FIRST_WORD + place, !here, &[first, key[0]]);
        if here {
            let second = m.load(word(at, 2 * way as u64 + 1), &[line]);
            m.alus(2, &[]);
            m.fused_branch(pc::SECOND_WORD + place, true, &[second, key[1]]);
            return true;
        }
    }
    false
}
