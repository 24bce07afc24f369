//! Records of a pcap file
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html>).

use thalweg_packet::Nanoseconds;

use super::bytes::{Bytes, Fault};
use super::order::ByteOrder;
use super::record::{MAX_CAPTURED, Record};

const FILE_HEADER_LEN: usize = 24;

/// A pcap file of one of its dialects.
#[derive(Clone, Debug)]
pub(crate) struct Pcap {
    order: ByteOrder,
    /// Nanoseconds per unit of a record's fraction of a second.
    unit: u64,
    record_header_len: usize,
    /// Before version 2.3 the two lengths of a record were in the opposite order; 2.3 was written
    /// in both.
    minor: u16,
    link: u32,
}

impl Pcap {
    /// The dialect of a file that begins with `magic`, if it is pcap.
    fn dialect(magic: [u8; 4]) -> Option<(ByteOrder, u64, usize)> {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            match order.u32(&magic, 0) {
                0xa1b2_c3d4 => return Some((order, 1000, 16)),
                0xa1b2_3c4d => return Some((order, 1, 16)),
                // Alexey Kuznetzov's, with eight more bytes in each record header.
                0xa1b2_cd34 => return Some((order, 1000, 24)),
                _ => {}
            }
        }
        None
    }

    /// Whether a file that begins with `magic` is pcap.
    pub(crate) fn recognizes(magic: [u8; 4]) -> bool {
        Self::dialect(magic).is_some()
    }

    /// Reads the file header.
    pub(crate) fn open(bytes: &mut Bytes) -> Result<Self, Fault> {
        let header = bytes.ahead(FILE_HEADER_LEN)?;
        let dialect = header.first_chunk().and_then(|magic| Self::dialect(*magic));
        let (Some((order, unit, record_header_len)), true) =
            (dialect, header.len() >= FILE_HEADER_LEN)
        else {
            return Err(Fault::Damaged { offset: 0, what: "the file header is truncated".into() });
        };
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != 2 {
            let what = format!("unknown pcap version {major}.{minor}; expected 2.x");
            return Err(Fault::Damaged { offset: 4, what });
        }
        // The upper bits describe frame check sequences.
        let link = order.u32(header, 20) & 0x03ff_ffff;
        bytes.consume(FILE_HEADER_LEN);
        Ok(Self { order, unit, record_header_len, minor, link })
    }

    /// The next record, `None` at the end of the file.
    #[inline]
    pub(crate) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Record>, Fault> {
        let offset = bytes.offset();
        let damaged = |what: String| Err(Fault::Damaged { offset, what });
        let header_len = self.record_header_len;
        let header = bytes.ahead(header_len)?;
        match header.len() {
            0 => return Ok(None),
            n if n < header_len => return damaged("the record header is truncated".into()),
            _ => {}
        }
        let record = match self.record(header) {
            Ok(record) => record,
            Err(what) => return damaged(what),
        };
        let there = bytes.ahead(record.total)?.len();
        if there < record.total {
            return damaged(truncated(there - header_len, record.len));
        }
        Ok(Some(record))
    }

    /// Bytes of the header of each record.
    pub(super) fn header_len(&self) -> usize {
        self.record_header_len
    }

    /// The record with this header, which is whole.
    ///
    /// # Errors
    /// What is damaged in it.
    #[inline]
    pub(super) fn record(&self, header: &[u8]) -> Result<Record, String> {
        let word = |at| self.order.u32(header, at);
        let (seconds, fraction) = (word(0), word(4));
        let (mut captured, mut original) = (word(8), word(12));
        if self.minor < 3 || self.minor == 3 && captured > original {
            std::mem::swap(&mut captured, &mut original);
        }
        if captured > MAX_CAPTURED {
            return Err(format!(
                "a record of {captured} bytes is longer than the maximum, {MAX_CAPTURED}"
            ));
        }
        let timestamp = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit;
        Ok(Record {
            link: self.link,
            timestamp: Nanoseconds(timestamp),
            wire_len: original.max(captured),
            start: self.record_header_len,
            len: captured as usize,
            total: self.record_header_len + captured as usize,
        })
    }
}

/// Describes a record that is truncated: the file has `there` of its `captured` bytes.
pub(super) fn truncated(there: usize, captured: usize) -> String {
    format!("the record is truncated: {there} of {captured} bytes")
}
