//! Means and how sure they are.

use serde::{Deserialize, Serialize};

/// A mean with its 95 % confidence interval: `mean` plus or minus `half_width`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval.
    pub half_width: f64,
}

impl Mean {
    /// Of batches that are as good as independent.
    pub fn of(batches: &[f64]) -> Self {
        let n = batches.len() as f64;
        let mean = batches.iter().sum::<f64>() / n;
        let squares: f64 = batches.iter().map(|x| (x - mean) * (x - mean)).sum();
        let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
        Self { mean, half_width: student(n - 1.0) * deviation / n.sqrt() }
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
    fn the_interval_is_that_of_the_tables() {
        assert!((student(19.0) - 2.093).abs() < 0.001);
        assert!((student(9.0) - 2.262).abs() < 0.004);
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((mean.mean - 2.5).abs() < 1e-12);
        // 3.182 times 1.291 over 2.
        assert!((mean.half_width - 2.054).abs() < 0.1, "{mean:?}");
    }
}
