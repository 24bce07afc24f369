//! What NFs write passes through a pipe to standard output, in another form if need be.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_engine::Control;
use thalweg_source::PatientWriter;
use thalweg_source::poll::wait_readable;

/// The time without a line after which lines that are held back are shown.
const QUIET: Duration = Duration::from_secs(1);

/// Shows lines on standard output.
pub trait Show: Send {
    /// Shows whole lines, or holds them back.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn lines(&mut self, lines: &str, out: &mut dyn Write) -> io::Result<()>;

    /// Shows what is held back: no line has arrived for a while.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn pause(&mut self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Shows what is held back, at the end of a run.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn end(&mut self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// Lines as they are.
pub struct AsTheyAre;

impl Show for AsTheyAre {
    fn lines(&mut self, lines: &str, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(lines.as_bytes())
    }
}

/// A pipe whose lines a thread shows. If they cannot be shown, the run ends.
pub struct Relay {
    /// Keeps the pipe open until the run has ended.
    writer: PipeWriter,
    /// Whether there was a run, whose end is shown.
    has_run: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Relay {
    /// Starts to show lines.
    ///
    /// # Errors
    /// When the system has no pipe or thread left, or standard output is closed.
    pub fn start(show: Box<dyn Show>, control: Arc<Control>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let out = PatientWriter::stdout(control.stop_request())?;
        let has_run = Arc::new(AtomicBool::new(false));
        let ends = has_run.clone();
        let thread = thread::Builder::new().name("relay".into()).spawn(move || {
            let shown = Shown { show, out, control, result: Ok(()) };
            shown.all_lines(reader, &ends)
        })?;
        Ok(Self { writer, has_run, thread })
    }

    /// The path of the pipe, for this process.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.writer.as_raw_fd())
    }

    /// Waits until all lines are shown, and what is held back if the command `has_run`. The run
    /// must have closed the pipe.
    ///
    /// # Errors
    /// When standard output could not be written.
    pub fn finish(self, has_run: bool) -> io::Result<()> {
        self.has_run.store(has_run, Relaxed);
        drop(self.writer);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the relay panicked")))
    }
}

/// Lines on standard output, and the first failure to write it.
struct Shown {
    show: Box<dyn Show>,
    out: PatientWriter,
    control: Arc<Control>,
    result: io::Result<()>,
}

impl Shown {
    /// Shows something, unless that has failed before. A failure ends the run.
    fn show(&mut self, some: impl FnOnce(&mut dyn Show, &mut dyn Write) -> io::Result<()>) {
        if self.result.is_ok() {
            self.result = some(&mut *self.show, &mut self.out);
            if self.result.is_err() {
                self.control.stop();
            }
        }
    }

    /// Shows the lines of the pipe until it is closed. It is emptied after a failure too, so that
    /// no NF waits for its reader.
    fn all_lines(mut self, mut reader: PipeReader, has_run: &AtomicBool) -> io::Result<()> {
        let (mut pending, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            if !wait_readable(std::iter::once(reader.as_fd()), QUIET) {
                self.show(|show, out| show.pause(out));
                continue;
            }
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => pending.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let whole = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = String::from_utf8_lossy(&pending[..whole]);
            self.show(|show, out| show.lines(&lines, out));
            pending.drain(..whole);
        }
        if has_run.load(Relaxed) {
            self.show(|show, out| show.end(out));
        }
        self.result
    }
}
