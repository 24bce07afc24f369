//! `--stats`: lines of statistics while a run lasts.

mod support;

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use support::{Running, command, packets, pipe, succeeds, thalweg, wait, write};

const CHAIN: &str = "[input.a]\ncapture = 'in.pcap'\n[output.o]\ndiscard = true\n\
    [nf.guard]\nkind = 'filter'\nrules = ['drop udp']\n[nf.count]\nkind = 'monitor'\n\
    [[route]]\npath = ['ingress', 'guard', 'count', 'egress']\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "chain.toml", CHAIN);
    succeeds(folder.path(), &["gen", "in.pcap", "--packets", "2000"]);
    folder
}

fn lines(folder: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sum of a number of each line, by its JSON pointer.
fn sum(lines: &[Value], pointer: &str) -> u64 {
    lines.iter().map(|line| line.pointer(pointer).map_or(0, |n| n.as_u64().unwrap())).sum()
}

#[test]
fn lines_of_json_add_up_to_the_report() {
    let folder = folder();
    let path = folder.path();
    for workers in ["1", "2"] {
        let arguments = ["run", "chain.toml", "--json", "--loop", "0", "--duration", "800ms"];
        let more = ["--workers", workers, "--stats", "100ms", "--stats-format", "json"];
        let more = [&more[..], &["--stats-file", "s.jsonl"]].concat();
        let report: Value =
            serde_json::from_str(&succeeds(path, &[&arguments[..], &more].concat())).unwrap();
        let lines = lines(path, "s.jsonl");
        assert!(lines.len() >= 3, "{} lines", lines.len());
        for pointer in [
            "/packets_in",
            "/bytes_in",
            "/packets_out",
            "/bytes_out",
            "/packets_dropped",
            "/drops/filter-drop",
            "/inputs/0/packets",
            "/outputs/0/bytes",
            "/nfs/0/packets",
            "/nfs/0/drops/filter-drop",
            "/nfs/1/bytes",
            "/types/other/packets",
        ] {
            let whole = report.pointer(pointer).unwrap().as_u64().unwrap();
            assert!(whole > 0 && sum(&lines, pointer) == whole, "{pointer}");
            let series = report["series"]["intervals"].as_array().unwrap();
            assert_eq!(sum(series, pointer), whole, "series{pointer}");
        }
        let (last, others) = lines.split_last().unwrap();
        assert!(last["last"] == true && others.iter().all(|line| line["last"] == false));
        assert_eq!((&lines[0]["start_s"], &last["end_s"]), (&0.0.into(), &report["duration_s"]));
        assert!(lines.windows(2).all(|pair| pair[0]["end_s"] == pair[1]["start_s"]));
    }
}

#[test]
fn text_is_aligned_and_names_the_last_interval() {
    let folder = folder();
    let arguments =
        ["run", "chain.toml", "--loop", "0", "--duration", "450ms", "--stats", "200ms", "-q"];
    let output = thalweg(folder.path(), &arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(output.status.success() && lines.len() >= 2, "{text}");
    let [heading, .., last] = &lines[..] else { panic!("{text}") };
    assert!(heading.ends_with("  p99  drops by reason"), "{text}");
    assert!(last.contains("(last "), "{text}");
    let end = heading.find("  drops").unwrap();
    for line in &lines[1..] {
        assert!(line[..end].ends_with(" us") || line[..end].ends_with(" ms"), "{text}");
        assert!(line[end..].starts_with("  filter-drop "), "{text}");
    }
}

#[test]
fn packets_on_standard_output_stay_apart_from_statistics() {
    let folder = folder();
    let path = folder.path();
    write(path, "chain.toml", &CHAIN.replace("discard = true", "capture = '/dev/stdout'"));
    let output = thalweg(path, &["run", "chain.toml", "--stats", "1s"]);
    fs::write(path.join("out.pcap"), &output.stdout).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("(last ") && text.contains("2000 packets in"), "{text}");
    let sent = text.lines().find(|line| line.starts_with("o ")).unwrap();
    assert!(sent.contains(&format!(" {} ", packets(&path.join("out.pcap")))), "{text}");
}

#[test]
fn an_input_without_packets_has_statistics_too() {
    let folder = folder();
    let path = folder.path();
    pipe(path, "fifo");
    let _writer = OpenOptions::new().read(true).write(true).open(path.join("fifo")).unwrap();
    write(path, "chain.toml", &CHAIN.replace("in.pcap", "fifo"));
    let stats = ["--stats", "50ms", "--stats-format", "json", "--stats-file", "s.jsonl"];
    let run = Running::start(path, &stats, Stdio::null());
    wait(|| fs::read_to_string(path.join("s.jsonl")).is_ok_and(|s| s.matches('\n').count() >= 3));
    run.signal("TERM");
    let ended = run.end();
    assert!(ended.status.success(), "{}", ended.error);
    let lines = lines(path, "s.jsonl");
    assert_eq!((sum(&lines, "/packets_in"), &lines.last().unwrap()["last"]), (0, &true.into()));
}

/// A run whose output has no reader does not answer, and is not asked again meanwhile.
#[test]
fn a_run_that_waits_for_a_reader_ends_with_whole_statistics() {
    let folder = folder();
    let path = folder.path();
    pipe(path, "fifo.pcap");
    write(path, "chain.toml", &CHAIN.replace("discard = true", "capture = 'fifo.pcap'"));
    let stats = ["--loop", "0", "--stats", "10ms", "--stats-format", "json", "--stats-file", "s"];
    let run = Running::start(path, &stats, Stdio::null());
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut reader =
        OpenOptions::new().read(true).write(true).open(path.join("fifo.pcap")).unwrap();
    let mut some = [0; 4096];
    assert!(reader.read(&mut some).unwrap() > 0);
    std::thread::sleep(std::time::Duration::from_millis(200));
    run.signal("TERM");
    let ended = run.end();
    let lines = lines(path, "s");
    assert_eq!(sum(&lines, "/packets_in"), ended.report()["packets_in"].as_u64().unwrap());
    assert_eq!(
        sum(&lines, "/packets_dropped"),
        ended.report()["packets_dropped"].as_u64().unwrap()
    );
}

#[test]
fn statistics_that_cannot_be_written_do_not_end_the_run() {
    if !Path::new("/dev/full").exists() {
        println!("SKIPPED: no /dev/full");
        return;
    }
    let folder = folder();
    let output = thalweg(
        folder.path(),
        &["run", "chain.toml", "--json", "--stats", "1s", "--stats-file", "/dev/full"],
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && error.contains("cannot write /dev/full: "),
        "{error}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_in"], 2000);
    assert!(report["failures"][0].as_str().unwrap().starts_with("cannot write /dev/full"));
}

#[test]
fn options_of_statistics_are_checked() {
    let folder = folder();
    for (arguments, expected) in [
        (&["--stats", "0"][..], "expected 10ms to 24h"),
        (&["--stats", "1 s"], "expected a number with ms, s, m or h"),
        (&["--stats-format", "json"], "--stats <INTERVAL>"),
        (&["--stats-file", "s"], "--stats <INTERVAL>"),
    ] {
        let output = thalweg(folder.path(), &[&["run", "chain.toml"], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
    }
}

#[test]
fn commands_without_a_chain_file_have_statistics_and_reports() {
    let folder = folder();
    let path = folder.path();
    let all = ["--stats", "1s", "--report", "r.json", "-q"];
    write(path, "my.rules", "alert tcp any any -> any any (sid:1;)\n");
    let nat = ["--inside", "10.0.0.0/8", "--external", "192.0.2.1", "-w", "out.pcap"];
    for command in
        [&["ids", "-S", "my.rules"][..], &["flows"], &["assets"], &[&["nat"], &nat[..]].concat()]
    {
        let output = thalweg(path, &[command, &["-r", "in.pcap"], &all].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && error.contains("(last "), "{command:?}: {error}");
        let report = fs::read_to_string(path.join("r.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        let series = report["series"]["intervals"].as_array().unwrap();
        assert!(report["packets_in"] == 2000 && sum(series, "/packets_in") == 2000, "{command:?}");
    }
    let chain = ["flows", "-r", "in.pcap", "--print-chain", "--report", "none.html"];
    assert!(command(path, &chain).output().unwrap().status.success());
    assert!(!path.join("none.html").exists());
}
