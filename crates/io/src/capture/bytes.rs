//! The byte stream of a capture: buffered, decompressed, and with its offset.

use std::io::{self, BufReader, Cursor, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::ahead::Ahead;
use super::stream::{Stream, Upkeep};

/// The initial sizes of the buffer; it grows to [`MAX_WINDOW`] only for a record that long.
const LARGE_BUFFER: usize = 128 * 1024;
const SMALL_BUFFER: usize = 16 * 1024;

/// The bytes of a compressed file after which a thread is worth its start.
const LONG: u64 = 512 * 1024;

/// The longest part of the file that is buffered at once. A length field above this is damage
/// of a hostile file, and no memory is allocated for it.
pub(crate) const MAX_WINDOW: usize = 1024 * 1024;

/// The error that ends reading.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The content is damaged from `offset` on.
    Damaged { offset: u64, what: String },
    /// The system cannot read the file.
    Io(io::Error),
}

impl Fault {
    /// Whether a pipe has no bytes yet: reading continues where it stopped.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The source of a capture's bytes.
enum Source {
    /// The first bytes have not arrived.
    Unknown,
    // One virtual call per refill of the buffer, not per record.
    Direct(Box<dyn Read + Send>),
    /// By a thread of its own.
    Ahead(Ahead),
}

/// A capture's bytes after decompression: a window that slides over them.
pub(crate) struct Bytes {
    file: Stream,
    /// The first bytes, which show whether the rest is compressed.
    magic: [u8; 2],
    magic_len: usize,
    source: Source,
    gzip: bool,
    /// Whether a thread may be started to decompress it.
    may_read_ahead: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl Bytes {
    /// Whether the file is compressed; known once bytes have arrived.
    pub(crate) fn is_compressed(&self) -> bool {
        self.gzip
    }

    /// Opens `path`. Nothing is read yet, since a pipe may be empty.
    pub(crate) fn open(path: &Path, upkeep: Upkeep) -> io::Result<Self> {
        let size = if upkeep == Upkeep::Small { SMALL_BUFFER } else { LARGE_BUFFER };
        Ok(Self {
            file: Stream::open(path, upkeep)?,
            magic: [0; 2],
            magic_len: 0,
            source: Source::Unknown,
            gzip: false,
            may_read_ahead: upkeep == Upkeep::Full,
            buffer: vec![0; size],
            start: 0,
            end: 0,
            offset: 0,
        })
    }

    /// The file, if it is one whose next bytes may come later.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// Reads the first bytes, and decides by them whether the file is decompressed.
    fn begin(&mut self) -> io::Result<()> {
        while matches!(self.source, Source::Unknown) {
            match self.file.read(&mut self.magic[self.magic_len..]) {
                Ok(n) if n > 0 && self.magic_len + n < self.magic.len() => self.magic_len += n,
                Ok(n) => {
                    self.magic_len += n;
                    self.source = Source::Direct(self.chained());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first bytes and the rest, chained rather than rewound, so that pipes can be read.
    fn chained(&mut self) -> Box<dyn Read + Send> {
        let source = Cursor::new(self.magic).take(self.magic_len as u64).chain(self.file.clone());
        self.gzip = self.magic == [0x1f, 0x8b];
        if self.gzip {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(self.buffer.len(), source)))
        } else {
            Box::new(source)
        }
    }

    /// The share of the file that was consumed; of a compressed file, that was read.
    pub(crate) fn share(&self) -> Option<f64> {
        let (read, size) = match &self.source {
            Source::Ahead(ahead) => ahead.position()?,
            _ => self.file.position()?,
        };
        let ahead = if self.gzip { 0 } else { (self.end - self.start) as u64 };
        Some(read.saturating_sub(ahead) as f64 / size as f64)
    }

    /// The start of the window, in bytes from the start of the decompressed file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The buffered bytes from the current offset on.
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns at least the next `want` bytes (at most [`MAX_WINDOW`]); fewer only at
    /// the end of the file.
    pub(crate) fn ahead(&mut self, want: usize) -> Result<&[u8], Fault> {
        debug_assert!(want <= MAX_WINDOW, "callers check the lengths in the file first");
        if self.end - self.start < want {
            self.refill(want)?;
        }
        Ok(self.window())
    }

    fn refill(&mut self, want: usize) -> Result<(), Fault> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if want > self.buffer.len() {
            self.buffer.resize(want.next_power_of_two(), 0);
        }
        if self.may_read_ahead && self.gzip && self.offset >= LONG {
            self.may_read_ahead = false;
            self.read_ahead();
        }
        while self.end < want {
            let rest = &mut self.buffer[self.end..];
            let read = match &mut self.source {
                Source::Unknown => {
                    self.begin().map_err(|error| self.fault(error))?;
                    continue;
                }
                Source::Direct(source) => source.read(rest),
                Source::Ahead(ahead) => ahead.read(rest),
            };
            match read {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fault(error)),
            }
        }
        Ok(())
    }

    /// Has the rest of a compressed file decompressed by a thread, unless it is a pipe, whose bytes
    /// must be passed on as they arrive.
    fn read_ahead(&mut self) {
        if self.descriptor().is_some() {
            return;
        }
        self.source = match std::mem::replace(&mut self.source, Source::Unknown) {
            Source::Direct(source) => match Ahead::start(source, &self.file) {
                Ok(ahead) => Source::Ahead(ahead),
                Err(source) => Source::Direct(source),
            },
            other => other,
        };
    }

    /// Distinguishes damage from I/O errors: a decompressor reports damage in the file as an I/O
    /// error without a system error code.
    fn fault(&self, error: io::Error) -> Fault {
        let is_wait = error.kind() == io::ErrorKind::WouldBlock;
        if self.gzip && error.raw_os_error().is_none() && !is_wait {
            let offset = self.offset + (self.end - self.start) as u64;
            return Fault::Damaged { offset, what: format!("the gzip data is damaged: {error}") };
        }
        Fault::Io(error)
    }

    /// Advances by `n` bytes of the window.
    pub(crate) fn consume(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Advances by `n` bytes without keeping them, and counts down `n`; returns `false` if the file
    /// ends before.
    pub(crate) fn skip(&mut self, n: &mut u64) -> Result<bool, Fault> {
        while *n > 0 {
            let available = self.ahead(1)?.len();
            if available == 0 {
                return Ok(false);
            }
            let step = available.min(usize::try_from(*n).unwrap_or(usize::MAX));
            self.consume(step);
            *n -= step as u64;
        }
        Ok(true)
    }
}
