//! NF `tunnel`: encapsulation into, and decapsulation from, VXLAN, Geneve and GRE.
//!
//! A packet from the remote endpoint of a tunnel to the local one is decapsulated. Any other packet
//! is encapsulated into the first tunnel whose pattern it matches, or passes.

mod config;
mod header;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrayvec::ArrayVec;
use thalweg_classify::{Classifier, Config, Lookup, SharedRules};
use thalweg_packet::checksum::{ChecksumStatus, is_ipv4_header_bad, verify};
use thalweg_packet::wire::ethertype::{self, TRANSPARENT_ETHERNET};
use thalweg_packet::wire::header_len;
use thalweg_packet::wire::ip_proto::{GRE, TCP, UDP};
use thalweg_packet::{
    BATCH, Batch, Cut, Decapsulate, DropReason, Field, FlowKey, Headers, Lanes,
    MAX_SUPER_PACKET_LEN, ParseStatus, PortIndex, field, parse,
};

use config::{Options, Tunnel, Tunnels};
use header::{Header, Protocol};
use thalweg_nf::toolkit::outer::{
    Varying, congestion, see_outermost, write_udp, write_udp_of_super,
};
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Section,
};

/// The most bytes of headers that a tunnel adds: Ethernet, IPv6, UDP, and its own.
const MOST_HEADERS: usize = header_len::ETHERNET + header_len::IPV6 + header_len::UDP + 8;

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "tunnel",
    summary: "VXLAN, Geneve and GRE tunnels",
    state: None,
    grain: Grain::None,
    limits: &[
        "65535 tunnels with fixed endpoints: no address learning, no flooding",
        "no Geneve options, no GRE sequence numbers, no path MTU discovery; fragments are dropped",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: Some("packets would leave outside of their tunnel"),
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let tunnels = Arc::new(config::read(section)?);
    let rules = Arc::new(SharedRules::new(tunnels.table.clone()));
    Ok(Box::new(TunnelBlueprint { tunnels, rules }))
}

struct TunnelBlueprint {
    tunnels: Arc<Tunnels>,
    rules: Arc<SharedRules>,
}

impl Blueprint for TunnelBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(TunnelEnds {
            tunnels: self.tunnels.clone(),
            classifier: Classifier::new(self.rules.clone(), Config::default()),
            may_fragment: self.tunnels.all.iter().any(Tunnel::may_be_fragmented),
            ip_id: 0,
            figures: Figures::default(),
        })
    }

    fn describe(&self) -> String {
        thalweg_source::counted(self.tunnels.all.len(), "tunnel")
    }
}

#[derive(Debug, Default)]
struct Figures {
    encapsulated: u64,
    decapsulated: u64,
    passed: u64,
}

/// The local endpoints of all tunnels.
struct TunnelEnds {
    tunnels: Arc<Tunnels>,
    classifier: Classifier,
    /// Whether routers may fragment the packets of any tunnel.
    may_fragment: bool,
    ip_id: u16,
    figures: Figures,
}

impl NetworkFunction for TunnelEnds {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        see_outermost(batch, lanes);
        let tunnels = self.tunnels.clone();
        let mut arrivals: ArrayVec<Arrival<'_>, BATCH> = ArrayVec::new();
        let mut others = Lanes::NONE;
        for lane in lanes {
            let packet = Outside::of(batch, lane);
            match arrival(&tunnels, &packet, lane) {
                Ok(None) => others.insert(lane),
                Ok(Some(arrival)) => arrivals.push(arrival),
                Err(reason) => context.drop(lane, reason),
            }
        }
        if !arrivals.is_empty() {
            self.take_out(batch, &arrivals, context);
        }
        if !others.is_empty() {
            self.put_in(&tunnels, batch, others, context);
        }
    }

    /// One that arrives from a tunnel, or that can be encapsulated: without a tunnel around it, with room
    /// for headers, and TCP unless routers may not fragment the packets of the tunnel.
    fn takes_whole(&self, batch: &Batch, lane: usize) -> bool {
        let (key, headers) = parse(batch.bytes(lane), PortIndex::NONE, Decapsulate::No);
        let bytes = batch.bytes(lane);
        let packet = Outside { key: Key::Parsed(&key), headers, bytes, is_super: true };
        if !matches!(arrival(&self.tunnels, &packet, lane), Ok(None)) {
            return true;
        }
        let has_room = bytes.len() + MOST_HEADERS <= MAX_SUPER_PACKET_LEN;
        let is_bare = batch.meta.inner_len[lane] == 0 && usize::from(headers.end) == bytes.len();
        let is_tcp = headers.has_transport(TCP);
        has_room && is_bare && (is_tcp || !self.may_fragment)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let f = &self.figures;
        vec![
            ("encapsulated", f.encapsulated),
            ("decapsulated", f.decapsulated),
            ("passed", f.passed),
        ]
    }
}

/// A packet that arrives from a tunnel.
struct Arrival<'a> {
    lane: usize,
    tunnel: &'a Tunnel,
    /// Of the outer header.
    tos: u8,
    ether_type: u16,
    /// Where the inner packet begins and ends.
    start: usize,
    end: usize,
}

/// What is seen of a packet from outside of its tunnel.
struct Outside<'a> {
    key: Key<'a>,
    headers: Headers,
    bytes: &'a [u8],
    /// Whether it is a super-packet, whose checksums are unspecified.
    is_super: bool,
}

/// The flow key of a packet: that of a lane is not a value of its own.
#[derive(Clone, Copy)]
enum Key<'a> {
    Parsed(&'a FlowKey),
    InBatch(&'a Batch, usize),
}

impl Key<'_> {
    fn get(self, field: Field) -> u64 {
        match self {
            Self::Parsed(key) => key.get(field),
            Self::InBatch(batch, lane) => batch.field(lane, field),
        }
    }

    fn ipv6(self, field: [Field; 2]) -> IpAddr {
        match self {
            Self::Parsed(key) => Ipv6Addr::from(key.get128(field)).into(),
            Self::InBatch(batch, lane) => Ipv6Addr::from(batch.field128(lane, field)).into(),
        }
    }
}

impl<'a> Outside<'a> {
    fn of(batch: &'a Batch, lane: usize) -> Self {
        let (headers, is_super) = (*batch.headers(lane), batch.is_super(lane));
        Self { key: Key::InBatch(batch, lane), headers, bytes: batch.bytes(lane), is_super }
    }
}

/// The tunnel that the packet of `lane` arrives from, if any.
fn arrival<'a>(
    tunnels: &'a Tunnels,
    packet: &Outside<'_>,
    lane: usize,
) -> Result<Option<Arrival<'a>>, DropReason> {
    let &Outside { key, headers, bytes, is_super } = packet;
    let protocol = headers.ip_proto;
    if !matches!(protocol, UDP | GRE) || !headers.is_ipv4() && !headers.is_ipv6() {
        return Ok(None);
    }
    let (source, destination) = addresses(key, &headers);
    let port = (protocol == UDP).then(|| key.get(field::TP_DST) as u16);
    // Packets that are not from a peer, or to another port, are not parsed further.
    let end = tunnels.ports.get(&(source, destination, port));
    let Some(kind) = end else { return Ok(None) };
    if headers.fragment || headers.status != ParseStatus::Complete {
        return Err(DropReason::Malformed);
    }
    if is_ipv4_header_bad(bytes, &headers) {
        return Err(DropReason::BadChecksum);
    }
    let (at, mut end) = (usize::from(headers.payload), usize::from(headers.end));
    if protocol == UDP {
        if !is_super && verify(bytes, &headers) == ChecksumStatus::BadTransport {
            return Err(DropReason::BadChecksum);
        }
        let l4 = usize::from(headers.l4);
        end = end.min(l4 + usize::from(u16::from_be_bytes([bytes[l4 + 4], bytes[l4 + 5]])));
    }
    let inside = bytes.get(at..end).ok_or(DropReason::Malformed)?;
    let header = match kind {
        Protocol::Vxlan => Header::vxlan(inside)?,
        Protocol::Geneve => Header::geneve(inside)?,
        Protocol::Gre | Protocol::Gretap => Header::gre(inside, is_super)?,
    };
    let Some(tunnel) = tunnels.ends.get(&(source, destination, port, header.id)) else {
        return Ok(None);
    };
    let tunnel = &tunnels.all[*tunnel];
    let ethernet = header.ether_type == TRANSPARENT_ETHERNET;
    let right = match tunnel.protocol {
        Protocol::Vxlan | Protocol::Gretap => ethernet,
        Protocol::Gre => matches!(header.ether_type, ethertype::IPV4 | ethertype::IPV6),
        Protocol::Geneve => {
            ethernet || matches!(header.ether_type, ethertype::IPV4 | ethertype::IPV6)
        }
    };
    if !right {
        return Err(DropReason::UnsupportedProtocol);
    }
    let start = at + header.len;
    if ethernet && start + header_len::ETHERNET > end {
        return Err(DropReason::BadInnerPacket);
    }
    let tos = key.get(field::NW_TOS) as u8;
    Ok(Some(Arrival { lane, tunnel, tos, ether_type: header.ether_type, start, end }))
}

/// Source and destination address of an IP packet.
fn addresses(key: Key<'_>, headers: &Headers) -> (IpAddr, IpAddr) {
    if headers.is_ipv4() {
        let of = |f| Ipv4Addr::from(key.get(f) as u32).into();
        (of(field::NW_SRC), of(field::NW_DST))
    } else {
        (key.ipv6(field::IPV6_SRC), key.ipv6(field::IPV6_DST))
    }
}

impl TunnelEnds {
    /// Decapsulates packets in place.
    fn take_out(&mut self, batch: &mut Batch, arrivals: &[Arrival<'_>], context: &mut Context<'_>) {
        for arrival in arrivals {
            unwrap(batch, arrival);
        }
        batch.parse(arrivals.iter().map(|arrival| arrival.lane).collect(), Decapsulate::No);
        for arrival in arrivals {
            let headers = batch.headers(arrival.lane);
            let told = if headers.is_ipv4() || headers.is_ipv6() {
                congestion(batch, arrival.lane, arrival.tos)
            } else if arrival.ether_type == TRANSPARENT_ETHERNET {
                Ok(())
            } else {
                Err(DropReason::BadInnerPacket)
            };
            context.explain(arrival.lane, || {
                format!("decapsulated from tunnel '{}'", arrival.tunnel.name)
            });
            match told {
                Ok(()) => self.figures.decapsulated += 1,
                Err(reason) => context.drop(arrival.lane, reason),
            }
        }
    }

    /// Encapsulates packets into the tunnels that they match.
    fn put_in(
        &mut self,
        tunnels: &Tunnels,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let (mut found, mut changed) = ([Lookup::default(); BATCH], Lanes::NONE);
        let now = context.clock();
        self.classifier.classify_batch(batch.keys(), lanes, batch.lens(), now, &mut found);
        for lane in lanes {
            let number = usize::from(found[lane].packet_type.0);
            let Some(tunnel) = number.checked_sub(1).and_then(|at| tunnels.all.get(at)) else {
                self.figures.passed += 1;
                context.explain(lane, || "matches no tunnel".into());
                continue;
            };
            // Each segment of a super-packet has a number of its own.
            let first = self.ip_id.wrapping_add(1);
            self.ip_id = self.ip_id.wrapping_add(batch.on_wire(lane).0 as u16);
            match encapsulate(tunnel, batch, lane, first) {
                Ok(()) => {
                    self.figures.encapsulated += 1;
                    context.explain(lane, || format!("encapsulated into tunnel '{}'", tunnel.name));
                    changed.insert(lane);
                }
                Err(reason) => context.drop(lane, reason),
            }
        }
        batch.mark_changed(changed);
    }
}

/// Removes the tunnel headers of a packet.
fn unwrap(batch: &mut Batch, arrival: &Arrival<'_>) {
    let &Arrival { lane, ether_type, start, end, .. } = arrival;
    let l3 = usize::from(batch.headers(lane).l3);
    batch.meta.cut[lane] = Cut::default();
    batch.meta.inner_len[lane] = 0;
    batch.truncate(lane, end);
    if ether_type == TRANSPARENT_ETHERNET {
        batch.shrink_front(lane, start);
    } else {
        // The link header stays.
        let link = start - l3;
        let bytes = batch.bytes_mut(lane);
        bytes.copy_within(..l3, link);
        bytes[start - 2..start].copy_from_slice(&ether_type.to_be_bytes());
        batch.shrink_front(lane, link);
    }
}

/// Encapsulates the packet of `lane` into its tunnel. On an error it is unchanged.
fn encapsulate(
    tunnel: &Tunnel,
    batch: &mut Batch,
    lane: usize,
    ip_id: u16,
) -> Result<(), DropReason> {
    let (headers, is_super) = (*batch.headers(lane), batch.is_super(lane));
    let ip = headers.is_ipv4() || headers.is_ipv6();
    let bare = tunnel.protocol == Protocol::Gre;
    if bare && !ip {
        return Err(DropReason::UnsupportedProtocol);
    }
    if batch.packet_len(lane) < header_len::ETHERNET {
        return Err(DropReason::Malformed);
    }
    // Ethernet frames are encapsulated whole, with padding; for IP in GRE the link header stays.
    let (keep, len) = if bare {
        (usize::from(headers.l3), usize::from(headers.end))
    } else {
        (0, batch.packet_len(lane))
    };
    let link = if bare { keep } else { header_len::ETHERNET };
    let udp = if tunnel.port.is_some() { header_len::UDP } else { 0 };
    let header = tunnel.protocol.header_len(tunnel.id);
    let after_ip = udp + header + len - keep;
    let front = link - keep + tunnel.outer.len() + udp + header;
    let total = u16::try_from(tunnel.outer.len() + after_ip).map_err(|_| DropReason::NoRoom)?;
    let tos = if ip { batch.field(lane, field::NW_TOS) as u8 } else { 0 };
    let entropy = batch.flow_hash(lane) as u16;
    let bytes = batch.reshape(lane, front, front + len).ok_or(DropReason::NoRoom)?;
    if bare {
        bytes.copy_within(front..front + link, 0);
    } else {
        bytes.copy_within(front..front + 12, 0);
    }
    // The destination address comes first.
    for (mac, to) in tunnel.macs.iter().zip([6, 0]) {
        if let Some(mac) = mac {
            bytes[to..to + 6].copy_from_slice(mac);
        }
    }
    let varying = Varying { tos, dont_fragment: tunnel.dont_fragment, id: ip_id };
    let end = link + tunnel.outer.len();
    let after_ip = total - tunnel.outer.len() as u16;
    tunnel.outer.write(&mut bytes[link - 2..end], after_ip, varying);
    let ether_type = match (bare, headers.is_ipv4()) {
        (false, _) => TRANSPARENT_ETHERNET,
        (true, true) => ethertype::IPV4,
        (true, false) => ethertype::IPV6,
    };
    let inside = end + udp;
    tunnel.protocol.write(tunnel.id, ether_type, &mut bytes[inside..inside + header]);
    if let Some(port) = tunnel.port {
        let (before, udp) = bytes.split_at_mut(end);
        // The source port distinguishes flows for ECMP; it is a dynamic port (RFC 6335).
        let (ports, ip) = ([0xc000 | entropy, port], &before[link..]);
        if is_super {
            write_udp_of_super(ports, udp, ip);
        } else {
            write_udp(ports, udp, ip);
        }
    }
    batch.meta.cut[lane] = Cut::default();
    if is_super {
        batch.meta.inner_len[lane] = headers.end - headers.l3;
    }
    Ok(())
}
