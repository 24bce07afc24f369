//! A packet outside a batch, and the metadata of packets.

use crate::lanes::BATCH;
use crate::pool::Frame;
use crate::time::Nanoseconds;

/// A port of the engine: the position of an input or output in the chain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// No port chosen yet.
    pub const NONE: Self = Self(u16::MAX);
}

impl Default for PortIndex {
    fn default() -> Self {
        Self::NONE
    }
}

/// The class a packet got from classification; routes are keyed by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketType(pub u16);

/// How a packet that was reassembled had been fragmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of its longest fragment, from the IP header on; 0 for an unfragmented packet.
    pub longest: u16,
    /// The identification of its fragments.
    pub identification: u32,
}

/// One packet outside a batch: its frame, where in it the bytes lie, and its
/// metadata. What rings between workers carry.
///
/// Like [`Frame`], it must go back into a batch or to its pool.
#[derive(Debug)]
#[must_use = "dropping a packet leaks its frame until the pool is dropped"]
pub struct Packet {
    pub(crate) frame: Frame,
    pub(crate) offset: u16,
    pub(crate) len: u16,
    /// Bytes the packet had on the wire; more than its length when the capture truncated it.
    pub wire_len: u32,
    /// When it was captured or received: the time that timers go by.
    pub timestamp: Nanoseconds,
    /// What to add to the timestamp, wrapping, for the time in its capture.
    pub misdated: u64,
    /// Cycle counter at receive, for latency.
    pub received_at: u64,
    /// Its input port.
    pub in_port: PortIndex,
    /// Its output port, when an NF chose one.
    pub out_port: PortIndex,
    /// Its packet type.
    pub packet_type: PacketType,
    /// How it was fragmented.
    pub cut: Cut,
    /// For a super-packet, the bytes of payload in each of its [segments](crate::Segments); else 0.
    pub segment_size: u16,
    /// For a super-packet in a tunnel, the [length of the inner IP packet](Metadata::inner_len).
    pub inner_len: u16,
}

impl Packet {
    /// A packet with default metadata, whose place lies in the frame.
    #[inline]
    pub(crate) fn new(frame: Frame, offset: u16, len: u16) -> Self {
        Self {
            frame,
            offset,
            len,
            wire_len: len.into(),
            timestamp: Nanoseconds::default(),
            misdated: 0,
            received_at: 0,
            in_port: PortIndex::NONE,
            out_port: PortIndex::NONE,
            packet_type: PacketType::default(),
            cut: Cut::default(),
            segment_size: 0,
            inner_len: 0,
        }
    }

    /// Where the packet begins in its frame, in bytes.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Gives up the packet and returns its frame, to be given back to its pool.
    #[inline]
    pub fn into_frame(self) -> Frame {
        self.frame
    }

    /// The packet's length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Per-packet metadata, one array a property, one element a lane.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Bytes the packet had on the wire.
    pub wire_len: [u32; BATCH],
    /// When it was captured or received: the time that timers go by.
    pub timestamp: [Nanoseconds; BATCH],
    /// What to add to the timestamp, wrapping, for the time in its capture: not 0 for a packet whose
    /// captured time was not believed.
    pub misdated: [u64; BATCH],
    /// Cycle counter at receive.
    pub received_at: [u64; BATCH],
    /// Its input port.
    pub in_port: [PortIndex; BATCH],
    /// The port it is to leave by.
    pub out_port: [PortIndex; BATCH],
    /// Its packet type.
    pub packet_type: [PacketType; BATCH],
    /// How it was fragmented.
    pub cut: [Cut; BATCH],
    /// For a super-packet, the bytes of payload in each of its [segments](crate::Segments), save
    /// for the last; 0 for any other packet. The transport checksum of a super-packet is unspecified:
    /// what sends or segments it computes one.
    pub segment_size: [u16; BATCH],
    /// For a super-packet in a tunnel, the length in bytes of the IP packet inside, which ends where the
    /// super-packet does and whose TCP or UDP payload is segmented; 0 for one without a tunnel.
    /// Unspecified for any other packet. Headers that NFs add or remove before the inner packet leave it
    /// as it is.
    pub inner_len: [u16; BATCH],
}

impl Metadata {
    /// The time of `lane`'s packet as its capture has it.
    #[inline]
    pub fn captured(&self, lane: usize) -> Nanoseconds {
        Nanoseconds(self.timestamp[lane].0.wrapping_add(self.misdated[lane]))
    }

    /// Gives the packet of `lane` what one that is made of, or for, the packet in lane `at` of `from`
    /// has of it: its times, input port and packet type.
    #[inline]
    pub fn inherit(&mut self, lane: usize, from: &Self, at: usize) {
        self.timestamp[lane] = from.timestamp[at];
        self.misdated[lane] = from.misdated[at];
        self.received_at[lane] = from.received_at[at];
        self.in_port[lane] = from.in_port[at];
        self.packet_type[lane] = from.packet_type[at];
    }

    /// Sets the time that timers go by; the captured time stays.
    #[inline]
    pub fn date(&mut self, lane: usize, time: Nanoseconds) {
        let captured = self.captured(lane);
        self.timestamp[lane] = time;
        self.misdated[lane] = captured.0.wrapping_sub(time.0);
    }
}
