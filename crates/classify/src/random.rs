//! A sequence of numbers that looks random.

/// xorshift64 (Marsaglia, "Xorshift RNGs", 2003): a few instructions a number. Who knows the seed
/// knows them all.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        // From 0 only zeros would follow.
        Self(if seed == 0 { 1 } else { seed })
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}
