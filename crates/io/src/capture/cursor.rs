//! The place of the next packet in a capture file, which is found without reading the packet.

use std::io::{self, IoSliceMut};
use std::path::Path;

use arrayvec::ArrayVec;

use super::bytes::{Bytes, Fault};
use super::pcap;
use super::pcapng::{Begun, HEAD};
use super::record::{Format, Reader, Record, in_file};
use super::stream::{Stream, Upkeep};
use crate::port::IoError;

/// Where the next record of a file begins. Clones read on from there by themselves.
#[derive(Clone)]
pub(super) struct Cursor {
    file: Stream,
    format: Format,
    at: u64,
    /// The first bytes from there on, as far as they were read.
    head: ArrayVec<u8, HEAD>,
}

impl Cursor {
    /// Opens a file, before its first record.
    ///
    /// # Errors
    /// If it cannot be read, is no capture, or is compressed or no file: then packets have no place to be read from.
    pub(super) fn open(path: &Path) -> Result<Self, IoError> {
        let failed = |source| IoError::File { path: path.into(), source };
        let refused = |what: &str| IoError::Format { path: path.into(), what: what.into() };
        let file = Stream::open(path, Upkeep::Full).map_err(failed)?;
        if file.descriptor().is_some() {
            return Err(refused("it is not a file, so that its packets are copied"));
        }
        // With a small buffer: the file header alone is read by it.
        let mut bytes = Bytes::over(file.clone(), Upkeep::Small);
        let format = Reader::format(&mut bytes).map_err(|fault| in_file(path, fault))?;
        if bytes.is_compressed() {
            return Err(refused("it is compressed, so that its packets are copied"));
        }
        let format = format.map_err(|what| IoError::Format { path: path.into(), what })?;
        Ok(Self { file, format, at: bytes.offset(), head: ArrayVec::new() })
    }

    /// Where the next record begins, in bytes from the start of the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The share of the file before that.
    pub(super) fn share(&self) -> Option<f64> {
        let (_, size) = self.file.position()?;
        Some(self.at.min(size) as f64 / size as f64)
    }

    /// The next packet, whose record begins at the cursor then: what holds none is passed over. `None` at the end
    /// of the file. Whether the record is whole is not known.
    #[inline]
    pub(super) fn record(&mut self) -> Result<Option<Record>, Fault> {
        loop {
            self.read_head()?;
            let offset = self.at;
            let begun = match &mut self.format {
                Format::Pcap(pcap) => {
                    let damaged = |what| Fault::Damaged { offset, what };
                    return match self.head.len() {
                        0 => Ok(None),
                        n if n < pcap.header_len() => {
                            Err(damaged("the record header is truncated".into()))
                        }
                        _ => pcap.record(&self.head).map(Some).map_err(damaged),
                    };
                }
                Format::PcapNg(pcapng) => pcapng.begin(&self.head, offset)?,
            };
            let len = match begun {
                None => return Ok(None),
                Some(Begun::Packet(record)) => return Ok(Some(record)),
                Some(Begun::Description(len)) => {
                    let mut block = vec![0; len];
                    let there = self.read(&mut [IoSliceMut::new(&mut block)], offset)?;
                    if let Format::PcapNg(pcapng) = &mut self.format {
                        pcapng.describe(&block[..there], offset)?;
                    }
                    len
                }
                Some(Begun::Other(len)) => {
                    let (there, end) = self.read_end(len)?;
                    if let Format::PcapNg(pcapng) = &self.format {
                        pcapng.check_end_of_other((len, there), &end, offset)?;
                    }
                    len
                }
            };
            self.advance(len, &[]);
        }
    }

    /// Reads the packet of `record`, the next one, into the first of `parts`, and what follows it in the file into
    /// the others; returns how many bytes there were.
    pub(super) fn read_packet(
        &self,
        record: &Record,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Fault> {
        self.read(parts, self.at + record.start as u64)
    }

    /// Checks that `record`, the next one, is whole. In pcap, where records have no mark at their end, the size of the
    /// file decides.
    pub(super) fn check(&self, record: &Record) -> Result<(), Fault> {
        let (_, size) = self.file.position().unwrap_or_default();
        if matches!(self.format, Format::Pcap(_)) && self.at + record.total as u64 <= size {
            return Ok(());
        }
        let (there, end) = self.read_end(record.total)?;
        self.check_end(record.total, there, &end)
    }

    /// The same, if `there` are the bytes that the file has from its packet on, of which `end` follow that.
    #[inline]
    pub(super) fn check_read(
        &self,
        record: &Record,
        there: usize,
        end: &[u8],
    ) -> Result<(), Fault> {
        self.check_end(record.total, record.start + there, end)
    }

    /// Passes over the next record or block, of `len` bytes; `head` are the first bytes after it, as far as they are
    /// known.
    #[inline]
    pub(super) fn advance(&mut self, len: usize, head: &[u8]) {
        self.at += len as u64;
        self.head.clear();
        // As many as there is room for.
        let _ = self.head.try_extend_from_slice(&head[..head.len().min(HEAD)]);
    }

    /// How many bytes of the next block, of `len` bytes, are there, and its last ones.
    fn read_end(&self, len: usize) -> Result<(usize, [u8; 4]), Fault> {
        let mut last = [0; 4];
        let before = len.saturating_sub(last.len());
        let end = &mut last[..len - before];
        let wanted = end.len();
        let read = self.read(&mut [IoSliceMut::new(end)], self.at + before as u64)?;
        if read == wanted {
            return Ok((len, last));
        }
        let (_, size) = self.file.position().unwrap_or_default();
        let there = size.saturating_sub(self.at).min((before + read) as u64);
        Ok((there as usize, last))
    }

    /// Checks the end of the next block of `len` bytes: the file has `there` bytes of it, and `end` are the last.
    fn check_end(&self, len: usize, there: usize, end: &[u8]) -> Result<(), Fault> {
        match &self.format {
            Format::PcapNg(pcapng) => {
                let last = end.last_chunk::<4>().map_or(&[][..], |last| last);
                pcapng.check_end((len, there), last, self.at)
            }
            Format::Pcap(pcap) if there < len => {
                let header = pcap.header_len();
                let what = pcap::truncated(there.saturating_sub(header), len - header);
                Err(Fault::Damaged { offset: self.at, what })
            }
            Format::Pcap(_) => Ok(()),
        }
    }

    /// Reads the first bytes from the cursor on, up to the longest header.
    #[inline]
    fn read_head(&mut self) -> Result<(), Fault> {
        let wanted = match &self.format {
            Format::Pcap(pcap) => pcap.header_len(),
            Format::PcapNg(_) => HEAD,
        };
        let known = self.head.len();
        if known >= wanted {
            return Ok(());
        }
        let mut bytes = [0; HEAD];
        bytes[..known].copy_from_slice(&self.head);
        let rest = &mut bytes[known..wanted];
        let read = self.read(&mut [IoSliceMut::new(rest)], self.at + known as u64)?;
        self.head = bytes[..known + read].iter().copied().collect();
        Ok(())
    }

    /// Reads bytes from `at` on, until all `parts` are full or the file ends; returns how many there were.
    fn read(&self, mut parts: &mut [IoSliceMut<'_>], at: u64) -> Result<usize, Fault> {
        let mut read = 0;
        while parts.iter().any(|part| !part.is_empty()) {
            match self.file.read_scattered_at(parts, at + read as u64) {
                Ok(0) => break,
                Ok(n) => {
                    IoSliceMut::advance_slices(&mut parts, n);
                    read += n;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Io(error)),
            }
        }
        Ok(read)
    }
}
