//! The flow register: how many flows are active, from a bitmap of their hashes.

/// Counts different hashes by linear counting: each sets one of `m` bits, and
/// `u` bits that stay clear indicate `n = m ln(m / u)` hashes (Whang, Vander-Zanden
/// and Taylor, "A linear-time probabilistic counting algorithm for database
/// applications", TODS 1990). HALO (ISCA 2019, section 4.6) has such a register
/// beside its tables.
#[derive(Clone, Debug)]
pub(crate) struct FlowRegister {
    bits: Box<[u64]>,
}

impl FlowRegister {
    /// A register of `bits` bits, rounded up to a power of two of at least 64. It
    /// distinguishes up to about ten flows a bit.
    pub(crate) fn new(bits: usize) -> Self {
        Self { bits: vec![0; bits.max(64).next_power_of_two() / 64].into() }
    }

    pub(crate) fn clear(&mut self) {
        self.bits.fill(0);
    }

    /// Records a packet of the flow with this hash.
    #[inline]
    pub(crate) fn note(&mut self, hash: u32) {
        let words = self.bits.len() - 1;
        // The lower bits choose the place in a cache: take others first.
        self.bits[(hash >> 6) as usize & words] |= 1 << (hash & 63);
    }

    /// An estimate of how many flows were recorded.
    pub(crate) fn flows(&self) -> usize {
        let all = (self.bits.len() * 64) as f64;
        let clear = self.bits.iter().map(|w| w.count_zeros()).sum::<u32>();
        // A full register shows only that there are many.
        (all * (all / f64::from(clear.max(1))).ln()).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::murmur3;

    #[test]
    fn it_counts_flows_and_not_packets() {
        let mut register = FlowRegister::new(1 << 16);
        for flows in [0u32, 1, 10, 1000, 50_000, 200_000] {
            register.clear();
            for _ in 0..3 {
                for n in 0..flows {
                    register.note(murmur3::finish(murmur3::step(1, n), 4));
                }
            }
            let counted = register.flows() as f64;
            let error = (counted - f64::from(flows)).abs();
            assert!(error <= 2.0 + f64::from(flows) * 0.03, "{flows}: {counted}");
        }
    }
}
