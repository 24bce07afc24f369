//! A file that a run writes: no other run writes it meanwhile, and it never ends within a record.
//!
//! The file is locked (flock(2)) before it is emptied, and stays locked while it is open. A file
//! that grows is not written elsewhere and renamed: a reader may follow it (`tail -f`), the
//! folder may be read-only, and a name like /dev/stdout must not be replaced. Pipes and devices
//! are not locked.

use std::fs::{File, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::access::check_writable;
use crate::patient::{Opened, PatientWriter, open, open_patiently};
use crate::stop::Stop;

/// A file that a run writes. Clones refer to the same open file.
#[derive(Clone, Debug)]
pub struct OutputFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    stop: OnceLock<Stop>,
    /// Whether its content is replaced as a whole.
    is_replaced: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) enum State {
    #[default]
    Closed,
    /// Open and locked; the content is still that of an earlier run.
    Claimed(Opened),
    /// Emptied by this run, which continues it.
    Begun(Growing),
}

/// A file that this run has begun.
#[derive(Debug)]
pub(crate) struct Growing {
    pub(crate) writer: PatientWriter,
    /// Whether it is a file of its own, rather than a pipe, a device or standard output.
    pub(crate) is_own: bool,
    /// Its bytes; of a file that is not its own, those that this run has written.
    pub(crate) length: u64,
    /// Whether this run has written nothing to it.
    pub(crate) is_new: bool,
    /// The length at which it is renamed at the earliest, after an attempt that failed.
    pub(crate) patience: u64,
}

impl Growing {
    /// An empty file.
    pub(crate) fn new(writer: PatientWriter, is_standard: bool) -> Self {
        let is_own = writer.is_regular() && !is_standard;
        Self { writer, is_own, length: 0, is_new: true, patience: 0 }
    }

    /// Appends `bytes`; see [`OutputFile::append`].
    pub(crate) fn append(
        &mut self,
        bytes: &[u8],
        whole: impl FnOnce(usize) -> usize,
    ) -> Result<(), Incomplete> {
        self.append_parts(&mut [IoSlice::new(bytes)], whole)
    }

    /// Appends `parts`; see [`OutputFile::append_parts`].
    fn append_parts(
        &mut self,
        parts: &mut [IoSlice<'_>],
        whole: impl FnOnce(usize) -> usize,
    ) -> Result<(), Incomplete> {
        let (accepted, result) = self.writer.write_counted(parts);
        let kept = if result.is_ok() { accepted } else { whole(accepted) };
        if self.writer.is_regular() && kept < accepted {
            // This fails only where the write would have failed before its first byte.
            let _ = retract(self.writer.file(), (accepted - kept) as u64);
        }
        self.length += kept as u64;
        self.is_new &= kept == 0;
        result.map_err(|error| Incomplete { kept, error })
    }
}

/// Why a write failed, and how much of it the file holds.
#[derive(Debug)]
pub struct Incomplete {
    /// The bytes of the write that are in the file, all of whole records.
    pub kept: usize,
    /// The system's error.
    pub error: io::Error,
}

impl From<io::Error> for Incomplete {
    fn from(error: io::Error) -> Self {
        Self { kept: 0, error }
    }
}

/// Equal if what one writes, the other goes on with.
impl PartialEq for OutputFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl OutputFile {
    /// The file at `path`, which is not opened yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Shared {
            path: path.into(),
            stop: OnceLock::new(),
            is_replaced: AtomicBool::new(false),
            state: Mutex::default(),
        }))
    }

    /// An open file that is no regular one, such as a connection, and must not block; messages name
    /// it as `path`.
    pub fn opened(path: impl Into<PathBuf>, file: File) -> Self {
        let output = Self::new(path);
        *output.state() = State::Claimed(Opened { file, is_standard: false });
        output
    }

    /// The same file, whose content [`replace`](Self::replace) writes as a whole.
    #[must_use]
    pub fn replaced(self) -> Self {
        self.0.is_replaced.store(true, Relaxed);
        self
    }

    /// Whether its content is replaced as a whole.
    pub fn is_replaced(&self) -> bool {
        self.0.is_replaced.load(Relaxed)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Lets writes wait for a reader until `stop` only.
    pub fn stop_with(&self, stop: &Stop) {
        self.0.stop.get_or_init(|| stop.clone());
    }

    /// Checks that a run can write the file, as far as that is known without an effect.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(&self) -> io::Result<()> {
        check_writable(self.path(), self.is_replaced())
    }

    /// Opens the file and locks it for this run; its content stays until the first write. A file
    /// that is replaced as a whole is not created, and a named pipe may have no reader yet.
    ///
    /// # Errors
    /// When it cannot be opened, or another run writes it.
    pub fn claim(&self) -> io::Result<()> {
        let mut state = self.state();
        if !matches!(*state, State::Closed) {
            return Ok(());
        }
        let is_replaced = self.is_replaced();
        match open(self.path(), !is_replaced) {
            Ok(Some(opened)) => *state = State::Claimed(locked(opened)?),
            Ok(None) => {}
            // A new file takes its place, whether it exists and is writable or not.
            Err(error) if is_replaced && is_no_obstacle(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Appends `bytes` to what this run has written; the first call empties the file. Without
    /// bytes, only creates it.
    ///
    /// # Errors
    /// When the file accepts only the first `n` bytes. It is then truncated to `whole(n)` of them,
    /// unless it is a pipe.
    pub fn append(
        &self,
        bytes: &[u8],
        whole: impl FnOnce(usize) -> usize,
    ) -> Result<(), Incomplete> {
        if bytes.is_empty() {
            self.claim()?;
        }
        let mut state = self.state();
        if bytes.is_empty() && matches!(*state, State::Closed) {
            return Ok(()); // nothing for the reader of a named pipe to wait for
        }
        self.begin(&mut state)?.append(bytes, whole)
    }

    /// The same with the bytes of `parts`, one after the other, of which some must be there.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_parts(
        &self,
        parts: &mut [IoSlice<'_>],
        whole: impl FnOnce(usize) -> usize,
    ) -> Result<(), Incomplete> {
        self.begin(&mut self.state())?.append_parts(parts, whole)
    }

    /// The open file, emptied if this is its first use.
    pub(crate) fn begin<'a>(&self, state: &'a mut State) -> io::Result<&'a mut Growing> {
        if !matches!(state, State::Begun(_)) {
            let stop = self.stop();
            let opened = match std::mem::take(state) {
                State::Claimed(opened) => opened,
                _ => locked(open_patiently(self.path(), &stop)?)?,
            };
            let is_standard = opened.is_standard;
            let mut growing = Growing::new(PatientWriter::new(opened.file, stop)?, is_standard);
            if growing.is_own {
                growing.writer.file().set_len(0)?;
            }
            *state = State::Begun(growing);
        }
        match state {
            State::Begun(growing) => Ok(growing),
            _ => unreachable!("it was begun above"),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) -> Stop {
        self.0.stop.get().cloned().unwrap_or_default()
    }
}

/// Whether a file that cannot be opened for writing can be replaced by another all the same.
pub(crate) fn is_no_obstacle(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Locks a regular file until it is closed.
pub(crate) fn locked(opened: Opened) -> io::Result<Opened> {
    if !opened.is_standard && opened.file.metadata()?.is_file() {
        lock(&opened.file)?;
    }
    Ok(opened)
}

/// Locks a file or a folder until it is closed.
///
/// # Errors
/// When another run keeps it locked for a tenth of a second. A file system without locks is not an error.
pub fn lock(file: &File) -> io::Result<()> {
    let begin = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        // A process that this one has just started has what is closed here until it runs its program.
        if begin.elapsed() > Duration::from_millis(100) {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "in use by another run"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Truncates the last `excess` bytes that were written to `file`.
fn retract(file: &mut File, excess: u64) -> io::Result<()> {
    let end = file.stream_position()?;
    // Another process may have appended to a file that is shared with it.
    if file.metadata()?.len() == end {
        file.set_len(end - excess)?;
        file.seek(SeekFrom::Start(end - excess))?;
    }
    Ok(())
}
