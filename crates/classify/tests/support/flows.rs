//! Random flows in `ovs-ofctl` syntax, each field with its prerequisites.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How a value is written.
#[derive(Clone, Copy)]
enum Kind {
    /// A number of this many bits.
    Number(u32),
    /// The same, never in hexadecimal.
    Decimal(u32),
    /// A number of this many bits, perhaps with a mask.
    Masked(u32),
    Mac,
    Ipv4,
    Ipv6,
    Flags,
    /// One of these.
    Word(&'static [&'static str]),
}

use Kind::{Decimal, Flags, Ipv4, Ipv6, Mac, Masked, Number, Word};

type Fields = &'static [(&'static str, Kind)];

const COMMON: Fields = &[
    ("in_port", Decimal(8)),
    ("dl_src", Mac),
    ("eth_dst", Mac),
    ("tun_id", Masked(64)),
    ("tun_src", Ipv4),
    ("tun_dst", Ipv4),
    ("tun_ipv6_src", Ipv6),
    ("tun_ipv6_dst", Ipv6),
    ("metadata", Masked(32)),
];

/// At most one of these a flow: they say the same bits.
const TAGS: &[&str] = &[
    "dl_vlan=0",
    "dl_vlan=10",
    "dl_vlan=0xffff",
    "dl_vlan_pcp=5",
    "dl_vlan=4095,dl_vlan_pcp=0",
    "vlan_tci=0",
    "vlan_tci=0x700a",
    "vlan_tci=0x1000/0x1000",
    "vlan_tci=0/0x1000",
    "vlan_tci=0x1003/0x1fff",
    "vlan_tci=0x000a/0x0fff",
    "vlan_tci=0x2000/0xe000",
    "vlan_tci=0x3002/0x3006",
    "vlan_vid=0x100a",
    "vlan_vid=0",
    "vlan_vid=0x1000/0x1000",
    "vlan_vid=0x1004/0x1004",
];

const IP: Fields = &[("ip_dscp", Number(6)), ("ip_ecn", Number(2)), ("nw_ttl", Number(8))];
const ANY_FRAGMENT: Fields = &[("nw_frag", Word(&["no", "yes", "first", "later", "not_later"]))];
/// Fragments that may have a transport header.
const FRAGMENT: Fields = &[("ip_frag", Word(&["no", "yes", "first", "not_later"]))];
const V4: Fields = &[("nw_src", Ipv4), ("ip_dst", Ipv4)];
const V6: Fields = &[("ipv6_src", Ipv6), ("ipv6_dst", Ipv6), ("ipv6_label", Masked(20))];
const PORTS: Fields = &[("tp_src", Masked(16)), ("tp_dst", Masked(16))];
const TCP: Fields = &[("tcp_src", Masked(16)), ("tcp_dst", Masked(16)), ("tcp_flags", Flags)];
const UDP: Fields = &[("udp_src", Masked(16)), ("udp_dst", Masked(16))];
const SCTP: Fields = &[("sctp_src", Masked(16)), ("sctp_dst", Masked(16))];
const ICMP: Fields = &[("icmp_type", Number(8)), ("icmp_code", Number(8))];
const ICMP6: Fields = &[("icmpv6_type", Number(8)), ("icmpv6_code", Number(8))];
const SOLICIT: Fields = &[("nd_target", Ipv6), ("nd_sll", Mac)];
const ADVERTISE: Fields = &[("nd_target", Ipv6), ("nd_tll", Mac)];
const ARP: Fields = &[
    ("arp_op", Number(8)),
    ("arp_spa", Ipv4),
    ("arp_tpa", Ipv4),
    ("arp_sha", Mac),
    ("arp_tha", Mac),
];
const MPLS: Fields = &[
    ("mpls_label", Number(20)),
    ("mpls_tc", Number(3)),
    ("mpls_bos", Number(1)),
    ("mpls_ttl", Number(8)),
];

/// A protocol, and the fields that have a meaning with it.
const CONTEXTS: &[(&str, &[Fields])] = &[
    ("", &[]),
    ("dl_type=0x88cc", &[]),
    ("ip", &[IP, ANY_FRAGMENT, V4]),
    ("ip,nw_proto=50", &[IP, ANY_FRAGMENT, V4]),
    ("dl_type=0x86dd,nw_proto=6", &[IP, FRAGMENT, V6, PORTS]),
    ("ipv6", &[IP, ANY_FRAGMENT, V6]),
    ("tcp", &[IP, FRAGMENT, V4, PORTS]),
    ("tcp", &[IP, FRAGMENT, V4, TCP]),
    ("tcp6", &[IP, FRAGMENT, V6, TCP]),
    ("udp", &[IP, FRAGMENT, V4, UDP]),
    ("udp6", &[IP, FRAGMENT, V6, PORTS]),
    ("sctp", &[IP, FRAGMENT, V4, SCTP]),
    ("sctp6", &[IP, FRAGMENT, V6, SCTP]),
    ("icmp", &[IP, FRAGMENT, V4, ICMP]),
    ("icmp6", &[IP, FRAGMENT, V6, ICMP6]),
    ("icmp6,icmpv6_type=135", &[V6, SOLICIT]),
    ("icmp6,icmp_type=136,icmp_code=0", &[V6, ADVERTISE]),
    ("arp", &[ARP]),
    ("rarp", &[ARP]),
    ("mpls", &[MPLS]),
    ("mplsm", &[MPLS]),
];

/// The random flow of `seed`: a protocol, and some of the fields it allows.
pub fn random_flow(seed: u64) -> String {
    let rng = &mut StdRng::seed_from_u64(seed);
    let (protocol, allowed) = CONTEXTS[rng.random_range(0..CONTEXTS.len())];
    let mut parts = vec![format!("priority={}", rng.random_range(0..=65535))];
    parts.extend((!protocol.is_empty()).then(|| protocol.to_owned()));
    if rng.random_ratio(1, 3) {
        parts.push(TAGS[rng.random_range(0..TAGS.len())].to_owned());
    }
    for (name, kind) in COMMON {
        if rng.random_ratio(1, 8) {
            parts.push(format!("{name}={}", value(rng, *kind)));
        }
    }
    for (name, kind) in allowed.iter().copied().flatten() {
        if rng.random_ratio(1, 2) {
            parts.push(format!("{name}={}", value(rng, *kind)));
        }
    }
    // The order of fields has no meaning.
    let at = rng.random_range(0..parts.len());
    parts.rotate_left(at);
    parts.join(",")
}

fn value(rng: &mut StdRng, kind: Kind) -> String {
    let number = |rng: &mut StdRng, bits| rng.random::<u64>() >> (64 - bits);
    match kind {
        Decimal(bits) => number(rng, bits).to_string(),
        Number(bits) if rng.random() => number(rng, bits).to_string(),
        Number(bits) => format!("{:#x}", number(rng, bits)),
        Masked(bits) => {
            let value = value(rng, Number(bits));
            let mask = number(rng, bits);
            if rng.random() { value } else { format!("{value}/{mask:#x}") }
        }
        Mac => {
            let mac = |rng: &mut StdRng| {
                let bytes: [u8; 6] = rng.random();
                bytes.map(|b| format!("{b:02x}")).join(":")
            };
            if rng.random() { mac(rng) } else { format!("{}/{}", mac(rng), mac(rng)) }
        }
        Ipv4 => {
            let address = std::net::Ipv4Addr::from(rng.random::<u32>());
            let mask = std::net::Ipv4Addr::from(rng.random::<u32>());
            match rng.random_range(0..3) {
                0 => address.to_string(),
                1 => format!("{address}/{}", rng.random_range(0..=32)),
                _ => format!("{address}/{mask}"),
            }
        }
        Ipv6 => {
            let address = std::net::Ipv6Addr::from(rng.random::<u128>());
            // Open vSwitch takes a mask that begins with a digit for a length.
            let mask = std::net::Ipv6Addr::from(rng.random::<u128>() | 0xf << 124);
            match rng.random_range(0..3) {
                0 => address.to_string(),
                1 => format!("{address}/{}", rng.random_range(0..=128)),
                _ => format!("{address}/{mask}"),
            }
        }
        Flags => match rng.random_range(0..4) {
            0 => "+syn-ack".to_owned(),
            1 => "syn|ack|[800]".to_owned(),
            2 => number(rng, 12).to_string(),
            _ => format!("{:#x}/{:#x}", number(rng, 12), number(rng, 12)),
        },
        Word(words) => words[rng.random_range(0..words.len())].to_owned(),
    }
}
