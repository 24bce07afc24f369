//! The byte stream of a capture: buffered, decompressed, and with its offset.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// The initial size of the buffer; it grows to [`MAX_WINDOW`] only for a record that long.
const INITIAL_BUFFER: usize = 128 * 1024;

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

/// A capture's bytes after decompression: a window that slides over them.
pub(crate) struct Bytes {
    // One virtual call per refill of the buffer, not per record.
    source: Box<dyn Read + Send>,
    gzip: bool,
    regular: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl Bytes {
    /// Opens `path` and checks its first bytes for gzip.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let regular = file.metadata()?.is_file();
        let mut magic = [0; 2];
        let got = read_up_to(&mut file, &mut magic)?;
        // Chained rather than rewound, so that pipes can be read as well.
        let source = Cursor::new(magic).take(got as u64).chain(file);
        let gzip = magic == [0x1f, 0x8b] && got == 2;
        let source: Box<dyn Read + Send> = if gzip {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(INITIAL_BUFFER, source)))
        } else {
            Box::new(source)
        };
        let buffer = vec![0; INITIAL_BUFFER];
        Ok(Self { source, gzip, regular, buffer, start: 0, end: 0, offset: 0 })
    }

    /// Whether it is a regular file: all of it is there, and reading does not wait.
    pub(crate) fn is_regular(&self) -> bool {
        self.regular
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
        while self.end < want {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fault(error)),
            }
        }
        Ok(())
    }

    /// Distinguishes damage from I/O errors: a decompressor reports damage in the file as an I/O
    /// error without a system error code.
    fn fault(&self, error: io::Error) -> Fault {
        if self.gzip && error.raw_os_error().is_none() {
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

    /// Advances by `n` bytes without keeping them; returns `false` if the file ends before.
    pub(crate) fn skip(&mut self, mut n: u64) -> Result<bool, Fault> {
        while n > 0 {
            let available = self.ahead(1)?.len();
            if available == 0 {
                return Ok(false);
            }
            let step = available.min(usize::try_from(n).unwrap_or(usize::MAX));
            self.consume(step);
            n -= step as u64;
        }
        Ok(true)
    }
}

fn read_up_to(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match file.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
