//! Putting packets into tunnels: sequence number, tunnel header, ESP, in place.

use thalweg_cpu::prefetch;
use thalweg_packet::{Batch, DropReason, field};

use super::iv::IvSource;
use super::sa::{DontFragment, Outbound};
use super::suite::{HEADER, Suite};
use thalweg_nf::toolkit::fragment::may_fragment;
use thalweg_nf::toolkit::outer::{UDP_HEADER, Varying, write_udp};

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
pub(super) const ESP: u8 = 50;

/// What an association adds to packets, in bytes: the same for all, so worked out once.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The tunnel's IP header.
    outer: usize,
    /// From the tunnel's IP header to ESP.
    before_esp: usize,
    /// From there to the packet inside: also ESP's header and IV.
    front: usize,
    iv: usize,
    icv: usize,
    /// What the body's length is a multiple of, less one.
    last: usize,
}

impl Layout {
    pub(super) fn new(suite: Suite, over_ipv4: bool, in_udp: bool) -> Self {
        let outer = if over_ipv4 { 20 } else { 40 };
        let before_esp = outer + if in_udp { UDP_HEADER } else { 0 };
        let front = before_esp + HEADER + suite.iv_len();
        let (iv, icv, last) = (suite.iv_len(), suite.icv_len(), suite.alignment() - 1);
        Self { outer, before_esp, front, iv, icv, last }
    }

    /// Bytes of IP with the tunnel, of so many inside: with padding, its length, the next header
    /// (RFC 4303, section 2.4) and the ICV behind it.
    pub(super) fn len(&self, inner: usize) -> usize {
        self.front + ((inner + 2 + self.last) & !self.last) + self.icv
    }

    /// The most bytes that make no more than `len` with the tunnel.
    pub(super) fn most_inside(&self, len: usize) -> usize {
        (len.saturating_sub(self.front + self.icv) & !self.last).saturating_sub(2)
    }
}

/// What a packet's length means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Fits,
    /// It is to be cut to so many bytes of IP.
    Cut(u16),
    /// Its sender is to be told to send so many bytes of IP.
    TooBig(u16),
}

/// A packet on its way into a tunnel.
#[derive(Clone, Copy)]
pub(super) struct Departure<'a> {
    pub(super) sa: &'a Outbound,
    pub(super) lane: usize,
    /// Its sequence number, once it has one.
    pub(super) number: Option<u64>,
    /// Bytes of the packet inside.
    pub(super) inner: usize,
    /// Bytes of IP with the tunnel.
    pub(super) len: usize,
    /// Where the IP header begins, inside now and outside then.
    pub(super) l3: usize,
    is_ipv4: bool,
    /// Of its IP header.
    tos: u8,
    dont_fragment: bool,
    /// Whether the frame has room for what comes before and behind.
    pub(super) fits: bool,
}

impl<'a> Departure<'a> {
    // Inlined, so that it is written where it stays: a copy would wait for what was just stored.
    #[inline(always)]
    pub(super) fn new(sa: &'a Outbound, batch: &Batch, lane: usize) -> Self {
        let headers = batch.headers(lane);
        let inner = usize::from(headers.end - headers.l3);
        let (l3, is_ipv4) = (usize::from(headers.l3), headers.is_ipv4());
        // What will be written before and behind the packet.
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
        // Of what goes out too long for the path nothing would arrive with it.
        let dont_fragment = wanted && len <= usize::from(sa.path.mtu);
        Self { sa, lane, number: None, inner, len, l3, is_ipv4, tos, dont_fragment, fits }
    }

    /// Whether it has left and is too long for a path whose routers do not cut.
    pub(super) fn is_to_cut(&self) -> bool {
        let Self { sa, number, len, .. } = self;
        *len > usize::from(sa.path.mtu) && sa.is_over_ipv6() && number.is_some()
    }

    /// The upper half of an extended sequence number.
    pub(super) fn high(&self) -> Option<u32> {
        self.number.filter(|_| self.sa.association.extended).map(|number| (number >> 32) as u32)
    }

    /// Where ESP begins, once the tunnel is there.
    pub(super) fn esp_at(&self) -> usize {
        self.l3 + self.sa.layout.before_esp
    }

    /// What is to be done about the packet's length.
    #[inline]
    pub(super) fn fate(&self, batch: &Batch) -> Fate {
        /// What a tunnel must carry of IPv6, and cut itself (RFC 2473, section 7.1).
        const LEAST_IPV6: usize = 1280;
        let path = &self.sa.path;
        if self.len <= usize::from(path.mtu) {
            return Fate::Fits;
        }
        let most = self.sa.layout.most_inside(path.mtu.into());
        if may_fragment(batch, self.lane) {
            if path.cut { Fate::Cut(most as u16) } else { Fate::Fits }
        } else if path.dont_fragment == DontFragment::Clear {
            // It is cut with its tunnel.
            Fate::Fits
        } else if self.is_ipv4 {
            Fate::TooBig(most as u16)
        } else if self.inner <= LEAST_IPV6 {
            Fate::Fits
        } else {
            Fate::TooBig(most.max(LEAST_IPV6) as u16)
        }
    }

    /// What becomes of the packet's bytes ([`Batch::reshape_each`]): its lane, bytes more in front,
    /// and bytes in all.
    pub(super) fn shape(&self) -> (usize, usize, usize) {
        (self.lane, self.sa.layout.front, self.l3 + self.len)
    }

    /// Writes all but the encrypted body and the ICV around the packet, whose bytes have their new
    /// [`shape`](Self::shape), and gives those of ESP.
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
            // Nearly always Ethernet's header alone.
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
        let next = if self.is_ipv4 { IPV4_IN_IP } else { IPV6_IN_IP };
        pad(&mut esp[HEADER + layout.iv + inner..], behind - layout.icv, next);
        let outer = &mut head[l3 - 2..l3 + layout.outer];
        let (tos, dont_fragment) = (self.tos, self.dont_fragment);
        let varying = Varying { tos, dont_fragment, id: ip_id };
        sa.tunnel.write(outer, (self.len - layout.outer) as u16, varying);
        esp
    }

    /// Writes the UDP header before ESP, if there is one: last, as over IPv6 it sums up all.
    pub(super) fn write_udp(&self, batch: &mut Batch) {
        let Some((source, destination)) = self.sa.association.udp else { return };
        let bytes = batch.bytes_mut(self.lane);
        let (head, udp) = bytes.split_at_mut(self.l3 + self.sa.layout.outer);
        write_udp([source, destination], udp, &head[self.l3..]);
    }
}

/// Writes a trailer of `len` bytes where `rest` begins: padding 1, 2, 3, ..., its length, and the
/// next header (RFC 4303, 2.4).
#[inline]
fn pad(rest: &mut [u8], len: usize, next: u8) {
    const MOST: [[u8; 8]; 2] = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]];
    let padding = len - 2;
    // What is too much will be the ICV, and whole words need no call to copy some bytes.
    for (word, most) in rest.as_chunks_mut().0.iter_mut().zip(MOST) {
        *word = most;
    }
    rest[padding..len].copy_from_slice(&[padding as u8, next]);
}

/// Why no number is left for a packet of the association.
pub(super) fn no_number(sa: &Outbound) -> DropReason {
    let (sent, _) = sa.sent();
    if sent >= sa.association.lifetime.packets {
        DropReason::LifetimeOver
    } else {
        DropReason::SequenceExhausted
    }
}
