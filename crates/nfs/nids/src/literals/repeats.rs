//! Remembers what was found where a text repeats itself.
//!
//! Texts that make the search dear repeat themselves: whichever bytes pass the filters, by chance or
//! since a literal begins there, do so at each of a thousand places. Where the bytes that decide about
//! a place are those of an earlier place of the text, there is nothing new to find.

use super::bitmap::hash_long;

/// Places that are remembered, one for each of as many hashes.
const PLACES: usize = 512;

/// The bytes around a place that decide what is found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) before: u32,
    /// From the place on.
    pub(super) after: u32,
    /// From the first to the last place at which literals are found that are found at one place only.
    pub(super) fixed: (u32, u32),
}

impl Extent {
    /// No such place.
    pub(super) const NOWHERE: (u32, u32) = (u32::MAX, 0);

    pub(super) fn with(self, other: Self) -> Self {
        let (first, last) = self.fixed;
        Self {
            before: self.before.max(other.before),
            after: self.after.max(other.after),
            fixed: (first.min(other.fixed.0), last.max(other.fixed.1)),
        }
    }
}

impl Default for Extent {
    fn default() -> Self {
        Self { before: 0, after: 0, fixed: Self::NOWHERE }
    }
}

/// Decided places of texts, by the eight bytes there.
#[derive(Debug)]
pub(super) struct Repeats(Box<[Decided]>);

#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    bytes: u64,
    /// The number of the text; no text has the number 0.
    text: u64,
    at: u32,
    extent: Extent,
}

impl Default for Repeats {
    fn default() -> Self {
        Self(vec![Decided::default(); PLACES].into())
    }
}

impl Repeats {
    /// Whether all that could be found at `at` in the text of a number was found at an earlier place, at
    /// which literals end after `from`.
    #[inline]
    pub(super) fn know(&self, number: u64, text: &[u8], at: usize, from: usize) -> bool {
        let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) else { return false };
        let Decided { bytes: key, text: of, at: earlier, extent } = self.0[place(*bytes)];
        let (earlier, before, after) =
            (earlier as usize, extent.before as usize, extent.after as usize);
        let may_be_fixed = (extent.fixed.0..=extent.fixed.1).contains(&(at as u32));
        let is_other = key != u64::from_le_bytes(*bytes) || of != number;
        if is_other || may_be_fixed || earlier < from {
            return false;
        }
        if before == 0 && after <= bytes.len() {
            return true;
        }
        let around = |at: usize| text.get(at.checked_sub(before)?..at + after);
        around(at).is_some_and(|there| around(earlier) == Some(there))
    }

    /// Remembers a place of which the bytes within `extent` were decided.
    pub(super) fn add(&mut self, number: u64, text: &[u8], at: usize, extent: Extent) {
        if let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
            let (at, key) = (at as u32, u64::from_le_bytes(*bytes));
            self.0[place(*bytes)] = Decided { bytes: key, text: number, at, extent };
        }
    }
}

fn place(bytes: [u8; 8]) -> usize {
    hash_long(bytes) as usize >> (u32::BITS - PLACES.ilog2())
}
