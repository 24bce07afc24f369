//! Whether a run may read or write a file, without opening it where that has an effect: nothing
//! is created or changed, and the reader of a pipe does not notice.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statfs};

use crate::patient::standard;
use crate::replace::end_of_links;

/// File systems of the kernel in whose folders no file can be created, whatever their permissions:
/// proc, sysfs, cgroup2 and devpts (`linux/magic.h`).
const OF_KERNEL: [u64; 4] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x1cd1];

/// Checks that the file at `path` can be read.
///
/// # Errors
/// The reason why it cannot.
pub fn check_readable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_file() {
        return File::open(path).map(drop);
    }
    Ok(accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS)?)
}

/// Checks that the file at `path` can be written, or else created; with `is_replaced`, that another
/// file can take its place.
///
/// # Errors
/// The reason why it cannot.
pub fn check_writable(path: &Path, is_replaced: bool) -> io::Result<()> {
    if standard(path).is_some() {
        return Ok(());
    }
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => match check_open(path) {
            Err(error) if is_replaced => check_folder(path).map_err(|_| error),
            other => other,
        },
        Ok(_) => Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_folder(path),
        Err(error) => Err(error),
    }
}

fn check_open(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).map(drop)
}

/// Checks that files can be created in the folder of `path`, or of the file that it links to.
///
/// # Errors
/// The reason why they cannot.
pub fn check_folder(path: &Path) -> io::Result<()> {
    let path = end_of_links(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, &folder, access, AtFlags::EACCESS)?;
    if OF_KERNEL.contains(&(statfs(&folder)?.f_type as u64 & 0xffff_ffff)) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// Why no file can have this path, and what was expected.
pub fn misplaced(path: &Path) -> Option<(&'static str, &'static str)> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    if folder.is_some_and(|f| !f.is_dir()) {
        return Some(("no such folder for this file", "a path in an existing folder"));
    }
    path.is_dir().then_some(("this is a folder", "a file"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refusal(path: &Path, is_replaced: bool) -> Option<io::ErrorKind> {
        check_writable(path, is_replaced).err().map(|error| error.kind())
    }

    #[test]
    fn files_are_checked_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "content").unwrap();
        std::os::unix::fs::symlink("later", path("link")).unwrap();
        for name in ["old", "new", "link"] {
            assert_eq!((refusal(&path(name), false), refusal(&path(name), true)), (None, None));
        }
        assert_eq!(fs::read_to_string(path("old")).unwrap(), "content");
        assert!(!path("new").exists() && !path("later").exists(), "nothing was created");
        let denied = Some(io::ErrorKind::PermissionDenied);
        std::os::unix::fs::symlink("/proc/later", path("into")).unwrap();
        for name in ["/proc/x.pcap", "/sys/x.pcap", "/sys/kernel/x.json"].map(Path::new) {
            assert_eq!(refusal(name, false), denied, "{}", name.display());
        }
        assert_eq!(refusal(&path("into"), false), denied);
        assert_eq!(refusal(folder.path(), false), Some(io::ErrorKind::IsADirectory));
        assert_eq!(refusal(&path("old/x"), false), Some(io::ErrorKind::NotADirectory));
        assert_eq!(refusal(&path("no/x"), false), Some(io::ErrorKind::NotFound));
        assert!(refusal(&path(&"n".repeat(300)), false).is_some());
        assert_eq!(refusal(Path::new("/dev/null"), false), None);
        assert!(check_readable(&path("old")).is_ok() && check_readable(&path("new")).is_err());
        assert!(check_readable(Path::new("/dev/null")).is_ok());
    }
}
