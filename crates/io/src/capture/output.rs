//! A capture file as an output.
//!
//! The file is complete at any moment: the file header is written at once, and
//! then only whole records, each time in one write. A process that ends or
//! panics loses the records it had buffered, and leaves no partial record.
//!
//! SIGKILL is harder, because Linux ends a write between two pages of the file
//! when such a signal is pending. So a plain file is written page by page, and
//! only a record that crosses a page boundary can be truncated. Without copies, each batch of packets is a
//! write of its own, which crosses more of them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::Path;

use arrayvec::ArrayVec;
use flate2::Compression;
use flate2::write::GzEncoder;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Nanoseconds};
use thalweg_source::{Incomplete, OutputFile, Stop};

use super::blocks;
use super::standard::STANDARD_OUTPUT;
use crate::port::{IoError, Lost, Output, OutputFailure};

/// Bytes of records that are compressed into one gzip member.
const MEMBER: usize = 64 * 1024;

/// The error of an output that had one before.
const STOPPED: &str = "writing stopped after an earlier error";

/// The most bytes of a record without its packet.
const RECORD: usize = 35;

/// The smallest size of a memory page.
const PAGE: u64 = 4096;

/// The formats of a written capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// pcap with timestamps in nanoseconds.
    Pcap,
    /// pcapng with timestamps in nanoseconds.
    PcapNg,
}

impl Format {
    /// The format by the extension of `path`, and whether it is compressed:
    /// `.pcap` or `.pcapng`, either followed by `.gz`; pcap for standard output.
    fn of_path(path: &Path) -> Option<(Self, bool)> {
        if path == Path::new(STANDARD_OUTPUT) {
            return Some((Self::Pcap, false));
        }
        let gzip = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        let plain = if gzip { Path::new(path.file_stem()?) } else { path };
        let extension = plain.extension().and_then(OsStr::to_str)?;
        match extension.to_ascii_lowercase().as_str() {
            "pcap" => Some((Self::Pcap, gzip)),
            "pcapng" => Some((Self::PcapNg, gzip)),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
        }
    }

    fn file_header(self) -> Vec<u8> {
        match self {
            Self::Pcap => {
                let words: [u32; 6] = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 262_144, 1];
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
            Self::PcapNg => {
                let mut header = Vec::new();
                blocks::section(&mut header);
                blocks::interface(&mut header, None);
                header
            }
        }
    }

    fn append(self, buffer: &mut Vec<u8>, packet: &[u8], wire_len: u32, time: Nanoseconds) {
        self.before(buffer, packet.len(), wire_len, time);
        buffer.extend_from_slice(packet);
        self.after(buffer, packet.len());
    }

    /// What is before a packet of `len` bytes in its record.
    fn before(self, buffer: &mut Vec<u8>, len: usize, wire_len: u32, time: Nanoseconds) {
        match self {
            Self::Pcap => {
                // Seconds have 32 bits: until the year 2106.
                let (seconds, nanoseconds) = time.split();
                let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
                for word in [seconds, nanoseconds, len as u32, wire_len] {
                    buffer.extend_from_slice(&word.to_le_bytes());
                }
            }
            Self::PcapNg => blocks::before_packet(buffer, time, len, wire_len),
        }
    }

    /// What is after it.
    fn after(self, buffer: &mut Vec<u8>, len: usize) {
        if self == Self::PcapNg {
            blocks::after_packet(buffer, len);
        }
    }
}

/// Writes packets to a pcap or pcapng file, by the extension of its name.
///
/// Link type Ethernet, timestamps in nanoseconds, original lengths kept. A
/// compressed file is a sequence of gzip members, one per flush, so that it is
/// complete after each.
///
/// Dropping it flushes; call [`flush`](Output::flush) to see the error.
#[derive(Debug)]
pub struct CaptureOutput {
    file: OutputFile,
    format: Format,
    gzip: bool,
    /// Whole records that are not in the file yet; at first the file header.
    buffer: Vec<u8>,
    /// The packets of these records.
    pending: Vec<Pending>,
    /// Bytes of whole records in the file.
    written: u64,
    /// Packets that were copied into the buffer.
    copied: u64,
    /// Whether packets are written from their frames.
    is_direct: bool,
    failed: bool,
}

/// A packet in the buffer.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The end of its record, in bytes from the start of the buffer.
    end: usize,
    /// Its length in bytes.
    len: usize,
}

impl CaptureOutput {
    /// The format that the name of `path` determines, in words: `pcapng, gzip`.
    pub fn form(path: &Path) -> Option<String> {
        let (format, gzip) = Format::of_path(path)?;
        let compression = if gzip { ", gzip" } else { "" };
        Some(format!("{}{compression}", format.name()))
    }

    /// Creates the capture at `path`, or empties it, and writes its file header.
    ///
    /// # Errors
    /// [`IoError::Format`] if the name does not end in `.pcap`, `.pcapng`, `.pcap.gz` or
    /// `.pcapng.gz`, and is not [`STANDARD_OUTPUT`]; [`IoError::File`] if the file cannot be
    /// written.
    pub fn create(path: &Path) -> Result<Self, IoError> {
        let mut output = Self::claim(path, &Stop::default())?;
        output.flush().map_err(|failure| failure.error)?;
        Ok(output)
    }

    /// Opens and locks the capture at `path`, which the first flush empties. Waits for the reader
    /// of a pipe until `stop`.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn claim(path: &Path, stop: &Stop) -> Result<Self, IoError> {
        let Some((format, gzip)) = Format::of_path(path) else {
            let what = "unknown capture format; expected a name that ends in .pcap, .pcapng, \
                        .pcap.gz or .pcapng.gz";
            return Err(IoError::Format { path: path.into(), what: what.into() });
        };
        let file = OutputFile::new(path);
        file.stop_with(stop);
        file.claim().map_err(|source| IoError::File { path: path.into(), source })?;
        Ok(Self::over(file, format, gzip))
    }

    /// Writes pcapng to an open connection, which errors name as `path`. Waits for a reader that is
    /// slow until `stop`.
    pub(super) fn connected(path: &Path, connection: File, stop: &Stop) -> Self {
        let file = OutputFile::opened(path, connection);
        file.stop_with(stop);
        Self::over(file, Format::PcapNg, false)
    }

    fn over(file: OutputFile, format: Format, gzip: bool) -> Self {
        Self {
            file,
            format,
            gzip,
            buffer: format.file_header(),
            pending: Vec::new(),
            written: 0,
            copied: 0,
            is_direct: false,
            failed: false,
        }
    }

    /// The same without a copy: packets are written from where they are, with each call of
    /// [`send`](Output::send). Those of a compressed file are copied.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        self.is_direct = !self.gzip;
        self
    }

    /// Adds one Ethernet packet that had `wire_len` bytes on the wire.
    ///
    /// # Errors
    /// [`IoError::File`] if the file cannot be written.
    pub fn write(
        &mut self,
        packet: &[u8],
        wire_len: u32,
        timestamp: Nanoseconds,
    ) -> Result<(), IoError> {
        self.append(packet, wire_len, timestamp).map_err(|failure| failure.error)
    }

    fn append(
        &mut self,
        packet: &[u8],
        wire_len: u32,
        timestamp: Nanoseconds,
    ) -> Result<(), OutputFailure> {
        if self.failed {
            return Err(self.error(io::Error::other(STOPPED)).into());
        }
        let wire_len = wire_len.max(packet.len() as u32);
        let before = self.buffer.len();
        self.format.append(&mut self.buffer, packet, wire_len, timestamp);
        self.copied += 1;
        self.pending.push(Pending { end: self.buffer.len(), len: packet.len() });
        let due = if self.gzip { self.member_is_full() } else { self.page_is_full(before) };
        due.map_or(Ok(()), |due| self.write_out(due))
    }

    /// Writes packets from their frames, after what is in the buffer; returns those that are in the file.
    fn write_direct(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let mut heads = Vec::with_capacity(RECORD * BATCH);
        let mut ends = ArrayVec::<_, BATCH>::new();
        for lane in lanes {
            let (packet, time) = (batch.bytes(lane), batch.meta.captured(lane));
            let wire_len = batch.meta.wire_len[lane].max(packet.len() as u32);
            self.format.before(&mut heads, packet.len(), wire_len, time);
            let before = heads.len();
            self.format.after(&mut heads, packet.len());
            ends.push((before, heads.len()));
        }
        let mut parts = ArrayVec::<_, { 1 + 3 * BATCH }>::new();
        parts.push(IoSlice::new(&self.buffer));
        let (mut start, mut length) = (0, self.buffer.len());
        let mut records = ArrayVec::<_, BATCH>::new();
        for (lane, (before, after)) in lanes.into_iter().zip(&ends) {
            let packet = batch.bytes(lane);
            let record = [&heads[start..*before], packet, &heads[*before..*after]];
            length += record.map(<[u8]>::len).iter().sum::<usize>();
            records.push(length);
            parts.extend(record.map(IoSlice::new));
            start = *after;
        }
        let buffered = self.buffer.len();
        let whole = |n: usize| match records.iter().take_while(|end| **end <= n).last() {
            Some(end) => *end,
            None if n >= buffered => buffered,
            None => 0,
        };
        let written = self.file.append_parts(&mut parts, whole);
        let kept = written.as_ref().map_or_else(|incomplete| incomplete.kept, |()| length);
        drop(parts);
        self.buffer.clear();
        self.written += kept as u64;
        let Err(Incomplete { error, .. }) = written else { return Ok(lanes) };
        self.failed = true;
        let whole = records.partition_point(|end| *end <= kept);
        let sent: Lanes = lanes.into_iter().take(whole).collect();
        drops.add(DropReason::OutputFailed, lanes.without(sent).count() as u64);
        Err(OutputFailure { error: self.error(error), sent, lost: Lost::default() })
    }

    /// The length of the buffer, if that is enough for a gzip member.
    fn member_is_full(&self) -> Option<usize> {
        (self.buffer.len() >= MEMBER).then_some(self.buffer.len())
    }

    /// The length of the records before the last one (`before` bytes), if the
    /// last one reaches into another page of the file.
    fn page_is_full(&self, before: usize) -> Option<usize> {
        let page = |at: usize| (self.written + at as u64) / PAGE;
        (before > 0 && page(before) != page(self.buffer.len() - 1)).then_some(before)
    }

    /// Writes the first `due` bytes of the buffer, which are whole records.
    fn write_out(&mut self, due: usize) -> Result<(), OutputFailure> {
        let written = if due == 0 {
            self.file.append(&[], |_| 0).map(|()| 0)
        } else if self.gzip {
            // A member is in the file as a whole or not at all.
            compress(&self.buffer[..due])
                .map_err(Incomplete::from)
                .and_then(|member| self.file.append(&member, |_| 0).map(|()| member.len()))
        } else {
            let ends = &self.pending;
            let whole = |n| ends.iter().map(|p| p.end).take_while(|end| *end <= n).last();
            self.file.append(&self.buffer[..due], |n| whole(n).unwrap_or(0)).map(|()| due)
        };
        match written {
            Ok(bytes) => {
                self.written += bytes as u64;
                self.take_out(due);
                Ok(())
            }
            Err(Incomplete { kept, error }) => {
                self.take_out(kept);
                let lost = Lost {
                    packets: self.pending.len() as u64,
                    bytes: self.pending.drain(..).map(|packet| packet.len as u64).sum(),
                };
                self.buffer.clear();
                self.failed = true;
                Err(OutputFailure { error: self.error(error), sent: Lanes::NONE, lost })
            }
        }
    }

    /// Removes the first `bytes` of the buffer, which are in the file.
    fn take_out(&mut self, bytes: usize) {
        self.buffer.drain(..bytes);
        let packets = self.pending.partition_point(|packet| packet.end <= bytes);
        self.pending.drain(..packets);
        self.pending.iter_mut().for_each(|packet| packet.end -= bytes);
    }

    fn error(&self, source: io::Error) -> IoError {
        IoError::File { path: self.file.path().to_owned(), source }
    }
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut member = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    member.write_all(bytes)?;
    member.finish()
}

impl Output for CaptureOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let lanes = lanes.and(batch.lanes());
        if self.failed {
            drops.add(DropReason::OutputFailed, lanes.count() as u64);
            return Ok(Lanes::NONE); // the failure was reported
        }
        // What else was written before goes first.
        if self.is_direct && !lanes.is_empty() && self.pending.is_empty() {
            return self.write_direct(batch, lanes, drops);
        }
        let mut sent = Lanes::NONE;
        for lane in lanes {
            let (wire_len, timestamp) = (batch.meta.wire_len[lane], batch.meta.captured(lane));
            // If this fails, the packet is among those that the failure lost.
            sent.insert(lane);
            if let Err(failure) = self.append(batch.bytes(lane), wire_len, timestamp) {
                drops.add(DropReason::OutputFailed, lanes.without(sent).count() as u64);
                return Err(OutputFailure { sent, ..failure });
            }
        }
        Ok(lanes)
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        if self.failed {
            return Ok(()); // reported, and nothing is left
        }
        self.write_out(self.buffer.len())
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }
}

impl Drop for CaptureOutput {
    fn drop(&mut self) {
        // One that was only claimed keeps the content of an earlier run.
        if self.written > 0
            && let Err(error) = self.flush()
        {
            log::error!("{error}");
        }
    }
}
