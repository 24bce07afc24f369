//! Extracts from packets what they reveal about hosts.

use std::net::{IpAddr, Ipv4Addr};

use arrayvec::ArrayVec;
use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::ip_proto::{ICMPV6, TCP, UDP};
use thalweg_packet::wire::tcp_flags::{ACK, SYN};
use thalweg_packet::{BATCH, Batch, FiveTuple, Headers, Lanes, Layer, Nanoseconds, field};

use super::attributes::{Attributes, clip};
use super::dhcp::Request;
use super::fingerprint::{Fingerprints, Fit, Handshake};
use super::handshake::Features;
use super::host::{Basis, Evidence, HostId, Role, System};
use super::table::{Conversations, Hosts, Limits, PAYLOADS, Watched};
use super::text::{Said, Text};
use super::{dns, networks::Networks};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::Slot;
use thalweg_nf::toolkit::view::{payload, vlan};

/// Shorter payloads are not inspected.
const LEAST: usize = 4;
/// The number of bytes of a payload that are inspected.
const DEPTH: usize = 1024;
/// The least time between two updates of a host that keeps sending.
const NOTED: Nanoseconds = Nanoseconds(1_000_000_000);

/// The counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) handshakes: u64,
    pub(super) handshakes_unknown: u64,
    pub(super) texts: u64,
    pub(super) texts_unknown: u64,
    pub(super) hardware_changes: u64,
}

/// Inspects packets and records what they reveal.
pub(super) struct Watcher {
    pub(super) hosts: Hosts,
    pub(super) conversations: Conversations,
    pub(super) figures: Figures,
    networks: Networks,
    most_services: usize,
}

/// The current packet, TCP or UDP.
struct Segment<'a> {
    vlan: u16,
    tuple: FiveTuple,
    /// The slot in which its conversation was found.
    slot: Option<Slot>,
    now: Nanoseconds,
    by_client: bool,
    payload: &'a [u8],
}

impl Segment<'_> {
    fn server_port(&self) -> u16 {
        if self.by_client { self.tuple.dst_port } else { self.tuple.src_port }
    }

    fn sender(&self) -> HostId {
        HostId::new(self.vlan, self.tuple.src)
    }

    fn role(&self) -> Role {
        if self.by_client { Role::Client } else { Role::Server }
    }
}

impl Watcher {
    pub(super) fn new(limits: Limits, networks: Networks) -> Self {
        Self {
            hosts: Hosts::new(limits),
            conversations: Conversations::new(limits.conversations),
            figures: Figures::default(),
            networks,
            most_services: limits.services,
        }
    }

    /// The most services per host.
    pub(super) fn most_services(&self) -> usize {
        self.most_services
    }

    /// Records what the packets in `lanes` reveal.
    pub(super) fn batch(&mut self, known: &Fingerprints, batch: &Batch, lanes: Lanes) {
        let slots = self.find(batch, lanes);
        for lane in lanes {
            self.packet(known, batch, lane, slots[lane], batch.meta.timestamp[lane]);
        }
    }

    /// The slots of the conversations of a batch.
    fn find(&mut self, batch: &Batch, lanes: Lanes) -> [Option<Slot>; BATCH] {
        let id = |lane| {
            let headers = batch.headers(lane);
            let has_ports = headers.has_transport(TCP) || headers.has_transport(UDP);
            has_ports.then(|| Conversation::in_lane(batch, lane)).flatten()
        };
        let ids: ArrayVec<(usize, Conversation), BATCH> =
            lanes.into_iter().filter_map(|lane| Some((lane, id(lane)?.0))).collect();
        let found = self.conversations.find(ids.iter().map(|(_, id)| *id));
        let mut slots = [None; BATCH];
        ids.iter().enumerate().for_each(|(n, (lane, _))| slots[*lane] = found.slot(n));
        slots
    }

    /// Records what the packet in `lane` reveals; its conversation was found in `slot`, if at all.
    fn packet(
        &mut self,
        known: &Fingerprints,
        batch: &Batch,
        lane: usize,
        slot: Option<Slot>,
        now: Nanoseconds,
    ) {
        let headers = batch.headers(lane);
        if headers.layer < Layer::Network {
            return;
        }
        let vlan = vlan(batch, lane);
        let Some(tuple) = FiveTuple::of(batch, lane) else {
            self.arp(batch, lane, vlan, now);
            return;
        };
        let sender = self.is_host(tuple.src).then(|| HostId::new(vlan, tuple.src));
        if headers.has_transport(TCP) || headers.has_transport(UDP) {
            let payload = payload(batch, lane);
            let segment = Segment { vlan, tuple, slot, now, by_client: true, payload };
            self.transport(known, segment, batch, lane, sender.is_some());
            return;
        }
        if let Some(sender) = sender {
            self.hosts.touch(sender, now);
        }
        if headers.has_transport(ICMPV6) {
            self.neighbour(batch, lane, vlan, now);
        }
    }

    /// Whether an address is that of a host to record.
    fn is_host(&self, address: IpAddr) -> bool {
        let is_one = match address {
            IpAddr::V4(v4) => {
                !v4.is_unspecified() && !v4.is_multicast() && v4 != Ipv4Addr::BROADCAST
            }
            IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
        };
        is_one && self.networks.contain(address)
    }

    /// Records the network card of the sender of an ARP message.
    fn arp(&mut self, batch: &Batch, lane: usize, vlan: u16, now: Nanoseconds) {
        if batch.field(lane, field::DL_TYPE) == u64::from(ethertype::ARP) {
            let address = Ipv4Addr::from(batch.field(lane, field::NW_SRC) as u32);
            self.hardware(vlan, address.into(), batch.field(lane, field::ARP_SHA), now);
        }
    }

    /// Records the network card in neighbour solicitations and advertisements (RFC 4861).
    fn neighbour(&mut self, batch: &Batch, lane: usize, vlan: u16, now: Nanoseconds) {
        const SOLICITATION: u64 = 135;
        const ADVERTISEMENT: u64 = 136;
        let address = |place| IpAddr::from(batch.field128(lane, place).to_be_bytes());
        match batch.field(lane, field::TP_SRC) {
            SOLICITATION => {
                let source = address(field::IPV6_SRC);
                self.hardware(vlan, source, batch.field(lane, field::ARP_SHA), now);
            }
            ADVERTISEMENT => {
                let target = address(field::ND_TARGET);
                self.hardware(vlan, target, batch.field(lane, field::ARP_THA), now);
            }
            _ => {}
        }
    }

    fn hardware(&mut self, vlan: u16, address: IpAddr, card: u64, now: Nanoseconds) {
        let [_, _, card @ ..] = card.to_be_bytes();
        // A group address is not the address of a card.
        if card == [0; 6] || card[0] & 1 != 0 || !self.is_host(address) {
            return;
        }
        let changed = self.hosts.change(HostId::new(vlan, address), now, |h| h.has_hardware(card));
        self.figures.hardware_changes += u64::from(changed);
    }

    fn transport(
        &mut self,
        known: &Fingerprints,
        mut segment: Segment<'_>,
        batch: &Batch,
        lane: usize,
        sender_is_host: bool,
    ) {
        let headers = batch.headers(lane);
        let flags = if segment.tuple.protocol == TCP {
            batch.field(lane, field::TCP_FLAGS) as u8 & (SYN | ACK)
        } else {
            0
        };
        let (id, from_low) = Conversation::of(&segment.tuple);
        let fresh = || {
            let (by_client, is_sure) = begins(known, &segment.tuple, flags);
            Watched {
                client_is_low: by_client == from_low,
                is_sure,
                client_mss: 0,
                left: [PAYLOADS; 2],
                noted: [None; 2],
                last: segment.now,
            }
        };
        let Some((slot, watched)) = self.conversations.entry(segment.slot, id, fresh) else {
            return;
        };
        watched.last = watched.last.follow(segment.now);
        if flags == SYN | ACK && !watched.is_sure {
            // The host that answers a SYN is the server, no matter which side was seen first.
            (watched.client_is_low, watched.is_sure) = (!from_low, true);
            watched.left = [PAYLOADS; 2];
        }
        segment.by_client = from_low == watched.client_is_low;
        let side = usize::from(!segment.by_client);
        let features = match flags {
            0 | ACK => None,
            _ => features(batch.bytes(lane), headers),
        };
        let peer_mss = watched.client_mss;
        if let (Some(features), SYN) = (&features, flags) {
            watched.client_mss = features.mss;
        }
        let is_due = watched.noted[side].is_none_or(|t| segment.now.since(t) >= NOTED);
        if is_due {
            watched.noted[side] = Some(segment.now);
        }
        // A super-packet has the payloads of several.
        let size = match batch.meta.segment_size[lane] {
            0 => usize::MAX,
            size => size.into(),
        };
        for payload in segment.payload.chunks(size).filter(|payload| payload.len() >= LEAST) {
            segment.payload = payload;
            if !self.inspect(known, &segment, slot, sender_is_host) {
                break;
            }
        }
        if !sender_is_host {
            return;
        }
        if let Some(features) = features {
            let kind = if flags == SYN { Handshake::Syn } else { Handshake::SynAck };
            self.handshake(known, &segment, kind, &features, peer_mss);
        } else if is_due {
            self.hosts.touch(segment.sender(), segment.now);
        }
    }

    /// Inspects a payload of the conversation in `slot`, if this side of it needs more inspection; returns whether it
    /// may need still more.
    fn inspect(
        &mut self,
        known: &Fingerprints,
        segment: &Segment<'_>,
        slot: Slot,
        is_host: bool,
    ) -> bool {
        let side = usize::from(!segment.by_client);
        let left = self.conversations.at_mut(slot).map_or(0, |watched| watched.left[side]);
        if left == 0 {
            return false;
        }
        let after = if self.look(known, segment, is_host) { 0 } else { left - 1 };
        if let Some(watched) = self.conversations.at_mut(slot) {
            watched.left[side] = after;
        }
        after > 0
    }

    /// Records the system that a SYN or SYN-ACK reveals, and the server that a SYN-ACK reveals.
    fn handshake(
        &mut self,
        known: &Fingerprints,
        segment: &Segment<'_>,
        kind: Handshake,
        features: &Features,
        peer_mss: u16,
    ) {
        self.figures.handshakes += 1;
        let found = known.handshake(kind, features, peer_mss);
        self.figures.handshakes_unknown += u64::from(found.is_none());
        let by = if kind == Handshake::Syn { Evidence::Syn } else { Evidence::SynAck };
        let notation = features.notation();
        self.hosts.change(segment.sender(), segment.now, |host| {
            host.distance = Some(features.initial_ttl() - features.ttl);
            host.mtu = features.mtu().or(host.mtu);
            if let Some(system) = host.system(by, clip(&notation)) {
                system.seen += 1;
                system.last = segment.now;
            } else {
                let (says, fit) = found
                    .map_or((Attributes::default(), Fit::Exact), |(says, fit)| (says.clone(), fit));
                let fuzzy = fit == Fit::Fuzzy;
                let signature = clip(&notation).to_owned();
                host.add_system(System { by, signature, says, fuzzy, seen: 1, last: segment.now });
            }
        });
        if kind == Handshake::SynAck {
            self.service(known, segment, Basis::Nothing, Attributes::default());
        }
    }

    /// Inspects a payload; returns whether this side of the conversation needs no more inspection.
    fn look(&mut self, known: &Fingerprints, segment: &Segment<'_>, is_host: bool) -> bool {
        let Segment { tuple, by_client, payload, .. } = segment;
        let payload = &payload[..payload.len().min(DEPTH)];
        if tuple.protocol == UDP && self.infrastructure(known, segment) {
            return false;
        }
        if !is_host {
            return true;
        }
        let (said, raw) = match (tuple.protocol, by_client) {
            (TCP, true) => (Said::by_client(payload), Text::TcpClient),
            (TCP, false) => (Said::by_server(payload, tuple.src_port), Text::TcpServer),
            _ => (Said::by_datagram(payload), Text::Udp),
        };
        let text = said.as_ref().and_then(|said| said.text);
        let by_text = text.and_then(|(kind, text)| known.text(kind, text));
        let says = by_text.or_else(|| known.text(raw, payload));
        self.figures.texts += u64::from(text.is_some());
        self.figures.texts_unknown += u64::from(text.is_some() && says.is_none());
        let done = says.is_some();
        let (basis, mut says) = match (says, &said) {
            (Some(says), _) => (Basis::Pattern, says),
            (None, Some(_)) => (Basis::Protocol, Attributes::default()),
            (None, None) => (Basis::Nothing, Attributes::default()),
        };
        if let Some(said) = &said
            && says.get("service.name").is_none()
        {
            says.set("service.name", said.service);
        }
        if let (Some((_, text)), Basis::Protocol) = (text, basis) {
            // A text that matches no pattern is still informative to a reader of the inventory.
            says.set("service.banner", &String::from_utf8_lossy(text));
        }
        // An unanswered datagram reveals a service of its sender only if its protocol is known.
        let is_named = || known.port(tuple.protocol, segment.server_port()).is_some();
        if tuple.protocol == TCP || !by_client || basis > Basis::Nothing || is_named() {
            self.service(known, segment, basis, says);
        }
        done
    }

    /// Records that the sender offers or uses a service.
    fn service(
        &mut self,
        known: &Fingerprints,
        segment: &Segment<'_>,
        basis: Basis,
        says: Attributes,
    ) {
        let (protocol, port) = (segment.tuple.protocol, segment.server_port());
        let most = self.most_services;
        let one_went = self.hosts.change(segment.sender(), segment.now, |host| {
            let key = (protocol, port, segment.role());
            let (service, one_went) = host.service(key, segment.now, most);
            service.learn(basis, says);
            if service.basis == Basis::Nothing
                && let Some(name) = known.port(protocol, port)
            {
                service.learn(Basis::Port, [("service.name", name)].into_iter().collect());
            }
            one_went
        });
        self.hosts.services_evicted += u64::from(one_went);
    }

    /// Inspects DHCP and DNS, which reveal more than a service; returns whether it was DHCP.
    fn infrastructure(&mut self, known: &Fingerprints, segment: &Segment<'_>) -> bool {
        match (segment.tuple.src_port, segment.tuple.dst_port) {
            (67 | 68, 67 | 68) => {
                if let Some(request) = Request::read(segment.payload) {
                    self.dhcp(known, segment, &request);
                }
                true
            }
            (53 | 5353, _) if self.is_host(segment.tuple.src) => {
                if let Some((kind, text)) = dns::text(segment.payload)
                    && let Some(says) = known.text(kind, text.as_bytes())
                {
                    self.service(known, segment, Basis::Pattern, says);
                }
                false
            }
            _ => false,
        }
    }

    fn dhcp(&mut self, known: &Fingerprints, segment: &Segment<'_>, request: &Request<'_>) {
        let Some(address) = request.address.filter(|a| self.is_host((*a).into())) else { return };
        let host = HostId::new(segment.vlan, address.into());
        let (card, now) = (request.hardware, segment.now);
        if request.is_reply {
            // The client has the address that a server acknowledges.
            const ACKNOWLEDGED: u8 = 5;
            if request.message == ACKNOWLEDGED && card != [0; 6] {
                let changed = self.hosts.change(host, now, |h| h.has_hardware(card));
                self.figures.hardware_changes += u64::from(changed);
            }
            if self.is_host(segment.tuple.src) {
                let by_server = Segment { by_client: false, ..*segment };
                self.service(known, &by_server, Basis::Nothing, Attributes::default());
            }
            return;
        }
        let parameters: Vec<_> = request.parameters.iter().map(u8::to_string).collect();
        let signature = parameters.join(",");
        let says = known.dhcp(request);
        let changed = self.hosts.change(host, now, |host| {
            if let Some(name) = request.host_name {
                host.name = Some(clip(&String::from_utf8_lossy(name)).to_owned());
            }
            if let Some(system) = host.system(Evidence::Dhcp, clip(&signature)) {
                system.seen += 1;
                system.last = now;
            } else if !signature.is_empty() {
                let (by, signature) = (Evidence::Dhcp, clip(&signature).to_owned());
                let says = says.unwrap_or_default();
                host.add_system(System { by, signature, says, fuzzy: false, seen: 1, last: now });
            }
            card != [0; 6] && host.has_hardware(card)
        });
        self.figures.hardware_changes += u64::from(changed);
    }
}

/// Whether the client sent a conversation's first packet, and whether that is certain.
fn begins(known: &Fingerprints, tuple: &FiveTuple, flags: u8) -> (bool, bool) {
    match flags {
        SYN => (true, true),
        _ if flags == SYN | ACK => (false, true),
        // Seen from the middle, or connectionless: the server has the known port.
        _ => {
            let rank = |port: u16| (known.port(tuple.protocol, port).is_some(), port < 1024);
            (rank(tuple.src_port) <= rank(tuple.dst_port), false)
        }
    }
}

fn features(bytes: &[u8], headers: &Headers) -> Option<Features> {
    let ip = bytes.get(headers.l3 as usize..headers.end as usize)?;
    Features::of(ip, headers.l4.checked_sub(headers.l3)? as usize)
}
