//! The prefixes that subtables require.

use super::fields::FIELDS;

/// The most pairs that have a bit.
pub(super) const PAIRS: usize = 256;

/// Pairs of a tracked field and a length of prefix, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signature([u64; PAIRS / 64]);

impl Signature {
    #[inline]
    pub(super) fn add(&mut self, pair: u8) {
        self.0[usize::from(pair / 64)] |= 1 << (pair % 64);
    }

    fn remove(&mut self, pair: u8) {
        self.0[usize::from(pair / 64)] &= !(1 << (pair % 64));
    }

    /// The pairs that are in both.
    #[inline]
    pub(super) fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Whether a pair is in both.
    #[inline]
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |met, (a, b)| met | a & b) != 0
    }

    /// The pairs.
    pub(super) fn pairs(self) -> impl Iterator<Item = u8> {
        (0..PAIRS / 64).flat_map(move |word| {
            let next = |left: &u64| Some(left & left.wrapping_sub(1)).filter(|l| *l != 0);
            let first = Some(self.0[word]).filter(|w| *w != 0);
            std::iter::successors(first, next)
                .map(move |left| (word * 64) as u8 + left.trailing_zeros() as u8)
        })
    }

    /// The first number that is not in use.
    fn unused(&self) -> Option<u8> {
        let word = self.0.iter().position(|w| *w != u64::MAX)?;
        Some((word * 64) as u8 + self.0[word].trailing_ones() as u8)
    }
}

/// Pairs one after the other.
#[derive(Clone, Debug)]
pub(super) struct PairList {
    pairs: [u8; PAIRS],
    count: usize,
}

impl PairList {
    pub(super) fn new() -> Self {
        Self { pairs: [0; PAIRS], count: 0 }
    }

    pub(super) fn push(&mut self, pair: u8) {
        self.pairs[self.count] = pair;
        self.count += 1;
    }

    pub(super) fn pairs(&self) -> &[u8] {
        &self.pairs[..self.count]
    }
}

/// A length of prefix that subtables require.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) len: u8,
    /// Its number among all pairs.
    pub(super) pair: u8,
    subtables: u32,
}

/// The numbers of the pairs that subtables require.
///
/// There are as many as rules need: about a hundred for IPv4, more with IPv6.
/// Beyond [`PAIRS`], further pairs would have no number, and subtables that they
/// could have ruled out would be searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    used: Signature,
    asked: [Vec<Asked>; FIELDS],
}

impl Pairs {
    /// The lengths that are required of `field`.
    #[inline]
    pub(super) fn of_field(&self, field: usize) -> &[Asked] {
        &self.asked[field]
    }

    /// Counts a subtable that requires prefixes of `lens`.
    pub(super) fn add(&mut self, lens: [u8; FIELDS]) -> Signature {
        let mut signature = Signature::default();
        for (asked, len) in self.asked.iter_mut().zip(lens).filter(|(_, len)| *len > 0) {
            if let Some(known) = asked.iter_mut().find(|a| a.len == len) {
                known.subtables += 1;
                signature.add(known.pair);
            } else if let Some(pair) = self.used.unused() {
                asked.push(Asked { len, pair, subtables: 1 });
                self.used.add(pair);
                signature.add(pair);
            }
        }
        signature
    }

    /// Undoes one [`add`](Self::add).
    pub(super) fn remove(&mut self, signature: Signature) {
        for asked in &mut self.asked {
            for known in asked.iter_mut() {
                let pair = Signature::one(known.pair);
                known.subtables -= u32::from(signature.meets(&pair));
                if known.subtables == 0 {
                    self.used.remove(known.pair);
                }
            }
            asked.retain(|a| a.subtables > 0);
        }
    }
}

impl Signature {
    fn one(pair: u8) -> Self {
        let mut one = Self::default();
        one.add(pair);
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_keeps_its_number_while_a_subtable_asks_for_it() {
        let mut pairs = Pairs::default();
        let lens = |first, second| {
            let mut lens = [0; FIELDS];
            (lens[0], lens[1]) = (first, second);
            lens
        };
        let a = pairs.add(lens(8, 0));
        let b = pairs.add(lens(8, 16));
        assert!(a.meets(&b) && a.pairs().eq([0]) && b.pairs().eq([0, 1]));
        pairs.remove(a);
        assert_eq!(pairs.of_field(0).len(), 1);
        assert!(pairs.add(lens(9, 0)).pairs().eq([2]));
        pairs.remove(b);
        assert_eq!((pairs.of_field(0).len(), pairs.of_field(1).len()), (1, 0));
        assert!(pairs.add(lens(10, 11)).pairs().eq([0, 1]));
    }

    #[test]
    fn pairs_beyond_the_last_number_have_none() {
        let mut pairs = Pairs::default();
        let made: Vec<_> = (1..=128).map(|len| pairs.add([len; FIELDS])).collect();
        assert_eq!(made.iter().map(|s| s.pairs().count()).sum::<usize>(), PAIRS);
        assert_eq!(made[127], Signature::default());
        made.into_iter().for_each(|s| pairs.remove(s));
        assert_eq!(pairs.used, Signature::default());
    }
}
