//! The terminal: its width, and standard error, which messages and a progress line share.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The columns of a terminal that does not report its size.
const USUAL: usize = 80;

/// The progress line that is drawn now; its lock is that of standard error.
static LINE: Mutex<String> = Mutex::new(String::new());

/// Moves the cursor to the start of its line, and clears the line.
const CLEAR: &str = "\r\x1b[K";

/// The columns that text for `output` may take: those of `COLUMNS` if it is set, else those of the
/// terminal; `None`, unlimited, if `output` is none.
pub fn columns(output: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let wanted = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    wanted.filter(|columns| *columns > 0).or_else(|| {
        let size = || terminal_size::terminal_size_of(output);
        output.is_terminal().then(|| size().map_or(USUAL, |(columns, _)| columns.0.into()))
    })
}

/// Standard error for messages: the progress line is cleared before each, and drawn again after it.
pub struct Messages;

impl Write for Messages {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let line = line();
        let mut error = io::stderr().lock();
        if line.is_empty() {
            error.write_all(message)?;
        } else {
            // At once, so that the line does not flicker.
            error.write_all(&[CLEAR.as_bytes(), message, line.as_bytes()].concat())?;
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A progress line on standard error, which is a terminal. Dropping it clears the line.
pub struct Line {
    error: io::Stderr,
}

impl Line {
    /// Returns the line, unless `quiet`, or unless standard error is not a terminal.
    pub fn start(quiet: bool) -> Option<Self> {
        let error = io::stderr();
        // Not `then_some`: a line that is dropped writes.
        (!quiet && error.is_terminal()).then(|| Self { error })
    }

    /// Draws the line: as many of `parts`, joined by commas, as fit in the terminal's width.
    pub fn draw(&self, parts: &[String]) {
        let most = columns(&self.error).unwrap_or(USUAL);
        // The last column stays free: terminals differ in when they wrap.
        set(fitting(parts, most.saturating_sub(1)));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        set(String::new());
    }
}

fn line() -> MutexGuard<'static, String> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(text: String) {
    let mut line = line();
    // Progress that cannot be shown does not end the work.
    let _ = io::stderr().write_all(format!("{CLEAR}{text}").as_bytes());
    *line = text;
}

/// The first of `parts` that fit in `most` characters, joined by commas; the first one is cut if it
/// must be.
fn fitting(parts: &[String], most: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let separator = if text.is_empty() { "" } else { ", " };
        if !text.is_empty() && text.len() + separator.len() + part.len() > most {
            break;
        }
        text.push_str(separator);
        text.push_str(part);
    }
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_parts_that_fit() {
        let parts = ["12 s", "45 %", "1.20 Mpps"].map(str::to_owned);
        for (most, text) in [
            (80, "12 s, 45 %, 1.20 Mpps"),
            (21, "12 s, 45 %, 1.20 Mpps"),
            (20, "12 s, 45 %"),
            (9, "12 s"),
            (2, "12"),
            (0, ""),
        ] {
            assert_eq!(fitting(&parts, most), text, "{most}");
        }
    }
}
