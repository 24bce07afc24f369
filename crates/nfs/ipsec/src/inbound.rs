//! Taking packets out of tunnels: sequence number, inner packet, congestion.

use thalweg_packet::checksum::is_ipv4_header_bad;
use thalweg_packet::wire::{ethertype, header_len, ip_proto};
use thalweg_packet::{Batch, Cut, DropReason, field};

use super::device;
use super::sa::Inbound;
use super::suite::HEADER;
use thalweg_nf::device::DeviceJob;
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
        if is_ipv4_header_bad(batch.bytes(lane), batch.headers(lane)) {
            return Err(DropReason::BadChecksum);
        }
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

    /// What a device has to do to open the packet, if one does its suite: nothing if the length is
    /// invalid, as packets of such an association are dealt with when those before are.
    pub(super) fn job(&self) -> Option<DeviceJob> {
        let Self { lane, start, end, .. } = *self;
        let argument = device::argument(self.sa.association.device?, true, self.high());
        let len = if device::is_packet(end - start) { end - start } else { 0 };
        Some(DeviceJob { lane, start, len, argument })
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
        ip_proto::IPV4 => Ok((ethertype::IPV4, without_padding(&rest[..len], 0, 2)?)),
        ip_proto::IPV6 => {
            Ok((ethertype::IPV6, without_padding(&rest[..len], header_len::IPV6, 4)?))
        }
        ip_proto::NO_NEXT_HEADER => Err(DropReason::DummyPacket),
        _ => Err(DropReason::BadInnerPacket),
    }
}

/// The length of the IP packet at the beginning of `body`, whose field at `at` counts the bytes
/// after the first `uncounted`: what follows it hides its length (RFC 4303, section 2.7).
fn without_padding(body: &[u8], uncounted: usize, at: usize) -> Result<usize, DropReason> {
    let field = body.get(at..at + 2).and_then(<[u8]>::first_chunk);
    let counted = field.map(|field| usize::from(u16::from_be_bytes(*field)));
    let len = counted.map(|counted| uncounted + counted).filter(|len| *len <= body.len());
    len.ok_or(DropReason::BadInnerPacket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ESP body: a packet of a length field's value in `bytes` bytes, and the trailer.
    fn body(v6: bool, field: u16, bytes: usize) -> Vec<u8> {
        let mut body = vec![0; bytes];
        let at = if v6 { 4 } else { 2 };
        body[at..at + 2].copy_from_slice(&field.to_be_bytes());
        body.extend_from_slice(&[1, 2, 2, if v6 { 41 } else { 4 }]);
        body
    }

    #[test]
    fn padding_that_hides_the_length_is_cut() {
        for (v6, field, bytes, len) in [
            (false, 48, 48, Some(48)),
            (false, 48, 148, Some(48)),
            (false, 20, 1400, Some(20)),
            (false, 49, 48, None),
            (true, 8, 48, Some(48)),
            (true, 8, 300, Some(48)),
            (true, 0, 60, Some(40)),
            (true, 9, 48, None),
        ] {
            let found = inside(&body(v6, field, bytes)).map(|(_, len)| len);
            assert_eq!(found, len.ok_or(DropReason::BadInnerPacket), "{v6} {field} {bytes}");
        }
        assert_eq!(inside(&[1, 1, 4]), Err(DropReason::BadInnerPacket));
    }
}
