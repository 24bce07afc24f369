//! A pseudo-terminal, and the screen that a person sees on it.
#![allow(dead_code)] // each test file uses a part

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A program whose standard input, output and error are a terminal.
pub struct OnTerminal {
    pub child: Child,
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    columns: usize,
    keys: File,
}

impl OnTerminal {
    /// Starts `thalweg` with `arguments` in `folder` on a terminal of so many columns.
    pub fn start(folder: &Path, columns: u16, arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let terminal = openpt(flags).expect("the system has pseudo-terminals");
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let ours = File::from(ioctl_tiocgptpeer(&terminal, flags).unwrap());
        let mut command = super::command(folder, arguments);
        command.env_remove("COLUMNS").stdin(ours.try_clone().unwrap());
        command.stdout(ours.try_clone().unwrap()).stderr(ours);
        let child = command.spawn().expect("the program starts");
        // It holds the program's end, without which the reader finds the end of the text.
        drop(command);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (mut terminal, kept) = (File::from(terminal), bytes.clone());
        let keys = terminal.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut some = [0; 4096];
            // Without a program at its other end the terminal fails.
            while let Ok(n @ 1..) = terminal.read(&mut some) {
                kept.lock().unwrap().extend_from_slice(&some[..n]);
            }
        });
        Self { child, bytes, reader, columns: columns.into(), keys }
    }

    /// All text so far, with the control characters.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Presses keys.
    pub fn press(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        let sent = std::process::Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end; returns the status, all text, and the lines that are on the screen then.
    pub fn end(mut self) -> (ExitStatus, String, Vec<String>) {
        let status = self.child.wait().unwrap();
        self.reader.join().unwrap();
        let text = String::from_utf8(std::mem::take(&mut *self.bytes.lock().unwrap())).unwrap();
        let lines = screen(&text, self.columns);
        (status, text, lines)
    }
}

/// The lines on a screen after `text`: a line that is too long continues in the next one, and what
/// is drawn over is gone.
pub fn screen(text: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut at) = (vec![Vec::new()], 0);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let line = lines.last_mut().unwrap();
        match c {
            '\r' => at = 0,
            '\n' => lines.push(Vec::new()),
            '\x1b' => {
                let control: String = rest.by_ref().take(2).collect();
                assert_eq!(control, "[K", "another control sequence");
                line.truncate(at);
            }
            c => {
                if at == columns {
                    lines.push(Vec::new());
                    at = 0;
                }
                let line = lines.last_mut().unwrap();
                line.resize(line.len().max(at + 1), ' ');
                line[at] = c;
                at += 1;
            }
        }
    }
    lines.into_iter().map(String::from_iter).collect()
}
