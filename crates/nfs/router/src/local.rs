//! Packets to the router itself: ARP requests and neighbour solicitations for
//! its addresses, and echo requests, are answered in place; all others are
//! dropped, with an ICMP error where the standards ask for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_packet::checksum::{ChecksumStatus, fill, update_u16, verify};
use thalweg_packet::wire::header_len;
use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6, TCP, UDP};
use thalweg_packet::{Batch, Decapsulate, DropReason, Headers, Lanes, field};

use super::check::ip_length;
use super::forward::{Router, sender_of};
use super::resolve::Resolved;
use super::table::{Mac, NextHop, RouterPort};
use thalweg_nf::Context;
use thalweg_nf::toolkit::icmp_error::IcmpError;

/// TTL or hop limit of answers. Neighbour discovery uses 255 (RFC 4861 §7.1).
const TTL: u8 = 64;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The MAC address of the all-nodes group (RFC 2464 §7).
const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];
/// Bytes of a neighbour advertisement with the target's link-layer address.
const ADVERTISEMENT: usize = 32;

impl Router {
    /// Handles a packet to `to`, an address of the router's `port`.
    pub(super) fn deliver(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        to: IpAddr,
        port: RouterPort,
    ) {
        let headers = *batch.headers(lane);
        let kind = batch.field(lane, field::TP_SRC);
        match (headers.ip_proto, kind) {
            (ICMP, 8) | (ICMPV6, 128) if headers.has_transport(headers.ip_proto) => {
                return self.echo_request(batch, context, lane);
            }
            (ICMPV6, 135) => return self.advertise(batch, context, lane, port),
            (ICMP | ICMPV6 | TCP, _) => {}
            (UDP, _) => {
                self.tell_sender(batch, context, lane, IcmpError::PortUnreachable, Some(to));
            }
            _ => self.tell_sender(batch, context, lane, IcmpError::ProtocolUnreachable, Some(to)),
        }
        context.drop(lane, DropReason::UnsupportedProtocol);
    }

    /// Turns an echo request into its reply (RFC 792, RFC 4443 §4.2) and sends
    /// it by the route to the sender.
    fn echo_request(&mut self, batch: &mut Batch, context: &mut Context<'_>, lane: usize) {
        let headers = *batch.headers(lane);
        match verify(batch.bytes(lane), &headers) {
            ChecksumStatus::Good => {}
            ChecksumStatus::Unchecked => {
                return context.drop(lane, DropReason::UnsupportedProtocol);
            }
            _ => return context.drop(lane, DropReason::BadChecksum),
        }
        let Some((port, to)) = self.way_to(batch, context, lane, sender_of(batch, lane)) else {
            return context.drop(lane, DropReason::Unreachable);
        };
        let mtu = self.shared.ports.get(port).mtu;
        if ip_length(batch.bytes(lane), &headers) > usize::from(mtu) {
            return context.drop(lane, DropReason::TooBig);
        }
        turn_echo(batch.bytes_mut(lane), &headers);
        self.answered += 1;
        context.explain(lane, || "echo request to the router: answered".into());
        match to {
            Resolved::At(mac) => self.leave_by(batch, context, lane, port, mac),
            Resolved::Asked(address) => self.wait(batch, context, lane, port, address),
            Resolved::Never => context.drop(lane, DropReason::Unreachable),
        }
    }

    /// Answers an ARP request (RFC 826) for an address of the router.
    pub(super) fn arp_request(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
    ) {
        let target = Ipv4Addr::from(batch.field(lane, field::NW_DST) as u32);
        let port = match self.view.table.lookup(target.into()) {
            NextHop::Local { port } => port,
            NextHop::Kernel => return context.drop(lane, DropReason::Consumed),
            _ => return context.drop(lane, DropReason::UnsupportedProtocol),
        };
        let own = self.shared.ports.get(port).mac;
        let l3 = batch.headers(lane).l3 as usize;
        let Some(arp) = batch.bytes_mut(lane).get_mut(l3..l3 + 28) else {
            return context.drop(lane, DropReason::Malformed);
        };
        let mut sender = [0; 6];
        sender.copy_from_slice(&arp[8..14]);
        arp.copy_within(8..18, 18);
        arp[7] = 2;
        arp[8..14].copy_from_slice(&own);
        arp[14..18].copy_from_slice(&target.octets());
        let from = [arp[24], arp[25], arp[26], arp[27]];
        self.asked_by(batch.meta.timestamp[lane], port, from.into(), sender);
        self.answered += 1;
        context.explain(lane, || format!("ARP request for {target}: answered"));
        self.leave_by(batch, context, lane, port, sender);
    }

    /// Answers a multicast neighbour solicitation if its target is an address
    /// of the router.
    pub(super) fn solicitation(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
    ) {
        let target = Ipv6Addr::from(batch.key(lane).get128(field::ND_TARGET));
        match self.view.table.lookup(target.into()) {
            NextHop::Local { port } => self.advertise(batch, context, lane, port),
            NextHop::Kernel => context.drop(lane, DropReason::Consumed),
            _ => context.drop(lane, DropReason::NotForwardable),
        }
    }

    /// Turns a neighbour solicitation into the advertisement of `port`
    /// (RFC 4861 §7.2.4).
    fn advertise(
        &mut self,
        batch: &mut Batch,
        context: &mut Context<'_>,
        lane: usize,
        port: RouterPort,
    ) {
        let Some(question) = Question::read(batch, lane) else {
            return context.drop(lane, DropReason::Malformed);
        };
        let own = self.shared.ports.get(port);
        if own.ipv6 != Some(question.target) {
            return context.drop(lane, DropReason::UnsupportedProtocol);
        }
        let l3 = batch.headers(lane).l3 as usize;
        let len = l3 + header_len::IPV6 + ADVERTISEMENT;
        let missing = len.saturating_sub(batch.packet_len(lane));
        if !batch.grow_back(lane, missing) {
            return context.drop(lane, DropReason::NoRoom);
        }
        batch.truncate(lane, len);
        batch.meta.wire_len[lane] = len as u32;
        question.write_answer(&mut batch.bytes_mut(lane)[l3..], own.mac);
        // The checksum needs the new headers.
        batch.parse(Lanes::one(lane), Decapsulate::No);
        let headers = *batch.headers(lane);
        fill(batch.bytes_mut(lane), &headers);
        if let Some(sender) = question.sender {
            self.asked_by(batch.meta.timestamp[lane], port, sender.into(), question.sender_mac);
        }
        self.answered += 1;
        context
            .explain(lane, || format!("neighbour solicitation for {}: answered", question.target));
        self.leave_by(batch, context, lane, port, question.sender_mac);
    }
}

/// The target of a valid neighbour solicitation, and the receiver of its answer.
struct Question {
    target: Ipv6Addr,
    /// The sender, or `None` if it is about to use the address itself
    /// (duplicate address detection).
    sender: Option<Ipv6Addr>,
    sender_mac: Mac,
}

impl Question {
    /// Reads the solicitation in `lane`; `None` if it is not valid by RFC 4861 §7.1.1.
    fn read(batch: &Batch, lane: usize) -> Option<Self> {
        let (bytes, headers, key) = (batch.bytes(lane), batch.headers(lane), batch.key(lane));
        let valid = key.get(field::NW_TTL) == 255
            && key.get(field::TP_DST) == 0
            && verify(bytes, headers) == ChecksumStatus::Good;
        let sender = Ipv6Addr::from(key.get128(field::IPV6_SRC));
        let option = key.get(field::ARP_SHA);
        if !valid || sender.is_multicast() || (sender.is_unspecified() && option != 0) {
            return None;
        }
        let target = Ipv6Addr::from(key.get128(field::ND_TARGET));
        let (sender, sender_mac) = if sender.is_unspecified() {
            (None, ALL_NODES_MAC)
        } else {
            let mac = if option == 0 { key.get(field::DL_SRC) } else { option };
            let [_, _, mac @ ..] = mac.to_be_bytes();
            (Some(sender), mac)
        };
        Some(Self { target, sender, sender_mac })
    }

    /// Writes the answer, without checksum, over `packet`, which already has its length.
    fn write_answer(&self, packet: &mut [u8], mac: Mac) {
        let (header, body) = packet.split_at_mut(header_len::IPV6);
        header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        header[4..8].copy_from_slice(&[0, ADVERTISEMENT as u8, ICMPV6, 255]);
        header[8..24].copy_from_slice(&self.target.octets());
        header[24..].copy_from_slice(&self.sender.unwrap_or(ALL_NODES).octets());
        // Router, solicited (unless it goes to all), override.
        let flags = if self.sender.is_some() { 0xe0 } else { 0xa0 };
        body[..8].copy_from_slice(&[136, 0, 0, 0, flags, 0, 0, 0]);
        body[8..24].copy_from_slice(&self.target.octets());
        body[24..26].copy_from_slice(&[2, 1]);
        body[26..].copy_from_slice(&mac);
    }
}

/// Turns an echo request into a reply. Swapping the addresses does not change checksums.
fn turn_echo(bytes: &mut [u8], headers: &Headers) {
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    let sum_at = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    if headers.is_ipv4() {
        let (src, dst) = bytes[l3 + 12..l3 + 20].split_at_mut(4);
        src.swap_with_slice(dst);
        let (old, protocol) = (u16::from(bytes[l3 + 8]), u16::from(bytes[l3 + 9]));
        let (from, to) = (old << 8 | protocol, u16::from(TTL) << 8 | protocol);
        let sum = update_u16(sum_at(bytes, l3 + 10), from, to);
        bytes[l3 + 8] = TTL;
        bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let (src, dst) = bytes[l3 + 8..l3 + 40].split_at_mut(16);
        src.swap_with_slice(dst);
        bytes[l3 + 7] = TTL;
    }
    let from = sum_at(bytes, l4);
    bytes[l4] = if headers.is_ipv4() { 0 } else { 129 };
    let to = sum_at(bytes, l4);
    let sum = update_u16(sum_at(bytes, l4 + 2), from, to);
    bytes[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
}
