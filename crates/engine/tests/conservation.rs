//! Laws of every chain: no packet is lost without a reason, duplicated or reordered, with any
//! number of workers and wherever NFs run.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use common::{DROPS, EMITS, Folder, Ledger, Tag, server_port};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use thalweg_engine::{Control, Report, RunOptions, run};

/// An NF of a random chain.
#[derive(Clone, Debug)]
struct Nf {
    drop_one_in: u32,
    emit_one_in: u32,
    pinned: bool,
}

/// A random chain: for each packet type the NFs on its path, and its end.
#[derive(Clone, Debug)]
struct Chain {
    nfs: Vec<Nf>,
    ways: Vec<(Vec<usize>, &'static str)>,
    workers: usize,
    frames: usize,
    flows: u32,
    /// The flow, and whether the packet goes from server to client.
    packets: Vec<(u32, bool)>,
    inputs: usize,
}

fn nf() -> impl Strategy<Value = Nf> {
    (select(vec![0, 2, 5]), select(vec![0, 3, 6]), any::<bool>())
        .prop_map(|(drop_one_in, emit_one_in, pinned)| Nf { drop_one_in, emit_one_in, pinned })
}

fn chain() -> impl Strategy<Value = Chain> {
    prop::collection::vec(nf(), 0..5).prop_flat_map(|nfs| {
        let all: Vec<usize> = (0..nfs.len()).collect();
        let len = all.len();
        let way = (subsequence(all, 0..=len).prop_shuffle(), select(vec!["a", "b", "drop"]));
        (
            prop::collection::vec(way, 1..4),
            (1..5usize, select(vec![128, 16_384]), 1..40u32, 1..3usize),
            prop::collection::vec(any::<(u32, bool)>(), 1..600),
        )
            .prop_map(move |(mut ways, (workers, frames, flows, inputs), packets)| {
                // Every NF must be on a path.
                let missing = (0..nfs.len()).filter(|n| !ways.iter().any(|w| w.0.contains(n)));
                let missing: Vec<_> = missing.collect();
                ways[0].0.extend(missing);
                let nfs = nfs.clone();
                Chain { nfs, ways, workers, frames, flows, packets, inputs }
            })
    })
}

impl Chain {
    /// Packets in the order of each input; flows keep to one input.
    fn tags(&self) -> Vec<Vec<Tag>> {
        let mut tags = vec![Vec::new(); self.inputs];
        for (sequence, (flow, back)) in self.packets.iter().enumerate() {
            let tag =
                Tag { flow: flow % self.flows, back: *back, lineage: 0, sequence: sequence as u32 };
            tags[tag.flow as usize % self.inputs].push(tag);
        }
        tags
    }

    fn write(&self, folder: &Folder) {
        let mut text = format!(
            "routes = \"routes.csv\"\ndefault_type = \"t0\"\n[run]\nworkers = {}\n\
             [memory]\nframes = {}\nframe_size = 512\n\
             [output.a]\ncapture = \"a.pcap\"\n[output.b]\ncapture = \"b.pcap\"\n",
            self.workers, self.frames
        );
        for (i, tags) in self.tags().iter().enumerate() {
            folder.capture(&format!("in{i}.pcap"), tags);
            let _ = writeln!(text, "[input.in{i}]\ncapture = \"in{i}.pcap\"");
        }
        for (i, nf) in self.nfs.iter().enumerate() {
            let Nf { drop_one_in, emit_one_in, pinned } = nf;
            let _ = writeln!(
                text,
                "[nf.n{i}]\nkind = \"test\"\nnumber = {i}\ndrop_one_in = {drop_one_in}\n\
                 emit_one_in = {emit_one_in}\npinned = {pinned}"
            );
        }
        for i in 1..self.ways.len() {
            let port = server_port(i as u32);
            let _ = writeln!(text, "[[class]]\ntype = \"t{i}\"\nrules = [\"udp,tp_dst={port}\"]");
        }
        let mut routes = String::from("packet type, current NF, next NF\n");
        for (i, (way, end)) in self.ways.iter().enumerate() {
            let names = way.iter().map(|n| format!("n{n}"));
            let names: Vec<_> = ["ingress".to_owned()].into_iter().chain(names).collect();
            for hop in names.windows(2) {
                let _ = writeln!(routes, "t{i}, {}, {}", hop[0], hop[1]);
            }
            let _ = writeln!(routes, "t{i}, {}, {end}", names.last().unwrap());
        }
        folder.write("chain.toml", &text).write("routes.csv", &routes);
    }

    fn packet_type(&self, tag: Tag) -> usize {
        let number = (tag.flow % 4) as usize;
        if tag.back || number >= self.ways.len() { 0 } else { number }
    }

    /// Computes where a packet, and those generated for it, come out: one packet, one NF at a
    /// time.
    fn expect(&self, tag: Tag, packet_type: usize, from: usize, out: &mut Outcome) {
        let (way, end) = &self.ways[packet_type];
        for (at, nf) in way.iter().enumerate().skip(from) {
            let (number, nf) = (*nf as u32, &self.nfs[*nf]);
            if tag.falls(number, EMITS, nf.emit_one_in) {
                out.made += 1;
                self.expect(tag.child(number), packet_type, at + 1, out);
            }
            if tag.falls(number, DROPS, nf.drop_one_in) {
                out.dropped += 1;
                return;
            }
        }
        match *end {
            "drop" => out.dropped += 1,
            end => *out.ends.entry((end, tag)).or_default() += 1,
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    ends: BTreeMap<(&'static str, Tag), u32>,
    made: u64,
    dropped: u64,
}

fn sum(drops: &indexmap::IndexMap<&'static str, u64>) -> u64 {
    drops.values().sum()
}

fn check_report(report: &Report, packets: u64, ledger: &Ledger) {
    assert_eq!(report.failures, [""; 0]);
    assert!(report.conserved);
    assert_eq!(report.leaked_frames, 0);
    assert_eq!(report.packets_in, packets);
    assert_eq!(report.generated, ledger.made);
    assert_eq!(packets + ledger.made, report.packets_out + report.packets_dropped);
    assert_eq!(sum(&report.drops), report.packets_dropped);
    let at_nfs: u64 = report.nfs.iter().map(|nf| sum(&nf.drops)).sum();
    assert_eq!(at_nfs, ledger.dropped);
    assert_eq!(at_nfs + sum(&report.chain_drops), report.packets_dropped);
    let by_type: u64 = report.types.values().map(|t| t.packets).sum();
    assert_eq!(by_type, packets);
    let c = &report.classification;
    assert_eq!(c["emc_hits"] + c["megaflow_hits"] + c["rule_lookups"], packets);
}

/// Checks that in each output the packets of a flow's direction (and those that the same NFs
/// generated for them) are in the order received.
fn check_order(tags: &[Tag]) {
    let mut last = BTreeMap::new();
    for tag in tags {
        let before = last.insert((tag.flow, tag.back, tag.lineage), tag.sequence);
        assert!(before.is_none_or(|b| b < tag.sequence), "{tag:?} comes after {before:?}");
    }
}

/// Runs a chain on one worker, with its NFs inline.
fn run_inline(chain: &Chain) -> Folder {
    let folder = Folder::new();
    let nfs = chain.nfs.iter().map(|nf| Nf { pinned: false, ..nf.clone() }).collect();
    Chain { nfs, workers: 1, ..chain.clone() }.write(&folder);
    run(folder.load().unwrap(), &RunOptions::default(), &Control::default()).unwrap();
    folder
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_ends_where_a_walk_by_hand_ends_and_in_order(chain in chain()) {
        let folder = Folder::new();
        chain.write(&folder);
        let plan = folder.load().unwrap();
        let report = run(plan, &RunOptions::default(), &Control::default()).unwrap();
        let ledger = folder.ledger.lock().unwrap();
        check_report(&report, chain.packets.len() as u64, &ledger);

        let outputs = ["a", "b"].map(|name| (name, folder.tags(&format!("{name}.pcap"))));
        for ((_, tags), port) in outputs.iter().zip(&report.outputs) {
            assert_eq!(tags.len() as u64, port.packets);
            check_order(tags);
        }
        // A small pool may have had no frame for a packet that an NF generated.
        if chain.frames > 128 {
            assert_eq!(ledger.not_made, 0);
        }
        if ledger.not_made == 0 {
            let mut expected = Outcome::default();
            for tag in chain.tags().concat() {
                chain.expect(tag, chain.packet_type(tag), 0, &mut expected);
            }
            let mut found = Outcome {
                made: report.generated,
                dropped: report.packets_dropped,
                ..Outcome::default()
            };
            for (name, tags) in outputs {
                for tag in tags {
                    *found.ends.entry((name, tag)).or_default() += 1;
                }
            }
            assert_eq!(found, expected);
        }
        // Neither workers nor pinned NFs change what an NF or an output sees.
        let inline = run_inline(&chain);
        let seen_inline = inline.ledger.lock().unwrap();
        if ledger.not_made + seen_inline.not_made == 0 {
            assert_eq!(ledger.seen, seen_inline.seen);
            for output in ["a.pcap", "b.pcap"] {
                let [here, there] = [&folder, &inline].map(|f| std::fs::read(f.path(output)).unwrap());
                assert_eq!(here, there, "{output}");
            }
        }
    }
}

/// A chain of three NFs for the tests below, the second pinned.
fn three(packets: u32) -> Chain {
    let nf = |pinned| Nf { drop_one_in: 5, emit_one_in: 6, pinned };
    Chain {
        nfs: vec![nf(false), nf(true), nf(false)],
        ways: vec![(vec![0, 1, 2], "a"), (vec![2, 1], "b")],
        workers: 3,
        frames: 128,
        flows: 40,
        packets: (0..packets).map(|i| (i * 7, i % 3 == 0)).collect(),
        inputs: 1,
    }
}

#[test]
fn an_endless_run_ends_when_it_is_told_to_and_loses_nothing() {
    for workers in [1, 3] {
        let folder = Folder::new();
        three(500).write(&folder);
        let plan = folder.load().unwrap();
        let options =
            RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
        let control = Control::default();
        let report = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(plan, &options, &control).unwrap());
            while control.progress().packets_in < 2_000 {
                assert!(!run.is_finished(), "the run ended by itself");
                std::thread::yield_now();
            }
            control.stop();
            run.join().unwrap()
        });
        check_report(&report, report.packets_in, &folder.ledger.lock().unwrap());
        assert!(report.packets_in >= 2_000);
        let progress = control.progress();
        assert_eq!(progress.packets_in, report.packets_in);
        assert_eq!(progress.packets_out, report.packets_out);
        assert_eq!(progress.drops, report.packets_dropped);
    }
}

#[test]
fn count_and_duration_end_a_run_exactly() {
    for workers in [1, 2] {
        let folder = Folder::new();
        three(500).write(&folder);
        let options =
            RunOptions { count: Some(77), workers: Some(workers), ..RunOptions::default() };
        let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
        assert_eq!(report.packets_in, 77);
        let options = RunOptions {
            loops: Some(0),
            duration: Some(Duration::from_millis(50)),
            workers: Some(workers),
            ..RunOptions::default()
        };
        let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
        assert!(report.duration_s >= 0.05, "{}", report.duration_s);
        assert!(report.packets_in > 0 && report.conserved);
    }
}

#[test]
fn each_snapshot_of_a_run_balances() {
    take_snapshots(200);
}

/// The same for 10,000 snapshots.
#[test]
#[ignore = "takes half a minute"]
fn each_of_very_many_snapshots_balances() {
    take_snapshots(5_000);
}

fn take_snapshots(snapshots: u32) {
    for workers in [1, 3] {
        let folder = Folder::new();
        let mut chain = three(500);
        chain.frames = 4096;
        chain.write(&folder);
        let plan = folder.load().unwrap();
        let options =
            RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
        let control = Control::default();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| run(plan, &options, &control).unwrap());
            let (mut before, mut differing) = (0, 0);
            for _ in 0..snapshots {
                let report = control.snapshot(Duration::from_secs(20)).expect("the run answers");
                assert_eq!(report.failures, [""; 0]);
                assert!(report.conserved && report.packets_in >= before);
                let at_nf = &report.nfs[1];
                assert_eq!(at_nf.latency_ns.max == 0, at_nf.packets == 0);
                differing += u32::from(report.packets_in > before);
                before = report.packets_in;
            }
            assert!(differing > snapshots / 10, "the run went on: {differing}");
            control.stop();
            let report = run.join().unwrap();
            assert!(report.packets_in >= before);
        });
        let begun = Instant::now();
        assert!(control.snapshot(Duration::from_millis(20)).is_none());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
