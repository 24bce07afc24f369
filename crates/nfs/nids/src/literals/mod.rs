//! Searches for many literals at once, ignoring case.
//!
//! A filter reports the places where a literal may occur, a [`Check`] rejects most of them, an
//! [`Index`] finds the literals that do. There are two kinds of filter. [`Pairs`] and [`Nibbles`]
//! look up 64 or 32 places at a time in tables held in registers, and pass too many places if there
//! are many literals. [`Windows`] looks up every eighth, fourth or second place in a bitmap, which
//! requires literals of some length. A run of one byte, each place of which would be a candidate, is
//! searched once, as a whole ([`runs`]). The share of random text that the tables would pass decides
//! which literals go to which filter.

mod affine;
mod bitmap;
mod buckets;
mod dense;
mod hits;
mod index;
mod nibbles;
mod pairs;
mod repeats;
mod runs;
mod texts;
mod traffic;
mod windows;

use bitmap::Check;
use dense::Block;
use hits::Hit;
pub(super) use index::WINDOW;
use index::{Beyond, Index, Place};
use nibbles::Nibbles;
use pairs::Pairs;
use repeats::{Extent, Repeats};
use runs::{InRun, Runs, There, Thinning};
pub(super) use traffic::commonness;
use windows::Windows;

use super::work;
use thalweg_packet::Lanes;

const _: () = assert!(Literals::SEAM >= bitmap::LONG + Windows::WIDE - 1);

/// Tables in registers may pass one place in this many of random text.
const RARE: f64 = 200.0;

/// The same limit if the tables allow windows to be far apart.
const SELECTIVE: f64 = 50.0;

/// More places of a text, on average, pass the filters only if it repeats what does.
const CROWDED: usize = 64;

/// Literals prepared for searching.
pub(super) struct Literals {
    check: Check,
    index: Index,
    registers: Option<Registers>,
    windows: Option<Windows>,
    longest: usize,
}

/// The texts of a batch in which a literal may lie that is not all there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    /// A literal may have begun before the text.
    pub(super) before: Lanes,
    /// A literal that begins before the last [`SEAM`](Literals::SEAM) bytes may end after the text.
    pub(super) after: Lanes,
}

impl Open {
    /// The texts in either.
    #[must_use]
    pub(super) fn or(self, other: Self) -> Self {
        Self { before: self.before.or(other.before), after: self.after.or(other.after) }
    }

    /// The same texts with other numbers: those of `lanes`, in order.
    #[must_use]
    pub(super) fn of(self, lanes: Lanes) -> Self {
        let of = |texts: Lanes| {
            let each = lanes.into_iter().enumerate();
            each.filter(|(n, _)| texts.contains(*n)).map(|(_, lane)| lane).collect()
        };
        Self { before: of(self.before), after: of(self.after) }
    }
}

/// A filter whose tables are held in registers.
enum Registers {
    Pairs(Pairs),
    Nibbles(Nibbles),
}

impl Registers {
    /// The one that is faster here; `None` without literals.
    fn new(literals: &[Vec<u8>], places: &[Place]) -> Option<Self> {
        if pairs::is_fast() {
            Pairs::new(literals, places).map(Self::Pairs)
        } else {
            Nibbles::new(literals, places).map(Self::Nibbles)
        }
    }

    /// The same for the literals with these `numbers`.
    fn of(literals: &[Vec<u8>], numbers: impl Iterator<Item = u32>) -> Option<Self> {
        Self::new(literals, &index::places(literals, numbers, Windows::SPARSE))
    }

    /// Whether vector instructions look up places; without them, windows are faster.
    fn is_fast() -> bool {
        pairs::is_fast() || nibbles::is_fast()
    }

    fn passes(&self) -> f64 {
        match self {
            Self::Pairs(pairs) => pairs.passes(),
            Self::Nibbles(nibbles) => nibbles.passes(),
        }
    }

    /// Whether the filter, including the places that it passes, takes less time than looking up
    /// twice as many windows.
    fn saves_windows(&self) -> bool {
        match self {
            Self::Pairs(pairs) => pairs.passes() * SELECTIVE <= 1.0,
            Self::Nibbles(_) => false,
        }
    }

    /// Whether it takes longer than looking up twice as many windows instead.
    fn is_slow(&self) -> bool {
        match self {
            Self::Pairs(_) => false,
            Self::Nibbles(nibbles) => !nibbles.is_selective(),
        }
    }

    fn scan(&self, texts: &[&[u8]], blocks: &mut Vec<Block>, hits: &mut Vec<Hit>) {
        match self {
            Self::Pairs(pairs) => pairs.scan(texts, blocks, hits),
            Self::Nibbles(nibbles) => nibbles.scan(texts, hits),
        }
    }

    /// The same for texts that are `joined`, in one pass.
    fn scan_joined(
        &self,
        texts: &[&[u8]],
        joined: &[u8],
        blocks: &mut Vec<Block>,
        hits: &mut Vec<Hit>,
    ) {
        match self {
            Self::Pairs(pairs) => pairs.scan_joined(texts, joined, blocks, hits),
            Self::Nibbles(nibbles) => {
                let first = hits.len();
                nibbles.scan(&[joined], hits);
                hits::divide(&mut hits[first..], texts);
            }
        }
    }
}

/// The buffers of a search; reused.
#[derive(Debug, Default)]
pub(super) struct Found {
    hits: Vec<Hit>,
    /// Room for dense blocks.
    blocks: Vec<Block>,
    /// By literal, the last text in which it was reported.
    told: Vec<u64>,
    repeats: Repeats,
    /// The number of texts searched so far.
    texts: u64,
}

/// Passes each literal of a text to `tell` once.
struct Once<'a, T> {
    /// As in [`Found`].
    told: &'a mut [u64],
    text: u64,
    tell: T,
}

impl<T: FnMut(u32)> Once<'_, T> {
    /// Whether a literal was not passed yet.
    #[inline]
    fn wants(&self, literal: u32) -> bool {
        self.told[literal as usize] != self.text
    }

    #[inline]
    fn tell(&mut self, literal: u32) {
        if self.wants(literal) {
            self.told[literal as usize] = self.text;
            (self.tell)(literal);
        }
    }
}

impl Literals {
    /// # Panics
    /// If a literal has fewer than [`LEAST`](Self::LEAST) bytes.
    pub(super) fn new(literals: &[Vec<u8>]) -> Self {
        assert!(literals.iter().all(|l| l.len() >= Self::LEAST));
        let numbers = 0..literals.len() as u32;
        let fits = |r: Registers| Registers::is_fast() && r.passes() * RARE <= 1.0;
        if Registers::of(literals, numbers.clone()).is_some_and(fits) {
            return Self::with(literals, numbers.collect(), Vec::new(), Windows::SPARSE);
        }
        let is_long = |n: &u32, stride| {
            let literal = &literals[*n as usize][..];
            literal.windows(Windows::least(stride)).any(|span| !index::has_run(span))
        };
        // Literals too short for a stride go to the tables, and those that would have to be looked up
        // wherever there is a run.
        let tables = |stride| {
            let short = numbers.clone().filter(|n| !is_long(n, stride));
            Registers::of(literals, short)
        };
        let saves_windows = |short: Registers| short.saves_windows();
        let stride = if tables(Windows::WIDE).map_or_else(pairs::is_fast, saves_windows) {
            Windows::WIDE
        } else if tables(Windows::SPARSE).is_some_and(|short| short.is_slow()) {
            Windows::DENSE
        } else {
            Windows::SPARSE
        };
        let (long, short) = numbers.partition(|n| is_long(n, stride));
        Self::with(literals, short, long, stride)
    }

    /// The fewest bytes of a literal.
    pub(super) const LEAST: usize = 2;

    /// The last bytes of a text in which a place is not decided without the bytes that follow, or not
    /// looked up because another of the same literal is.
    pub(super) const SEAM: usize = 16;

    fn with(
        literals: &[Vec<u8>],
        by_registers: Vec<u32>,
        by_windows: Vec<u32>,
        stride: usize,
    ) -> Self {
        let short_places = index::places(literals, by_registers.into_iter(), Windows::SPARSE);
        let window_places = index::places(literals, by_windows.into_iter(), stride);
        let registers = Registers::new(literals, &short_places);
        let windows = Windows::new(literals, &window_places, stride);
        let places = window_places.iter().flat_map(|place| place.side_by_side(stride));
        let places: Vec<_> = short_places.into_iter().chain(places).collect();
        let check = Check::new(literals, &places);
        let longest = literals.iter().map(Vec::len).max().unwrap_or(0);
        Self { check, index: Index::new(literals, places), registers, windows, longest }
    }

    /// Finds literals only where they begin at their place in a text, if they have one.
    pub(super) fn fixed(mut self, places: &[Option<u32>]) -> Self {
        self.index.fix(places);
        self
    }

    /// Finds the literals that end after `from` in `text`, and passes each to `tell` once.
    pub(super) fn find(
        &self,
        text: &[u8],
        from: usize,
        found: &mut Found,
        mut tell: impl FnMut(u32),
    ) {
        let begin = from.saturating_sub(self.reach());
        let tell = |_, literal| tell(literal);
        self.find_in_each(&[&text[begin..]], None, &[from - begin], found, tell);
    }

    /// The number of bytes before a position in which a literal that ends after it may begin.
    pub(super) fn reach(&self) -> usize {
        self.longest.saturating_sub(1)
    }

    /// Finds the literals in each of `texts` that end after the first `from` of its bytes, and
    /// passes the numbers of text and literal to `tell`: at most three times each, once per filter and
    /// once for [dense blocks](dense). Texts that lie one after the other are filtered in one pass over
    /// `joined`, which they make up.
    pub(super) fn find_in_each(
        &self,
        texts: &[&[u8]],
        joined: Option<&[u8]>,
        from: &[usize],
        found: &mut Found,
        mut tell: impl FnMut(usize, u32),
    ) -> Open {
        let Found { hits, blocks, told, repeats, texts: before } = found;
        hits.clear();
        match joined {
            Some(joined) => self.filter_joined(texts, joined, blocks, hits),
            None => self.filter(texts, blocks, hits),
        }
        work::add(hits.len() as u64 * work::PLACE);
        // Remembering fewer hits takes longer than it saves.
        let is_crowded = hits.len() > CROWDED * texts.len();
        if !is_crowded {
            self.check(texts, hits);
        }
        told.resize(told.len().max(self.index.len()), 0);
        // The numbering of texts continues, so that `told` need not be cleared.
        let first = *before + 1;
        *before += texts.len() as u64;
        let (mut runs, mut repeats) = (Runs::default(), is_crowded.then_some(repeats));
        let mut open = Open::default();
        for hit in &*hits {
            let (number, at) = (hit.text as usize, hit.at as usize);
            let (text, from) = (texts[number], from[number]);
            let tell = |literal| tell(number, literal);
            let id = first + number as u64;
            let mut once = Once { told, text: id, tell };
            let Beyond { before, after } = match (runs.at(number, text, at), &mut repeats) {
                (There::Known, _) => Beyond::default(),
                (There::Other, None) => self.index.find(text, at, from, &mut once, |_| ()),
                (There::Run(run), None) => {
                    self.index.find_in_run(text, &run, from, &mut once, |_| ());
                    Beyond::BOTH
                }
                (There::Run(run), Some(repeats)) => {
                    if !repeats.know(id, text, run.start, from) {
                        let mut all = Extent::default();
                        let decided = |extent| all = all.with(extent);
                        self.index.find_in_run(text, &run, from, &mut once, decided);
                        repeats.add(id, text, run.start, all);
                    }
                    Beyond::BOTH
                }
                (There::Other, Some(repeats)) => {
                    if !repeats.know(id, text, at, from) {
                        let extent = self.find_new(text, at, from, &mut once);
                        repeats.add(id, text, at, extent);
                    }
                    Beyond::BOTH
                }
            };
            open.before.0 |= u32::from(before).checked_shl(hit.text).unwrap_or(0);
            open.after.0 |= u32::from(after).checked_shl(hit.text).unwrap_or(0);
        }
        open
    }

    /// Finds the literals at a place that was not checked; returns which bytes decided.
    fn find_new(
        &self,
        text: &[u8],
        at: usize,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
    ) -> Extent {
        if !self.check.passes(&text[at..]) {
            return Check::EXTENT;
        }
        let mut all = Extent::default();
        self.index.find(text, at, from, once, |extent| all = all.with(extent));
        all
    }

    /// Appends the places at which a literal may occur.
    fn filter(&self, texts: &[&[u8]], blocks: &mut Vec<Block>, hits: &mut Vec<Hit>) {
        if let Some(registers) = &self.registers {
            registers.scan(texts, blocks, hits);
        }
        if let Some(windows) = &self.windows {
            windows.scan(texts, hits);
        }
    }

    /// The same where the texts are `joined`: a pass over all of them has no beginning and no end for
    /// each. What passes only together with the bytes of the next text is rejected later.
    fn filter_joined(
        &self,
        texts: &[&[u8]],
        joined: &[u8],
        blocks: &mut Vec<Block>,
        hits: &mut Vec<Hit>,
    ) {
        if let Some(registers) = &self.registers {
            registers.scan_joined(texts, joined, blocks, hits);
        }
        if let Some(windows) = &self.windows {
            let first = hits.len();
            windows.scan(&[joined], hits);
            hits::divide(&mut hits[first..], texts);
        }
    }

    /// Keeps the places that eight bytes do not exclude.
    fn check(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        let mut thinning = Thinning::default();
        match self.registers {
            Some(Registers::Nibbles(_)) => {
                keep(hits, texts, |hit, rest| match thinning.place(hit, rest) {
                    InRun::First => true,
                    InRun::Later => false,
                    InRun::No => self.check.passes(rest),
                });
            }
            // Pairs report runs as a whole, and windows are not in runs.
            _ => keep(hits, texts, |_, rest| self.check.passes(rest)),
        }
    }
}

/// Keeps the hits that `passes` accepts, given the rest of the text from each on. Without branches,
/// because many places pass the filters but few pass the check.
#[inline]
fn keep(hits: &mut Vec<Hit>, texts: &[&[u8]], mut passes: impl FnMut(Hit, &[u8]) -> bool) {
    let mut kept = 0;
    for n in 0..hits.len() {
        let hit = hits[n];
        hits[kept] = hit;
        kept += usize::from(passes(hit, &texts[hit.text as usize][hit.at as usize..]));
    }
    hits.truncate(kept);
}

/// The bytes without the bit that distinguishes upper from lower case; it also merges a few others.
fn fold(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes) | 0x2020_2020
}

/// The bytes in lower case.
#[inline]
fn lower(bytes: [u8; 4]) -> u32 {
    lower_long(u32::from_le_bytes(bytes).into()) as u32
}

/// The bytes of a number in lower case, all at once.
#[inline]
fn lower_long(bytes: u64) -> u64 {
    const fn each(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    // The highest bit of a byte that is at least `A`, and of one that is beyond `Z`.
    let rest = bytes & each(0x7f);
    let (from_a, beyond_z) = (rest + each(0x80 - b'A'), rest + each(0x7f - b'Z'));
    let upper = (from_a ^ beyond_z) & !bytes & each(0x80);
    bytes | upper >> 2
}

#[cfg(test)]
mod tests;
