//! Putting packets into tunnels: sequence number, tunnel header, ESP, in place.

use thalweg_cpu::prefetch;
use thalweg_packet::wire::{header_len, ip_proto};
use thalweg_packet::{Batch, DropReason, field};

use super::device;
use super::iv::IvSource;
use super::sa::{DontFragment, Outbound};
use super::suite::{HEADER, Suite};
use thalweg_nf::device::DeviceJob;
use thalweg_nf::toolkit::fragment::may_fragment;
use thalweg_nf::toolkit::outer::{Varying, write_udp};

/// What an association adds to packets, in bytes: the same for all, so computed once.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The tunnel's IP header.
    outer: usize,
    /// Bytes from the start of the tunnel's IP header to ESP.
    before_esp: usize,
    /// Bytes from the same start to the inner packet: also ESP's header and the IV.
    front: usize,
    iv: usize,
    icv: usize,
    /// The alignment of the body's length, minus one.
    last: usize,
}

impl Layout {
    pub(super) fn new(suite: Suite, over_ipv4: bool, in_udp: bool) -> Self {
        let outer = if over_ipv4 { 20 } else { 40 };
        let before_esp = outer + if in_udp { header_len::UDP } else { 0 };
        let front = before_esp + HEADER + suite.iv_len();
        let (iv, icv, last) = (suite.iv_len(), suite.icv_len(), suite.alignment() - 1);
        Self { outer, before_esp, front, iv, icv, last }
    }

    /// The length in bytes of IP, tunnel included, of a packet of `inner` bytes: with padding, pad
    /// length, next header (RFC 4303, section 2.4) and the ICV at the end.
    pub(super) fn len(&self, inner: usize) -> usize {
        self.front + ((inner + 2 + self.last) & !self.last) + self.icv
    }

    /// The longest inner packet whose tunnel packet has at most `len` bytes.
    pub(super) fn most_inside(&self, len: usize) -> usize {
        (len.saturating_sub(self.front + self.icv) & !self.last).saturating_sub(2)
    }
}

/// What to do with a packet because of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Fits,
    /// Fragment it to this many bytes of IP.
    Cut(u16),
    /// Drop it, and report this MTU to its sender, in bytes of IP.
    TooBig(u16),
}

/// A packet on its way into a tunnel.
#[derive(Clone, Copy)]
pub(super) struct Departure<'a> {
    pub(super) sa: &'a Outbound,
    pub(super) lane: usize,
    /// Its sequence number, once assigned.
    pub(super) number: Option<u64>,
    /// Bytes of the inner packet.
    pub(super) inner: usize,
    /// Bytes of IP, tunnel included.
    pub(super) len: usize,
    /// Where the IP header begins: the inner one before, the outer one after.
    pub(super) l3: usize,
    is_ipv4: bool,
    /// The TOS or traffic class of its IP header.
    tos: u8,
    dont_fragment: bool,
    /// Whether the frame has room for the headers before and the trailer after.
    pub(super) fits: bool,
}

impl<'a> Departure<'a> {
    // Inlined, so that it is built in place: a copy would wait for the stores just made.
    #[inline(always)]
    pub(super) fn new(sa: &'a Outbound, batch: &Batch, lane: usize) -> Self {
        let headers = batch.headers(lane);
        let inner = usize::from(headers.end - headers.l3);
        let (l3, is_ipv4) = (usize::from(headers.l3), headers.is_ipv4());
        // The lines that will be written before and after the packet.
        let bytes = batch.bytes(lane);
        prefetch::near(bytes, 0usize.wrapping_sub(sa.layout.front));
        prefetch::near(bytes, bytes.len() + sa.layout.icv);
        let len = sa.layout.len(inner);
        let after = batch.tailroom(lane) + bytes.len() - l3;
        let fits = batch.headroom(lane) >= sa.layout.front
            && after >= len - sa.layout.front
            && u16::try_from(len).is_ok();
        let tos = batch.field(lane, field::NW_TOS) as u8;
        let wanted = match sa.path.dont_fragment {
            DontFragment::Copy => !is_ipv4 || bytes[l3 + 6] & 0x40 != 0,
            DontFragment::Set => true,
            DontFragment::Clear => false,
        };
        // With DF set, a router would drop a packet longer than the path's MTU.
        let dont_fragment = wanted && len <= usize::from(sa.path.mtu);
        Self { sa, lane, number: None, inner, len, l3, is_ipv4, tos, dont_fragment, fits }
    }

    /// Whether it was protected and is too long for a path whose routers do not fragment.
    pub(super) fn is_to_cut(&self) -> bool {
        let Self { sa, number, len, .. } = self;
        *len > usize::from(sa.path.mtu) && sa.is_over_ipv6() && number.is_some()
    }

    /// The upper half of an extended sequence number.
    pub(super) fn high(&self) -> Option<u32> {
        self.number.filter(|_| self.sa.association.extended).map(|number| (number >> 32) as u32)
    }

    /// What a device has to do to seal its ESP of `len` bytes, if one does its suite, and nothing comes
    /// after: no checksum over ESP, no fragmentation.
    pub(super) fn job(&self, len: usize) -> Option<DeviceJob> {
        let association = &self.sa.association;
        let argument = device::argument(association.device?, false, self.high());
        let is_last = association.udp.is_none() && !self.is_to_cut();
        is_last.then_some(DeviceJob { lane: self.lane, start: self.esp_at(), len, argument })
    }

    /// Where ESP begins, once the tunnel header is in place.
    pub(super) fn esp_at(&self) -> usize {
        self.l3 + self.sa.layout.before_esp
    }

    /// What to do about the packet's length.
    #[inline]
    pub(super) fn fate(&self, batch: &Batch) -> Fate {
        /// IPv6 packets up to this length a tunnel must carry, and fragment itself if need be
        /// (RFC 2473, section 7.1).
        const LEAST_IPV6: usize = 1280;
        let path = &self.sa.path;
        if self.len <= usize::from(path.mtu) {
            return Fate::Fits;
        }
        let most = self.sa.layout.most_inside(path.mtu.into());
        if may_fragment(batch, self.lane) {
            if path.cut { Fate::Cut(most as u16) } else { Fate::Fits }
        } else if path.dont_fragment == DontFragment::Clear {
            // The tunnel packet is fragmented.
            Fate::Fits
        } else if self.is_ipv4 {
            Fate::TooBig(most as u16)
        } else if self.inner <= LEAST_IPV6 {
            Fate::Fits
        } else {
            Fate::TooBig(most.max(LEAST_IPV6) as u16)
        }
    }

    /// The packet's new shape for [`Batch::reshape_each`]: its lane, bytes added at the front, and
    /// bytes in total.
    pub(super) fn shape(&self) -> (usize, usize, usize) {
        (self.lane, self.sa.layout.front, self.l3 + self.len)
    }

    /// Writes everything around the packet except the ICV; its bytes already have their new
    /// [`shape`](Self::shape). Returns the bytes of ESP, not yet encrypted.
    #[inline]
    pub(super) fn wrap<'b>(
        &self,
        bytes: &'b mut [u8],
        number: u64,
        ivs: &mut IvSource,
        ip_id: u16,
    ) -> &'b mut [u8] {
        let Self { sa, inner, l3, .. } = *self;
        let layout = &sa.layout;
        let (front, behind) = (layout.front, self.len - inner - layout.front);
        match bytes[front..front + l3].first_chunk::<14>().copied() {
            // Almost always just the Ethernet header.
            Some(link) if l3 == link.len() => bytes[..link.len()].copy_from_slice(&link),
            _ => bytes.copy_within(front..front + l3, 0),
        }
        let (head, esp) = bytes.split_at_mut(self.esp_at());
        let association = &sa.association;
        esp[..4].copy_from_slice(&association.spi.to_be_bytes());
        esp[4..8].copy_from_slice(&(number as u32).to_be_bytes());
        match layout.iv {
            16 => esp[8..24].copy_from_slice(&ivs.next()),
            _ => esp[8..16].copy_from_slice(&sa.iv(number)),
        }
        let next = if self.is_ipv4 { ip_proto::IPV4 } else { ip_proto::IPV6 };
        pad(&mut esp[HEADER + layout.iv + inner..], behind - layout.icv, next);
        let outer = &mut head[l3 - 2..l3 + layout.outer];
        let (tos, dont_fragment) = (self.tos, self.dont_fragment);
        let varying = Varying { tos, dont_fragment, id: ip_id };
        sa.tunnel.write(outer, (self.len - layout.outer) as u16, varying);
        esp
    }

    /// Writes the UDP header before ESP, if any: last, as over IPv6 its checksum covers the rest.
    pub(super) fn write_udp(&self, batch: &mut Batch) {
        let Some((source, destination)) = self.sa.association.udp else { return };
        let bytes = batch.bytes_mut(self.lane);
        let (head, udp) = bytes.split_at_mut(self.l3 + self.sa.layout.outer);
        write_udp([source, destination], udp, &head[self.l3..]);
    }
}

/// Writes a trailer of `len` bytes at the start of `rest`: padding 1, 2, 3, ..., its length, and
/// the next header (RFC 4303, 2.4).
#[inline]
fn pad(rest: &mut [u8], len: usize, next: u8) {
    const MOST: [[u8; 8]; 2] = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]];
    let padding = len - 2;
    // The excess lies where the ICV goes, and whole words need no call to a copy function.
    for (word, most) in rest.as_chunks_mut().0.iter_mut().zip(MOST) {
        *word = most;
    }
    rest[padding..len].copy_from_slice(&[padding as u8, next]);
}

/// Why the association has no sequence number left.
pub(super) fn no_number(sa: &Outbound) -> DropReason {
    let (sent, _) = sa.sent();
    if sent >= sa.association.lifetime.packets {
        DropReason::LifetimeOver
    } else {
        DropReason::SequenceExhausted
    }
}
