//! Devices that fail in the middle of a run: with a fallback the processor goes on where they stopped, and
//! the run, its API and its report name what was lost.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/faulty.rs"]
mod faulty;
#[path = "support/frozen.rs"]
mod frozen;
#[path = "../../accel/tests/common/hostile.rs"]
mod hostile;
mod support;
#[path = "support/tunnels.rs"]
mod tunnels;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use controlled::Controlled;
use faulty::{AT, HARMS, counts, is_part, lost, records, run};
use frozen::Frozen;
use hostile::Harm;
use serde_json::Value;
use support::{capture, frames_lost, generate, wait, write};
use thalweg_testkit::peer;
use tunnels::{opening, sealing};

#[test]
fn after_a_failure_an_ipsec_seals_on_with_the_next_sequence_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 3000 --flows 50 --size imix");
    run(f, &sealing(""), None, 1);
    let whole = records(&f.join("sealed.pcap"));
    for (harm, after) in HARMS {
        for workers in [1, 2] {
            let report = run(f, &sealing(AT), Some((harm, after)), workers);
            let lost = lost(&report, harm, workers) as usize;
            // Byte for byte, with their sequence numbers; those of lost packets are not used again.
            let part = records(&f.join("sealed.pcap"));
            assert_eq!(part.len(), whole.len() - lost, "{harm:?}, {workers} workers");
            assert!(is_part(&part, &whole), "{harm:?}, {workers} workers");
        }
    }
}

#[test]
fn after_a_failure_an_ipsec_opens_on_and_accepts_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 2000 --flows 50");
    run(f, &sealing(""), None, 1);
    // Each packet arrives once more after 20 others: in the window.
    let sealed = records(&f.join("sealed.pcap"));
    let mut twice: Vec<(u64, Vec<u8>)> = Vec::new();
    for (number, (_, bytes)) in sealed.iter().enumerate() {
        twice.push((twice.len() as u64, bytes.clone()));
        let late = number.checked_sub(20).map(|late| sealed[late].1.clone());
        twice.extend(late.map(|bytes| (twice.len() as u64, bytes)));
    }
    capture(f, "damaged.pcap", &twice);
    let chain = |at: &str| opening(at).replace("loop = 2\n", "");
    let report = run(f, &chain(""), None, 1);
    let whole = records(&f.join("opened.pcap"));
    assert!(report["drops"]["replayed"].as_u64().unwrap() > 500, "{report}");
    for (harm, after) in HARMS {
        for workers in [1, 2] {
            let report = run(f, &chain(AT), Some((harm, after)), workers);
            lost(&report, harm, workers);
            // A packet that was lost before it was authentic leaves its place in the window: its copy is
            // accepted, and no other copy is.
            let part = records(&f.join("opened.pcap"));
            let (of_part, of_whole) = (counts(&part), counts(&whole));
            let is_in = |(bytes, number): (&&[u8], &usize)| {
                of_whole.get(bytes).is_some_and(|most| number <= most)
            };
            assert!(of_part.iter().all(is_in), "{harm:?}, {workers} workers");
            let [last, all] = [&part, &whole].map(|records| &records[records.len() - 500..]);
            assert!(last == all, "{harm:?}, {workers} workers: the last ones are the same");
        }
    }
}

#[test]
fn what_a_device_writes_into_its_slots_costs_packets_and_not_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 3000 --flows 50 --size imix");
    for workers in [1, 2] {
        let report = run(f, &sealing(AT), Some((Harm::Scribbles, 3)), workers);
        assert_eq!(report["failures"], serde_json::json!([]), "{report}");
        assert_eq!(
            (report["conserved"].as_bool(), report["leaked_frames"].as_u64()),
            (Some(true), Some(0))
        );
        assert!(report["nfs"][0]["device"].get("failed").is_none(), "{report}");
        // What the device did not work on has no result that says so.
        let lost = report["nfs"][0]["drops"]["device-failed"].as_u64().unwrap_or(0);
        assert!(lost > 1000, "{report}");
        fs::copy(f.join("sealed.pcap"), f.join("damaged.pcap")).unwrap();
        let opened = run(f, &opening("").replace("loop = 2\n", ""), None, 1);
        assert_eq!(opened["drops"], serde_json::json!({}), "what is sent is authentic: {opened}");
        assert!(opened["packets_out"].as_u64().unwrap() > 500, "{opened}");
    }
}

/// The chain of a run without end on threads, with more keys of the NF.
fn endless(folder: &Path, more: &str) {
    generate(folder, "clear.pcap --seed 3 --packets 500 --flows 50 --tcp 1 --udp 0 --icmp 0");
    let chain = sealing(&format!("at = 'soft'\nfailed_after_ms = 200\n{more}"))
        .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1");
    write(folder, "chain.toml", &chain.replace("capture = 'sealed.pcap'", "discard = true"));
}

fn nf(run: &Controlled<'_>) -> Value {
    let nfs: Value = serde_json::from_str(&run.succeeds(&["nfs", "--json"])).unwrap();
    nfs["nfs"][0].clone()
}

/// The value of a metric of the NF.
fn metric(run: &Controlled<'_>, name: &str) -> String {
    let text = run.succeeds(&["metrics"]);
    let sample = format!("{name}{{nf=\"vpn\",kind=\"ipsec\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&*sample));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn a_run_goes_on_without_a_frozen_device_until_a_reload_starts_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    endless(f, "fallback = 'cpu'\n");
    let run = Controlled::start(f, "frozen", "chain.toml", &["--control=frozen"]);
    wait(|| nf(&run)["device"]["packets"].as_u64().unwrap() > 50);
    assert_eq!(metric(&run, "thalweg_nf_device_failed"), "0");
    let Some(frozen) = Frozen::thread(run.child.id(), "work-group-0") else {
        return peer::missing("ptrace(2) of a child");
    };
    wait(|| nf(&run)["at"] == "cpu");
    let state = nf(&run);
    let failed = state["device"]["failed"].as_str().unwrap();
    assert!(failed.starts_with("soft: work-group 0 has not moved on for 2"), "{failed}");
    let kept = state["device"]["kept_frames"].as_u64().unwrap();
    assert!(kept > 0 && state["failed_at"] == "soft", "{state}");
    assert!(state.get("work_groups").is_none(), "{state}");
    let table = run.succeeds(&["nfs"]);
    assert!(table.contains("cpu, as soft has failed"), "{table}");
    assert_eq!(metric(&run, "thalweg_nf_device_failed"), "1");
    assert_eq!(metric(&run, "thalweg_nf_device_kept_frames"), kept.to_string());
    let before = nf(&run)["figures"]["protected"].as_u64();
    wait(|| nf(&run)["figures"]["protected"].as_u64() > before);
    let again = "~ nf 'vpn': its device, which had failed, again; state kept\n";
    assert_eq!(run.succeeds(&["reload", "--dry-run"]), again);
    assert_eq!(nf(&run)["at"], "cpu");
    assert_eq!(run.succeeds(&["reload"]), again);
    wait(|| run.succeeds(&["nfs"]).contains("soft, 1 work-group"));
    assert_eq!(metric(&run, "thalweg_nf_device_failed"), "0");
    let before = nf(&run)["device"]["packets"].as_u64();
    wait(|| nf(&run)["device"]["packets"].as_u64() > before);
    assert_eq!(run.succeeds(&["reload"]), "nothing has changed\n");
    run.succeeds(&["stop"]);
    let (begin, errors) = (Instant::now(), run.messages());
    let report = run.end_with(|| frozen.reap());
    assert!(begin.elapsed() < Duration::from_secs(4), "it waited for the device again");
    assert!(errors.contains("NF 'vpn' continues on the processor: its device has failed: soft"));
    assert_eq!(report["leaked_frames"], 0, "{report}");
    assert_eq!(report["nfs"][0]["device"]["kept_frames"], kept, "{report}");
    assert!(report["nfs"][0]["device"].get("failed").is_none(), "{report}");
    let warnings = report["warnings"].as_array().unwrap();
    let expected = format!("{}, which may still write to them", frames_lost(kept));
    assert!(warnings.iter().any(|warning| *warning == *expected), "{report}");
}

#[test]
fn a_frozen_device_is_a_failure_of_the_run_without_a_fallback_alone() {
    for (more, code) in [("fallback = 'cpu'\n", 0), ("", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let f = folder.path();
        endless(f, more);
        let arguments = ["--control=frozen", "--duration", "2s"];
        let mut run = Controlled::start(f, "frozen", "chain.toml", &arguments);
        let Some(frozen) = Frozen::thread(run.child.id(), "work-group-0") else {
            return peer::missing("ptrace(2) of a child");
        };
        let begin = Instant::now();
        wait(|| {
            frozen.reap();
            run.has_ended()
        });
        assert!(begin.elapsed() < Duration::from_secs(5), "it waited for the device again");
        let status = run.child.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{}", run.messages());
        let report: Value =
            serde_json::from_slice(&fs::read(f.join("frozen.out")).unwrap()).unwrap();
        let failures: Vec<_> = report["failures"].as_array().unwrap().iter().collect();
        assert_eq!(failures.len(), usize::from(code == 1), "{report}");
        let expected = "NF 'vpn': its device has failed: soft: work-group 0 has not moved on";
        assert!(failures.iter().all(|text| text.as_str().unwrap().starts_with(expected)));
        assert_eq!(
            (report["conserved"].as_bool(), report["leaked_frames"].as_u64()),
            (Some(true), Some(0))
        );
    }
}
