//! A packet of which not all fragments have arrived.

use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, PacketType};

use super::fragment::{Fragment, Head};

/// "Not ECN-capable" and "congestion experienced" (RFC 3168).
const NOT_CAPABLE: u8 = 0;
const CONGESTION: u8 = 3;

/// The data of a fragment, and their offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    offset: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }

    /// Whether it has other bytes than `bytes` have at `offset` in a place that both have.
    fn differs(&self, offset: usize, bytes: &[u8]) -> bool {
        let start = self.offset.max(offset);
        let end = self.end().min(offset + bytes.len());
        start < end
            && self.bytes[start - self.offset..end - self.offset]
                != bytes[start - offset..end - offset]
    }
}

/// The fragments of a packet that have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Datagram {
    /// Present once the first fragment has arrived.
    head: Option<Head>,
    /// That of the first fragment: no other has ports to classify by. Types differ between chains.
    #[serde(skip)]
    pub(super) packet_type: Option<PacketType>,
    /// Bytes of IP of the longest fragment.
    longest: u16,
    /// In order, without overlaps.
    pieces: Vec<Piece>,
    /// The bytes of all pieces.
    held: usize,
    /// Those of fragments with damaged headers, which are no part of the packet.
    doubted: Vec<Piece>,
    /// The bytes of the whole packet, once the last fragment has arrived.
    end: Option<usize>,
    /// A bit for each of the four values of ECN that fragments had.
    ecn: u8,
    /// Fragments contradicted each other, so that all further ones are refused.
    refused: bool,
}

impl Datagram {
    /// Adds a fragment; returns whether the packet is complete.
    ///
    /// # Errors
    /// When it is a duplicate. When it overlaps others, the packet is refused as a whole, as its
    /// receiver could read it either way (RFC 5722, section 4); likewise when there would be more
    /// than `most` fragments.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>, most: usize) -> Result<bool, DropReason> {
        if self.refused {
            return Err(DropReason::FragmentOverlap);
        }
        let &Fragment { offset, more, body, .. } = fragment;
        let end = offset + body.len();
        let at = self.pieces.partition_point(|piece| piece.end() <= offset);
        if let Some(piece) = self.pieces.get(at).filter(|piece| piece.offset < end) {
            let is_last = self.end == Some(end);
            if piece.offset == offset && piece.bytes == body && is_last != more {
                return Err(DropReason::FragmentDuplicate);
            }
            return Err(self.refuse(DropReason::FragmentOverlap));
        }
        if self.doubted.iter().any(|piece| piece.differs(offset, body)) {
            return Err(self.refuse(DropReason::FragmentOverlap));
        }
        let contradicts =
            if more { self.end.is_some_and(|last| end > last) } else { at < self.pieces.len() };
        if contradicts {
            return Err(self.refuse(DropReason::FragmentOverlap));
        }
        if self.pieces() >= most {
            return Err(self.refuse(DropReason::StateFull));
        }
        if !more {
            self.end = Some(end);
        }
        if let Some(head) = fragment.head() {
            self.head = Some(head);
            self.packet_type = Some(fragment.origin.packet_type);
        }
        self.ecn |= 1 << fragment.ecn;
        self.held += body.len();
        self.longest = self.longest.max(fragment.len);
        self.pieces.insert(at, Piece { offset, bytes: body.to_vec() });
        Ok(self.is_whole())
    }

    /// Takes note of a fragment whose header is damaged. It is no part of the packet; but a receiver
    /// that leaves header checksums unverified would use it, so that the packet is refused if other
    /// fragments have other bytes there, whichever arrives first.
    pub(super) fn doubt(&mut self, fragment: &Fragment<'_>, most: usize) {
        let &Fragment { offset, body, .. } = fragment;
        let is_known = |pieces: &[Piece]| {
            pieces.iter().any(|piece| piece.offset == offset && piece.bytes == body)
        };
        if self.refused || is_known(&self.doubted) {
            return;
        }
        let is_full = self.pieces() >= most;
        if is_full || self.pieces.iter().any(|piece| piece.differs(offset, body)) {
            self.refuse(DropReason::FragmentOverlap);
        } else {
            self.doubted.push(Piece { offset, bytes: body.to_vec() });
        }
    }

    fn refuse(&mut self, why: DropReason) -> DropReason {
        *self = Self { refused: true, ..Self::default() };
        why
    }

    /// As no pieces overlap, the packet is complete if it holds as many bytes as it needs.
    fn is_whole(&self) -> bool {
        self.end == Some(self.held)
    }

    /// The bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |head| head.bytes.len());
        let doubted: usize = self.doubted.iter().map(|piece| piece.bytes.len()).sum();
        size_of::<Self>() + head + self.pieces() * size_of::<Piece>() + self.held + doubted
    }

    /// The length of the longest fragment, with its IP header.
    pub(super) fn longest(&self) -> u16 {
        self.longest
    }

    /// The number of pieces that it holds.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len() + self.doubted.len()
    }

    /// The number of fragments that have arrived.
    pub(super) fn fragments(&self) -> usize {
        self.pieces.len()
    }

    /// The length of the whole packet, with its headers.
    pub(super) fn len(&self) -> usize {
        self.head.as_ref().map_or(0, |head| head.bytes.len()) + self.held
    }

    /// Writes the whole packet to `out`, which has its [length](Self::len).
    ///
    /// # Errors
    /// When IP's length field cannot hold its length, or some fragments are marked "congestion
    /// experienced" and others "not ECN-capable" (RFC 3168, section 5.3).
    pub(super) fn write(&self, out: &mut [u8]) -> Result<(), DropReason> {
        let had = |ecn: u8| self.ecn >> ecn & 1 == 1;
        let head = self.head.as_ref().ok_or(DropReason::Malformed)?;
        let contradicts = had(CONGESTION) && had(NOT_CAPABLE);
        if contradicts || !head.write(self.held, had(CONGESTION), out) {
            return Err(DropReason::Malformed);
        }
        let mut rest = &mut out[head.bytes.len()..];
        for piece in &self.pieces {
            let (to, behind) = rest.split_at_mut(piece.bytes.len());
            to.copy_from_slice(&piece.bytes);
            rest = behind;
        }
        Ok(())
    }

    /// Whether it can result from at most `most` fragments: imported state may be invalid.
    pub(super) fn is_sound(&self, most: usize) -> bool {
        let mut end = 0;
        let in_order = self.pieces.iter().all(|piece| {
            let follows = piece.offset >= end && !piece.bytes.is_empty();
            end = piece.offset.saturating_add(piece.bytes.len());
            follows && u16::try_from(end).is_ok()
        });
        let has_first = self.pieces.first().is_some_and(|piece| piece.offset == 0);
        let held: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        in_order
            && self.pieces() <= most
            && self.doubted.iter().all(|piece| u16::try_from(piece.end()).is_ok())
            && self.held == held
            && self.end.is_none_or(|last| last == end)
            && self.head.is_some() == has_first
            && self.head.as_ref().is_none_or(Head::is_sound)
            && self.ecn < 16
            && self.refused == (self.pieces.is_empty() && self.doubted.is_empty())
            && !self.is_whole()
    }
}
