//! Captures that are longer than what is read of them at once.

mod common;

use common::{Folder, Tag};
use thalweg_engine::{Control, Report, RunOptions, run};
use thalweg_packet::Nanoseconds;

const PACKETS: u32 = 20_000;

/// A folder with two captures of about 2 MB each, whose packets alternate in the order of time.
fn folder() -> Folder {
    let folder = Folder::new();
    for (input, name) in [(0, "a.pcap"), (1, "b.pcapng")] {
        let packets = (0..PACKETS).map(|n| {
            let tag = Tag { flow: input * 50 + n % 50, back: false, lineage: 0, sequence: n };
            (Nanoseconds(1_000_000_000 + u64::from(2 * n + input) * 1_000_000), tag.packet())
        });
        folder.timed_capture(name, packets);
        let size = std::fs::metadata(folder.path(name)).unwrap().len();
        assert!(size > 1_000_000, "{name} has {size} bytes");
    }
    folder.write("routes.csv", "*,ingress,count\n*,count,egress\n");
    folder
}

/// Runs `inputs` through a chain; returns the report, and what it has written.
fn run_over(folder: &Folder, inputs: &str, workers: usize) -> (Report, [Vec<u8>; 2]) {
    let chain = format!(
        "routes = \"routes.csv\"\n{inputs}\n[output.out]\ncapture = \"out.pcapng\"\n\
         [nf.count]\nkind = \"monitor\"\njson = \"flows.json\"\n"
    );
    folder.write("chain.toml", &chain);
    let options = RunOptions { workers: Some(workers), loops: Some(2), ..RunOptions::default() };
    let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
    let written = ["out.pcapng", "flows.json"].map(|name| {
        let bytes = std::fs::read(folder.path(name)).unwrap();
        std::fs::remove_file(folder.path(name)).unwrap();
        bytes
    });
    (report, written)
}

const ONE_INPUT: &str = "[input.in]\ncapture = [\"a.pcap\", \"b.pcapng\"]";
const TWO_INPUTS: &str = "[input.a]\ncapture = \"a.pcap\"\n[input.b]\ncapture = \"b.pcapng\"";

#[test]
fn any_number_of_workers_receives_the_same_packets() {
    let folder = folder();
    for inputs in [ONE_INPUT, TWO_INPUTS] {
        let (report, expected) = run_over(&folder, inputs, 1);
        assert!(!report.failed(), "{:?}", report.failures);
        assert_eq!(report.packets_in, u64::from(4 * PACKETS));
        for workers in [2, 3, 5] {
            let (report, written) = run_over(&folder, inputs, workers);
            assert!(!report.failed() && report.conserved, "{:?}", report.failures);
            assert_eq!(report.packets_in, u64::from(4 * PACKETS));
            assert!(written == expected, "{workers} workers, {inputs}");
        }
    }
}

#[test]
fn damage_in_the_middle_is_found_at_the_same_byte() {
    let folder = folder();
    for (name, at) in [("a.pcap", 1_234_567), ("b.pcapng", 987_654)] {
        let mut bytes = std::fs::read(folder.path(name)).unwrap();
        bytes[at..at + 200].fill(0xff);
        std::fs::write(folder.path(name), bytes).unwrap();
    }
    for inputs in [ONE_INPUT, TWO_INPUTS] {
        let (report, expected) = run_over(&folder, inputs, 1);
        assert_eq!(report.failures.len(), 2, "{:?}", report.failures);
        assert!(report.failures.iter().all(|failure| failure.contains(": at byte ")));
        for workers in [2, 4] {
            let (other, written) = run_over(&folder, inputs, workers);
            assert_eq!(other.failures, report.failures, "{workers} workers, {inputs}");
            assert_eq!(other.packets_in, report.packets_in, "{workers} workers, {inputs}");
            assert!(written == expected, "{workers} workers, {inputs}");
        }
    }
}
