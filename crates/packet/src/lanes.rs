//! Sets of packets within a batch.

/// The most packets a batch holds.
pub const BATCH: usize = 32;

/// A set of lanes (packet positions) of one batch, as a 32-bit mask.
///
/// Stages pass the whole batch by reference and select packets with `Lanes`, so
/// that a chain that forks moves no packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lanes(pub u32);

impl Lanes {
    /// No lane.
    pub const NONE: Self = Self(0);
    /// All 32 lanes.
    pub const ALL: Self = Self(u32::MAX);

    /// The lanes `0..n`; `n` above [`BATCH`] means all.
    #[inline]
    pub const fn first(n: usize) -> Self {
        if n >= BATCH { Self::ALL } else { Self((1 << n) - 1) }
    }

    /// The set of `lane` alone; empty when `lane` is not below [`BATCH`].
    #[inline]
    pub const fn one(lane: usize) -> Self {
        if lane < BATCH { Self(1 << lane) } else { Self::NONE }
    }

    /// Whether `lane` is in the set.
    #[inline]
    pub const fn contains(self, lane: usize) -> bool {
        lane < BATCH && self.0 >> lane & 1 == 1
    }

    /// Adds `lane`; lanes not below [`BATCH`] do not exist and change nothing.
    #[inline]
    pub const fn insert(&mut self, lane: usize) {
        self.0 |= Self::one(lane).0;
    }

    /// Removes `lane`.
    #[inline]
    pub const fn remove(&mut self, lane: usize) {
        self.0 &= !Self::one(lane).0;
    }

    /// The lowest lane of the set.
    #[inline]
    pub const fn lowest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// The highest lane of the set.
    #[inline]
    pub const fn highest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.ilog2() as usize) }
    }

    /// The lanes for which a condition holds: a loop without branches, that can be one of vectors.
    #[inline(always)]
    pub fn all_where(condition: impl Fn(usize) -> bool) -> Self {
        // Not `fold`, which is compiled as a function of its own, for the least processor.
        let mut lanes = 0;
        for lane in 0..BATCH {
            lanes |= u32::from(condition(lane)) << lane;
        }
        Self(lanes)
    }

    /// How many lanes are in the set.
    #[inline]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lanes in `self` but not in `other`.
    #[must_use]
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The lanes in `self` that come before all in `others`.
    #[must_use]
    #[inline]
    pub const fn before(self, others: Self) -> Self {
        Self(self.0 & others.0.wrapping_sub(1) & !others.0)
    }

    /// The lanes in both sets.
    #[must_use]
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The lanes in either set.
    #[must_use]
    #[inline]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl IntoIterator for Lanes {
    type Item = usize;
    type IntoIter = LaneIter;

    fn into_iter(self) -> LaneIter {
        LaneIter(self.0)
    }
}

impl FromIterator<usize> for Lanes {
    fn from_iter<I: IntoIterator<Item = usize>>(lanes: I) -> Self {
        let mut set = Self::NONE;
        for lane in lanes {
            set.insert(lane);
        }
        set
    }
}

/// Iterates over a [`Lanes`] set from the lowest lane up.
#[derive(Clone, Debug)]
pub struct LaneIter(u32);

impl Iterator for LaneIter {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(lane)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.0.count_ones() as usize;
        (n, Some(n))
    }
}

impl ExactSizeIterator for LaneIter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_made_of_conditions_and_of_other_sets() {
        assert_eq!(Lanes::all_where(|lane| lane % 5 == 1), Lanes(0x8421_0842));
        assert_eq!(Lanes(0b1011).before(Lanes(0b1100)), Lanes(0b11));
        assert_eq!(Lanes(0b1011).before(Lanes(0b1)), Lanes::NONE);
        assert_eq!(Lanes(0b1011).before(Lanes::NONE), Lanes(0b1011));
    }

    #[test]
    fn iteration_visits_each_lane_once_in_order() {
        let lanes = Lanes(0x8000_0005);
        assert_eq!(lanes.into_iter().collect::<Vec<_>>(), [0, 2, 31]);
        assert_eq!(lanes.into_iter().collect::<Lanes>(), lanes);
    }

    #[test]
    fn first_covers_the_edges() {
        assert_eq!(Lanes::first(0), Lanes::NONE);
        assert_eq!(Lanes::first(31).count(), 31);
        assert_eq!(Lanes::first(32), Lanes::ALL);
        assert_eq!(Lanes::first(99), Lanes::ALL);
        assert!(!Lanes::ALL.contains(32));
    }
}
