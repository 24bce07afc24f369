//! Files of records that grow without end: at a size they are renamed and begun again, and they are
//! opened again after another program has renamed them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::output::{Growing, Incomplete, OutputFile, State, lock, locked};
use crate::outside;
use crate::patient::{PatientWriter, open, standard};
use crate::replace::{beside, end_of_links};

/// When a file that grows is renamed, and a new one is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The most bytes of a file; a larger record has a file of its own.
    pub size: u64,
    /// The number of renamed files that are kept.
    pub keep: u32,
}

/// The form of the records of a file.
pub trait Records {
    /// The length in bytes of the whole records at the start of `bytes`, which may be truncated.
    fn whole(&self, bytes: &[u8]) -> usize;

    /// The length in bytes of the first record of `bytes`, which are whole records.
    fn first(&self, bytes: &[u8]) -> usize;

    /// What each file begins with, in the form of a record, if its first records are `next`.
    fn header(&self, next: &[u8]) -> Vec<u8> {
        let _ = next;
        Vec::new()
    }
}

/// Records of one line each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines;

impl Records for Lines {
    fn whole(&self, bytes: &[u8]) -> usize {
        bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    fn first(&self, bytes: &[u8]) -> usize {
        bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1)
    }
}

/// The path to which the file at `path` is renamed as the newest of the renamed ones (1), or an
/// older one.
pub fn renamed(path: &Path, number: u32) -> PathBuf {
    let path = end_of_links(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    path.with_file_name(name)
}

impl OutputFile {
    /// Appends whole `records` to what this run has written; the first call empties the file. With
    /// a `rotation`, a file that has reached its size is renamed between two records, and a new one
    /// is begun, with the same permissions. If that fails, the old file is continued, and the reason is
    /// returned. Without records, only creates the file, with its header.
    ///
    /// Only files are renamed: never pipes, devices and standard output.
    ///
    /// # Errors
    /// When a file does not accept all records. It is then truncated to the whole ones, unless it
    /// is a pipe.
    pub fn append_records(
        &self,
        records: &[u8],
        form: &impl Records,
        rotation: Option<Rotation>,
    ) -> Result<Option<io::Error>, Incomplete> {
        if records.is_empty() {
            self.claim()?;
        }
        let mut state = self.state();
        if records.is_empty() && matches!(*state, State::Closed) {
            return Ok(None); // nothing for the reader of a named pipe to wait for
        }
        let (mut kept, mut refused) = (0, None);
        loop {
            let rest = &records[kept..];
            let incomplete = |error| Incomplete { kept, error };
            let growing = self.begin(&mut state).map_err(incomplete)?;
            let rotation = rotation.filter(|_| growing.is_own);
            if let Some(Rotation { size, keep }) = rotation
                && !rest.is_empty()
                && growing.is_full(form.first(rest), size)
                && let Err(error) = outside::call(|| self.rotate(growing, keep))
            {
                // Not once a record: the next attempt is worth its while after as many bytes.
                growing.patience = growing.length.saturating_add(size);
                refused.get_or_insert(error);
            }
            kept += growing
                .fill(rest, form, rotation)
                .map_err(|incomplete| Incomplete { kept: kept + incomplete.kept, ..incomplete })?;
            if kept == records.len() {
                return Ok(refused);
            }
        }
    }

    /// Opens the file at this path again if another program has renamed or removed the one that is
    /// open, and returns whether it has. A new file has the permissions of the first; what is in the
    /// file already stays.
    ///
    /// # Errors
    /// When the path names no file that can be written; the one that is open is continued.
    pub fn reopen(&self) -> io::Result<bool> {
        outside::call(|| self.reopen_here())
    }

    fn reopen_here(&self) -> io::Result<bool> {
        let mut state = self.state();
        match &mut *state {
            State::Begun(growing) if growing.is_own => {
                if is_at(growing.writer.file(), self.path())? {
                    return Ok(false);
                }
                self.open_again(growing).map(|()| true)
            }
            State::Claimed(opened) if !self.is_replaced() && !opened.is_standard => {
                if !opened.file.metadata()?.is_file() || is_at(&opened.file, self.path())? {
                    return Ok(false);
                }
                let again = open(self.path(), true)?.map(locked).transpose()?;
                *state = again.map_or(State::Closed, State::Claimed);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether a file at this path could be renamed, as far as that is known without an effect: no
    /// pipe, no device, and not standard output or error.
    pub fn is_rotatable(&self) -> bool {
        standard(self.path()).is_none() && self.path().metadata().map_or(true, |m| m.is_file())
    }

    /// Renames the file, and begins a new one in its place.
    fn rotate(&self, growing: &mut Growing, keep: u32) -> io::Result<()> {
        let path = end_of_links(self.path());
        if !is_at(growing.writer.file(), &path)? {
            // What is there is not this run's to rename.
            return self.open_again(growing);
        }
        let new = beside(&path);
        // An interrupted run may have left it there.
        let _ = fs::remove_file(&new);
        let file = create_like(&new, growing.writer.file())?;
        let writer = PatientWriter::new(file, self.stop())?;
        let first = renamed(&path, 1);
        let placed =
            make_room(&path, keep).and_then(|()| fs::rename(&path, &first)).and_then(|()| {
                fs::rename(&new, &path).inspect_err(|_| drop(fs::rename(&first, &path)))
            });
        if placed.is_err() {
            let _ = fs::remove_file(&new);
            return placed;
        }
        *growing = Growing::new(writer, false);
        Ok(())
    }

    /// Continues with the file that is at the path now, or with a new one.
    fn open_again(&self, growing: &mut Growing) -> io::Result<()> {
        let path = end_of_links(self.path());
        let other = || io::Error::new(io::ErrorKind::AlreadyExists, "not a file any more");
        let file = match path.metadata() {
            Ok(found) if !found.is_file() || standard(&path).is_some() => return Err(other()),
            Ok(_) => {
                let opened = open(&path, false)?.ok_or_else(other)?;
                locked(opened)?.file
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_like(&path, growing.writer.file())?
            }
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(other());
        }
        let mut again = Growing::new(PatientWriter::new(file, self.stop())?, false);
        again.length = again.writer.file().seek(SeekFrom::End(0))?;
        *growing = again;
        Ok(())
    }
}

impl Growing {
    /// Whether a record of `next` bytes belongs into another file.
    fn is_full(&self, next: usize, size: u64) -> bool {
        self.length > 0 && self.length + next as u64 > size.max(self.patience)
    }

    /// Appends the first of `records`: as many as this file may hold, and at least one; returns
    /// their length in bytes.
    fn fill(
        &mut self,
        records: &[u8],
        form: &impl Records,
        rotation: Option<Rotation>,
    ) -> Result<usize, Incomplete> {
        let header = if self.is_new { form.header(records) } else { Vec::new() };
        let mut taken = records.len();
        if let Some(Rotation { size, .. }) = rotation {
            let used = self.length + header.len() as u64;
            let room = size.max(self.patience).saturating_sub(used);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            if room < taken {
                taken = match form.whole(&records[..room]) {
                    0 => form.first(records).clamp(1, taken),
                    whole => whole,
                };
            }
        }
        let joined;
        let bytes = if header.is_empty() {
            &records[..taken]
        } else {
            joined = [&header, &records[..taken]].concat();
            &joined
        };
        let appended = self.append(bytes, |accepted| form.whole(&bytes[..accepted]));
        appended.map(|()| taken).map_err(|incomplete| Incomplete {
            kept: incomplete.kept.saturating_sub(header.len()),
            ..incomplete
        })
    }
}

/// Whether `path` leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    Ok(path.metadata().is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())))
}

/// Creates an empty, locked file at `path`, where none is yet, with the permissions of `model`.
fn create_like(path: &Path, model: &File) -> io::Result<File> {
    let options = &mut OpenOptions::new();
    // Readable for others only when it is known who may read it.
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    lock(&file)?;
    let (model, own) = (model.metadata()?, file.metadata()?);
    if (model.uid(), model.gid()) != (own.uid(), own.gid()) {
        // Only root may give files away; the files of others are their own.
        let _ = fchown(&file, Some(model.uid()), Some(model.gid()));
    }
    // A file system may have no permissions.
    let _ = file.set_permissions(model.permissions());
    Ok(file)
}

/// Renames the files that were renamed before, so that number 1 is free; the oldest of `keep` is
/// overwritten.
fn make_room(path: &Path, keep: u32) -> io::Result<()> {
    let is_there = |number: u32| {
        let path = renamed(path, number);
        match path.symlink_metadata() {
            Ok(found) if found.is_file() => Ok(true),
            Ok(_) => {
                let message = format!("{} is not a file", path.display());
                Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    };
    let mut last = 1;
    while is_there(last)? && last < keep {
        last += 1;
    }
    for number in (1..last).rev() {
        fs::rename(renamed(path, number), renamed(path, number + 1))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
