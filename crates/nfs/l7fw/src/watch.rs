//! The start of a TCP connection: both directions in order, the hosts that they name, and what the
//! library is offered of them.

use super::head::{Head, Protocol};
use super::stream::{Arrival, MOST_BYTES, Stream};
use thalweg_packet::wire::tcp_flags::{ACK, RST, SYN};

/// The most bytes that the library is offered at once: those of the longest TLS record.
const LONGEST_OFFER: usize = (1 << 14) + 5;

/// The bytes of a stream whose start was not seen that are kept, since earlier ones may follow.
const MOST_GUESSED: usize = 4096;

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    pub(super) flags: u8,
    pub(super) payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The segment in `bytes`, whose header ends at `payload`; `None` if it is truncated.
    pub(super) fn new(bytes: &'a [u8], header: usize, payload: usize, end: usize) -> Option<Self> {
        let fields = bytes.get(header..payload)?.first_chunk::<20>()?;
        let [_, _, _, _, s0, s1, s2, s3, a0, a1, a2, a3, _, flags, ..] = *fields;
        Some(Self {
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            acknowledgment: u32::from_be_bytes([a0, a1, a2, a3]),
            flags,
            payload: bytes.get(payload..end)?,
        })
    }

    /// Whether all these flags are set.
    pub(super) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// What the library is offered of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Offer {
    /// The packet as it is.
    #[default]
    Packet,
    /// Nothing.
    Nothing,
    /// These bytes, at a sequence number, instead of the payload.
    Bytes(u32, Vec<u8>),
    /// The same to an inspection that begins with them.
    Afresh(u32, Vec<u8>),
}

/// What a segment added.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) offer: Offer,
    pub(super) arrival: Option<Arrival>,
    /// Whether bytes were given up.
    pub(super) lost: bool,
}

impl Step {
    /// Whether the segment must not reach its receiver.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.arrival, Some(Arrival::Contradicting | Arrival::NoRoom))
    }
}

#[derive(Debug, Default)]
struct Side {
    stream: Stream,
    head: Head,
    /// The bytes of the stream that the library was offered.
    offered: usize,
    /// Whether a packet had a right checksum.
    sums: bool,
}

/// The start of a connection.
#[derive(Debug, Default)]
pub(super) struct Watch {
    sides: [Side; 2],
}

impl Watch {
    /// Whether to believe a packet from a side: its checksum is right, or none was so far, since
    /// the sender's network card computes them, or nothing depends on it.
    pub(super) fn believes(
        &mut self,
        from: usize,
        segment: &Segment<'_>,
        is_damaged: impl FnOnce() -> bool,
    ) -> bool {
        let [side, other] = self.sides_of(from);
        let counts = segment.has(SYN) || !segment.payload.is_empty() && !side.is_other();
        if !counts || other.head.protocol().is_some() {
            return true;
        }
        let is_damaged = is_damaged();
        side.sums |= !is_damaged;
        !is_damaged || !side.sums
    }

    /// Adds a segment from a side; passes the hosts that it completes to `found`.
    pub(super) fn add(
        &mut self,
        from: usize,
        segment: &Segment<'_>,
        found: &mut dyn FnMut(Box<str>),
    ) -> Step {
        let lost = self.begin(from, segment);
        let [side, other] = self.sides_of(from);
        if segment.payload.is_empty() {
            return Step { offer: Offer::Packet, arrival: None, lost };
        }
        // The SYN takes the number before the first byte.
        let sequence = segment.sequence.wrapping_add(u32::from(segment.has(SYN)));
        if side.is_other() && side.stream.pass(sequence, segment.payload.len()) {
            return Step { offer: Offer::Packet, arrival: Some(Arrival::Fresh), lost };
        }
        let mut arrival = side.stream.insert(sequence, segment.payload);
        let skipped = arrival == Arrival::NoRoom && side.make_room(sequence);
        if skipped {
            arrival = side.stream.insert(sequence, segment.payload);
        }
        if arrival == Arrival::Earlier {
            (side.head, side.offered) = (Head::default(), 0);
        }
        if other.head.searches() {
            // The server read a message that it answers.
            other.head.give_up();
        }
        let offer = side.offer(sequence, segment.payload.len(), found);
        Step { offer, arrival: Some(arrival), lost: lost || skipped }
    }

    /// Begins the streams; forgets what is acknowledged. Returns whether bytes were missed.
    fn begin(&mut self, from: usize, segment: &Segment<'_>) -> bool {
        let [side, other] = self.sides_of(from);
        let syn = segment.has(SYN);
        side.stream.begin(segment.sequence.wrapping_add(u32::from(syn)), syn);
        if !segment.has(ACK) || segment.has(RST) {
            return false;
        }
        other.stream.begin(segment.acknowledgment, syn);
        let lost = other.stream.acknowledge(segment.acknowledgment);
        if lost {
            // The head has a gap.
            if !other.head.is_settled() {
                other.head.give_up();
            }
            other.offered = 0;
        }
        other.forget(segment.acknowledgment);
        lost
    }

    fn sides_of(&mut self, from: usize) -> [&mut Side; 2] {
        let [a, b] = &mut self.sides;
        if from == 0 { [a, b] } else { [b, a] }
    }

    /// Whether a side has begun a message that may name a host and is not whole.
    pub(super) fn is_pending(&self) -> bool {
        self.sides.iter().any(|side| {
            let begun = !side.stream.bytes().is_empty() || side.stream.has_gap();
            begun && !side.head.is_settled()
        })
    }

    /// Whether a segment from a side without room for it is to be repeated by its sender: its
    /// bytes belong to a message that is still read from the connection's start.
    pub(super) fn must_repeat(&self, from: usize) -> bool {
        let side = &self.sides[from];
        side.stream.is_certain() && !side.head.is_settled()
    }

    /// The protocol of the message that was read.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.sides.iter().find_map(|side| side.head.protocol())
    }

    /// Whether no further host can be named: no request can follow, and what was read has been
    /// acknowledged, so that no other copy of it counts.
    pub(super) fn is_over(&self) -> bool {
        let is_over = |side: &Side| {
            let stream = &side.stream;
            side.head.protocol().is_none()
                || side.head.is_done() && stream.bytes().is_empty() && !stream.has_gap()
        };
        self.sides.iter().all(is_over)
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.sides.iter().map(|side| side.stream.memory()).sum()
    }
}

impl Side {
    /// Makes room for a segment, unless the bytes before it are to be awaited. Returns whether
    /// bytes were given up.
    fn make_room(&mut self, sequence: u32) -> bool {
        if self.stream.is_certain() && self.stream.bytes().len() < MOST_BYTES / 2 {
            return false;
        }
        if !self.head.is_settled() {
            self.head.give_up();
        }
        self.offered = 0;
        self.stream.skip_to(sequence);
        true
    }

    /// Reads what arrived, and chooses what the library is offered.
    fn offer(&mut self, sequence: u32, length: usize, found: &mut dyn FnMut(Box<str>)) -> Offer {
        let bytes = self.stream.bytes();
        let fresh = bytes.len() > self.offered;
        if !fresh {
            return Offer::Nothing;
        }
        let was_settled = self.head.is_settled();
        self.head.read(bytes, found);
        let as_it_is = self.stream.offset(sequence) == self.offered as i64
            && self.offered + length == bytes.len();
        let is_whole = !was_settled && self.head.protocol().is_some();
        let offer = if is_whole && (self.offered > 0 || !as_it_is || self.head.is_odd()) {
            let mut message = self.head.message(bytes).into_owned();
            message.truncate(LONGEST_OFFER);
            Offer::Afresh(self.stream.sequence(0), message)
        } else if as_it_is {
            Offer::Packet
        } else {
            let from = self.offered;
            let to = bytes.len().min(from + LONGEST_OFFER);
            Offer::Bytes(self.stream.sequence(from), bytes[from..to].to_vec())
        };
        self.offered = bytes.len();
        if self.is_other() && (self.stream.is_certain() || self.offered > MOST_GUESSED) {
            // These bytes name no host, whichever copy the receiver takes.
            self.stream.forget(self.offered);
            self.offered = 0;
        }
        offer
    }

    /// Whether its bytes name no host, whatever follows.
    fn is_other(&self) -> bool {
        self.head.is_done() && self.head.protocol().is_none()
    }

    /// Forgets the bytes before `acknowledged`, unless they are still needed.
    fn forget(&mut self, acknowledged: u32) {
        if !self.head.is_settled() {
            return;
        }
        let acknowledged = usize::try_from(self.stream.offset(acknowledged)).unwrap_or(0);
        let many = acknowledged.min(self.offered).min(self.head.read_until());
        let many = many.min(self.stream.bytes().len());
        self.stream.forget(many);
        self.head.forget(many);
        self.offered -= many;
    }
}
