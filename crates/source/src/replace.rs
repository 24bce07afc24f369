//! Files whose content is replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::output::{OutputFile, State, is_no_obstacle, lock, locked};
use crate::outside;
use crate::patient::{Opened, PatientWriter, open};

/// The most symbolic links that are followed, as in Linux.
const MAX_LINKS: usize = 40;

/// How often a file that another run has just renamed is created again.
const ATTEMPTS: usize = 8;

impl OutputFile {
    /// Replaces the content as a whole: a reader never sees a part of it, and after an error it
    /// is as before. A pipe or a device, and a file in a folder that takes no new ones, is written
    /// in place.
    ///
    /// # Errors
    /// When it cannot be written, or another run writes it.
    pub fn replace(
        &self,
        write: impl FnOnce(&mut BufWriter<PatientWriter>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state();
        // The file that a symbolic link leads to, so that the link stays.
        let path = outside::call(|| end_of_links(self.path()));
        if matches!(*state, State::Closed) {
            match open(&path, false) {
                Ok(Some(opened)) => *state = State::Claimed(locked(opened)?),
                Ok(None) => {}
                Err(error) if is_no_obstacle(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let is_file = match &*state {
            State::Claimed(Opened { file, is_standard }) => {
                !is_standard && file.metadata()?.is_file()
            }
            State::Closed => {
                let found = outside::call(|| path.metadata());
                found.map_or(true, |metadata| metadata.is_file())
            }
            State::Begun(_) => false,
        };
        if !is_file {
            return fill(&mut self.begin(&mut state)?.writer, write);
        }
        let new = beside(&path);
        match (outside::call(|| create(&new)), &mut *state) {
            (Ok(file), state) => {
                let mut writer = PatientWriter::new(file.try_clone()?, self.stop())?;
                let replaced = fill(&mut writer, write);
                let replaced = replaced.and_then(|()| outside::call(|| fs::rename(&new, &path)));
                if replaced.is_err() {
                    let _ = outside::call(|| fs::remove_file(&new));
                    return replaced;
                }
                // The lock is that of the new file; the old one is closed after it has gone.
                *state = State::Claimed(Opened { file, is_standard: false });
                Ok(())
            }
            (Err(error), State::Claimed(Opened { file, .. })) if is_read_only(&error) => {
                file.set_len(0)?;
                file.rewind()?;
                fill(&mut PatientWriter::new(file.try_clone()?, self.stop())?, write)
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// The path that a symbolic link leads to, whether a file exists there or writing would create it.
pub fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or_else(|| Path::new("")).join(target);
    }
    path
}

fn fill(
    writer: &mut PatientWriter,
    write: impl FnOnce(&mut BufWriter<PatientWriter>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(writer.another()?);
    write(&mut out)?;
    out.into_inner().map(drop).map_err(io::IntoInnerError::into_error)
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The path of a file until it is complete.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Creates an empty, locked file at `path`. One that an interrupted run has left there is emptied;
/// a link is removed, so that nothing is written to the file that it leads to.
pub fn create(path: &Path) -> io::Result<File> {
    for _ in 0..ATTEMPTS {
        if path.symlink_metadata().is_ok_and(|old| !old.is_dir() && !is_own(&old)) {
            fs::remove_file(path)?;
        }
        let options = &mut OpenOptions::new();
        options.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path)?;
        lock(&file)?;
        // Another run may have renamed it before it was locked, or linked it.
        let (opened, named) = (file.metadata()?, path.symlink_metadata());
        let is_same = named.is_ok_and(|n| (n.dev(), n.ino()) == (opened.dev(), opened.ino()));
        if is_same && is_own(&opened) {
            file.set_len(0)?;
            return Ok(file);
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "in use by another run"))
}

/// Whether a file has no other name.
fn is_own(metadata: &fs::Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1
}
