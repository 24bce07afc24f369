//! Helpers of the tests of the program.
#![allow(dead_code)] // each test file uses a part

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `thalweg` with `arguments` in `folder`.
pub fn thalweg(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

/// The command `thalweg` with `arguments` in `folder`.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).current_dir(folder).env("NO_COLOR", "1");
    command
}

/// Standard output of a run that must succeed.
pub fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = thalweg(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// Generates packets into a capture: the arguments of `gen`, as a shell would divide them.
pub fn generate(folder: &Path, arguments: &str) {
    let arguments: Vec<&str> = ["gen"].into_iter().chain(arguments.split_whitespace()).collect();
    succeeds(folder, &arguments);
}

/// The report of a run as JSON, and its exit code and standard error.
pub fn report(folder: &Path, arguments: &[&str]) -> (serde_json::Value, i32, String) {
    let output = thalweg(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {error}"));
    (report, output.status.code().unwrap_or(-1), error)
}

pub fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("the test folder takes a file");
}

/// Makes a named pipe.
pub fn pipe(folder: &Path, name: &str) {
    let made = Command::new("mkfifo").arg(folder.join(name)).status();
    assert!(made.expect("mkfifo starts").success());
}

/// A run under way, with its report and messages in the files `report` and `error` of its folder.
pub struct Running<'a> {
    folder: &'a Path,
    child: Child,
}

impl<'a> Running<'a> {
    /// Starts `thalweg run chain.toml --json` with more `arguments`.
    pub fn start(folder: &'a Path, arguments: &[&str], stdin: Stdio) -> Self {
        let file = |name| std::fs::File::create(folder.join(name)).unwrap();
        let child = command(folder, &[&["run", "chain.toml", "--json"], arguments].concat())
            .stdin(stdin)
            .stdout(file("report"))
            .stderr(file("error"))
            .spawn()
            .expect("the program starts");
        let mut run = Self { folder, child };
        // Its handlers are installed after the signals' thread has started. A short run may have
        // ended before it is seen.
        wait(|| run.has_thread("signals") || run.child.try_wait().unwrap().is_some());
        std::thread::sleep(Duration::from_millis(20));
        run
    }

    fn has_thread(&self, name: &str) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let mut tasks = tasks.into_iter().flatten().flatten();
        tasks.any(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn signal(&self, signal: &str) {
        // The shell's own kill: a bare system has no other.
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for the end; fails if the run does not end.
    pub fn end(mut self) -> Ended {
        let mut status = None;
        wait(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let text = |name| std::fs::read_to_string(self.folder.join(name)).unwrap();
        Ended { status: status.unwrap(), report: text("report"), error: text("error") }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub report: String,
    pub error: String,
}

impl Ended {
    pub fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.report).unwrap_or_else(|e| panic!("{e}: {}", self.error))
    }
}

/// Waits until `done`, for some seconds at most.
#[track_caller]
pub fn wait(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(8), "waited without success");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How the warning begins of a run whose devices kept so many frames.
pub fn frames_lost(kept: u64) -> String {
    format!("{} lost to devices that failed", thalweg_source::counted(kept, "frame"))
}

/// The number of packets in a capture, which must be whole.
pub fn packets(path: &Path) -> u64 {
    times(path).len() as u64
}

/// The times of the packets in a capture, which must be whole, in nanoseconds.
pub fn times(path: &Path) -> Vec<u64> {
    use thalweg_io::Input;
    let mut input = thalweg_io::CaptureInput::open(path, 1).unwrap();
    let pool = std::sync::Arc::new(thalweg_packet::Pool::anonymous(64, 16 * 1024).unwrap());
    let mut batch = thalweg_packet::Batch::new(pool);
    let (mut times, mut drops) = (Vec::new(), thalweg_packet::DropCounts::default());
    loop {
        let received = input.receive(&mut batch, 32, &mut drops).unwrap();
        times.extend(batch.lanes().into_iter().map(|lane| batch.meta.timestamp[lane].0));
        assert_eq!(drops.total(), 0, "a packet that is too long");
        batch.release(batch.lanes());
        if received.ended {
            return times;
        }
    }
}

/// Writes a pcap capture of packets, each with its time in milliseconds.
pub fn capture(folder: &Path, name: &str, packets: &[(u64, Vec<u8>)]) {
    let words = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (time, packet) in packets {
        let len = packet.len() as u32;
        let head = [(time / 1000) as u32, (time % 1000 * 1000) as u32, len, len];
        bytes.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(packet);
    }
    std::fs::write(folder.join(name), bytes).expect("the test folder takes a file");
}
