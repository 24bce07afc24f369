//! A terminal that a command has for itself.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::flag;

/// A screen of its own, no cursor, and no line that wraps.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The screen, the cursor and the wrapping of before.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the first line.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears what is below.
const CLEAR_BELOW: &str = "\x1b[J";
/// The lines of a terminal that does not report its size.
const USUAL_ROWS: usize = 24;
/// A character that no key sends (`_POSIX_VDISABLE`).
const NO_KEY: u8 = 0;

/// What requests the end: signals, and keys of a terminal.
pub struct Keys {
    quit: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
    /// Whether keys are read.
    reads: bool,
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time is over.
    Time,
    /// The user wants the end.
    Quit,
    /// The terminal has another size.
    Resized,
}

impl Keys {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on; and keys, if it `reads` them.
    ///
    /// # Errors
    /// When the system refuses to install the handlers.
    pub fn take(reads: bool) -> io::Result<Self> {
        let (quit, resized) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // A second one ends the program at once, even while a run does not answer.
            flag::register_conditional_default(signal, quit.clone())?;
            flag::register(signal, quit.clone())?;
        }
        flag::register(SIGWINCH, resized.clone())?;
        Ok(Self { quit, resized, reads })
    }

    /// Waits until `end`, or until there is something else to do.
    ///
    /// # Errors
    /// When standard input cannot be read.
    pub fn wait(&self, end: Instant) -> io::Result<Woken> {
        let input = io::stdin();
        loop {
            if self.quit.load(SeqCst) {
                return Ok(Woken::Quit);
            }
            if self.resized.swap(false, SeqCst) {
                return Ok(Woken::Resized);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Woken::Time);
            }
            // At most a tenth of a second: a signal may arrive just before the wait.
            let left = left.min(Duration::from_millis(100));
            let time = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let mut all = [PollFd::new(&input, PollFlags::IN)];
            let watched = if self.reads { &mut all[..] } else { &mut [] };
            match poll(watched, Some(&time)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) if self.reads && Self::wants_quit(&input)? => return Ok(Woken::Quit),
                Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads the keys that were pressed. The end of the input is one of the program, too.
    fn wants_quit(input: &io::Stdin) -> io::Result<bool> {
        let mut keys = [0; 64];
        // Past the buffer of `Stdin`, in which keys would wait unseen.
        let read = match rustix::io::read(input, &mut keys) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            read => read?,
        };
        Ok(read == 0 || keys[..read].iter().any(|key| matches!(key, b'q' | b'Q')))
    }
}

/// The terminal, which gets back what it had when this is dropped.
pub struct Screen {
    /// The modes of the keyboard before, if it is one.
    modes: Option<Termios>,
}

impl Screen {
    /// Takes the terminal that standard output is.
    ///
    /// # Errors
    /// When it does not take text.
    pub fn take() -> io::Result<Self> {
        let input = io::stdin();
        let modes = if input.is_terminal() { tcgetattr(&input).ok() } else { None };
        if let Some(before) = &modes {
            let mut modes = before.clone();
            // Each key at once, and none is shown. Ctrl-C still interrupts; Ctrl-Z would leave the
            // shell with this screen.
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            modes.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
            tcsetattr(&input, OptionalActions::Now, &modes)?;
        }
        let screen = Self { modes };
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws `text` over what was there: as many lines as fit.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn draw(text: &str) -> io::Result<()> {
        let size = terminal_size::terminal_size_of(io::stdout());
        let rows = size.map_or(USUAL_ROWS, |(_, rows)| rows.0.into());
        write(&frame(text, rows))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing back.
        let _ = write(LEAVE);
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

/// The first `rows` lines of a text, drawn over what was there; the last one counts the others.
fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let fitting = if lines.len() > rows { rows.saturating_sub(1) } else { lines.len() };
    let rest = lines.len() - fitting;
    let more = (rest > 0).then(|| format!("({rest} more lines)"));
    let shown = lines.into_iter().take(fitting).chain(more.as_deref());
    let shown: Vec<_> = shown.map(|line| format!("{line}{CLEAR_LINE}")).collect();
    // No line end after the last line: the screen would scroll.
    format!("{HOME}{}{CLEAR_BELOW}", shown.join("\r\n"))
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_lines_that_fit_and_counts_the_others() {
        let shown = |text, rows| {
            let frame = frame(text, rows);
            let frame = frame.strip_prefix(HOME).and_then(|frame| frame.strip_suffix(CLEAR_BELOW));
            frame.unwrap().replace(CLEAR_LINE, "")
        };
        assert_eq!(shown("a\nb\nc", 3), "a\r\nb\r\nc");
        assert_eq!(shown("a\nb\nc\n", 2), "a\r\n(2 more lines)");
        assert_eq!(shown("a\nb\nc", 1), "(3 more lines)");
        assert_eq!(shown("", 0), "");
    }
}
