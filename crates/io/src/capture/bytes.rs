//! The byte stream of a capture: buffered, decompressed, and with its offset.

use std::io::{self, BufReader, Cursor, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use super::ahead::Ahead;
use super::read_ahead::{Blocks, ReadAhead};
use super::stream::{Stream, Upkeep};
use crate::claims::Shared;

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
    /// In blocks that several threads read.
    Blocks(Blocks),
}

/// A capture's bytes after decompression: a window that slides over them.
pub(crate) struct Bytes {
    file: Stream,
    /// The first bytes, which show whether the rest is compressed.
    magic: [u8; 2],
    magic_len: usize,
    source: Source,
    gzip: bool,
    /// Whether a thread may be started to decompress it, or others may read parts of it.
    may_read_ahead: bool,
    /// The length of the blocks in which it should be read, if it should.
    block_len: Option<usize>,
    buffer: Vec<u8>,
    /// The block in which the window lies; otherwise it lies in the buffer.
    block: Option<Arc<Vec<u8>>>,
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
        Ok(Self::over(Stream::open(path, upkeep)?, upkeep))
    }

    /// The bytes of an open file.
    pub(super) fn over(file: Stream, upkeep: Upkeep) -> Self {
        let size = if upkeep == Upkeep::Small { SMALL_BUFFER } else { LARGE_BUFFER };
        Self {
            file,
            magic: [0; 2],
            magic_len: 0,
            source: Source::Unknown,
            gzip: false,
            may_read_ahead: upkeep == Upkeep::Full,
            block_len: None,
            buffer: vec![0; size],
            block: None,
            start: 0,
            end: 0,
            offset: 0,
        }
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
            Source::Blocks(_) => {
                let (_, size) = self.file.position()?;
                return Some(self.offset.min(size) as f64 / size as f64);
            }
            _ => self.file.position()?,
        };
        let ahead = if self.gzip { 0 } else { (self.end - self.start) as u64 };
        Some(read.saturating_sub(ahead) as f64 / size as f64)
    }

    /// The start of the window, in bytes from the start of the decompressed file.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The buffered bytes from the current offset on.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        let bytes: &[u8] = match &self.block {
            Some(block) => block,
            None => &self.buffer,
        };
        &bytes[self.start..self.end]
    }

    /// The start of the window in a buffer that stays unchanged while it is shared, if it lies in one.
    #[inline]
    pub(crate) fn shared(&self) -> Option<Shared<'_>> {
        let buffer = self.block.as_ref()?;
        Some(Shared { buffer, start: self.start })
    }

    /// Reads the file from here on in blocks of `len` bytes, which are shared, if it is an
    /// uncompressed file with more to read than a block, and few files are open.
    pub(crate) fn share_blocks(&mut self, len: usize) {
        if self.may_read_ahead && !self.gzip {
            self.block_len = Some(len);
        }
    }

    /// A part of the file that another thread may read.
    pub(crate) fn read_ahead(&mut self) -> Option<ReadAhead> {
        match &mut self.source {
            Source::Blocks(blocks) => blocks.read_ahead(),
            _ => None,
        }
    }

    /// Returns at least the next `want` bytes (at most [`MAX_WINDOW`]); fewer only at
    /// the end of the file.
    #[inline]
    pub(crate) fn ahead(&mut self, want: usize) -> Result<&[u8], Fault> {
        debug_assert!(want <= MAX_WINDOW, "callers check the lengths in the file first");
        if self.end - self.start < want {
            self.refill(want)?;
        }
        Ok(self.window())
    }

    fn refill(&mut self, want: usize) -> Result<(), Fault> {
        self.begin_blocks();
        if matches!(self.source, Source::Blocks(_)) {
            return self.refill_from_blocks(want).map_err(Fault::Io);
        }
        self.make_room(want);
        if self.may_read_ahead && self.gzip && self.offset >= LONG {
            self.may_read_ahead = false;
            self.decompress_ahead();
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
                Source::Blocks(_) => Ok(0),
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

    /// Moves the window to the start of the buffer, which is made long enough for `want` bytes.
    fn make_room(&mut self, want: usize) {
        let window = self.start..self.end;
        if want > self.buffer.len() {
            self.buffer.resize(want.next_power_of_two(), 0);
        }
        match self.block.take() {
            Some(block) => self.buffer[..window.len()].copy_from_slice(&block[window]),
            None if self.start > 0 => self.buffer.copy_within(window, 0),
            None => {}
        }
        self.end -= self.start;
        self.start = 0;
    }

    /// Begins to read in blocks, if that was requested and is worth it.
    fn begin_blocks(&mut self) {
        let (Some(len), Source::Direct(_)) = (self.block_len, &self.source) else { return };
        self.block_len = None;
        let Some((read, size)) = self.file.position() else { return };
        if !self.gzip && size - read > len as u64 {
            self.source = Source::Blocks(Blocks::new(self.file.clone(), read, len));
        }
    }

    /// The window becomes the rest of a block; or, if it ends in the middle of what is wanted, exactly
    /// that is joined in the buffer.
    fn refill_from_blocks(&mut self, want: usize) -> io::Result<()> {
        if self.start == self.end {
            let Source::Blocks(blocks) = &mut self.source else { return Ok(()) };
            self.block = None;
            (self.start, self.end) = (0, 0);
            if !blocks.advance()? {
                return Ok(());
            }
            let (block, taken) = blocks.current();
            (self.start, self.end) = (taken, block.len());
            self.block = Some(block.clone());
            blocks.take(usize::MAX);
            if self.end - self.start >= want {
                return Ok(());
            }
        }
        self.make_room(want);
        let Source::Blocks(blocks) = &mut self.source else { return Ok(()) };
        while self.end < want && blocks.advance()? {
            let more = blocks.take(want - self.end);
            self.buffer[self.end..self.end + more.len()].copy_from_slice(more);
            self.end += more.len();
        }
        Ok(())
    }

    /// Has the rest of a compressed file decompressed by a thread, unless it is a pipe, whose bytes
    /// must be passed on as they arrive.
    fn decompress_ahead(&mut self) {
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
    #[inline]
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
