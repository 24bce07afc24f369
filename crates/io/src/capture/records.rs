//! The records of an input, which has one file or several.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use thalweg_packet::Nanoseconds;

use super::files::CaptureFiles;
use super::read_ahead::ReadAhead;
use super::record::{Next, Reader, Record};
use super::set::FileSet;
use super::stream::{Stream, Upkeep};
use crate::claims::Shared;
use crate::port::IoError;

/// Iterates over the records of an input's files.
pub(crate) enum Records {
    One(Reader),
    Several(FileSet),
}

impl Records {
    /// Opens the only file, or of several files the first when its first packet is due.
    ///
    /// # Errors
    /// If the only file cannot be opened, or is no capture.
    pub(crate) fn open(files: &CaptureFiles) -> Result<Self, IoError> {
        Ok(match &*files.files {
            [one] => Self::One(Reader::open(&one.path, Upkeep::Full)?),
            _ => Self::Several(FileSet::new(files.clone())),
        })
    }

    /// The records of a capture whose bytes arrive later; errors name it as `path`.
    pub(super) fn arriving(path: PathBuf, stream: Stream) -> Self {
        Self::One(Reader::arriving(path, stream))
    }

    /// Begins again with the first record.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn restart(&mut self) -> Result<(), IoError> {
        *self = match self {
            Self::One(reader) => Self::One(Reader::open(reader.path(), Upkeep::Full)?),
            Self::Several(set) => Self::Several(FileSet::new(set.files().clone())),
        };
        Ok(())
    }

    /// The next record.
    ///
    /// # Errors
    /// If a file is damaged. The next call returns a record of another one, or the end.
    pub(crate) fn next(&mut self) -> Result<Next, IoError> {
        match self {
            Self::One(reader) => reader.next(),
            Self::Several(set) => set.next(),
        }
    }

    /// The time of the record after `last`, which was read last; `None` if there is none, or none
    /// yet.
    pub(crate) fn following(&mut self, last: &Record) -> Option<Nanoseconds> {
        match self {
            Self::One(reader) => reader.following(last),
            Self::Several(set) => set.following(),
        }
    }

    /// The captured bytes of the record that was read last.
    pub(crate) fn data(&self, record: &Record) -> &[u8] {
        match self {
            Self::One(reader) => reader.data(record),
            Self::Several(set) => set.data(record),
        }
    }

    /// The same bytes in a buffer that stays unchanged while it is shared, if they lie in one.
    pub(crate) fn shared(&self, record: &Record) -> Option<Shared<'_>> {
        match self {
            Self::One(reader) => reader.shared(record),
            Self::Several(set) => set.shared(record),
        }
    }

    /// Reads files from here on in blocks of `len` bytes, which are shared, where that can be.
    pub(crate) fn share_blocks(&mut self, len: usize) {
        match self {
            Self::One(reader) => reader.share_blocks(len),
            Self::Several(set) => set.share_blocks(len),
        }
    }

    /// A part of a file that another thread may read.
    pub(crate) fn read_ahead(&mut self) -> Option<ReadAhead> {
        match self {
            Self::One(reader) => reader.read_ahead(),
            Self::Several(set) => set.read_ahead(),
        }
    }

    /// The file, if it is one whose next bytes may come later: a pipe, a socket or a terminal.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::One(reader) => reader.descriptor(),
            Self::Several(_) => None,
        }
    }

    /// The share of all bytes that was read.
    pub(crate) fn share(&self) -> Option<f64> {
        match self {
            Self::One(reader) => reader.share(),
            Self::Several(set) => set.share(),
        }
    }
}
