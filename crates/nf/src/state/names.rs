//! The flows that a record names.
//!
//! A record's body is the length of its names (32 bits), the names, and what the NF wrote. So the
//! flows of a record are known without its NF, and whoever needs none of them skips them.

use std::net::IpAddr;

use thalweg_packet::FiveTuple;

/// The size of the length of the names.
const LENGTH: usize = size_of::<u32>();

/// A flow as a stream has it: source, destination, protocol and ports.
type Name = (IpAddr, IpAddr, u8, u16, u16);

/// Appends the names of `flows` to a body.
pub(super) fn append(flows: &[FiveTuple], mut body: Vec<u8>) -> postcard::Result<Vec<u8>> {
    let start = body.len();
    body.extend([0; LENGTH]);
    for flow in flows {
        let name: Name = (flow.src, flow.dst, flow.protocol, flow.src_port, flow.dst_port);
        body = postcard::to_extend(&name, body)?;
    }
    // Bodies are far shorter than 2^32 bytes; a longer one is refused as a whole.
    let length = (body.len() - start - LENGTH) as u32;
    body[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    Ok(body)
}

/// Splits a body into the names and the rest; `None` if it is too short.
pub(super) fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = body.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Reads names into `flows`.
pub(super) fn read(mut names: &[u8], flows: &mut Vec<FiveTuple>) -> postcard::Result<()> {
    flows.clear();
    while !names.is_empty() {
        let ((src, dst, protocol, src_port, dst_port), rest) =
            postcard::take_from_bytes::<Name>(names)?;
        flows.push(FiveTuple { src, dst, protocol, src_port, dst_port });
        names = rest;
    }
    Ok(())
}
