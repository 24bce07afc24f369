//! Pipes as inputs and outputs: no reader or writer that is slow, stalled or absent keeps a run
//! from its end, and packets pass as they arrive.

mod support;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Running, packets, pipe, succeeds, thalweg, wait, write};

/// Of Linux.
const O_NONBLOCK: i32 = 0o4000;

/// A run that was to end takes this long at most; a stalled reader is given a second.
const SOON: Duration = Duration::from_secs(4);

fn chain(input: &str, output: &str, nfs: &str) -> String {
    format!("routes = 'routes.csv'\n[input.a]\n{input}\n[output.o]\n{output}\n{nfs}")
}

/// A folder with a chain and a capture `in.pcap` of some packets.
fn folder(chain: &str, packets: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "chain.toml", chain);
    let routes = if chain.contains("[nf.n]") {
        "*, ingress, n\n*, n, egress\n"
    } else {
        "*, ingress, egress\n"
    };
    write(path, "routes.csv", routes);
    let packets = packets.to_string();
    succeeds(path, &["gen", "in.pcap", "--packets", &packets, "--size", "64"]);
    folder
}

/// Opens a pipe without waiting for its other end.
fn open_pipe(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(O_NONBLOCK).open(path).unwrap()
}

/// Interrupts a run, which must end soon, with all of its packets accounted for.
#[track_caller]
fn ends(run: Running<'_>, signal: &str) -> support::Ended {
    let start = Instant::now();
    run.signal(signal);
    let ended = run.end();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(ended.report()["conserved"], true, "{}", ended.report);
    ended
}

const DISCARD: &str = "discard = true";
const FIFO: &str = "capture = 'fifo'";

#[test]
fn one_signal_ends_a_run_that_waits_for_a_writer() {
    let inputs = [FIFO, "capture = 'fifo'\nmemory = true"];
    for (input, workers, signal) in
        [(inputs[0], "1", "INT"), (inputs[0], "2", "TERM"), (inputs[1], "1", "TERM")]
    {
        let folder = folder(&chain(input, DISCARD, ""), 1);
        pipe(folder.path(), "fifo");
        let run = Running::start(folder.path(), &["--workers", workers], Stdio::null());
        let ended = ends(run, signal);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(ended.report()["packets_in"], 0);
    }
}

/// Before the file header, within it, and within a record.
#[test]
fn one_signal_ends_a_run_whose_input_has_stalled() {
    for (bytes, whole) in [(0, 0), (10, 0), (24 + 76, 1), (24 + 76 + 30, 1)] {
        let folder = folder(&chain("capture = '/dev/stdin'", "capture = 'out.pcap'", ""), 10);
        let mut run = Running::start(folder.path(), &[], Stdio::piped());
        let mut stdin = run.child().stdin.take().unwrap();
        let input = std::fs::read(folder.path().join("in.pcap")).unwrap();
        stdin.write_all(&input[..bytes]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let ended = ends(run, "INT");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(ended.report()["packets_out"], whole, "{bytes}");
        assert_eq!(packets(&folder.path().join("out.pcap")), whole);
    }
}

#[test]
fn a_duration_ends_a_run_that_waits() {
    for workers in ["1", "2"] {
        let folder = folder(&chain(FIFO, DISCARD, ""), 1);
        pipe(folder.path(), "fifo");
        let arguments = ["--duration", "100ms", "--workers", workers];
        let ended = Running::start(folder.path(), &arguments, Stdio::null()).end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert!(ended.report()["duration_s"].as_f64().unwrap() < 2.0);
    }
}

#[test]
fn packets_pass_a_slow_pipe_one_by_one() {
    for workers in ["1", "2"] {
        let folder = folder(&chain(FIFO, "capture = 'out.pcap'", ""), 5);
        let path = folder.path();
        pipe(path, "fifo");
        let run = Running::start(path, &["--workers", workers], Stdio::null());
        let input = std::fs::read(path.join("in.pcap")).unwrap();
        let mut writer = OpenOptions::new().write(true).open(path.join("fifo")).unwrap();
        let mut at = 24;
        writer.write_all(&input[..at]).unwrap();
        for number in 1..=5 {
            let len = u32::from_le_bytes(input[at + 8..at + 12].try_into().unwrap()) as usize;
            writer.write_all(&input[at..at + 16 + len]).unwrap();
            at += 16 + len;
            let arrives = || {
                run.signal("USR1"); // lets the output write what it holds
                std::fs::metadata(path.join("out.pcap")).is_ok_and(|file| file.len() == at as u64)
            };
            wait(arrives);
            assert_eq!(packets(&path.join("out.pcap")), number);
        }
        drop(writer);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(std::fs::read(path.join("out.pcap")).unwrap(), input);
    }
}

#[test]
fn cycles_per_packet_are_those_of_work_and_not_of_waiting() {
    for workers in ["1", "2"] {
        let folder = folder(&chain(FIFO, DISCARD, "[nf.n]\nkind = 'monitor'\n"), 6);
        let path = folder.path();
        pipe(path, "fifo");
        let input = std::fs::read(path.join("in.pcap")).unwrap();
        // Another program may take the processor away in the middle of the work, but not always.
        let cycles = (0..6).map(|_| {
            let run = Running::start(path, &["--workers", workers], Stdio::null());
            let mut writer = OpenOptions::new().write(true).open(path.join("fifo")).unwrap();
            writer.write_all(&input[..24]).unwrap();
            for record in input[24..].chunks(76) {
                std::thread::sleep(Duration::from_millis(37));
                writer.write_all(record).unwrap();
            }
            drop(writer);
            let report = run.end().report();
            assert_eq!(report["packets_in"], 6);
            report["cycles_per_packet"].as_f64().unwrap()
        });
        let least = cycles.fold(f64::INFINITY, f64::min);
        assert!(least > 0.0 && least < 1e6, "{workers} workers: {least} cycles per packet");
    }
}

#[test]
fn a_run_without_packets_has_no_cycles_per_packet() {
    for workers in ["1", "2"] {
        let folder = folder(&chain(FIFO, DISCARD, "[nf.n]\nkind = 'monitor'\n"), 1);
        pipe(folder.path(), "fifo");
        let arguments = ["--duration", "300ms", "--workers", workers];
        let report = Running::start(folder.path(), &arguments, Stdio::null()).end().report();
        assert_eq!(report["cycles_per_packet"], 0.0);
        assert_eq!(report["nfs"][0]["cycles_per_packet"], 0.0);
    }
}

#[test]
fn pipes_are_read_to_their_end_whoever_opens_first() {
    // The writer waits for the run.
    let folder = folder(&chain(FIFO, DISCARD, ""), 3000);
    let path = folder.path();
    pipe(path, "fifo");
    let input = std::fs::read(path.join("in.pcap")).unwrap();
    for memory in ["", "\nmemory = true\nloop = 2"] {
        write(path, "chain.toml", &chain(&format!("{FIFO}{memory}"), DISCARD, ""));
        succeeds(path, &["check", "chain.toml"]);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| std::fs::write(path.join("fifo"), &input).unwrap());
            Running::start(path, &[], Stdio::null()).end()
        });
        let passes = if memory.is_empty() { 1 } else { 2 };
        assert_eq!(ended.report()["packets_in"], 3000 * passes, "{}", ended.error);
    }
    // A shell opens the pipe for the run, and its writer has gone before the run reads it.
    write(path, "chain.toml", &chain("capture = '/dev/stdin'", DISCARD, ""));
    std::fs::write(path.join("few.pcap"), &input[..24 + 76 * 3]).unwrap();
    let output = support::command(path, &["run", "chain.toml", "--json"])
        .stdin({
            let both = open_pipe(&path.join("fifo"));
            let reader = File::open(path.join("fifo")).unwrap();
            (&both).write_all(&input[..24 + 76 * 3]).unwrap();
            reader
        })
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_in"], 3, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_a_pipe_cannot_do_is_refused() {
    let folder = folder(&chain("capture = 'fifo'\nloop = 2", DISCARD, ""), 1);
    let path = folder.path();
    pipe(path, "fifo");
    let told = |arguments: &[&str], code: i32| {
        let output = thalweg(path, arguments);
        assert_eq!(output.status.code(), Some(code));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(&["check", "chain.toml"], 78).contains("the capture can be read only once"));
    write(path, "chain.toml", &chain(FIFO, DISCARD, ""));
    assert!(told(&["run", "chain.toml", "--loop", "0"], 2).contains("--loop applies to none"));
    // It would wait for itself.
    write(path, "chain.toml", &chain(FIFO, "capture = 'fifo.pcap'", ""));
    std::os::unix::fs::symlink("fifo", path.join("fifo.pcap")).unwrap();
    assert!(told(&["check", "chain.toml"], 78).contains("the file that input 'a' reads"));
    // Something else than a capture: known before the run in a file, and during the run in a pipe.
    write(path, "chain.toml", &chain("capture = '/dev/stdin'", DISCARD, ""));
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; 100]).unwrap();
    drop(writer);
    let file = File::open(path.join("chain.toml")).unwrap();
    for (stdin, code) in [(Stdio::from(file), 78), (Stdio::from(reader), 1)] {
        let output = support::command(path, &["run", "chain.toml"]).stdin(stdin).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&output.stderr).contains("not a pcap or pcapng capture"));
    }
}

#[test]
fn a_hyphen_is_standard_input_and_output() {
    let folder = folder(&chain("capture = '-'", "capture = '-'", ""), 10);
    let path = folder.path();
    let input = std::fs::read(path.join("in.pcap")).unwrap();
    for json in [&[][..], &["--json"]] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&input).unwrap();
        drop(writer);
        let arguments = [&["run", "chain.toml"], json].concat();
        let output = support::command(path, &arguments).stdin(reader).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        assert_eq!(output.stdout, input, "packets alone");
        assert!(
            told.contains(if json.is_empty() { "10 in" } else { "\"packets_in\": 10" }),
            "{told}"
        );
    }
}

#[test]
fn what_can_be_read_or_written_by_one_only_is_refused_to_others() {
    let folder = folder("", 1);
    let path = folder.path();
    pipe(path, "fifo");
    let two = |first: &str, second: &str| format!("{first}\n[input.b]\n{second}");
    let stdin = "this can be read only once, and is the file that input 'a' reads";
    for (input, output, line, message) in [
        (two("capture = '-'", "capture = '-'"), DISCARD, 5, stdin),
        (two("capture = '-'", "capture = '/dev/stdin'"), DISCARD, 5, stdin),
        (two(FIFO, FIFO), DISCARD, 5, stdin),
        ("capture = ['in.pcap', '-']".into(), DISCARD, 3, "can be one of several captures"),
        (
            "capture = 'in.pcap'".into(),
            "capture = '-'\n[output.p]\ncapture = '/dev/stdout'",
            7,
            "this would overwrite the file that output 'o' writes",
        ),
        (
            "capture = 'in.pcap'".into(),
            "capture = '-'\n[nf.n]\nkind = 'monitor'\njson = '/dev/stdout'",
            8,
            "this would overwrite the file that output 'o' writes",
        ),
    ] {
        write(path, "chain.toml", &chain(&input, output, ""));
        let checked = support::command(path, &["check", "chain.toml"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        let told = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(checked.status.code(), Some(78), "{told}");
        assert!(told.contains(&format!("chain.toml:{line}:")) && told.contains(message), "{told}");
    }
}

#[test]
fn loops_that_an_input_does_not_obey_are_named() {
    let generated = "generate = { packets = 10 }";
    let folder = folder(&chain(generated, DISCARD, ""), 10);
    let path = folder.path();
    let output = thalweg(path, &["run", "chain.toml", "--loop", "3"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--loop applies to none of the inputs"), "{told}");
    let both = format!("{generated}\n[input.b]\ncapture = 'in.pcap'");
    write(path, "chain.toml", &chain(&both, DISCARD, ""));
    let (report, code, told) =
        support::report(path, &["run", "chain.toml", "--json", "--loop", "3"]);
    assert_eq!((report["packets_in"].as_u64(), code), (Some(40), 0));
    assert!(told.contains("--loop does not apply to input 'a'"), "{told}");
}

const ALERTS: &str = "[nf.n]\nkind = 'nids'\nrules = ['r.rules']\nalerts = ";

fn with_rules(folder: &Path) {
    write(folder, "r.rules", "alert ip any any -> any any (msg:\"any\"; sid:1;)\n");
}

#[test]
fn one_signal_ends_a_run_whose_output_has_no_reader() {
    // The packets' own output: the run has not begun.
    let at_start = folder(&chain("capture = 'in.pcap'", "capture = 'fifo.pcap'", ""), 10);
    pipe(at_start.path(), "fifo.pcap");
    let run = Running::start(at_start.path(), &[], Stdio::null());
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.error.contains("fifo.pcap: no reader has opened it"), "{}", ended.error);
    let ended = Running::start(at_start.path(), &["--duration", "50ms"], Stdio::null()).end();
    assert!(ended.error.contains("fifo.pcap: no reader has opened it"), "{}", ended.error);
    // Alerts: the first one waits, on a worker.
    for workers in ["1", "2"] {
        let nf = format!("{ALERTS}'fifo'\n");
        let folder = folder(&chain("capture = 'in.pcap'\nloop = 0", DISCARD, &nf), 10);
        with_rules(folder.path());
        pipe(folder.path(), "fifo");
        let run = Running::start(folder.path(), &["--workers", workers], Stdio::null());
        let ended = ends(run, "INT");
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.error.contains("cannot write"), "{}", ended.error);
        assert!(ended.error.contains("fifo: no reader has opened it"), "{}", ended.error);
    }
}

#[test]
fn one_signal_ends_a_run_whose_reader_has_stalled() {
    for workers in ["1", "2"] {
        let folder =
            folder(&chain("capture = 'in.pcap'\nloop = 0", "capture = 'fifo.pcap'", ""), 100);
        let path = folder.path();
        pipe(path, "fifo.pcap");
        let mut reader = open_pipe(&path.join("fifo.pcap"));
        let run = Running::start(path, &["--workers", workers], Stdio::null());
        std::thread::sleep(Duration::from_millis(50));
        let ended = ends(run, "INT");
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.error.contains("fifo.pcap: its reader has stalled"), "{}", ended.error);
        // The report counts the packets that are whole in the pipe.
        let mut held = vec![0; 1 << 20];
        let mut len = 0;
        while let Ok(n @ 1..) = reader.read(&mut held[len..]) {
            len += n;
        }
        assert!(len > 4096);
        std::fs::write(path.join("held.pcap"), &held[..len]).unwrap();
        let whole = (len - 24) / 76;
        assert_eq!(ended.report()["packets_out"], whole, "{len}");
    }
}

#[test]
fn one_signal_ends_a_run_whose_standard_output_has_stalled() {
    let nf = format!("{ALERTS}'/dev/stdout'\n");
    let folder = folder(&chain("capture = 'in.pcap'\nloop = 0", DISCARD, &nf), 1000);
    with_rules(folder.path());
    let mut child = support::command(folder.path(), &["run", "chain.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let reader = child.stdout.take().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    let interrupt = format!("kill -INT {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &interrupt]).status().unwrap().success());
    wait(|| child.try_wait().unwrap().is_some());
    assert!(start.elapsed() < SOON);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("cannot write /dev/stdout: its reader has stalled"), "{told}");
    drop(reader);
}

#[test]
fn a_reader_that_leaves_ends_the_report_and_hides_no_failure() {
    let folder = folder(&chain("capture = 'in.pcap'", DISCARD, ""), 10);
    let path = folder.path();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let run = || support::command(path, &["run", "chain.toml"]).stdout(closed()).output().unwrap();
    let output = run();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    let input = std::fs::read(path.join("in.pcap")).unwrap();
    std::fs::write(path.join("in.pcap"), &input[..input.len() - 3]).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the record is truncated"));
    // A capture's reader: the run ends, and counts what it could not send.
    write(path, "chain.toml", &chain("generate = { packets = 100000 }", "capture = 'f.pcap'", ""));
    pipe(path, "f.pcap");
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut some = [0; 1000];
            File::open(path.join("f.pcap")).unwrap().read_exact(&mut some).unwrap();
        });
        Running::start(path, &[], Stdio::null()).end()
    });
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.error.contains("f.pcap: Broken pipe"), "{}", ended.error);
    assert_eq!(ended.report()["conserved"], true);
}
