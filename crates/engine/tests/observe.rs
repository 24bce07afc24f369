//! Packets of a run under way, observed: their traces, and copies of those that are dropped.

mod common;

use std::io::Read;
use std::process::Command;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use common::{Folder, Tag, wait};
use thalweg_engine::{
    Control, DropPlace, DropRecord, Drops, DropsWanted, Reload, Report, RunOptions, Trace, run,
    trace,
};
use thalweg_packet::DropReason;

/// The first NF is pinned in some variants, the third one divided; a NAT and a filter change and
/// reject packets.
fn chain(pinned: bool, divided: bool) -> String {
    format!(
        r#"routes = "routes.csv"
[input.left]
capture = "left.pcap"
[input.right]
capture = "right.pcap"
[output.a]
capture = "a.pcap"
[output.b]
capture = "b.pcap"
[[class]]
type = "web"
rules = ["udp,tp_dst=1001"]
[[class]]
type = "stray"
rules = ["udp,tp_dst=1002,nw_src=10.0.0.2"]
[nf.first]
kind = "test"
number = 0
drop_one_in = 7
emit_one_in = 4
pinned = {pinned}
[nf.nat]
kind = "nat"
inside = ["10.0.0.0/8"]
external = ["198.51.100.7"]
[nf.third]
kind = "test"
number = 2
drop_one_in = 5
divides = {divided}
[nf.fourth]
kind = "test"
number = 3
drop_one_in = 6
"#
    )
}

/// A route drops one type, and one goes nowhere, as no NF chooses its output.
const ROUTES: &str = "*,ingress,first\nweb,first,third\nweb,third,drop\nstray,first,third\nstray,third,egress\n\
    other,first,nat\nother,nat,third\nother,third,fourth\n*,fourth,a\n";

const PACKETS: u64 = 60;

fn tag(flow: u32, sequence: u32) -> Tag {
    Tag { flow, back: false, lineage: 0, sequence }
}

fn folder(pinned: bool, divided: bool) -> Folder {
    let folder = Folder::new();
    let (left, right): (Vec<_>, Vec<_>) =
        (0..PACKETS as u32).map(|n| tag(n % 11, n)).partition(|tag| tag.sequence % 3 > 0);
    folder.capture("left.pcap", &left).capture("right.pcap", &right);
    folder.write("chain.toml", &chain(pinned, divided)).write("routes.csv", ROUTES);
    folder
}

/// Each number of workers, with each place of the NFs.
fn variants() -> impl Iterator<Item = (usize, bool, bool)> {
    let places = [(false, false), (true, false), (false, true), (true, true)];
    [1, 2, 4].into_iter().flat_map(move |workers| places.map(|(p, d)| (workers, p, d)))
}

fn run_with(folder: &Folder, workers: usize, control: &Control) -> Report {
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    let report = run(folder.load().unwrap(), &options, control).unwrap();
    assert_eq!(report.failures, [""; 0]);
    assert!(report.conserved);
    report
}

fn records(drops: &mut Drops) -> Vec<DropRecord> {
    std::iter::from_fn(|| drops.try_next().ok()).collect()
}

/// A trace without what depends on the packets of the same batch: which layer answers, since those
/// before it have not been looked up yet, and what its megaflow covers.
fn apart_from_batch(trace: Trace) -> Trace {
    Trace { layer: "".into(), megaflow: String::new(), ..trace }
}

#[test]
fn a_trace_of_a_run_is_that_of_its_packet_wherever_nfs_run() {
    let alone: Vec<_> = (1..=PACKETS)
        .map(|n| trace(folder(false, false).load().unwrap(), n, &RunOptions::default()).unwrap())
        .collect();
    let fates = ["by a", "by first: filter-drop", "by third", "after third: policy"];
    for fate in fates.into_iter().chain(["the chain after third: no-route"]) {
        assert!(alone.iter().any(|trace| trace.fate.contains(fate)), "no {fate}");
    }
    assert!(alone.iter().any(|trace| !trace.steps[0].emitted.is_empty()));
    assert!(alone.iter().any(|t| t.steps.iter().any(|step| !step.changes.is_empty())));
    for (workers, pinned, divided) in variants() {
        let (folder, control) = (folder(pinned, divided), Control::default());
        let mut traces = control.traces("", PACKETS as usize).unwrap();
        run_with(&folder, workers, &control);
        for expected in &alone {
            let found = traces.try_next().unwrap();
            assert_eq!(
                apart_from_batch(found),
                apart_from_batch(expected.clone()),
                "{workers} workers, pinned {pinned}, divided {divided}"
            );
        }
        assert_eq!(traces.try_next(), Err(TryRecvError::Disconnected));
        assert_eq!(traces.passed_over(), 0);
    }
}

#[test]
fn the_next_packets_that_match_are_traced_and_no_others() {
    let alone = folder(false, false);
    let is_of_flow = |n: &u64| {
        let trace = trace(alone.load().unwrap(), *n, &RunOptions::default()).unwrap();
        trace.flow.contains("nw_src=10.0.0.4,")
    };
    let expected: Vec<_> = (1..=PACKETS).filter(is_of_flow).take(3).collect();
    for workers in [1, 3] {
        let (folder, control) = (folder(false, true), Control::default());
        let mut traces = control.traces("udp,nw_src=10.0.0.4,tp_dst=1000", 3).unwrap();
        let mut none = control.traces("tcp", 1000).unwrap();
        run_with(&folder, workers, &control);
        let next = || traces.next(Duration::from_secs(20));
        let numbers: Vec<_> = std::iter::from_fn(next).map(|trace| trace.packet).collect();
        assert_eq!(numbers, expected);
        assert!(none.next(Duration::from_secs(20)).is_none());
    }
}

#[test]
fn packets_are_passed_over_while_the_reader_is_behind() {
    let (folder, control) = (folder(false, false), Control::default());
    let mut traces = control.traces("", 1000).unwrap();
    let options = RunOptions { loops: Some(5), workers: Some(2), ..RunOptions::default() };
    run(folder.load().unwrap(), &options, &control).unwrap();
    let numbers: Vec<_> = std::iter::from_fn(|| traces.try_next().ok()).map(|t| t.packet).collect();
    assert_eq!(numbers, (1..=64).collect::<Vec<_>>());
    assert_eq!(traces.passed_over(), 5 * PACKETS - 64);
}

#[test]
fn each_dropped_packet_is_copied_with_its_place_and_reason() {
    for (workers, pinned, divided) in variants() {
        let (folder, control) = (folder(pinned, divided), Control::default());
        let mut drops = control.drops(&DropsWanted::default()).unwrap();
        let wanted = DropsWanted { nf: Some("third".into()), ..DropsWanted::default() };
        let mut of_third = control.drops(&wanted).unwrap();
        let pattern = "udp,nw_src=10.0.0.2".to_owned();
        let mut of_flow =
            control.drops(&DropsWanted { pattern, ..DropsWanted::default() }).unwrap();
        let report = run_with(&folder, workers, &control);
        let records = records(&mut drops);
        assert_eq!(records.len() as u64, report.packets_dropped);
        assert_eq!(drops.missed(), 0);
        let count = |place: &DropPlace, reason: DropReason| {
            let is_same = |record: &&DropRecord| record.place == *place && record.reason == reason;
            records.iter().filter(is_same).count() as u64
        };
        for nf in &report.nfs {
            let dropped = nf.drops.get("filter-drop").copied().unwrap_or(0);
            assert_eq!(count(&DropPlace::Nf(nf.name.clone()), DropReason::FilterDrop), dropped);
        }
        let after_third = DropPlace::Chain(Some("third".into()));
        assert_eq!(count(&after_third, DropReason::Policy), report.chain_drops["policy"]);
        assert_eq!(count(&after_third, DropReason::NoRoute), report.chain_drops["no-route"]);
        // Also copies of generated packets, by the input of those that they were generated for.
        assert!(records.iter().any(|record| Tag::of(&record.bytes).lineage > 0));
        for record in &records {
            let tag = Tag::of(&record.bytes);
            let input = if tag.sequence.is_multiple_of(3) { "right" } else { "left" };
            assert_eq!(record.input, input);
            assert_eq!((record.wire_len as usize, record.missed), (record.bytes.len(), 0));
        }
        let third = DropPlace::Nf("third".into());
        let at_third: Vec<_> = records.iter().filter(|r| r.place == third).cloned().collect();
        assert!(!at_third.is_empty());
        let same = |found: Vec<DropRecord>, expected: Vec<DropRecord>| {
            let sorted = |mut all: Vec<DropRecord>| {
                all.sort_by_key(|record| record.bytes.clone());
                all
            };
            assert_eq!(sorted(found), sorted(expected));
        };
        same(self::records(&mut of_third), at_third);
        let is_of_flow = |record: &&DropRecord| record.bytes[26..30] == [10, 0, 0, 2];
        same(self::records(&mut of_flow), records.iter().filter(is_of_flow).cloned().collect());
    }
}

#[test]
fn what_its_reader_has_no_room_for_is_missed_and_counted() {
    for workers in [1, 2] {
        let (folder, control) = (folder(false, true), Control::default());
        let mut drops = control.drops(&DropsWanted::default()).unwrap();
        let options =
            RunOptions { loops: Some(500), workers: Some(workers), ..RunOptions::default() };
        let report = run(folder.load().unwrap(), &options, &control).unwrap();
        let records = records(&mut drops).len() as u64;
        assert_eq!(records, 4096);
        assert_eq!(records + drops.missed(), report.packets_dropped);
        assert_eq!(drops.try_next(), Err(TryRecvError::Disconnected));
    }
}

#[test]
fn a_packet_that_an_output_drops_is_copied() {
    // The packets that the output had accepted before it failed are gone; that may be all.
    assert!((0..20).any(|_| copies_of_a_failed_output() > 0));
}

/// Runs until the reader of an output, a pipe, leaves after the header of the capture; returns how
/// many copies there are of packets that it dropped.
fn copies_of_a_failed_output() -> u64 {
    let folder = folder(false, false);
    let pipe = folder.path("a.pcap");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let control = Control::default();
    let mut drops = control.drops(&DropsWanted::default()).unwrap();
    let plan = folder.load().unwrap();
    let options = RunOptions { loops: Some(0), workers: Some(2), ..RunOptions::default() };
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(plan, &options, &control).unwrap());
        let mut reader = std::fs::File::open(pipe).unwrap();
        reader.read_exact(&mut [0; 24]).unwrap();
        drop(reader);
        run.join().unwrap()
    });
    assert!(report.conserved && report.failed());
    let records = records(&mut drops);
    let mut at_output = 0;
    for record in records.iter().filter(|r| r.place == DropPlace::Output("a".into())) {
        assert_eq!(record.reason, DropReason::OutputFailed);
        at_output += 1;
    }
    let dropped = report.outputs[0].drops["output-failed"];
    assert!(at_output <= dropped);
    assert!(records.len() as u64 + drops.missed() >= report.packets_dropped - dropped);
    at_output
}

#[test]
fn observing_changes_nothing_of_a_run() {
    for (workers, pinned, divided) in variants() {
        let [(plain, quiet), (observed, watched)] = [false, true].map(|is_observed| {
            let (folder, control) = (folder(pinned, divided), Control::default());
            let traces = is_observed.then(|| control.traces("", 1000).unwrap());
            let drops = is_observed.then(|| control.drops(&DropsWanted::default()).unwrap());
            let report = run_with(&folder, workers, &control);
            drop((traces, drops));
            (folder, report)
        });
        for output in ["a.pcap", "b.pcap"] {
            let [plain, observed] =
                [&plain, &observed].map(|f| std::fs::read(f.path(output)).unwrap());
            assert_eq!(plain, observed, "{output} with {workers} workers");
        }
        assert_eq!(quiet.drops, watched.drops);
        assert_eq!(quiet.classification, watched.classification);
        let seen = |folder: &Folder| {
            let mut seen = folder.ledger.lock().unwrap().seen.clone();
            // A divided NF records by part.
            seen.values_mut().for_each(|tags| tags.sort());
            seen
        };
        assert_eq!(seen(&plain), seen(&observed));
    }
}

#[test]
fn requests_are_checked_and_few() {
    let control = Control::default();
    let refused = |pattern: &str, count| control.traces(pattern, count).unwrap_err().to_string();
    assert_eq!(
        refused("tcp,nw_src=10.1.0.x", 1),
        "bad value of 'nw_src' at character 12 of the pattern: '10.1.0.x'; expected an IPv4 \
         address such as 10.0.0.1, 10.0.0.0/8 or 10.0.0.0/255.0.0.0"
    );
    assert!(refused("priority=7,tcp", 1).starts_with("'priority' is not supported here"));
    assert!(refused("in_port=left", 1).contains("before the run has begun"));
    assert_eq!(refused("tcp", 0), "0 packets to trace; expected 1 to 1000");
    assert_eq!(refused("tcp", 1001), "1001 packets to trace; expected 1 to 1000");
    let mut requests: Vec<_> = (0..4).map(|_| control.traces("", 1).unwrap()).collect();
    assert!(refused("", 1).contains("4 requests"));
    requests.pop();
    requests.push(control.traces("", 1).unwrap());
    // Of the other kind there may be as many.
    let drops: Vec<_> = (0..4).map(|_| control.drops(&DropsWanted::default()).unwrap()).collect();
    assert!(control.drops(&DropsWanted::default()).is_err());
    drop((requests, drops));
    run_with(&folder(false, false), 1, &control);
    assert_eq!(refused("", 1), "the run has ended");
}

#[test]
fn a_request_outlives_a_reload_that_moves_its_input() {
    for workers in [1, 2] {
        let folder = folder(false, false);
        let plan = folder.load().unwrap();
        let options =
            RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
        let control = Control::default();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| run(plan, &options, &control).unwrap());
            wait(|| control.progress().packets_in > 100);
            for (pattern, named) in [("in_port=rigth", "did you mean 'right'?"), ("in_port=7", "'")]
            {
                let error = control.traces(pattern, 1).unwrap_err().to_string();
                assert!(error.starts_with("unknown input") && error.contains(named), "{error}");
            }
            let unknown = DropsWanted { nf: Some("fifth".into()), ..DropsWanted::default() };
            let error = control.drops(&unknown).unwrap_err().to_string();
            assert_eq!(error, "no NF 'fifth'; expected first, nat, third, fourth");
            let mut traces = control.traces("in_port=right", 1000).unwrap();
            let inputs = |traces: &mut thalweg_engine::Traces| {
                for _ in 0..100 {
                    let trace = traces.next(Duration::from_secs(20)).unwrap();
                    assert_eq!(trace.input, "right");
                    assert!(trace.flow.contains("in_port=right,"), "{}", trace.flow);
                }
            };
            inputs(&mut traces);
            let [left, right] = ["left", "right"]
                .map(|name| format!("[input.{name}]\ncapture = \"{name}.pcap\"\n"));
            let moved =
                chain(false, false).replace(&format!("{left}{right}"), &format!("{right}{left}"));
            folder.write("chain.toml", &moved);
            control.reload(Reload::default()).unwrap();
            inputs(&mut traces);
            control.stop();
            assert!(run.join().unwrap().conserved);
        });
    }
}
