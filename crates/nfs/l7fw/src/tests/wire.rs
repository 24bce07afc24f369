//! TCP connections as packets.

use std::net::IpAddr;

use thalweg_packet::write::{PacketBuilder, TcpSegment};

use super::super::hello::tests::hello;

/// A connection between a client and a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    /// The client: each number has its own addresses.
    pub(super) client: u16,
    pub(super) port: u16,
    pub(super) ipv6: bool,
    pub(super) vlan: Option<u16>,
    /// The numbers of the SYNs.
    pub(super) isn: u32,
}

const SYN: u8 = 2;
const ACK: u8 = 0x10;
const DATA: u8 = 0x18;

impl Wire {
    pub(super) fn new(client: u16) -> Self {
        Self { client, port: 80, ipv6: false, vlan: None, isn: 1000 }
    }

    /// A segment of either end, at an offset in its stream; `seen` is what it acknowledges.
    pub(super) fn segment(
        &self,
        by_client: bool,
        flags: u8,
        (at, seen): (usize, usize),
        payload: &[u8],
    ) -> Vec<u8> {
        let [c0, c1] = self.client.to_be_bytes();
        let (client, server): (IpAddr, IpAddr) = if self.ipv6 {
            let client = std::net::Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(self.client));
            (client.into(), "2001:db8::1".parse().unwrap())
        } else {
            ([10, 9, c0, c1].into(), [192, 0, 2, 1].into())
        };
        let (from, to) = if by_client { (client, server) } else { (server, client) };
        let (src_port, dst_port) =
            if by_client { (40_000, self.port) } else { (self.port, 40_000) };
        let first = self.isn.wrapping_add(u32::from(flags & SYN == 0));
        let segment = TcpSegment {
            src_port,
            dst_port,
            seq: first.wrapping_add(at as u32),
            ack: if flags & ACK == 0 { 0 } else { self.isn.wrapping_add(1 + seen as u32) },
            flags,
            window: 64_240,
        };
        let builder = PacketBuilder::new([2; 6], [4; 6]);
        let builder = self.vlan.map_or(builder.clone(), |vlan| builder.vlan(vlan));
        builder.ip(from, to).tcp(segment).build(payload)
    }

    pub(super) fn handshake(&self) -> Vec<Vec<u8>> {
        vec![
            self.segment(true, SYN, (0, 0), b""),
            self.segment(false, SYN | ACK, (0, 0), b""),
            self.segment(true, ACK, (0, 0), b""),
        ]
    }

    /// A segment of the client's data.
    pub(super) fn data(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        self.segment(true, DATA, (at, 0), bytes)
    }

    /// The client's `bytes` at these places.
    pub(super) fn parts(&self, bytes: &[u8], places: &[(usize, usize)]) -> Vec<Vec<u8>> {
        places.iter().map(|(from, to)| self.data(*from, &bytes[*from..*to])).collect()
    }

    /// What follows a request of `length` bytes: its acknowledgment, an answer and more data.
    pub(super) fn answer(&self, length: usize) -> Vec<Vec<u8>> {
        vec![
            self.segment(false, ACK, (0, length), b""),
            self.segment(
                false,
                DATA,
                (0, length),
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            ),
            self.segment(true, DATA, (length, 40), b"\x17\x03\x03\0\x04more"),
        ]
    }

    /// A whole connection whose client sends these segments of a start of `length` bytes.
    pub(super) fn connection(&self, data: Vec<Vec<u8>>, length: usize) -> Vec<Vec<u8>> {
        [self.handshake(), data, self.answer(length)].concat()
    }
}

pub(super) fn request(host: &str) -> Vec<u8> {
    format!("GET /a/b HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\nUser-Agent: x\r\n\r\n").into()
}

/// A ClientHello as long as those with post-quantum keys, with the host at its end.
pub(super) fn long_hello(host: &str) -> Vec<u8> {
    let short = hello(host);
    let pad = 1216_u16;
    // An extension of that many bytes before the others.
    let at = 5 + 4 + 34 + 33 + 6 + 2 + 2;
    let extension = [&[0, 51][..], &pad.to_be_bytes(), &vec![0x5a; pad.into()]].concat();
    let mut long = [&short[..at], &extension, &short[at..]].concat();
    for place in [3, 7, at - 2] {
        let field = [long[place], long[place + 1]];
        let length = u16::from_be_bytes(field) + pad + 4;
        long[place..place + 2].copy_from_slice(&length.to_be_bytes());
    }
    long
}
