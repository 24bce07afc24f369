//! A cache as its tags: which lines it holds, and when they arrive.

use crate::calendar::Cycle;

/// The number of a line: its physical address without the lowest six bits.
pub type LineNumber = u64;

/// Bytes of a line.
pub const LINE: u64 = 64;

/// A set-associative cache with least-recently-used replacement.
#[derive(Clone, Debug)]
pub struct Cache {
    sets: usize,
    ways: usize,
    places: Vec<Place>,
    /// Counts accesses, for the order of use.
    clock: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// `EMPTY`, or the line that lies here.
    line: LineNumber,
    /// When its data is there: a line that was asked for has its place at once.
    arrives: Cycle,
    used: u32,
    dirty: bool,
}

const EMPTY: LineNumber = LineNumber::MAX;
const VACANT: Place = Place { line: EMPTY, arrives: 0, used: 0, dirty: false };

/// A line that made room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Which one.
    pub line: LineNumber,
    /// Whether it was written here.
    pub dirty: bool,
}

impl Cache {
    /// An empty cache of `bytes` bytes.
    ///
    /// # Panics
    /// When the number of sets is 0.
    pub fn new(bytes: u64, ways: usize) -> Self {
        let sets = (bytes / LINE) as usize / ways;
        assert!(sets > 0, "a cache of {bytes} bytes has no set of {ways} lines");
        Self { sets, ways, places: vec![VACANT; sets * ways], clock: 0 }
    }

    #[inline]
    fn set(&mut self, line: LineNumber) -> &mut [Place] {
        // Mostly a power of two; a division costs little beside the misses.
        let first = (line % self.sets as u64) as usize * self.ways;
        &mut self.places[first..first + self.ways]
    }

    /// When the data of `line` is there, if the cache holds it; counts as use.
    #[inline]
    pub fn touch(&mut self, line: LineNumber) -> Option<Cycle> {
        self.clock += 1;
        let clock = self.clock;
        let place = self.set(line).iter_mut().find(|place| place.line == line)?;
        place.used = clock;
        Some(place.arrives)
    }

    /// Whether the cache holds `line`; no use.
    pub fn holds(&mut self, line: LineNumber) -> bool {
        self.set(line).iter().any(|place| place.line == line)
    }

    /// Whether the cache holds `line` and it was written there.
    pub fn is_dirty(&mut self, line: LineNumber) -> bool {
        self.set(line).iter().any(|place| place.line == line && place.dirty)
    }

    /// Says that `line`, if it is here, was written, or was written back.
    pub fn set_dirty(&mut self, line: LineNumber, dirty: bool) {
        let place = self.set(line).iter_mut().find(|place| place.line == line);
        if let Some(place) = place {
            place.dirty = dirty;
        }
    }

    /// Takes in `line`, whose data arrives at `arrives`; the line that had to go.
    pub fn fill(&mut self, line: LineNumber, arrives: Cycle, dirty: bool) -> Option<Evicted> {
        self.clock += 1;
        let new = Place { line, arrives, used: self.clock, dirty };
        let set = self.set(line);
        let place = match set.iter().position(|place| place.line == line) {
            Some(at) => at,
            None => (0..set.len()).min_by_key(|at| set[*at].used).unwrap_or(0),
        };
        let old = std::mem::replace(&mut set[place], new);
        if old.line == line {
            set[place].dirty |= old.dirty;
            set[place].arrives = old.arrives.min(arrives);
            return None;
        }
        (old.line != EMPTY).then_some(Evicted { line: old.line, dirty: old.dirty })
    }

    /// Forgets `line`; whether it was written here.
    pub fn remove(&mut self, line: LineNumber) -> bool {
        let place = self.set(line).iter_mut().find(|place| place.line == line);
        place.is_some_and(|place| std::mem::replace(place, VACANT).dirty)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_the_lines_used_last(lines in prop::collection::vec(0u64..40, 1..200)) {
            let (sets, ways) = (4, 3);
            let mut cache = Cache::new(sets * ways * LINE, ways as usize);
            let mut order: Vec<Vec<u64>> = vec![Vec::new(); sets as usize];
            for line in lines {
                let set = &mut order[(line % sets) as usize];
                let known = set.contains(&line);
                prop_assert_eq!(cache.touch(line).is_some(), known);
                if !known {
                    let out = cache.fill(line, 0, false).map(|evicted| evicted.line);
                    let expected = (set.len() == ways as usize).then(|| set.remove(0));
                    prop_assert_eq!(out, expected);
                }
                set.retain(|other| *other != line);
                set.push(line);
            }
        }
    }

    #[test]
    fn what_was_written_is_told_when_it_goes() {
        let mut cache = Cache::new(2 * LINE, 1);
        cache.fill(0, 5, false);
        cache.set_dirty(0, true);
        assert!(cache.is_dirty(0) && !cache.is_dirty(1));
        assert_eq!(cache.fill(2, 7, false), Some(Evicted { line: 0, dirty: true }));
        assert!(!cache.remove(2) && !cache.holds(2));
    }
}
