//! What both ends of a connection are configured with.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_packet::Pool;

use super::address::Address;
use super::message::SECRET;
use crate::kind::Refusal;

/// The end of a connection that a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It listens on the socket, and maps the memory of clients: the master of earlier documents.
    Server,
    /// It connects to the socket, and makes the memory: the slave of earlier documents.
    Client,
}

/// A secret that a client needs, padded with zeros; none if it is all zeros.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Secret(pub(super) [u8; SECRET]);

impl Secret {
    /// A secret of 1 to 24 bytes without zeros.
    pub(super) fn new(text: &str) -> Option<Self> {
        let mut secret = [0; SECRET];
        secret.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        let is_right = !text.is_empty() && !text.as_bytes().contains(&0);
        is_right.then_some(Self(secret))
    }

    pub(super) fn is_none(&self) -> bool {
        self.0 == [0; SECRET]
    }

    /// Whether `shown` is this secret; in a time that does not depend on where they differ.
    pub(super) fn is(&self, shown: &[u8; SECRET]) -> bool {
        self.0.iter().zip(shown).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "none" } else { "hidden" })
    }
}

/// One end of a connection: which, and how.
///
/// Ports of one program with the same socket, role and identifier share the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifSettings {
    pub(super) address: Address,
    pub(super) role: Role,
    pub(super) id: u32,
    pub(super) secret: Secret,
    /// The binary logarithm of the descriptors of a ring: a client's rings, a server's largest.
    pub(super) ring_size: u8,
    /// Bytes of a client's buffers.
    pub(super) buffer_size: u32,
    /// Rings in each direction: a client's, or the most that a server accepts.
    pub(super) queues: u16,
    /// Whether a client's buffers are the frames of the pool, which the peer shares then.
    pub(super) zero_copy: bool,
}

impl MemifSettings {
    /// The frames in its rings with zero copy.
    pub(super) fn frames(&self) -> usize {
        2 * (usize::from(self.queues) << self.ring_size)
    }

    /// Checks that it can have the end of `other`, of the same socket, role and id, together with that,
    /// which messages name `named` and whose direction is the same or not.
    pub(super) fn check_end(
        &self,
        other: &Self,
        named: &str,
        same_direction: bool,
    ) -> Result<(), Refusal> {
        if same_direction {
            return Err(Refusal::taken(&["id"], named, "connection"));
        }
        let options: [(_, &[_]); 5] = [
            (self.secret == other.secret, &["secret"]),
            (self.ring_size == other.ring_size, &["ring_size"]),
            (self.buffer_size == other.buffer_size, &["buffer_size"]),
            (self.queues == other.queues, &["queues"]),
            (self.zero_copy == other.zero_copy, &["zero_copy"]),
        ];
        Refusal::unless_same(&options, named, "connection")
    }

    /// An end at `socket`, with the defaults of the chain file.
    ///
    /// # Errors
    /// If `socket` is no path of a socket.
    pub fn new(socket: &str, role: Role) -> Result<Self, String> {
        let (ring_size, buffer_size, queues) = (RING_SIZE, BUFFER_SIZE, 1);
        let address = Address::new(socket.into())?;
        let secret = Secret::default();
        let zero_copy = false;
        Ok(Self { address, role, id: 0, secret, ring_size, buffer_size, queues, zero_copy })
    }

    /// The same with frames of the packet memory, which must be
    /// [shared](thalweg_packet::PacketMemory::shared), as buffers: for a client. Its peer can change
    /// packets while they are processed, and must be trusted as this program is.
    #[must_use]
    pub fn with_zero_copy(self) -> Self {
        Self { zero_copy: self.role == Role::Client, ..self }
    }

    /// The same with this number of rings in each direction, from 1 to 64, or of rings that a server accepts.
    #[must_use]
    pub fn with_queues(self, queues: u16) -> Self {
        Self { queues: queues.clamp(1, MAX_QUEUES), ..self }
    }

    /// What the connection needs the packet memory for: to share it with its peer, if it does so.
    pub(super) fn pool<'a>(&self, pool: &'a Arc<Pool>) -> Option<&'a Arc<Pool>> {
        self.zero_copy.then_some(pool)
    }

    /// What it is, for messages: `memif /run/a.sock, id 0`.
    pub(super) fn title(&self) -> String {
        match self.id {
            0 => format!("memif {}", self.address),
            id => format!("memif {}, id {id}", self.address),
        }
    }
}

/// The descriptors of a ring unless the chain file has others, as a binary logarithm.
pub(super) const RING_SIZE: u8 = 10;
/// The bytes of a buffer unless the chain file has others.
pub(super) const BUFFER_SIZE: u32 = 2048;
/// The largest ring, as a binary logarithm: positions have 16 bits, and DPDK has no larger one.
pub(super) const MAX_RING_SIZE: u8 = 14;
/// The most rings in each direction.
pub(super) const MAX_QUEUES: u16 = 64;
