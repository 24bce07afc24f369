//! Writing to files whose reader may be slow or absent.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::outside;
use crate::poll::wait_writable;
use crate::stop::Stop;

/// The longest wait; afterwards the writer checks whether it should end.
const WAIT: Duration = Duration::from_millis(10);

/// The time without progress after which a run that should end stops waiting for a reader.
const GRACE: Duration = Duration::from_secs(1);

/// The bytes that a pipe with room accepts without blocking (`PIPE_BUF` of Linux).
const ROOM: usize = 4096;

/// A file that is open for writing.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    /// Whether it is standard output or error, whose position it shares.
    pub(crate) is_standard: bool,
}

/// Opens `path` for writing; creates the file if `create`, and empties nothing. Returns `None` for
/// a named pipe without a reader.
///
/// A path that leads to standard output or error shares their position, so that each appends to
/// what the other has written.
pub(crate) fn open(path: &Path, create: bool) -> io::Result<Option<Opened>> {
    outside::call(|| open_here(path, create))
}

fn open_here(path: &Path, create: bool) -> io::Result<Option<Opened>> {
    if let Some(file) = standard(path) {
        return Ok(Some(Opened { file, is_standard: true }));
    }
    // Without O_NONBLOCK, opening a named pipe waits for its reader.
    let options = &mut OpenOptions::new();
    options.write(true).create(create).truncate(false).custom_flags(libc::O_NONBLOCK);
    match options.open(path) {
        Ok(file) => Ok(Some(Opened { file, is_standard: false })),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe(path) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Standard output or standard error, if `path` leads there.
pub(crate) fn standard(path: &Path) -> Option<File> {
    let metadata = path.metadata().ok()?;
    let clone = |fd: BorrowedFd<'_>| {
        let file = File::from(fd.try_clone_to_owned().ok()?);
        let own = file.metadata().ok()?;
        ((own.dev(), own.ino()) == (metadata.dev(), metadata.ino())).then_some(file)
    };
    clone(io::stdout().as_fd()).or_else(|| clone(io::stderr().as_fd()))
}

fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Opens `path` like [`open`], and creates it; waits for the reader of a named pipe until `stop`.
pub(crate) fn open_patiently(path: &Path, stop: &Stop) -> io::Result<Opened> {
    loop {
        if let Some(opened) = open(path, true)? {
            return Ok(opened);
        }
        if stop.is_requested() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no reader has opened it"));
        }
        thread::sleep(WAIT);
    }
}

/// A writer that waits for a slow reader, but not for one that has stalled when the run should
/// end.
#[derive(Debug)]
pub struct PatientWriter {
    file: File,
    /// Whether writing never waits for a reader.
    is_regular: bool,
    /// Whether the wait for the reader was given up: later writes do not wait.
    is_stalled: bool,
    stop: Stop,
}

impl PatientWriter {
    /// A writer to `file`.
    ///
    /// # Errors
    /// When the system cannot describe the file.
    pub fn new(file: File, stop: Stop) -> io::Result<Self> {
        let is_regular = file.metadata()?.is_file();
        Ok(Self { file, is_regular, is_stalled: false, stop })
    }

    /// A writer to standard output, past its buffer.
    ///
    /// # Errors
    /// When standard output is closed.
    pub fn stdout(stop: Stop) -> io::Result<Self> {
        io::stdout().flush()?;
        Self::new(io::stdout().as_fd().try_clone_to_owned()?.into(), stop)
    }

    /// Another writer to the same open file.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        Ok(Self { file, stop: self.stop.clone(), ..*self })
    }

    /// Whether the file can be truncated, and never blocks.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_regular
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Writes all `parts`, one after the other; returns the number of bytes that the file accepted before an
    /// error.
    pub(crate) fn write_counted(
        &mut self,
        mut parts: &mut [IoSlice<'_>],
    ) -> (usize, io::Result<()>) {
        let mut done = 0;
        // Also passes over empty ones.
        IoSlice::advance_slices(&mut parts, 0);
        while let Some(first) = parts.first() {
            let written =
                if self.is_regular { self.file.write_vectored(parts) } else { self.write(first) };
            match written {
                Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    done += n;
                    IoSlice::advance_slices(&mut parts, n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }
}

impl Write for PatientWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_regular {
            return self.file.write(bytes);
        }
        // The file may block, since standard output is shared with other processes; a pipe that
        // has room accepts a short write whole.
        let bytes = &bytes[..bytes.len().min(ROOM)];
        let since = Instant::now();
        loop {
            if wait_writable(&self.file, WAIT) {
                match self.file.write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
            }
            if self.stop.is_requested() && (self.is_stalled || since.elapsed() >= GRACE) {
                self.is_stalled = true;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader has stalled"));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
