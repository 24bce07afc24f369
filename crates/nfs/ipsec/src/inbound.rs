//! Taking packets out of tunnels: sequence number, inner packet, congestion.

use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{Batch, Cut, DropReason, field};

use super::sa::Inbound;
use super::suite::HEADER;
use thalweg_nf::toolkit::outer::congestion;

/// A packet on its way out of a tunnel.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) sa: &'a Inbound,
    pub(super) lane: usize,
    /// Where the ESP packet begins and ends.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) number: u64,
    l3: usize,
    outer_tos: u8,
}

impl<'a> Arrival<'a> {
    /// The packet of `lane`, whose ESP packet has the given bounds. Makes the checks that are
    /// possible before it is known to be authentic.
    pub(super) fn new(
        sa: &'a Inbound,
        batch: &Batch,
        lane: usize,
        (start, end): (usize, usize),
    ) -> Result<Self, DropReason> {
        let low = batch.bytes(lane).get(start + 4..start + HEADER);
        let low = low.and_then(|n| n.first_chunk()).ok_or(DropReason::Malformed)?;
        let low = u32::from_be_bytes(*low);
        let received = *sa.received();
        let window = received.window;
        let number = if sa.association.extended {
            window.extend(low).ok_or(DropReason::Replayed)?
        } else {
            u64::from(low)
        };
        if !window.admits(number) {
            return Err(DropReason::Replayed);
        }
        if !sa.lives(&received, 0) {
            return Err(DropReason::LifetimeOver);
        }
        let l3 = batch.headers(lane).l3.into();
        let outer_tos = batch.field(lane, field::NW_TOS) as u8;
        Ok(Self { sa, lane, start, end, number, l3, outer_tos })
    }

    /// The upper half of an extended sequence number.
    pub(super) fn high(&self) -> Option<u32> {
        self.sa.association.extended.then_some((self.number >> 32) as u32)
    }

    /// Records that the packet was authentic (only then does the window move, RFC 4303, 3.4.3),
    /// and reduces it to the link header and the inner packet.
    ///
    /// # Errors
    /// The reason to drop the packet.
    pub(super) fn unwrap(&self, batch: &mut Batch) -> Result<(), DropReason> {
        let suite = self.sa.association.cipher.suite();
        let inner = self.start + HEADER + suite.iv_len();
        let inside = inside(&batch.bytes(self.lane)[inner..self.end - suite.icv_len()]);
        let mut received = self.sa.received();
        // The same packet may be in the batch twice.
        if !received.window.admits(self.number) {
            return Err(DropReason::Replayed);
        }
        let len = inside.map_or(0, |(_, len)| len);
        if !self.sa.lives(&received, len) {
            return Err(DropReason::LifetimeOver);
        }
        received.window.note(self.number);
        received.packets += 1;
        received.bytes += len as u64;
        drop(received);
        let (ether_type, len) = inside?;
        let link = inner - self.l3;
        let bytes = batch.bytes_mut(self.lane);
        bytes.copy_within(..self.l3, link);
        bytes[inner - 2..inner].copy_from_slice(&ether_type.to_be_bytes());
        batch.truncate(self.lane, inner + len);
        batch.shrink_front(self.lane, link);
        batch.meta.cut[self.lane] = Cut::default();
        Ok(())
    }

    /// Checks the inner packet, which is parsed now, and copies the congestion mark to it.
    pub(super) fn check(&self, batch: &mut Batch) -> Result<(), DropReason> {
        let parsed = batch.headers(self.lane);
        if !parsed.is_ipv4() && !parsed.is_ipv6() || !self.sa.covers(batch, self.lane) {
            return Err(DropReason::BadInnerPacket);
        }
        congestion(batch, self.lane, self.outer_tos)
    }
}

/// EtherType and length of the packet in a decrypted body.
fn inside(body: &[u8]) -> Result<(u16, usize), DropReason> {
    let [rest @ .., padding, next] = body else { return Err(DropReason::BadInnerPacket) };
    let len = rest.len().checked_sub(usize::from(*padding)).ok_or(DropReason::BadInnerPacket)?;
    let counted = rest[len..].iter().zip(1u8..).all(|(byte, n)| *byte == n);
    match *next {
        _ if !counted => Err(DropReason::BadInnerPacket),
        ip_proto::IPV4 => Ok((ethertype::IPV4, len)),
        ip_proto::IPV6 => Ok((ethertype::IPV6, len)),
        ip_proto::NO_NEXT_HEADER => Err(DropReason::DummyPacket),
        _ => Err(DropReason::BadInnerPacket),
    }
}
