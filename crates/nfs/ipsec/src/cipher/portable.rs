//! Packet by packet, with the RustCrypto libraries: the reference.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt};
use aes::{Aes128, Aes256};
use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit, Nonce, Tag};
use cbc::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use chacha20poly1305::ChaCha20Poly1305;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Job, Parts};
use crate::suite::{Aes, HEADER, Hash, SALT, Suite};

/// Bytes of the longest ICV.
const TAG: usize = 16;

/// Expanded keys.
pub(super) enum Keys {
    Cbc(Box<Cbc>, Box<Authentication>),
    Aead(Box<Aead>, Zeroizing<[u8; SALT]>),
}

pub(super) enum Cbc {
    Aes128(Aes128),
    Aes256(Aes256),
}

pub(super) enum Authentication {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
}

pub(super) enum Aead {
    Aes128Gcm(Aes128Gcm),
    Aes256Gcm(Aes256Gcm),
    ChaCha20Poly1305(ChaCha20Poly1305),
}

impl Keys {
    /// Returns `None` if a key has the wrong length.
    pub(super) fn new(suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<Self> {
        let aead = |of: fn(&[u8]) -> Option<Aead>| {
            let (key, salt) = key.split_last_chunk()?;
            Some(Self::Aead(Box::new(of(key)?), Zeroizing::new(*salt)))
        };
        match suite {
            Suite::Cbc(aes, hash) => {
                let cbc = match aes {
                    Aes::Bits128 => Cbc::Aes128(Aes128::new_from_slice(key).ok()?),
                    Aes::Bits256 => Cbc::Aes256(Aes256::new_from_slice(key).ok()?),
                };
                let hmac = match hash {
                    Hash::Sha1 => Authentication::Sha1(Hmac::new_from_slice(auth_key).ok()?),
                    Hash::Sha256 => Authentication::Sha256(Hmac::new_from_slice(auth_key).ok()?),
                };
                Some(Self::Cbc(Box::new(cbc), Box::new(hmac)))
            }
            Suite::Gcm(Aes::Bits128) => {
                aead(|key| Aes128Gcm::new_from_slice(key).ok().map(Aead::Aes128Gcm))
            }
            Suite::Gcm(Aes::Bits256) => {
                aead(|key| Aes256Gcm::new_from_slice(key).ok().map(Aead::Aes256Gcm))
            }
            Suite::ChaCha20Poly1305 => {
                aead(|key| ChaCha20Poly1305::new_from_slice(key).ok().map(Aead::ChaCha20Poly1305))
            }
        }
    }
}

pub(super) fn seal(job: &mut Job<'_>) {
    let (cipher, high) = (job.cipher, job.high);
    let parts = job.parts();
    let good = match &cipher.portable {
        Keys::Cbc(cbc, authentication) => {
            let Parts { head, body, icv } = parts;
            cbc.encrypt(&head[HEADER..], body);
            icv.copy_from_slice(&authentication.icv(head, body, high)[..icv.len()]);
            true
        }
        Keys::Aead(aead, salt) => aead.seal(salt, parts, high),
    };
    job.finish(good);
}

pub(super) fn open(job: &mut Job<'_>) {
    let (cipher, high) = (job.cipher, job.high);
    let parts = job.parts();
    let good = match &cipher.portable {
        Keys::Cbc(cbc, authentication) => {
            let Parts { head, body, icv } = parts;
            let right = &authentication.icv(head, body, high)[..icv.len()];
            let authentic = bool::from(right.ct_eq(icv));
            if authentic {
                cbc.decrypt(&head[HEADER..], body);
            }
            authentic
        }
        Keys::Aead(aead, salt) => aead.open(salt, parts, high),
    };
    job.finish(good);
}

impl Cbc {
    fn encrypt(&self, iv: &[u8], body: &mut [u8]) {
        fn with<C: BlockCipherEncrypt + Clone>(cipher: &C, iv: &[u8], body: &mut [u8]) {
            let iv = Array::try_from(iv).unwrap_or_default();
            let mut cbc = cbc::Encryptor::inner_iv_init(cipher.clone(), &iv);
            cbc.encrypt_blocks(Array::slice_as_chunks_mut(body).0);
        }
        match self {
            Self::Aes128(aes) => with(aes, iv, body),
            Self::Aes256(aes) => with(aes, iv, body),
        }
    }

    fn decrypt(&self, iv: &[u8], body: &mut [u8]) {
        fn with<C: BlockCipherDecrypt + Clone>(cipher: &C, iv: &[u8], body: &mut [u8]) {
            let iv = Array::try_from(iv).unwrap_or_default();
            let mut cbc = cbc::Decryptor::inner_iv_init(cipher.clone(), &iv);
            cbc.decrypt_blocks(Array::slice_as_chunks_mut(body).0);
        }
        match self {
            Self::Aes128(aes) => with(aes, iv, body),
            Self::Aes256(aes) => with(aes, iv, body),
        }
    }
}

impl Authentication {
    /// The first bytes of the HMAC over the packet and, with extended sequence numbers, the
    /// upper half after it (RFC 4303, 2.2.1).
    fn icv(&self, head: &[u8], body: &[u8], high: Option<u32>) -> [u8; TAG] {
        fn with<M: Mac + Clone>(hmac: &M, parts: [&[u8]; 3]) -> [u8; TAG] {
            let mut hmac = hmac.clone();
            parts.into_iter().for_each(|part| hmac.update(part));
            let mut icv = [0; TAG];
            icv.copy_from_slice(&hmac.finalize().into_bytes()[..TAG]);
            icv
        }
        let high = high.map(u32::to_be_bytes);
        let parts = [head, body, high.as_ref().map_or(&[][..], |high| high)];
        match self {
            Self::Sha1(hmac) => with(hmac, parts),
            Self::Sha256(hmac) => with(hmac, parts),
        }
    }
}

impl Aead {
    fn seal(&self, salt: &[u8; SALT], parts: Parts<'_>, high: Option<u32>) -> bool {
        let Parts { head, body, icv } = parts;
        let ((aad, len), nonce) = (associated(head, high), Nonce::from(nonce(salt, head)));
        let aad = &aad[..len];
        let body = body.into();
        let tag = match self {
            Self::Aes128Gcm(gcm) => gcm.encrypt_inout_detached(&nonce, aad, body),
            Self::Aes256Gcm(gcm) => gcm.encrypt_inout_detached(&nonce, aad, body),
            Self::ChaCha20Poly1305(chacha) => chacha.encrypt_inout_detached(&nonce, aad, body),
        };
        tag.map(|tag| icv.copy_from_slice(&tag)).is_ok()
    }

    fn open(&self, salt: &[u8; SALT], parts: Parts<'_>, high: Option<u32>) -> bool {
        let Parts { head, body, icv } = parts;
        let ((aad, len), nonce) = (associated(head, high), Nonce::from(nonce(salt, head)));
        let aad = &aad[..len];
        let Ok(tag) = Tag::try_from(&*icv) else { return false };
        let body = body.into();
        match self {
            Self::Aes128Gcm(gcm) => gcm.decrypt_inout_detached(&nonce, aad, body, &tag),
            Self::Aes256Gcm(gcm) => gcm.decrypt_inout_detached(&nonce, aad, body, &tag),
            Self::ChaCha20Poly1305(chacha) => {
                chacha.decrypt_inout_detached(&nonce, aad, body, &tag)
            }
        }
        .is_ok()
    }
}

/// SPI and sequence number, the upper half between them (RFC 4106, section 5; RFC 7634,
/// section 2.1), and how many bytes that is.
fn associated(head: &[u8], high: Option<u32>) -> ([u8; 12], usize) {
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

/// Salt and IV (RFC 4106, section 4; RFC 7634, section 2).
fn nonce(salt: &[u8; SALT], head: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..SALT].copy_from_slice(salt);
    nonce[SALT..].copy_from_slice(&head[HEADER..HEADER + 8]);
    nonce
}
