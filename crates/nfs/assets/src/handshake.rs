//! What the first segment of a host reveals about its system, in terms of p0f.

use std::fmt::Write;

use arrayvec::ArrayVec;
use thalweg_packet::wire::tcp_flags::{ACK, CWR, ECE, FIN, PSH, URG};

/// The kinds of TCP options that have a name.
pub(super) mod option {
    pub(in super::super) const EOL: u8 = 0;
    pub(in super::super) const NOP: u8 = 1;
    pub(in super::super) const MSS: u8 = 2;
    pub(in super::super) const SCALE: u8 = 3;
    pub(in super::super) const SACK_OK: u8 = 4;
    pub(in super::super) const SACK: u8 = 5;
    pub(in super::super) const TIMESTAMPS: u8 = 8;
}

/// The quirks of a segment: bits with the names of p0f 3, then those of p0f 2, which defines some
/// quirks differently.
pub(super) mod quirk {
    macro_rules! bits {
        ($($name:ident = $bit:literal: $what:literal,)*) => {
            $(#[doc = $what] pub(in super::super) const $name: u32 = 1 << $bit;)*
        };
    }
    bits! {
        DF = 0: "IPv4 must not be fragmented.",
        ID_WITH_DF = 1: "IPv4 must not be fragmented, but has an identification.",
        NO_ID = 2: "IPv4 may be fragmented and has no identification.",
        ECN = 3: "Explicit congestion notification.",
        MUST_BE_ZERO = 4: "IPv4's reserved flag is set.",
        FLOW = 5: "IPv6 flow label.",
        NO_SEQUENCE = 6: "The sequence number is 0.",
        ACK_UNFLAGGED = 7: "An acknowledgement number without the ACK flag.",
        ACK_MISSING = 8: "The ACK flag without an acknowledgement number.",
        URG_UNFLAGGED = 9: "An urgent pointer without the URG flag.",
        URG_FLAG = 10: "The URG flag.",
        PUSH_FLAG = 11: "The PSH flag.",
        NO_OWN_TIME = 12: "The sender's timestamp is 0.",
        PEER_TIME = 13: "The peer's timestamp is not 0 in a first SYN.",
        TRAILING = 14: "Bytes other than 0 after the end of the options.",
        EXCESSIVE_SCALE = 15: "A window scale over 14.",
        BAD_OPTIONS = 16: "Malformed options.",
        PAST_EOL = 20: "Any bytes after the end of the options.",
        ID_ZERO = 21: "IPv4's identification is 0.",
        IP_OPTIONS = 22: "IPv4 has options.",
        URG_POINTER = 23: "The urgent pointer is not 0.",
        RESERVED = 24: "TCP's reserved bits are not 0.",
        ACK_NUMBER = 25: "The acknowledgement number is not 0.",
        ODD_FLAGS = 26: "Flags that do not belong in a handshake.",
        DATA = 27: "It carries data.",
        SEQUENCE_IS_ACK = 28: "Sequence and acknowledgement numbers are the same.",
        PEER_TIME_ANY = 29: "The peer's timestamp is not 0.",
    }
    /// The quirks that signatures of p0f 3 cover.
    pub(in super::super) const P0F3: u32 = (1 << 17) - 1;
    /// The quirks that signatures of p0f 2 cover.
    pub(in super::super) const P0F2: u32 =
        0x3ff0_0000 | DF | NO_SEQUENCE | BAD_OPTIONS | NO_OWN_TIME | FLOW;
}

/// Names of the quirks of p0f 3.
pub(super) const QUIRKS: [(&str, u32); 17] = [
    ("df", quirk::DF),
    ("id+", quirk::ID_WITH_DF),
    ("id-", quirk::NO_ID),
    ("ecn", quirk::ECN),
    ("0+", quirk::MUST_BE_ZERO),
    ("flow", quirk::FLOW),
    ("seq-", quirk::NO_SEQUENCE),
    ("ack+", quirk::ACK_UNFLAGGED),
    ("ack-", quirk::ACK_MISSING),
    ("uptr+", quirk::URG_UNFLAGGED),
    ("urgf+", quirk::URG_FLAG),
    ("pushf+", quirk::PUSH_FLAG),
    ("ts1-", quirk::NO_OWN_TIME),
    ("ts2+", quirk::PEER_TIME),
    ("opt+", quirk::TRAILING),
    ("exws", quirk::EXCESSIVE_SCALE),
    ("bad", quirk::BAD_OPTIONS),
];

/// The most kinds and padding that a layout holds: 40 bytes of options and the padding's length.
const MAX_LAYOUT: usize = 41;

/// The features of a SYN or SYN-ACK that identify the system that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// 4 or 6.
    pub(super) version: u8,
    pub(super) ttl: u8,
    /// Bytes of IPv4 options or IPv6 extension headers.
    pub(super) ip_options: u8,
    /// 0 when there is none.
    pub(super) mss: u16,
    pub(super) window: u16,
    pub(super) scale: u8,
    /// The options' kinds up to the end of the list; after that end, the number of padding bytes.
    pub(super) layout: ArrayVec<u8, MAX_LAYOUT>,
    pub(super) timestamps: bool,
    pub(super) quirks: u32,
    pub(super) payload: bool,
    /// Bytes of the headers of IP and TCP.
    pub(super) headers: u16,
    /// The size that p0f 2 uses: of the IPv4 packet, or of IPv6's payload.
    pub(super) size: u16,
}

impl Features {
    /// The features of a segment: `ip` from the IP header to the end of the packet, the TCP
    /// header at `tcp`. `None` for truncated headers.
    pub(super) fn of(ip: &[u8], tcp: usize) -> Option<Self> {
        let segment = ip.get(tcp..)?;
        let fixed: &[u8; 20] = segment.first_chunk()?;
        let options_end = usize::from(fixed[12] >> 4) * 4;
        let options = segment.get(20..options_end)?;
        let mut features = match ip.first()? >> 4 {
            4 => Self::of_ipv4(ip.first_chunk()?, tcp),
            6 => Self::of_ipv6(ip.first_chunk()?, tcp),
            _ => return None,
        };
        features.headers = (tcp + options_end) as u16;
        features.payload = segment.len() > options_end;
        features.window = u16::from_be_bytes([fixed[14], fixed[15]]);
        features.of_fixed(fixed);
        features.of_options(options, fixed[13] & ACK != 0);
        features.note(quirk::DATA, features.payload);
        Some(features)
    }

    fn empty(version: u8, ttl: u8, ip_options: u8, size: u16) -> Self {
        Self {
            version,
            ttl,
            ip_options,
            mss: 0,
            window: 0,
            scale: 0,
            layout: ArrayVec::new(),
            timestamps: false,
            quirks: 0,
            payload: false,
            headers: 0,
            size,
        }
    }

    fn of_ipv4(ip: &[u8; 20], tcp: usize) -> Self {
        let size = u16::from_be_bytes([ip[2], ip[3]]);
        let mut features = Self::empty(4, ip[8], tcp.saturating_sub(20) as u8, size);
        let (id, df) = (ip[4] | ip[5] != 0, ip[6] & 0x40 != 0);
        features.note(quirk::DF, df);
        features.note(quirk::ID_WITH_DF, df && id);
        features.note(quirk::NO_ID, !df && !id);
        features.note(quirk::ID_ZERO, !id);
        features.note(quirk::MUST_BE_ZERO, ip[6] & 0x80 != 0);
        features.note(quirk::ECN, ip[1] & 3 != 0);
        features.note(quirk::IP_OPTIONS, tcp > 20);
        features
    }

    fn of_ipv6(ip: &[u8; 40], tcp: usize) -> Self {
        let size = u16::from_be_bytes([ip[4], ip[5]]);
        let mut features = Self::empty(6, ip[7], tcp.saturating_sub(40) as u8, size);
        features.note(quirk::FLOW, (ip[1] & 0x0f) | ip[2] | ip[3] != 0);
        features.note(quirk::ECN, ip[1] & 0x30 != 0);
        features
    }

    fn note(&mut self, quirk: u32, is_so: bool) {
        if is_so {
            self.quirks |= quirk;
        }
    }

    fn of_fixed(&mut self, tcp: &[u8; 20]) {
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let (sequence, acknowledged, flags) = (word(4), word(8), tcp[13]);
        let urgent = tcp[18] | tcp[19] != 0;
        let (ack, push, urg) = (flags & ACK != 0, flags & PSH != 0, flags & URG != 0);
        self.note(quirk::NO_SEQUENCE, sequence == 0);
        self.note(quirk::SEQUENCE_IS_ACK, sequence == acknowledged);
        self.note(quirk::ACK_NUMBER, acknowledged != 0);
        self.note(quirk::ACK_UNFLAGGED, !ack && acknowledged != 0);
        self.note(quirk::ACK_MISSING, ack && acknowledged == 0);
        self.note(quirk::URG_POINTER, urgent);
        self.note(quirk::URG_UNFLAGGED, !urg && urgent);
        self.note(quirk::URG_FLAG, urg);
        self.note(quirk::PUSH_FLAG, push);
        self.note(quirk::ODD_FLAGS, push || urg || flags & FIN != 0);
        self.note(quirk::RESERVED, tcp[12] & 0x0e != 0);
        self.note(quirk::ECN, flags & (ECE | CWR) != 0 || tcp[12] & 1 != 0);
    }

    fn of_options(&mut self, mut rest: &[u8], is_answer: bool) {
        while let [kind, after @ ..] = rest {
            self.layout.push(*kind);
            match *kind {
                option::EOL => {
                    self.layout.push(after.len() as u8);
                    self.note(quirk::PAST_EOL, !after.is_empty());
                    self.note(quirk::TRAILING, after.iter().any(|b| *b != 0));
                    return;
                }
                option::NOP => rest = after,
                kind => {
                    let length = after.first().map_or(0, |l| usize::from(*l));
                    let Some(value) = rest.get(2..length) else {
                        self.note(quirk::BAD_OPTIONS, true);
                        return;
                    };
                    self.of_option(kind, value, is_answer);
                    rest = &rest[length..];
                }
            }
        }
    }

    fn of_option(&mut self, kind: u8, value: &[u8], is_answer: bool) {
        match (kind, value) {
            (option::MSS, [a, b]) => self.mss = u16::from_be_bytes([*a, *b]),
            (option::SCALE, [scale]) => {
                self.scale = *scale;
                self.note(quirk::EXCESSIVE_SCALE, *scale > 14);
            }
            (option::TIMESTAMPS, [own @ .., a, b, c, d]) if own.len() == 4 => {
                self.timestamps = true;
                let peer = a | b | c | d != 0;
                self.note(quirk::NO_OWN_TIME, own.iter().all(|b| *b == 0));
                self.note(quirk::PEER_TIME, !is_answer && peer);
                self.note(quirk::PEER_TIME_ANY, peer);
            }
            (option::SACK_OK, []) => {}
            (option::MSS | option::SCALE | option::TIMESTAMPS | option::SACK_OK, _) => {
                self.note(quirk::BAD_OPTIONS, true);
            }
            _ => {}
        }
    }

    /// The initial TTL of the system: the next higher of the usual values.
    pub(super) fn initial_ttl(&self) -> u8 {
        *[32, 64, 128].iter().find(|usual| self.ttl <= **usual).unwrap_or(&255)
    }

    /// The MTU of the host's link, derived from its maximum segment size.
    pub(super) fn mtu(&self) -> Option<u16> {
        let headers = if self.version == 4 { 40 } else { 60 };
        (self.mss != 0).then(|| self.mss.saturating_add(headers))
    }

    /// The features as a raw signature of p0f 3.
    pub(super) fn notation(&self) -> String {
        let mut text = String::new();
        let (first, distance) = (self.initial_ttl(), self.initial_ttl() - self.ttl);
        let multiple = self.mss != 0 && self.window != 0 && self.window.is_multiple_of(self.mss);
        let window = if multiple {
            format!("mss*{}", self.window / self.mss)
        } else {
            self.window.to_string()
        };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{}:{first}+{distance}:{}:{}:{window},{}:",
            self.version, self.ip_options, self.mss, self.scale
        );
        let mut kinds = self.layout.iter();
        let mut comma = "";
        while let Some(kind) = kinds.next() {
            let _ = match *kind {
                option::EOL => write!(text, "{comma}eol+{}", kinds.next().unwrap_or(&0)),
                option::NOP => write!(text, "{comma}nop"),
                option::MSS => write!(text, "{comma}mss"),
                option::SCALE => write!(text, "{comma}ws"),
                option::SACK_OK => write!(text, "{comma}sok"),
                option::SACK => write!(text, "{comma}sack"),
                option::TIMESTAMPS => write!(text, "{comma}ts"),
                other => write!(text, "{comma}?{other}"),
            };
            comma = ",";
        }
        let names: Vec<_> = QUIRKS
            .iter()
            .filter(|(_, bit)| self.quirks & bit != 0)
            .map(|(name, _)| *name)
            .collect();
        let _ = write!(text, ":{}:{}", names.join(","), if self.payload { '+' } else { '0' });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with these options.
    fn syn(ip: &[u8], flags: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = ip.to_vec();
        let mut tcp = [0; 20];
        tcp[7] = 1;
        tcp[12] = ((20 + options.len()) / 4 * 16) as u8;
        tcp[13] = flags;
        tcp[14..16].copy_from_slice(&29200u16.to_be_bytes());
        bytes.extend(tcp);
        bytes.extend(options);
        bytes
    }

    const IPV4: [u8; 20] = [0x45, 0, 0, 60, 1, 2, 0x40, 0, 61, 6, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7];

    #[test]
    fn a_syn_of_linux_reads_as_p0f_writes_it() {
        let features = Features::of(&syn(&IPV4, 2, &LINUX), 20).unwrap();
        assert_eq!(features.notation(), "4:64+3:0:1460:mss*20,7:mss,sok,ts,nop,ws:df,id+:0");
        assert_eq!((features.mtu(), features.headers), (Some(1500), 60));
    }

    #[test]
    fn padding_and_bad_options_are_seen() {
        let padded = Features::of(&syn(&IPV4, 2, &[2, 4, 5, 180, 0, 0, 9, 0]), 20).unwrap();
        assert!(padded.notation().ends_with(":mss,eol+3:df,id+,opt+:0"), "{}", padded.notation());
        let bad = Features::of(&syn(&IPV4, 2, &[2, 9, 5, 180]), 20).unwrap();
        assert!(bad.notation().ends_with(",bad:0"), "{}", bad.notation());
    }

    #[test]
    fn no_segment_makes_it_panic() {
        let whole = syn(&IPV4, 0x12, &LINUX);
        for cut in 0..whole.len() {
            let _ = Features::of(&whole[..cut], 20);
        }
        for kind in 0..=255u8 {
            for length in 0..=255u8 {
                let _ = Features::of(&syn(&IPV4, 2, &[kind, length, 1, 2]), 20);
            }
            let _ = Features::of(&syn(&IPV4, 2, &[kind; 40]), 20).unwrap().notation();
        }
    }
}
