//! The flow register: how many flows are active, from a bitmap of their hashes (HALO,
//! section 4.6).

/// Counts different hashes by linear counting: each sets one of `m` bits, and `u` bits
/// that stay clear tell of `n = m ln(m / u)` hashes (Whang, Vander-Zanden and Taylor, "A
/// linear-time probabilistic counting algorithm for database applications", TODS 1990).
#[derive(Clone, Debug)]
pub struct FlowRegister {
    bits: Vec<bool>,
}

impl FlowRegister {
    /// A register of `bits` bits, all clear.
    ///
    /// # Panics
    /// When `bits` is 0.
    pub fn new(bits: usize) -> Self {
        assert!(bits > 0, "a flow register has bits");
        Self { bits: vec![false; bits] }
    }

    /// Notes a query with this hash.
    pub fn note(&mut self, hash: u64) {
        let at = (hash % self.bits.len() as u64) as usize;
        self.bits[at] = true;
    }

    /// About how many different hashes were noted; `None` when no bit is clear, and it
    /// can only be said that there are many.
    pub fn flows(&self) -> Option<f64> {
        let clear = self.bits.iter().filter(|bit| !**bit).count();
        let all = self.bits.len() as f64;
        (clear > 0).then(|| all * (all / clear as f64).ln())
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256StarStar;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    /// Mean of the estimates over many windows; those without an answer count as the
    /// most that there is.
    fn mean(bits: usize, flows: usize) -> f64 {
        let mut random = Xoshiro256StarStar::seed_from_u64(1);
        let windows = 1000;
        let sum: f64 = (0..windows)
            .map(|_| {
                let mut register = FlowRegister::new(bits);
                (0..flows).for_each(|_| register.note(random.next_u64()));
                register.flows().unwrap_or(bits as f64 * (bits as f64).ln())
            })
            .sum();
        sum / f64::from(windows)
    }

    #[test]
    fn it_counts_up_to_twice_its_bits_within_a_tenth() {
        for bits in [32, 64, 128] {
            for flows in [bits / 2, bits, 2 * bits] {
                let counted = mean(bits, flows);
                assert!((counted / flows as f64 - 1.0).abs() < 0.1, "{bits} {flows}: {counted}");
            }
        }
        // Far beyond it cannot.
        assert!(mean(32, 1000) < 200.0);
    }
}
