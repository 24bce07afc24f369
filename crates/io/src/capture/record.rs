//! Captured packets, and the reader that iterates over them.
//!
//! The formats are read here and not by a library: `pcap-parser` needs a whole
//! block in memory even to skip it, allocates a vector of options for each packet,
//! rejects a packet whose options are damaged, and does not report the offset in
//! the file where it stopped.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use thalweg_packet::Nanoseconds;

use super::bytes::{Bytes, Fault};
use super::link::Converted;
use super::pcap::Pcap;
use super::pcapng::PcapNg;
use super::read_ahead::ReadAhead;
use super::stream::{Stream, Upkeep};
use crate::claims::Shared;
use crate::intake::Arrival;
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

impl Record {
    /// Whether the capture holds less of the packet than was on the wire.
    #[inline]
    pub(super) fn is_truncated(&self) -> bool {
        (self.len as u64) < u64::from(self.wire_len)
    }

    /// The packet, whose captured bytes are `data`, as Ethernet.
    #[inline]
    pub(super) fn arrival<'a>(&self, converted: &'a Converted, data: &'a [u8]) -> Arrival<'a> {
        Arrival {
            header: converted.header(),
            rest: converted.rest(data),
            wire_len: converted.wire_len(self.wire_len),
            timestamp: self.timestamp,
        }
    }

    /// Whether it is laid out as `other`: its packet begins at the same place of it, and both are as long.
    pub(super) fn has_layout_of(&self, other: &Self) -> bool {
        (self.link, self.start, self.len, self.total)
            == (other.link, other.start, other.len, other.total)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// What follows in a capture.
pub(crate) enum Next {
    Record(Record),
    /// Nothing whole yet: the capture is a pipe, and its writer is slower.
    Later,
    End,
}

/// Iterates over the records of a capture file of either format.
pub(crate) struct Reader {
    path: PathBuf,
    bytes: Bytes,
    /// `None` until the file header has arrived.
    format: Option<Format>,
    /// Bytes of the record that was read last; the next read skips them,
    /// so that the record's data stays in the window until then.
    current: usize,
    /// What follows the record that was read last, if that was looked up.
    ahead: Option<Result<Next, IoError>>,
    /// The captured bytes of the record that was read last, once the window has moved past them.
    aside: Vec<u8>,
    /// Whether it is damaged, or cannot be read, from here on.
    has_failed: bool,
}

impl Reader {
    /// Opens a capture and reads its file header, unless it is a pipe.
    pub(crate) fn open(path: &Path, upkeep: Upkeep) -> Result<Self, IoError> {
        let file = |source: io::Error| IoError::File { path: path.into(), source };
        let bytes = Bytes::open(path, upkeep).map_err(file)?;
        let mut reader = Self::over(path.into(), bytes);
        if reader.descriptor().is_none() {
            reader.read_header()?;
        }
        Ok(reader)
    }

    /// Reads a capture as its bytes arrive; errors name it as `path`.
    pub(super) fn arriving(path: PathBuf, stream: Stream) -> Self {
        Self::over(path, Bytes::over(stream, Upkeep::Full))
    }

    fn over(path: PathBuf, bytes: Bytes) -> Self {
        Self {
            path,
            bytes,
            format: None,
            current: 0,
            ahead: None,
            aside: Vec::new(),
            has_failed: false,
        }
    }

    /// Reads the file header; returns whether it has arrived.
    fn read_header(&mut self) -> Result<bool, IoError> {
        if self.format.is_some() {
            return Ok(true);
        }
        let failure = match Self::format(&mut self.bytes) {
            Ok(Ok(format)) => {
                self.format = Some(format);
                return Ok(true);
            }
            Ok(Err(what)) => IoError::Format { path: self.path.clone(), what },
            Err(fault) if fault.is_wait() => return Ok(false),
            Err(fault) => in_file(&self.path, fault),
        };
        self.has_failed = true;
        Err(failure)
    }

    /// The format, or what was found instead of one.
    pub(super) fn format(bytes: &mut Bytes) -> Result<Result<Format, String>, Fault> {
        let first = bytes.ahead(4)?;
        match first.first_chunk().copied() {
            Some(magic) if Pcap::recognizes(magic) => Ok(Ok(Format::Pcap(Pcap::open(bytes)?))),
            Some(magic) if PcapNg::recognizes(magic) => {
                Ok(Ok(Format::PcapNg(PcapNg::open(bytes)?)))
            }
            _ => {
                let found: Vec<String> = first.iter().take(4).map(|b| format!("{b:02x}")).collect();
                let what = if found.is_empty() {
                    "the file is empty; expected a pcap or pcapng capture".into()
                } else {
                    format!("not a pcap or pcapng capture: it begins with {}", found.join(" "))
                };
                Ok(Err(what))
            }
        }
    }

    /// The next record. An error is returned once, and then the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Next, IoError> {
        match self.ahead.take() {
            None | Some(Ok(Next::Later)) => self.advance(),
            Some(ahead) => ahead,
        }
    }

    /// The time of the record after `last`, which was read last and whose data stays available;
    /// `None` if there is none, or none yet.
    pub(crate) fn following(&mut self, last: &Record) -> Option<Nanoseconds> {
        if self.ahead.is_none() {
            let mut aside = std::mem::take(&mut self.aside);
            aside.clear();
            aside.extend_from_slice(self.data(last));
            self.aside = aside;
        }
        if matches!(self.ahead, None | Some(Ok(Next::Later))) {
            self.ahead = Some(self.advance());
        }
        match self.ahead {
            Some(Ok(Next::Record(record))) => Some(record.timestamp),
            _ => None,
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<Next, IoError> {
        if self.has_failed {
            return Ok(Next::End);
        }
        if self.format.is_none() && !self.read_header()? {
            return Ok(Next::Later);
        }
        self.bytes.consume(std::mem::take(&mut self.current));
        let record = match &mut self.format {
            Some(Format::Pcap(pcap)) => pcap.next(&mut self.bytes),
            Some(Format::PcapNg(pcapng)) => pcapng.next(&mut self.bytes),
            None => Ok(None),
        };
        match record {
            Ok(Some(record)) => {
                self.current = record.total;
                Ok(Next::Record(record))
            }
            Ok(None) => Ok(Next::End),
            Err(fault) if fault.is_wait() => Ok(Next::Later),
            Err(fault) => {
                self.has_failed = true;
                Err(in_file(&self.path, fault))
            }
        }
    }

    /// The file, if it is one whose next bytes may come later: a pipe, a socket or a terminal.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bytes.descriptor()
    }

    /// The share of the file that was read.
    pub(crate) fn share(&self) -> Option<f64> {
        self.bytes.share()
    }

    /// The captured bytes of the record that was read last.
    pub(crate) fn data(&self, record: &Record) -> &[u8] {
        if self.ahead.is_some() {
            return &self.aside;
        }
        self.bytes.window().get(record.start..record.start + record.len).unwrap_or_default()
    }

    /// The same bytes in a buffer that stays unchanged while it is shared, if they lie in one.
    pub(crate) fn shared(&self, record: &Record) -> Option<Shared<'_>> {
        if self.ahead.is_some() {
            return None;
        }
        let Shared { buffer, start } = self.bytes.shared()?;
        Some(Shared { buffer, start: start + record.start })
    }

    /// Reads the file from here on in blocks of `len` bytes, which are shared, if it can.
    pub(crate) fn share_blocks(&mut self, len: usize) {
        self.bytes.share_blocks(len);
    }

    /// A part of the file that another thread may read.
    pub(crate) fn read_ahead(&mut self) -> Option<ReadAhead> {
        self.bytes.read_ahead()
    }

    /// The format and the compression, once the file header has arrived.
    pub(crate) fn form(&self) -> Option<String> {
        let format = match self.format.as_ref()? {
            Format::Pcap(_) => "pcap",
            Format::PcapNg(_) => "pcapng",
        };
        let compression = if self.bytes.is_compressed() { ", gzip" } else { "" };
        Some(format!("{format}{compression}"))
    }

    /// The file being read.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The fault of the file at `path`.
pub(super) fn in_file(path: &Path, fault: Fault) -> IoError {
    match fault {
        Fault::Damaged { offset, what } => IoError::Damaged { path: path.into(), offset, what },
        Fault::Io(source) => IoError::File { path: path.into(), source },
    }
}
