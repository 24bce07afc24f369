//! Packets of attackers: built to fill tables, to hold up work, or to be read otherwise than their
//! receiver reads them. Each is well formed unless its form is the attack.

use std::io::Write;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use rand::RngExt;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};
use thalweg_packet::wire::{header_len, ip_proto};
use thalweg_packet::write::{IcmpEcho, PacketBuilder, TcpSegment};
use thalweg_packet::{Decapsulate, PortIndex, checksum, parse};

use super::spec::{Addresses, Spec};
use super::subnet::Subnet;

const PSH_ACK: u8 = PSH | ACK;

/// Connections whose segments conflict; as many as a state table may hold.
const CONNECTIONS: u32 = 1 << 16;
/// The most bytes of a packet, so that it is not a jumbo frame.
const MOST: usize = 1400;

/// Kinds of attack.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// A SYN from a random client and port.
    SynFlood,
    /// A datagram of a flow without other packets.
    RandomFlow,
    /// A fragment of a packet that is never completed; sometimes it overlaps others.
    Fragment,
    /// A segment far ahead, over others, or of a connection that was never opened.
    Segment,
    /// The beginning of a request that never ends.
    EndlessRequest,
    /// A response whose body is far larger than its bytes on the wire.
    Bomb,
    /// A DNS query for a random name, or for a name that points to itself.
    Query,
    /// A forged RST or FIN of a connection.
    ForgedEnd,
    /// ESP without an association, or with a sequence number far ahead.
    Esp,
    /// Echo requests, and errors about packets that were never sent.
    Icmp,
}

const ATTACKS: [Attack; 10] = [
    Attack::SynFlood,
    Attack::RandomFlow,
    Attack::Fragment,
    Attack::Segment,
    Attack::EndlessRequest,
    Attack::Bomb,
    Attack::Query,
    Attack::ForgedEnd,
    Attack::Esp,
    Attack::Icmp,
];

/// Zeros, compressed twice: a few hundred bytes that decompress to millions.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let compress = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let _ = encoder.write_all(bytes);
        encoder.finish().unwrap_or_default()
    };
    compress(&compress(&[0; 4 << 20]))
});

/// Prepares what all attacks share, so that the first of them does not wait for it.
pub(super) fn prepare() {
    LazyLock::force(&BOMB);
}

/// Writes a hostile packet into `packet`.
pub(super) fn attack(
    spec: &Spec,
    addresses: &Addresses,
    random: &mut impl RngExt,
    packet: &mut Vec<u8>,
) {
    let attack = ATTACKS[random.random_range(0..ATTACKS.len())];
    let version = usize::from(random.random_bool(spec.ipv6));
    let mut pick = |subnets: &[Subnet]| {
        let at = random.random_range(0..subnets.len());
        subnets[at].pick(random)
    };
    let (client, server) = (pick(&addresses.clients[version]), pick(&addresses.servers[version]));
    let port = spec.server_ports[random.random_range(0..spec.server_ports.len())];
    let to_server = PacketBuilder::new([2; 6], [4; 6]).ip(client, server);
    let to_client = PacketBuilder::new([4; 6], [2; 6]).ip(server, client);
    let any_port = random.random_range(1..=u16::MAX);
    let mut noise = vec![0; random.random_range(0..MOST)];
    random.fill(&mut noise[..]);
    match attack {
        Attack::SynFlood => {
            tcp(to_server, any_port, port, random.random(), SYN).build_into(&[], packet);
        }
        Attack::RandomFlow => {
            to_server.udp(any_port, random.random()).build_into(&noise, packet);
        }
        Attack::Fragment => {
            to_server.udp(any_port, port).build_into(&noise, packet);
            cut(packet, random);
        }
        Attack::Segment => {
            let (from, sequence) = connection(random);
            let flags = if random.random_bool(0.2) { SYN } else { PSH_ACK };
            tcp(to_server, from, port, sequence, flags).build_into(&noise, packet);
        }
        Attack::EndlessRequest => {
            let (from, sequence) = connection(random);
            let head = [b"GET /".as_slice(), &[b'a'; 700], b" HTTP/1.1\r\nX: "].concat();
            tcp(to_server, from, 80, sequence, PSH_ACK).build_into(&head, packet);
        }
        Attack::Bomb => {
            let (to, sequence) = connection(random);
            let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: \
                4294967295\r\n\r\n";
            tcp(to_client, 80, to, sequence, PSH_ACK)
                .build_into(&[&head[..], &BOMB].concat(), packet);
        }
        Attack::Query => {
            let header = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            let name: &[u8] =
                if random.random_bool(0.5) { b"\xc0\x0c" } else { &noise[..noise.len().min(60)] };
            let length = [name.len() as u8];
            to_server.udp(any_port, 53).build_into(&[&header[..], &length, name].concat(), packet);
        }
        Attack::ForgedEnd => {
            let (from, sequence) = connection(random);
            let flags = if random.random_bool(0.5) { RST } else { FIN | ACK };
            tcp(to_server, from, port, sequence, flags).build_into(&[], packet);
        }
        Attack::Esp => to_server.protocol(ip_proto::ESP).build_into(&noise, packet),
        Attack::Icmp if random.random_bool(0.5) => {
            let echo = IcmpEcho {
                id: random.random(),
                seq: random.random(),
                reply: random.random_bool(0.5),
            };
            to_server.echo(echo).build_into(&noise, packet);
        }
        Attack::Icmp => {
            // "Fragmentation needed" about a datagram of noise.
            let protocol = if version == 0 { ip_proto::ICMP } else { ip_proto::ICMPV6 };
            let kind = if version == 0 { [3, 4] } else { [2, 0] };
            let mut inner = Vec::new();
            to_client.udp(port, any_port).build_into(&noise[..noise.len().min(64)], &mut inner);
            let error = [&kind[..], &[0, 0, 0, 0, 2, 0], &inner[header_len::ETHERNET..]].concat();
            to_server.protocol(protocol).build_into(&error, packet);
        }
    }
}

fn tcp(builder: PacketBuilder, from: u16, to: u16, sequence: u32, flags: u8) -> PacketBuilder {
    let ack = u32::from(flags & ACK != 0);
    builder.tcp(TcpSegment { src_port: from, dst_port: to, seq: sequence, ack, flags, window: 99 })
}

/// A connection's port, and a sequence number within a window larger than the data sent in it.
fn connection(random: &mut impl RngExt) -> (u16, u32) {
    let port = random.random_range(0..CONNECTIONS) as u16;
    let first = u32::from(port).wrapping_mul(0x9e37_79b1);
    (port.max(1), first.wrapping_add(random.random_range(0..1 << 17)))
}

/// Turns an IPv4 `packet` into a fragment; other packets stay unchanged.
fn cut(packet: &mut [u8], random: &mut impl RngExt) {
    let (_, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
    let l3 = usize::from(headers.l3);
    if !headers.is_ipv4() {
        return;
    }
    let offset: u16 = if random.random_bool(0.3) { 0 } else { random.random_range(0..0x1fff) };
    let more = if random.random_bool(0.8) { 0x2000 } else { 0 };
    packet[l3 + 6..l3 + 8].copy_from_slice(&(more | offset).to_be_bytes());
    checksum::fill_ipv4(packet, &headers);
}
