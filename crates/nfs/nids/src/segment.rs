//! The fields of a TCP segment by which its stream and its receiver decide.

use thalweg_packet::Batch;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

/// The largest window scale (RFC 7323, 2.3).
pub(super) const MOST_SCALE: u8 = 14;

/// Bytes of a header without options.
const FIXED: usize = 20;

/// Kinds of options: end of the list, padding, window scale, timestamps, MD5 signature (RFC 2385)
/// and authentication (RFC 5925).
const END: u8 = 0;
const PADDING: u8 = 1;
const SCALE: u8 = 3;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AUTHENTICATION: u8 = 29;

/// A TCP header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    /// The window, not scaled.
    pub(super) window: u16,
    pub(super) options: Options,
}

/// Bytes of a header with the options that RFC 7323 recommends, which are in most segments.
const WITH_STAMPS: usize = 32;

/// The first bytes of a segment, as they are in the packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head([u8; WITH_STAMPS]);

impl Head {
    /// Those of a segment with a TCP header, which is complete.
    #[inline(always)]
    pub(super) fn of(segment: &[u8]) -> Self {
        Self(segment.first_chunk().copied().unwrap_or_else(|| padded(segment)))
    }

    #[inline(always)]
    pub(super) fn sequence(&self) -> u32 {
        number(&self.0, 4)
    }

    /// The segment, if it has no other options than those.
    #[inline(always)]
    pub(super) fn segment(&self) -> Option<Segment> {
        let rest = number(&self.0, 12);
        let options = match (rest >> 28) as usize * 4 {
            FIXED => Options::default(),
            WITH_STAMPS => Options::recommended(&self.0[FIXED..])?,
            _ => return None,
        };
        Some(Segment::with(&self.0, options))
    }
}

/// The bytes of a short segment, and zeros.
#[inline(never)]
fn padded(segment: &[u8]) -> [u8; WITH_STAMPS] {
    let mut all = [0; WITH_STAMPS];
    all[..segment.len()].copy_from_slice(segment);
    all
}

/// The options of a TCP header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// The sender's timestamp and the one that it echoes, if it has them.
    stamps: [u32; 2],
    has_stamps: bool,
    has_scale: bool,
    scale: u8,
    /// It carries a signature, MD5 or TCP-AO.
    signed: bool,
}

impl Options {
    /// Those in the layout that RFC 7323 recommends.
    #[inline(always)]
    fn recommended(options: &[u8]) -> Option<Self> {
        let [PADDING, PADDING, TIMESTAMPS, 10, stamps @ ..] = options else { return None };
        (stamps.len() == 8).then(|| Self {
            stamps: [number(stamps, 0), number(stamps, 4)],
            has_stamps: true,
            ..Self::default()
        })
    }

    /// Reads options up to the first that is malformed, as receivers do.
    #[inline(never)]
    fn read(mut options: &[u8]) -> Self {
        let mut known = Self::default();
        while let [kind, rest @ ..] = options {
            match *kind {
                END => break,
                PADDING => {
                    options = rest;
                    continue;
                }
                _ => {}
            }
            let Some(length) = rest.first().map(|length| usize::from(*length)) else { break };
            let Some(option) = options.get(..length).filter(|_| length >= 2) else { break };
            match (*kind, length) {
                (SCALE, 3) => (known.has_scale, known.scale) = (true, option[2].min(MOST_SCALE)),
                (TIMESTAMPS, 10) => {
                    (known.has_stamps, known.stamps) =
                        (true, [number(option, 2), number(option, 6)]);
                }
                (MD5, 18) | (AUTHENTICATION, 4..) => known.signed = true,
                _ => {}
            }
            options = &options[length..];
        }
        known
    }
}

impl Segment {
    /// That of a packet with a TCP header.
    #[inline]
    pub(super) fn of(batch: &Batch, lane: usize) -> Self {
        Self::new(header(batch, lane))
    }

    /// Reads a TCP header with its options, which the parser found complete.
    #[inline]
    pub(super) fn new(header: &[u8]) -> Self {
        let Some((fixed, options)) = header.split_first_chunk::<FIXED>() else {
            return Self::default();
        };
        let options = match options {
            [] => Options::default(),
            options => Options::recommended(options).unwrap_or_else(|| Options::read(options)),
        };
        Self::with(fixed, options)
    }

    /// That of a header with these options.
    #[inline(always)]
    fn with(header: &[u8], options: Options) -> Self {
        let rest = number(header, 12);
        Self {
            flags: (rest >> 16) as u8,
            sequence: number(header, 4),
            acknowledged: number(header, 8),
            window: rest as u16,
            options,
        }
    }

    /// The sender's timestamp and the one that it echoes.
    #[inline]
    pub(super) fn stamps(&self) -> Option<[u32; 2]> {
        self.options.has_stamps.then_some(self.options.stamps)
    }

    pub(super) fn scale(&self) -> Option<u8> {
        self.options.has_scale.then_some(self.options.scale)
    }

    /// Whether it carries a signature, MD5 or TCP-AO.
    #[inline]
    pub(super) fn is_signed(&self) -> bool {
        self.options.signed
    }

    /// Whether it has all of `set` and none of `clear`.
    #[inline]
    pub(super) fn has(&self, set: u8, clear: u8) -> bool {
        self.flags & (set | clear) == set
    }

    /// Whether it neither opens nor ends a connection, and acknowledges data, as most do.
    #[inline]
    pub(super) fn continues(&self) -> bool {
        flags_continue(self.flags)
    }

    /// Whether it opens a connection, or answers a segment that does.
    #[inline]
    pub(super) fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    #[inline]
    pub(super) fn is_syn_ack(&self) -> bool {
        self.has(SYN | ACK, 0)
    }

    #[inline]
    pub(super) fn is_reset(&self) -> bool {
        self.flags & RST != 0
    }

    #[inline]
    pub(super) fn is_last(&self) -> bool {
        self.flags & FIN != 0
    }

    #[inline]
    pub(super) fn acknowledges(&self) -> bool {
        self.flags & ACK != 0
    }
}

/// Whether a segment with these flags neither opens nor ends a connection, and acknowledges data.
#[inline]
pub(super) fn flags_continue(flags: u8) -> bool {
    flags & (ACK | SYN | RST | FIN) == ACK
}

/// The TCP header of a packet that has one.
#[inline]
fn header(batch: &Batch, lane: usize) -> &[u8] {
    let headers = batch.headers(lane);
    batch.bytes(lane).get(headers.l4.into()..headers.payload.into()).unwrap_or(&[])
}

/// The four bytes at `at` as a number; 0 past the end.
#[inline]
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

/// How far `to` lies past `from`, less than half the sequence space in either direction.
#[inline]
pub(super) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(options: &[u8]) -> Segment {
        let mut header = vec![0; 20];
        header[14..16].copy_from_slice(&[0x12, 0x34]);
        header.extend_from_slice(options);
        Segment::new(&header)
    }

    #[test]
    fn options_are_read_in_any_order_up_to_a_malformed_one() {
        let stamps = [&[8, 10][..], &7u32.to_be_bytes(), &9u32.to_be_bytes()].concat();
        let aligned = with(&[&[1, 1][..], &stamps].concat());
        assert_eq!((aligned.stamps(), aligned.window), (Some([7, 9]), 0x1234));
        let all = [&[2, 4, 5, 180, 3, 3, 200][..], &stamps, &[1, 19, 18], &[0; 16]].concat();
        let all = with(&all);
        assert_eq!((all.stamps(), all.scale(), all.is_signed()), (Some([7, 9]), Some(14), true));
        assert!(with(&[29, 4, 0, 0]).is_signed());
        for none in [
            [&[8, 9][..], &stamps].concat(),  // a wrong length
            [&[5, 1][..], &stamps].concat(),  // shorter than an option can be
            [&[0][..], &stamps].concat(),     // the list has ended
            [&[5, 99][..], &stamps].concat(), // beyond the header
            stamps[..9].to_vec(),
            vec![8],
        ] {
            assert_eq!(with(&none).stamps(), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn the_first_bytes_tell_what_the_header_does(
            mut bytes in proptest::collection::vec(any::<u8>(), 60..70),
            words in prop_oneof![Just(5u8), Just(8), 5u8..=15],
            is_recommended in any::<bool>(),
            payload in 0usize..20,
        ) {
            let length = usize::from(words) * 4;
            bytes[12] = words << 4 | bytes[12] & 15;
            if is_recommended {
                bytes[20..24].copy_from_slice(&[1, 1, 8, 10]);
            }
            let segment = &bytes[..(length + payload).min(bytes.len())];
            let head = Head::of(segment);
            let whole = Segment::new(&segment[..length]);
            prop_assert_eq!(head.sequence(), whole.sequence);
            let is_plain = words == 5 || words == 8 && is_recommended;
            prop_assert!(head.segment().is_some() || !is_plain);
            if let Some(segment) = head.segment() {
                prop_assert_eq!(format!("{segment:?}"), format!("{whole:?}"));
            }
        }
    }
}
