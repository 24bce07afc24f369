//! The peer: encryption and authentication by aws-lc-rs, packet by packet.

use std::time::Instant;

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac::{self, HMAC_SHA1_FOR_LEGACY_USE_ONLY};
use aws_lc_rs::iv::FixedLength;
use thalweg_packet::BATCH;

use crate::{BATCHES, Outcome, ROUNDS};

/// What it is measured with.
pub(super) const SUITE: &str = "aes128-cbc-hmac-sha1-96";

/// Nanoseconds a packet of `size` bytes of IP inside the tunnel.
pub(super) fn measure(size: usize) -> Outcome<f64> {
    let key = EncryptingKey::cbc(UnboundCipherKey::new(&AES_128, &[1; 16])?)?;
    let auth = hmac::Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, &[2; 20]);
    let body = (size + 2).next_multiple_of(16);
    let mut packets = vec![vec![7u8; 24 + body + 12]; BATCHES * BATCH];
    let mut shortest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for esp in &mut packets {
            let iv: [u8; 16] = esp[8..24].try_into()?;
            let context = EncryptionContext::Iv128(FixedLength::from(iv));
            key.less_safe_encrypt(&mut esp[24..24 + body], context)?;
            let tag = hmac::sign(&auth, &esp[..24 + body]);
            esp[24 + body..].copy_from_slice(&tag.as_ref()[..12]);
        }
        let ns = start.elapsed().as_nanos() as f64 / packets.len() as f64;
        shortest = shortest.min(ns);
    }
    Ok(shortest)
}
