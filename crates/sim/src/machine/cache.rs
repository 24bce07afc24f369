//! A cache as its tags: which lines it holds, and when they arrive.

use thalweg_cpu::prefetch;

use crate::calendar::Cycle;

/// The number of a line: its physical address without the lowest six bits.
pub type LineNumber = u64;

/// Bytes of a line.
pub const LINE: u64 = 64;

/// A set-associative cache with least-recently-used replacement.
///
/// A set is its lines in the order of their use, the last used first; a line is one word.
/// So an access of the simulated cache is as few accesses of the real one as can be.
#[derive(Clone, Debug)]
pub struct Cache<P> {
    sets: u64,
    ways: usize,
    places: Vec<P>,
}

/// A place of a set: a line's tag, and whether it was written here.
pub trait Place: Copy + Eq {
    /// Nothing lies here: the tag is that of no line.
    const EMPTY: Self;

    /// A line whose data arrives at `arrives`.
    fn new(tag: u64, arrives: Cycle, dirty: bool) -> Self;
    /// Its tag.
    fn tag(self) -> u64;
    /// Whether it was written here.
    fn is_dirty(self) -> bool;
    /// When its data arrives.
    fn arrives(self) -> Cycle;
}

/// A place that knows when its data arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed(u64);

/// Bits of a place that hold when its data arrives: two minutes of simulated time. What is
/// left is enough for the tags of 64 GiB in 64 sets, and one more for none.
const ARRIVES: u32 = 38;
/// The fewest sets of a cache whose tags fit, over all memory.
pub const LEAST_SETS: u64 = 64;
/// The bit that marks it as written here.
const DIRTY: u64 = 1 << ARRIVES;

impl Place for Timed {
    const EMPTY: Self = Self(u64::MAX);

    fn new(tag: u64, arrives: Cycle, dirty: bool) -> Self {
        debug_assert!(tag < u64::MAX >> (ARRIVES + 1) && arrives < DIRTY, "{tag} {arrives}");
        Self(tag << (ARRIVES + 1) | u64::from(dirty) << ARRIVES | arrives)
    }

    #[inline]
    fn tag(self) -> u64 {
        self.0 >> (ARRIVES + 1)
    }

    #[inline]
    fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    #[inline]
    fn arrives(self) -> Cycle {
        self.0 & (DIRTY - 1)
    }
}

/// A place of half the size, for caches so large that their tags are not in ours. Its user
/// has to remember what has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small(u32);

impl Place for Small {
    const EMPTY: Self = Self(u32::MAX);

    #[inline]
    fn new(tag: u64, _: Cycle, dirty: bool) -> Self {
        debug_assert!(tag < u64::from(u32::MAX >> 1), "{tag}");
        Self((tag as u32) << 1 | u32::from(dirty))
    }

    #[inline]
    fn tag(self) -> u64 {
        u64::from(self.0 >> 1)
    }

    #[inline]
    fn is_dirty(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline]
    fn arrives(self) -> Cycle {
        0
    }
}

/// A line that made room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Which one.
    pub line: LineNumber,
    /// Whether it was written here.
    pub dirty: bool,
}

impl<P: Place> Cache<P> {
    /// An empty cache of `bytes` bytes.
    ///
    /// # Panics
    /// When the number of sets is 0.
    pub fn new(bytes: u64, ways: usize) -> Self {
        let sets = bytes / LINE / ways as u64;
        assert!(sets > 0, "a cache of {bytes} bytes has no set of {ways} lines");
        Self { sets, ways, places: vec![P::EMPTY; sets as usize * ways] }
    }

    /// The number of a line's set, and its tag there.
    #[inline]
    fn set(&self, line: LineNumber) -> (u64, u64) {
        if self.sets.is_power_of_two() {
            return (line & (self.sets - 1), line >> self.sets.trailing_zeros());
        }
        (line % self.sets, line / self.sets)
    }

    /// The places of a line's set, and which of them has it.
    #[inline]
    fn find(&mut self, line: LineNumber) -> (&mut [P], Option<usize>) {
        let (set, tag) = self.set(line);
        let first = set as usize * self.ways;
        let places = &mut self.places[first..first + self.ways];
        let way = places.iter().position(|place| place.tag() == tag);
        (places, way)
    }

    /// Asks for the places of a line's set, those used last first.
    #[inline]
    pub(super) fn prefetch(&self, line: LineNumber) {
        prefetch::near(&self.places, self.set(line).0 as usize * self.ways);
    }

    /// When the data of `line` is there, if the cache holds it; counts as use.
    #[inline]
    pub fn touch(&mut self, line: LineNumber) -> Option<Cycle> {
        let (places, way) = self.find(line);
        Some(first_again(places, way?).arrives())
    }

    /// Whether the cache holds `line`; no use.
    pub fn holds(&mut self, line: LineNumber) -> bool {
        self.find(line).1.is_some()
    }

    /// Whether the cache holds `line` and it was written there.
    pub fn is_dirty(&mut self, line: LineNumber) -> bool {
        let (places, way) = self.find(line);
        way.is_some_and(|way| places[way].is_dirty())
    }

    /// Says that `line`, if it is here, was written, or was written back.
    pub fn set_dirty(&mut self, line: LineNumber, dirty: bool) {
        if let (places, Some(way)) = self.find(line) {
            places[way] = P::new(places[way].tag(), places[way].arrives(), dirty);
        }
    }

    /// Takes in `line`, whose data arrives at `arrives`; the line that had to go.
    pub fn fill(&mut self, line: LineNumber, arrives: Cycle, dirty: bool) -> Option<Evicted> {
        let ((set, tag), sets) = (self.set(line), self.sets);
        let (places, way) = self.find(line);
        if let Some(way) = way {
            let old = first_again(places, way);
            places[0] = P::new(tag, old.arrives().min(arrives), old.is_dirty() || dirty);
            return None;
        }
        let old = first_again(places, places.len() - 1);
        places[0] = P::new(tag, arrives, dirty);
        let evicted = Evicted { line: old.tag() * sets + set, dirty: old.is_dirty() };
        (old != P::EMPTY).then_some(evicted)
    }

    /// Forgets `line`; whether it was written here.
    pub fn remove(&mut self, line: LineNumber) -> bool {
        let (places, Some(way)) = self.find(line) else { return false };
        let old = std::mem::replace(&mut places[way], P::EMPTY);
        places[way..].rotate_left(1);
        old.is_dirty()
    }
}

/// Moves the place `way` to the front of its set, and returns it.
#[inline]
fn first_again<P: Place>(places: &mut [P], way: usize) -> P {
    let place = places[way];
    places.copy_within(..way, 1);
    places[0] = place;
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_the_lines_used_last(lines in prop::collection::vec(0u64..40, 1..200)) {
            let (sets, ways) = (4, 3);
            let mut cache = Cache::<Timed>::new(sets * ways * LINE, ways as usize);
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
        let mut cache = Cache::<Small>::new(2 * LINE, 1);
        cache.fill(0, 5, false);
        cache.set_dirty(0, true);
        assert!(cache.is_dirty(0) && !cache.is_dirty(1));
        assert_eq!(cache.fill(2, 7, false), Some(Evicted { line: 0, dirty: true }));
        assert!(!cache.remove(2) && !cache.holds(2));
    }
}
