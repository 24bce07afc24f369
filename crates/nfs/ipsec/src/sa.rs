//! Security associations.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::Match;
use thalweg_packet::wire::ip_proto::{ESP, UDP};
use thalweg_packet::{Batch, FiveTuple, FlowKey};

use super::cipher::Cipher;
use super::outbound::Layout;
use super::replay::ReplayWindow;
use thalweg_nf::toolkit::outer::OuterIp;

/// TTL or hop limit of the tunnel's packets.
const TTL: u8 = 64;

/// The part of an association that both directions share.
pub(super) struct Association {
    pub(super) name: String,
    pub(super) spi: u32,
    pub(super) cipher: Cipher,
    /// Equal for equal suites and keys.
    pub(super) key_id: u64,
    /// Tunnel end points.
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Extended sequence numbers.
    pub(super) extended: bool,
    /// Source and destination port of the UDP header around ESP (RFC 3948).
    pub(super) udp: Option<(u16, u16)>,
    pub(super) lifetime: Lifetime,
    /// Its number in the table of a device that does its suite; `None` for other suites.
    pub(super) device: Option<usize>,
}

impl Association {
    pub(super) fn receiver(&self) -> Receiver {
        (self.spi, self.destination, self.udp.map(|(_, destination)| destination))
    }

    /// The flow of its packets, without a UDP header.
    pub(super) fn flow(&self) -> FiveTuple {
        let (src, dst) = (self.source, self.destination);
        FiveTuple { src, dst, protocol: ESP, src_port: 0, dst_port: 0 }
    }
}

/// The key that distinguishes outbound associations: the receiver chooses the SPI, so it is unique
/// only together with the destination of the packets, the UDP port included.
pub(super) type Receiver = (u32, IpAddr, Option<u16>);

/// The limits at which an association expires (RFC 4301, section 4.4.2.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// Packets.
    pub(super) packets: u64,
    /// Bytes of the inner packets.
    pub(super) bytes: u64,
}

/// The DF ("don't fragment") bit of the outer header. Never set on a packet that is longer than the
/// MTU of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DontFragment {
    /// Copied from the inner packet; IPv6 counts as set.
    Copy,
    /// Set.
    Set,
    /// Not set.
    Clear,
}

/// How to handle packets that the tunnel makes too long for its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The longest packet with its tunnel, in bytes of IP.
    pub(super) mtu: u16,
    pub(super) dont_fragment: DontFragment,
    /// Whether a packet that may be fragmented is fragmented before encryption.
    pub(super) cut: bool,
}

/// An association that protects packets.
pub(super) struct Outbound {
    pub(super) association: Association,
    pub(super) layout: Layout,
    /// The tunnel's own IP header (RFC 4301, 5.1.2).
    pub(super) tunnel: OuterIp,
    pub(super) path: Path,
    /// The last sequence number sent.
    sequence: AtomicU64,
    /// Bytes protected; counted only if their number is limited.
    bytes: AtomicU64,
    /// The start of the IVs of GCM: random, since keys are written in a file and
    /// outlive a run, and a nonce must never be used twice with one key.
    iv_start: u64,
}

/// The changing part of an association that opens packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Received {
    pub(super) window: ReplayWindow,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Received {
    /// Merges what was received elsewhere; no counter or window moves back.
    pub(super) fn merge(&mut self, other: &Self) {
        self.window.merge(other.window);
        self.packets = self.packets.max(other.packets);
        self.bytes = self.bytes.max(other.bytes);
    }
}

/// An association that checks and opens packets.
pub(super) struct Inbound {
    pub(super) association: Association,
    /// The pattern that inner packets must match.
    pub(super) selector: Match,
    /// Locked, because the arrivals of a batch borrow the databases. One thread at a time is in the
    /// NF, so the lock is not contended.
    received: Mutex<Received>,
}

/// The sequence numbers that [`Outbound::reserve`] returned.
pub(super) struct Reserved {
    next: u64,
    last: u64,
}

impl Iterator for Reserved {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        (self.next <= self.last).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl Outbound {
    /// Whether the tunnel runs over IPv6, whose routers do not fragment (RFC 8200, section 5).
    pub(super) fn is_over_ipv6(&self) -> bool {
        self.association.source.is_ipv6()
    }

    /// Returns `None` if the end points differ in IP version.
    pub(super) fn new(association: Association, path: Path, iv_start: u64) -> Option<Self> {
        let Association { source, destination, udp, ref cipher, .. } = association;
        let layout = Layout::new(cipher.suite(), source.is_ipv4(), udp.is_some());
        let protocol = if udp.is_some() { UDP } else { ESP };
        let tunnel = OuterIp::new(source, destination, protocol, TTL)?;
        let (sequence, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Some(Self { association, layout, tunnel, path, sequence, bytes, iv_start })
    }

    /// Reserves the next `packets` sequence numbers, or fewer if fewer are left.
    pub(super) fn reserve(&self, packets: u64) -> Reserved {
        let most = if self.association.extended { u64::MAX - 1 } else { u64::from(u32::MAX) };
        let most = most.min(self.association.lifetime.packets);
        let mut before = self.sequence.load(Ordering::Relaxed);
        loop {
            let last = before.saturating_add(packets).min(most).max(before);
            let exchanged = self.sequence.compare_exchange_weak(
                before,
                last,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return Reserved { next: before + 1, last },
                Err(now) => before = now,
            }
        }
    }

    /// Counts a packet of `bytes` bytes; returns `false` if the lifetime does not allow it.
    pub(super) fn charge(&self, bytes: usize) -> bool {
        let most = self.association.lifetime.bytes;
        if most == u64::MAX {
            return true;
        }
        let add = |sum: u64| sum.checked_add(bytes as u64).filter(|sum| *sum <= most);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// The IV in the packet, for suites whose IVs need only be unique.
    pub(super) fn iv(&self, number: u64) -> [u8; 8] {
        self.iv_start.wrapping_add(number).to_be_bytes()
    }

    /// The last sequence number sent, and the bytes counted.
    pub(super) fn sent(&self) -> (u64, u64) {
        (self.sequence.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Continues after `number` and `bytes`; never moves back.
    pub(super) fn resume_after(&self, number: u64, bytes: u64) {
        self.sequence.fetch_max(number, Ordering::Relaxed);
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
    }
}

impl Inbound {
    pub(super) fn new(association: Association, selector: Match) -> Self {
        Self { association, selector, received: Mutex::default() }
    }

    pub(super) fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the selector covers the inner packet of `lane`. Without a selector all are covered.
    pub(super) fn covers(&self, batch: &Batch, lane: usize) -> bool {
        !self.is_selective() || self.selector.covers(&batch.key(lane))
    }

    /// Whether there is a selector. Without one an association accepts any inner packet.
    pub(super) fn is_selective(&self) -> bool {
        *self.selector.mask() != FlowKey::default()
    }

    /// Whether the lifetime allows, after `received`, another packet with `bytes` inside.
    pub(super) fn lives(&self, received: &Received, bytes: usize) -> bool {
        let Lifetime { packets, bytes: most } = self.association.lifetime;
        received.packets < packets && received.bytes.saturating_add(bytes as u64) <= most
    }
}
