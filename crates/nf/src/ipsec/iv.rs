//! Initialisation vectors for CBC.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

/// Unpredictable IVs: a counter encrypted under a key that the operating
/// system's random source gave and nobody else knows (NIST SP 800-38A,
/// appendix C). One per worker.
pub(super) struct IvSource {
    cipher: Aes128,
    counter: u128,
}

impl IvSource {
    /// # Errors
    /// When the operating system has no randomness.
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self { cipher: Aes128::new(&key.into()), counter: 0 })
    }

    pub(super) fn next(&mut self) -> [u8; 16] {
        self.counter = self.counter.wrapping_add(1);
        let mut block = self.counter.to_be_bytes().into();
        self.cipher.encrypt_block(&mut block);
        block.into()
    }
}
