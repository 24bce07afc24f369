//! A file that is read from its start to its end, without waiting for what a pipe does not hold yet.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::io::preadv;
use thalweg_source::outside;
use thalweg_source::poll::is_hung_up;

use super::peer::Listener;

/// An open file; clones read on from one position. Reading one whose next bytes may come later, a
/// pipe, a socket or a terminal, returns an error of the kind `WouldBlock` until they do.
#[derive(Clone, Debug)]
pub(super) struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Hold,
    kind: Kind,
    /// Whether bytes have arrived.
    has_begun: AtomicBool,
    /// The bytes read, and all there are; for a regular file.
    position: AtomicU64,
    size: u64,
}

/// What a file costs while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// A descriptor and large buffers, and a thread that decompresses a long file.
    Full,
    /// A descriptor and large buffers.
    Large,
    /// No descriptor of a regular file, and small buffers: many files are open.
    Small,
}

/// What keeps the file.
#[derive(Debug)]
enum Hold {
    Descriptor(File),
    /// Its name, by which it is opened for each read; and its device and inode, so that another
    /// file that takes the name meanwhile is not read on.
    Name(PathBuf, (u64, u64)),
    /// A connection that a peer opens later.
    Listener(Listener),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All bytes are there.
    Regular,
    Pipe,
    Other,
}

impl Stream {
    pub(super) fn open(path: &Path, upkeep: Upkeep) -> io::Result<Self> {
        let (file, metadata) = open(path)?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            kind if kind.is_file() || kind.is_block_device() => Kind::Regular,
            kind if kind.is_fifo() => Kind::Pipe,
            _ => Kind::Other,
        };
        let file = match (upkeep, kind) {
            (Upkeep::Small, Kind::Regular) => Hold::Name(path.to_owned(), identity(&metadata)),
            _ => Hold::Descriptor(file),
        };
        let (has_begun, position) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self(Arc::new(Inner { file, kind, has_begun, position, size: metadata.len() })))
    }

    /// A connection, which never blocks.
    pub(super) fn connected(connection: File) -> Self {
        Self::later(Hold::Descriptor(connection))
    }

    /// The connection that a listener will accept.
    pub(super) fn awaited(listener: Listener) -> Self {
        Self::later(Hold::Listener(listener))
    }

    fn later(file: Hold) -> Self {
        let (has_begun, position) = (AtomicBool::new(false), AtomicU64::new(0));
        Self(Arc::new(Inner { file, kind: Kind::Other, has_begun, position, size: 0 }))
    }

    /// The file, if its next bytes may come later.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.file {
            Hold::Listener(listener) => Some(listener.descriptor()),
            Hold::Descriptor(file) if self.0.kind != Kind::Regular => Some(file.as_fd()),
            _ => None,
        }
    }

    /// How many bytes were read, and how many there are; `None` if that is unknown.
    pub(super) fn position(&self) -> Option<(u64, u64)> {
        if self.0.kind != Kind::Regular || self.0.size == 0 {
            return None;
        }
        Some((self.0.position.load(Relaxed).min(self.0.size), self.0.size))
    }

    /// Reads from `at` on, whatever was read before; only from a regular file that has a descriptor.
    pub(super) fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        match &self.0.file {
            Hold::Descriptor(file) => file.read_at(bytes, at),
            Hold::Name(..) | Hold::Listener(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The same into several parts, one after the other.
    pub(super) fn read_scattered_at(
        &self,
        parts: &mut [IoSliceMut<'_>],
        at: u64,
    ) -> io::Result<usize> {
        match &self.0.file {
            Hold::Descriptor(file) => Ok(preadv(file, parts, at)?),
            Hold::Name(..) | Hold::Listener(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Inner {
    fn read_regular(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let at = self.position.load(Relaxed);
        let read = match &self.file {
            Hold::Descriptor(file) => file.read_at(bytes, at)?,
            Hold::Listener(_) => return Err(io::ErrorKind::Unsupported.into()),
            Hold::Name(path, expected) => {
                let (file, metadata) = open(path)?;
                if identity(&metadata) != *expected {
                    return Err(io::Error::other("another file has taken its name"));
                }
                file.read_at(bytes, at)?
            }
        };
        self.position.store(at + read as u64, Relaxed);
        Ok(read)
    }

    fn read_pipe(&self, mut file: &File, bytes: &mut [u8]) -> io::Result<usize> {
        let read = file.read(bytes);
        match read {
            // No writer has opened the pipe yet.
            Ok(0) if !self.has_begun.load(Relaxed) && !is_hung_up(file) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(_) => self.has_begun.store(true, Relaxed),
            Err(_) => {}
        }
        read
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match (&self.0.file, self.0.kind) {
            (Hold::Name(..), _) | (Hold::Descriptor(_), Kind::Regular) => {
                self.0.read_regular(bytes)
            }
            (Hold::Descriptor(file), Kind::Pipe) => self.0.read_pipe(file, bytes),
            (Hold::Descriptor(file), Kind::Other) => {
                let mut file: &File = file;
                file.read(bytes)
            }
            (Hold::Listener(listener), _) => {
                let mut connection = listener.client()?;
                connection.read(bytes)
            }
        }
    }
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // Without O_NONBLOCK, opening a named pipe waits for its writer.
    outside::call(|| {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    })
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
