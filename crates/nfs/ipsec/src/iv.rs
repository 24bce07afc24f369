//! Initialisation vectors for CBC.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use thalweg_nf::Seed;

/// IVs generated at once: as many as the library encrypts in parallel with VAES.
const AHEAD: usize = 64;

/// Unpredictable IVs: a counter encrypted under a secret key from the operating
/// system's random source (NIST SP 800-38A, appendix C).
pub(super) struct IvSource {
    cipher: Aes128,
    counter: u128,
    /// IVs generated ahead; the first `left` are unused.
    ready: [aes::Block; AHEAD],
    left: usize,
}

impl IvSource {
    /// # Errors
    /// If the operating system returns no random bytes.
    pub(super) fn new(seed: Seed) -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        seed.fill(&mut key, "IVs of ipsec")?;
        let ready = [aes::Block::default(); AHEAD];
        Ok(Self { cipher: Aes128::new(&key.into()), counter: 0, ready, left: 0 })
    }

    #[inline]
    pub(super) fn next(&mut self) -> [u8; 16] {
        if self.left == 0 {
            self.refill();
        }
        self.left -= 1;
        self.ready[self.left].into()
    }

    #[cold]
    fn refill(&mut self) {
        for block in &mut self.ready {
            self.counter = self.counter.wrapping_add(1);
            *block = self.counter.to_be_bytes().into();
        }
        self.cipher.encrypt_blocks(&mut self.ready);
        self.left = AHEAD;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_iv_comes_twice() {
        let source = || IvSource::new(Seed::default());
        let (mut one, mut other) = (source().unwrap(), source().unwrap());
        let ivs: HashSet<[u8; 16]> = (0..1000).flat_map(|_| [one.next(), other.next()]).collect();
        assert_eq!(ivs.len(), 2000);
    }
}
