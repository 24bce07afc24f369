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

/// Why the receiver's network layer drops the packet of a lane, if it does. Packets with a smaller
/// TTL or hop limit than `min_ttl` end before it.
#[inline]
pub(super) fn refusal(batch: &Batch, lane: usize, checksums: bool, min_ttl: u8) -> Option<Reason> {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    if min_ttl > 0 && batch.field(lane, field::NW_TTL) < u64::from(min_ttl) {
        return Some(Reason::Unreachable);
    }
    if headers.fragment {
        return Some(Reason::Fragment);
    }
    // The receiver had what the capture did not keep.
    let is_captured = batch.meta.wire_len[lane] as usize <= bytes.len();
    if headers.status != ParseStatus::Complete && (is_captured || headers.l4 == 0)
        || !options_are_valid(bytes, headers)
    {
        return Some(Reason::Length);
    }
    let wrong = [ChecksumStatus::BadHeader, ChecksumStatus::BadTransport];
    (checksums && wrong.contains(&checksum::verify(bytes, headers))).then_some(Reason::Checksum)
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
