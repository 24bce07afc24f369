//! The classic pcap format
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>).

use thalweg_packet::Nanoseconds;

use super::reader::{Fault, MAX_RECORD, Record, damage};
use super::stream::Stream;

const FILE_HEADER: usize = 24;

/// How to read the records of one pcap file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pcap {
    big_endian: bool,
    nanoseconds: bool,
    /// Bytes of a record header: 16, or 24 in Kuznetzov's modified format.
    record_header: usize,
    link_type: u16,
}

impl Pcap {
    /// The variant that the file's first four bytes announce.
    pub(super) fn recognise(magic: [u8; 4]) -> Option<Self> {
        let (big_endian, number) = match u32::from_be_bytes(magic) {
            n @ (0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34) => (true, n),
            _ => (false, u32::from_le_bytes(magic)),
        };
        let (nanoseconds, record_header) = match number {
            0xa1b2_c3d4 => (false, 16),
            0xa1b2_3c4d => (true, 16),
            0xa1b2_cd34 => (false, 24),
            _ => return None,
        };
        Some(Self { big_endian, nanoseconds, record_header, link_type: 0 })
    }

    /// Reads the rest of the file header.
    pub(super) fn header(mut self, stream: &mut Stream) -> Result<Self, Fault> {
        if !stream.fill(FILE_HEADER)? {
            return damage("the file header is cut short");
        }
        let header = stream.peek(FILE_HEADER);
        // The upper bits hold the length of the frame check sequence.
        self.link_type = self.u32(header, 20) as u16;
        stream.consume(FILE_HEADER);
        Ok(self)
    }

    /// The next record.
    pub(super) fn next(&mut self, stream: &mut Stream) -> Result<Option<Record>, Fault> {
        if !stream.fill(self.record_header)? {
            return match stream.ready() {
                0 => Ok(None),
                n => damage(format!("a record header is cut short after {n} bytes")),
            };
        }
        let header = stream.peek(self.record_header);
        let (seconds, fraction) = (self.u32(header, 0), self.u32(header, 4));
        let (len, wire_len) = (self.u32(header, 8) as usize, self.u32(header, 12));
        if len > MAX_RECORD {
            return damage(format!("a record says it holds {len} bytes"));
        }
        let total = self.record_header + len;
        if !stream.fill(total)? {
            let there = stream.ready() - self.record_header;
            return damage(format!("the record of {len} bytes is cut short after {there}"));
        }
        let nanoseconds = u64::from(fraction) * if self.nanoseconds { 1 } else { 1000 };
        Ok(Some(Record {
            before: self.record_header,
            len,
            total,
            wire_len: wire_len.max(len as u32),
            timestamp: Nanoseconds::from_secs(seconds.into()).plus(Nanoseconds(nanoseconds)),
            link_type: self.link_type,
        }))
    }

    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes = bytes[at..at + 4].try_into().unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}
