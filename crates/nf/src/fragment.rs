//! IPv4 fragmentation (RFC 791 §3.2, RFC 1812 §5.2.6).

use thalweg_packet::checksum::checksum;
use thalweg_packet::{Batch, Decapsulate, Lanes};

use crate::Context;

/// Flag "more fragments" in the word of flags and offset.
const MORE: u16 = 0x2000;

/// Whether the packet of `lane` may and can be cut: IPv4 without "don't
/// fragment", not cut by its capture, in a frame whose link header does not
/// hold the packet's length (802.3 with LLC and SNAP does).
pub(crate) fn may_fragment(batch: &Batch, lane: usize) -> bool {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    let l3 = headers.l3 as usize;
    let total = |ip: &[u8]| usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    headers.is_ipv4()
        && bytes[l3 + 6] & 0x40 == 0
        && l3 + total(&bytes[l3..]) == headers.end as usize
        && !bytes[..l3 - 2].ends_with(&[0xaa, 0xaa, 3, 0, 0, 0])
}

/// What the fragments of a packet are made in.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    packet: Vec<u8>,
    fragment: Vec<u8>,
}

impl Cutter {
    /// Cuts the packet of `lane`, which [may be cut](may_fragment): the first
    /// fragment takes its place, the others are new packets, parsed, of the lanes
    /// of [`Context::emitted`] that are returned. `None`, and nothing emitted, when
    /// there is no room for all; the packet is then to be dropped.
    pub(crate) fn cut(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        mtu: u16,
    ) -> Option<Lanes> {
        let headers = *batch.headers(lane);
        let Self { packet, fragment: buffer } = self;
        packet.clear();
        packet.extend_from_slice(&batch.bytes(lane)[..headers.end as usize]);
        let (link, packet) = packet.split_at(headers.l3 as usize);
        let (mut first, mut later) = (true, Lanes::NONE);
        let whole = fragment(link, packet, mtu.into(), buffer, |bytes| {
            if std::mem::take(&mut first) {
                batch.truncate(lane, bytes.len());
                batch.bytes_mut(lane).copy_from_slice(bytes);
                batch.meta.wire_len[lane] = bytes.len() as u32;
                return true;
            }
            context.emit(batch, lane, bytes).inspect(|new| later.insert(*new)).is_some()
        });
        if !whole {
            context.emitted().release(later);
            return None;
        }
        batch.parse(Lanes::one(lane), Decapsulate::No);
        context.emitted().parse(later, Decapsulate::No);
        Some(later)
    }
}

/// Cuts the IPv4 packet `packet`, a whole one with a good header, into
/// fragments of at most `mtu` (68 or more) bytes and hands each of them to
/// `each`, behind `link`, the first one first. Ends early when `each` says so.
///
/// Returns whether `each` took all of them. `buffer` is for the fragments.
fn fragment(
    link: &[u8],
    packet: &[u8],
    mtu: usize,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]) -> bool,
) -> bool {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let (first_header, data) = packet.split_at(header_len);
    let old = u16::from_be_bytes([packet[6], packet[7]]);
    let (later_header, later_len) = header_of_later(first_header);
    let mut at = 0;
    while at < data.len() {
        let header = if at == 0 { first_header } else { &later_header[..later_len] };
        // 68 bytes are the longest header and 8 bytes of data.
        let room = (mtu.saturating_sub(header.len()) & !7).max(8);
        let take = room.min(data.len() - at);
        let last = at + take == data.len();
        let more = if last { old & MORE } else { MORE };
        let place = ((old & 0x1fff) + (at / 8) as u16) & 0x1fff;
        buffer.clear();
        buffer.extend_from_slice(link);
        buffer.extend_from_slice(header);
        buffer.extend_from_slice(&data[at..at + take]);
        seal(&mut buffer[link.len()..], header.len(), place | more);
        if !each(buffer) {
            return false;
        }
        at += take;
    }
    true
}

/// Writes what differs from fragment to fragment.
fn seal(packet: &mut [u8], header_len: usize, flags: u16) {
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&flags.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The header of fragments other than the first, and its length: only the
/// options whose "copied" flag is set.
fn header_of_later(header: &[u8]) -> ([u8; 60], usize) {
    let mut later = [0; 60];
    later[..20].copy_from_slice(&header[..20]);
    let mut len = 20;
    let mut options = &header[20..];
    while let [kind, rest @ ..] = options {
        let size = match (*kind, rest.first()) {
            (0, _) | (2.., None) => break,
            (1, _) => 1,
            (_, size) => size.map_or(2, |size| usize::from(*size).max(2)),
        };
        let Some(option) = options.get(..size) else { break };
        if kind & 0x80 != 0 {
            later[len..len + size].copy_from_slice(option);
            len += size;
        }
        options = &options[size..];
    }
    let len = len.next_multiple_of(4);
    later[0] = 0x40 | (len / 4) as u8;
    (later, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(options: &[u8], data: usize, flags: u16) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45 + (options.len() / 4) as u8;
        packet[8] = 9;
        packet.extend_from_slice(options);
        packet.extend((0..data).map(|i| i as u8));
        let header_len = 20 + options.len();
        seal(&mut packet, header_len, flags);
        packet
    }

    /// Header and data of each fragment, checked by itself.
    fn cut(packet: &[u8], mtu: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut parts = Vec::new();
        let whole = fragment(b"link", packet, mtu, &mut Vec::new(), |bytes| {
            let ip = bytes.strip_prefix(b"link").unwrap();
            let header_len = usize::from(ip[0] & 15) * 4;
            assert!(ip.len() <= mtu && ip[0] >> 4 == 4);
            assert_eq!(checksum(&ip[..header_len]), 0);
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            parts.push((ip[..header_len].to_vec(), ip[header_len..].to_vec()));
            true
        });
        assert!(whole);
        parts
    }

    #[test]
    fn fragments_put_together_are_the_packet() {
        for (flags, mtu, data) in
            [(0, 68, 500), (0x2000, 576, 1400), (0x2010, 1500, 8972), (0, 99, 79)]
        {
            let packet = packet(&[], data, flags);
            let parts = cut(&packet, mtu);
            let mut put_together = Vec::new();
            for (i, (header, part)) in parts.iter().enumerate() {
                let word = u16::from_be_bytes([header[6], header[7]]);
                let offset = usize::from((word & 0x1fff) - (flags & 0x1fff)) * 8;
                assert_eq!(offset, put_together.len());
                let last = i + 1 == parts.len();
                assert_eq!(word & MORE, if last { flags & MORE } else { MORE });
                put_together.extend_from_slice(part);
            }
            assert_eq!(put_together, &packet[20..]);
            let step = (mtu - 20) & !7;
            assert_eq!(parts.len(), data.div_ceil(step));
        }
    }

    #[test]
    fn only_options_with_the_copied_flag_go_into_later_fragments() {
        let options = [7, 3, 4, 0x94, 4, 0, 0, 1, 0x82, 3, 9, 0];
        let parts = cut(&packet(&options, 100, 0), 80);
        assert_eq!(parts[0].0[20..], options);
        assert_eq!(parts[1].0[20..], [0x94, 4, 0, 0, 0x82, 3, 9, 0]);
        assert_eq!(parts[1].0[0], 0x47);
    }

    #[test]
    fn broken_options_neither_panic_nor_are_copied() {
        for options in [[0x94, 0, 0, 0], [0x94, 40, 0, 0], [1, 1, 1, 0x94]] {
            let parts = cut(&packet(&options, 100, 0), 68);
            assert!(parts.len() > 1);
        }
    }

    #[test]
    fn a_refusal_ends_the_cutting() {
        let mut seen = 0;
        let taken = fragment(&[], &packet(&[], 500, 0), 68, &mut Vec::new(), |_| {
            seen += 1;
            seen < 3
        });
        assert_eq!((taken, seen), (false, 3));
    }
}
