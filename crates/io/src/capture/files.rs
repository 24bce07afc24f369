//! The files of one input.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thalweg_packet::Nanoseconds;

use super::record::{Next, Reader};
use super::stream::Upkeep;
use crate::port::IoError;

/// The capture files whose packets are one input's, in the order of their first packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureFiles {
    pub(super) files: Vec<CaptureFile>,
}

/// One of several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CaptureFile {
    pub(super) path: PathBuf,
    /// The time of its first packet; zero if it has none, or none before its damage.
    pub(super) first: Nanoseconds,
    /// Its size in bytes.
    pub(super) size: u64,
}

impl CaptureFiles {
    /// One file or pipe, which is not opened.
    pub fn one(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { files: vec![CaptureFile { path, first: Nanoseconds::default(), size: 0 }] }
    }

    /// Several files: opens each, one after the other, and reads its first packet. A file that is
    /// named twice, also by links, is read once.
    ///
    /// Also returns the errors of those that cannot be read or are no captures, which are left out.
    /// Damage after a file's header is found when it is read.
    pub fn several(paths: impl IntoIterator<Item = PathBuf>) -> (Self, Vec<IoError>) {
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        let mut known = HashSet::new();
        for path in paths {
            match CaptureFile::look_into(&path, &mut known) {
                Ok(file) => files.extend(file),
                Err(error) => errors.push(error),
            }
        }
        // Stable: among files that begin at the same time, the order is that of the names.
        files.sort_by_key(|file| file.first);
        (Self { files }, errors)
    }

    /// The paths of the files.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }
}

impl CaptureFile {
    /// Reads the first packet of a file; returns `None` for a file that is `known` already.
    fn look_into(path: &Path, known: &mut HashSet<(u64, u64)>) -> Result<Option<Self>, IoError> {
        let failed = |source| IoError::File { path: path.into(), source };
        let metadata = path.metadata().map_err(failed)?;
        if !metadata.is_file() && !metadata.is_dir() {
            let what = "it is not a file, which several captures in one input must be".into();
            return Err(IoError::Format { path: path.into(), what });
        }
        if !known.insert((metadata.dev(), metadata.ino())) {
            return Ok(None);
        }
        let first = match Reader::open(path, Upkeep::Small)?.next() {
            Ok(Next::Record(record)) => record.timestamp,
            _ => Nanoseconds::default(),
        };
        Ok(Some(Self { path: path.into(), first, size: metadata.len() }))
    }
}
