//! One record after the other, from either format.

use std::path::{Path, PathBuf};

use thalweg_packet::Nanoseconds;

use super::pcap::Pcap;
use super::pcapng::PcapNg;
use super::stream::Stream;
use crate::port::IoError;

/// The longest packet record that is believed; longer ones are damage.
pub(super) const MAX_RECORD: usize = 1 << 20;

/// One packet of a capture, as it stands in the stream's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Bytes before the packet, from the stream's next byte.
    pub(super) before: usize,
    /// Bytes captured.
    pub(super) len: usize,
    /// Bytes to consume with the record.
    pub(super) total: usize,
    /// Bytes on the wire.
    pub(super) wire_len: u32,
    /// When it was captured.
    pub(super) timestamp: Nanoseconds,
    /// The link type's number in the pcap registry.
    pub(super) link_type: u16,
}

/// What is wrong with a capture, at its current offset.
#[derive(Debug)]
pub(super) enum Fault {
    Io(std::io::Error),
    Damage(String),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        // The decompressor says so when the compressed data is cut or wrong.
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Self::Damage("the compressed data ends too early".into())
            }
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
                Self::Damage(format!("the compressed data is damaged: {error}"))
            }
            _ => Self::Io(error),
        }
    }
}

pub(super) fn damage<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Damage(what.into()))
}

enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// Reads the records of one capture file.
pub(super) struct Reader {
    path: PathBuf,
    stream: Stream,
    format: Format,
    current: Option<Record>,
    ended: bool,
}

impl Reader {
    /// Opens a capture; its format is told by its first bytes.
    pub(super) fn open(path: &Path) -> Result<Self, IoError> {
        let file = |source| IoError::File { path: path.into(), source };
        let mut stream = Stream::open(path).map_err(file)?;
        let wrong = |what: &str| IoError::Format { path: path.into(), what: what.into() };
        match stream.fill(4) {
            Ok(true) => {}
            Ok(false) => return Err(wrong("the file is too short to be a capture")),
            Err(e) => return Err(wrong(&format!("the file cannot be unpacked: {e}"))),
        }
        let magic: [u8; 4] = stream.peek(4).try_into().unwrap_or_default();
        let mut reader = Self {
            path: path.into(),
            stream,
            format: Format::PcapNg(PcapNg::default()),
            current: None,
            ended: false,
        };
        if let Some(pcap) = Pcap::recognise(magic) {
            let header = pcap.header(&mut reader.stream);
            reader.format = Format::Pcap(header.map_err(|fault| reader.error(fault))?);
        } else if !PcapNg::recognise(magic) {
            return Err(wrong("neither a pcap nor a pcapng file (unknown magic number)"));
        }
        Ok(reader)
    }

    /// The next record, without consuming it; `None` at the end. After damage
    /// has been reported once, the capture is at its end.
    pub(super) fn peek(&mut self) -> Result<Option<Record>, IoError> {
        if self.current.is_none() && !self.ended {
            let next = match &mut self.format {
                Format::Pcap(pcap) => pcap.next(&mut self.stream),
                Format::PcapNg(pcapng) => pcapng.next(&mut self.stream),
            };
            match next {
                Ok(record) => {
                    self.ended = record.is_none();
                    self.current = record;
                }
                Err(fault) => {
                    self.ended = true;
                    return Err(self.error(fault));
                }
            }
        }
        Ok(self.current)
    }

    /// The packet bytes of the record that [`peek`](Self::peek) showed.
    pub(super) fn bytes(&self, record: &Record) -> &[u8] {
        &self.stream.peek(record.before + record.len)[record.before..]
    }

    /// Consumes the record that [`peek`](Self::peek) showed.
    pub(super) fn advance(&mut self) {
        if let Some(record) = self.current.take() {
            self.stream.consume(record.total);
        }
    }

    /// The file that is read.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, fault: Fault) -> IoError {
        let path = self.path.clone();
        match fault {
            Fault::Io(source) => IoError::File { path, source },
            Fault::Damage(what) => IoError::Damaged { path, offset: self.stream.offset(), what },
        }
    }
}
