//! Compressed data that arrives piece by piece.

use flate2::{Decompress, FlushDecompress, Status};

/// Decompression stops once there are this many bytes.
const MOST: usize = 1 << 20;
/// As many are kept to go on with; where there are more, all is decompressed anew.
const SMALL: usize = 1 << 17;
/// About what the state of a decompressor takes, most of it the window.
const STATE: usize = 48 << 10;

/// Data decompressed as far as it has arrived.
#[derive(Debug)]
pub(super) struct Inflating {
    inflater: Decompress,
    /// Where the compressed data begins.
    begin: usize,
    decoded: Vec<u8>,
    has_failed: bool,
    is_over: bool,
}

impl Inflating {
    /// Decompresses `bytes` from `begin` on, up to the first error in them, if there is one.
    pub(super) fn new(bytes: &[u8], begin: usize, zlib: bool) -> Self {
        let room = bytes.len().saturating_mul(4).clamp(256, MOST);
        let mut new = Self {
            inflater: Decompress::new(zlib),
            begin,
            decoded: Vec::with_capacity(room),
            has_failed: false,
            is_over: false,
        };
        new.go_on(bytes);
        new
    }

    /// The same for more bytes: those from before, and others after them.
    pub(super) fn go_on(&mut self, bytes: &[u8]) {
        while !self.is_over {
            let (taken, made) = (self.inflater.total_in(), self.decoded.len());
            let rest = bytes.get(self.begin + taken as usize..).unwrap_or_default();
            let flush = FlushDecompress::None;
            let status = self.inflater.decompress_vec(rest, &mut self.decoded, flush);
            let is_stuck = self.inflater.total_in() == taken && self.decoded.len() == made;
            let is_full = self.decoded.len() == self.decoded.capacity();
            match status {
                Ok(Status::Ok | Status::BufError) if self.decoded.len() >= MOST => {
                    self.is_over = true;
                }
                Ok(Status::Ok | Status::BufError) if is_full => self.decoded.reserve(made.max(256)),
                Ok(Status::Ok | Status::BufError) if is_stuck => return,
                Ok(Status::Ok | Status::BufError) => {}
                Ok(Status::StreamEnd) => self.is_over = true,
                Err(_) => (self.has_failed, self.is_over) = (true, true),
            }
        }
    }

    pub(super) fn decoded(&self) -> &[u8] {
        &self.decoded
    }

    pub(super) fn into_decoded(self) -> Vec<u8> {
        self.decoded
    }

    /// Whether there is an error in the data.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether only the first bytes were decompressed, and they became over 500 times as many.
    pub(super) fn is_bomb(&self) -> bool {
        self.decoded.len() >= MOST && self.decoded.len() / 500 > self.inflater.total_in() as usize
    }

    /// Whether it is worth its memory.
    pub(super) fn is_small(&self) -> bool {
        self.decoded.len() <= SMALL
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        STATE + self.decoded.capacity()
    }
}
