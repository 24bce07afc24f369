//! Defects of a packet's headers: the events that `decode-event` tests, under Suricata's names.

use thalweg_packet::Headers;
use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::ip_proto::{
    AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ICMP, ICMPV6, ROUTING, SCTP, TCP, UDP,
};

macro_rules! events {
    ($($variant:ident $name:literal,)*) => {
        /// A defect of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Event {
            $($variant,)*
        }

        impl Event {
            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    Ipv4TooSmall "ipv4.pkt_too_small",
    Ipv4HeaderTooSmall "ipv4.hlen_too_small",
    Ipv4LengthBelowHeader "ipv4.iplen_smaller_than_hlen",
    Ipv4Truncated "ipv4.trunc_pkt",
    Ipv4WrongVersion "ipv4.wrong_ip_version",
    Ipv4OptionLength "ipv4.opt_invalid_len",
    Ipv6TooSmall "ipv6.pkt_too_small",
    Ipv6Truncated "ipv6.trunc_pkt",
    Ipv6WrongVersion "ipv6.wrong_ip_version",
    Ipv6TruncatedExtension "ipv6.trunc_exthdr",
    Ipv6SecondFragmentHeader "ipv6.exthdr_dupl_fh",
    Ipv6UselessFragmentHeader "ipv6.exthdr_useless_fh",
    Ipv6SecondHopOptions "ipv6.exthdr_dupl_hh",
    Ipv6SecondRouting "ipv6.exthdr_dupl_rh",
    Ipv6FragmentLength "ipv6.frag_invalid_length",
    Ipv6FragmentTooLarge "ipv6.frag_pkt_too_large",
    Ipv6UnknownDestinationOption "ipv6.dstopts_unknown_opt",
    Ipv6UnknownHopOption "ipv6.hopopts_unknown_opt",
    TcpTooSmall "tcp.pkt_too_small",
    TcpHeaderTooSmall "tcp.hlen_too_small",
    TcpOptionLength "tcp.opt_invalid_len",
    UdpTooSmall "udp.pkt_too_small",
    UdpLength "udp.len_invalid",
    SctpTooSmall "sctp.pkt_too_small",
    Icmpv4TooSmall "icmpv4.pkt_too_small",
    Icmpv6TooSmall "icmpv6.pkt_too_small",
}

/// The events of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Events(u64);

impl Events {
    pub(super) fn contains(self, event: Event) -> bool {
        self.0 & 1 << event as u32 != 0
    }

    fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u32;
    }

    fn add_if(&mut self, wrong: bool, event: Event) {
        if wrong {
            self.add(event);
        }
    }
}

/// The defects of the packet `bytes`, whose network header is of `ether_type`. This parses the
/// headers again, because the packet parser stops at the first defective one.
pub(super) fn find(bytes: &[u8], headers: &Headers, ether_type: u64) -> Events {
    let mut events = Events::default();
    let at = if headers.l3 == 0 { headers.payload } else { headers.l3 };
    let Some(packet) = bytes.get(usize::from(at)..) else { return events };
    match ether_type as u16 {
        ethertype::IPV4 => ipv4(packet, &mut events),
        ethertype::IPV6 => ipv6(packet, &mut events),
        _ => {}
    }
    events
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)))
}

fn ipv4(packet: &[u8], events: &mut Events) {
    let (Some(first), Some(length)) = (packet.first(), number(packet, 2)) else {
        return events.add(Event::Ipv4TooSmall);
    };
    let header = usize::from(first & 15) * 4;
    events.add_if(packet.len() < 20, Event::Ipv4TooSmall);
    events.add_if(first >> 4 != 4, Event::Ipv4WrongVersion);
    events.add_if(header < 20, Event::Ipv4HeaderTooSmall);
    events.add_if(length < header, Event::Ipv4LengthBelowHeader);
    events.add_if(length > packet.len(), Event::Ipv4Truncated);
    let whole = header >= 20 && (header..=packet.len()).contains(&length);
    if !whole || first >> 4 != 4 {
        return;
    }
    events.add_if(!options_fit(&packet[20..header]), Event::Ipv4OptionLength);
    // Only the first fragment contains the upper header.
    let offset = number(packet, 6).unwrap_or(0) << 3 & 0xffff;
    if offset == 0 {
        let more = packet[6] & 0x20 != 0;
        transport(packet[9], &packet[header..length], more, events);
    }
}

/// Whether each option of IPv4 or TCP ends within the option area.
fn options_fit(mut options: &[u8]) -> bool {
    loop {
        match options {
            [] | [0, ..] => return true,
            [1, rest @ ..] => options = rest,
            [_, length, ..] if (2..=options.len()).contains(&usize::from(*length)) => {
                options = &options[usize::from(*length)..];
            }
            _ => return false,
        }
    }
}

fn ipv6(packet: &[u8], events: &mut Events) {
    let Some((header, rest)) = packet.split_at_checked(40) else {
        return events.add(Event::Ipv6TooSmall);
    };
    let length = number(header, 4).unwrap_or(0);
    events.add_if(header[0] >> 4 != 6, Event::Ipv6WrongVersion);
    let Some(mut rest) = rest.get(..length) else {
        return events.add(Event::Ipv6Truncated);
    };
    let (mut next, mut seen, mut more) = (header[6], [0u8; 256], false);
    loop {
        let kind = next;
        if !matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION_OPTIONS) {
            break;
        }
        let size = match (kind, rest) {
            (_, [] | [_]) => 0,
            (FRAGMENT, _) => 8,
            (AH, [_, units, ..]) => (usize::from(*units) + 2) * 4,
            (_, [_, units, ..]) => (usize::from(*units) + 1) * 8,
        };
        if size == 0 || rest.len() < size {
            return events.add(Event::Ipv6TruncatedExtension);
        }
        let (extension, behind) = rest.split_at(size);
        seen[usize::from(kind)] = seen[usize::from(kind)].saturating_add(1);
        let again = seen[usize::from(kind)] > 1;
        match kind {
            FRAGMENT => {
                events.add_if(again, Event::Ipv6SecondFragmentHeader);
                let word = number(extension, 2).unwrap_or(0);
                let offset = word & 0xfff8;
                more = word & 1 != 0;
                events.add_if(offset == 0 && !more, Event::Ipv6UselessFragmentHeader);
                events.add_if(more && behind.len() % 8 != 0, Event::Ipv6FragmentLength);
                let end = offset + behind.len();
                events.add_if(end > usize::from(u16::MAX), Event::Ipv6FragmentTooLarge);
                if offset > 0 {
                    return;
                }
            }
            HOP_BY_HOP => {
                events.add_if(again, Event::Ipv6SecondHopOptions);
                events.add_if(unknown_option(&extension[2..]), Event::Ipv6UnknownHopOption);
            }
            DESTINATION_OPTIONS => {
                events.add_if(unknown_option(&extension[2..]), Event::Ipv6UnknownDestinationOption);
            }
            ROUTING => events.add_if(again, Event::Ipv6SecondRouting),
            _ => {}
        }
        next = extension[0];
        rest = behind;
    }
    // An extension header with no data after it is truncated, too, unless it names no next header.
    events.add_if(
        seen.iter().any(|n| *n > 0) && rest.len() < upper_size(next),
        Event::Ipv6TruncatedExtension,
    );
    transport(next, rest, more, events);
}

/// Whether an IPv6 extension header contains other options than the usual ones.
fn unknown_option(mut options: &[u8]) -> bool {
    loop {
        match options {
            [] => return false,
            [0, rest @ ..] => options = rest,
            // Padding, tunnel limit, router alert, jumbo payload, home address.
            [1 | 4 | 5 | 0xc2 | 0xc9, length, rest @ ..] => {
                options = rest.get(usize::from(*length)..).unwrap_or(&[]);
            }
            _ => return true,
        }
    }
}

/// The minimum size of an upper header.
fn upper_size(protocol: u8) -> usize {
    match protocol {
        TCP => 20,
        UDP => 8,
        ICMPV6 => 4,
        SCTP => 12,
        _ => 0,
    }
}

fn transport(protocol: u8, bytes: &[u8], more: bool, events: &mut Events) {
    let short = bytes.len() < upper_size(protocol);
    match protocol {
        ICMP => events.add_if(bytes.len() < 8, Event::Icmpv4TooSmall),
        TCP if short => events.add(Event::TcpTooSmall),
        TCP => {
            let header = usize::from(bytes[12] >> 4) * 4;
            match bytes.get(20..header) {
                Some(options) => events.add_if(!options_fit(options), Event::TcpOptionLength),
                None => events.add(Event::TcpHeaderTooSmall),
            }
        }
        UDP if short => events.add(Event::UdpTooSmall),
        UDP => {
            let length = number(bytes, 4).unwrap_or(0);
            // In IPv6, a length of 0 denotes a jumbogram.
            let wrong = length < 8 && length > 0 || length > bytes.len() && !more;
            events.add_if(wrong, Event::UdpLength);
        }
        ICMPV6 => events.add_if(short, Event::Icmpv6TooSmall),
        SCTP => events.add_if(short, Event::SctpTooSmall),
        _ => {}
    }
}
