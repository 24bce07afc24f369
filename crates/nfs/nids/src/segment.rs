//! The fields of a TCP segment by which its stream and its receiver decide.

use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

/// The largest window scale (RFC 7323, 2.3).
pub(super) const MOST_SCALE: u8 = 14;

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
    /// The sender's timestamp and the one that it echoes.
    pub(super) stamps: Option<[u32; 2]>,
    pub(super) scale: Option<u8>,
    /// It carries a signature, MD5 or TCP-AO.
    pub(super) signed: bool,
}

impl Segment {
    /// Reads a TCP header with its options, which the parser found complete.
    #[inline]
    pub(super) fn new(header: &[u8], flags: u8) -> Self {
        let mut segment = Self {
            flags,
            sequence: number(header, 4),
            acknowledged: number(header, 8),
            window: (number(header, 14) >> 16) as u16,
            ..Self::default()
        };
        match header.get(20..).unwrap_or(&[]) {
            [] => {}
            // The layout that RFC 7323 recommends, in most segments of most connections.
            [PADDING, PADDING, TIMESTAMPS, 10, stamps @ ..] if stamps.len() == 8 => {
                segment.stamps = Some([number(stamps, 0), number(stamps, 4)]);
            }
            options => segment.read(options),
        }
        segment
    }

    /// Reads options up to the first that is malformed, as receivers do.
    fn read(&mut self, mut options: &[u8]) {
        while let [kind, rest @ ..] = options {
            match *kind {
                END => return,
                PADDING => {
                    options = rest;
                    continue;
                }
                _ => {}
            }
            let Some(length) = rest.first().map(|length| usize::from(*length)) else { return };
            let Some(option) = options.get(..length).filter(|_| length >= 2) else { return };
            match (*kind, length) {
                (SCALE, 3) => self.scale = Some(option[2].min(MOST_SCALE)),
                (TIMESTAMPS, 10) => self.stamps = Some([number(option, 2), number(option, 6)]),
                (MD5, 18) | (AUTHENTICATION, 4..) => self.signed = true,
                _ => {}
            }
            options = &options[length..];
        }
    }

    /// Whether it has all of `set` and none of `clear`.
    #[inline]
    pub(super) fn has(&self, set: u8, clear: u8) -> bool {
        self.flags & (set | clear) == set
    }

    /// Whether it opens a connection, or answers a segment that does.
    pub(super) fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    pub(super) fn is_syn_ack(&self) -> bool {
        self.has(SYN | ACK, 0)
    }

    pub(super) fn is_reset(&self) -> bool {
        self.flags & RST != 0
    }

    pub(super) fn is_last(&self) -> bool {
        self.flags & FIN != 0
    }

    pub(super) fn acknowledges(&self) -> bool {
        self.flags & ACK != 0
    }
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
    use super::*;

    fn with(options: &[u8]) -> Segment {
        let mut header = vec![0; 20];
        header[14..16].copy_from_slice(&[0x12, 0x34]);
        header.extend_from_slice(options);
        Segment::new(&header, ACK)
    }

    #[test]
    fn options_are_read_in_any_order_up_to_a_malformed_one() {
        let stamps = [&[8, 10][..], &7u32.to_be_bytes(), &9u32.to_be_bytes()].concat();
        let aligned = with(&[&[1, 1][..], &stamps].concat());
        assert_eq!((aligned.stamps, aligned.window), (Some([7, 9]), 0x1234));
        let all = [&[2, 4, 5, 180, 3, 3, 200][..], &stamps, &[1, 19, 18], &[0; 16]].concat();
        let all = with(&all);
        assert_eq!((all.stamps, all.scale, all.signed), (Some([7, 9]), Some(14), true));
        assert!(with(&[29, 4, 0, 0]).signed);
        for none in [
            [&[8, 9][..], &stamps].concat(),  // a wrong length
            [&[5, 1][..], &stamps].concat(),  // shorter than an option can be
            [&[0][..], &stamps].concat(),     // the list has ended
            [&[5, 99][..], &stamps].concat(), // beyond the header
            stamps[..9].to_vec(),
            vec![8],
        ] {
            assert_eq!(with(&none).stamps, None, "{none:?}");
        }
    }
}
