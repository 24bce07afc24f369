//! Captures as outputs.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use thalweg_packet::{Batch, Lanes, Nanoseconds};

use crate::port::{IoError, Output};

/// Records are collected up to this many bytes before they are written.
const FLUSH_AT: usize = 64 * 1024;
const SNAP_LEN: u32 = 256 * 1024;
const ETHERNET: u32 = 1;

/// Writes a pcap (nanoseconds) or pcapng file, plain or compressed.
///
/// The file can be read at any moment, even when the program dies: only whole
/// records are written, and of a compressed file only whole gzip members.
#[derive(Debug)]
pub struct CaptureOutput {
    path: PathBuf,
    file: File,
    compressed: bool,
    next_generation: bool,
    pending: Vec<u8>,
}

impl CaptureOutput {
    /// Creates the file at `path`, or empties it. Its name tells the format:
    /// `.pcap` or `.pcapng`, and `.gz` behind either for compression.
    ///
    /// # Errors
    /// When the name tells no format, or the file cannot be written.
    pub fn create(path: &Path) -> Result<Self, IoError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let compressed = name.ends_with(".gz");
        let plain = name.trim_end_matches(".gz");
        let next_generation = plain.ends_with(".pcapng");
        if !next_generation && !plain.ends_with(".pcap") {
            let what = "a capture's name ends in .pcap, .pcapng, .pcap.gz or .pcapng.gz".into();
            return Err(IoError::Format { path: path.into(), what });
        }
        let file =
            File::create(path).map_err(|e| IoError::File { path: path.into(), source: e })?;
        let mut output =
            Self { path: path.into(), file, compressed, next_generation, pending: Vec::new() };
        if next_generation {
            output.section_header();
        } else {
            output.file_header();
        }
        output.flush()?;
        Ok(output)
    }

    fn put(&mut self, words: &[u32]) {
        for word in words {
            self.pending.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn file_header(&mut self) {
        self.put(&[0xa1b2_3c4d, 4 << 16 | 2, 0, 0, SNAP_LEN, ETHERNET]);
    }

    /// A section header and the description of its one interface.
    fn section_header(&mut self) {
        const APPLICATION: &[u8; 8] = b"thalweg\0";
        let total = 28 + 4 + APPLICATION.len() as u32 + 4;
        self.put(&[0x0a0d_0d0a, total, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        self.put(&[7 << 16 | 4]); // shb_userappl
        self.pending.extend_from_slice(APPLICATION);
        self.put(&[0, total]);
        // if_tsresol = 9: nanoseconds
        self.put(&[1, 32, ETHERNET, SNAP_LEN, 1 << 16 | 9, 9, 0, 32]);
    }

    /// Appends one packet.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(
        &mut self,
        bytes: &[u8],
        wire_len: u32,
        timestamp: Nanoseconds,
    ) -> Result<(), IoError> {
        let len = bytes.len() as u32;
        let wire_len = wire_len.max(len);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        if self.next_generation {
            let total = 32 + len + padding as u32;
            let (high, low) = ((timestamp.0 >> 32) as u32, timestamp.0 as u32);
            self.put(&[6, total, 0, high, low, len, wire_len]);
            self.pending.extend_from_slice(bytes);
            self.pending.extend_from_slice(&[0; 3][..padding]);
            self.put(&[total]);
        } else {
            // 32 bits of seconds reach to the year 2106.
            let (seconds, nanoseconds) = timestamp.split();
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.put(&[seconds, nanoseconds, len, wire_len]);
            self.pending.extend_from_slice(bytes);
        }
        if self.pending.len() >= FLUSH_AT {
            self.write_pending()?;
        }
        Ok(())
    }

    fn write_pending(&mut self) -> Result<(), IoError> {
        let written = if self.compressed {
            let mut member = GzEncoder::new(Vec::new(), Compression::fast());
            let packed = member.write_all(&self.pending).and_then(|()| member.finish());
            packed.and_then(|packed| self.file.write_all(&packed))
        } else {
            self.file.write_all(&self.pending)
        };
        self.pending.clear();
        written.map_err(|e| self.file_error(e))
    }

    fn file_error(&self, source: io::Error) -> IoError {
        IoError::File { path: self.path.clone(), source }
    }
}

impl Output for CaptureOutput {
    fn send(&mut self, batch: &Batch, lanes: Lanes) -> Result<(), IoError> {
        for lane in lanes.and(batch.lanes()) {
            // Of a packet that the capture had cut, the missing bytes stay missing.
            let wire_len = batch.meta.wire_len[lane];
            self.write(batch.bytes(lane), wire_len, batch.meta.timestamp[lane])?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        if self.pending.is_empty() { Ok(()) } else { self.write_pending() }
    }
}

impl Drop for CaptureOutput {
    /// What is pending is written; a failure here has nobody to hear of it, so
    /// callers flush before.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
