//! CBC with HMAC of a batch, with AVX2 and AES-NI: sixteen packets go through AES and, eight at a
//! time, through the hash before the next are touched, so that they stay in the first-level cache
//! in between.
#![allow(unsafe_code)]

mod aes;
mod hmac;

pub(super) use aes::decrypt;

use super::aes_lanes::Text;
use super::hmac_lanes::{Message, TAG};

/// Encrypts packets, the longest first, and gives the tags of their messages. `idle` is at least
/// as long as the longest with its IV, and written.
///
/// # Safety
/// The packets and messages are there, and nobody else's; the texts' keys are of as many rounds.
#[target_feature(enable = "avx2,aes")]
pub(super) unsafe fn seal<const SHA256: bool>(
    texts: &[Text<'_>],
    messages: &[Message<'_>],
    tags: &mut [[u8; TAG]],
    idle: &mut [u8],
) {
    let has_vaes = std::arch::is_x86_feature_detected!("vaes");
    let encrypt: aes::Encrypt = if has_vaes { aes::encrypt_vaes } else { aes::encrypt };
    let messages = messages.chunks(aes::TEXTS).zip(tags.chunks_mut(aes::TEXTS));
    for (texts, (messages, tags)) in texts.chunks(aes::TEXTS).zip(messages) {
        // SAFETY: the caller says so, and that the processor has the instructions.
        unsafe { encrypt(texts, idle) };
        // SAFETY: the caller says so.
        unsafe { authenticate::<SHA256>(messages, tags) };
    }
}

/// The tags of messages.
///
/// # Safety
/// They are there.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn authenticate<const SHA256: bool>(
    messages: &[Message<'_>],
    tags: &mut [[u8; TAG]],
) {
    for (messages, tags) in messages.chunks(hmac::LANES).zip(tags.chunks_mut(hmac::LANES)) {
        // SAFETY: the caller says so.
        unsafe { hmac::authenticate::<SHA256>(messages, tags) };
    }
}
