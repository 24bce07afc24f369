//! Live ports with several queues: their workers receive and send in lines of their own.

mod common;
#[path = "common/queues.rs"]
mod queues;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::{Folder, kinds, wait};
use queues::{SINK, SOURCE, seen};
use thalweg_chain::Plan;
use thalweg_engine::{Engine, PortReport, Reload, Report, RunOptions};
use thalweg_testkit::odd_device::Odd;

fn load(folder: &Folder, chain: &str) -> Plan {
    folder.write("chain.toml", chain);
    folder.load_of(&kinds().with_port(&SOURCE).with_port(&SINK)).unwrap()
}

fn start(folder: &Folder, chain: &str, workers: usize) -> Engine {
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    Engine::start(load(folder, chain), options).unwrap()
}

/// A chain of three test NFs, of which the first is pinned and the second divided if `places` says so.
fn chain(input: &str, sink: &str, sink_queues: usize, places: (bool, bool)) -> String {
    let (pinned, divides) = places;
    format!(
        "[input.a]\n{input}\n[output.o]\nsink = '{sink}'\nqueues = {sink_queues}\n\
         [nf.first]\nkind = 'test'\nnumber = 0\ndrop_one_in = 7\nemit_one_in = 5\npinned = {pinned}\n\
         [nf.second]\nkind = 'test'\nnumber = 1\ndrop_one_in = 9\ndivides = {divides}\n\
         [nf.third]\nkind = 'test'\nnumber = 2\nemit_one_in = 9\n\
         [[route]]\npath = ['ingress', 'first', 'second', 'third', 'o']\n"
    )
}

fn is_whole(report: &Report) {
    assert_eq!(report.failures, [""; 0]);
    assert!(report.conserved, "{report:?}");
}

fn by_queue(port: &PortReport) -> Vec<u64> {
    port.queues.iter().map(|queue| queue.packets).collect()
}

/// Checks that each NF has seen the packets of each flow in order.
fn nfs_saw_order(folder: &Folder) {
    for (nf, tags) in &folder.ledger.lock().unwrap().seen {
        let mut last = HashMap::new();
        for tag in tags {
            let before = last.insert((tag.flow, tag.lineage), tag.sequence);
            assert!(before.is_none_or(|before| before < tag.sequence), "NF {nf}: {tag:?}");
        }
    }
}

#[test]
fn packets_of_a_flow_keep_their_order_and_all_are_counted() {
    let places = [(false, false), (true, false), (false, true), (true, true)];
    for (number, (workers, queues, sink_queues)) in
        [(2, 2, 2), (2, 4, 1), (4, 2, 2), (3, 3, 2), (1, 2, 2), (5, 3, 16)].into_iter().enumerate()
    {
        for (place, places) in places.into_iter().enumerate() {
            let case = format!("{workers} workers, {queues} queues, {sink_queues}, {places:?}");
            let (folder, sink) = (Folder::new(), format!("order {number} {place}"));
            let input = format!("source = 3000\nqueues = {queues}\npauses = true");
            let report = start(&folder, &chain(&input, &sink, sink_queues, places), workers).join();
            is_whole(&report);
            let opened = queues.min(workers);
            assert_eq!(report.packets_in, 3000 * opened as u64, "{case}");
            let each = if opened == 1 { vec![] } else { vec![3000; opened] };
            assert_eq!(by_queue(&report.inputs[0]), each, "{case}");
            let used = sink_queues.min(opened);
            let sent = by_queue(&report.outputs[0]);
            assert_eq!(sent.len(), if used == 1 { 0 } else { used }, "{case}: {sent:?}");
            assert!(sent.iter().all(|packets| *packets > 0), "{case}: {sent:?}");
            let seen = seen(&sink);
            let seen = seen.lock().unwrap();
            assert_eq!(seen.disorder, [""; 0], "{case}");
            assert_eq!(seen.packets, report.packets_out, "{case}");
            nfs_saw_order(&folder);
            let counted: u64 = report.by_worker.iter().map(|worker| worker.packets).sum();
            assert_eq!(counted, report.packets_in, "{case}");
        }
    }
}

#[test]
fn inputs_with_one_queue_are_one_line() {
    for input in [
        "source = 1000\nqueues = 1",
        "source = 1000\nqueues = 3\n[input.b]\nsource = 500\nqueues = 1\nfirst = 8",
    ] {
        let (folder, sink) = (Folder::new(), format!("one {}", input.len()));
        let report = start(&folder, &chain(input, &sink, 4, (false, false)), 3).join();
        is_whole(&report);
        assert!(by_queue(&report.outputs[0]).is_empty(), "{:?}", report.outputs[0]);
        assert_eq!(seen(&sink).lock().unwrap().disorder, [""; 0]);
    }
}

#[test]
fn a_number_of_packets_is_kept_to() {
    let (folder, sink) = (Folder::new(), "count");
    let plan = load(&folder, &chain("source = 0\nqueues = 2", sink, 2, (false, false)));
    let options = RunOptions { workers: Some(2), count: Some(12_345), ..RunOptions::default() };
    let report = Engine::start(plan, options).unwrap().join();
    is_whole(&report);
    assert_eq!(report.packets_in, 12_345);
}

#[test]
fn each_snapshot_of_several_lines_balances() {
    for (number, pauses) in [false, true].into_iter().enumerate() {
        for (place, places) in [(false, false), (true, true)].into_iter().enumerate() {
            let (folder, sink) = (Folder::new(), format!("snapshots {number} {place}"));
            let input = format!("source = 0\nqueues = 2\npauses = {pauses}");
            let engine = start(&folder, &chain(&input, &sink, 1 + place, places), 2);
            let mut before = 0;
            for _ in 0..200 {
                let report = engine.control().snapshot(Duration::from_secs(20)).expect("an answer");
                is_whole(&report);
                assert_eq!(report.inputs[0].queues.len(), 2);
                assert!(report.packets_in >= before);
                before = report.packets_in;
            }
            wait(|| engine.control().progress().packets_in > before);
            engine.control().stop();
            let report = engine.join();
            is_whole(&report);
            assert!(report.packets_in > before);
            assert_eq!(seen(&sink).lock().unwrap().disorder, [""; 0]);
        }
    }
}

/// Inputs come and go, so that the number of lines changes, and the queues of those that stay are
/// divided again.
#[test]
fn a_reload_may_change_the_number_of_lines() {
    let more = "[input.b]\nsource = 0\nqueues = 1\nfirst = 8";
    for (number, divides) in [false, true].into_iter().enumerate() {
        let (folder, sink) = (Folder::new(), format!("reloads {number}"));
        let of = |input: &str, first: u32| {
            let chain = chain(input, &sink, 2, (false, divides));
            chain.replace("drop_one_in = 7", &format!("drop_one_in = {first}"))
        };
        let both = format!("source = 0\nqueues = 2\npauses = true\n{more}");
        let engine = start(&folder, &of("source = 0\nqueues = 2\npauses = true", 7), 2);
        for round in 0..20 {
            let input =
                if round % 2 == 0 { &both } else { "source = 0\nqueues = 2\npauses = true" };
            folder.write("chain.toml", &of(input, 3 + round));
            engine.control().reload(Reload::default()).unwrap();
            let at = engine.control().progress().packets_in;
            wait(|| engine.control().progress().packets_in > at + 2000);
            let report = engine.control().snapshot(Duration::from_secs(20)).expect("an answer");
            is_whole(&report);
            assert_eq!(report.reloads, u64::from(round) + 1);
        }
        engine.control().stop();
        let report = engine.join();
        is_whole(&report);
        assert_eq!(seen(&sink).lock().unwrap().disorder, [""; 0]);
        nfs_saw_order(&folder);
        // The input that came and went counts in the sum.
        assert!(report.former.unwrap().inputs.packets > 0);
    }
}

#[test]
fn an_nf_that_panics_ends_all_lines() {
    let (folder, sink) = (Folder::new(), "panics");
    let chain = chain("source = 0\nqueues = 2", sink, 2, (false, false));
    let report =
        start(&folder, &chain.replace("number = 1\n", "number = 1\ndies_at = 100\n"), 2).join();
    assert!(report.failures.iter().any(|failure| failure.contains("second")), "{report:?}");
    assert!(report.conserved, "{:?}", report.failures);
}

#[test]
fn exports_reach_nfs_and_end() {
    let (folder, sink) = (Folder::new(), "exports");
    let engine = start(&folder, &chain("source = 0\nqueues = 2", sink, 2, (false, false)), 2);
    for _ in 0..50 {
        engine.control().request_export();
        let at = engine.control().progress().packets_in;
        wait(|| engine.control().progress().packets_in > at + 500);
    }
    engine.control().stop();
    is_whole(&engine.join());
}

/// The first and the last NF have their packets on a device, which returns them late and in any order.
#[test]
fn packets_keep_their_order_while_a_device_has_those_of_several_lines() {
    for (workers, queues) in [(2, 2), (3, 2), (4, 3), (1, 2)] {
        let case = format!("{workers} workers, {queues} queues");
        let (folder, sink) = (Folder::new(), format!("devices {workers} {queues}"));
        let input = format!("source = 3000\nqueues = {queues}\npauses = true");
        let chain = chain(&input, &sink, queues, (false, false))
            .replace("number = 0\n", "number = 0\nat = 'odd'\nwork_groups = 2\n")
            .replace("number = 2\n", "number = 2\nat = 'odd'\nwork_groups = 4\n");
        folder.write("chain.toml", &chain);
        let devices = Arc::new(Odd::default());
        let kinds = kinds().with_port(&SOURCE).with_port(&SINK).with_devices(devices);
        let plan = folder.load_of(&kinds).unwrap();
        let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
        let engine = Engine::start(plan, options).unwrap();
        for _ in 0..20 {
            // `None` once the run has ended.
            if let Some(report) = engine.control().snapshot(Duration::from_secs(20)) {
                is_whole(&report);
            }
        }
        let report = engine.join();
        is_whole(&report);
        assert_eq!(report.packets_in, 3000 * (queues.min(workers)) as u64, "{case}");
        let seen = seen(&sink);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.disorder, [""; 0], "{case}");
        assert_eq!(seen.packets, report.packets_out, "{case}");
        nfs_saw_order(&folder);
    }
}
