//! The identity of a file: what two of its names have in common.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use thalweg_source::end_of_links;

/// A file, whatever the name that leads to it: a relative path, a symbolic or a hard link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// A file that exists, by its device and inode.
    Existing { device: u64, inode: u64 },
    /// A file that does not exist yet, by its folder's device and inode, and its name there.
    Missing { device: u64, inode: u64, name: OsString },
    /// A path in a folder that cannot be read.
    Unknown(PathBuf),
}

impl Identity {
    /// The identity of the file at `path`.
    pub(super) fn of(path: &Path) -> Self {
        if let Ok(found) = path.metadata() {
            return Self::Existing { device: found.dev(), inode: found.ino() };
        }
        let path = end_of_links(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new(".")).metadata();
        match (folder, path.file_name()) {
            (Ok(folder), Some(name)) => {
                Self::Missing { device: folder.dev(), inode: folder.ino(), name: name.into() }
            }
            _ => Self::Unknown(path),
        }
    }
}

/// How a file at `path` that is written excludes other uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// A file: each writer needs its own, and no reader may have it.
    File,
    /// A pipe: several may write to it.
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
