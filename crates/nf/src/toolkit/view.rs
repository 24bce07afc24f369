//! What several NFs read of a packet in the same way.

use thalweg_packet::{Batch, field};

/// The VLAN of a packet; 0 without a tag.
pub fn vlan(batch: &Batch, lane: usize) -> u16 {
    let tci = batch.field(lane, field::VLAN_TCI);
    if tci & field::VLAN_PRESENT == 0 { 0 } else { tci as u16 & 0xfff }
}

/// What stands behind the last header that was parsed, without the link's padding.
#[inline]
pub fn payload(batch: &Batch, lane: usize) -> &[u8] {
    let headers = batch.headers(lane);
    batch.bytes(lane).get(headers.payload as usize..headers.end as usize).unwrap_or(&[])
}
