//! A capture in many files is one capture.

mod common;

use common::{Folder, Tag};
use thalweg_engine::{Control, Report, RunOptions, run};
use thalweg_packet::Nanoseconds;

/// A folder with `traffic/`: 3000 packets of 40 flows, 100 in each file, whose names say nothing
/// of their order; and with all of them in `whole.pcap`.
fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("traffic")).unwrap();
    let packets: Vec<_> = (0..3000u32)
        .map(|n| {
            let tag = Tag { flow: n % 40, back: false, lineage: 0, sequence: n };
            (Nanoseconds(1_000_000_000 + u64::from(n) * 1_000_000), tag.packet())
        })
        .collect();
    for (number, part) in packets.chunks(100).enumerate() {
        let name = format!("traffic/{}.pcap", number * 7 % 30);
        folder.timed_capture(&name, part.iter().cloned());
    }
    folder.timed_capture("whole.pcap", packets);
    folder.write("routes.csv", "*,ingress,count\n*,count,nat\n*,nat,egress\n");
    folder
}

/// Runs the captures through a chain; returns the report, the flow records and the packets.
fn run_over(folder: &Folder, input: &str, workers: usize) -> (Report, String, Vec<Tag>) {
    let chain = format!(
        "routes = \"routes.csv\"\n[input.in]\n{input}\n[output.out]\ncapture = \"out.pcap\"\n\
         [nf.count]\nkind = \"monitor\"\njson = \"flows.json\"\n\
         [nf.nat]\nkind = \"nat\"\ninside = [\"10.0.0.0/8\"]\nexternal = [\"198.51.100.7\"]\n"
    );
    folder.write("chain.toml", &chain);
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
    let flows = std::fs::read_to_string(folder.path("flows.json")).unwrap();
    std::fs::remove_file(folder.path("flows.json")).unwrap();
    (report, flows, folder.tags("out.pcap"))
}

#[test]
fn flows_are_joined_across_files() {
    let folder = folder();
    let (_, flows, packets) = run_over(&folder, "capture = \"whole.pcap\"", 1);
    assert_eq!(flows.lines().count(), 40, "{flows}");
    for input in ["capture = \"traffic/\"", "capture = \"traffic/*.pcap\"\nmemory = true"] {
        for workers in [1, 2] {
            let (report, of_parts, packets_of_parts) = run_over(&folder, input, workers);
            assert!(!report.failed() && report.warnings.is_empty(), "{:?}", report.failures);
            assert_eq!(report.inputs[0].packets, 3000);
            assert_eq!((&of_parts, &packets_of_parts), (&flows, &packets), "{input}");
        }
    }
}

#[test]
fn the_damage_of_one_file_is_reported_and_the_rest_is_read() {
    for workers in [1, 2] {
        let folder = folder();
        let damaged = folder.path("traffic/14.pcap");
        let whole = std::fs::read(&damaged).unwrap();
        std::fs::write(&damaged, &whole[..whole.len() - 1]).unwrap();
        let (report, _, packets) = run_over(&folder, "capture = \"traffic\"", workers);
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
        assert!(report.failures[0].contains("14.pcap: at byte "), "{:?}", report.failures);
        assert_eq!(packets.len(), 2999);
        assert!(report.conserved);
    }
}
