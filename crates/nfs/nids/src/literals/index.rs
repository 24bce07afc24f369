//! Finds the literals that occur at a place.

use std::ops::Range;

use super::repeats::Extent;
use super::runs::RunLiterals;
use super::texts::Texts;
use super::traffic::commonness;
use super::{Once, fold, lower};
use crate::work;

/// Bytes that identify a literal, if it has that many.
pub(in super::super) const WINDOW: usize = 4;

/// The position of a window in a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) literal: u32,
    pub(super) offset: u32,
}

impl Place {
    /// This place and the following ones: `windows` in total.
    pub(super) fn side_by_side(self, windows: usize) -> impl Iterator<Item = Self> {
        (self.offset..).take(windows).map(move |offset| Self { offset, ..self })
    }

    /// The bytes of the literal from the window on.
    pub(super) fn bytes(self, literals: &[Vec<u8>]) -> &[u8] {
        &literals[self.literal as usize][self.offset as usize..]
    }

    /// Whether its window, or the two or three bytes of a short literal, are one byte repeated.
    pub(super) fn is_run(self, literals: &[Vec<u8>]) -> bool {
        let bytes = self.bytes(literals);
        let window = &bytes[..bytes.len().min(WINDOW)];
        window.iter().all(|byte| byte.eq_ignore_ascii_case(&window[0]))
    }
}

/// Where literals may lie that are not all in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beyond {
    /// One would begin before it.
    pub(super) before: bool,
    /// One has begun in it and would end after it.
    pub(super) after: bool,
}

impl Beyond {
    /// On both sides.
    pub(super) const BOTH: Self = Self { before: true, after: true };

    fn or(self, other: Self) -> Self {
        Self { before: self.before | other.before, after: self.after | other.after }
    }
}

/// Literals by the four bytes at their place, or, if it has fewer, by the first two.
pub(super) struct Index {
    literals: Texts,
    long: Buckets,
    short: Buckets,
    runs: RunLiterals,
}

/// Places by the bytes at them.
struct Buckets {
    /// For each hash, the start of its entries; one more for the end.
    starts: Vec<u32>,
    entries: Vec<Entry>,
    shift: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// In lower case.
    window: u32,
    place: Place,
    /// Bytes that its literal begins with like that of the entry before, if that has the same window
    /// at the same offset.
    shared: Option<u32>,
    /// The only place of its literal that matters.
    fixed: Option<u32>,
}

/// For each of the `chosen` literals, the place from which `windows` adjacent windows are rarest in
/// traffic, as far as the literal is long enough.
pub(super) fn places(
    literals: &[Vec<u8>],
    chosen: impl Iterator<Item = u32>,
    windows: usize,
) -> Vec<Place> {
    let span = WINDOW + windows - 1;
    let mut taken = hashbrown::HashMap::<u32, u32>::new();
    let place = |literal: u32| {
        let bytes = &literals[literal as usize];
        let last = bytes.len().saturating_sub(span);
        let cost = |offset: &usize| {
            let there = &bytes[*offset..(*offset + span).min(bytes.len())];
            // A window that many literals share costs a comparison with each of them.
            let crowd = |w: &[u8]| w.first_chunk().and_then(|w| taken.get(&fold(*w))).copied();
            let crowds: u32 = there.windows(WINDOW).filter_map(crowd).sum();
            let runs = there.windows(WINDOW).filter(|w| is_run(w)).count() as u32;
            there.iter().map(|b| commonness(*b)).sum::<u32>() + crowds + runs * RUN
        };
        let offset = (0..=last).min_by_key(cost).unwrap_or(0);
        let there = &bytes[offset..(offset + span).min(bytes.len())];
        for window in there.windows(WINDOW).filter_map(|w| w.first_chunk()) {
            *taken.entry(fold(*window)).or_insert(0) += 1;
        }
        Place { literal, offset: offset as u32 }
    };
    chosen.map(place).collect()
}

/// The cost of a window of one repeated byte, which is at every place of padding: more than that of
/// any other bytes.
const RUN: u32 = 1000;

/// Whether a window within `bytes` is one byte repeated.
pub(super) fn has_run(bytes: &[u8]) -> bool {
    bytes.windows(WINDOW).any(is_run)
}

/// Whether a window is one byte repeated, as far as windows distinguish bytes.
fn is_run(window: &[u8]) -> bool {
    let folded = |byte: &u8| byte | 0x20;
    window.iter().all(|byte| folded(byte) == folded(&window[0]))
}

impl Buckets {
    fn new(mut entries: Vec<Entry>, literals: &Texts) -> Self {
        let bits = (entries.len() * 4).next_power_of_two().ilog2().clamp(8, 24);
        let shift = u32::BITS - bits;
        let hash = |e: &Entry| (spread(e.window) >> shift) as usize;
        let literal = |entry: &Entry| literals.literal(entry.place.literal);
        let order = |e: &Entry| (hash(e), e.window, e.place.offset);
        entries.sort_by(|a, b| (order(a), literal(a)).cmp(&(order(b), literal(b))));
        for at in 1..entries.len() {
            let (before, entry) = (entries[at - 1], entries[at]);
            let is_alike = order(&before) == order(&entry);
            let shared =
                is_alike.then(|| literals.common(entry.place.literal, 0, literal(&before)) as u32);
            entries[at].shared = shared;
        }
        let mut starts = vec![0u32; (1 << bits) + 1];
        for entry in &entries {
            starts[hash(entry) + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self { starts, entries, shift }
    }

    /// The entries among which are those of a window in lower case; mostly none.
    #[inline]
    fn of(&self, window: u32) -> &[Entry] {
        let hash = (spread(window) >> self.shift) as usize;
        match self.starts.get(hash..hash + 2) {
            Some(&[start, end]) if start < end => &self.entries[start as usize..end as usize],
            _ => &[],
        }
    }
}

impl Entry {
    fn new(place: Place, bytes: [u8; WINDOW]) -> Self {
        Self { window: lower(bytes), place, shared: None, fixed: None }
    }
}

impl Index {
    pub(super) fn new(literals: &[Vec<u8>], places: Vec<Place>) -> Self {
        let runs = RunLiterals::new(literals, &places);
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for place in places {
            match (place.bytes(literals).first_chunk(), place.bytes(literals)) {
                // Found with the run.
                (Some(_), _) if place.is_run(literals) => {}
                (Some(window), _) => long.push(Entry::new(place, *window)),
                (None, [a, b, ..]) => short.push(Entry::new(place, [*a, *b, 0, 0])),
                (None, _) => unreachable!("a literal has at least two bytes"),
            }
        }
        let literals = Texts::new(literals);
        let [long, short] = [long, short].map(|entries| Buckets::new(entries, &literals));
        Self { literals, long, short, runs }
    }

    /// Passes literals only where they begin at their place, if they have one.
    pub(super) fn fix(&mut self, places: &[Option<u32>]) {
        for entry in self.long.entries.iter_mut().chain(&mut self.short.entries) {
            entry.fixed = places[entry.place.literal as usize];
        }
    }

    /// The number of literals.
    pub(super) fn len(&self) -> usize {
        self.literals.len()
    }

    /// Passes to `once` the literals that lie in the run `there` of `text`, at least a window long,
    /// and end after `from`; to `decided`, as seen from the beginning of the run, which bytes decided.
    #[inline]
    pub(super) fn find_in_run(
        &self,
        text: &[u8],
        there: &Range<usize>,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
        decided: impl FnMut(Extent),
    ) {
        self.runs.find(&self.literals, text, there, from, once, decided);
    }

    /// Passes to `once` the literals whose window is at `at` in `text`, which is no run, and that
    /// end after `from`; to `decided` which bytes decided, in addition to the window. Returns whether there
    /// may be others, which are not all in the text.
    #[inline]
    pub(super) fn find(
        &self,
        text: &[u8],
        at: usize,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
        mut decided: impl FnMut(Extent),
    ) -> Beyond {
        let there = text.get(at..).unwrap_or(&[]);
        let mut among = |buckets: &Buckets, window: [u8; WINDOW]| {
            let window = lower(window);
            let entries = buckets.of(window);
            if entries.is_empty() {
                return Beyond::default();
            }
            let those = entries.iter().filter(|entry| entry.window == window);
            self.compare(those, text, at, from, once, &mut decided)
        };
        let long = there.first_chunk().map(|window| among(&self.long, *window));
        let pair = there.first_chunk().filter(|_| !self.short.entries.is_empty());
        let short = pair.map(|[first, second]| among(&self.short, [*first, *second, 0, 0]));
        long.unwrap_or_default().or(short.unwrap_or_default())
    }

    /// Passes the literals of `entries` to `once` that are there with their place at `at`. What a literal
    /// shares with the one before is not compared again, so that many literals with the same beginning
    /// cost little more than one. Passes to `decided` which bytes decided; returns where others may lie.
    fn compare<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
        text: &[u8],
        at: usize,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
        decided: &mut impl FnMut(Extent),
    ) -> Beyond {
        // Bytes of the literal before that are there, if it was compared.
        let (mut matched, mut beyond) = (None, Beyond::default());
        for &Entry { place, shared, fixed, .. } in entries {
            let length = self.literals.literal(place.literal).len();
            let known = match shared.map(|shared| shared as usize).zip(matched) {
                None => 0,
                // They differ from the text where the one before did, or where they part from it.
                Some((shared, matched_before)) if shared != matched_before => {
                    matched = Some(shared.min(matched_before));
                    continue;
                }
                Some((shared, _)) => shared,
            };
            matched = None;
            let fixed_at = fixed.map(|fixed| fixed + place.offset);
            let fixed_at = fixed_at.map_or(Extent::NOWHERE, |at| (at, at));
            let before = Extent { before: place.offset, after: 0, fixed: fixed_at };
            let Some(start) = at.checked_sub(place.offset as usize) else {
                decided(before);
                let missing = place.offset as usize - at;
                beyond = beyond.or(self.beyond(place.literal, missing, text, from));
                continue;
            };
            if fixed.is_some_and(|fixed| fixed as usize != start) {
                decided(Extent { before: 0, ..before });
                continue;
            }
            if !once.wants(place.literal) {
                beyond.after |= start + length > text.len();
                continue;
            }
            work::add(work::COMPARISON);
            let there = known + self.literals.common(place.literal, known, &text[start + known..]);
            matched = Some(there);
            // Up to the first byte that differs, or at which the text has ended.
            let compared = (there + 1).min(length) as u32;
            decided(Extent { after: compared.saturating_sub(place.offset), ..before });
            if there < length {
                beyond.after |= start + there == text.len();
            } else if start + there > from {
                once.tell(place.literal);
            }
        }
        beyond
    }

    /// Where a literal may lie that would begin `missing` bytes before `text`. One that has ended before `from`
    /// was found before.
    fn beyond(&self, literal: u32, missing: usize, text: &[u8], from: usize) -> Beyond {
        let length = self.literals.literal(literal).len() - missing;
        if length <= from {
            return Beyond::default();
        }
        work::add(work::COMPARISON);
        let there = self.literals.common(literal, missing, text);
        Beyond {
            before: there == length || there == text.len(),
            after: there < length && there == text.len(),
        }
    }
}

/// Multiplicative hashing (Knuth): the upper bits are well distributed.
pub(super) fn spread(window: u32) -> u32 {
    window.wrapping_mul(MULTIPLIER)
}

pub(super) const MULTIPLIER: u32 = 0x9e37_79b1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_that_begin_alike_are_told_apart() {
        let literals = ["abcdee", "abcdffg", "abcdffh", "abcdff", "abcdeeh", "abcd", "abcdffgii"];
        let literals = literals.map(|literal| literal.as_bytes().to_vec());
        let places = (0..literals.len() as u32).map(|literal| Place { literal, offset: 0 });
        let mut index = Index::new(&literals, places.collect());
        for (text, expected) in [
            (&b"abcdeeh"[..], &[0, 4, 5][..]),
            (b"abcdeex", &[0, 5]),
            (b"abcdeehii", &[0, 4, 5]),
            (b"abcdfFgii", &[1, 3, 5, 6]),
            (b"abcdffhii", &[2, 3, 5]),
            (b"abcdf", &[5]),
        ] {
            let (mut told, mut found) = ([0; 7], Vec::new());
            let tell = |literal| found.push(literal);
            index.find(text, 0, 0, &mut Once { told: &mut told, text: 1, tell }, |_| ());
            found.sort_unstable();
            assert_eq!(found, expected, "{}", text.escape_ascii());
        }
        // The others begin at another place.
        index.fix(&[None, Some(0), Some(3), Some(0), None, Some(1), Some(0)]);
        let (mut told, mut found) = ([0; 7], Vec::new());
        let mut once = Once { told: &mut told, text: 1, tell: |literal| found.push(literal) };
        index.find(b"abcdffhabcdffhabcd", 0, 0, &mut once, |_| ());
        index.find(b"abcdffhabcdffhabcd", 7, 0, &mut once, |_| ());
        assert_eq!(found, [3]);
    }

    #[test]
    fn what_may_lie_partly_beyond_the_text_is_known() {
        let literals = [&b"abcdefgh"[..], b"abcdeffff", b"12wxyz89"].map(<[u8]>::to_vec);
        let places = [(0, 0), (1, 0), (2, 2)].map(|(literal, offset)| Place { literal, offset });
        let index = Index::new(&literals, places.to_vec());
        let after = Beyond { before: false, after: true };
        for (text, at, expected) in [
            (&b"abcdefgh"[..], 0, Beyond::default()),
            (b"abcd", 0, after),
            (b"abcdx", 0, Beyond::default()),
            (b"abcdef", 0, after),
            (b"12wxyz89", 2, Beyond::default()),
            (b"2wxyz89", 1, Beyond { before: true, after: false }),
            (b"wxyz8", 0, Beyond::BOTH),
            (b"3wxyz89", 1, Beyond::default()),
            (b"wxyz88", 0, Beyond::default()),
        ] {
            let mut once = Once { told: &mut [0; 3], text: 1, tell: |_| () };
            assert_eq!(
                index.find(text, at, 0, &mut once, |_| ()),
                expected,
                "{}",
                text.escape_ascii()
            );
        }
        // One that ended before was found then.
        let mut once = Once { told: &mut [0; 3], text: 1, tell: |_| () };
        assert_eq!(index.find(b"2wxyz89ab", 1, 7, &mut once, |_| ()), Beyond::default());
        assert!(index.find(b"2wxyz89ab", 1, 6, &mut once, |_| ()).before);
        // Once more what was found already, as far as it is there.
        let mut once = Once { told: &mut [0; 3], text: 1, tell: |_| () };
        let text = b"abcdefghiabcdefg";
        assert_eq!(index.find(text, 0, 0, &mut once, |_| ()), Beyond::default());
        assert_eq!(index.find(text, 9, 0, &mut once, |_| ()), after);
    }
}
