//! The program at an interface: which packets the kernel keeps, and which go to our sockets.
//!
//! Packets that a host needs to stay reachable are left to its kernel (`pass`), if they are addressed
//! to it: to the addresses that the interface, and those that are made of it, have when the port is
//! opened, also with the tag of one of its VLANs. A packet that is only
//! forwarded never is, so nothing goes around the chain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6, TCP, UDP};

use crate::bpf::{Assembler, If, Instruction, Label, Reg, Size};
use crate::host::Own;

/// What the kernel keeps of the packets that are addressed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Pass {
    /// ARP and neighbor discovery (RFC 826, RFC 4861) for its addresses.
    Neighbors,
    /// Packets of an IP protocol.
    Protocol(u8),
    /// Packets of TCP or UDP (by its number) to a port.
    Port(u8, u16),
    /// Packets of an EtherType, whatever their addresses.
    EtherType(u16),
}

impl Pass {
    /// What a word of the option `pass` names: `arp`, `ssh`, `icmp`, `tcp/179`, `udp/3784`, or
    /// `ether/0x88cc`. `None` if it names nothing.
    pub(super) fn parse(text: &str) -> Option<Vec<Self>> {
        match text {
            "arp" => return Some(vec![Self::Neighbors]),
            "ssh" => return Some(vec![Self::Port(TCP, 22)]),
            "icmp" => return Some(vec![Self::Protocol(ICMP), Self::Protocol(ICMPV6)]),
            _ => {}
        }
        let (kind, number) = text.split_once('/')?;
        match kind {
            "tcp" => Some(vec![Self::Port(TCP, number.parse().ok()?)]),
            "udp" => Some(vec![Self::Port(UDP, number.parse().ok()?)]),
            "ether" => {
                let hex = number.strip_prefix("0x")?;
                let kind = u16::from_str_radix(hex, 16).ok().filter(|kind| *kind >= 0x600)?;
                Some(vec![Self::EtherType(kind)])
            }
            _ => None,
        }
    }
}

/// The most addresses of an interface that are looked at; more would make the program long.
pub(super) const MOST_ADDRESSES: usize = 64;

/// The most VLANs that are looked at.
const MOST_VLANS: usize = 64;

/// Actions of a program (`enum xdp_action`).
pub(super) const KEEP: u32 = 2;

const ETHERNET: u32 = 14;
const CONTEXT: Reg = Reg(6);
const PACKET: Reg = Reg(7);
const END: Reg = Reg(8);
const VALUE: Reg = Reg(3);
const OFFSET: Reg = Reg(4);
const PROTOCOL: Reg = Reg(5);
const SCRATCH: Reg = Reg(2);
const RESULT: Reg = Reg(0);
const FIRST: Reg = Reg(1);
const SECOND: Reg = Reg(2);
const THIRD: Reg = Reg(3);

/// Builds the program.
struct Builder<'a> {
    asm: Assembler,
    pass: &'a [Pass],
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
    vlans: &'a [u16],
    keep: Label,
    take: Label,
}

/// The program that has `pass` kept for what is the kernel's own; other packets go to the socket
/// of their queue in `map`, or are subject to `otherwise` if there is none.
pub(super) fn program(map: u32, pass: &[Pass], own: &Own, otherwise: u32) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    let (keep, take) = (asm.label(), asm.label());
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in own.addresses.iter().take(MOST_ADDRESSES) {
        match address {
            IpAddr::V4(address) => v4.push(*address),
            IpAddr::V6(address) => v6.push(*address),
        }
    }
    let vlans = &own.vlans[..own.vlans.len().min(MOST_VLANS)];
    let mut builder = Builder { asm, pass, v4, v6, vlans, keep, take };
    builder.sort();
    builder.end(map, otherwise);
    builder.asm.finish()
}

impl Builder<'_> {
    fn passes_neighbors(&self) -> bool {
        self.pass.contains(&Pass::Neighbors)
    }

    /// Goes on only if the packet has `len` bytes.
    fn need(&mut self, len: u32) {
        self.asm.copy(SCRATCH, PACKET);
        self.asm.add_number(SCRATCH, len);
        self.asm.jump_if(If::Greater(SCRATCH, END), self.take);
    }

    /// Sorts by EtherType, and then by what is passed.
    fn sort(&mut self) {
        let (arp, ipv4, ipv6) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.copy(CONTEXT, FIRST);
        self.asm.load(Size::Word, PACKET, CONTEXT, 0);
        self.asm.load(Size::Word, END, CONTEXT, 4);
        self.need(ETHERNET);
        self.asm.load(Size::Half, VALUE, PACKET, 12);
        let is = |asm: &mut Assembler, kind: u16, label| {
            asm.jump_if(If::Equals(VALUE, on_wire(kind)), label);
        };
        for pass in self.pass {
            if let Pass::EtherType(kind) = pass {
                is(&mut self.asm, *kind, self.keep);
            }
        }
        self.skip_tag();
        let passes_neighbors = self.pass.contains(&Pass::Neighbors);
        let passes_ip =
            self.pass.iter().any(|pass| matches!(pass, Pass::Protocol(_) | Pass::Port(..)));
        if passes_neighbors && !self.v4.is_empty() {
            is(&mut self.asm, ethertype::ARP, arp);
        }
        if passes_ip && !self.v4.is_empty() {
            is(&mut self.asm, ethertype::IPV4, ipv4);
        }
        if (passes_ip || passes_neighbors) && !self.v6.is_empty() {
            is(&mut self.asm, ethertype::IPV6, ipv6);
        }
        self.asm.jump(self.take);
        self.sort_arp(arp);
        let ports = self.asm.label();
        self.sort_ipv4(ipv4, ports);
        self.sort_ipv6(ipv6, ports);
        self.sort_ports(ports);
    }

    /// Goes past the tag of a VLAN that is the kernel's own, and loads the EtherType after it.
    fn skip_tag(&mut self) {
        const TAG: u32 = 4;
        const NUMBER: u16 = 0xfff;
        if self.vlans.is_empty() {
            return;
        }
        let (tagged, own, untagged) = (self.asm.label(), self.asm.label(), self.asm.label());
        for kind in [ethertype::VLAN, ethertype::QINQ] {
            self.asm.jump_if(If::Equals(VALUE, on_wire(kind)), tagged);
        }
        self.asm.jump(untagged);
        self.asm.place(tagged);
        self.need(ETHERNET + TAG);
        self.asm.load(Size::Half, VALUE, PACKET, ETHERNET as i16);
        self.asm.and(VALUE, on_wire(NUMBER));
        for vlan in self.vlans {
            self.asm.jump_if(If::Equals(VALUE, on_wire(*vlan)), own);
        }
        self.asm.jump(self.take);
        self.asm.place(own);
        self.asm.add_number(PACKET, TAG);
        self.asm.load(Size::Half, VALUE, PACKET, 12);
        self.asm.place(untagged);
    }

    /// ARP is kept if its target is an address of the kernel.
    fn sort_arp(&mut self, arp: Label) {
        const TARGET: u32 = ETHERNET + 24;
        if !self.asm.is_used(arp) {
            return;
        }
        self.asm.place(arp);
        self.need(TARGET + 4);
        self.asm.load(Size::Word, VALUE, PACKET, TARGET as i16);
        self.jump_if_own_v4(self.keep);
        self.asm.jump(self.take);
    }

    /// Jumps if the value is one of the kernel's addresses.
    fn jump_if_own_v4(&mut self, label: Label) {
        for address in &self.v4 {
            self.asm.jump_if(If::Equals(VALUE, u32::from_ne_bytes(address.octets())), label);
        }
    }

    /// Jumps if the 16 bytes at an offset are one of the kernel's addresses.
    fn jump_if_own_v6(&mut self, offset: i16, label: Label) {
        for address in self.v6.clone() {
            let octets = address.octets();
            let differs = self.asm.label();
            for (at, word) in octets.chunks_exact(4).enumerate() {
                let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
                self.asm.load(Size::Word, VALUE, PACKET, offset + 4 * at as i16);
                self.asm.jump_if(If::Differs(VALUE, word), differs);
            }
            self.asm.jump(label);
            self.asm.place(differs);
        }
    }

    /// Loads protocol and destination port of packets to the kernel. Fragments have no ports.
    fn sort_ipv4(&mut self, ipv4: Label, ports: Label) {
        const FRAGMENT: u16 = 0x3fff;
        if !self.asm.is_used(ipv4) {
            return;
        }
        let own = self.asm.label();
        self.asm.place(ipv4);
        self.need(ETHERNET + 20);
        self.asm.load(Size::Word, VALUE, PACKET, (ETHERNET + 16) as i16);
        self.jump_if_own_v4(own);
        self.asm.jump(self.take);
        self.asm.place(own);
        self.asm.load(Size::Half, VALUE, PACKET, (ETHERNET + 6) as i16);
        self.asm.and(VALUE, on_wire(FRAGMENT));
        self.asm.jump_if(If::Differs(VALUE, 0), self.take);
        self.asm.load(Size::Byte, PROTOCOL, PACKET, (ETHERNET + 9) as i16);
        self.asm.load(Size::Byte, OFFSET, PACKET, ETHERNET as i16);
        self.asm.and(OFFSET, 0x0f);
        self.asm.shift_left(OFFSET, 2);
        self.asm.add_number(OFFSET, ETHERNET);
        self.asm.add_register(PACKET, OFFSET);
        self.need(4);
        self.asm.load(Size::Half, VALUE, PACKET, 2);
        self.asm.jump(ports);
    }

    /// The same over IPv6, without extension headers; and neighbor discovery.
    fn sort_ipv6(&mut self, ipv6: Label, ports: Label) {
        const HEADERS: u32 = ETHERNET + 40;
        const TARGET: u32 = HEADERS + 8;
        const SOLICITATION: u32 = 135;
        const ADVERTISEMENT: u32 = 136;
        if !self.asm.is_used(ipv6) {
            return;
        }
        let own = self.asm.label();
        self.asm.place(ipv6);
        self.need(HEADERS + 4);
        self.asm.load(Size::Byte, PROTOCOL, PACKET, (ETHERNET + 6) as i16);
        self.jump_if_own_v6((ETHERNET + 24) as i16, own);
        if self.passes_neighbors() {
            // To a multicast address that several hosts may have: the target counts.
            self.asm.jump_if(If::Differs(PROTOCOL, ICMPV6.into()), self.take);
            self.asm.load(Size::Byte, VALUE, PACKET, HEADERS as i16);
            self.asm.jump_if(If::Differs(VALUE, SOLICITATION), self.take);
            self.need(TARGET + 16);
            self.jump_if_own_v6(TARGET as i16, self.keep);
        }
        self.asm.jump(self.take);
        self.asm.place(own);
        if self.passes_neighbors() {
            let other = self.asm.label();
            self.asm.jump_if(If::Differs(PROTOCOL, ICMPV6.into()), other);
            self.asm.load(Size::Byte, VALUE, PACKET, HEADERS as i16);
            for kind in [SOLICITATION, ADVERTISEMENT] {
                self.asm.jump_if(If::Equals(VALUE, kind), self.keep);
            }
            self.asm.place(other);
        }
        self.asm.load(Size::Half, VALUE, PACKET, (HEADERS + 2) as i16);
        self.asm.jump(ports);
    }

    /// Keeps packets by protocol and port.
    fn sort_ports(&mut self, ports: Label) {
        if !self.asm.is_used(ports) {
            return;
        }
        self.asm.place(ports);
        for pass in self.pass {
            match pass {
                Pass::Protocol(protocol) => {
                    self.asm.jump_if(If::Equals(PROTOCOL, (*protocol).into()), self.keep);
                }
                Pass::Port(protocol, port) => {
                    let other = self.asm.label();
                    self.asm.jump_if(If::Differs(PROTOCOL, (*protocol).into()), other);
                    self.asm.jump_if(If::Equals(VALUE, on_wire(*port)), self.keep);
                    self.asm.place(other);
                }
                Pass::Neighbors | Pass::EtherType(_) => {}
            }
        }
        self.asm.jump(self.take);
    }

    /// Both ends: the socket of the packet's queue, and the kernel.
    fn end(&mut self, map: u32, otherwise: u32) {
        const REDIRECT_MAP: u32 = 51;
        const QUEUE: i16 = 16;
        self.asm.place(self.take);
        self.asm.set_map(FIRST, map);
        self.asm.load(Size::Word, SECOND, CONTEXT, QUEUE);
        self.asm.set(THIRD, otherwise);
        self.asm.call(REDIRECT_MAP);
        self.asm.exit();
        if self.asm.is_used(self.keep) {
            self.asm.place(self.keep);
            self.asm.set(RESULT, KEEP);
            self.asm.exit();
        }
    }
}

/// A number in the byte order of the wire, as a load of 16 bits has it.
fn on_wire(number: u16) -> u32 {
    number.to_be().into()
}
