//! How files that a chain writes exclude each other.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// How a file at `path` that is written excludes other uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// A file: each writer needs its own, and no reader may have it.
    File,
    /// A pipe: several NFs may write lines to it.
    Pipe,
    /// A device such as /dev/null, which loses nothing.
    None,
}

impl Exclusion {
    pub(super) fn of(path: &Path) -> Self {
        match path.metadata().map(|found| found.file_type()) {
            Ok(kind) if kind.is_fifo() => Self::Pipe,
            Ok(kind) if !kind.is_file() => Self::None,
            _ => Self::File,
        }
    }
}
