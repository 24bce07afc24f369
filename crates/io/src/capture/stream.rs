//! The bytes of a capture, read ahead, with their offset in the file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

const CHUNK: usize = 256 * 1024;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A buffered byte stream that hands out slices of what it holds.
pub(super) struct Stream {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes consumed so far: the offset of `buffer[start]`.
    offset: u64,
}

impl Stream {
    /// Opens the file at `path`, and unpacks it when it is gzip.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut plain = Self::new(Box::new(File::open(path)?));
        if !plain.fill(2)? || plain.peek(2) != GZIP {
            return Ok(plain);
        }
        let rest = io::Cursor::new(plain.peek(plain.end).to_vec()).chain(plain.input);
        Ok(Self::new(Box::new(MultiGzDecoder::new(rest))))
    }

    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input, buffer: vec![0; CHUNK], start: 0, end: 0, offset: 0 }
    }

    /// Makes `want` bytes ready; `false` when the stream ends before.
    ///
    /// The buffer grows with what is really there, never by what a length
    /// field says.
    pub(super) fn fill(&mut self, want: usize) -> io::Result<bool> {
        while self.end - self.start < want {
            if self.start > 0 && self.buffer.len() - self.start < want.max(CHUNK / 2) {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// How many bytes are ready.
    pub(super) fn ready(&self) -> usize {
        self.end - self.start
    }

    /// The first `n` bytes (or as many as are ready), not consumed.
    pub(super) fn peek(&self, n: usize) -> &[u8] {
        &self.buffer[self.start..self.end.min(self.start + n)]
    }

    /// Consumes `n` bytes that are ready.
    pub(super) fn consume(&mut self, n: usize) {
        let n = n.min(self.ready());
        self.start += n;
        self.offset += n as u64;
    }

    /// Consumes `n` bytes, ready or not; `false` when the stream ends before.
    pub(super) fn skip(&mut self, mut n: u64) -> io::Result<bool> {
        loop {
            let now = n.min(self.ready() as u64);
            self.consume(now as usize);
            n -= now;
            if n == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }

    /// The offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}
