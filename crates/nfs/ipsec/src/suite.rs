//! The cipher suites, and what they add to a packet.

/// SPI and sequence number.
pub(super) const HEADER: usize = 8;
/// Bytes of salt after the key of an AEAD suite (encryption and authentication in one).
pub(super) const SALT: usize = 4;

/// Length of an AES key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aes {
    Bits128,
    Bits256,
}

impl Aes {
    /// Bytes of the key.
    pub(super) fn key_len(self) -> usize {
        match self {
            Self::Bits128 => 16,
            Self::Bits256 => 32,
        }
    }
}

/// The hash function of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hash {
    Sha1,
    Sha256,
}

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suite {
    /// AES-CBC (RFC 3602) with HMAC-SHA1-96 (RFC 2404) or HMAC-SHA-256-128 (RFC 4868).
    Cbc(Aes, Hash),
    /// AES-GCM with a 16-byte ICV (RFC 4106).
    Gcm(Aes),
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

impl Suite {
    pub(super) const ALL: [Self; 7] = [
        Self::Cbc(Aes::Bits128, Hash::Sha1),
        Self::Cbc(Aes::Bits128, Hash::Sha256),
        Self::Cbc(Aes::Bits256, Hash::Sha1),
        Self::Cbc(Aes::Bits256, Hash::Sha256),
        Self::Gcm(Aes::Bits128),
        Self::Gcm(Aes::Bits256),
        Self::ChaCha20Poly1305,
    ];

    /// The suite's name in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cbc(Aes::Bits128, Hash::Sha1) => "aes128-cbc-hmac-sha1-96",
            Self::Cbc(Aes::Bits128, Hash::Sha256) => "aes128-cbc-hmac-sha256-128",
            Self::Cbc(Aes::Bits256, Hash::Sha1) => "aes256-cbc-hmac-sha1-96",
            Self::Cbc(Aes::Bits256, Hash::Sha256) => "aes256-cbc-hmac-sha256-128",
            Self::Gcm(Aes::Bits128) => "aes128-gcm16",
            Self::Gcm(Aes::Bits256) => "aes256-gcm16",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// Bytes of the encryption key, with the salt.
    pub(super) fn key_len(self) -> usize {
        match self {
            Self::Cbc(aes, _) => aes.key_len(),
            Self::Gcm(aes) => aes.key_len() + SALT,
            Self::ChaCha20Poly1305 => 32 + SALT,
        }
    }

    /// Bytes of the authentication key.
    pub(super) fn auth_key_len(self) -> usize {
        match self {
            Self::Cbc(_, Hash::Sha1) => 20,
            Self::Cbc(_, Hash::Sha256) => 32,
            Self::Gcm(_) | Self::ChaCha20Poly1305 => 0,
        }
    }

    /// Bytes of the IV in the packet.
    pub(super) fn iv_len(self) -> usize {
        match self {
            Self::Cbc(..) => 16,
            Self::Gcm(_) | Self::ChaCha20Poly1305 => 8,
        }
    }

    /// Bytes of the integrity check value.
    pub(super) fn icv_len(self) -> usize {
        match self {
            Self::Cbc(_, Hash::Sha1) => 12,
            _ => 16,
        }
    }

    /// The body's length is a multiple of this.
    pub(super) fn alignment(self) -> usize {
        match self {
            Self::Cbc(..) => 16,
            Self::Gcm(_) | Self::ChaCha20Poly1305 => 4,
        }
    }
}
