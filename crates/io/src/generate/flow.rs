//! One synthetic flow.

use std::net::IpAddr;

use rand::RngExt;
use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, PSH, SYN};
use thalweg_packet::write::{IcmpEcho, PacketBuilder, TcpSegment};

use super::payload::fill;
use super::spec::{Addresses, Payload, Spec};

/// Bytes of the frame check sequence, which captures leave out.
const FCS: usize = 4;

/// A client and a server that exchange packets.
pub(super) struct Flow {
    client: End,
    server: End,
    tags: Vec<(u16, u16)>,
    talk: Talk,
}

#[derive(Clone, Copy)]
struct End {
    mac: [u8; 6],
    address: IpAddr,
    port: u16,
    /// The next TCP sequence number.
    seq: u32,
    /// The next IPv4 identification.
    id: u16,
}

enum Talk {
    Tcp(Phase),
    Udp,
    Echo { id: u16, seq: u16, reply: bool },
    Sctp,
}

/// The next packet of a TCP connection.
#[derive(Clone, Copy)]
enum Phase {
    Syn,
    SynAck,
    Ack,
    /// Data, with this many more segments.
    Data(u32),
    Fin,
    FinAck,
    LastAck,
}

impl Flow {
    pub(super) fn new(spec: &Spec, addresses: &Addresses, random: &mut impl RngExt) -> Self {
        let version = usize::from(random.random_bool(spec.ipv6));
        let pick = |random: &mut _, subnets: &[super::subnet::Subnet]| {
            let at = RngExt::random_range(random, 0..subnets.len());
            subnets[at].pick(random)
        };
        let client = pick(random, &addresses.clients[version]);
        let server = pick(random, &addresses.servers[version]);
        let port = spec.server_ports[random.random_range(0..spec.server_ports.len())];
        let mut tags = Vec::new();
        if random.random_bool(spec.vlan_share) {
            if random.random_bool(spec.qinq_share) {
                tags.push((ethertype::QINQ, spec.vlans[0]));
            }
            tags.push((ethertype::VLAN, spec.vlans[random.random_range(0..spec.vlans.len())]));
        }
        Self {
            client: End::new(1, client, random.random_range(1024..=u16::MAX), random),
            server: End::new(2, server, port, random),
            tags,
            talk: Talk::new(spec, random),
        }
    }

    /// The flow's next packet, for a frame of `size` bytes, and its payload.
    pub(super) fn next_packet(
        &mut self,
        size: usize,
        filling: Payload,
        random: &mut impl RngExt,
        payload: &mut Vec<u8>,
    ) -> PacketBuilder {
        let wanted = size.saturating_sub(FCS);
        let (to_server, build, data) = self.next(random);
        let (from, to) = if to_server {
            (&mut self.client, self.server)
        } else {
            (&mut self.server, self.client)
        };
        let mut packet = PacketBuilder::new(from.mac, to.mac).ip(from.address, to.address);
        for (tpid, tci) in &self.tags {
            packet = packet.tag(*tpid, *tci);
        }
        from.id = from.id.wrapping_add(1);
        packet = packet.ipv4_id(from.id, true);
        packet = match build {
            Build::Tcp(flags) => packet.tcp(TcpSegment {
                src_port: from.port,
                dst_port: to.port,
                seq: from.seq,
                ack: if flags & ACK == 0 { 0 } else { to.seq },
                flags,
                window: 65535,
            }),
            Build::Udp => packet.udp(from.port, to.port),
            Build::Echo(echo) => packet.echo(echo),
            Build::Sctp => packet.sctp(from.port, to.port),
        };
        let room = wanted.saturating_sub(packet.header_len());
        // A segment that carries data carries at least one byte of it.
        let len = if data { room.max(1) } else { 0 };
        if let Build::Tcp(flags) = build {
            let counts = u32::from(flags & (SYN | FIN) != 0) + len as u32;
            from.seq = from.seq.wrapping_add(counts);
        }
        fill(filling, len, to_server, random, payload);
        packet
    }

    /// Returns the next packet: whether the client sends it, its kind, and whether it has data.
    fn next(&mut self, random: &mut impl RngExt) -> (bool, Build, bool) {
        match &mut self.talk {
            Talk::Udp => (random.random_bool(0.5), Build::Udp, true),
            Talk::Sctp => (random.random_bool(0.5), Build::Sctp, true),
            Talk::Echo { id, seq, reply } => {
                let echo = IcmpEcho { reply: *reply, id: *id, seq: *seq };
                if *reply {
                    *seq = seq.wrapping_add(1);
                }
                *reply = !*reply;
                (!echo.reply, Build::Echo(echo), true)
            }
            Talk::Tcp(phase) => {
                let (to_server, flags, data) = match *phase {
                    Phase::Syn => {
                        // Each connection comes from the next port.
                        self.client.port = self.client.port.wrapping_add(1).max(1024);
                        (true, SYN, false)
                    }
                    Phase::SynAck => (false, SYN | ACK, false),
                    Phase::Ack | Phase::LastAck => (true, ACK, false),
                    Phase::Data(_) => (random.random_bool(0.4), PSH | ACK, true),
                    Phase::Fin => (true, FIN | ACK, false),
                    Phase::FinAck => (false, FIN | ACK, false),
                };
                *phase = match *phase {
                    Phase::Syn => Phase::SynAck,
                    Phase::SynAck => Phase::Ack,
                    Phase::Ack => Phase::Data(random.random_range(4..200)),
                    Phase::Data(0) => Phase::Fin,
                    Phase::Data(n) => Phase::Data(n - 1),
                    Phase::Fin => Phase::FinAck,
                    Phase::FinAck => Phase::LastAck,
                    Phase::LastAck => Phase::Syn,
                };
                (to_server, Build::Tcp(flags), data)
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Build {
    Tcp(u8),
    Udp,
    Echo(IcmpEcho),
    Sctp,
}

impl End {
    fn new(number: u8, address: IpAddr, port: u16, random: &mut impl RngExt) -> Self {
        let (seq, id) = (random.random(), random.random());
        Self { mac: [2, 0, 0, 0, 0, number], address, port, seq, id }
    }
}

impl Talk {
    fn new(spec: &Spec, random: &mut impl RngExt) -> Self {
        let p = spec.protocols;
        let mut at = random.random_range(0.0..p.tcp + p.udp + p.icmp + p.sctp);
        let id = random.random();
        for (weight, talk) in [
            (p.tcp, Self::Tcp(Phase::Syn)),
            (p.udp, Self::Udp),
            (p.icmp, Self::Echo { id, seq: 0, reply: false }),
        ] {
            if at < weight {
                return talk;
            }
            at -= weight;
        }
        Self::Sctp
    }
}
