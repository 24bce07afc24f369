//! The program by which the kernel chooses the queue of a packet: of the sockets of one interface, or of a TAP
//! device.
//!
//! All packets of a flow, in both directions, have the same queue: a hash of the addresses, and of the
//! ports of TCP, UDP and SCTP, in which both ends are alike. The kernel's own hash (`PACKET_FANOUT_HASH`)
//! is the one that a network card or another part of the kernel left with the packet, which may differ
//! between directions; and it reassembles fragments only by changing them. Here, fragments are spread by
//! addresses alone. That of TAP devices (`tun_automq`) follows the queue by which the other direction was
//! last sent, so that a flow changes its queue while it lasts, and its packets may overtake each other.
//!
//! It is a classic BPF program, which needs neither a compiler nor privileges beyond those of the socket; a TAP
//! device takes it [translated](crate::bpf::translate). A load beyond the end of
//! the packet ends it with 0, the first queue; so are packets other than IP.

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP,
    BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MEM, BPF_MISC, BPF_MUL, BPF_RET, BPF_RSH,
    BPF_ST, BPF_TAX, BPF_W, BPF_X, BPF_XOR, SKF_AD_OFF, SKF_AD_PROTOCOL, sock_filter,
};
use thalweg_packet::wire::{ethertype, header_len, ip_proto};

/// Words of the program's memory: the offset of the header at hand, the sum of the addresses, that of the
/// ports, and one to work with.
const HEADER: u32 = 0;
const ADDRESSES: u32 = 1;
const PORTS: u32 = 2;
const OTHER: u32 = 3;

/// Extension headers of IPv6 that are passed; of packets with more, ports do not count.
const EXTENSIONS: usize = 3;

/// IPv6 extension headers whose second byte is their length in units of 8 bytes, less one: hop-by-hop
/// options, routing and destination options (RFC 8200).
const PASSED: [u8; 3] = [0, 43, 60];

/// The length of a VLAN tag.
const TAG: u32 = 4;

/// Bits of the IPv4 fragment field that only fragments have: more fragments, and the offset.
const FRAGMENT: u32 = 0x3fff;

/// Odd multipliers, as of MurmurHash3 (32 bits).
const MIX: [u32; 3] = [0xcc9e_2d51, 0x1b87_3593, 0x85eb_ca6b];

/// A place in a program that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// A program under construction. Classic BPF jumps forward only, by up to 255 instructions.
#[derive(Default)]
struct Program {
    code: Vec<sock_filter>,
    /// Jumps: the instruction, whether its condition holds, and where to.
    jumps: Vec<(usize, bool, Label)>,
    /// By label: its place.
    places: Vec<Option<usize>>,
}

impl Program {
    fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The next instruction is at `label`.
    fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    fn add(&mut self, code: u32, k: u32) {
        self.code.push(sock_filter { code: code as u16, jt: 0, jf: 0, k });
    }

    /// Loads `size` at `offset` from the header at hand, which is in X.
    fn load(&mut self, size: u32, offset: u32) {
        self.add(BPF_LD | BPF_IND | size, offset);
    }

    fn store(&mut self, word: u32) {
        self.add(BPF_ST, word);
    }

    fn alu(&mut self, operation: u32, k: u32) {
        self.add(BPF_ALU | operation | BPF_K, k);
    }

    /// `word = word + A`; X is the header at hand before and after it.
    fn add_to(&mut self, word: u32) {
        self.add(BPF_LDX | BPF_MEM, word);
        self.add(BPF_ALU | BPF_ADD | BPF_X, 0);
        self.store(word);
        self.add(BPF_LDX | BPF_MEM, HEADER);
    }

    /// Jumps to `label` if A equals `k`.
    fn jump_if(&mut self, k: u32, label: Label) {
        self.jumps.push((self.code.len(), true, label));
        self.add(BPF_JMP | BPF_JEQ | BPF_K, k);
    }

    /// Jumps to `label` if A has a bit of `k`.
    fn jump_if_any(&mut self, k: u32, label: Label) {
        self.jumps.push((self.code.len(), true, label));
        self.add(BPF_JMP | BPF_JSET | BPF_K, k);
    }

    /// Jumps to `label`.
    fn jump(&mut self, label: Label) {
        for condition in [true, false] {
            self.jumps.push((self.code.len(), condition, label));
        }
        self.add(BPF_JMP | BPF_JEQ | BPF_K, 0);
    }

    fn finish(mut self) -> Vec<sock_filter> {
        for (at, condition, label) in self.jumps {
            let place = self.places[label.0].expect("each label has a place");
            let by = u8::try_from(place - at - 1).expect("the program is short");
            let jump = &mut self.code[at];
            *(if condition { &mut jump.jt } else { &mut jump.jf }) = by;
        }
        self.code
    }
}

/// From where on a program sees a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// From its network header on, and the kernel knows the EtherType after the outermost VLAN tag.
    Network,
    /// From its Ethernet header on. The outermost tag may be where only the kernel has it.
    Ethernet,
}

/// The program: returns a number of 16 bits whose remainder is the queue.
pub(crate) fn program(sight: Sight) -> Vec<sock_filter> {
    let mut p = Program::default();
    let [network, v4, v6, ports, hash] = std::array::from_fn(|_| p.label());
    p.add(BPF_LD | BPF_IMM, 0);
    p.store(ADDRESSES);
    p.store(PORTS);
    // Of two tags, the kernel may have taken the outermost one off.
    let (start, tags) = match sight {
        Sight::Network => (0, 1),
        Sight::Ethernet => (header_len::ETHERNET as u32, 2),
    };
    p.add(BPF_LD | BPF_IMM, start);
    p.store(HEADER);
    p.add(BPF_MISC | BPF_TAX, 0);
    match sight {
        Sight::Network => p.add(BPF_LD | BPF_ABS | BPF_W, (SKF_AD_OFF + SKF_AD_PROTOCOL) as u32),
        Sight::Ethernet => p.add(BPF_LD | BPF_ABS | BPF_H, start - 2),
    }
    for _ in 0..tags {
        skip_tag(&mut p, network);
    }
    p.place(network);
    p.jump_if(ethertype::IPV4.into(), v4);
    p.jump_if(ethertype::IPV6.into(), v6);
    p.add(BPF_RET | BPF_K, 0);
    p.place(v4);
    of_ipv4(&mut p, ports, hash);
    p.place(v6);
    of_ipv6(&mut p, ports, hash);
    p.place(ports);
    // X is the transport header.
    p.load(BPF_H, 0);
    p.store(PORTS);
    p.load(BPF_H, 2);
    p.add(BPF_LDX | BPF_MEM, PORTS);
    p.add(BPF_ALU | BPF_ADD | BPF_X, 0);
    p.store(PORTS);
    p.place(hash);
    p.add(BPF_LD | BPF_MEM, PORTS);
    p.alu(BPF_MUL, MIX[0]);
    p.add(BPF_LDX | BPF_MEM, ADDRESSES);
    p.add(BPF_ALU | BPF_XOR | BPF_X, 0);
    for mix in MIX {
        p.alu(BPF_MUL, mix);
        p.add(BPF_MISC | BPF_TAX, 0);
        p.alu(BPF_RSH, 15);
        p.add(BPF_ALU | BPF_XOR | BPF_X, 0);
    }
    p.alu(BPF_AND, 0xffff);
    p.add(BPF_RET | BPF_A, 0);
    p.finish()
}

/// Goes past the VLAN tag at X if A is its EtherType, and loads the one after it; otherwise jumps to `network`.
fn skip_tag(p: &mut Program, network: Label) {
    let tagged = p.label();
    for tag in ethertype::VLAN_TPIDS {
        p.jump_if(tag.into(), tagged);
    }
    p.jump(network);
    p.place(tagged);
    p.load(BPF_H, 2);
    p.store(OTHER);
    p.add(BPF_LD | BPF_IMM, TAG);
    p.add(BPF_ALU | BPF_ADD | BPF_X, 0);
    p.store(HEADER);
    p.add(BPF_MISC | BPF_TAX, 0);
    p.add(BPF_LD | BPF_MEM, OTHER);
}

/// Jumps to `ports` if A is a protocol with ports.
fn jump_if_ports(p: &mut Program, ports: Label) {
    for protocol in [ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP] {
        p.jump_if(protocol.into(), ports);
    }
}

/// Sums the addresses of IPv4; jumps to `ports` with X at the transport header, or to `hash`.
fn of_ipv4(p: &mut Program, ports: Label, hash: Label) {
    for address in [12, 16] {
        p.load(BPF_W, address);
        p.add_to(ADDRESSES);
    }
    p.load(BPF_H, 6);
    p.jump_if_any(FRAGMENT, hash);
    let transport = p.label();
    p.load(BPF_B, 9);
    jump_if_ports(p, transport);
    p.jump(hash);
    p.place(transport);
    p.load(BPF_B, 0);
    p.alu(BPF_AND, 0xf);
    p.alu(BPF_LSH, 2);
    p.add(BPF_ALU | BPF_ADD | BPF_X, 0);
    p.add(BPF_MISC | BPF_TAX, 0);
    p.jump(ports);
}

/// The same of IPv6.
fn of_ipv6(p: &mut Program, ports: Label, hash: Label) {
    for word in 0..8 {
        p.load(BPF_W, 8 + 4 * word);
        p.add_to(ADDRESSES);
    }
    p.load(BPF_B, 6);
    p.store(OTHER);
    p.add(BPF_LD | BPF_IMM, 40);
    for _ in 0..=EXTENSIONS {
        // A is the length of the header at hand, and `OTHER` has the number of the next one.
        p.add(BPF_ALU | BPF_ADD | BPF_X, 0);
        p.add(BPF_MISC | BPF_TAX, 0);
        p.add(BPF_LD | BPF_MEM, OTHER);
        jump_if_ports(p, ports);
        let extension = p.label();
        for number in PASSED {
            p.jump_if(number.into(), extension);
        }
        p.jump(hash);
        p.place(extension);
        p.load(BPF_B, 0);
        p.store(OTHER);
        p.load(BPF_B, 1);
        p.alu(BPF_ADD, 1);
        p.alu(BPF_LSH, 3);
    }
    p.jump(hash);
}

#[cfg(test)]
mod tests;
