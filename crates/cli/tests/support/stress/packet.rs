//! Numbered packets: what is sent, and what has to be in a packet that arrives.

use super::random::Random;

/// Packet types, by destination port.
pub const TYPES: usize = 4;
/// Flows; flow `n` is of type `n` modulo their number.
pub const FLOWS: usize = 24;

/// The content that the NF `ids` searches.
pub const CONTENT: &str = "to be dropped";

/// The longest payload.
const LONGEST: usize = 1200;
/// The shortest one: numbers, and the content.
const SHORTEST: usize = HEAD + CONTENT.len();
/// The flow and the number.
const HEAD: usize = 8;
/// The headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

pub fn source_port(flow: usize) -> u16 {
    20_000 + flow as u16
}

pub fn type_of(flow: usize) -> usize {
    flow % TYPES
}

/// What distinguishes a packet for NFs that drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    None,
    /// It has the content.
    Content,
    /// It has a DSCP of low priority.
    Low,
}

/// A packet, by what makes its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub flow: usize,
    /// In its flow, from 0.
    pub number: u32,
    pub mark: Mark,
    /// Bytes of payload.
    len: usize,
}

impl Packet {
    pub fn random(random: &mut Random, flow: usize, number: u32) -> Self {
        let mark = match random.below(16) {
            0 => Mark::Content,
            1 => Mark::Low,
            _ => Mark::None,
        };
        let most = if random.once_in(8) { LONGEST } else { 150 };
        Self { flow, number, mark, len: SHORTEST + random.below(most - SHORTEST) }
    }

    /// One that no NF drops.
    pub fn kept(random: &mut Random, flow: usize, number: u32) -> Self {
        Self { mark: Mark::None, ..Self::random(random, flow, number) }
    }

    fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.len);
        payload.extend((self.flow as u32).to_be_bytes());
        payload.extend(self.number.to_be_bytes());
        let mut filler = Random::part(self.flow as u64, self.number.into());
        while payload.len() < self.len {
            // No letters, so that no content arises.
            payload.extend(filler.next().to_be_bytes().map(|byte| byte | 0x80));
        }
        payload.truncate(self.len);
        if self.mark == Mark::Content {
            let at = HEAD + filler.below(self.len - SHORTEST + 1);
            payload[at..at + CONTENT.len()].copy_from_slice(CONTENT.as_bytes());
        }
        payload
    }

    /// The packet as an Ethernet frame with this last byte of its destination MAC address.
    pub fn bytes(&self, mac: u8) -> Vec<u8> {
        let payload = self.payload();
        let mut bytes = vec![2, 0, 0, 0, 0, mac, 2, 0, 0, 0, 0, 0x0e, 8, 0];
        let len = (HEADERS - 14 + payload.len()) as u16;
        let tos = if self.mark == Mark::Low { 32 } else { 0 };
        let mut ip = vec![0x45, tos, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 17, 0, 0];
        ip.extend([10, 0, 0, self.flow as u8, 198, 51, 100, self.flow as u8]);
        let sum = thalweg_packet::checksum::checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(ip);
        let ports = [source_port(self.flow), 7000 + type_of(self.flow) as u16];
        // Without a checksum.
        for word in [ports[0], ports[1], len - 20, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(payload);
        bytes
    }

    /// Whether `bytes` are this packet, and the last byte of their destination MAC address: all of it but
    /// link addresses, hop limit and checksum is as it was.
    pub fn check(&self, bytes: &[u8]) -> Result<u8, String> {
        let mac = bytes[5];
        let (mut sent, mut found) = (self.bytes(mac), bytes.to_vec());
        for bytes in [&mut sent, &mut found] {
            bytes[6..12].fill(0);
            bytes[22] = 0;
            bytes[24..26].fill(0);
        }
        if sent == found { Ok(mac) } else { Err(format!("{self:?} arrived as {bytes:02x?}")) }
    }

    /// The flow and the number that a packet claims to have; `None` if it is not clear, or too short.
    pub fn claimed(bytes: &[u8]) -> Option<(usize, u32)> {
        let is_clear = bytes.len() >= HEADERS + HEAD && bytes[12..15] == [8, 0, 0x45];
        let head = bytes.get(HEADERS..).filter(|_| is_clear && bytes[23] == 17)?;
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_be_bytes).ok();
        let flow = word(0)? as usize;
        (flow < FLOWS).then_some((flow, word(4)?))
    }
}
