//! A run without end and its control socket, in a folder of their own.
#![allow(dead_code)] // each test file uses a part

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{command, wait, write};

/// The variable with the folder of the sockets.
const SOCKETS: &str = "THALWEG_RUNTIME_DIR";

/// Generated traffic without end in real time, of which an NF drops a part.
pub const ENDLESS: &str = r#"
[input.traffic]
generate = { packets = 1000000000, flows = 100, rate = 5000 }
pace = 1.0
[output.out]
discard = true
[[class]]
type = "web"
rules = ["priority=7,tcp,tp_dst=443", "udp,tp_dst=53"]
[nf.watch]
kind = "monitor"
[nf.gate]
kind = "acl"
default = "permit"
rules = ["deny icmp"]
[[route]]
path = ["ingress", "watch", "gate", "egress"]
"#;

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The message of a command that must fail with `code`.
#[track_caller]
pub fn message(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// A run, which is killed when it is dropped.
pub struct Controlled<'a> {
    folder: &'a Path,
    name: &'a str,
    pub child: Child,
}

impl<'a> Controlled<'a> {
    /// Starts `thalweg run CHAIN` with more `arguments`, and waits for its socket `name`; its
    /// report and messages are in files NAME.out and NAME.err.
    pub fn start(folder: &'a Path, name: &'a str, chain: &str, arguments: &[&str]) -> Self {
        let arguments = [&["run", chain, "--json"], arguments].concat();
        Self::spawn(folder, name, command(folder, &arguments).stdin(Stdio::null()))
    }

    /// Starts `command`, and waits for its socket `name`.
    pub fn spawn(folder: &'a Path, name: &'a str, command: &mut Command) -> Self {
        let file = |ending| File::create(folder.join(format!("{name}.{ending}"))).unwrap();
        let command = command.env(SOCKETS, folder.join("sockets"));
        let child = command.stdout(file("out")).stderr(file("err")).spawn();
        let child = child.expect("the program starts");
        let mut run = Self { folder, name, child };
        wait(|| run.ctl(&["-s", name, "report"]).status.success() || run.has_ended());
        run
    }

    /// Starts a run of [`ENDLESS`] with the name `name`, and waits for its first dropped packet.
    pub fn endless(folder: &'a Path, name: &'a str) -> Self {
        write(folder, "endless.toml", ENDLESS);
        let run = Self::start(folder, name, "endless.toml", &[&format!("--control={name}")]);
        wait(|| run.succeeds(&["-s", name, "nfs"]).contains("filter-drop "));
        run
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// The output of `thalweg ctl` with these arguments.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        ctl(self.folder, arguments)
    }

    /// Standard output of `thalweg ctl`, which must succeed.
    #[track_caller]
    pub fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("the output is UTF-8")
    }

    /// What it has logged.
    pub fn messages(&self) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.err", self.name))).unwrap()
    }

    /// Waits for its end; returns its report.
    pub fn end(self) -> serde_json::Value {
        self.end_with(|| {})
    }

    /// As [`end`](Self::end); calls `meanwhile` again and again.
    pub fn end_with(mut self, meanwhile: impl Fn()) -> serde_json::Value {
        wait(|| {
            meanwhile();
            self.has_ended()
        });
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}", self.messages());
        let report = std::fs::read(self.folder.join(format!("{}.out", self.name))).unwrap();
        serde_json::from_slice(&report).unwrap()
    }
}

impl Drop for Controlled<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // Without a limit, a thread of it that a test keeps frozen would keep the test.
        let until = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The output of `thalweg ctl` about the runs of `folder`.
pub fn ctl(folder: &Path, arguments: &[&str]) -> Output {
    let sockets = folder.join("sockets");
    let mut command = command(folder, &[&["ctl"], arguments].concat());
    command.env(SOCKETS, sockets).output().expect("the program starts")
}
