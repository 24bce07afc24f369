//! Packets on their way to a medium: out of a batch or in it; or as the kernel sends them, super-packets
//! whole: after a virtio network header.

use arrayvec::ArrayVec;
use thalweg_packet::wire::{ethertype, header_len};
use thalweg_packet::{Batch, DropReason};

use crate::offload::{HEADER, Segmentation};

/// The packets of a call of an output that can send them out of their frames.
pub(crate) enum Packets<'a> {
    /// They stay in the batch.
    Kept(&'a Batch),
    /// Their frames may be taken out of the batch.
    Given(&'a mut Batch),
}

impl Packets<'_> {
    #[inline]
    pub(crate) fn batch(&self) -> &Batch {
        match self {
            Self::Kept(batch) => batch,
            Self::Given(batch) => batch,
        }
    }
}

/// A packet as it is sent: the header of its offloads, and itself. In a super-packet the sum of the
/// pseudo-header takes the place of the transport checksum.
pub(crate) struct Outgoing<'a> {
    pub(crate) lane: usize,
    pub(crate) bytes: &'a [u8],
    segmentation: Option<Segmentation>,
}

impl<'a> Outgoing<'a> {
    /// The packet of `lane`; or why it is dropped.
    pub(crate) fn of(batch: &'a Batch, lane: usize, mtu: usize) -> Result<Self, DropReason> {
        let bytes = batch.bytes(lane);
        if bytes.len() < header_len::ETHERNET {
            return Err(DropReason::Malformed);
        }
        if !batch.is_super(lane) {
            return Ok(Self { lane, bytes, segmentation: None });
        }
        let segmentation = Segmentation::of(bytes, batch.meta.segment_size[lane]);
        let segmentation = segmentation.ok_or(DropReason::Malformed)?;
        // The kernel checks this only for packets that are not segmented.
        if segmentation.longest > mtu + link_len(bytes) {
            return Err(DropReason::TooBig);
        }
        Ok(Self { lane, bytes, segmentation: Some(segmentation) })
    }

    /// Whether an ordinary packet is no longer than `mtu` permits.
    pub(crate) fn fits(&self, mtu: usize) -> bool {
        self.segmentation.is_some() || self.bytes.len() <= mtu + link_len(self.bytes)
    }

    /// The pieces to send, one after the other.
    pub(crate) fn pieces(&self) -> ArrayVec<&[u8], 4> {
        let mut pieces = ArrayVec::new();
        match &self.segmentation {
            None => pieces.extend([&[0; HEADER][..], self.bytes]),
            Some(Segmentation { header, checksum: (at, sum), .. }) => {
                let (before, behind) = (&self.bytes[..*at], &self.bytes[at + sum.len()..]);
                pieces.extend([&header[..], before, sum, behind]);
            }
        }
        pieces
    }
}

/// The length of the link header that the MTU does not count: the kernel permits one VLAN tag.
pub(crate) fn link_len(bytes: &[u8]) -> usize {
    const TAG: usize = 4;
    let is_tagged = bytes.get(12..14).is_some_and(|kind| kind == ethertype::VLAN.to_be_bytes());
    header_len::ETHERNET + if is_tagged { TAG } else { 0 }
}
