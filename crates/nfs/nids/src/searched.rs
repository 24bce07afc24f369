//! In which search the last bytes of a stream were.

/// The search of a batch, for the rules of an engine; or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Searched(u32);

impl Searched {
    /// No search, or one in which a literal may have begun.
    pub(super) const NO: Self = Self(0);

    /// The one after this, for the rules of the engine with a number, which is not 0. After 2^16 searches
    /// the numbers repeat: what was in the earlier one is then searched once more.
    #[inline]
    pub(super) fn next(self, engine: u16) -> Self {
        Self(u32::from(engine) << u16::BITS | u32::from((self.0 as u16).wrapping_add(1)))
    }

    /// The lower half of its number.
    #[inline]
    pub(super) fn number(self) -> u16 {
        self.0 as u16
    }

    /// Whether this is another one than `now`, for the same rules.
    #[inline(always)]
    pub(super) fn is_before(self, now: Self) -> bool {
        let differing = self.0 ^ now.0;
        differing != 0 && differing >> u16::BITS == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_before_are_those_for_the_same_rules() {
        let first = Searched::NO.next(7);
        let (second, other) = (first.next(7), first.next(8));
        assert!(first.is_before(second) && !first.is_before(first) && !first.is_before(other));
        let searches = std::iter::successors(Some(first), |search| Some(search.next(7)));
        for search in searches.take(70_000) {
            assert!(!Searched::NO.is_before(search) && search != Searched::NO);
            assert!(search.is_before(search.next(7)));
        }
    }
}
