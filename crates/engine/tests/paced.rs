//! Inputs with a pace: packets are received when their times come, and the answer stays the same.

mod common;

use std::fmt::Write;
use std::time::{Duration, Instant};

use common::{Folder, Tag};
use thalweg_engine::{Control, Report, RunOptions, run, trace};
use thalweg_packet::Nanoseconds;

const MILLISECOND: u64 = 1_000_000;

/// A chain whose inputs are captures with packets of these times, in milliseconds, and with these
/// keys; `more` is added to it.
fn folder(captures: &[(&[u64], &str)], more: &str) -> Folder {
    let folder = Folder::new();
    let mut chain = format!(
        "routes = \"routes.csv\"\n[output.out]\ncapture = \"out.pcapng\"\n\
         [nf.a]\nkind = \"test\"\nnumber = 0\n{more}\n"
    );
    for (input, (times, keys)) in captures.iter().enumerate() {
        let packet = |(at, time): (usize, &u64)| {
            let tag = Tag { flow: input as u32, back: false, lineage: 0, sequence: at as u32 };
            (Nanoseconds(*time * MILLISECOND), tag.packet())
        };
        let name = format!("in{input}.pcapng");
        folder.timed_capture(&name, times.iter().enumerate().map(packet));
        writeln!(chain, "[input.i{input}]\ncapture = \"{name}\"\n{keys}").unwrap();
    }
    folder.write("chain.toml", &chain).write("routes.csv", "*,ingress,a\n*,a,egress\n");
    folder
}

fn run_with(folder: &Folder, options: &RunOptions) -> Report {
    run(folder.load().unwrap(), options, &Control::default()).unwrap()
}

fn workers(workers: usize) -> RunOptions {
    RunOptions { workers: Some(workers), ..RunOptions::default() }
}

#[test]
fn packets_and_their_order_are_those_without_a_pace() {
    let [first, second]: [Vec<u64>; 2] =
        [0, 1].map(|start| (0..60).map(|n| 500 + 2 * n + start).collect());
    for (keys, least) in
        [("pace = 2", 60), ("pace = 2\nmemory = true", 60), ("pace = 1\nloop = 2", 239)]
    {
        let captures = [(&first[..], keys), (&second[..], keys)];
        let unpaced = keys.replace("pace", "# pace");
        let expected = folder(&[(&first, &unpaced), (&second, &unpaced)], "");
        run_with(&expected, &workers(1));
        for number in [1, 3] {
            let folder = folder(&captures, "");
            let start = Instant::now();
            let report = run_with(&folder, &workers(number));
            assert!(start.elapsed() >= Duration::from_millis(least), "{keys}, {number} workers");
            assert_eq!(folder.tags("out.pcapng"), expected.tags("out.pcapng"), "{keys}");
            let unpaced = report.inputs[0].mode.clone();
            assert!(unpaced.is_some_and(|mode| mode.contains(", pace ")), "{:?}", report.inputs[0]);
        }
    }
}

/// While the packets of one input are not due, those of others are received.
#[test]
fn other_inputs_do_not_wait() {
    let hour = 3_600_000;
    let generated = "[input.z]\ngenerate = { packets = 1000, flows = 3 }";
    let paced = "[input.y]\ngenerate = { packets = 1000, rate = 0.001 }\npace = 1.0";
    let captures: [(&[u64], &str); 2] =
        [(&[0, hour, 2 * hour], "pace = 1"), (&[1, hour + 1], "pace = 1")];
    for number in [1, 2] {
        for (captures, more) in [(&captures[..], generated), (&captures[..1], generated)] {
            let folder = folder(captures, &format!("{more}\n{paced}"));
            let duration = Some(Duration::from_millis(300));
            let report = run_with(&folder, &RunOptions { duration, ..workers(number) });
            let packets = |name: &str| {
                let input = report.inputs.iter().find(|input| input.name == name);
                input.map_or(0, |input| input.packets)
            };
            assert_eq!((packets("z"), packets("y"), packets("i0")), (1000, 1, 1));
            assert_eq!(packets("i1"), captures.len() as u64 - 1);
            assert!(report.conserved);
        }
    }
}

/// Captures that are read in turn have paces of their own.
#[test]
fn captures_in_turn_begin_together() {
    let hour = 3_600_000;
    let captures: [(&[u64], &str); 3] =
        [(&[0, 1], "pace = 0.5"), (&[hour, hour + 1], "pace = 1"), (&[2 * hour; 40], "")];
    let folder = folder(&captures, "[run]\nmerge = \"turn\"");
    let report = run_with(&folder, &workers(1));
    assert_eq!(report.packets_in, 44);
}

/// A trace shows what a run does, and need not take its time.
#[test]
fn a_trace_has_no_pace() {
    let hour = 3_600_000;
    let captures: [(&[u64], &str); 2] =
        [(&[0, 2 * hour], "pace = 1"), (&[hour, 3 * hour], "pace = 1")];
    let folder = folder(&captures, "");
    let trace = trace(folder.load().unwrap(), 4, &RunOptions::default()).unwrap();
    assert_eq!((&*trace.input, trace.timestamp_ns), ("i1", 3 * hour * MILLISECOND));
}
