//! Looking for many literals at once, in any case.
//!
//! A filter says at which places a literal may stand, a [`Check`] leaves few of them, an
//! [`Index`] says which literals do. There are two kinds of filter. [`Pairs`] and [`Nibbles`] look
//! 64 or 32 places up at a time in tables that lie in registers, and let too much pass when the
//! literals are many. [`Windows`] looks up each eighth place, fourth or second one in a bitmap, which
//! takes literals of some length. Which literals go to which is settled by how much of random text
//! the tables would let pass.

mod bitmap;
mod hits;
mod index;
mod nibbles;
mod pairs;
mod windows;

use bitmap::Check;
use hits::Hit;
use index::{Index, Place};
use nibbles::Nibbles;
use pairs::Pairs;
use windows::Windows;

/// Places in random text, of which tables in registers may let one pass.
const RARE: f64 = 200.0;

/// Of which they may let one pass when windows lie far apart for it.
const SELECTIVE: f64 = 50.0;

/// Literals, ready to be looked for.
pub(super) struct Literals {
    check: Check,
    index: Index,
    registers: Option<Registers>,
    windows: Option<Windows>,
    longest: usize,
}

/// A filter whose tables lie in registers.
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

    /// The same for so many of the literals.
    fn of(literals: &[Vec<u8>], numbers: impl Iterator<Item = u32>) -> Option<Self> {
        Self::new(literals, &index::places(literals, numbers, Windows::SPARSE))
    }

    /// Whether vectors look places up; without, windows are faster.
    fn is_fast() -> bool {
        pairs::is_fast() || nibbles::is_fast()
    }

    fn passes(&self) -> f64 {
        match self {
            Self::Pairs(pairs) => pairs.passes(),
            Self::Nibbles(nibbles) => nibbles.passes(),
        }
    }

    /// Whether it takes less time than to look up twice as many windows, and what it lets pass too.
    fn saves_windows(&self) -> bool {
        match self {
            Self::Pairs(pairs) => pairs.passes() * SELECTIVE <= 1.0,
            Self::Nibbles(_) => false,
        }
    }

    /// Whether it takes longer than to look up twice as many windows instead.
    fn is_slow(&self) -> bool {
        match self {
            Self::Pairs(_) => false,
            Self::Nibbles(nibbles) => !nibbles.is_selective(),
        }
    }

    fn scan(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        match self {
            Self::Pairs(pairs) => pairs.scan(texts, hits),
            Self::Nibbles(nibbles) => nibbles.scan(texts, hits),
        }
    }
}

/// What a search needs, reused.
#[derive(Debug, Default)]
pub(super) struct Found {
    hits: Vec<Hit>,
    /// By literal, the last of the texts that it was told of.
    told: Vec<u64>,
    /// Texts that were looked through so far.
    texts: u64,
}

impl Literals {
    /// # Panics
    /// When a literal has fewer than [`LEAST`](Self::LEAST) bytes.
    pub(super) fn new(literals: &[Vec<u8>]) -> Self {
        assert!(literals.iter().all(|l| l.len() >= Self::LEAST));
        let numbers = 0..literals.len() as u32;
        let fits = |r: Registers| Registers::is_fast() && r.passes() * RARE <= 1.0;
        if Registers::of(literals, numbers.clone()).is_some_and(fits) {
            return Self::with(literals, numbers.collect(), Vec::new(), Windows::SPARSE);
        }
        let is_long = |n: &u32, stride| literals[*n as usize].len() >= Windows::least(stride);
        // Those that are too short for a stride go by tables.
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

    /// Finds the literals that end behind `from` in `text`: tells each once.
    pub(super) fn find(
        &self,
        text: &[u8],
        from: usize,
        found: &mut Found,
        mut tell: impl FnMut(u32),
    ) {
        let begin = from.saturating_sub(self.reach());
        self.find_in_each(&[&text[begin..]], &[from - begin], found, |_, literal| tell(literal));
    }

    /// Bytes before others that a literal may begin in which ends in those.
    pub(super) fn reach(&self) -> usize {
        self.longest.saturating_sub(1)
    }

    /// Finds the literals in each of `texts` that end behind `from` of its bytes: tells the
    /// text's number and the literal's, that twice at most, as each of two filters has its turn.
    pub(super) fn find_in_each(
        &self,
        texts: &[&[u8]],
        from: &[usize],
        found: &mut Found,
        mut tell: impl FnMut(usize, u32),
    ) {
        let Found { hits, told, texts: before } = found;
        hits.clear();
        self.scan(texts, hits);
        told.resize(told.len().max(self.index.len()), 0);
        // Texts are numbered on, so that nothing has to be forgotten.
        let first = *before + 1;
        *before += texts.len() as u64;
        for hit in &*hits {
            let text = hit.text as usize;
            let at = hit.at as usize;
            self.index.find(texts[text], at, from[text], |literal| {
                let last = std::mem::replace(&mut told[literal as usize], first + text as u64);
                if last != first + text as u64 {
                    tell(text, literal);
                }
            });
        }
    }

    fn scan(&self, texts: &[&[u8]], hits: &mut Vec<Hit>) {
        if let Some(registers) = &self.registers {
            registers.scan(texts, hits);
        }
        if let Some(windows) = &self.windows {
            windows.scan(texts, hits);
        }
        // Without branches, as many pass the filters and few this.
        let mut kept = 0;
        for n in 0..hits.len() {
            let hit = hits[n];
            hits[kept] = hit;
            let passes = self.check.passes(&texts[hit.text as usize][hit.at as usize..]);
            kept += usize::from(passes);
        }
        hits.truncate(kept);
    }
}

/// The bytes without what tells cases apart; some others become the same too.
fn fold(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes) | 0x2020_2020
}

#[cfg(test)]
mod tests;
