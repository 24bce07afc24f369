//! NFs on a device in launches, in both forms of memory, which a chain forces on a device that could do without.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/places.rs"]
mod places;
mod support;
#[path = "support/tunnels.rs"]
mod tunnels;

use std::fs;
use std::path::Path;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use controlled::Controlled;
use places::places;
use serde_json::{Value, json};
use support::{generate, report, thalweg, wait, write};
use tunnels::{key, opening, sealing};

const FORMS: [&str; 2] = ["shared", "copied"];

/// The first OpenCL device, if there is one.
fn device() -> Option<(String, MutexGuard<'static, ()>)> {
    let (places, turn) = places();
    places.into_iter().find(|at| at.starts_with("opencl:")).map(|at| (at, turn))
}

fn with_launches(launches: &str, chain: &str) -> String {
    format!("[memory]\nlaunches = '{launches}'\n{chain}")
}

/// Runs a chain; returns its report.
fn run(folder: &Path, chain: &str, workers: &str) -> Value {
    write(folder, "chain.toml", chain);
    let (report, code, error) =
        report(folder, &["run", "chain.toml", "--json", "--workers", workers]);
    assert_eq!((code, &*error), (0, ""), "{workers} workers: {chain}");
    assert_eq!((&report["conserved"], &report["leaked_frames"]), (&json!(true), &json!(0)));
    report
}

#[test]
fn packets_are_sealed_and_opened_the_same_in_launches_and_copies_are_counted() {
    let Some((at, _turn)) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 3000 --flows 50 --size 64-1400");
    let through = |at: &str, launches: &str, workers: &str| {
        // More work-groups than the device has processors: none has to stay.
        let place = key(at) + if at == "cpu" { "" } else { "work_groups = 20\n" };
        let sealed = run(f, &with_launches(launches, &sealing(&place)), workers);
        fs::copy(f.join("sealed.pcap"), f.join("damaged.pcap")).unwrap();
        let opened = run(f, &with_launches(launches, &opening(&place)), workers);
        let files = ["sealed.pcap", "opened.pcap"].map(|name| fs::read(f.join(name)).unwrap());
        (files, [sealed, opened])
    };
    let (alone, _) = through("cpu", "never", "1");
    for launches in FORMS {
        for workers in ["1", "2"] {
            let (files, reports) = through(&at, launches, workers);
            assert!(files == alone, "{launches}, {workers} workers");
            for report in reports {
                let device = &report["nfs"][0]["device"];
                assert_eq!(device["way"], format!("launches-{launches}"), "{report}");
                let of = |key: &str| device[key].as_u64().unwrap_or(0);
                let rows = of("slots") / 32;
                assert!((1..=rows).contains(&of("launches")), "{report}");
                // Each packet has at least an SPI, a sequence number, an IV, a block and an ICV; there and back.
                let copied = of("copied_bytes");
                let least = 2 * of("packets") * (8 + 16 + 16 + 12);
                assert!(launches == "shared" && copied == 0 || copied >= least, "{report}");
                assert!(copied <= 2 * report["nfs"][0]["bytes"].as_u64().unwrap() * 2, "{report}");
            }
        }
    }
}

#[test]
fn an_nf_moves_between_processor_and_launches_by_a_reload_and_its_way_is_shown() {
    let Some((at, _turn)) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 500 --flows 50 --tcp 1 --udp 0 --icmp 0");
    for launches in FORMS {
        let chain = |launches: &str, place: &str| {
            let chain = sealing(&key(place))
                .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1")
                .replace("capture = 'sealed.pcap'", "discard = true");
            format!("[memory]\ndevice = '{at}'\nlaunches = '{launches}'\n{chain}")
        };
        write(f, "chain.toml", &chain(launches, "cpu"));
        let name = format!("launches-{launches}");
        let run = Controlled::start(f, &name, "chain.toml", &[&format!("--control={name}")]);
        let nf = || {
            let nfs = run.succeeds(&["-s", &name, "nfs", "--json"]);
            serde_json::from_str::<Value>(&nfs).unwrap()["nfs"][0].clone()
        };
        let at_device = || nf()["device"]["launches"].as_u64().unwrap_or(0);
        wait(|| nf()["figures"]["protected"].as_u64().unwrap() > 0);
        let mut before = 0;
        for place in [&*at, "cpu", "soft", &*at] {
            write(f, "chain.toml", &chain(launches, place));
            let answer = run.succeeds(&["-s", &name, "reload"]);
            assert!(answer.contains("vpn"), "to {place}: {answer}");
            if place == at {
                wait(|| at_device() > before);
                let table = run.succeeds(&["-s", &name, "nfs"]);
                assert!(table.contains(&format!("{at}, 1 work-group, {name}")), "{table}");
                let metrics = run.succeeds(&["-s", &name, "metrics"]);
                assert!(metrics.contains("thalweg_nf_device_launches_total{"), "{metrics}");
            }
            before = at_device();
        }
        // The memory of packets is the run's.
        write(f, "chain.toml", &chain("auto", "cpu"));
        let refused = run.ctl(&["-s", &name, "reload"]);
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{why}");
        assert!(why.contains("'launches' cannot change while the chain runs"), "{why}");
        run.succeeds(&["-s", &name, "stop"]);
        let report = run.end();
        assert_eq!(report["nfs"][0]["drops"], json!({}), "{report}");
        assert_eq!((&report["reloads"], &report["leaked_frames"]), (&json!(4), &json!(0)));
    }
}

#[test]
fn a_device_that_fails_while_a_launch_is_under_way_leaves_the_nf_to_the_processor() {
    let Some((at, _turn)) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let packets = 20_000;
    generate(f, &format!("clear.pcap --packets {packets} --size 1400 --tcp 1 --udp 0 --icmp 0"));
    for launches in FORMS {
        for fallback in ["cpu", "none"] {
            // No launch of this number of packets takes as little as a millisecond.
            let keys = format!("at = '{at}'\nfailed_after_ms = 1\nfallback = '{fallback}'\n");
            write(f, "chain.toml", &with_launches(launches, &sealing(&keys)));
            let start = Instant::now();
            let (report, code, error) = report(f, &["run", "chain.toml", "--json"]);
            assert!(start.elapsed() < Duration::from_secs(60), "the run ends");
            assert!(error.contains("has not moved on for"), "{launches}: {error}");
            assert_eq!(report["conserved"], true, "{report}");
            let lost = report["nfs"][0]["drops"]["device-failed"].as_u64().unwrap();
            assert!((1..=4096).contains(&lost), "{report}");
            let kept = report["nfs"][0]["device"]["kept_frames"].as_u64().unwrap();
            assert!((1..=lost).contains(&kept), "what launches had is lost, and named: {report}");
            assert_eq!(code == 0, fallback == "cpu", "{report}");
            if fallback == "cpu" {
                assert_eq!(report["packets_in"], packets, "{report}");
                assert_eq!(report["packets_out"], packets - lost, "{report}");
            } else {
                assert!(report["packets_in"].as_u64().unwrap() < packets, "{report}");
            }
        }
    }
}

#[test]
fn mistakes_about_launches_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --packets 10");
    for (chain, expected) in [
        (with_launches("sometimes", &sealing("at = 'soft'\n")), "unknown value of 'launches'"),
        (with_launches("copied", &sealing("at = 'cuda:0'\n")), "launches are for OpenCL devices"),
    ] {
        write(f, "chain.toml", &chain);
        let output = thalweg(f, &["check", "chain.toml"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    // Threads need none, and have none.
    let report = run(f, &with_launches("copied", &sealing(&key("soft"))), "1");
    assert_eq!(report["nfs"][0]["device"]["way"], "resident", "{report}");
    assert_eq!(report["nfs"][0]["device"].get("launches"), None, "{report}");
}
