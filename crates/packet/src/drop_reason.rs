//! The closed set of reasons for which a packet is dropped.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet was not transmitted. Every drop has one of these names, in
        /// counters, traces and reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// How many reasons there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The reason's name in reports: lower case, words joined by hyphens.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

reasons! {
    // Receive and transmit.
    /// The pool had no free frame.
    PoolExhausted = "pool-exhausted",
    /// The packet is longer than a frame holds.
    FrameTooSmall = "frame-too-small",
    /// The capture's link type has no Ethernet form.
    UnsupportedLinkType = "unsupported-link-type",
    /// An interface's ring for packets that arrive was full.
    ReceiveRingFull = "receive-ring-full",
    /// An interface's queue of packets to be sent stayed full.
    TransmitQueueFull = "transmit-queue-full",
    /// The output refused the packet.
    OutputFailed = "output-failed",
    /// The output has no peer at this time.
    NoPeer = "no-peer",
    // Chain.
    /// The route table has no next NF for the packet's type.
    NoRoute = "no-route",
    /// A route drops the packet.
    Policy = "policy",
    /// An NF sent the packet to the controller, and there is none.
    Punted = "punted",
    /// The packet passed more NFs than the hop limit of a chain.
    ChainLoop = "chain-loop",
    /// The thread that had the packet, or one that it waited for, panicked.
    Unfinished = "unfinished",
    // Any NF.
    /// The packet had waited for too long, and the NF drops those (`on_overload = "drop"`).
    Overload = "overload",
    /// A device had the packet when it failed.
    DeviceFailed = "device-failed",
    /// A header the NF needs is truncated, inconsistent or unknown.
    Malformed = "malformed",
    /// A checksum the NF relies on is wrong.
    BadChecksum = "bad-checksum",
    /// The NF does not handle this protocol.
    UnsupportedProtocol = "unsupported-protocol",
    /// The frame has no room left for the headers the NF adds.
    NoRoom = "no-room",
    /// The NF's state table is full.
    StateFull = "state-full",
    /// A message addressed to the NF itself, which consumed it.
    Consumed = "consumed",
    // Router.
    /// The TTL or hop limit ran out.
    TtlExpired = "ttl-expired",
    /// No route to the destination address.
    Unreachable = "unreachable",
    /// The packet is longer than the MTU of next hop or interface and must not be fragmented.
    TooBig = "too-big",
    /// The destination address is not one a router forwards to (multicast, loopback, ...).
    NotForwardable = "not-forwardable",
    /// The next hop's MAC address is not resolved yet. The router keeps copies of the first such
    /// packets and forwards them when the next hop answers.
    Unresolved = "unresolved",
    // Filter and NIDS.
    /// A rule drops the packet.
    FilterDrop = "filter-drop",
    /// A rule rejects the packet; the sender was notified.
    FilterReject = "filter-reject",
    /// A detection rule drops the packet.
    Intrusion = "intrusion",
    /// A rule blocks the application, its category or the host.
    Application = "application",
    // IPsec.
    /// The security policy discards the packet, or none matches.
    NoPolicy = "no-policy",
    /// No security association for the packet's SPI.
    NoSa = "no-sa",
    /// The integrity check value is wrong.
    AuthenticationFailed = "authentication-failed",
    /// The sequence number was seen before, or lies left of the window.
    Replayed = "replayed",
    /// The sequence number space of the association is used up.
    SequenceExhausted = "sequence-exhausted",
    /// The association has carried as many packets or bytes as it may.
    LifetimeOver = "lifetime-over",
    /// The decrypted packet violates the association's selectors or padding.
    BadInnerPacket = "bad-inner-packet",
    /// A dummy packet (next header 59), sent only to hide the volume of traffic.
    DummyPacket = "dummy-packet",
    /// A keepalive that maintains a NAT's mapping (RFC 3948).
    NatKeepalive = "nat-keepalive",
    // NAT.
    /// No free external port for a new mapping.
    NoPort = "no-port",
    /// No mapping for a packet from outside.
    NoMapping = "no-mapping",
    /// A fragment whose first fragment was not seen.
    UnknownFragment = "unknown-fragment",
    // Defrag.
    /// A fragment held until its packet is complete, or its first fragment arrives: then it is
    /// forwarded, as a part of that packet or as a copy.
    FragmentHeld = "fragment-held",
    /// A duplicate fragment.
    FragmentDuplicate = "fragment-duplicate",
    /// A fragment of a packet whose fragments overlap or contradict each other.
    FragmentOverlap = "fragment-overlap",
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How many packets were dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCounts {
    by_reason: [u64; DropReason::COUNT],
    /// Their sum, which is read for every batch.
    total: u64,
}

impl Default for DropCounts {
    fn default() -> Self {
        Self { by_reason: [0; DropReason::COUNT], total: 0 }
    }
}

impl DropCounts {
    /// Counts `packets` more dropped for `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.by_reason[reason as usize] += packets;
        self.total += packets;
    }

    /// Adds the counts of `other`.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        for (sum, n) in self.by_reason.iter_mut().zip(other.by_reason) {
            *sum += n;
        }
        self.total += other.total;
    }

    /// What was counted since `earlier`, a copy of these counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (count, before) in since.by_reason.iter_mut().zip(earlier.by_reason) {
            *count = count.saturating_sub(before);
        }
        since.total = since.by_reason.iter().sum();
        since
    }

    /// Packets dropped for `reason`.
    #[inline]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.by_reason[reason as usize]
    }

    /// Packets dropped in all.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|r| (*r, self.get(*r))).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_numbers_are_dense() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
        assert!(DropReason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }
}
