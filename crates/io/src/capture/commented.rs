//! A pcapng file whose packets have comments, as a stream of bytes.

use thalweg_packet::Nanoseconds;

use super::blocks;

/// A packet with a comment.
#[derive(Clone, Copy, Debug)]
pub struct CommentedPacket<'a> {
    /// The name of the interface that received it.
    pub interface: &'a str,
    /// When it was captured.
    pub time: Nanoseconds,
    /// Its bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// Bytes that it had on the wire.
    pub wire_len: u32,
    /// What readers show with it.
    pub comment: &'a str,
    /// Packets between it and the one before it that are not in the file.
    pub missing: u64,
}

/// Builds a pcapng file of commented packets: whole blocks in memory, which the caller
/// [takes](Self::take) and writes.
///
/// Link type Ethernet, timestamps in nanoseconds. An interface is described ahead of its first packet.
#[derive(Debug)]
pub struct CommentedCapture {
    blocks: Vec<u8>,
    /// The names of the interfaces described so far, by number.
    interfaces: Vec<String>,
    last: Nanoseconds,
}

impl Default for CommentedCapture {
    fn default() -> Self {
        let mut blocks = Vec::new();
        blocks::section(&mut blocks);
        Self { blocks, interfaces: Vec::new(), last: Nanoseconds::default() }
    }
}

impl CommentedCapture {
    /// Adds a packet.
    pub fn write(&mut self, packet: &CommentedPacket<'_>) {
        let CommentedPacket { interface, time, bytes, wire_len, comment, missing } = *packet;
        let known = self.interfaces.iter().position(|name| name == interface);
        let number = known.unwrap_or_else(|| {
            self.interfaces.push(interface.to_owned());
            blocks::interface(&mut self.blocks, Some(interface));
            self.interfaces.len() - 1
        });
        self.last = time;
        let wire_len = wire_len.max(bytes.len() as u32);
        let interface = number as u32;
        let packet = blocks::Packet { interface, time, bytes, wire_len, comment, missing };
        blocks::packet(&mut self.blocks, packet);
    }

    /// Adds the number of packets that are not in the file, of all interfaces, as statistics of the
    /// first one, with a comment. Without an interface nothing is added.
    pub fn end(&mut self, missing: u64, comment: &str) {
        if !self.interfaces.is_empty() {
            blocks::statistics(&mut self.blocks, 0, self.last, missing, comment);
        }
    }

    /// The whole blocks that were added since the last call; at first, they begin the file.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.blocks)
    }

    /// The bytes of these blocks.
    pub fn pending(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::record::{Next, Reader};
    use crate::capture::stream::Upkeep;

    /// tshark reads the comments in a test of the program.
    #[test]
    fn our_reader_finds_the_packets_of_all_interfaces() {
        let mut capture = CommentedCapture::default();
        capture.end(7, "without an interface");
        let packets = [("left", 60, 3), ("right", 61, 0), ("left", 62, 0)];
        let mut file = Vec::new();
        for (number, (interface, len, missing)) in packets.into_iter().enumerate() {
            capture.write(&CommentedPacket {
                interface,
                time: Nanoseconds(u64::MAX - 3 + number as u64),
                bytes: &vec![number as u8; len],
                wire_len: 100,
                comment: &"x".repeat(70_000 * number),
                missing,
            });
            assert_eq!(capture.pending() % 4, 0);
            file.extend(capture.take());
        }
        capture.end(3, "3 packets are not in the file");
        file.extend(capture.take());
        let path = tempfile::tempdir().unwrap();
        let path = path.path().join("commented.pcapng");
        std::fs::write(&path, file).unwrap();
        let mut reader = Reader::open(&path, Upkeep::Small).unwrap();
        for (number, (_, len, _)) in packets.into_iter().enumerate() {
            let Ok(Next::Record(record)) = reader.next() else { panic!("packet {number}") };
            assert_eq!((record.len, record.wire_len, record.link), (len, 100, 1));
            assert_eq!(record.timestamp, Nanoseconds(u64::MAX - 3 + number as u64));
        }
        assert!(!matches!(reader.next(), Ok(Next::Record(_))));
    }
}
