//! IPv4 fragmentation (RFC 791 §3.2, RFC 1812 §5.2.6), and IPv6 fragmentation (RFC 8200 §4.5) of
//! packets that arrived fragmented or of which we are the source.

use thalweg_packet::checksum::checksum;
use thalweg_packet::wire::header_len;
use thalweg_packet::wire::ip_proto::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use thalweg_packet::{Batch, Cut, Decapsulate, Lanes};

use crate::{Context, Made};

/// Flag "more fragments" in the word of flags and offset.
const MORE: u16 = 0x2000;
/// Flag "don't fragment".
const DONT: u16 = 0x4000;

/// Whether the packet of `lane` may and can be fragmented: IPv4 without "don't
/// fragment", not truncated by its capture, in a frame whose link header does not
/// hold the packet's length (802.3 with LLC and SNAP does).
pub fn may_fragment(batch: &Batch, lane: usize) -> bool {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    headers.is_ipv4() && bytes[headers.l3 as usize + 6] & 0x40 == 0 && is_whole(batch, lane)
}

/// Whether the IP packet of `lane` is complete, in a frame whose link header does not hold its
/// length.
fn is_whole(batch: &Batch, lane: usize) -> bool {
    let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
    let l3 = headers.l3 as usize;
    let length = |at: usize| usize::from(u16::from_be_bytes([bytes[l3 + at], bytes[l3 + at + 1]]));
    let len = if headers.is_ipv4() { length(2) } else { header_len::IPV6 + length(4) };
    l3 + len == headers.end as usize && !bytes[..l3 - 2].ends_with(&[0xaa, 0xaa, 3, 0, 0, 0])
}

/// Whether the packet of `lane` was reassembled and is longer than its fragments were, so that it
/// can be [fragmented again](Cutter::cut_again).
pub fn was_cut(batch: &Batch, lane: usize) -> bool {
    let (headers, longest) = (batch.headers(lane), batch.meta.cut[lane].longest);
    longest > 0
        && (headers.is_ipv4() || headers.is_ipv6())
        && !headers.fragment
        && headers.end - headers.l3 > longest
        && is_whole(batch, lane)
}

/// The reused buffers of fragmentation.
#[derive(Debug, Default)]
pub struct Cutter {
    packet: Vec<u8>,
    fragment: Vec<u8>,
    later: Vec<Made>,
}

impl Cutter {
    /// Fragments the packet of `lane`, which [may be fragmented](may_fragment): the
    /// first fragment takes its place; the others are returned as new packets, parsed,
    /// with the same output. `None`, and nothing emitted, if there are no frames for
    /// all; the caller must then drop the packet.
    pub fn cut(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        mtu: u16,
    ) -> Option<&[Made]> {
        let how = Cut { longest: mtu, identification: 0 };
        self.cut_by(fragment_ipv4, how, batch, context, lane)
    }

    /// Fragments a packet that [was fragmented](was_cut), into fragments no longer than before.
    pub fn cut_again(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
    ) -> Option<&[Made]> {
        let how = std::mem::take(&mut batch.meta.cut[lane]);
        let is_ipv4 = batch.headers(lane).is_ipv4();
        let fragment = if is_ipv4 { fragment_ipv4 } else { fragment_ipv6 };
        self.cut_by(fragment, how, batch, context, lane)
    }

    /// Fragments an IPv6 packet of which we are the source, as [`cut`](Self::cut) does; leaves a
    /// packet that cannot be fragmented as it is.
    pub fn cut_own_ipv6(
        &mut self,
        how: Cut,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
    ) -> Option<&[Made]> {
        if !batch.headers(lane).is_ipv6() || !is_whole(batch, lane) {
            return Some(&[]);
        }
        self.cut_by(fragment_ipv6, how, batch, context, lane)
    }

    fn cut_by(
        &mut self,
        fragment: Fragment,
        how: Cut,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
    ) -> Option<&[Made]> {
        let headers = *batch.headers(lane);
        let Self { packet, fragment: buffer, later } = self;
        packet.clear();
        later.clear();
        packet.extend_from_slice(&batch.bytes(lane)[..headers.end as usize]);
        let (link, packet) = packet.split_at(headers.l3 as usize);
        let mut first = true;
        let whole = fragment(link, packet, how, buffer, &mut |bytes| {
            if std::mem::take(&mut first) {
                batch.truncate(lane, bytes.len());
                batch.bytes_mut(lane).copy_from_slice(bytes);
                batch.meta.wire_len[lane] = bytes.len() as u32;
                return true;
            }
            context.emit(batch, lane, bytes).inspect(|new| later.push(*new)).is_some()
        });
        for made in &*later {
            let emitted = context.emitted().batch_of(*made);
            if whole {
                emitted.parse(Lanes::one(made.lane), Decapsulate::No);
                emitted.meta.out_port[made.lane] = batch.meta.out_port[lane];
            } else {
                emitted.release(Lanes::one(made.lane));
            }
        }
        whole.then(|| {
            batch.parse(Lanes::one(lane), Decapsulate::No);
            &later[..]
        })
    }
}

/// Fragments a whole IP packet with a valid header according to `how`, and passes each fragment,
/// after `link`, to a function, in order. Stops when that returns `false`; returns whether it
/// accepted all. The buffer is for the fragments.
type Fragment =
    fn(link: &[u8], packet: &[u8], how: Cut, &mut Vec<u8>, &mut dyn FnMut(&[u8]) -> bool) -> bool;

/// A [`Fragment`] of IPv4, whose fragments are at least 68 bytes long.
fn fragment_ipv4(
    link: &[u8],
    packet: &[u8],
    how: Cut,
    buffer: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let (first_header, data) = packet.split_at(header_len);
    let is_valid = checksum(first_header) == 0;
    let old = u16::from_be_bytes([packet[6], packet[7]]);
    let (later_header, later_len) = header_of_later(first_header);
    let mut at = 0;
    while at < data.len() {
        let header = if at == 0 { first_header } else { &later_header[..later_len] };
        let room = room(how, header.len());
        let take = room.min(data.len() - at);
        let last = at + take == data.len();
        let more = if last { old & MORE } else { MORE };
        let place = ((old & 0x1fff) + (at / 8) as u16) & 0x1fff;
        buffer.clear();
        buffer.extend_from_slice(link);
        buffer.extend_from_slice(header);
        buffer.extend_from_slice(&data[at..at + take]);
        seal(&mut buffer[link.len()..], header.len(), place | more | old & DONT, is_valid);
        if !each(buffer) {
            return false;
        }
        at += take;
    }
    true
}

/// A [`Fragment`] of IPv6.
fn fragment_ipv6(
    link: &[u8],
    packet: &[u8],
    how: Cut,
    buffer: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let (named, end) = before_fragment_header(packet);
    let (header, data) = packet.split_at(end);
    let step = room(how, end + 8);
    data.chunks(step).enumerate().all(|(n, part)| {
        let place = (n * step) as u16 | u16::from(n * step + part.len() < data.len());
        buffer.clear();
        buffer.extend_from_slice(link);
        buffer.extend_from_slice(header);
        buffer.extend_from_slice(&[packet[named], 0]);
        buffer.extend_from_slice(&place.to_be_bytes());
        buffer.extend_from_slice(&how.identification.to_be_bytes());
        buffer.extend_from_slice(part);
        let ip = &mut buffer[link.len()..];
        ip[named] = FRAGMENT;
        let len = (ip.len() - header_len::IPV6) as u16;
        ip[4..6].copy_from_slice(&len.to_be_bytes());
        each(buffer)
    })
}

/// Where the fragment header of an IPv6 packet belongs: the place of the "next header" field that
/// will name it, and its own, after the headers that each router on the path reads (RFC 8200,
/// section 4.5).
fn before_fragment_header(packet: &[u8]) -> (usize, usize) {
    let (mut found, mut named, mut at) = ((6, header_len::IPV6), 6, header_len::IPV6);
    while let HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS = packet[named] {
        let Some(units) = packet.get(at + 1) else { break };
        let kind = packet[named];
        (named, at) = (at, at + (usize::from(*units) + 1) * 8);
        if at >= packet.len() {
            break;
        }
        if kind != DESTINATION_OPTIONS {
            found = (named, at);
        }
    }
    found
}

/// The bytes of data in a fragment with this many bytes of headers.
fn room(how: Cut, headers: usize) -> usize {
    (usize::from(how.longest).saturating_sub(headers) & !7).max(8)
}

/// Writes the fields that differ from fragment to fragment. The checksum is wrong unless that of the
/// whole packet `is_valid`, so that no damage is hidden.
fn seal(packet: &mut [u8], header_len: usize, flags: u16, is_valid: bool) {
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&flags.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header_len]) ^ u16::from(!is_valid);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The header of fragments other than the first, and its length: it has only the
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
        seal(&mut packet, header_len, flags, true);
        packet
    }

    /// Header and data of each fragment, checked by itself.
    fn cut(packet: &[u8], mtu: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut parts = Vec::new();
        let how = Cut { longest: mtu as u16, identification: 0 };
        let whole = fragment_ipv4(b"link", packet, how, &mut Vec::new(), &mut |bytes| {
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
        let how = Cut { longest: 68, identification: 0 };
        let taken = fragment_ipv4(&[], &packet(&[], 500, 0), how, &mut Vec::new(), &mut |_| {
            seen += 1;
            seen < 3
        });
        assert_eq!((taken, seen), (false, 3));
    }
}
