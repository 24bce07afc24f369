//! Exports on request, which NFs write over several bursts.

mod common;

use std::process::Command;

use common::{Folder, Tag, wait};
use thalweg_engine::{Control, Report, RunOptions, run};

/// More than a monitor writes with some bursts.
const FLOWS: u32 = 3000;

/// Two monitors after each other; the first one is pinned in some variants.
fn folder(input: &str, pinned: bool) -> Folder {
    let folder = Folder::new();
    let tags: Vec<_> =
        (0..FLOWS).map(|n| Tag { flow: n % FLOWS, back: false, lineage: 0, sequence: n }).collect();
    folder.capture("whole.pcap", &tags).write("routes.csv", "*,ingress,a\n*,a,b\n*,b,out\n");
    folder.write(
        "chain.toml",
        &format!(
            "routes = \"routes.csv\"\n[input.in]\n{input}\n[output.out]\ndiscard = true\n\
             [nf.a]\nkind = \"monitor\"\njson = \"a.json\"\npinned = {pinned}\n\
             [nf.b]\nkind = \"monitor\"\njson = \"b.json\"\n"
        ),
    );
    folder
}

/// Renames the files of the monitors, and requests an export; returns when the files are there again.
fn export(folder: &Folder, control: &Control) {
    for name in ["a", "b"] {
        let [now, then] = [".json", ".old"].map(|end| folder.path(&format!("{name}{end}")));
        std::fs::rename(now, then).unwrap();
    }
    control.request_export();
    wait(|| ["a.json", "b.json"].iter().all(|name| folder.path(name).exists()));
}

/// The number of records in a file, and their packets.
fn records(folder: &Folder, name: &str) -> (usize, u64) {
    let text = std::fs::read_to_string(folder.path(name)).unwrap();
    let packets = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["packets"].as_u64().unwrap()
    };
    (text.lines().count(), text.lines().map(packets).sum())
}

/// Checks that each packet is in one record, and that the renamed files have a record of each flow
/// that began before the export.
fn check(folder: &Folder, report: &Report) {
    assert!(report.conserved && !report.failed(), "{:?}", report.failures);
    for (nf, name) in report.nfs.iter().zip(["a", "b"]) {
        let (old, before) = records(folder, &format!("{name}.old"));
        let (_, after) = records(folder, &format!("{name}.json"));
        assert!(old >= FLOWS as usize, "{old}: the file is opened again when all is written");
        assert_eq!(before + after, nf.packets);
    }
}

#[test]
fn packets_pass_while_an_export_is_written() {
    for (workers, pinned) in [(1, false), (2, false), (2, true)] {
        let folder = folder("capture = \"whole.pcap\"\nmemory = true", pinned);
        let options =
            RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
        let (plan, control) = (folder.load().unwrap(), Control::default());
        let report = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(plan, &options, &control).unwrap());
            wait(|| control.progress().packets_in > 2 * u64::from(FLOWS));
            export(&folder, &control);
            control.stop();
            run.join().unwrap()
        });
        check(&folder, &report);
    }
}

#[test]
fn an_export_is_written_without_further_packets() {
    for workers in [1, 2] {
        let folder = folder("capture = \"pipe\"", false);
        let pipe = folder.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
        let (plan, control) = (folder.load().unwrap(), Control::default());
        let report = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(plan, &options, &control).unwrap());
            // The pipe stays open, so that the run does not end by itself.
            let mut writer = std::fs::File::options().write(true).open(&pipe).unwrap();
            let capture = std::fs::File::open(folder.path("whole.pcap")).unwrap();
            std::io::copy(&mut &capture, &mut writer).unwrap();
            wait(|| control.progress().packets_in == u64::from(FLOWS));
            export(&folder, &control);
            control.stop();
            run.join().unwrap()
        });
        check(&folder, &report);
        assert_eq!(records(&folder, "a.json"), (0, 0));
    }
}
