//! NFs on devices: what leaves a chain is the same wherever its NFs run.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/places.rs"]
mod places;
mod support;
#[path = "support/tunnels.rs"]
mod tunnels;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use controlled::Controlled;
use places::{devices_of, places};
use serde_json::Value;
use support::{Running, generate, report, wait, write};
use thalweg_accel::Options;
use tunnels::{back_and_forth, key, opening, sealing};

/// Changes a byte near the end of every seventh packet of a capture.
fn damage(folder: &Path) {
    let mut bytes = fs::read(folder.join("sealed.pcap")).unwrap();
    let (mut at, mut number) = (24, 0);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        if number % 7 == 0 && len > 80 {
            bytes[at + 16 + len - 30] ^= 4;
        }
        (at, number) = (at + 16 + len, number + 1);
    }
    fs::write(folder.join("damaged.pcap"), bytes).unwrap();
}

/// Checks the counts of an NF's device: of each row, every slot has a packet or is a dummy.
fn counts_of_device(nf: &Value, at: &str) {
    let of = |key: &str| nf["device"][key].as_u64();
    if at == "cpu" {
        assert!(nf.get("device").is_none(), "{nf}");
    } else {
        let [packets, slots, dummies] = ["packets", "slots", "dummies"].map(|key| of(key).unwrap());
        assert!(packets > 0 && packets <= nf["packets"].as_u64().unwrap(), "{nf}");
        assert_eq!(packets + dummies, slots, "{nf}");
        assert_eq!(slots % Options::default().lanes as u64, 0, "{nf}");
    }
}

#[test]
fn packets_are_sealed_and_opened_the_same_wherever_ipsec_runs() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 3000 --flows 50 --size imix");
    let (places, _turn) = places();
    let mut first: Option<(Vec<u8>, Value, Vec<u8>, Value)> = None;
    for at in &places {
        for workers in ["1", "2"] {
            write(f, "seal.toml", &sealing(&key(at)));
            let (sealed, code, error) =
                report(f, &["run", "seal.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            damage(f);
            write(f, "open.toml", &opening(&key(at)));
            let (opened, code, error) =
                report(f, &["run", "open.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            counts_of_device(&sealed["nfs"][0], at);
            counts_of_device(&opened["nfs"][0], at);
            let bytes = |name: &str| fs::read(f.join(name)).unwrap();
            let nf = |report: &Value| {
                let nf = &report["nfs"][0];
                serde_json::json!([
                    nf["packets"],
                    nf["bytes"],
                    nf["drops"],
                    nf["figures"],
                    report["drops"]
                ])
            };
            let now = (bytes("sealed.pcap"), nf(&sealed), bytes("opened.pcap"), nf(&opened));
            let first = first.get_or_insert_with(|| now.clone());
            assert!(now.0 == first.0, "sealed at {at} by {workers} workers");
            assert_eq!(now.1, first.1, "sealed at {at} by {workers} workers");
            assert!(now.2 == first.2, "opened at {at} by {workers} workers");
            assert_eq!(now.3, first.3, "opened at {at} by {workers} workers");
        }
    }
    let (_, _, _, opened) = first.unwrap();
    let drops = opened[2].as_object().unwrap();
    assert!(
        drops.contains_key("replayed") && drops.contains_key("authentication-failed"),
        "{opened}"
    );
}

#[test]
fn an_nf_moves_between_processor_and_device_by_a_reload() {
    let (places, _turn) = places();
    devices_of(&places).for_each(moves_to);
}

fn moves_to(device: &str) {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 500 --flows 50 --tcp 1 --udp 0 --icmp 0");
    let chain = |at: &str| {
        let chain = sealing(&key(at))
            .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1");
        let chain = chain.replace("capture = 'sealed.pcap'", "discard = true");
        format!("[memory]\ndevice = '{device}'\n{chain}")
    };
    write(f, "chain.toml", &chain("cpu"));
    let run = Controlled::start(f, "moves", "chain.toml", &["--control=moves"]);
    let counts = || {
        let nfs: Value =
            serde_json::from_str(&run.succeeds(&["-s", "moves", "nfs", "--json"])).unwrap();
        let nf = &nfs["nfs"][0];
        [&nf["figures"]["protected"], &nf["device"]["packets"]]
            .map(|count| count.as_u64().unwrap_or(0))
    };
    let protected = || counts()[0];
    wait(|| protected() > 0);
    let (mut before, mut at_devices) = (0, 0);
    for at in [device, "cpu", "soft", device] {
        write(f, "chain.toml", &chain(at));
        let answer = run.succeeds(&["-s", "moves", "reload"]);
        assert!(answer.contains("vpn"), "to {at}: {answer}");
        let now = protected();
        assert!(now >= before, "to {at}: the counts go on: {before}, {now}");
        wait(|| protected() > now);
        before = now;
        let at_device = || counts()[1];
        assert!(at_device() >= at_devices, "to {at}: the counts of devices go on");
        at_devices = at_device();
        wait(|| at == "cpu" || at_device() > at_devices);
    }
    run.succeeds(&["-s", "moves", "stop"]);
    let report = run.end();
    assert_eq!(report["nfs"][0]["drops"], serde_json::json!({}), "{report}");
    assert_eq!(report["reloads"], 4, "{report}");
}

#[test]
fn signals_reach_a_run_wherever_its_nfs_are() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 500 --flows 50 --tcp 1 --udp 0 --icmp 0");
    let (places, _turn) = places();
    for at in &places {
        let chain = sealing(&key(at))
            .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1");
        let chain = format!("[memory]\nframes = 4096\n{chain}");
        for signal in ["TERM", "INT"] {
            write(f, "chain.toml", &chain);
            let run = Running::start(f, &["-v"], Stdio::null());
            let written = || fs::metadata(f.join("sealed.pcap")).map_or(0, |file| file.len());
            wait(|| {
                run.signal("USR1");
                written() > 24
            });
            let before = written();
            wait(|| {
                run.signal("USR1");
                written() > before
            });
            run.signal("HUP");
            wait(|| fs::read_to_string(f.join("error")).unwrap().contains("nothing has changed"));
            run.signal(signal);
            let ended = run.end();
            assert!(ended.status.success(), "{at}, {signal}: {} {}", ended.status, ended.error);
            let report = ended.report();
            assert_eq!(report["packets_in"], report["packets_out"], "{at}, {signal}: {report}");
        }
    }
}

#[test]
fn a_run_that_was_stopped_for_longer_than_a_device_may_take_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 500 --flows 50 --tcp 1 --udp 0 --icmp 0");
    let (places, _turn) = places();
    for at in places.iter().filter(|at| *at != "cpu") {
        let chain = sealing(&format!("at = '{at}'\nfailed_after_ms = 1000\n"))
            .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0");
        write(f, "chain.toml", &chain.replace("capture = 'sealed.pcap'", "discard = true"));
        let run = Running::start(f, &["--duration", "4s"], Stdio::null());
        std::thread::sleep(std::time::Duration::from_millis(500));
        // As a debugger or a shell does it; packets are at the device.
        for _ in 0..3 {
            run.signal("STOP");
            std::thread::sleep(std::time::Duration::from_millis(1300));
            run.signal("CONT");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let report = run.end().report();
        assert_eq!(report["failures"], serde_json::json!([]), "{at}: {report}");
        assert_eq!(report["packets_in"], report["packets_out"], "{at}: {report}");
    }
}

#[test]
fn several_nfs_share_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 4 --packets 2000 --size 64-1300");
    let (places, _turn) = places();
    let mut first = None;
    for at in &places {
        for workers in ["1", "2"] {
            write(f, "chain.toml", &back_and_forth(at, ""));
            let (report, code, error) =
                report(f, &["run", "chain.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            let figures = [&report["nfs"][0]["figures"], &report["nfs"][1]["figures"]];
            assert!(figures[0]["protected"].as_u64().unwrap() > 1500, "{report}");
            assert_eq!(figures[0]["protected"], figures[1]["opened"], "{report}");
            let back = fs::read(f.join("back.pcap")).unwrap();
            let first = first.get_or_insert_with(|| back.clone());
            assert!(*first == back, "{at}, {workers} workers");
        }
    }
}

#[test]
fn a_reload_of_one_nf_on_a_device_loses_no_packet_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 4 --packets 500 --size 64-1300");
    let _turn = places();
    let chain = |more: &str| {
        let chain = back_and_forth("soft", more)
            .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1");
        chain.replace("capture = 'back.pcap'", "discard = true")
    };
    write(f, "chain.toml", &chain(""));
    let run = Controlled::start(f, "shares", "chain.toml", &["--control=shares", "--workers=2"]);
    let opened = || {
        let nfs = run.succeeds(&["-s", "shares", "nfs", "--json"]);
        let nfs: Value = serde_json::from_str(&nfs).unwrap();
        nfs["nfs"][1]["figures"]["opened"].as_u64().unwrap_or(0)
    };
    for groups in [3, 1, 2] {
        let before = opened();
        wait(|| opened() > before);
        write(f, "chain.toml", &chain(&format!("work_groups = {groups}\n")));
        let answer = run.succeeds(&["-s", "shares", "reload"]);
        assert!(answer.contains("open"), "{answer}");
    }
    run.succeeds(&["-s", "shares", "stop"]);
    let report = run.end();
    for nf in report["nfs"].as_array().unwrap() {
        assert_eq!(nf["drops"], serde_json::json!({}), "{report}");
    }
    assert_eq!(report["packets_in"], report["packets_out"], "{report}");
}
