//! The identity of a file: what all of its names have in common.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::end_of_links;

/// A file, whatever the name that leads to it: a relative path, a symbolic or a hard link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// A file that exists.
    Existing {
        /// The device that holds it.
        device: u64,
        /// Its inode there.
        inode: u64,
    },
    /// A file that does not exist yet.
    Missing {
        /// The device that holds its folder.
        device: u64,
        /// The inode of its folder.
        inode: u64,
        /// Its name there.
        name: OsString,
    },
    /// A path in a folder that cannot be read.
    Unknown(PathBuf),
}

impl FileIdentity {
    /// The identity of the file at `path`.
    pub fn of(path: &Path) -> Self {
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
