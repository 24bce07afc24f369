//! The choice of the flow that sends next.

use rand::RngExt;

/// The weight of the first rank: large, for fine weights of the others, but small
/// enough that the sum of the maximum number of flows fits into 64 bits.
const SCALE: f64 = (1_u64 << 34) as f64;

/// The probability of choosing each flow.
#[derive(Debug)]
pub(super) enum Popularity {
    /// All flows alike; their number.
    Uniform(usize),
    /// By Zipf's law: the cumulative weights of the flows.
    Zipf(Vec<u64>),
}

impl Popularity {
    /// Creates the choice among `flows` flows, at least one: all alike, or the flow of rank r in
    /// proportion to r^-skew.
    pub(super) fn new(flows: usize, skew: Option<f64>) -> Self {
        let Some(skew) = skew else { return Self::Uniform(flows) };
        // Whole numbers, and a power in software: the last bit of a platform's own power
        // differs between platforms, which would generate another capture from the same
        // seed.
        let mut sum = 0;
        let weight = |rank: usize| (libm::pow(rank as f64, -skew) * SCALE) as u64;
        let sums = (1..=flows).map(|rank| {
            sum += weight(rank).max(1);
            sum
        });
        Self::Zipf(sums.collect())
    }

    /// Draws the index of a flow.
    pub(super) fn pick(&self, random: &mut impl RngExt) -> usize {
        match self {
            Self::Uniform(flows) => random.random_range(0..*flows),
            Self::Zipf(sums) => {
                let at = random.random_range(0..sums.last().copied().unwrap_or(1));
                sums.partition_point(|sum| *sum <= at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn counts(flows: usize, skew: Option<f64>, draws: usize) -> Vec<usize> {
        let popularity = Popularity::new(flows, skew);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut counts = vec![0; flows];
        for _ in 0..draws {
            counts[popularity.pick(&mut random)] += 1;
        }
        counts
    }

    #[test]
    fn zipf_gives_each_rank_its_share() {
        let (flows, draws) = (1000, 200_000);
        for skew in [0.5, 1.0, 1.2] {
            let counts = counts(flows, Some(skew), draws);
            let sum: f64 = (1..=flows).map(|rank| (rank as f64).powf(-skew)).sum();
            for rank in [1, 2, 3, 10, 100] {
                let expected = (rank as f64).powf(-skew) / sum * draws as f64;
                let off = (counts[rank - 1] as f64 - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "{skew} {rank}: {expected} {off}");
            }
        }
    }

    #[test]
    fn uniform_and_steep_popularity_stay_in_range() {
        assert!(counts(10, None, 20_000).iter().all(|n| (1700..2300).contains(n)));
        let steep = counts(10, Some(1e6), 1000);
        assert!(steep[0] >= 999, "{steep:?}");
        assert_eq!(counts(1, Some(1.0), 5), [5]);
    }
}
