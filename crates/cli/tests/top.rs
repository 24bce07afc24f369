//! `thalweg top`.

#[path = "support/controlled.rs"]
mod controlled;
mod support;
#[path = "support/screen.rs"]
mod terminal;

use std::path::Path;
use std::process::Output;

use controlled::Controlled;
use support::{command, wait, write};
use terminal::OnTerminal;

/// The socket of a run `edge`, for a command in its folder.
const SOCKET: &str = "./sockets/edge.sock";
/// The ways to and from the screen of `top`.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

fn top(folder: &Path, arguments: &[&str], columns: &str) -> Output {
    let mut top = command(folder, &[&["top", "-s", SOCKET], arguments].concat());
    top.env("COLUMNS", columns).output().unwrap()
}

#[test]
fn without_a_terminal_it_prints_the_rates_of_one_second_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let _run = Controlled::endless(folder.path(), "edge");
    let output = top(folder.path(), &[], "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("edge (process "), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no '{start}': {text}"))
    };
    // Packets pass, and some are dropped.
    for start in ["traffic  in ", "out      out ", "watch  monitor ", "gate   acl ", "web "] {
        assert!(line(start).contains("pps") && !line(start).contains("  0 pps  0 bit/s"), "{text}");
    }
    assert!(line("drops: ").starts_with("drops: filter-drop "), "{text}");
    assert!(line("gate ").contains("filter-drop "), "{text}");
}

#[test]
fn count_prints_so_many_times_and_fits_the_columns() {
    let folder = tempfile::tempdir().unwrap();
    let _run = Controlled::endless(folder.path(), "edge");
    let output = top(folder.path(), &["--count", "2"], "50");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("edge (process ").count(), 2, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
    let wrong = top(folder.path(), &["--count", "0"], "");
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn on_a_terminal_it_draws_again_until_a_key_or_a_signal_and_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let _run = Controlled::endless(folder.path(), "edge");
    for (columns, key) in [(80, "q"), (30, "Q"), (100, "\x03"), (80, "signal")] {
        let top = OnTerminal::start(folder.path(), columns, &["top", "-s", SOCKET]);
        wait(|| top.text().matches("pps").count() > 0);
        top.press("x");
        let first = top.text().matches("\x1b[H").count();
        wait(|| top.text().matches("\x1b[H").count() > first);
        // The terminal of the test is nobody's controlling one, and sends no signals.
        if matches!(key, "\x03" | "signal") {
            top.signal(if key == "signal" { "TERM" } else { "INT" });
        } else {
            top.press(key);
        }
        let (status, text) = ended(top);
        assert!(status.success(), "{text:?}");
        assert!(text.starts_with(ENTER) && text.ends_with(LEAVE), "{text:?}");
        assert!(!text.contains('x'), "keys are not shown: {text:?}");
    }
}

/// The end of a program whose screen is one of its own.
fn ended(mut top: OnTerminal) -> (std::process::ExitStatus, String) {
    let mut status = None;
    wait(|| {
        status = top.child.try_wait().unwrap();
        status.is_some()
    });
    // The terminal may hold text that the reader has not seen.
    wait(|| top.text().contains(LEAVE));
    (status.unwrap(), top.text())
}

#[test]
fn the_end_of_the_run_is_the_end_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = Controlled::endless(folder.path(), "edge");
    let top = OnTerminal::start(folder.path(), 80, &["top", "-s", SOCKET]);
    wait(|| top.text().contains("pps"));
    run.succeeds(&["stop"]);
    run.end();
    let (status, text) = ended(top);
    assert!(status.success(), "{text:?}");
    let (_, after) = text.split_once(LEAVE).unwrap();
    assert!(after.starts_with("edge (process ") && after.trim_end().ends_with(") has ended"));
}

#[test]
fn a_run_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "file", "");
    let output = command(folder.path(), &["top", "-s", "./none.sock"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no run listens at './none.sock'"), "{error}");
}
