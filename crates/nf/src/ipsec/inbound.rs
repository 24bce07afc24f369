//! Opening a packet: sequence number, integrity, decryption, what is inside.

use thalweg_packet::checksum::update_u16;
use thalweg_packet::{Batch, Decapsulate, DropReason, Lanes, field};

use super::sa::Inbound;
use super::suite::HEADER;

const CONGESTION: u8 = 3;
const DUMMY: u8 = 59;

/// Takes the packet of `lane` out of its tunnel. On an error the packet may be
/// changed, and is to be dropped.
pub(super) fn open(sa: &Inbound, batch: &mut Batch, lane: usize) -> Result<u64, DropReason> {
    let headers = *batch.headers(lane);
    let outer_tos = batch.field(lane, field::NW_TOS) as u8;
    let (start, end) = (headers.payload as usize, headers.end as usize);
    let cipher = &sa.association.cipher;
    let suite = cipher.suite();
    let esp = batch.bytes_mut(lane).get_mut(start..end).ok_or(DropReason::Malformed)?;
    let low = esp.get(4..HEADER).and_then(|n| n.first_chunk()).ok_or(DropReason::Malformed)?;
    let low = u32::from_be_bytes(*low);
    let inner = HEADER + suite.iv_len();
    let body = esp.len().checked_sub(inner + suite.icv_len()).ok_or(DropReason::Malformed)?;
    if body == 0 || !body.is_multiple_of(suite.alignment()) {
        return Err(DropReason::Malformed);
    }

    // The window moves only for authentic packets (RFC 4303, 3.4.3).
    let mut window = sa.window();
    let number = if sa.association.extended {
        window.extend(low).ok_or(DropReason::Replayed)?
    } else {
        u64::from(low)
    };
    if !window.admits(number) {
        return Err(DropReason::Replayed);
    }
    let high = sa.association.extended.then_some((number >> 32) as u32);
    if !cipher.open(esp, high) {
        return Err(DropReason::AuthenticationFailed);
    }
    window.note(number);
    drop(window);

    let (ether_type, inner_len) = inside(&esp[inner..inner + body])?;
    unwrap_packet(batch, lane, headers.l3 as usize, start + inner, inner_len, ether_type);
    batch.parse(Lanes::one(lane), Decapsulate::No);
    let parsed = *batch.headers(lane);
    let version = if ether_type == 0x0800 { parsed.is_ipv4() } else { parsed.is_ipv6() };
    if !version || !sa.selector.covers(&batch.key(lane)) {
        return Err(DropReason::BadInnerPacket);
    }
    congestion(batch, lane, outer_tos)?;
    Ok(number)
}

/// EtherType and length of what a decrypted body holds.
fn inside(body: &[u8]) -> Result<(u16, usize), DropReason> {
    let [rest @ .., padding, next] = body else { return Err(DropReason::BadInnerPacket) };
    let len = rest.len().checked_sub(usize::from(*padding)).ok_or(DropReason::BadInnerPacket)?;
    let counted = rest[len..].iter().zip(1u8..).all(|(byte, n)| *byte == n);
    match next {
        _ if !counted => Err(DropReason::BadInnerPacket),
        4 => Ok((0x0800, len)),
        41 => Ok((0x86dd, len)),
        &DUMMY => Err(DropReason::DummyPacket),
        _ => Err(DropReason::BadInnerPacket),
    }
}

/// Leaves the link header and the inner packet of `len` bytes at `inner`.
fn unwrap_packet(
    batch: &mut Batch,
    lane: usize,
    l3: usize,
    inner: usize,
    len: usize,
    ether_type: u16,
) {
    let link = inner - l3;
    let bytes = batch.bytes_mut(lane);
    bytes.copy_within(..l3, link);
    bytes[inner - 2..inner].copy_from_slice(&ether_type.to_be_bytes());
    batch.truncate(lane, inner + len);
    batch.shrink_front(lane, link);
}

/// Congestion that the tunnel met is told on (RFC 6040, section 4.2).
fn congestion(batch: &mut Batch, lane: usize, outer_tos: u8) -> Result<(), DropReason> {
    if outer_tos & 3 != CONGESTION {
        return Ok(());
    }
    let headers = *batch.headers(lane);
    let tos = batch.field(lane, field::NW_TOS) as u8;
    match tos & 3 {
        0 => return Err(DropReason::BadInnerPacket),
        CONGESTION => return Ok(()),
        _ => {}
    }
    let l3 = headers.l3 as usize;
    let bytes = batch.bytes_mut(lane);
    if headers.is_ipv4() {
        let from = u16::from_be_bytes([bytes[l3], bytes[l3 + 1]]);
        let to = from | u16::from(CONGESTION);
        let sum = u16::from_be_bytes([bytes[l3 + 10], bytes[l3 + 11]]);
        bytes[l3 + 1] |= CONGESTION;
        bytes[l3 + 10..l3 + 12].copy_from_slice(&update_u16(sum, from, to).to_be_bytes());
    } else {
        bytes[l3 + 1] |= CONGESTION << 4;
    }
    batch.parse(Lanes::one(lane), Decapsulate::No);
    Ok(())
}
