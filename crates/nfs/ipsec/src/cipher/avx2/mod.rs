//! CBC with HMAC of a batch, with AVX2 and AES-NI: sixteen packets pass AES and, eight at a time,
//! the hash before the next are touched, so that they stay in the first-level cache in between.
#![allow(unsafe_code)]

mod aes;
mod hmac;

pub(super) use aes::decrypt;

use thalweg_cpu::avx2;

use super::hmac_lanes::TAG;
use super::lanes::Packet;

/// Encrypts packets, the longest first, and writes their tags. `idle` is at least as long as the
/// longest with its IV, and is overwritten.
///
/// # Safety
/// The packets are valid memory and not shared; their keys have the same number of rounds.
#[avx2]
#[target_feature(enable = "aes")]
pub(super) unsafe fn seal<const SHA256: bool>(
    packets: &[Packet<'_>],
    tags: &mut [[u8; TAG]],
    idle: &mut [u8],
) {
    let has_vaes = std::arch::is_x86_feature_detected!("vaes");
    let encrypt: aes::Encrypt = if has_vaes { aes::encrypt_vaes } else { aes::encrypt };
    for (packets, tags) in packets.chunks(aes::AT_ONCE).zip(tags.chunks_mut(aes::AT_ONCE)) {
        // SAFETY: the caller guarantees it, and the processor has the instructions.
        unsafe { encrypt(packets, idle) };
        // SAFETY: the caller guarantees it.
        unsafe { authenticate::<SHA256>(packets, tags) };
    }
}

/// Computes the tags of packets.
///
/// # Safety
/// The packets are valid memory.
#[avx2]
pub(super) unsafe fn authenticate<const SHA256: bool>(
    packets: &[Packet<'_>],
    tags: &mut [[u8; TAG]],
) {
    for (packets, tags) in packets.chunks(hmac::LANES).zip(tags.chunks_mut(hmac::LANES)) {
        // SAFETY: the caller guarantees it.
        unsafe { hmac::authenticate::<SHA256>(packets, tags) };
    }
}
