//! Thirty-two keys at a time with AVX-512: `Reader::get_step`.

use thalweg_classify::cuckoo::Walk;

use crate::engine::Tag;
use crate::machine::{Address, LINE, Machine};
use crate::software::Answer;

use super::one::Places;
use super::{KEY, OwnTable, STATE, STEP, word};

/// Keys that a vector works at.
const LANES: usize = 16;
/// Lines from which on first buckets are asked for before they are looked at, and second
/// ones.
const NOT_NEAREST: u64 = (32 << 10) / LINE + 1;
const NOT_NEAR: u64 = (512 << 10) / LINE + 1;
/// Cycles of a permutation, of a move between the halves of a vector, and of a comparison
/// into a mask: assumed.
const PERMUTE: u8 = 4;
const ACROSS: u8 = 3;
const TO_MASK: u8 = 3;

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const GROUPS: u32 = 300;
    pub(super) const HASH: u32 = 301;
    pub(super) const FAR: u32 = 302;
    pub(super) const FIRST: u32 = 303;
    pub(super) const ALL: u32 = 304;
    pub(super) const SECOND: u32 = 305;
    pub(super) const FITS: u32 = 306;
    pub(super) const ABSENT: u32 = 307;
    pub(super) const CURRENT: u32 = 308;
    pub(super) const HASHED: u32 = 309;
    pub(super) const FAR_SECOND: u32 = 310;
}

/// Where things lie on the stack.
mod stack {
    pub(super) const HASHES: u64 = 512;
    pub(super) const SIGNATURES: u64 = 640;
    pub(super) const FIRST: u64 = 768;
    pub(super) const SECOND: u64 = 896;
    /// States before and after, comparisons, values.
    pub(super) const BEFORE: u64 = 1024;
    pub(super) const AFTER: u64 = 1152;
    pub(super) const EQUAL: u64 = 1280;
    pub(super) const VALUES: u64 = 1536;
}

impl OwnTable {
    /// Looks up the keys that lie at `keys`, one after the other.
    ///
    /// # Panics
    /// When there are not [`STEP`] of them.
    pub fn get_step(&self, m: &mut Machine, keys: Address, walks: &[Walk]) -> Vec<Answer> {
        assert_eq!(walks.len(), STEP, "a step has STEP keys");
        self.enter(m);
        let lines = self.lines.bytes() / LINE;
        for group in 0..STEP / LANES {
            m.fused_branch(pc::GROUPS, group == 0, &[]);
            self.places_of_group(m, keys, group);
            m.fused_branch(pc::FAR, lines < NOT_NEAREST, &[]);
            if lines >= NOT_NEAREST {
                let of_group = walks.iter().enumerate().skip(group * LANES).take(LANES);
                of_group.for_each(|(n, walk)| self.ask_for(m, stack::FIRST, n, walk.buckets[0]));
            }
        }
        m.fused_branch(pc::FAR_SECOND, lines < NOT_NEAR, &[]);
        if lines >= NOT_NEAR {
            let all = walks.iter().enumerate();
            all.for_each(|(n, walk)| self.ask_for(m, stack::SECOND, n, walk.buckets[1]));
        }
        let tags = self.find(m, keys, walks);
        let answers = walks.iter().zip(&tags);
        let mut answers: Vec<Answer> =
            answers.map(|(walk, tag)| Answer { tag: *tag, found: walk.found.is_some() }).collect();
        self.absent(m, keys, walks, &mut answers);
        self.restore(m, 0, 6);
        answers
    }

    /// The reader's table, registers, constants.
    fn enter(&self, m: &mut Machine) {
        let shared = m.load(self.reader.at(0), &[]);
        let known = m.load(self.reader.at(8), &[]);
        let current = m.load(self.shared.at(0), &[shared]);
        m.fused_branch(pc::CURRENT, true, &[current, known]);
        self.save(m, 0, 6);
        self.clear(m, stack::SIGNATURES, 6);
        for n in 0..10 {
            m.load(self.core.at(8 * n), &[known]);
        }
        m.alus(24, &[]);
    }

    /// Zeros in `lines` lines of the stack.
    fn clear(&self, m: &mut Machine, from: u64, lines: u64) {
        for n in 0..lines {
            m.store(self.stack.at(from + n * LINE), &[]);
        }
    }

    /// Hashes sixteen keys and finds both buckets of each.
    fn places_of_group(&self, m: &mut Machine, keys: Address, group: usize) {
        m.alus(3, &[]);
        m.fused_branch(pc::HASH, false, &[]);
        m.store(self.stack.at(stack::HASHES), &[]);
        let from = (group * LANES) as u64;
        let rows = [0, 1, 2, 3].map(|n| m.load_line(keys.plus(from * KEY + n * LINE), &[]));
        let hash = murmur3(m, rows);
        m.store(self.stack.at(stack::HASHES), &[hash]);
        m.fused_branch(pc::HASHED, true, &[]);
        let hash = m.load(self.stack.at(stack::HASHES), &[]);
        let first = reduce(m, hash);
        let signature = m.multiply(&[hash]);
        let signature = m.alu(&[signature]);
        let signature = m.slow(PERMUTE, &[signature]);
        let signature = m.alu(&[signature]);
        let halves = [0, 1].map(|_| m.slow(ACROSS, &[signature]));
        m.slow(ACROSS, &[signature]);
        let spread = halves.map(|half| m.multiply(&[half]));
        let sums = spread.map(|half| m.multiply(&[half]));
        let sums = sums.map(|half| m.alu(&[half]));
        let narrow = sums.map(|half| m.slow(PERMUTE, &[half]));
        let sum = m.slow(ACROSS, &narrow);
        let difference = m.alu(&[sum, first]);
        let below = sums.map(|half| m.slow(TO_MASK, &[half, first]));
        let below = m.slow(TO_MASK, &below);
        let second = m.alu(&[difference, below]);
        m.store(self.stack.at(stack::SIGNATURES + 2 * from), &[signature]);
        m.store(self.stack.at(stack::FIRST + 4 * from), &[first]);
        m.store(self.stack.at(stack::SECOND + 4 * from), &[second]);
    }

    /// Prefetches the line whose number is number `n` of those at `numbers`.
    fn ask_for(&self, m: &mut Machine, numbers: u64, n: usize, bucket: u32) {
        let number = self.number(m, numbers, n);
        let offset = m.alu(&[number]);
        m.prefetch(self.line(bucket), &[offset]);
    }

    /// Loads number `n` of those that a vector's store has put at `numbers`.
    fn number(&self, m: &mut Machine, numbers: u64, n: usize) -> Tag {
        // As any part of a vector it comes from the one store, which is noted by its start.
        m.load(self.stack.at(numbers + 4 * (n - n % LANES) as u64), &[])
    }

    /// Looks all up in their first lines, and the rest in their second; when the values
    /// are known.
    fn find(&self, m: &mut Machine, keys: Address, walks: &[Walk]) -> Vec<Tag> {
        self.clear(m, stack::BEFORE, 14);
        m.alus(2, &[]);
        for (n, walk) in walks.iter().enumerate() {
            let number = self.number(m, stack::FIRST, n);
            self.look(m, n, self.line(walk.buckets[0]), number, keys.plus(KEY * n as u64));
            m.alu(&[]);
            m.fused_branch(pc::FIRST, n + 1 < STEP, &[]);
        }
        let masks = [0, LANES].map(|from| {
            let [mask, value] = self.found(m, from);
            m.store(self.stack.at(stack::HASHES + 4 * from as u64), &[value]);
            mask
        });
        let mut all = m.alu(&masks);
        all = m.chain(3, all);
        let rest: Vec<usize> =
            (0..STEP).filter(|n| walks[*n].found.is_none_or(|(bucket, _)| bucket == 1)).collect();
        m.fused_branch(pc::ALL, rest.is_empty(), &[all]);
        let mut known = vec![all; STEP];
        if rest.is_empty() {
            return known;
        }
        let mut left = all;
        for (at, n) in rest.iter().enumerate() {
            m.alus(4, &[left]);
            let number = self.number(m, stack::SECOND, *n);
            let line = self.line(walks[*n].buckets[1]);
            self.look(m, at, line, number, keys.plus(KEY * *n as u64));
            left = m.alu(&[left]);
            m.fused_branch(pc::SECOND, at + 1 < rest.len(), &[left]);
        }
        let second = self.merge(m, rest.len(), all);
        rest.iter().for_each(|n| known[*n] = second);
        known
    }

    /// Looks for a key in a line; the result is number `n`.
    fn look(&self, m: &mut Machine, n: usize, line: Address, number: Tag, key: Address) {
        let offset = m.alu(&[number]);
        let at = m.alu(&[offset]);
        let before = m.load(word(line, STATE), &[at]);
        m.alu(&[]);
        let before = m.alu(&[before]);
        m.store(self.stack.at(stack::BEFORE + 4 * n as u64), &[before]);
        let words = m.load_line(line, &[at]);
        let key = m.load(key, &[]);
        let equal = m.slow(TO_MASK, &[words, key]);
        m.store(self.stack.at(stack::EQUAL + n as u64), &[equal]);
        let values = m.slow(ACROSS, &[words]);
        m.store(self.stack.at(stack::VALUES + KEY * n as u64), &[values]);
        let after = m.load(word(line, STATE), &[at]);
        let after = m.alu(&[after]);
        m.store(self.stack.at(stack::AFTER + 4 * n as u64), &[after]);
    }

    /// What sixteen looks from `from` on have found: as a mask, and the values.
    fn found(&self, m: &mut Machine, from: usize) -> [Tag; 2] {
        let from = from as u64;
        let states =
            [stack::BEFORE, stack::AFTER].map(|at| m.load_line(self.part(at + 4 * from), &[]));
        let equal = m.load_line(self.part(stack::EQUAL + from), &[]);
        let rows = [0, 1, 2, 3]
            .map(|n| m.load_line(self.part(stack::VALUES + KEY * from + LINE * n), &[]));
        let equal = m.chain(2, equal);
        let equal = m.slow(ACROSS, &[equal]);
        let hit = m.alu(&[equal, states[0]]);
        let whole = m.slow(TO_MASK, &states);
        let whole = m.slow(TO_MASK, &[whole]);
        let [first, second, third, _] = columns(m, rows);
        let ways = [0, 1, 2].map(|_| m.alu(&[hit])).map(|way| m.slow(TO_MASK, &[way]));
        let value = m.alu(&[first, second, ways[1]]);
        let value = m.alu(&[value, third, ways[2]]);
        let any = m.alu(&[ways[0], whole]);
        [m.slow(TO_MASK, &[any]), value]
    }

    /// The line of the stack that `at` lies in.
    fn part(&self, at: u64) -> Address {
        self.stack.at(at - at % LINE)
    }

    /// Puts what was found in second lines where its keys are.
    fn merge(&self, m: &mut Machine, rest: usize, all: Tag) -> Tag {
        let [mask, value] = self.found(m, 0);
        let low = m.load(self.stack.at(stack::HASHES), &[]);
        let counts = m.alus(2, &[all]);
        let into = m.slow(TO_MASK, &[all]);
        let low = m.slow(PERMUTE, &[low, into, value]);
        m.store(self.stack.at(stack::HASHES), &[low]);
        m.alus(3, &[counts]);
        let fits = rest <= LANES;
        m.fused_branch(pc::FITS, !fits, &[counts]);
        let [mask, value] = if fits {
            let lanes = m.slow(ACROSS, &[counts]);
            let lanes = m.alu(&[lanes]);
            [m.alu(&[mask]), m.slow(PERMUTE, &[lanes, value])]
        } else {
            self.found(m, LANES)
        };
        let high = m.load(self.stack.at(stack::HASHES + LINE), &[]);
        let into = m.slow(TO_MASK, &[all]);
        let high = m.slow(PERMUTE, &[high, into, value]);
        m.store(self.stack.at(stack::HASHES + LINE), &[high]);
        let bits = m.multiply(&[mask]);
        m.chain(6, bits)
    }

    /// Keys that no line had are searched one by one.
    fn absent(&self, m: &mut Machine, keys: Address, walks: &[Walk], answers: &mut [Answer]) {
        m.alus(8, &[]);
        for (n, walk) in walks.iter().enumerate().filter(|(_, walk)| walk.found.is_none()) {
            m.fused_branch(pc::ABSENT, true, &[answers[n].tag]);
            m.alus(6, &[]);
            let places = [stack::FIRST, stack::SECOND].map(|at| self.number(m, at, n));
            let key = [0, 8].map(|at| m.load(keys.plus(KEY * n as u64 + at), &[]));
            answers[n] = self.search(m, key, Places { buckets: places }, walk);
        }
        m.fused_branch(pc::ABSENT, false, &[answers[0].tag]);
    }
}

/// The columns of sixteen rows of four numbers.
fn columns(m: &mut Machine, rows: [Tag; 4]) -> [Tag; 4] {
    let [a, b, c, d] = rows;
    let mut two = || {
        m.alus(2, &[]);
        let (low, high) = (m.slow(PERMUTE, &[a, b]), m.slow(PERMUTE, &[c, d]));
        [m.slow(ACROSS, &[low, high]), m.slow(ACROSS, &[low, high])]
    };
    let ([first, second], [third, fourth]) = (two(), two());
    [first, second, third, fourth]
}

/// MurmurHash3 of sixteen keys.
fn murmur3(m: &mut Machine, rows: [Tag; 4]) -> Tag {
    let mut hash = Tag::NONE;
    for half in columns(m, rows) {
        let half = m.multiply(&[half]);
        let half = m.alu(&[half]);
        let half = m.multiply(&[half]);
        hash = m.alu(&[hash, half]);
        hash = m.alu(&[hash]);
        let sums = [0, 1].map(|_| m.alu(&[hash]));
        hash = m.alu(&sums);
    }
    let hash = m.chain(2, hash);
    let hash = m.multiply(&[hash]);
    let hash = m.chain(2, hash);
    let hash = m.multiply(&[hash]);
    m.chain(2, hash)
}

/// Sixteen hashes as numbers of buckets.
fn reduce(m: &mut Machine, hash: Tag) -> Tag {
    let halves = [0, 1].map(|_| m.slow(ACROSS, &[hash]));
    let products = halves.map(|half| m.multiply(&[half]));
    let upper = products.map(|product| m.alu(&[product]));
    let narrow = upper.map(|half| m.slow(PERMUTE, &[half]));
    m.slow(ACROSS, &narrow)
}
