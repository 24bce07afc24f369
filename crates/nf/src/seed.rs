//! Random choices of NFs.

/// Where NFs get random bytes: from the operating system, or, for runs that must be repeatable byte
/// for byte, from the number that `[run] seed` gives. Whoever knows that number knows what is
/// chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub Option<u64>);

impl Seed {
    /// Fills `bytes`; with a seed, those for one `purpose` are always the same.
    ///
    /// # Errors
    /// If the operating system returns no random bytes.
    pub fn fill(self, bytes: &mut [u8], purpose: &str) -> Result<(), getrandom::Error> {
        let Some(seed) = self.0 else { return getrandom::fill(bytes) };
        // FNV-1a distinguishes purposes; SplitMix64 (Steele, Lea, Flood, 2014) makes the bytes.
        let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut state = seed ^ purpose.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        for chunk in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(word ^ word >> 31).to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: Option<u64>, purpose: &str) -> [u8; 20] {
        let mut bytes = [0; 20];
        Seed(seed).fill(&mut bytes, purpose).unwrap();
        bytes
    }

    #[test]
    fn a_seed_repeats_its_choices_and_the_system_does_not() {
        assert_eq!(bytes(Some(7), "a"), bytes(Some(7), "a"));
        assert_ne!(bytes(Some(7), "a"), bytes(Some(7), "b"));
        assert_ne!(bytes(Some(7), "a"), bytes(Some(8), "a"));
        assert_ne!(bytes(None, "a"), bytes(None, "a"));
    }
}
