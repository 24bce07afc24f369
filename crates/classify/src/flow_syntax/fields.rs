//! The fields of the syntax: their names, places, forms and prerequisites.

use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{Field, FlowKey, field};

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Decimal, or hexadecimal with `0x`; `/mask` where the field may be masked.
    Number,
    /// As `Number`, written in hexadecimal.
    Hex,
    /// A number up to 255 in a place of 16 bits.
    Octet,
    /// `aa:bb:cc:dd:ee:ff`, with `/mask`.
    Mac,
    /// `10.0.0.0`, with `/24` or `/255.255.255.0`.
    Ipv4,
    /// `2001:db8::`, with `/32` or `/ffff:ffff::`.
    Ipv6,
    /// `+syn-ack`, `syn|ack`, or a number with `/mask`.
    TcpFlags,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Fragment,
    /// A port's number or name; in the key, plus one.
    Port,
    /// A VLAN number; the tag must be there. 0xffff is "no tag".
    Vid,
    /// A VLAN priority; the tag must be there.
    Pcp,
    /// A VLAN number with the bit 0x1000 for the tag's presence, with `/mask`.
    PresentVid,
    /// The whole TCI with the bit 0x1000 for presence, with `/mask`; 0 is "no tag".
    Tci,
}

impl Form {
    /// Whether the field is printed by the VLAN tag's own rules.
    pub(super) fn is_vlan(self) -> bool {
        matches!(self, Self::Vid | Self::Pcp | Self::PresentVid | Self::Tci)
    }
}

/// The prerequisite of a field: what the rule must match as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Ip,
    Ipv4OrArp,
    Ipv6,
    Arp,
    Mpls,
    Transport,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
    NeighbourDiscovery,
    NeighbourSolicitation,
    NeighbourAdvertisement,
}

impl Needs {
    /// Whether the pattern so far fulfils the need.
    pub(super) fn met(self, value: &FlowKey, mask: &FlowKey) -> bool {
        let exact = |f: Field| mask.get(f) == f.max();
        let ether_type =
            |t: u16| exact(field::DL_TYPE) && value.get(field::DL_TYPE) == u64::from(t);
        let ip = ether_type(ethertype::IPV4) || ether_type(ethertype::IPV6);
        let proto = |p: u8| exact(field::NW_PROTO) && value.get(field::NW_PROTO) == u64::from(p);
        let icmpv6 = ether_type(ethertype::IPV6) && proto(ip_proto::ICMPV6);
        // Neighbour discovery has ICMPv6 code 0 (RFC 4861).
        let code_0 = mask.get(field::TP_DST) & value.get(field::TP_DST) == 0;
        let kind = |t: u64| code_0 && exact(field::TP_SRC) && value.get(field::TP_SRC) == t;
        match self {
            Self::Nothing => true,
            Self::Ip => ip,
            Self::Ipv4OrArp => {
                [ethertype::IPV4, ethertype::ARP, ethertype::RARP].into_iter().any(ether_type)
            }
            Self::Ipv6 => ether_type(ethertype::IPV6),
            Self::Arp => ether_type(ethertype::ARP) || ether_type(ethertype::RARP),
            Self::Mpls => ether_type(ethertype::MPLS) || ether_type(ethertype::MPLS_MULTICAST),
            Self::Transport => {
                ip && [ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP].into_iter().any(proto)
            }
            Self::Tcp => ip && proto(ip_proto::TCP),
            Self::Udp => ip && proto(ip_proto::UDP),
            Self::Sctp => ip && proto(ip_proto::SCTP),
            Self::Icmp => ether_type(ethertype::IPV4) && proto(ip_proto::ICMP),
            Self::Icmpv6 => icmpv6,
            Self::NeighbourDiscovery => icmpv6 && (kind(135) || kind(136)),
            Self::NeighbourSolicitation => icmpv6 && kind(135),
            Self::NeighbourAdvertisement => icmpv6 && kind(136),
        }
    }

    /// Whether the field is part of the transport header, which fragments other
    /// than the first do not have.
    pub(super) fn is_transport(self) -> bool {
        !matches!(
            self,
            Self::Nothing | Self::Ip | Self::Ipv4OrArp | Self::Ipv6 | Self::Arp | Self::Mpls
        )
    }

    /// What to write to meet the prerequisite.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Ip => "'ip' or 'ipv6' in the same rule",
            Self::Ipv4OrArp => "'ip', 'arp', or a protocol over IPv4, in the same rule",
            Self::Ipv6 => "'ipv6', or a protocol over IPv6, in the same rule",
            Self::Arp => "'arp' in the same rule",
            Self::Mpls => "'mpls' in the same rule",
            Self::Transport => "'tcp', 'udp' or 'sctp' (or 'tcp6', ...) in the same rule",
            Self::Tcp => "'tcp' or 'tcp6' in the same rule",
            Self::Udp => "'udp' or 'udp6' in the same rule",
            Self::Sctp => "'sctp' or 'sctp6' in the same rule",
            Self::Icmp => "'icmp' in the same rule",
            Self::Icmpv6 => "'icmp6' in the same rule",
            Self::NeighbourDiscovery => "'icmp6,icmp_type=135' or '136' in the same rule",
            Self::NeighbourSolicitation => "'icmp6,icmp_type=135' in the same rule",
            Self::NeighbourAdvertisement => "'icmp6,icmp_type=136' in the same rule",
        }
    }
}

/// One field of the syntax.
#[derive(Debug)]
pub(super) struct Definition {
    /// Its names; the first is printed.
    pub(super) names: &'static [&'static str],
    /// Its place; a 128-bit field's high half first.
    pub(super) place: &'static [Field],
    /// Where in its place the value's lowest bit lies.
    pub(super) shift: u8,
    /// How many bits of its place the value and its mask have.
    pub(super) width: u8,
    pub(super) form: Form,
    /// Whether a mask may follow.
    pub(super) maskable: bool,
    pub(super) needs: Needs,
}

impl Definition {
    /// The mask of an exact value, right-aligned.
    pub(super) fn ones(&self) -> u128 {
        u128::MAX >> (128 - u32::from(self.width))
    }

    /// The value of this field in `key`, right-aligned.
    pub(super) fn get(&self, key: &FlowKey) -> u128 {
        let whole = match self.place {
            [high, low] => key.get128([*high, *low]),
            [place, ..] => u128::from(key.get(*place)),
            [] => 0,
        };
        whole >> self.shift & self.ones()
    }

    /// The parts of a value, or of a mask, by their places: a 128-bit one has two.
    pub(super) fn split(&self, bits: u128) -> impl Iterator<Item = (Field, u64)> + use<> {
        let bits = bits << self.shift;
        let place = self.place;
        let halves = if place.len() == 2 { [bits >> 64, bits] } else { [bits, 0] };
        place.iter().copied().zip(halves.map(|half| half as u64))
    }
}

/// A field that fills its place.
const fn define(
    names: &'static [&'static str],
    place: &'static [Field],
    form: Form,
    maskable: bool,
    needs: Needs,
) -> Definition {
    let width = if place.len() == 2 { 128 } else { place[0].bits };
    Definition { names, place, shift: 0, width, form, maskable, needs }
}

/// A field of `width` bits from bit `shift` of its place up.
const fn part(
    names: &'static [&'static str],
    place: &'static [Field],
    (shift, width): (u8, u8),
    (form, maskable): (Form, bool),
    needs: Needs,
) -> Definition {
    Definition { names, place, shift, width, form, maskable, needs }
}

/// The value alone, as a number.
const NUMBER: (Form, bool) = (Form::Number, false);

/// All fields, in the order in which they are printed. Where two share a place
/// the first whose need is met is printed.
pub(super) const FIELDS: &[Definition] = &[
    define(&["tun_id", "tunnel_id"], &[field::TUN_ID], Form::Hex, true, Needs::Nothing),
    define(&["tun_src"], &[field::TUN_SRC], Form::Ipv4, true, Needs::Nothing),
    define(&["tun_dst"], &[field::TUN_DST], Form::Ipv4, true, Needs::Nothing),
    define(&["tun_ipv6_src"], &field::TUN_IPV6_SRC, Form::Ipv6, true, Needs::Nothing),
    define(&["tun_ipv6_dst"], &field::TUN_IPV6_DST, Form::Ipv6, true, Needs::Nothing),
    define(&["metadata"], &[field::METADATA], Form::Hex, true, Needs::Nothing),
    define(&["in_port"], &[field::IN_PORT], Form::Port, false, Needs::Nothing),
    define(&["dl_vlan"], &[field::VLAN_TCI], Form::Vid, false, Needs::Nothing),
    define(&["vlan_vid"], &[field::VLAN_TCI], Form::PresentVid, true, Needs::Nothing),
    define(&["dl_vlan_pcp", "vlan_pcp"], &[field::VLAN_TCI], Form::Pcp, false, Needs::Nothing),
    define(&["vlan_tci"], &[field::VLAN_TCI], Form::Tci, true, Needs::Nothing),
    define(&["dl_src", "eth_src"], &[field::DL_SRC], Form::Mac, true, Needs::Nothing),
    define(&["dl_dst", "eth_dst"], &[field::DL_DST], Form::Mac, true, Needs::Nothing),
    define(&["dl_type", "eth_type"], &[field::DL_TYPE], Form::Hex, false, Needs::Nothing),
    part(&["mpls_label"], &[field::MPLS_LSE], (12, 20), NUMBER, Needs::Mpls),
    part(&["mpls_tc"], &[field::MPLS_LSE], (9, 3), NUMBER, Needs::Mpls),
    part(&["mpls_bos"], &[field::MPLS_LSE], (8, 1), NUMBER, Needs::Mpls),
    part(&["mpls_ttl"], &[field::MPLS_LSE], (0, 8), NUMBER, Needs::Mpls),
    define(&["arp_spa"], &[field::NW_SRC], Form::Ipv4, true, Needs::Arp),
    define(&["arp_tpa"], &[field::NW_DST], Form::Ipv4, true, Needs::Arp),
    define(&["arp_sha"], &[field::ARP_SHA], Form::Mac, true, Needs::Arp),
    define(&["arp_tha"], &[field::ARP_THA], Form::Mac, true, Needs::Arp),
    define(&["nw_src", "ip_src"], &[field::NW_SRC], Form::Ipv4, true, Needs::Ipv4OrArp),
    define(&["nw_dst", "ip_dst"], &[field::NW_DST], Form::Ipv4, true, Needs::Ipv4OrArp),
    define(&["ipv6_src"], &field::IPV6_SRC, Form::Ipv6, true, Needs::Ipv6),
    define(&["ipv6_dst"], &field::IPV6_DST, Form::Ipv6, true, Needs::Ipv6),
    part(&["ipv6_label"], &[field::IPV6_LABEL], (0, 20), (Form::Hex, true), Needs::Ipv6),
    define(&["nw_proto", "ip_proto"], &[field::NW_PROTO], Form::Number, false, Needs::Ip),
    define(&["arp_op", "nw_proto"], &[field::NW_PROTO], Form::Number, false, Needs::Arp),
    part(&["ip_dscp"], &[field::NW_TOS], (2, 6), NUMBER, Needs::Ip),
    part(&["nw_ecn", "ip_ecn"], &[field::NW_TOS], (0, 2), NUMBER, Needs::Ip),
    define(&["nw_ttl"], &[field::NW_TTL], Form::Number, false, Needs::Ip),
    part(&["ip_frag", "nw_frag"], &[field::NW_FRAG], (0, 2), (Form::Fragment, false), Needs::Ip),
    define(&["icmp_type"], &[field::TP_SRC], Form::Octet, false, Needs::Icmp),
    define(&["icmp_code"], &[field::TP_DST], Form::Octet, false, Needs::Icmp),
    define(&["icmpv6_type", "icmp_type"], &[field::TP_SRC], Form::Octet, false, Needs::Icmpv6),
    define(&["icmpv6_code", "icmp_code"], &[field::TP_DST], Form::Octet, false, Needs::Icmpv6),
    define(&["nd_target"], &field::ND_TARGET, Form::Ipv6, true, Needs::NeighbourDiscovery),
    define(&["nd_sll"], &[field::ARP_SHA], Form::Mac, true, Needs::NeighbourSolicitation),
    define(&["nd_tll"], &[field::ARP_THA], Form::Mac, true, Needs::NeighbourAdvertisement),
    define(&["tp_src"], &[field::TP_SRC], Form::Number, true, Needs::Transport),
    define(&["tp_dst"], &[field::TP_DST], Form::Number, true, Needs::Transport),
    define(&["tcp_src"], &[field::TP_SRC], Form::Number, true, Needs::Tcp),
    define(&["tcp_dst"], &[field::TP_DST], Form::Number, true, Needs::Tcp),
    define(&["udp_src"], &[field::TP_SRC], Form::Number, true, Needs::Udp),
    define(&["udp_dst"], &[field::TP_DST], Form::Number, true, Needs::Udp),
    define(&["sctp_src"], &[field::TP_SRC], Form::Number, true, Needs::Sctp),
    define(&["sctp_dst"], &[field::TP_DST], Form::Number, true, Needs::Sctp),
    part(&["tcp_flags"], &[field::TCP_FLAGS], (0, 12), (Form::TcpFlags, true), Needs::Tcp),
];

/// The fields of the key that rules cannot match, so they are only printed. Open vSwitch numbers
/// inner tags and labels from 1 too.
pub(super) const ONLY_PRINTED: &[Definition] = &[
    define(&["tun_kind"], &[field::TUN_KIND], Form::Number, true, Needs::Nothing),
    define(&["vlan_tpid"], &[field::VLAN_TPID], Form::Hex, true, Needs::Nothing),
    define(&["vlan_tci1"], &[field::VLAN2_TCI], Form::Hex, true, Needs::Nothing),
    define(&["vlan_tpid1"], &[field::VLAN2_TPID], Form::Hex, true, Needs::Nothing),
    define(&["mpls_lse1"], &[field::MPLS_LSE2], Form::Hex, true, Needs::Nothing),
    define(&["mpls_lse2"], &[field::MPLS_LSE3], Form::Hex, true, Needs::Nothing),
    define(&["icmp_id"], &[field::ICMP_ID], Form::Number, true, Needs::Nothing),
];

/// Protocol names: EtherType, and IP protocol where the name implies one. Of two
/// names for the same the first is printed.
pub(super) const PROTOCOLS: &[(&str, u16, Option<u8>)] = &[
    ("tcp", ethertype::IPV4, Some(ip_proto::TCP)),
    ("udp", ethertype::IPV4, Some(ip_proto::UDP)),
    ("sctp", ethertype::IPV4, Some(ip_proto::SCTP)),
    ("icmp", ethertype::IPV4, Some(ip_proto::ICMP)),
    ("ip", ethertype::IPV4, None),
    ("ipv4", ethertype::IPV4, None),
    ("ip4", ethertype::IPV4, None),
    ("tcp6", ethertype::IPV6, Some(ip_proto::TCP)),
    ("udp6", ethertype::IPV6, Some(ip_proto::UDP)),
    ("sctp6", ethertype::IPV6, Some(ip_proto::SCTP)),
    ("icmp6", ethertype::IPV6, Some(ip_proto::ICMPV6)),
    ("ipv6", ethertype::IPV6, None),
    ("arp", ethertype::ARP, None),
    ("rarp", ethertype::RARP, None),
    ("mpls", ethertype::MPLS, None),
    ("mplsm", ethertype::MPLS_MULTICAST, None),
];

/// Flag names of `tcp_flags`, from bit 0 up; those without a name of their own
/// are written by their value in hexadecimal, as in `ovs-ofctl`.
pub(super) const TCP_FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// Prefixes of the names of fields that Open vSwitch has and our keys do not.
pub(super) const FOREIGN: &[&str] = &[
    "actset_output",
    "conj_id",
    "ct_",
    "dp_hash",
    "in_port_oxm",
    "nd_options_type",
    "nd_reserved",
    "nsh_",
    "packet_type",
    "pkt_mark",
    "recirc_id",
    "reg",
    "skb_",
    "tun_",
    "xreg",
    "xxreg",
];
