//! The commands that need no chain file: what they print, what they refuse, and the chain files
//! that they stand for.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{command, packets, pipe, succeeds, thalweg, wait, write};

/// A folder with the capture and the rules of an example, and a generated capture.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge-gateway");
    for (from, to) in [("branch.pcap", "in.pcap"), ("demo.rules", "my.rules")] {
        fs::copy(examples.join(from), folder.path().join(to)).unwrap();
    }
    folder
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output of a command that must succeed, and standard error.
fn runs(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = thalweg(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", told(&output));
    (String::from_utf8(output.stdout.clone()).unwrap(), told(&output))
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const IDS: &[&str] = &["ids", "-r", "in.pcap", "-S", "my.rules"];
const FLOWS: &[&str] = &["flows", "-r", "in.pcap"];
const ASSETS: &[&str] = &["assets", "-r", "in.pcap"];
const NAT: &[&str] =
    &["nat", "-r", "in.pcap", "--inside", "10.0.0.0/8", "--external", "192.0.2.1", "-w"];

#[test]
fn alerts_are_short_lines_or_lines_of_json() {
    let folder = folder();
    let (text, report) = runs(folder.path(), IDS);
    let signatures = [
        "ICMP 10.1.0.10 -> 198.51.100.80 type 8 code 0  Ping out of the branch [1:1000005:1]",
        "ICMP 10.1.0.10 -> 198.51.100.80 type 8 code 0  Ping out of the branch [1:1000005:1]",
        "UDP 10.1.0.10:34892 -> 198.51.100.80:53  Lookup of a watched name [1:1000004:1]",
        "TCP 10.1.0.10:35052 -> 198.51.100.80:80  Path traversal in a request [1:1000001:1]",
        "TCP 10.1.0.10:35062 -> 198.51.100.80:80  SQL injection tool by its user agent \
         [1:1000002:1]",
        "TCP 10.1.0.10:35062 -> 198.51.100.80:80  UNION SELECT in a query [1:1000003:1]",
    ];
    assert_eq!(text.lines().count(), signatures.len(), "{text}");
    for (line, end) in text.lines().zip(signatures) {
        assert!(line.starts_with("2026-11-20 23:06:56.") && line.ends_with(end), "{line}");
    }
    assert!(report.starts_with("98 packets in ") && report.contains("alerts 6,"), "{report}");
    let (lines, report) = runs(folder.path(), &[IDS, &["--json", "-q"]].concat());
    assert_eq!(report, "");
    let lines = json_lines(&lines);
    assert!(lines.iter().all(|line| line["event_type"] == "alert" && line["in_iface"] == "in"));
    let ids: Vec<_> = lines.iter().map(|line| &line["alert"]["signature_id"]).collect();
    assert_eq!(ids, [1_000_005, 1_000_005, 1_000_004, 1_000_001, 1_000_002, 1_000_003]);
    // Rules use the variables.
    let count = |more: &[&str]| runs(folder.path(), &[IDS, more].concat()).0.lines().count();
    assert_eq!(count(&["--home-net", "192.168.0.0/16"]), 0);
    assert_eq!(count(&["--home-net", "192.168.0.0/16,10.1.0.0/16"]), 6);
    assert_eq!(count(&["--home-net", "!10.1.0.10"]), 0);
    write(folder.path(), "port.rules", "alert tcp any any -> any $PORTS (msg:\"p\"; sid:7;)\n");
    let rules = ["ids", "-r", "in.pcap", "-S", "port.rules", "--set", "PORTS=[443,80]"];
    assert!(runs(folder.path(), &rules).0.contains("  p [1:7:"));
    // Several files of rules, after one option or two.
    for both in [&["-S", "my.rules", "port.rules"][..], &["-S", "port.rules", "-S", "my.rules"]] {
        let all = [&["ids", "-r", "in.pcap", "--set", "PORTS=80"][..], both].concat();
        let text = runs(folder.path(), &all).0;
        assert!(text.contains(" [1:1000005:1]") && text.contains(" [1:7:0]"), "{text}");
    }
}

#[test]
fn checksums_are_verified_unless_requested_otherwise() {
    let folder = folder();
    let path = folder.path();
    let tcp = ["--tcp", "1", "--udp", "0", "--icmp", "0", "--flows", "3", "--packets", "200"];
    succeeds(path, &[&["gen", "http.pcap", "--payload", "http"][..], &tcp].concat());
    let mut capture = fs::read(path.join("http.pcap")).unwrap();
    let at = capture.windows(4).position(|bytes| bytes == b"GET ").unwrap();
    capture[at] = b'S';
    fs::write(path.join("http.pcap"), capture).unwrap();
    write(
        path,
        "p.rules",
        "alert tcp any any -> any any (flow:only_stream; content:\"SET\"; sid:1;)\n",
    );
    let rejects = |more: &[&str]| {
        let ids = ["ids", "-r", "http.pcap", "-S", "my.rules", "p.rules"];
        runs(path, &[&ids[..], more].concat()).1.contains("segments_rejected_checksum 1")
    };
    assert!(rejects(&[]) && rejects(&["-k", "all"]) && !rejects(&["-k", "none"]));
}

#[test]
fn flows_are_a_table_or_lines_of_json() {
    let folder = folder();
    let (table, report) = runs(folder.path(), FLOWS);
    let (lines, _) = runs(folder.path(), &[FLOWS, &["--json"]].concat());
    let lines = json_lines(&lines);
    assert!(lines.iter().all(|line| line["schema"] == "thalweg.monitor/2"));
    assert_eq!(table.lines().count(), 1 + lines.len());
    assert!(table.starts_with("start "), "{table}");
    let packets: u64 = lines.iter().map(|line| line["packets"].as_u64().unwrap()).sum();
    assert_eq!(packets, 98);
    assert!(report.contains("records_exported 22"), "{report}");
    let row = "tcp       10.1.0.10:34688    198.51.100.80:443       12   1520  FSPA\n";
    assert!(table.contains(row), "{table}");
    // The largest records; without headings, one row each.
    let (top, _) = runs(folder.path(), &[FLOWS, &["--top", "3"]].concat());
    let bytes = |line: &Value| line["bytes"].as_u64().unwrap();
    let mut largest: Vec<_> = lines.iter().map(bytes).collect();
    largest.sort_by_key(|bytes| std::cmp::Reverse(*bytes));
    for (row, bytes) in top.lines().skip(1).zip(&largest) {
        assert!(row.contains(&format!(" {bytes}  ")), "{top}");
    }
    assert_eq!(top.lines().count(), 4);
    // With several inputs, their names.
    let two = runs(folder.path(), &["flows", "-r", "in.pcap", "-r", "in.pcap"]).0;
    assert!(two.lines().next().unwrap().ends_with("  input"), "{two}");
    assert!(two.contains("  in\n") && two.contains("  in-2\n"), "{two}");
    // A timeout ends records earlier.
    let short = runs(folder.path(), &[FLOWS, &["--active-timeout", "1", "--json"]].concat()).0;
    assert!(short.contains("\"end_reason\":\"forced-end\""), "{short}");
}

#[test]
fn hosts_are_a_table_or_lines_of_json() {
    let folder = folder();
    let (table, report) = runs(folder.path(), ASSETS);
    let (lines, _) = runs(folder.path(), &[ASSETS, &["--json"]].concat());
    let lines = json_lines(&lines);
    assert!(lines.iter().all(|line| line["schema"] == "thalweg.assets/1"));
    assert_eq!(table.lines().count(), 1 + lines.len());
    for part in ["host ", "Linux 3.11 and newer", "80/tcp http SimpleHTTP 0.6", "53/udp domain"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(report.contains("hosts"), "{report}");
    let some = runs(folder.path(), &[ASSETS, &["--networks", "10.1.0.0/16,fe80::/10"]].concat()).0;
    assert!(!some.contains("198.51.100.80") && some.contains("10.1.0.10"), "{some}");
}

#[test]
fn addresses_are_translated_from_capture_to_capture() {
    let folder = folder();
    let path = folder.path();
    let (out, report) = runs(path, &[NAT, &["out.pcapng"]].concat());
    assert!(out.is_empty() && report.contains("nat  nat "), "{out} {report}");
    let sources = runs(path, &["flows", "-r", "out.pcapng", "--json"]).0;
    assert!(sources.contains("\"src\":\"192.0.2.1\""), "{sources}");
    assert!(!sources.contains("\"src\":\"10.1.0.10\""), "{sources}");
    let json = runs(path, &[NAT, &["again.pcapng", "--json"]].concat()).0;
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["schema"], &report["packets_in"]), (&"thalweg.run/1".into(), &98.into()));
    assert_eq!(fs::read(path.join("out.pcapng")).ok(), fs::read(path.join("again.pcapng")).ok());
}

/// The records of a command as JSON, and those of the chain file that it prints.
fn round_trip(folder: &Path, arguments: &[&str], key: &str) {
    let (chain, error) = runs(folder, &[arguments, &["--print-chain"]].concat());
    assert_eq!(error, "", "{arguments:?}");
    // Standard output has the report of the run, too.
    let to_file = chain.replace("\"/dev/stdout\"", "\"records.json\"");
    assert_eq!(to_file != chain, !key.is_empty(), "{chain}");
    write(folder, "printed.toml", &to_file);
    let tree = succeeds(folder, &["check", "printed.toml"]);
    assert!(tree.contains("egress"), "{tree}");
    succeeds(folder, &["run", "printed.toml"]);
    if !key.is_empty() {
        assert!(chain.contains(&format!("\n{key} = \"/dev/stdout\"\n")), "{chain}");
        let records = fs::read_to_string(folder.join("records.json")).unwrap();
        let (lines, _) = runs(folder, &[arguments, &["--json"]].concat());
        assert!(!lines.is_empty());
        assert_eq!(lines, records, "{arguments:?}");
    }
}

#[test]
fn a_printed_chain_does_the_same() {
    let folder = folder();
    let path = folder.path();
    round_trip(path, IDS, "alerts");
    round_trip(
        path,
        &[IDS, &["--home-net", "10.0.0.0/8,fd00::/8", "--set", "X=[1,2]", "-k", "none"]].concat(),
        "alerts",
    );
    round_trip(
        path,
        &[FLOWS, &["--workers", "2", "--ipfix", "f", "-w", "o.pcap"]].concat(),
        "json",
    );
    round_trip(
        path,
        &[FLOWS, &["--idle-timeout", "7", "--active-timeout", "70", "-r", "in.pcap"]].concat(),
        "json",
    );
    round_trip(path, &[ASSETS, &["--networks", "10.0.0.0/8"]].concat(), "inventory");
    let more = ["o.pcapng.gz", "--ports", "2000-3000", "--filtering", "endpoint-independent"];
    round_trip(path, &[NAT, &more].concat(), "");
    // The chain names the command that it stands for, and its files for records.
    let (chain, _) = runs(path, &[IDS, &["-l", "alerts.json", "--print-chain"]].concat());
    assert!(chain.starts_with("# thalweg ids -r in.pcap -S my.rules -l alerts.json\n"), "{chain}");
    assert!(chain.contains("\nalerts = \"alerts.json\"\n"), "{chain}");
    assert!(!path.join("alerts.json").exists(), "nothing has run");
    // An interface of another machine.
    let (chain, _) = runs(path, &["flows", "-i", "eth0.10", "-p", "--print-chain"]);
    write(path, "printed.toml", &chain);
    assert!(chain.contains("[input.\"eth0.10\"]\ninterface = \"eth0.10\"\npromiscuous = false\n"));
    succeeds(path, &["check", "printed.toml", "--any-interface"]);
}

#[test]
fn odd_names_of_files_are_only_names() {
    let folder = folder();
    let path = folder.path();
    for name in ["a b.pcap", "${HOME}.pcap", "it's \"x\"\\.pcap", "é#,.pcap", "egress.pcap"] {
        fs::copy(path.join("in.pcap"), path.join(name)).unwrap();
        round_trip(path, &["flows", "-r", name], "json");
        let (table, _) = runs(path, &["flows", "-r", name]);
        assert_eq!(table.lines().count(), 23, "{name}: {table}");
    }
    // A line end would end the comment with the command.
    let output = thalweg(path, &["flows", "-r", "in.pcap", "-l", "a\nb", "--print-chain"]);
    let chain = String::from_utf8(output.stdout).unwrap();
    assert!(chain.starts_with("# thalweg flows -r in.pcap -l 'a\\nb'\n"), "{chain}");
}

#[test]
fn mistakes_are_those_of_arguments() {
    let folder = folder();
    let path = folder.path();
    write(path, "bad.rules", "alert bad rule\n");
    let ids = |more: &[&'static str]| [IDS, more].concat();
    let nat = |inside: &'static str, external: &'static str| {
        vec!["nat", "-r", "in.pcap", "--inside", inside, "--external", external, "-w", "o.pcap"]
    };
    let cases: [(Vec<&str>, &str); 23] = [
        (vec!["flows"], "<--read <FILE>...|--interface <NAME>...>"),
        (vec!["ids", "-r", "in.pcap"], "--rules <FILE>"),
        (vec!["nat", "-r", "in.pcap", "-w", "o.pcap"], "--inside <PREFIX,...>"),
        (vec!["flows", "-r", "none.pcap"], "-r none.pcap: cannot read this capture: No such file"),
        (vec!["flows", "-r", "my.rules"], "-r my.rules: not a pcap or pcapng capture"),
        (vec!["flows", "-i", "none0"], "-i none0: there is no interface 'none0'; expected one of"),
        (vec!["flows", "-r", "-", "-r", "-"], "-r -: standard input can be read only once"),
        (vec!["flows", "-r", "in.pcap", "-p"], "--interface"),
        (vec!["flows", "-r", "in.pcap", "--workers", "0"], "--workers"),
        (vec!["flows", "-r", "in.pcap", "--idle-timeout", "0"], "--idle-timeout 0: timeout out of"),
        (vec!["flows", "-r", "in.pcap", "-w", "o.txt"], "-w o.txt: unknown capture format"),
        (vec!["flows", "-r", "in.pcap", "-w", "in.pcap"], "-w in.pcap: this would overwrite"),
        (vec!["flows", "-r", "in.pcap", "-l", "no/x"], "-l no/x: no such folder for this file"),
        (vec!["flows", "-r", "in.pcap", "-w", "-"], "-w -: the records go to standard output"),
        (vec!["assets", "-r", "in.pcap", "--p0f", "none"], "none:1:1: cannot read the file"),
        (vec!["assets", "-r", "in.pcap", "--networks", "lan"], "--networks lan: "),
        (ids(&["-S", "none.rules"]), "-S none.rules: cannot read the file"),
        (ids(&["--home-net", "home"]), "--home-net home: bad variable"),
        (ids(&["--set", "PORT"]), "--set PORT: no value; expected NAME=VALUE"),
        (ids(&["--set", "$A=1"]), "--set $A=1: bad variable name"),
        (ids(&["--home-net", "any", "--set", "HOME_NET=any"]), "is set already"),
        (nat("10.0.0.1/8", "192.0.2.1"), "--inside 10.0.0.1/8: bits set past the prefix length"),
        (nat("10.0.0.0/8", "10.1.1.1"), "--external 10.1.1.1: the external address 10.1.1.1 is"),
    ];
    for (arguments, expected) in cases {
        for more in [&[][..], &["--print-chain"]] {
            let output = thalweg(path, &[&arguments[..], more].concat());
            let error = told(&output);
            if arguments.contains(&"none0") && !more.is_empty() {
                // A chain file may be for another machine.
                assert!(output.status.success(), "{error}");
                continue;
            }
            let code = if error.contains("none:1:1") { 78 } else { 2 };
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
            assert!(error.contains(expected), "{arguments:?}: {error}");
            assert!(!error.contains("chain.toml"), "{error}");
            assert!(output.stdout.is_empty(), "{arguments:?}: no heading of a table");
        }
    }
    assert!(!path.join("o.pcap").exists() && !path.join("o.txt").exists());
    // Mistakes in files have their places there, next to those of arguments.
    let output = thalweg(path, &["ids", "-r", "none.pcap", "-S", "bad.rules"]);
    let error = told(&output);
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("error: -r none.pcap: ") && error.contains("bad.rules:1:1"), "{error}");
    assert!(error.contains("1 mistake in 1 file"), "{error}");
    // As JSON, too.
    let output = thalweg(path, &["flows", "-r", "none.pcap", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "thalweg.failure/1");
    assert!(json["message"].as_str().unwrap().starts_with("-r none.pcap: "), "{json}");
}

#[test]
fn warnings_are_shown_and_refused_on_request() {
    let folder = folder();
    let path = folder.path();
    write(path, "odd.rules", "alert tcp any any -> any any (byte_math:bytes 1; sid:1;)\n");
    let odd = ["ids", "-r", "in.pcap", "-S", "my.rules", "odd.rules"];
    let (alerts, error) = runs(path, &odd);
    assert_eq!(alerts.lines().count(), 6);
    assert!(
        error.starts_with("warning: odd.rules:1:") || error.contains("odd.rules:1:"),
        "{error}"
    );
    let output = thalweg(path, &[&odd[..], &["--strict"]].concat());
    assert_eq!(output.status.code(), Some(78), "{}", told(&output));
}

#[test]
fn standard_input_and_output_are_dashes() {
    let folder = folder();
    let path = folder.path();
    let input = || fs::File::open(path.join("in.pcap")).unwrap();
    let with_input = |arguments: &[&str]| {
        let output = command(path, arguments).stdin(input()).output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
        output
    };
    let flows = with_input(&["flows", "-r", "-", "--json", "-q"]);
    assert!(String::from_utf8_lossy(&flows.stdout).contains("\"in_port\":\"stdin\""));
    // Through pipes: packets out of one command are those into the next.
    let nat = ["nat", "-r", "-", "--inside", "10.0.0.0/8", "--external", "192.0.2.1", "-w", "-"];
    let out = with_input(&nat);
    assert!(told(&out).starts_with("98 packets"), "{}", told(&out));
    fs::write(path.join("out.pcap"), &out.stdout).unwrap();
    assert_eq!(packets(&path.join("out.pcap")), 98);
    let nat = [&nat[..], &["-q"]].concat();
    let mut first = command(path, &nat).stdin(input()).stdout(Stdio::piped()).spawn().unwrap();
    let between = first.stdout.take().unwrap();
    write(path, "ping.rules", "alert icmp 192.0.2.1 any -> any any (itype:8; sid:1;)\n");
    let ids = ["ids", "-r", "-", "-S", "ping.rules", "-l", "a.json", "-w", "-"];
    let second = command(path, &ids).stdin(between).output().unwrap();
    assert!(first.wait().unwrap().success() && second.status.success());
    fs::write(path.join("out.pcap"), &second.stdout).unwrap();
    assert_eq!(packets(&path.join("out.pcap")), 98);
    let alerts = json_lines(&fs::read_to_string(path.join("a.json")).unwrap());
    assert_eq!(alerts.len(), 2);
    // A dash for records is standard output, and so lines of JSON.
    let (lines, _) = runs(path, &[FLOWS, &["-l", "-"]].concat());
    assert_eq!(json_lines(&lines).len(), 22);
    // The report of a run, and of the generator, does not follow packets.
    let chain = runs(path, &[NAT, &["-", "--print-chain"]].concat()).0;
    write(path, "printed.toml", &chain);
    for arguments in [&["run", "printed.toml"][..], &["gen", "/dev/stdout", "--packets", "98"]] {
        let output = thalweg(path, arguments);
        fs::write(path.join("out.pcap"), &output.stdout).unwrap();
        assert_eq!(packets(&path.join("out.pcap")), 98);
        assert!(told(&output).contains("98 packets"), "{}", told(&output));
    }
}

#[test]
fn files_for_records_and_packets_leave_standard_output_empty() {
    let folder = folder();
    let path = folder.path();
    for (arguments, records) in [
        (&[IDS, &["-l", "r.json", "-w", "o.pcap"]].concat(), 6),
        (&[FLOWS, &["-l", "r.json", "-w", "o.pcap"]].concat(), 22),
        (&[ASSETS, &["-l", "r.json", "-w", "o.pcap"]].concat(), 5),
    ] {
        let (out, _) = runs(path, arguments);
        assert_eq!(out, "", "{arguments:?}");
        let lines = json_lines(&fs::read_to_string(path.join("r.json")).unwrap());
        assert_eq!(lines.len(), records, "{arguments:?}");
        assert_eq!(packets(&path.join("o.pcap")), 98);
    }
    // A rule that drops keeps its packet out of the capture.
    write(path, "drop.rules", "drop icmp any any -> any any (msg:\"no pings\"; itype:8; sid:1;)\n");
    let (alerts, _) = runs(path, &["ids", "-r", "in.pcap", "-S", "drop.rules", "-w", "o.pcap"]);
    assert!(alerts.lines().all(|line| line.ends_with("no pings [1:1:0]  dropped")), "{alerts}");
    assert_eq!((alerts.lines().count(), packets(&path.join("o.pcap"))), (2, 96));
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    command(folder, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn a_reader_that_leaves_ends_the_command_without_an_error() {
    let folder = folder();
    let path = folder.path();
    succeeds(path, &["gen", "big.pcap", "--packets", "100000", "--flows", "20000"]);
    for more in [&["--json"][..], &[]] {
        let mut child = start(path, &[&["flows", "-q", "-r", "big.pcap"], more].concat());
        let mut some = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), told(&output)), (Some(0), String::new()));
    }
}

#[test]
fn one_signal_ends_a_command_whose_standard_output_has_stalled() {
    let folder = folder();
    let path = folder.path();
    succeeds(path, &["gen", "big.pcap", "--packets", "100000", "--flows", "20000"]);
    let mut child = start(path, &["flows", "-r", "big.pcap", "--json"]);
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    signal(&child, "INT");
    wait(|| child.try_wait().unwrap().is_some());
    assert!(begin.elapsed() < Duration::from_secs(4));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = told(&output);
    assert!(error.contains("cannot write to standard output: its reader has stalled"), "{error}");
}

#[test]
fn a_command_shows_alerts_as_they_come_and_reads_its_rules_again() {
    let folder = folder();
    let path = folder.path();
    pipe(path, "fifo");
    let rules = |sid: u32| {
        write(path, "r.rules", &format!("alert icmp any any -> any any (itype:8; sid:{sid};)\n"));
    };
    rules(1);
    let mut child = start(path, &["ids", "-v", "-r", "fifo", "-S", "r.rules"]);
    let input = fs::read(path.join("in.pcap")).unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(path.join("fifo")).unwrap();
    // The file header, then each packet with its record header: the second ping follows later.
    let mut ends = vec![24];
    while let Some(len) = input.get(ends[ends.len() - 1] + 8..).and_then(|rest| rest.get(..4)) {
        let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
        ends.push(ends[ends.len() - 1] + 16 + len);
    }
    let is_ping = |range: &[usize]| {
        let packet = &input[range[0] + 16..range[1]];
        packet[12..14] == [8, 0] && packet[23] == 1 && packet[34] == 8
    };
    let pings: Vec<_> = ends.windows(2).filter(|range| is_ping(range)).map(|r| r[1]).collect();
    let [first, _] = pings[..] else { panic!("{pings:?}") };
    let mut out = child.stdout.take().unwrap();
    let mut line = || {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    };
    writer.write_all(&input[..first]).unwrap();
    assert!(line().ends_with("[1:1:0]\n"));
    rules(2);
    signal(&child, "HUP");
    let mut error = child.stderr.take().unwrap();
    let mut told = String::new();
    while !told.contains("reloaded: ~ nf") {
        let mut some = [0; 256];
        let n = error.read(&mut some).unwrap();
        assert!(n > 0, "{told}");
        told += &String::from_utf8_lossy(&some[..n]);
    }
    writer.write_all(&input[first..]).unwrap();
    drop(writer);
    assert!(line().ends_with("[1:2:0]\n"));
    assert!(child.wait().unwrap().success());
}
