//! A file that is read from its start to its end, without waiting for what a pipe does not hold yet.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use thalweg_source::poll::is_hung_up;

/// An open file. Reading one whose next bytes may come later, a pipe or a terminal, returns an
/// error of the kind `WouldBlock` until they do.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    file: Arc<File>,
    kind: Kind,
    /// Whether bytes have arrived.
    has_begun: Arc<AtomicBool>,
    /// Its bytes, if they are all there.
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All bytes are there.
    Regular,
    Pipe,
    Other,
}

impl Stream {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Without O_NONBLOCK, opening a named pipe waits for its writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            kind if kind.is_file() || kind.is_block_device() => Kind::Regular,
            kind if kind.is_fifo() => Kind::Pipe,
            _ => Kind::Other,
        };
        Ok(Self { file: Arc::new(file), kind, has_begun: Arc::default(), size: metadata.len() })
    }

    /// The file, if its next bytes may come later.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (self.kind != Kind::Regular).then(|| self.file.as_fd())
    }

    /// How many bytes were read, and how many there are; `None` if that is unknown.
    pub(super) fn position(&self) -> Option<(u64, u64)> {
        if self.kind != Kind::Regular || self.size == 0 {
            return None;
        }
        let read = (&*self.file).stream_position().ok()?;
        Some((read.min(self.size), self.size))
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = (&*self.file).read(bytes);
        if self.kind == Kind::Pipe {
            match read {
                // No writer has opened the pipe yet.
                Ok(0) if !self.has_begun.load(Relaxed) && !is_hung_up(&*self.file) => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(_) => self.has_begun.store(true, Relaxed),
                Err(_) => {}
            }
        }
        read
    }
}
