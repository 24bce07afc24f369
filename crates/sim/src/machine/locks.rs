//! Lines that accelerators hold, and lines of whose changes they are notified.
//!
//! A query locks the lines that it reads until it has its answer (HALO, section 4.4): a core
//! that wants to write one gets a snoop miss, and retries. Readers are not held up, and
//! several queries may hold the same line. And an accelerator that keeps a table's metadata
//! sets a bit (CV) at its home slice: who writes the line clears it, and the accelerator
//! fetches the metadata anew.

use std::collections::HashMap;

use super::cache::LineNumber;

/// Locks and CV bits of all slices.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// How many hold a line.
    holders: HashMap<LineNumber, u32>,
    /// Lines with the CV bit, in order.
    watched: Vec<LineNumber>,
    /// Locks taken so far.
    pub taken: u64,
    /// Locks given up so far.
    pub given_up: u64,
    /// Writes that found their line locked.
    pub snoop_misses: u64,
}

impl Locks {
    /// Takes a line, for one holder more.
    pub fn take(&mut self, line: LineNumber) {
        self.taken += 1;
        *self.holders.entry(line).or_default() += 1;
    }

    /// Gives a line up.
    ///
    /// # Panics
    /// When no accelerator holds it.
    pub fn give_up(&mut self, line: LineNumber) {
        let holders = self.holders.get_mut(&line).expect("only a holder releases a line");
        self.given_up += 1;
        *holders -= 1;
        if *holders == 0 {
            self.holders.remove(&line);
        }
    }

    /// Whether a write of a line finds it locked; counted.
    pub fn refuses(&mut self, line: LineNumber) -> bool {
        let refused = self.holders.contains_key(&line);
        self.snoop_misses += u64::from(refused);
        refused
    }

    /// Sets the CV bit of a line.
    pub fn watch(&mut self, line: LineNumber) {
        if let Err(at) = self.watched.binary_search(&line) {
            self.watched.insert(at, line);
        }
    }

    /// Whether the CV bit of a line is set.
    pub fn is_watched(&self, line: LineNumber) -> bool {
        self.watched.binary_search(&line).is_ok()
    }

    /// A core has made a line its own: its CV bit is cleared.
    #[inline]
    pub(super) fn written(&mut self, line: LineNumber) {
        if let Ok(at) = self.watched.binary_search(&line) {
            self.watched.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_refused_until_its_last_holder_gave_it_up() {
        let mut locks = Locks::default();
        assert!(!locks.refuses(7));
        locks.take(7);
        locks.take(7);
        locks.give_up(7);
        assert!(locks.refuses(7) && !locks.refuses(8));
        locks.give_up(7);
        assert!(!locks.refuses(7));
        assert_eq!((locks.taken, locks.given_up, locks.snoop_misses), (2, 2, 1));
    }

    #[test]
    fn a_watched_line_is_told_of_once() {
        let mut locks = Locks::default();
        [9, 3, 9].into_iter().for_each(|line| locks.watch(line));
        assert!(locks.is_watched(3) && locks.is_watched(9));
        locks.written(9);
        assert!(locks.is_watched(3) && !locks.is_watched(9));
    }
}
