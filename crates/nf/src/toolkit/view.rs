//! Parts of a packet that several NFs read in the same way.

use thalweg_packet::{Batch, field};

/// The VLAN of a packet; 0 without a tag.
pub fn vlan(batch: &Batch, lane: usize) -> u16 {
    let tci = batch.field(lane, field::VLAN_TCI);
    if tci & field::VLAN_PRESENT == 0 { 0 } else { tci as u16 & 0xfff }
}

/// The bytes after the last parsed header, without the padding of the link.
#[inline]
pub fn payload(batch: &Batch, lane: usize) -> &[u8] {
    let headers = batch.headers(lane);
    batch.bytes(lane).get(headers.payload as usize..headers.end as usize).unwrap_or(&[])
}
