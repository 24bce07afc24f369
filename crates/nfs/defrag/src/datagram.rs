//! A packet of which not all fragments have come.

use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, PacketType};

use super::fragment::{Fragment, Head};

/// "Not ECN-capable" and "congestion experienced" (RFC 3168).
const NOT_CAPABLE: u8 = 0;
const CONGESTION: u8 = 3;

/// Data of a fragment, and where they belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    offset: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// The fragments that have come of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Datagram {
    /// There once the first has come.
    head: Option<Head>,
    /// That of the first, as no other has ports to classify by. Other chains have other types.
    #[serde(skip)]
    pub(super) packet_type: Option<PacketType>,
    /// Bytes of IP of the longest.
    longest: u16,
    /// In order, and none over another.
    pieces: Vec<Piece>,
    /// How many bytes they are.
    held: usize,
    /// How many the whole has, once the last has come.
    end: Option<usize>,
    /// A bit for each of the four values of ECN that fragments had.
    ecn: u8,
    /// Fragments contradicted each other, so that none is wanted any more.
    refused: bool,
}

impl Datagram {
    /// Adds a fragment; whether the packet is whole now.
    ///
    /// # Errors
    /// When it came before, or lies over others: then the packet is refused as a whole, as nobody
    /// can say how its receiver would read it (RFC 5722, section 4). Likewise where there would be
    /// more than `most` fragments.
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
        let contradicts =
            if more { self.end.is_some_and(|last| end > last) } else { at < self.pieces.len() };
        if contradicts {
            return Err(self.refuse(DropReason::FragmentOverlap));
        }
        if self.pieces.len() >= most {
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

    fn refuse(&mut self, why: DropReason) -> DropReason {
        *self = Self { refused: true, ..Self::default() };
        why
    }

    /// As no piece lies over another, as many bytes as there are to be are all of them.
    fn is_whole(&self) -> bool {
        self.end == Some(self.held)
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |head| head.bytes.len());
        size_of::<Self>() + head + self.pieces.len() * size_of::<Piece>() + self.held
    }

    /// How long the longest fragment was with its IP header.
    pub(super) fn longest(&self) -> u16 {
        self.longest
    }

    /// How many fragments have come.
    pub(super) fn fragments(&self) -> usize {
        self.pieces.len()
    }

    /// How long the whole packet is with its headers.
    pub(super) fn len(&self) -> usize {
        self.head.as_ref().map_or(0, |head| head.bytes.len()) + self.held
    }

    /// Writes the whole packet to `out`, which is as [long](Self::len) as it.
    ///
    /// # Errors
    /// When IP can not say how long it is, or some of its fragments met congestion and others say
    /// that its ends do not know what that means (RFC 3168, section 5.3).
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

    /// Whether fragments, at most so many, can have made it: it may come from elsewhere.
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
            && self.pieces.len() <= most
            && self.held == held
            && self.end.is_none_or(|last| last == end)
            && self.head.is_some() == has_first
            && self.head.as_ref().is_none_or(Head::is_sound)
            && self.ecn < 16
            && self.refused == self.pieces.is_empty()
            && !self.is_whole()
    }
}
