//! Resolution of MAC addresses: requests and their answers, by ARP (RFC 826) and neighbour
//! discovery (RFC 4861 §7.2).

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_packet::checksum::{ChecksumStatus, fill, verify};
use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::write::set_ethernet;
use thalweg_packet::{Batch, Decapsulate, DropReason, Lanes, Nanoseconds, PortIndex, field, parse};

use super::config::{Port, is_station};
use super::forward::Router;
use super::neighbors::{Held, Known, Neighbor, Neighbors};
use super::table::{Mac, NextHop, RouterPort};
use thalweg_nf::Context;

/// The interval at which the router looks for neighbours to request again.
const PERIOD: Nanoseconds = Nanoseconds(250_000_000);
/// The most requests that it then sends.
const MOST_AGAIN: usize = 8;
const BROADCAST: Mac = [0xff; 6];

/// The resolver of a router.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    /// Whether any port resolves MAC addresses.
    asks: bool,
    pub(super) neighbors: Neighbors,
    next_look: Nanoseconds,
    /// Packets whose neighbour has answered, ready to leave.
    ready: VecDeque<Held>,
    pub(super) requests: u64,
    pub(super) resumed: u64,
}

impl Resolver {
    pub(super) fn new(asks: bool) -> Self {
        Self { asks, ..Self::default() }
    }
}

/// The destination of packets to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    At(Mac),
    /// They wait: a request has been sent.
    Asked(IpAddr),
    /// Nowhere: the port does not resolve, or the neighbour does not answer.
    Never,
}

impl Router {
    /// Before a batch: repeats requests that are due.
    pub(super) fn look_after_neighbors(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let Some(lane) = lanes.into_iter().next().filter(|_| self.resolver.asks) else { return };
        let now = context.clock();
        // The second test: the clock was set back.
        if now >= self.resolver.next_look || now.plus(PERIOD) < self.resolver.next_look {
            self.resolver.next_look = now.plus(PERIOD);
            let due = self.resolver.neighbors.due(now, MOST_AGAIN);
            due.into_iter().for_each(|neighbor| self.ask(batch, context, lane, neighbor));
        }
        self.resume(batch, context, lane);
    }

    /// The destination of packets to `address` on the link of `port`; sends a request if necessary.
    pub(super) fn resolve(
        &mut self,
        batch: &Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
        address: IpAddr,
    ) -> Resolved {
        let on = self.shared.ports.get(port);
        let neighbor = Neighbor(port, address);
        let kernel = || self.view.neighbors.get(&neighbor).copied();
        let known = on.static_neighbor(address).or_else(kernel).or(on.default_mac);
        if let Some(mac) = known {
            return Resolved::At(mac);
        }
        if !on.asks_for(address) {
            return Resolved::Never;
        }
        let now = batch.meta.timestamp[lane];
        let (known, ask) = self.resolver.neighbors.find(neighbor, now);
        if ask {
            self.ask(batch, context, lane, neighbor);
        }
        match known {
            Known::At(mac) => Resolved::At(mac),
            Known::Asked => Resolved::Asked(address),
            Known::Silent => Resolved::Never,
        }
    }

    /// Sends a request for a neighbour's MAC address. If there is no frame for it, it counts as one
    /// without an answer.
    fn ask(
        &mut self,
        batch: &Batch,
        context: &mut Context<'_>,
        lane: usize,
        Neighbor(port, address): Neighbor,
    ) {
        let on = self.shared.ports.get(port);
        let request = match address {
            IpAddr::V4(target) => on.ip.map(|own| arp_request(on, own, target)),
            IpAddr::V6(target) => on.ipv6.map(|own| solicitation(on, own, target)),
        };
        let Some(made) = request.and_then(|request| context.emit(batch, lane, &request)) else {
            return;
        };
        context.emitted().batch_of(made).meta.out_port[made.lane] = on.output;
        self.resolver.requests += 1;
        context.explain(lane, || format!("requests the MAC address of {address} on {}", on.name));
    }

    /// Keeps a copy of the packet of `lane`, which is ready to leave by `port`, until `address`
    /// has answered.
    pub(super) fn wait(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
        address: IpAddr,
    ) {
        let on = self.shared.ports.get(port);
        let headers = *batch.headers(lane);
        set_ethernet(batch.bytes_mut(lane), &headers, BROADCAST, on.mac);
        let held = Held {
            bytes: batch.bytes(lane).to_vec(),
            wire_len: batch.meta.wire_len[lane],
            packet_type: batch.meta.packet_type[lane],
            in_port: batch.meta.in_port[lane],
            out_port: on.output,
            received_at: batch.meta.received_at[lane],
            segment_size: batch.meta.segment_size[lane],
            inner_len: batch.meta.inner_len[lane],
        };
        let waits = self.resolver.neighbors.hold(Neighbor(port, address), held);
        context.explain(lane, || {
            let how = if waits { "waits" } else { "no room to wait" };
            format!("{how} for an answer from {address}")
        });
        context.drop(lane, DropReason::Unresolved);
    }

    /// Handles an ARP reply.
    pub(super) fn arp_reply(&mut self, batch: &Batch, context: &mut Context<'_>, lane: usize) {
        let address = |field| IpAddr::V4((batch.field(lane, field) as u32).into());
        let mac = mac_in(batch.field(lane, field::ARP_SHA));
        let to = (address(field::NW_SRC), address(field::NW_DST));
        self.answered_by(batch, context, lane, to, mac);
    }

    /// Handles a neighbour advertisement (RFC 4861 §7.1.2).
    pub(super) fn advertisement(&mut self, batch: &Batch, context: &mut Context<'_>, lane: usize) {
        let (bytes, headers, key) = (batch.bytes(lane), batch.headers(lane), batch.key(lane));
        if key.get(field::TP_DST) != 0 || verify(bytes, headers) != ChecksumStatus::Good {
            return context.drop(lane, DropReason::Malformed);
        }
        let address = |field| IpAddr::V6(key.get128(field).into());
        let to = (address(field::ND_TARGET), address(field::IPV6_DST));
        self.answered_by(batch, context, lane, to, mac_in(key.get(field::ARP_THA)));
    }

    /// Records that `neighbor` answered the router's address `own` from `mac`.
    fn answered_by(
        &mut self,
        batch: &Batch,
        context: &mut Context<'_>,
        lane: usize,
        (neighbor, own): (IpAddr, IpAddr),
        mac: Option<Mac>,
    ) {
        let Some(port) = self.shared.ports.with_address(own) else {
            return context.drop(lane, DropReason::UnsupportedProtocol);
        };
        let (Some(mac), true) = (mac, self.shared.ports.get(port).asks_for(neighbor)) else {
            return context.drop(lane, DropReason::UnsupportedProtocol);
        };
        let now = batch.meta.timestamp[lane];
        let held = self.resolver.neighbors.answer(Neighbor(port, neighbor), mac, now);
        self.release(held, mac);
        context.explain(lane, || format!("{neighbor} answered"));
        context.drop(lane, DropReason::Consumed);
    }

    /// Records that `neighbor` requested the MAC address of the router's `port`, from `mac`, at `now`.
    pub(super) fn asked_by(
        &mut self,
        now: Nanoseconds,
        port: RouterPort,
        neighbor: IpAddr,
        mac: Mac,
    ) {
        let on = self.shared.ports.get(port);
        // Only hosts that a direct route of the port covers are neighbours, whatever they claim.
        let is_there = !neighbor.is_unspecified()
            && self.view.table.lookup(neighbor) == NextHop::Direct { port };
        if is_there && on.asks_for(neighbor) && on.neighbor(neighbor).is_none() && is_station(mac) {
            let held = self.resolver.neighbors.request(Neighbor(port, neighbor), mac, now);
            self.release(held, mac);
        }
    }

    /// Sends the packets on that wait for neighbours which the kernel has resolved meanwhile.
    pub(super) fn meet_neighbors(&mut self) {
        let known = self.view.neighbors.clone();
        for (mac, held) in self.resolver.neighbors.met(|neighbor| known.get(neighbor).copied()) {
            self.release(held, mac);
        }
    }

    fn release(&mut self, held: impl IntoIterator<Item = Held>, mac: Mac) {
        for mut packet in held {
            packet.bytes[..6].copy_from_slice(&mac);
            self.resolver.ready.push_back(packet);
        }
    }

    /// Sends the packets whose neighbours have answered, as far as there are frames.
    pub(super) fn resume(&mut self, batch: &Batch, context: &mut Context<'_>, lane: usize) {
        while let Some(packet) = self.resolver.ready.front() {
            let made = context.emit_again(batch, lane, &packet.bytes, packet.segment_size);
            let Some(made) = made else { return };
            let (meta, new) = (&mut context.emitted().batch_of(made).meta, made.lane);
            meta.wire_len[new] = packet.wire_len;
            meta.inner_len[new] = packet.inner_len;
            meta.packet_type[new] = packet.packet_type;
            meta.in_port[new] = packet.in_port;
            meta.out_port[new] = packet.out_port;
            meta.received_at[new] = packet.received_at;
            self.resolver.ready.pop_front();
            self.resolver.resumed += 1;
        }
    }
}

/// The MAC address in a field, if it is unicast.
fn mac_in(field: u64) -> Option<Mac> {
    let [_, _, mac @ ..] = field.to_be_bytes();
    Some(mac).filter(|mac| is_station(*mac))
}

/// An ARP request from `on` (RFC 826).
fn arp_request(on: &Port, own: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let (arp, ip) = (ethertype::ARP.to_be_bytes(), ethertype::IPV4.to_be_bytes());
    let (own, target) = (own.octets(), target.octets());
    [&BROADCAST[..], &on.mac, &arp, &[0, 1], &ip, &[6, 4, 0, 1], &on.mac, &own, &[0; 6], &target]
        .concat()
}

/// A neighbour solicitation from `on` to the solicited-node multicast group of the target
/// (RFC 4861 §4.3, RFC 4291 §2.7.1, RFC 2464 §7).
fn solicitation(on: &Port, own: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    const GROUP: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    let group = (GROUP | target.to_bits() & 0xff_ffff).to_be_bytes();
    let to: Mac = [0x33, 0x33, group[12], group[13], group[14], group[15]];
    let [t0, t1] = ethertype::IPV6.to_be_bytes();
    let ip = [t0, t1, 0x60, 0, 0, 0, 0, 32, ip_proto::ICMPV6, 255];
    let (own, target) = (own.octets(), target.octets());
    let icmp = [135, 0, 0, 0, 0, 0, 0, 0];
    let parts = [&to[..], &on.mac, &ip, &own, &group, &icmp, &target, &[1, 1]];
    let mut packet = [&parts.concat()[..], &on.mac].concat();
    let (_, headers) = parse(&packet, PortIndex::NONE, Decapsulate::No);
    fill(&mut packet, &headers);
    packet
}
