//! Bytes in which contents of rules are searched for.

use std::cell::OnceCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use memchr::memmem::Finder;

use super::work;

/// Longer ones are not copied into lower case.
const SHORT: usize = 4096;

/// Bytes to verify rules in, and, once a rule asks for it, a copy in lower case.
pub(super) struct Haystack<'a> {
    bytes: &'a [u8],
    lower: OnceCell<Vec<u8>>,
}

impl<'a> Haystack<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, lower: OnceCell::new() }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether `needle` occurs anywhere.
    pub(super) fn has(&self, needle: &Needle) -> bool {
        self.find(needle, 0, self.bytes.len()).is_some()
    }

    /// The first occurrence of `needle` that begins at `start` or later and ends by `end`.
    pub(super) fn find(&self, needle: &Needle, start: usize, end: usize) -> Option<usize> {
        work::add(work::SEARCH);
        let end = end.min(self.bytes.len());
        let at = match needle.rarest {
            None => needle.finder.find(self.bytes.get(start..end)?),
            Some(_) if self.bytes.len() <= SHORT => {
                let lower = self.lower.get_or_init(|| self.bytes.to_ascii_lowercase());
                needle.finder.find(lower.get(start..end)?)
            }
            Some(rarest) => find_in_any_case(self.bytes.get(start..end)?, needle, rarest),
        };
        at.map(|at| start + at)
    }
}

/// The bytes of a content, prepared for searching.
#[derive(Clone)]
pub(super) struct Needle {
    /// For bytes in lower case if case is ignored.
    finder: Finder<'static>,
    /// Where its rarest byte is, if case is ignored.
    rarest: Option<usize>,
}

impl Needle {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { finder: Finder::new(bytes).into_owned(), rarest: None }
    }

    /// The same in any case. `cost` is the frequency of a byte in traffic.
    pub(super) fn in_any_case(&self, cost: impl Fn(u8) -> u32) -> Self {
        let lower = self.to_ascii_lowercase();
        let rarest = (0..lower.len()).min_by_key(|at| cost(lower[*at])).unwrap_or(0);
        Self { rarest: Some(rarest), ..Self::new(&lower) }
    }

    /// Whether it is in `hay` at `place`.
    pub(super) fn is_at(&self, hay: &[u8], place: usize) -> bool {
        work::add(work::COMPARISON);
        let there = place.checked_add(self.len()).and_then(|end| hay.get(place..end));
        there.is_some_and(|there| match self.rarest {
            None => *there == **self,
            Some(_) => there.eq_ignore_ascii_case(self),
        })
    }
}

impl Deref for Needle {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.finder.needle()
    }
}

impl Default for Needle {
    fn default() -> Self {
        Self::new(b"")
    }
}

impl PartialEq for Needle {
    fn eq(&self, other: &Self) -> bool {
        **self == **other && self.rarest == other.rarest
    }
}

impl Eq for Needle {}

impl Hash for Needle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&**self, self.rarest).hash(state);
    }
}

impl fmt::Debug for Needle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.escape_ascii().fmt(f)
    }
}

/// The first occurrence of `needle`, in lower case, in any case; looks for its byte at `rarest` first.
fn find_in_any_case(hay: &[u8], needle: &[u8], rarest: usize) -> Option<usize> {
    let rare = *needle.get(rarest)?;
    let last = hay.len().checked_sub(needle.len())?;
    let places = &hay[rarest..=rarest + last];
    memchr::memchr2_iter(rare, rare.to_ascii_uppercase(), places)
        .find(|at| hay[*at..at + needle.len()].eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_needle_is_found_where_it_first_stands(
            hay in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'A'), Just(b'{')], 0..90),
            needle in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'A'), Just(b'{')], 1..4),
            bounds in (0usize..100, 0usize..100),
            in_any_case in any::<bool>(),
            is_long in any::<bool>(),
        ) {
            let hay = [hay, vec![b'x'; if is_long { SHORT } else { 0 }]].concat();
            let (start, end) = bounds;
            let is = |there: &[u8]| {
                there == needle || in_any_case && there.eq_ignore_ascii_case(&needle)
            };
            let places = start..hay.len().min(end).saturating_sub(needle.len() - 1);
            let expected = places.clone().find(|at| is(&hay[*at..at + needle.len()]));
            let mut prepared = Needle::new(&needle);
            if in_any_case {
                prepared = prepared.in_any_case(u32::from);
            }
            prop_assert_eq!(Haystack::new(&hay).find(&prepared, start, end), expected);
        }
    }
}
