//! Means and how sure they are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mean with its 95 % confidence interval: `mean` plus or minus `half_width`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval.
    pub half_width: f64,
}

impl Mean {
    /// The mean of batches that are as good as independent.
    pub fn of(batches: &[f64]) -> Self {
        let n = batches.len() as f64;
        let mean = batches.iter().sum::<f64>() / n;
        let squares: f64 = batches.iter().map(|x| (x - mean) * (x - mean)).sum();
        let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
        Self { mean, half_width: student(n - 1.0) * deviation / n.sqrt() }
    }
}

/// How many of the first observations a run's warm-up still shows in, by MSER-5 (White, "An
/// effective truncation heuristic for bias reduction in simulation output", Simulation 69,
/// 1997): means of five, and the cut at which the rest is surest of its mean. At most half.
fn warm_up(observations: &[f64]) -> usize {
    let means: Vec<f64> =
        observations.chunks_exact(5).map(|of| of.iter().sum::<f64>() / 5.0).collect();
    let doubt = |cut: &usize| {
        let rest = &means[*cut..];
        let n = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / n;
        rest.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n * n)
    };
    let cuts = 0..=means.len() / 2;
    5 * cuts.min_by(|a, b| doubt(a).total_cmp(&doubt(b))).unwrap_or(0)
}

/// Stretches of the first round that are observed.
const STRETCHES: u64 = 200;

/// Cycles of a lookup over stretches of the first measured ones, which show whether they
/// were warm.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Lookups of a stretch.
    every: u64,
    ended: bool,
    since: u64,
    start: u64,
    cycles: Vec<f64>,
}

impl Observed {
    /// The observation of a round of `lookups` lookups that begins now.
    pub(super) fn begin(lookups: u64, now: u64) -> Self {
        Self { every: (lookups / STRETCHES).max(1), start: now, ..Self::default() }
    }

    /// So many more lookups have ended.
    pub(super) fn note(&mut self, lookups: u64, now: u64) {
        self.since += lookups;
        if !self.ended && self.every > 0 && self.since >= self.every {
            self.cycles.push((now - self.start) as f64 / self.since as f64);
            (self.start, self.since) = (now, 0);
        }
    }

    /// Ends the round; later lookups are not observed.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// The first lookups that are not like the rest.
    pub(super) fn warm_up(&self) -> u64 {
        self.every * warm_up(&self.cycles) as u64
    }
}

/// The quantile of 97.5 % of Student's distribution (Abramowitz and Stegun, 26.7.5).
fn student(freedom: f64) -> f64 {
    let z = 1.959_964;
    // Products, which are the same on every machine; powers need not be.
    let z3 = z * z * z;
    let z5 = z3 * z * z;
    let second = (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom * freedom);
    z + (z3 + z) / (4.0 * freedom) + second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_seen_where_there_is_one() {
        let steady: Vec<f64> = (0..200).map(|n| 100.0 + f64::from(n * 7919 % 13)).collect();
        assert!(warm_up(&steady) < 50, "{}", warm_up(&steady));
        let slow = steady.iter().enumerate();
        let slow: Vec<f64> = slow.map(|(n, x)| x + 500.0 / (1.0 + n as f64)).collect();
        assert!((10..100).contains(&warm_up(&slow)), "{}", warm_up(&slow));
        assert_eq!(warm_up(&[1.0; 4]), 0);
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        assert!((student(19.0) - 2.093).abs() < 0.001);
        assert!((student(9.0) - 2.262).abs() < 0.004);
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((mean.mean - 2.5).abs() < 1e-12);
        // 3.182 times 1.291 over 2.
        assert!((mean.half_width - 2.054).abs() < 0.1, "{mean:?}");
    }
}
