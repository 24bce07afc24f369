//! `thalweg ctl trace` and `thalweg ctl capture --drops`, on a run under way.

#[path = "support/controlled.rs"]
mod controlled;
mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use controlled::{Controlled, ctl, folder, message};
use serde_json::Value;
use support::{command, packets, pipe, succeeds, wait, write};
use thalweg_testkit::peer;

#[test]
fn the_next_packets_are_traced_as_text_and_as_json() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let text = run.succeeds(&["trace", "icmp", "--count", "2"]);
    assert_eq!(text.matches("\nfate: dropped by gate: filter-drop\n").count(), 2, "{text}");
    assert_eq!(text.matches("\nwatch\n").count(), 2, "{text}");
    assert!(text.contains(" bytes from traffic\nflow: icmp,in_port=traffic,"), "{text}");
    let lines = run.succeeds(&["trace", "--json", "--count", "5", "in_port=traffic"]);
    let traces: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(traces.len(), 5);
    assert!(traces.iter().all(|trace| trace["schema"] == "thalweg.trace/1"));
    let distinct: BTreeSet<_> = traces.iter().map(|t| t["packet"].as_u64().unwrap()).collect();
    assert_eq!(distinct.len(), 5);
    run.succeeds(&["stop"]);
    assert_eq!(run.end()["conserved"], true);
}

#[test]
fn a_trace_of_no_packet_fails_and_a_wrong_pattern_is_named() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let none = message(&run.ctl(&["trace", "arp", "--seconds", "0.2"]), 1);
    assert_eq!(none, "error: no packet matched within 0.2 s\n");
    let wrong = message(&run.ctl(&["trace", "tcp,nw_src=10.1.0.x"]), 1);
    let expected = "the run refuses: bad value of 'nw_src' at character 12 of the pattern: \
                    '10.1.0.x'; expected an IPv4 address";
    assert!(wrong.contains(expected), "{wrong}");
    let capture = folder.path().join("kept.pcapng");
    std::fs::write(&capture, "kept").unwrap();
    let arguments = ["capture", "--drops", "-w", "kept.pcapng", "--nf"];
    let unknown = message(&run.ctl(&[&arguments[..], &["gat"]].concat()), 1);
    assert!(unknown.contains("no NF 'gat'; expected watch, gate"), "{unknown}");
    // A request that is refused leaves the file as it is.
    assert_eq!(std::fs::read_to_string(&capture).unwrap(), "kept");
    let time = message(&run.ctl(&["capture", "--drops", "--seconds", "0"]), 1);
    assert!(time.contains("time of 0 s; expected 0.1 to 3600"), "{time}");
    message(&run.ctl(&["capture", "-w", "x.pcapng"]), 2);
    let json = message(&run.ctl(&["capture", "--drops", "--json"]), 2);
    assert!(json.contains("expected no --json"), "{json}");
    message(&run.ctl(&["trace", "--count", "1001"]), 2);
    let nowhere = message(&ctl(folder.path(), &["-s", "none", "trace"]), 1);
    assert!(nowhere.contains("no run listens at 'none'; expected one of edge"), "{nowhere}");
}

/// What tshark shows of the packets of a capture: interface, protocol and comment.
fn shown(capture: &Path) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-n", "-T", "fields", "-E", "separator=;"]);
    for field in ["frame.interface_name", "ip.proto", "frame.comment"] {
        command.args(["-e", field]);
    }
    peer::output(&mut command, "").lines().map(str::to_owned).collect()
}

#[test]
fn dropped_packets_are_recorded_with_their_reasons() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let arguments = ["capture", "--drops", "-w", "drops.pcapng", "--count", "50", "icmp"];
    assert_eq!(run.succeeds(&arguments), "50 dropped packets in drops.pcapng\n");
    let capture = folder.path().join("drops.pcapng");
    assert_eq!(packets(&capture), 50);
    if peer::is_there("tshark", &["--version"]) {
        assert_eq!(shown(&capture), vec!["traffic;1;dropped by gate: filter-drop"; 50]);
    }
    // To a program, as tcpdump does.
    let output = run.ctl(&["capture", "--drops", "--nf", "gate", "--count", "3"]);
    assert!(output.status.success(), "{output:?}");
    let capture = folder.path().join("piped.pcapng");
    std::fs::write(&capture, output.stdout).unwrap();
    assert_eq!(packets(&capture), 3);
    let none = run.succeeds(&[
        "capture",
        "--drops",
        "-w",
        "none.pcapng",
        "--nf",
        "watch",
        "--seconds",
        "0.2",
    ]);
    assert_eq!(none, "0 dropped packets in none.pcapng\n");
    assert_eq!(packets(&folder.path().join("none.pcapng")), 0);
}

#[test]
fn a_signal_ends_a_capture_at_a_whole_block() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let capture = folder.path().join("drops.pcapng");
    let summary = folder.path().join("summary");
    let mut recording =
        command(folder.path(), &["ctl", "capture", "--drops", "-w", "drops.pcapng"])
            .env("THALWEG_RUNTIME_DIR", folder.path().join("sockets"))
            .stdout(File::create(&summary).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    wait(|| capture.metadata().is_ok_and(|file| file.len() > 100_000));
    let id = recording.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert!(recording.wait().unwrap().success());
    let summary = std::fs::read_to_string(summary).unwrap();
    assert_eq!(summary, format!("{} dropped packets in drops.pcapng\n", packets(&capture)));
    run.succeeds(&["stop"]);
    assert_eq!(run.end()["conserved"], true);
}

/// NFs that change, drop and inspect packets; `nids` is divided on two workers.
const CHAIN: &str = r#"
[input.in]
capture = "INPUT"
[output.out]
discard = true
[nf.gate]
kind = "filter"
rules = ["drop udp,tp_src=0x400/0x400"]
[nf.nat]
kind = "nat"
pinned = PINNED
inside = ["10.0.0.0/8"]
external = ["192.0.2.1"]
[nf.ids]
kind = "nids"
rules = ["some.rules"]
max_flows = 16384
stream_memory_mib = 16
[nf.count]
kind = "monitor"
[[route]]
path = ["ingress", "gate", "nat", "ids", "count", "egress"]
"#;

/// The traces are of packets that flow through a pipe meanwhile; those to compare with are of the
/// same packets in a file.
#[test]
fn a_trace_of_a_run_is_that_of_the_packet_in_its_capture() {
    let folder = folder();
    let here = folder.path();
    succeeds(here, &["gen", "all.pcap", "--packets", "4000", "--seed", "5"]);
    let rules = "alert tcp any any -> any any (msg:\"t\"; flags:A+; sid:1;)\n\
                 drop icmp any any -> any any (msg:\"i\"; itype:0; sid:2;)\n";
    write(here, "some.rules", rules);
    let chain = |input: &str, pinned: bool| {
        CHAIN.replace("INPUT", input).replace("PINNED", &pinned.to_string())
    };
    write(here, "file.toml", &chain("all.pcap", false));
    let bytes = std::fs::read(here.join("all.pcap")).unwrap();
    for (workers, pinned) in [("1", false), ("2", true), ("3", false)] {
        let name = format!("on{workers}");
        pipe(here, &name);
        write(here, "pipe.toml", &chain(&name, pinned));
        let control = format!("--control={name}");
        let run = Controlled::start(here, &name, "pipe.toml", &[&control, "--workers", workers]);
        let mut input = File::create(here.join(&name)).unwrap();
        // NFs have state when packets are traced.
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        input.write_all(first).unwrap();
        let traces = here.join("traces");
        let mut tracing = command(here, &["ctl", "-s", &name, "trace", "--json", "--count", "6"])
            .env("THALWEG_RUNTIME_DIR", here.join("sockets"))
            .stdout(File::create(&traces).unwrap())
            .spawn()
            .unwrap();
        for piece in rest.chunks(2000) {
            input.write_all(piece).unwrap();
            // The rest is read at once.
            if tracing.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        drop(input);
        assert!(tracing.wait().unwrap().success());
        assert_eq!(run.end()["packets_in"], 4000);
        let traces = std::fs::read_to_string(traces).unwrap();
        assert_eq!(traces.lines().count(), 6);
        for line in traces.lines() {
            let found: Value = serde_json::from_str(line).unwrap();
            let packet = found["packet"].to_string();
            let expected = succeeds(here, &["trace", "file.toml", "--json", "--packet", &packet]);
            let mut expected: Value = serde_json::from_str(&expected).unwrap();
            // Which layer answers depends on the packets of the same batch.
            expected["layer"] = found["layer"].clone();
            assert_eq!(found, expected, "{workers} workers");
        }
    }
}
