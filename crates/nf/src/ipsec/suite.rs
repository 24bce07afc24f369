//! The cipher suites: sealing and opening one ESP packet in place.
//!
//! An ESP packet lies in a buffer as SPI, sequence number, IV, body, ICV
//! (RFC 4303, section 2).

use aes::Aes128;
use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, KeyInit};
use cbc::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// SPI and sequence number.
pub(super) const HEADER: usize = 8;
const BLOCK: usize = 16;
const SHA1_ICV: usize = 12;
const GCM_TAG: usize = 16;
const GCM_IV: usize = 8;

/// The suites there are, by the names of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// AES-128-CBC (RFC 3602) with HMAC-SHA1-96 (RFC 2404).
    CbcSha1,
    /// AES-128-GCM with a 16-byte ICV (RFC 4106).
    Gcm,
}

impl Suite {
    pub(super) const ALL: [Self; 2] = [Self::CbcSha1, Self::Gcm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CbcSha1 => "aes128-cbc-hmac-sha1-96",
            Self::Gcm => "aes128-gcm16",
        }
    }

    /// Bytes of the encryption key; that of GCM ends with four bytes of salt.
    pub(super) fn key_len(self) -> usize {
        match self {
            Self::CbcSha1 => 16,
            Self::Gcm => 20,
        }
    }

    /// Bytes of the authentication key.
    pub(super) fn auth_key_len(self) -> usize {
        match self {
            Self::CbcSha1 => 20,
            Self::Gcm => 0,
        }
    }

    /// Bytes of the IV in the packet.
    pub(super) fn iv_len(self) -> usize {
        match self {
            Self::CbcSha1 => BLOCK,
            Self::Gcm => GCM_IV,
        }
    }

    /// Bytes of the integrity check value.
    pub(super) fn icv_len(self) -> usize {
        match self {
            Self::CbcSha1 => SHA1_ICV,
            Self::Gcm => GCM_TAG,
        }
    }

    /// What the body's length is a multiple of.
    pub(super) fn alignment(self) -> usize {
        match self {
            Self::CbcSha1 => BLOCK,
            Self::Gcm => 4,
        }
    }
}

/// A suite with its keys expanded.
pub(super) enum Cipher {
    CbcSha1 { aes: Box<Aes128>, hmac: Box<Hmac<Sha1>> },
    Gcm { aes: Box<Aes128Gcm>, salt: Zeroizing<[u8; 4]> },
}

impl Cipher {
    /// Expands the keys; `None` when one has the wrong length.
    pub(super) fn new(suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<Self> {
        if key.len() != suite.key_len() || auth_key.len() != suite.auth_key_len() {
            return None;
        }
        Some(match suite {
            Suite::CbcSha1 => Self::CbcSha1 {
                aes: Box::new(Aes128::new_from_slice(key).ok()?),
                hmac: Box::new(Hmac::new_from_slice(auth_key).ok()?),
            },
            Suite::Gcm => Self::Gcm {
                aes: Box::new(Aes128Gcm::new_from_slice(&key[..16]).ok()?),
                salt: Zeroizing::new(key[16..].try_into().ok()?),
            },
        })
    }

    pub(super) fn suite(&self) -> Suite {
        match self {
            Self::CbcSha1 { .. } => Suite::CbcSha1,
            Self::Gcm { .. } => Suite::Gcm,
        }
    }

    /// Encrypts the body of `esp`, whose header and IV are written, and writes
    /// the ICV. `high` is the upper half of an extended sequence number.
    /// `false` when the lengths do not fit the suite: a bug of the caller.
    #[must_use]
    pub(super) fn seal(&self, esp: &mut [u8], high: Option<u32>) -> bool {
        let suite = self.suite();
        let Some(parts) = Parts::split(suite, esp) else { return false };
        match self {
            Self::CbcSha1 { aes, hmac } => {
                let iv = Array::try_from(&parts.head[HEADER..]).unwrap_or_default();
                let mut cbc = cbc::Encryptor::inner_iv_init((**aes).clone(), &iv);
                let (blocks, _) = Array::slice_as_chunks_mut(parts.body);
                cbc.encrypt_blocks(blocks);
                let icv = authenticate(hmac, parts.head, parts.body, high);
                parts.icv.copy_from_slice(&icv);
            }
            Self::Gcm { aes, salt } => {
                let (aad, aad_len) = gcm_aad(parts.head, high);
                let nonce = gcm_nonce(salt, parts.head);
                let body = parts.body.into();
                let Ok(tag) = aes.encrypt_inout_detached(&nonce.into(), &aad[..aad_len], body)
                else {
                    return false;
                };
                parts.icv.copy_from_slice(&tag);
            }
        }
        true
    }

    /// Checks the ICV of `esp` and decrypts its body in place. `false`, and the
    /// body worthless, when the ICV is wrong or the lengths do not fit.
    #[must_use]
    pub(super) fn open(&self, esp: &mut [u8], high: Option<u32>) -> bool {
        let suite = self.suite();
        let Some(parts) = Parts::split(suite, esp) else { return false };
        match self {
            Self::CbcSha1 { aes, hmac } => {
                let icv = authenticate(hmac, parts.head, parts.body, high);
                if !bool::from(icv[..].ct_eq(parts.icv)) {
                    return false;
                }
                let iv = Array::try_from(&parts.head[HEADER..]).unwrap_or_default();
                let mut cbc = cbc::Decryptor::inner_iv_init((**aes).clone(), &iv);
                let (blocks, _) = Array::slice_as_chunks_mut(parts.body);
                cbc.decrypt_blocks(blocks);
                true
            }
            Self::Gcm { aes, salt } => {
                let (aad, aad_len) = gcm_aad(parts.head, high);
                let nonce = gcm_nonce(salt, parts.head);
                let Ok(tag) = Array::try_from(&*parts.icv) else { return false };
                let body = parts.body.into();
                aes.decrypt_inout_detached(&nonce.into(), &aad[..aad_len], body, &tag).is_ok()
            }
        }
    }
}

/// An ESP packet in its parts.
struct Parts<'a> {
    /// Header and IV.
    head: &'a mut [u8],
    body: &'a mut [u8],
    icv: &'a mut [u8],
}

impl<'a> Parts<'a> {
    /// `None` when there is no body, or it does not align.
    fn split(suite: Suite, esp: &'a mut [u8]) -> Option<Self> {
        let head_len = HEADER + suite.iv_len();
        let body_len = esp.len().checked_sub(head_len + suite.icv_len())?;
        if body_len == 0 || !body_len.is_multiple_of(suite.alignment()) {
            return None;
        }
        let (head, rest) = esp.split_at_mut(head_len);
        let (body, icv) = rest.split_at_mut(body_len);
        Some(Self { head, body, icv })
    }
}

/// The first 96 bits of the HMAC over the packet and, with extended sequence
/// numbers, the upper half behind it (RFC 4303, 2.2.1).
fn authenticate(hmac: &Hmac<Sha1>, head: &[u8], body: &[u8], high: Option<u32>) -> [u8; SHA1_ICV] {
    let mut hmac = hmac.clone();
    hmac.update(head);
    hmac.update(body);
    if let Some(high) = high {
        hmac.update(&high.to_be_bytes());
    }
    let full = hmac.finalize().into_bytes();
    let mut icv = [0; SHA1_ICV];
    icv.copy_from_slice(&full[..SHA1_ICV]);
    icv
}

/// SPI and sequence number, the upper half between them (RFC 4106, section 5).
fn gcm_aad(head: &[u8], high: Option<u32>) -> ([u8; 12], usize) {
    let mut aad = [0; 12];
    aad[..4].copy_from_slice(&head[..4]);
    if let Some(high) = high {
        aad[4..8].copy_from_slice(&high.to_be_bytes());
        aad[8..].copy_from_slice(&head[4..8]);
        (aad, 12)
    } else {
        aad[4..8].copy_from_slice(&head[4..8]);
        (aad, 8)
    }
}

/// Salt and IV (RFC 4106, section 4).
fn gcm_nonce(salt: &[u8; 4], head: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(salt);
    nonce[4..].copy_from_slice(&head[HEADER..HEADER + GCM_IV]);
    nonce
}
