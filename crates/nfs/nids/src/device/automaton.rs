//! The automaton that finds the ends of literals (Aho and Corasick, "Efficient String Matching: An Aid
//! to Bibliographic Search", 1975), as a table that a device walks.
//!
//! It excludes groups of literals, and may find more than there is: it looks for the last bytes of each
//! literal, as many as the table has room for. A literal that lies in a payload has its last bytes there.
//!
//! The end of a literal is an output of a transition, not of a state. So a state after which no literal
//! continues needs no entries: the state of its longest end that begins a literal takes its place. With
//! two bytes of each literal there are at most 257 states for each kind of packet, so any rules fit.

use hashbrown::{HashMap, HashSet};
use sha2::{Digest, Sha256};

/// The most bytes of a table. Most of a walk is in few states, which caches hold; a processor or a GPU
/// with 2 MiB and more of cache has them all for common rules.
pub const MOST_BYTES: usize = 8 << 20;

/// The lengths of the ends that are looked for, the first that fits.
/// `literals.cl` relies on the most: it walks pieces of 16 bytes and more at once.
const LENGTHS: [usize; 7] = [16, 12, 8, 6, 4, 3, 2];
/// The most bytes of a literal that are looked for.
pub(super) const MOST_LENGTH: usize = LENGTHS[0];
/// One more than the longest.
const DEPTHS: usize = MOST_LENGTH + 1;

/// The kinds of packets, whose literals are apart.
pub const KINDS: usize = 3;

/// Words of a table: where classes of bytes begin, sets, and entries.
const CLASSES: usize = 4;
const SETS: usize = CLASSES + 256 / 4;
const ENTRIES: usize = SETS + MOST_SETS;
/// Sets that have a number; further ones become the last, which has all bits.
const MOST_SETS: usize = 256;
const ALL: usize = MOST_SETS - 1;

/// A literal, without its case.
#[derive(Clone, Debug)]
pub struct Literal {
    /// The kind of packets that are searched for it, below [`KINDS`].
    pub kind: usize,
    /// The set of groups that have it, a bit for each.
    pub groups: u32,
    /// At least two bytes, in lower case.
    pub bytes: Vec<u8>,
}

/// A state: the kind of packets, and the bytes read that begin a literal.
type State<'a> = (usize, &'a [u8]);

/// The table, and what only the processor's walk needs.
#[derive(Debug)]
pub struct Automaton {
    table: Vec<u8>,
    /// The bytes of a literal that were kept.
    length: usize,
    /// By the number of bytes that a state stands for: the place of the first such state's entries.
    first_of_depth: [u32; DEPTHS],
}

impl Automaton {
    /// The automaton of these literals.
    pub fn new(literals: &[Literal]) -> Self {
        let least = LENGTHS[LENGTHS.len() - 1];
        let fits = |length: &usize| size(literals, *length) <= MOST_BYTES;
        let length = LENGTHS.into_iter().find(fits).unwrap_or(least);
        let ends = ends(literals, length);
        let class_of = classes(&ends);
        let states = states(&ends);
        let entries = entries(&ends, &states, &class_of);
        let classes = number_of(&class_of);
        let first = |depth| states.partition_point(|(_, read)| read.len() < depth) * classes;
        let first_of_depth = std::array::from_fn(|depth| first(depth) as u32);
        Self { table: laid_out(&class_of, length, &entries), length, first_of_depth }
    }

    /// What a device reads.
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// What the results of a device with this table have as their second word: never 0.
    pub fn mark(&self) -> u32 {
        Table(&self.table).word(0)
    }

    /// The groups that may have a literal which begins in the first `past` bytes of `text` and ends after
    /// them, for a packet of this kind.
    pub fn across(&self, kind: usize, text: &[u8], past: usize) -> u32 {
        let from = past.saturating_sub(self.length - 1);
        let table = Table(&self.table);
        let mut walk = Walk::new(table, kind);
        text.get(from..past).unwrap_or_default().iter().for_each(|byte| walk.step(*byte));
        walk.found = 0;
        let after = text.get(past..).unwrap_or_default();
        // A state that stands for no byte of the past is that of a walk through what follows alone.
        for (byte, first) in after.iter().zip(&self.first_of_depth[1..]) {
            if walk.at < *first {
                break;
            }
            walk.step(*byte);
        }
        walk.found
    }
}

/// The groups that may have a literal in a payload of this kind of packet, by a table, and the table's
/// mark: the reference of `literals.cl`.
pub(super) fn walk(bytes: &[u8], kind: usize, table: &[u8]) -> [u32; 2] {
    let table = Table(table);
    if kind >= KINDS {
        return [u32::MAX, table.word(0)];
    }
    let mut walk = Walk::new(table, kind);
    bytes.iter().for_each(|byte| walk.step(*byte));
    [walk.found, table.word(0)]
}

/// A way through a table.
struct Walk<'a> {
    table: Table<'a>,
    /// The place of the state's entries.
    at: u32,
    found: u32,
}

impl<'a> Walk<'a> {
    fn new(table: Table<'a>, kind: usize) -> Self {
        Self { table, at: table.word(1).wrapping_mul(kind as u32), found: 0 }
    }

    #[inline]
    fn step(&mut self, byte: u8) {
        let class = self.table.0.get(4 * CLASSES + usize::from(byte)).copied().unwrap_or(0);
        let entry = self.table.word(ENTRIES + self.at as usize + usize::from(class));
        if entry & 0xff != 0 {
            self.found |= self.table.word(SETS + (entry & 0xff) as usize);
        }
        self.at = entry >> 8;
    }
}

/// The words of a table.
#[derive(Clone, Copy)]
struct Table<'a>(&'a [u8]);

impl Table<'_> {
    #[inline]
    fn word(self, at: usize) -> u32 {
        let bytes = self.0.get(4 * at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

/// The ends of the literals, at most `length` bytes, by kind, and the groups that have each.
fn ends(literals: &[Literal], length: usize) -> HashMap<State<'_>, u32> {
    let mut ends = HashMap::new();
    for literal in literals {
        *ends.entry((literal.kind, end(literal, length))).or_insert(0) |= literal.groups;
    }
    ends
}

fn end(literal: &Literal, length: usize) -> &[u8] {
    &literal.bytes[literal.bytes.len().saturating_sub(length)..]
}

/// The bytes of the table of these literals.
fn size(literals: &[Literal], length: usize) -> usize {
    let mut states: HashSet<State<'_>> = (0..KINDS).map(|kind| (kind, &[][..])).collect();
    let mut bytes = [false; 256];
    for literal in literals {
        let end = end(literal, length);
        states.extend((1..end.len()).map(|read| (literal.kind, &end[..read])));
        end.iter().for_each(|byte| bytes[usize::from(*byte)] = true);
    }
    let classes = 1 + bytes.iter().filter(|is_used| **is_used).count();
    4 * (ENTRIES + states.len() * classes.min(256))
}

/// The class of each byte: 0 outside of literals; upper case has that of lower case.
fn classes(ends: &HashMap<State<'_>, u32>) -> [u8; 256] {
    let mut bytes = [false; 256];
    ends.keys().flat_map(|(_, end)| *end).for_each(|byte| bytes[usize::from(*byte)] = true);
    let mut class_of = [0; 256];
    let used = class_of.iter_mut().zip(bytes).filter(|(_, is_used)| *is_used);
    // Literals have no upper case, so classes are fewer than bytes.
    used.zip(1..=u8::MAX).for_each(|((class, _), number)| *class = number);
    for byte in b'A'..=b'Z' {
        class_of[usize::from(byte)] = class_of[usize::from(byte.to_ascii_lowercase())];
    }
    class_of
}

fn number_of(class_of: &[u8; 256]) -> usize {
    1 + class_of.iter().copied().max().map_or(0, usize::from)
}

/// The states, shortest first: those that have read nothing, by kind, then all beginnings of ends.
fn states<'a>(ends: &HashMap<State<'a>, u32>) -> Vec<State<'a>> {
    let beginnings = |(kind, end): &State<'a>| {
        let (kind, end) = (*kind, *end);
        (1..end.len()).map(move |read| (kind, &end[..read]))
    };
    let mut states: Vec<_> = ends.keys().flat_map(beginnings).collect();
    states.extend((0..KINDS).map(|kind| (kind, &[][..])));
    states.sort_unstable_by_key(|(kind, read)| (read.len(), *kind, *read));
    states.dedup();
    states
}

/// For each state and class, the place of the next state's entries, and the groups of what ends.
fn entries(
    ends: &HashMap<State<'_>, u32>,
    states: &[State<'_>],
    class_of: &[u8; 256],
) -> Vec<(u32, u32)> {
    let classes = number_of(class_of);
    let numbers: HashMap<State<'_>, usize> = states.iter().copied().zip(0..).collect();
    // By state: the bytes that lead to a longer one, and those that end a literal.
    let mut next = vec![Vec::new(); states.len()];
    let mut ending = vec![Vec::new(); states.len()];
    for (number, (kind, read)) in states.iter().enumerate() {
        if let Some((last, before)) = read.split_last() {
            next[numbers[&(*kind, before)]].push((*last, number));
        }
    }
    for ((kind, end), groups) in ends {
        if let Some((last, before)) = end.split_last() {
            ending[numbers[&(*kind, before)]].push((*last, *groups));
        }
    }
    let mut entries: Vec<(u32, u32)> = Vec::with_capacity(states.len() * classes);
    for (number, (kind, read)) in states.iter().enumerate() {
        // Other bytes lead where they would if fewer had been read; shorter states come first.
        let shorter = (1..=read.len()).find_map(|from| numbers.get(&(*kind, &read[from..])));
        match shorter {
            Some(shorter) => entries.extend_from_within(shorter * classes..(shorter + 1) * classes),
            None => entries.extend(std::iter::repeat_n(((kind * classes) as u32, 0), classes)),
        }
        let own = &mut entries[number * classes..];
        for (byte, next) in &next[number] {
            own[usize::from(class_of[usize::from(*byte)])].0 = (next * classes) as u32;
        }
        for (byte, groups) in &ending[number] {
            own[usize::from(class_of[usize::from(*byte)])].1 |= groups;
        }
    }
    entries
}

/// The table of these entries.
fn laid_out(class_of: &[u8; 256], length: usize, entries: &[(u32, u32)]) -> Vec<u8> {
    let mut sets = [u32::MAX; MOST_SETS];
    sets[0] = 0;
    let mut numbers: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let entry = |(place, groups): &(u32, u32)| {
        let next = numbers.len().min(ALL);
        let number = *numbers.entry(*groups).or_insert(next as u32);
        if number as usize != ALL {
            sets[number as usize] = *groups;
        }
        place << 8 | number
    };
    let entries: Vec<u32> = entries.iter().map(entry).collect();
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let mut table = words(&[0, number_of(class_of) as u32, length as u32, 0]);
    table.extend(class_of);
    table.extend(words(&sets));
    table.extend(words(&entries));
    let hash = Sha256::digest(&table);
    // Never 0, which is what a device leaves that does nothing.
    let mark = hash.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) | 1;
    table[..4].copy_from_slice(&mark.to_ne_bytes());
    table
}
