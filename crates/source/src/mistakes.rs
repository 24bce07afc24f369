//! The mistakes of a file, counted in full and kept in part.

use crate::{SourceError, counted};

/// The mistakes of a file that are kept; a file with more is probably of another kind.
const KEPT: usize = 100;

/// The mistakes that a reader finds in a file: the first are kept, all are counted.
#[derive(Clone, Debug, Default)]
pub struct Mistakes {
    kept: Vec<SourceError>,
    /// The mistakes after the last of `kept`.
    more: u64,
}

impl Mistakes {
    /// Adds a mistake.
    pub fn push(&mut self, mistake: SourceError) {
        self.push_with(|| mistake);
    }

    /// Adds the mistake that `describe` returns, which is called only if it is kept.
    pub fn push_with(&mut self, describe: impl FnOnce() -> SourceError) {
        // The last of those kept stands for all that follow it.
        if self.kept.len() <= KEPT {
            self.kept.push(describe());
        } else {
            self.more += 1;
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The mistakes that were kept, the last of which stands for all that were not.
    pub fn into_vec(mut self) -> Vec<SourceError> {
        if self.more > 0
            && let Some(last) = self.kept.pop()
        {
            let follow = format!("{}; {}", last.message(), counted(self.more, "more mistake"));
            let expected = last.expected().to_owned();
            let all = last.source_file().error(last.span(), follow, expected);
            self.kept.push(all.standing_for(1 + self.more));
        }
        self.kept
    }
}

impl Extend<SourceError> for Mistakes {
    fn extend<T: IntoIterator<Item = SourceError>>(&mut self, mistakes: T) {
        mistakes.into_iter().for_each(|mistake| self.push(mistake));
    }
}

/// The number of mistakes in `list`, with those that were counted only.
pub fn count(list: &[SourceError]) -> u64 {
    list.iter().map(SourceError::count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn all_mistakes_are_counted_and_the_first_are_kept() {
        let source = Source::new("r.txt", "x\n".repeat(300_000));
        for number in [0, 1, 100, 101, 102, 160_147] {
            let (mut mistakes, mut described) = (Mistakes::default(), 0);
            for line in 0..number {
                mistakes.push_with(|| {
                    described += 1;
                    source.error(2 * line..2 * line + 1, "bad route", "a route")
                });
            }
            let list = mistakes.into_vec();
            assert_eq!(count(&list), number as u64);
            assert_eq!((list.len(), described), (number.min(101), number.min(101)));
            let last = list.last().map(ToString::to_string).unwrap_or_default();
            let said = if number > 101 { "; 160046 more mistakes" } else { "" };
            if number == 160_147 {
                assert_eq!(last, format!("r.txt:101:1: bad route{said}: 'x'; expected a route"));
            }
        }
    }
}
