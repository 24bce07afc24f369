//! Captured packets, and the reader that iterates over them.
//!
//! The formats are read here and not by a library: `pcap-parser` needs a whole
//! block in memory even to skip it, allocates a vector of options for each packet,
//! rejects a packet whose options are damaged, and does not report the offset in
//! the file where it stopped.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_packet::Nanoseconds;

use super::bytes::{Bytes, Fault};
use super::pcap::Pcap;
use super::pcapng::PcapNg;
use crate::port::IoError;

/// The most bytes of one captured packet: libpcap's `MAXIMUM_SNAPLEN`.
/// More is damage.
pub(crate) const MAX_CAPTURED: u32 = 262_144;

/// The position of a captured packet in the reader's window, and its metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Its link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
    pub(crate) link: u32,
    pub(crate) timestamp: Nanoseconds,
    /// Bytes on the wire, never fewer than captured.
    pub(crate) wire_len: u32,
    /// The first captured byte in the window, and the number of captured bytes.
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Bytes of the whole record.
    pub(crate) total: usize,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// Iterates over the records of a capture file of either format.
pub(crate) struct Reader {
    path: PathBuf,
    bytes: Bytes,
    format: Format,
    /// Bytes of the record that was read last; the next read skips them,
    /// so that the record's data stays in the window until then.
    current: usize,
}

impl Reader {
    /// Opens a capture and reads its file header.
    pub(crate) fn open(path: &Path) -> Result<Self, IoError> {
        let file = |source: io::Error| IoError::File { path: path.into(), source };
        let mut bytes = Bytes::open(path).map_err(file)?;
        let format = Self::format(&mut bytes, path)?;
        Ok(Self { path: path.into(), bytes, format, current: 0 })
    }

    fn format(bytes: &mut Bytes, path: &Path) -> Result<Format, IoError> {
        let fault = |fault| in_file(path, fault);
        let first = bytes.ahead(4).map_err(fault)?;
        match first.first_chunk().copied() {
            Some(magic) if Pcap::recognizes(magic) => {
                Pcap::open(bytes).map(Format::Pcap).map_err(fault)
            }
            Some(magic) if PcapNg::recognizes(magic) => {
                PcapNg::open(bytes).map(Format::PcapNg).map_err(fault)
            }
            _ => {
                let found: Vec<String> = first.iter().take(4).map(|b| format!("{b:02x}")).collect();
                let what = if found.is_empty() {
                    "the file is empty; expected a pcap or pcapng capture".into()
                } else {
                    format!("not a pcap or pcapng capture: it begins with {}", found.join(" "))
                };
                Err(IoError::Format { path: path.into(), what })
            }
        }
    }

    /// The next record, `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Record>, IoError> {
        self.bytes.consume(std::mem::take(&mut self.current));
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.bytes),
            Format::PcapNg(pcapng) => pcapng.next(&mut self.bytes),
        };
        let record = record.map_err(|fault| in_file(&self.path, fault))?;
        self.current = record.map_or(0, |record| record.total);
        Ok(record)
    }

    /// Whether reading never waits for a writer.
    pub(crate) fn is_regular(&self) -> bool {
        self.bytes.is_regular()
    }

    /// The captured bytes of the record that was read last.
    pub(crate) fn data(&self, record: &Record) -> &[u8] {
        self.bytes.window().get(record.start..record.start + record.len).unwrap_or_default()
    }

    /// The file being read.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn in_file(path: &Path, fault: Fault) -> IoError {
    match fault {
        Fault::Damaged { offset, what } => IoError::Damaged { path: path.into(), offset, what },
        Fault::Io(source) => IoError::File { path: path.into(), source },
    }
}
