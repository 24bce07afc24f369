//! Runs of one byte, as in padding and empty buffers.
//!
//! Each place of a run has the same window, and would be a candidate for each literal with that
//! window. So a run is searched once, as a whole: where a literal may lie in it follows from what
//! stands before and after the literal's own run. Case is ignored, as everywhere here.

use std::ops::Range;

use super::hits::Hit;
use super::index::{Place, WINDOW};
use super::repeats::Extent;
use super::texts::Texts;
use super::{Once, fold, lower};
use crate::work;

/// The window at the start of `rest`, in lower case, if it is one byte repeated.
#[inline]
pub(super) fn run_window(rest: &[u8]) -> Option<u32> {
    let window = *rest.first_chunk()?;
    if !may_be_run(window) {
        return None;
    }
    let lower = lower(window);
    (lower == lower.rotate_left(8)).then_some(lower)
}

/// Whether a window is one byte repeated, apart from the bit that distinguishes case.
#[inline]
fn may_be_run(window: [u8; WINDOW]) -> bool {
    let folded = fold(window);
    folded == folded.rotate_left(8)
}

/// The run around `at`.
fn run_at(text: &[u8], at: usize) -> Range<usize> {
    let byte = text[at].to_ascii_lowercase();
    let other = |b: &u8| b.to_ascii_lowercase() != byte;
    let start = text[..at].iter().rposition(other).map_or(0, |last| last + 1);
    // Long runs: eight bytes at a time. Only letters have cases.
    let case = if byte.is_ascii_lowercase() { u64::from_ne_bytes([0x20; 8]) } else { 0 };
    let of_run =
        |bytes: &&[u8; 8]| u64::from_ne_bytes(**bytes) | case == u64::from_ne_bytes([byte; 8]);
    let whole = 8 * text[at..].as_chunks().0.iter().take_while(of_run).count();
    let rest = &text[at + whole..];
    let end = at + whole + rest.iter().position(other).unwrap_or(rest.len());
    start..end
}

/// A literal that has a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OwnRun {
    byte: u8,
    /// Bytes of the run.
    bytes: usize,
    literal: u32,
    /// Where it begins in the literal.
    start: usize,
}

/// Literals with a run at their window.
pub(super) struct RunLiterals {
    /// By byte, the shortest first.
    all: Vec<OwnRun>,
    /// For each byte, where its literals begin; one more for the end.
    starts: Vec<usize>,
}

impl RunLiterals {
    /// Those of the `places` whose window is a run.
    pub(super) fn new(literals: &[Vec<u8>], places: &[Place]) -> Self {
        let of = |place: &Place| {
            let (literal, at) = (&literals[place.literal as usize], place.offset as usize);
            let run = run_at(literal, at);
            let byte = literal[at].to_ascii_lowercase();
            let Place { literal, .. } = *place;
            OwnRun { byte, bytes: run.len(), literal, start: run.start }
        };
        let mut all: Vec<_> = places.iter().filter(|p| p.is_run(literals)).map(of).collect();
        all.sort_unstable();
        // Adjacent windows of a literal lie in the same run.
        all.dedup();
        let before = |byte: usize| all.partition_point(|entry| usize::from(entry.byte) < byte);
        let starts = (0..=256).map(before).collect();
        Self { all, starts }
    }

    /// Passes to `once` those that occur where `text` has the run `there`, and end after `from`; to
    /// `decided`, as seen from the beginning of the run, which bytes decided.
    #[inline]
    pub(super) fn find(
        &self,
        literals: &Texts,
        text: &[u8],
        there: &Range<usize>,
        from: usize,
        once: &mut Once<'_, impl FnMut(u32)>,
        mut decided: impl FnMut(Extent),
    ) {
        // The run, with the byte that ends it.
        decided(Extent { after: there.len() as u32 + 1, ..Extent::default() });
        let byte = usize::from(text[there.start].to_ascii_lowercase());
        let of_byte = &self.all[self.starts[byte]..self.starts[byte + 1]];
        for entry in of_byte.iter().take_while(|entry| entry.bytes <= there.len()) {
            work::add(work::COMPARISON);
            if !once.wants(entry.literal) {
                continue;
            }
            let literal = literals.literal(entry.literal);
            let (before, rest) = literal.split_at(entry.start);
            let after = &rest[entry.bytes..];
            let is_bounded = !before.is_empty() && !after.is_empty();
            if is_bounded && entry.bytes != there.len() {
                continue;
            }
            // Of a literal that may lie at many places of the run, the last one.
            let (at_run, end_of_run) = match before {
                [] => (there.end - entry.bytes, there.end),
                _ => (there.start, there.start + entry.bytes),
            };
            let same_before = alike(text[..at_run].iter().rev(), before.iter().rev());
            let is_whole = same_before == before.len();
            let same_after = if is_whole { alike(&text[end_of_run..], after) } else { 0 };
            // Up to the first byte that differs, or at which the text begins or has ended.
            decided(Extent {
                before: (same_before + 1).min(before.len()) as u32,
                after: (there.len() + same_after + usize::from(is_whole)) as u32,
                ..Extent::default()
            });
            let end = end_of_run + after.len();
            if is_whole && same_after == after.len() && end > from {
                once.tell(entry.literal);
            }
        }
    }
}

/// How many of the first bytes are alike but for their case.
#[inline]
fn alike<'a>(
    some: impl IntoIterator<Item = &'a u8>,
    others: impl IntoIterator<Item = &'a u8>,
) -> usize {
    let pairs = some.into_iter().zip(others);
    pairs.take_while(|(one, other)| one.eq_ignore_ascii_case(other)).count()
}

/// Leaves out the places of a run after the first.
#[derive(Default)]
pub(super) struct Thinning {
    /// The last place of a run.
    last: Option<LastPlace>,
}

#[derive(Clone, Copy)]
struct LastPlace {
    hit: Hit,
    /// Its window as it is, and in lower case.
    window: [u8; WINDOW],
    lower: u32,
}

/// Whether a place lies in a run.
pub(super) enum InRun {
    No,
    First,
    /// The place before it lies in the same run.
    Later,
}

impl Thinning {
    /// What is at the place `hit`, where `rest` begins.
    #[inline]
    pub(super) fn place(&mut self, hit: Hit, rest: &[u8]) -> InRun {
        match rest.first_chunk() {
            Some(window) if may_be_run(*window) => self.place_of_run(hit, *window),
            _ => InRun::No,
        }
    }

    /// The same where the window may be a run.
    fn place_of_run(&mut self, hit: Hit, window: [u8; WINDOW]) -> InRun {
        let before = self.last.filter(|last| hit.adjoins(last.hit));
        // Most places of a run are just like the one before.
        let same = before.filter(|before| before.window == window);
        let lower = same.map(|same| same.lower).or_else(|| run_window(&window));
        let Some(lower) = lower else { return InRun::No };
        self.last = Some(LastPlace { hit, window, lower });
        if before.is_some_and(|before| before.lower == lower) { InRun::Later } else { InRun::First }
    }
}

/// Follows the runs of texts from place to place.
#[derive(Default)]
pub(super) struct Runs {
    /// The last run, and the number of its text.
    last: Option<(usize, Range<usize>)>,
}

/// What is known of a place.
pub(super) enum There {
    /// No run.
    Other,
    /// A new run.
    Run(Range<usize>),
    /// The run of the place before.
    Known,
}

impl Runs {
    /// What is at the place `at` of text `number`.
    #[inline]
    pub(super) fn at(&mut self, number: usize, text: &[u8], at: usize) -> There {
        if run_window(&text[at..]).is_none() {
            return There::Other;
        }
        if self.last.as_ref().is_some_and(|(text, run)| *text == number && run.contains(&at)) {
            return There::Known;
        }
        let run = run_at(text, at);
        self.last = Some((number, run.clone()));
        There::Run(run)
    }
}
