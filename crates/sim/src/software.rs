//! Software lookups as programs of micro-operations.
//!
//! After `rte_hash` of DPDK 22.11 with the Jenkins hash (`rte_jhash`), compiled by gcc 12
//! at -O3 with SSE2: the steps, their loads and stores, and what each needs are those of
//! its code, in our words. Branches follow the data.

use crate::config::Method;
use crate::engine::Tag;
use crate::machine::{Address, Machine, Region};
use crate::table::{HashTable, WAYS, Walk};

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const ARGUMENTS: u32 = 100;
    pub(super) const HASH_CALL: u32 = 101;
    pub(super) const HASH_LOOP: u32 = 102;
    pub(super) const HASH_TAIL: u32 = 103;
    pub(super) const RETURN: u32 = 104;
    pub(super) const COMPARE_CALL: u32 = 105;
    pub(super) const EQUAL: u32 = 106;
    pub(super) const OCCUPIED: u32 = 107;
    pub(super) const CHANGED: u32 = 108;
    pub(super) const EXTENSION: u32 = 109;
    pub(super) const BULK_FIRST: u32 = 110;
    pub(super) const BULK_SECOND: u32 = 111;
    pub(super) const BULK_LOOP: u32 = 112;
    pub(super) const ENTRIES: u32 = 113;
    /// And one for each choice: the entries of a bucket are compared in a loop.
    pub(super) const SIGNATURE: u32 = 120;
}

/// A key in memory.
#[derive(Clone, Copy, Debug)]
pub struct KeyAt {
    /// Where.
    pub address: Address,
    /// The value that its address depends on.
    pub from: Tag,
}

/// The result of a lookup: the value, and whether there is one.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When it is known, as a value others can name.
    pub tag: Tag,
    /// Whether the key was there.
    pub found: bool,
}

/// The program: it needs a stack.
#[derive(Clone, Copy, Debug)]
pub struct Software {
    stack: Region,
}

/// The running hash.
type Abc = [Tag; 3];

impl Software {
    /// A program with `stack` to save registers to.
    pub fn new(stack: Region) -> Self {
        Self { stack }
    }

    /// Looks one key up.
    ///
    /// # Panics
    /// When `method` is not software that looks up one key at a time.
    pub fn lookup(
        &self,
        m: &mut Machine,
        table: &HashTable,
        key: KeyAt,
        walk: &Walk,
        method: Method,
    ) -> Answer {
        assert!(matches!(method, Method::Scalar | Method::LockFree | Method::ReadLock));
        self.save(m, 0, 6);
        m.branch(pc::ARGUMENTS, false, &[]);
        let hash = self.hash(m, table, key);
        if method == Method::ReadLock {
            m.locked(table.metadata(2), &[]);
        }
        self.save(m, 6, 6);
        let (signature, lines) = self.places(m, table, hash, walk.buckets.len());
        let counter =
            if method == Method::LockFree { m.load(table.metadata(1), &[]) } else { Tag::NONE };
        let tag = self.search(m, table, key, walk, signature, &lines);
        if !walk.found {
            // The chain of extension buckets is empty; was nothing changed meanwhile?
            let extension = m.load(table.metadata(0), &[]);
            m.branch(pc::EXTENSION, false, &[extension]);
            if method == Method::LockFree {
                let after = m.load(table.metadata(1), &[]);
                m.branch(pc::CHANGED, false, &[counter, after]);
            }
        }
        if method == Method::ReadLock {
            m.locked(table.metadata(2), &[]);
        }
        self.restore(m, 16);
        Answer { tag, found: walk.found }
    }

    fn save(&self, m: &mut Machine, from: u64, registers: u64) {
        for n in from..from + registers {
            m.store(self.stack.at(8 * n), &[]);
        }
    }

    fn reload(&self, m: &mut Machine, values: u64) {
        for n in 0..values {
            m.load(self.stack.at(320 + 8 * n), &[]);
        }
    }

    fn restore(&self, m: &mut Machine, registers: u64) {
        for n in 0..registers {
            m.load(self.stack.at(8 * n), &[]);
        }
        m.branch(pc::RETURN, true, &[]);
    }

    /// The Jenkins hash of the key: three words a round.
    fn hash(&self, m: &mut Machine, table: &HashTable, key: KeyAt) -> Tag {
        let function = m.load(table.metadata(0), &[]);
        let length = m.load(table.metadata(0).plus(8), &[]);
        m.alus(3, &[]);
        m.indirect(pc::HASH_CALL, 1, &[function]);
        let start = m.chain(2, length);
        let mut abc = [start; 3];
        let (mut left, mut at) = (table.key_bytes(), 0);
        while left > 12 {
            for word in &mut abc {
                let loaded = m.load(key.address.plus(at), &[key.from]);
                *word = m.alu(&[*word, loaded]);
                at += 4;
            }
            abc = mix(m, abc);
            left -= 12;
            m.alu(&[]);
            m.branch(pc::HASH_LOOP, left > 12, &[]);
        }
        // A jump by the number of bytes left.
        let target = m.load(self.stack.at(256), &[]);
        m.alu(&[target]);
        m.indirect(pc::HASH_TAIL, left as u32, &[target]);
        for word in abc.iter_mut().take(left.div_ceil(4) as usize) {
            let loaded = m.load(key.address.plus(at), &[key.from]);
            *word = m.alu(&[*word, loaded]);
            at += 4;
        }
        finish(m, abc)
    }

    /// Signature and the addresses of the buckets.
    fn places(
        &self,
        m: &mut Machine,
        table: &HashTable,
        hash: Tag,
        choices: usize,
    ) -> (Tag, Vec<Tag>) {
        let mask = m.load(table.metadata(0).plus(16), &[]);
        let buckets = m.load(table.metadata(0).plus(24), &[]);
        let signature = m.alu(&[hash]);
        let first = m.alu(&[hash, mask]);
        let mut lines = vec![m.chain(2, first)];
        m.alu(&[buckets]);
        if choices == 2 {
            let second = m.alu(&[first, signature]);
            let second = m.alu(&[second, mask]);
            lines.push(m.chain(2, second));
        }
        // What was put aside over the call: the handle, the key, where the value goes.
        self.reload(m, 6);
        m.alus(6, &[]);
        (signature, lines)
    }

    /// Both buckets, entry by entry, until the key is found.
    fn search(
        &self,
        m: &mut Machine,
        table: &HashTable,
        key: KeyAt,
        walk: &Walk,
        signature: Tag,
        lines: &[Tag],
    ) -> Tag {
        let mut candidates = walk.candidates.iter().peekable();
        for (choice, (bucket, line)) in walk.buckets.iter().zip(lines).enumerate() {
            let address = table.bucket(*bucket);
            for way in 0..WAYS {
                let loaded = m.load(address.plus(2 * way as u64), &[*line]);
                let next = candidates.peek().filter(|c| c.choice == choice && c.way == way);
                m.branch(pc::SIGNATURE + choice as u32, next.is_some(), &[loaded, signature]);
                // The loop's own count and branch.
                m.alu(&[]);
                let Some(candidate) = candidates.next_if(|c| c.choice == choice && c.way == way)
                else {
                    m.branch(pc::ENTRIES + choice as u32, way + 1 < WAYS, &[]);
                    continue;
                };
                let number = m.load(address.plus(16 + 4 * way as u64), &[*line]);
                m.branch(pc::OCCUPIED, true, &[number]);
                let last = candidates.peek().is_none();
                let equal = walk.found && last;
                let value = self.compare(m, table, key, candidate.key, number, equal);
                if equal {
                    return value;
                }
            }
        }
        m.alu(&[])
    }

    /// Compares a key's slot with the key, 16 bytes at a time, through a table of
    /// functions by the key's size.
    fn compare(
        &self,
        m: &mut Machine,
        table: &HashTable,
        key: KeyAt,
        number: u32,
        index: Tag,
        equal: bool,
    ) -> Tag {
        let size = m.load(table.metadata(0).plus(32), &[]);
        let base = m.load(table.metadata(0).plus(40), &[]);
        let offset = m.multiply(&[index, size]);
        let slot_from = m.alu(&[offset, base]);
        let slot = table.slot(number);
        let value = m.load(slot, &[slot_from]);
        let function = m.load(table.metadata(0).plus(48), &[]);
        m.alus(4, &[]);
        self.save(m, 12, 4);
        m.indirect(pc::COMPARE_CALL, 1, &[function]);
        let mut all = Tag::NONE;
        for at in (0..table.key_bytes()).step_by(16) {
            let theirs = m.load(slot.plus(8 + at), &[slot_from]);
            let ours = m.load(key.address.plus(at), &[key.from]);
            let differs = m.alu(&[theirs, ours]);
            all = m.alu(&[all, differs]);
        }
        let all = m.chain(2, all);
        m.branch(pc::RETURN, true, &[]);
        m.branch(pc::EQUAL, equal, &[all]);
        m.alu(&[value])
    }

    /// Looks up to eight keys up together: hash all and prefetch their buckets, compare
    /// signatures and prefetch the first candidates, compare keys.
    pub fn bulk(
        &self,
        m: &mut Machine,
        table: &HashTable,
        keys: &[KeyAt],
        walks: &[Walk],
        answers: &mut Vec<Answer>,
    ) {
        self.save(m, 0, 8);
        let mut places = Vec::with_capacity(keys.len());
        for (key, walk) in keys.iter().zip(walks) {
            let hash = self.hash(m, table, *key);
            let (signature, lines) = self.places(m, table, hash, walk.buckets.len());
            for (bucket, line) in walk.buckets.iter().zip(&lines) {
                m.prefetch(table.bucket(*bucket), &[*line]);
            }
            m.store(self.stack.at(512 + 8 * places.len() as u64), &[signature]);
            places.push((signature, lines));
            m.branch(pc::BULK_LOOP, places.len() < keys.len(), &[]);
        }
        for (walk, (signature, lines)) in walks.iter().zip(&places) {
            bulk_signatures(m, table, walk, *signature, lines);
        }
        for ((key, walk), (_, lines)) in keys.iter().zip(walks).zip(&places) {
            let tag = self.bulk_compare(m, table, *key, walk, lines);
            answers.push(Answer { tag, found: walk.found });
        }
        self.restore(m, 8);
    }

    fn bulk_compare(
        &self,
        m: &mut Machine,
        table: &HashTable,
        key: KeyAt,
        walk: &Walk,
        lines: &[Tag],
    ) -> Tag {
        let mut tag = m.alu(&[]);
        for (n, candidate) in walk.candidates.iter().enumerate() {
            let address = table.bucket(walk.buckets[candidate.choice]);
            let line = lines[candidate.choice];
            let number = m.load(address.plus(16 + 4 * candidate.way as u64), &[line]);
            let equal = walk.found && n + 1 == walk.candidates.len();
            tag = self.compare(m, table, key, candidate.key, number, equal);
        }
        m.branch(pc::BULK_SECOND + 8, walk.found, &[tag]);
        tag
    }
}

/// All signatures of both buckets at once, and the first candidate prefetched.
fn bulk_signatures(m: &mut Machine, table: &HashTable, walk: &Walk, signature: Tag, lines: &[Tag]) {
    for (choice, (bucket, line)) in walk.buckets.iter().zip(lines).enumerate() {
        let all = m.load(table.bucket(*bucket), &[*line]);
        let equal = m.alu(&[all, signature]);
        let bits = m.chain(2, equal);
        let first = walk.candidates.iter().find(|c| c.choice == choice);
        m.branch(pc::BULK_FIRST + choice as u32, first.is_some(), &[bits]);
        if let Some(candidate) = first {
            let way = m.alu(&[bits]);
            let number = m.load(table.bucket(*bucket).plus(16 + 4 * candidate.way as u64), &[way]);
            let slot = m.multiply(&[number]);
            m.prefetch(table.slot(candidate.key), &[slot]);
        }
    }
    m.alus(4, &[]);
}

/// A round of the Jenkins hash: six times subtract, rotate, mix, add.
fn mix(m: &mut Machine, [mut a, mut b, mut c]: Abc) -> Abc {
    for _ in 0..2 {
        (a, c) = mix_step(m, a, c, b);
        (b, a) = mix_step(m, b, a, c);
        (c, b) = mix_step(m, c, b, a);
    }
    [a, b, c]
}

/// `x -= y; x ^= rot(y); y += z`: gives x and y.
fn mix_step(m: &mut Machine, x: Tag, y: Tag, z: Tag) -> (Tag, Tag) {
    let difference = m.alu(&[x, y]);
    let copy = m.alu(&[y]);
    let rotated = m.alu(&[copy]);
    let mixed = m.alu(&[difference, rotated]);
    let sum = m.alu(&[y, z]);
    (mixed, sum)
}

/// The end of the Jenkins hash: seven times mix, rotate, subtract.
fn finish(m: &mut Machine, [mut a, mut b, mut c]: Abc) -> Tag {
    for n in 0..7 {
        let (x, y) = match n % 3 {
            0 => (&mut c, b),
            1 => (&mut a, c),
            _ => (&mut b, a),
        };
        let mixed = m.alu(&[*x, y]);
        let copy = m.alu(&[y]);
        let rotated = m.alu(&[copy]);
        *x = m.alu(&[mixed, rotated]);
    }
    c
}
