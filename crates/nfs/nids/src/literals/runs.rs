//! Runs of one byte, as in padding and empty buffers.
//!
//! Each place of a run has the same window, and is a candidate for each literal with that window.
//! How long the run is before and behind the place rules out almost all of them without a
//! comparison. Case is ignored, as everywhere here.

use super::index::{Place, WINDOW};

/// How far a run extends from a place: bytes before it, and bytes from it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) byte: u8,
    pub(super) before: usize,
    pub(super) behind: usize,
}

impl Extent {
    /// That of the run at `at`; bytes before it are counted up to `most`.
    fn of(bytes: &[u8], at: usize, most: usize) -> Self {
        let byte = bytes[at].to_ascii_lowercase();
        let other = |b: &u8| b.to_ascii_lowercase() != byte;
        let before = bytes[..at].iter().rev().take(most).position(other);
        let behind = bytes[at..].iter().position(other);
        Self {
            byte,
            before: before.unwrap_or(most.min(at)),
            behind: behind.unwrap_or(bytes.len() - at),
        }
    }
}

/// The run that a literal has at its window, if that is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnRun {
    extent: Extent,
    /// Whether other bytes of the literal stand before the run, and behind it.
    bounded: [bool; 2],
}

impl OwnRun {
    pub(super) fn new(literals: &[Vec<u8>], place: Place) -> Option<Self> {
        let (literal, at) = (&literals[place.literal as usize], place.offset as usize);
        let extent = Extent::of(literal, at, at);
        let window = WINDOW.min(literal.len() - at);
        let bounded = [extent.before < at, at + extent.behind < literal.len()];
        (extent.behind >= window).then_some(Self { extent, bounded })
    }

    /// Whether the literal may occur where a text has a run of this extent.
    #[inline]
    pub(super) fn may_be_in(&self, text: &Extent) -> bool {
        let fits =
            |own: usize, there: usize, bounded: bool| own == there || own < there && !bounded;
        self.extent.byte == text.byte
            && fits(self.extent.before, text.before, self.bounded[0])
            && fits(self.extent.behind, text.behind, self.bounded[1])
    }

    /// Bytes of the run.
    pub(super) fn extent(&self) -> Extent {
        self.extent
    }
}

/// Follows the runs of texts from place to place.
pub(super) struct Runs {
    /// The most bytes before and behind a window that literals have in runs.
    own: Extent,
    /// The number of the text with the last run found, and its end there.
    text: usize,
    end: usize,
    last: usize,
    extent: Extent,
    /// The first place deep inside it.
    inside: Option<usize>,
}

/// What is known of a place.
pub(super) enum There {
    /// No run.
    Other,
    Run(Extent),
    /// A run in which nothing occurs that does not occur at an earlier place too.
    NothingNew,
}

impl Runs {
    /// `own`: the most bytes that a literal has in a run before its window, and from there on.
    pub(super) fn new(own: Extent) -> Self {
        Self { own, text: usize::MAX, end: 0, last: 0, extent: Extent::default(), inside: None }
    }

    /// What is at the place `at` of text `number`, in which literals that end after `from` are
    /// searched for.
    #[inline]
    pub(super) fn at(&mut self, number: usize, text: &[u8], at: usize, from: usize) -> There {
        let window = text.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>);
        let is_run = |window: u32| window == window.rotate_left(8);
        match window.map(|window| u32::from_le_bytes(*window)) {
            Some(window) if is_run(window) => self.in_run(number, text, at, from),
            _ => There::Other,
        }
    }

    fn in_run(&mut self, number: usize, text: &[u8], at: usize, from: usize) -> There {
        // One more than counts, which tells longer ones from those of just that length.
        let most = self.own.before + 1;
        if number == self.text && (self.last..self.end).contains(&at) {
            let steps = at - self.last;
            self.extent.before = (self.extent.before + steps).min(most);
            self.extent.behind -= steps;
        } else {
            self.extent = Extent::of(text, at, most);
            (self.text, self.end) = (number, at + self.extent.behind);
            self.inside = None;
        }
        self.last = at;
        // Deep inside, only literals that are runs occur, and they do at the first such place.
        if self.extent.before >= most && self.extent.behind > self.own.behind {
            match self.inside {
                // What occurs at a place not before `from` ends after it.
                Some(first) if first >= from => return There::NothingNew,
                Some(_) => {}
                None => self.inside = Some(at),
            }
        }
        There::Run(self.extent)
    }
}
