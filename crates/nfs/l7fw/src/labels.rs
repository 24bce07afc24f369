//! IP packets inside what the parser does not parse: MPLS (RFC 3032) and PPPoE (RFC 2516).

use thalweg_packet::wire::ethertype::{IPV4, IPV6, MPLS, MPLS_MULTICAST, PPPOE_SESSION};
use thalweg_packet::{Batch, Decapsulate, FiveTuple, Headers, field, parse};

use thalweg_nf::toolkit::view;

/// A packet after its labels, parsed.
pub(super) struct Inner<'a> {
    pub(super) tuple: FiveTuple,
    pub(super) headers: Headers,
    /// The packet after an Ethernet header without addresses.
    pub(super) frame: &'a [u8],
}

/// The packet after the labels of the packet in `lane`, copied into `frame`.
pub(super) fn take_off<'a>(
    batch: &Batch,
    lane: usize,
    frame: &'a mut Vec<u8>,
) -> Option<Inner<'a>> {
    let ether_type = batch.field(lane, field::DL_TYPE) as u16;
    let (ether_type, packet) = behind(ether_type, view::payload(batch, lane))?;
    frame.clear();
    frame.extend([0; 12]);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    let (key, headers) = parse(frame, batch.meta.in_port[lane], Decapsulate::No);
    Some(Inner { tuple: FiveTuple::from_key(&key)?, headers, frame })
}

/// The IP packet in `rest`, which begins after the last MPLS label or with PPPoE's header, and
/// its EtherType.
fn behind(ether_type: u16, rest: &[u8]) -> Option<(u16, &[u8])> {
    match ether_type {
        // Labels do not name the protocol after them.
        MPLS | MPLS_MULTICAST => match rest.first()? >> 4 {
            4 => Some((IPV4, rest)),
            6 => Some((IPV6, rest)),
            _ => None,
        },
        PPPOE_SESSION => {
            // Version and type, code, session, length of the rest, and PPP's protocol.
            let ([0x11, 0, _, _, l0, l1, p0, p1], packet) = rest.split_first_chunk()? else {
                return None;
            };
            let length = usize::from(u16::from_be_bytes([*l0, *l1])).checked_sub(2)?;
            let ether_type = match [*p0, *p1] {
                [0x00, 0x21] => IPV4,
                [0x00, 0x57] => IPV6,
                _ => return None,
            };
            Some((ether_type, packet.get(..length)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_sessions_are_taken_off() {
        assert_eq!(behind(0x8847, &[0x45, 1]), Some((IPV4, &[0x45, 1][..])));
        assert_eq!(behind(0x8848, &[0x60]), Some((IPV6, &[0x60][..])));
        assert_eq!(behind(0x8847, &[0x00, 1]), None, "a control word");
        let session = |length, protocol| [0x11, 0, 0, 9, 0, length, 0, protocol, 0x45, 7, 0xaa];
        assert_eq!(behind(0x8864, &session(4, 0x21)), Some((IPV4, &[0x45, 7][..])));
        assert_eq!(behind(0x8864, &session(5, 0x57)), Some((IPV6, &[0x45, 7, 0xaa][..])));
        for wrong in [session(6, 0x21), session(1, 0x21), session(4, 0x23)] {
            assert_eq!(behind(0x8864, &wrong), None);
        }
        assert_eq!(behind(0x8863, &session(4, 0x21)), None, "discovery");
        assert_eq!(behind(0x8847, &[]), None);
        assert_eq!(behind(0x8864, &[0x11; 7]), None);
    }
}
