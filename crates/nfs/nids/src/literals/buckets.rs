//! Divides literals among the buckets of a filter.
//!
//! What a filter lets pass by chance grows with what a bucket mixes. So literals are put in an order in which
//! those alike follow each other, and that is divided where the least passes in all (as Hyperscan does for its
//! FDR; Wang et al., NSDI 2019).

use super::index::Place;

/// The number of buckets, a bit each.
pub(super) const BUCKETS: usize = 8;

/// More places at which a bucket may end take too long to try.
const MOST_ENDS: usize = 192;

/// The places of literals of which a filter looks at `most` bytes, in an order to be divided: those of similar
/// length follow each other, because a short one makes its whole bucket pass more, and of these the ones with
/// similar bytes, which pass less together.
pub(super) fn in_order(literals: &[Vec<u8>], places: &[Place], most: usize) -> Vec<Place> {
    let mut places = places.to_vec();
    places.sort_by_key(|p| (p.bytes(literals).len().min(most), p.bytes(literals)));
    places
}

/// Divides `count` items among buckets of consecutive ones, and returns the number of each one's bucket.
/// `costs` are those of a bucket that begins with an item, as it grows by one item after the other; the
/// total is as small as it can be, or nearly so for many items.
pub(super) fn divide<I: Iterator<Item = f64>>(
    count: usize,
    costs: impl Fn(usize) -> I,
) -> Vec<usize> {
    let step = count.div_ceil(MOST_ENDS).max(1);
    let ends = count.div_ceil(step);
    // For each number of buckets and each end, the least cost up to there and where the last bucket begins.
    let mut best = vec![vec![(f64::INFINITY, 0); ends + 1]; BUCKETS + 1];
    best[0][0].0 = 0.0;
    let mut of_buckets = vec![Vec::new(); ends];
    for (begin, costs_from) in of_buckets.iter_mut().enumerate() {
        let items = count - begin * step;
        let is_end = |n: &usize| (n + 1).is_multiple_of(step) || n + 1 == items;
        let each = costs(begin * step).take(items).enumerate();
        costs_from.extend(each.filter(|(n, _)| is_end(n)).map(|(_, cost)| cost));
    }
    for used in 0..BUCKETS {
        for (begin, costs) in of_buckets.iter().enumerate() {
            let before = best[used][begin].0;
            for (end, cost) in (begin + 1..).zip(costs) {
                let known = &mut best[used + 1][end];
                if before + cost < known.0 {
                    *known = (before + cost, begin);
                }
            }
        }
    }
    let mut buckets = vec![0; count];
    let least = |used: &usize| best[*used][ends].0;
    let mut used = (0..=BUCKETS).min_by(|a, b| least(a).total_cmp(&least(b))).unwrap_or(0);
    let mut end = ends;
    while end > 0 && used > 0 {
        let begin = best[used][end].1;
        used -= 1;
        buckets[begin * step..(end * step).min(count)].fill(used);
        end = begin;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bucket costs the product of the length and the largest of its items.
    fn costs(items: &[u32], first: usize) -> impl Iterator<Item = f64> {
        let mut largest = 0;
        (1..).zip(&items[first..]).map(move |(length, item)| {
            largest = largest.max(*item);
            f64::from(length * largest)
        })
    }

    fn total(items: &[u32], buckets: &[usize]) -> u32 {
        let of = |bucket| items.iter().zip(buckets).filter(move |(_, b)| **b == bucket);
        let cost =
            |bucket| of(bucket).count() as u32 * of(bucket).map(|(i, _)| *i).max().unwrap_or(0);
        (0..BUCKETS).map(cost).sum()
    }

    proptest! {
        #[test]
        fn no_division_into_equal_parts_costs_less(
            items in proptest::collection::vec(0u32..100, 0..500), parts in 1..=BUCKETS,
        ) {
            let buckets = divide(items.len(), |first| costs(&items, first));
            prop_assert!(buckets.is_sorted() && buckets.iter().all(|bucket| *bucket < BUCKETS));
            if items.len() <= MOST_ENDS {
                let equal: Vec<_> = (0..items.len()).map(|n| n * parts / items.len()).collect();
                prop_assert!(total(&items, &buckets) <= total(&items, &equal));
            }
        }
    }

    #[test]
    fn what_is_dear_together_is_apart() {
        let items = [1, 1, 1, 9, 9, 2, 2, 2, 7, 1, 1, 1, 1];
        let buckets = divide(items.len(), |first| costs(&items, first));
        assert_eq!(total(&items, &buckets), 3 + 18 + 6 + 7 + 4);
        assert!(divide(0, |_| std::iter::empty()).is_empty());
        assert_eq!(divide(10_000, |_| std::iter::repeat(1.0)).len(), 10_000);
    }
}
