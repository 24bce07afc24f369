//! Whether a packet reaches the transport protocol of its receiver.

use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::wire::header_len;
use thalweg_packet::{Batch, Headers, ParseStatus, field};

use super::receiver::Reason;

/// IPv4 options: end of the list, padding, and the two source routes, which hosts refuse by default.
const END: u8 = 0;
const PADDING: u8 = 1;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

/// What the receiver's network layer makes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    /// Why it drops the packet, if it does.
    pub(super) refused: Option<Reason>,
    /// The checksum of the IPv4 header is wrong. Packets that a host captures of its own may not
    /// have got it yet, so this alone does not decide.
    pub(super) unsummed: bool,
}

impl Delivery {
    /// Whether nothing is wrong with the packet.
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// Whether a packet has no defects that its headers show.
#[inline]
pub(super) fn is_flawless(headers: &Headers) -> bool {
    let without_options = headers.l4 <= headers.l3 + header_len::IPV4 as u16;
    let is_whole = headers.status == ParseStatus::Complete && !headers.fragment;
    is_whole && (without_options || !headers.is_ipv4())
}

/// What the receiver makes of the packet of a lane. Packets with a smaller TTL or hop limit than
/// `min_ttl` end before it.
#[inline]
pub(super) fn delivery(batch: &Batch, lane: usize, checksums: bool, min_ttl: u8) -> Delivery {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    let refused = |reason| Delivery { refused: Some(reason), unsummed: false };
    if min_ttl > 0 && batch.field(lane, field::NW_TTL) < u64::from(min_ttl) {
        return refused(Reason::Unreachable);
    }
    if headers.fragment {
        return refused(Reason::Fragment);
    }
    // The receiver had what the capture did not keep.
    let is_damaged = headers.status != ParseStatus::Complete;
    if is_damaged && (missing(batch, lane) == 0 || headers.l4 == 0)
        || !options_are_valid(bytes, headers)
    {
        return refused(Reason::Length);
    }
    // Who sends a super-packet on computes its checksums.
    if !checksums || batch.is_super(lane) {
        return Delivery::default();
    }
    let mut status = checksum::verify(bytes, headers);
    let unsummed = status == ChecksumStatus::BadHeader;
    if unsummed {
        status = checksum::verify_transport(bytes, headers);
    }
    let wrong = status == ChecksumStatus::BadTransport;
    Delivery { refused: wrong.then_some(Reason::Checksum), unsummed }
}

/// Bytes of a packet that its capture did not keep.
#[inline]
pub(super) fn missing(batch: &Batch, lane: usize) -> usize {
    (batch.meta.wire_len[lane] as usize).saturating_sub(batch.bytes(lane).len())
}

/// Whether hosts process the options of an IPv4 header (RFC 1122, 3.2.1.8).
#[inline]
fn options_are_valid(bytes: &[u8], headers: &Headers) -> bool {
    let start = usize::from(headers.l3) + header_len::IPV4;
    if usize::from(headers.l4) <= start || !headers.is_ipv4() {
        return true;
    }
    let mut options = bytes.get(start..usize::from(headers.l4)).unwrap_or(&[]);
    loop {
        options = match options {
            [] | [END, ..] => return true,
            [PADDING, rest @ ..] => rest,
            [LOOSE_ROUTE | STRICT_ROUTE, ..] => return false,
            [_, length, ..] if *length >= 2 => match options.get(usize::from(*length)..) {
                Some(rest) => rest,
                None => return false,
            },
            _ => return false,
        };
    }
}
