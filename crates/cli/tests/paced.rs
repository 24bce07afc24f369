//! Captures and generated traffic in real time.

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Running, capture, pipe, report, write};

const HOUR: u64 = 3_600_000;

/// A folder with a chain of this input, and a capture `in.pcap` with packets of these times in
/// milliseconds.
fn folder(input: &str, times: impl IntoIterator<Item = u64>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let packets: Vec<_> = times.into_iter().map(|time| (time, vec![0; 60])).collect();
    capture(folder.path(), "in.pcap", &packets);
    let chain = format!(
        "[input.a]\n{input}\n[output.o]\ndiscard = true\n[[route]]\npath = ['ingress', 'egress']\n"
    );
    write(folder.path(), "chain.toml", &chain);
    folder
}

#[test]
fn a_second_takes_half_a_second_at_pace_2() {
    let generated = "generate = { packets = 11, rate = 10 }\npace = 2";
    for (input, mode) in [
        ("capture = 'in.pcap'\npace = 2", "pcap, pace 2"),
        ("capture = 'in.pcap'\nmemory = true\npace = 2.0", "pcap, in memory, pace 2"),
        ("capture = 'in.pcap'\nzero_copy = true\npace = 2.0", "pcap, zero copy, pace 2"),
        (generated, "pace 2"),
    ] {
        let folder = folder(input, (0..=1000).step_by(100));
        let start = Instant::now();
        let (report, code, messages) = report(folder.path(), &["run", "chain.toml", "--json"]);
        assert!(start.elapsed() >= Duration::from_millis(400), "{input}");
        assert_eq!((code, &report["packets_out"]), (0, &11.into()), "{messages}");
        assert_eq!(report["inputs"][0]["mode"], mode);
    }
}

#[test]
fn one_signal_ends_a_run_that_waits_for_the_time_of_a_packet() {
    for (keys, workers, signal) in
        [("", "1", "INT"), ("", "2", "TERM"), ("\nmemory = true\nloop = 0", "1", "TERM")]
    {
        let input = format!("capture = 'in.pcap'\npace = 1{keys}");
        let folder = folder(&input, [0, HOUR, 2 * HOUR]);
        let run = Running::start(folder.path(), &["--workers", workers], Stdio::null());
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(ended.report()["packets_in"], 1);
    }
}

/// A packet of a pipe is received when it has arrived and its time has come.
#[test]
fn the_packets_of_a_pipe_have_a_pace() {
    for keys in ["", "\nmemory = true"] {
        let folder = folder(&format!("capture = 'fifo'\npace = 1.0{keys}"), [0, 200, 400]);
        pipe(folder.path(), "fifo");
        let start = Instant::now();
        let run = Running::start(folder.path(), &[], Stdio::null());
        std::fs::copy(folder.path().join("in.pcap"), folder.path().join("fifo")).unwrap();
        let ended = run.end();
        assert!(start.elapsed() >= Duration::from_millis(400));
        assert_eq!(ended.report()["packets_out"], 3, "{}", ended.error);
    }
}
