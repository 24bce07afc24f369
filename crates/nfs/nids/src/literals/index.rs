//! Finds the literals that occur at a place.

use std::ops::Range;

use super::runs::RunLiterals;
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

/// Literals by the four bytes at their place, or, if it has fewer, by the first two.
pub(super) struct Index {
    literals: Vec<Vec<u8>>,
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

/// The approximate frequency of a byte in traffic.
pub(in super::super) fn commonness(byte: u8) -> u32 {
    match byte {
        b'a' | b'e' | b'i' | b'o' | b't' | b'n' | b's' | b'r' | b' ' => 9,
        b'a'..=b'z' | b'A'..=b'Z' => 7,
        b'0'..=b'9' | b'/' | b'.' | b':' | b'-' | b'=' | b'\r' | b'\n' | 0 => 6,
        b'!'..=b'~' => 4,
        0xff => 3,
        _ => 1,
    }
}

impl Buckets {
    fn new(mut entries: Vec<Entry>) -> Self {
        let bits = (entries.len() * 4).next_power_of_two().ilog2().clamp(8, 24);
        let shift = u32::BITS - bits;
        let hash = |e: &Entry| (spread(e.window) >> shift) as usize;
        entries.sort_by_key(hash);
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
        Self { window: lower(bytes), place }
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
        let (long, short) = (Buckets::new(long), Buckets::new(short));
        Self { literals: literals.to_vec(), long, short, runs }
    }

    /// The number of literals.
    pub(super) fn len(&self) -> usize {
        self.literals.len()
    }

    /// Passes to `once` the literals that lie in the run `there` of `text`, at least a window long,
    /// and end after `from`.
    #[inline]
    pub(super) fn find_in_run(
        &self,
        text: &[u8],
        there: &Range<usize>,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
    ) {
        self.runs.find(&self.literals, text, there, from, once);
    }

    /// Passes to `once` the literals whose window is at `at` in `text`, which is no run, and that
    /// end after `from`.
    #[inline]
    pub(super) fn find(
        &self,
        text: &[u8],
        at: usize,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
    ) {
        let there = text.get(at..).unwrap_or(&[]);
        let mut among = |buckets: &Buckets, window: [u8; WINDOW]| {
            let window = lower(window);
            let entries = buckets.of(window).iter().filter(|entry| entry.window == window);
            entries.for_each(|entry| self.compare(entry.place, text, at, from, once));
        };
        if let Some(window) = there.first_chunk() {
            among(&self.long, *window);
        }
        if let Some([first, second]) = there.first_chunk()
            && !self.short.entries.is_empty()
        {
            among(&self.short, [*first, *second, 0, 0]);
        }
    }

    /// Passes the literal of `place` to `once` if it is there with its place at `at`.
    fn compare(
        &self,
        place: Place,
        text: &[u8],
        at: usize,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
    ) {
        work::add(work::COMPARISON);
        if !once.wants(place.literal) {
            return;
        }
        let literal = &self.literals[place.literal as usize][..];
        let Some(start) = at.checked_sub(place.offset as usize) else { return };
        let end = start + literal.len();
        let there = text.get(start..end);
        if end > from && there.is_some_and(|there| there.eq_ignore_ascii_case(literal)) {
            once.tell(place.literal);
        }
    }
}

/// Multiplicative hashing (Knuth): the upper bits are well distributed.
pub(super) fn spread(window: u32) -> u32 {
    window.wrapping_mul(MULTIPLIER)
}

pub(super) const MULTIPLIER: u32 = 0x9e37_79b1;
