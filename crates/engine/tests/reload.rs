//! Reloads while packets flow.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Folder, Tag};
use thalweg_engine::{Control, Reload, ReloadError, Report, RunOptions, run};

const FLOWS: u32 = 50;

const PORTS: &str = "[input.in]\ncapture = \"in.pcap\"\nmemory = true\n\
                     [output.out]\ncapture = \"out.pcap\"\n";

/// A chain of NFs, each with its name and options, which all packets take in this order.
fn chain(nfs: &[(&str, &str)]) -> String {
    let mut path = vec!["ingress"];
    path.extend(nfs.iter().map(|(name, _)| *name));
    path.push("egress");
    let section = |(name, options): &(&str, &str)| format!("[nf.{name}]\n{options}\n");
    let sections: Vec<_> = nfs.iter().map(section).collect();
    format!("{PORTS}{}[[route]]\npath = {path:?}\n", sections.concat())
}

fn test_nf(number: u32) -> String {
    format!("kind = \"test\"\nnumber = {number}")
}

fn folder(chain: &str) -> Folder {
    let folder = Folder::new();
    let tags: Vec<_> =
        (0..1000).map(|n| Tag { flow: n % FLOWS, back: false, lineage: 0, sequence: n }).collect();
    folder.capture("in.pcap", &tags).write("chain.toml", chain);
    folder
}

/// Stops a run also when a check fails.
struct StopAtEnd<'a>(&'a Control);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs without end, acts once packets flow, and then stops.
fn run_and(folder: &Folder, workers: usize, act: impl FnOnce(&Control)) -> Report {
    let plan = folder.load().unwrap();
    let options = RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
    let control = Control::default();
    thread::scope(|scope| {
        let run = scope.spawn(|| run(plan, &options, &control).unwrap());
        let stop = StopAtEnd(&control);
        flow(&control, 1000);
        act(&control);
        drop(stop);
        run.join().unwrap()
    })
}

/// Waits until this many more packets have come.
#[track_caller]
fn flow(control: &Control, packets: u64) {
    let (start, before) = (Instant::now(), control.progress().packets_in);
    while control.progress().packets_in < before + packets {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reloads with another chain file; returns what has changed.
fn reload(folder: &Folder, control: &Control, chain: &str) -> Result<String, ReloadError> {
    // Others may read the file at this moment.
    let new = format!("{:?}.toml", thread::current().id());
    folder.write(&new, chain);
    std::fs::rename(folder.path(&new), folder.path("chain.toml")).unwrap();
    control.reload(Reload::default()).map(|difference| difference.to_string())
}

/// Packets are counted, and those of each flow are in order. The input is a loop of 1000 packets.
fn check(folder: &Folder, report: &Report) {
    assert!(report.conserved && !report.failed(), "{:?}", report.failures);
    assert_eq!(report.leaked_frames, 0);
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for tag in folder.tags("out.pcap") {
        let Some(before) = last.insert(tag.flow, tag.sequence) else { continue };
        assert_eq!(tag.sequence, (before + FLOWS) % 1000, "flow {}", tag.flow);
    }
}

#[test]
fn nfs_come_and_go_while_packets_flow() {
    let (a, b) = (test_nf(0), test_nf(1));
    for workers in [1, 2, 3] {
        let folder = folder(&chain(&[("a", &a)]));
        let report = run_and(&folder, workers, |control| {
            let both = chain(&[("a", &a), ("b", &b)]);
            let told = reload(&folder, control, &both).unwrap();
            assert_eq!(told, "+ nf 'b': test (test NF 1)\n~ route: 1 added, 0 removed, 1 changed");
            flow(control, 10_000);
            let told = reload(&folder, control, &chain(&[("b", &b)])).unwrap();
            assert_eq!(told, "- nf 'a': test\n~ route: 0 added, 1 removed, 1 changed");
            flow(control, 10_000);
            assert_eq!(reload(&folder, control, &chain(&[("b", &b)])).unwrap(), "");
        });
        check(&folder, &report);
        let former = report.former.as_ref().unwrap();
        assert_eq!((report.reloads, report.nfs.len(), former.nfs.len()), (2, 1, 1));
        assert!(report.nfs[0].packets >= 20_000 && former.nfs["test"].packets >= 10_000);
        assert!(report.packets_in == report.packets_out && report.warnings.is_empty());
    }
}

#[test]
fn no_packet_behind_the_answer_meets_the_old_chain() {
    let (pass, drop) = ("kind = \"filter\"", "kind = \"filter\"\nrules = [\"drop udp\"]");
    for workers in [1, 2] {
        let folder = folder(&chain(&[("wall", pass)]));
        let report = run_and(&folder, workers, |control| {
            let told = reload(&folder, control, &chain(&[("wall", drop)])).unwrap();
            let expected = "~ nf 'wall': 0 rules, default accept -> 1 rule, default accept";
            assert_eq!(told, expected);
            let before = control.snapshot(Duration::from_secs(20)).unwrap();
            flow(control, 10_000);
            let after = control.snapshot(Duration::from_secs(20)).unwrap();
            assert_eq!(after.packets_out, before.packets_out);
            assert!(before.conserved && after.conserved);
        });
        check(&folder, &report);
        assert!(report.drops["filter-drop"] >= 10_000);
    }
}

#[test]
fn the_options_of_a_running_instance_change() {
    for workers in [1, 2] {
        let folder = folder(&chain(&[("a", &test_nf(0))]));
        let report = run_and(&folder, workers, |control| {
            let all = format!("{}\ndrop_one_in = 1", test_nf(0));
            let told = reload(&folder, control, &chain(&[("a", &all)])).unwrap();
            assert_eq!(told, "~ nf 'a': other options (test NF 0)");
            flow(control, 5_000);
        });
        check(&folder, &report);
        let ledger = folder.ledger.lock().unwrap();
        assert_eq!((ledger.renewals, ledger.dropped), (1, report.packets_dropped));
        // One instance saw all.
        assert_eq!(report.nfs[0].packets, report.packets_in);
    }
}

#[test]
fn mappings_outlive_changes_of_their_nat() {
    let nat = |ports: &str| {
        format!("kind = \"nat\"\ninside = [\"10.0.0.0/8\"]\nexternal = [\"198.51.100.7\"]\n{ports}")
    };
    let changes = [
        "a = 0",
        "timeouts_s = { udp = 77 }",
        "max_mappings = 500",
        "pinned = true",
        "on_overload = \"drop\"",
    ];
    for workers in [1, 2] {
        for after in changes {
            let folder = folder(&chain(&[("nat", &nat("")), ("a", &test_nf(0))]));
            let report = run_and(&folder, workers, |control| {
                let changed = match after {
                    "a = 0" => chain(&[("nat", &nat("")), ("b", &test_nf(0))]),
                    options => chain(&[("nat", &nat(options)), ("a", &test_nf(0))]),
                };
                let told = reload(&folder, control, &changed).unwrap();
                assert_eq!(told.contains("state moved"), after.starts_with("max"), "{told}");
                assert!(after == "a = 0" || told.contains("nf 'nat'"), "{told}");
                flow(control, 5_000);
            });
            check(&folder, &report);
            // Each flow has one port to the end.
            let mut ports: BTreeMap<u32, u16> = BTreeMap::new();
            for packet in folder.packets("out.pcap") {
                let port = u16::from_be_bytes([packet[34], packet[35]]);
                let first = *ports.entry(Tag::of(&packet).flow).or_insert(port);
                assert_eq!(first, port, "{after}");
            }
            assert_eq!(ports.len(), FLOWS as usize);
        }
    }
}

#[test]
fn state_is_lost_only_if_that_is_accepted() {
    let nat = |external: &str| {
        format!("kind = \"nat\"\ninside = [\"10.0.0.0/8\"]\nexternal = [\"{external}\"]")
    };
    let folder = folder(&chain(&[("nat", &nat("198.51.100.7"))]));
    let report = run_and(&folder, 1, |control| {
        let elsewhere = chain(&[("nat", &nat("203.0.113.9"))]);
        folder.write("chain.toml", &elsewhere);
        for dry_run in [true, false] {
            let error = control.reload(Reload { dry_run, ..Reload::default() }).unwrap_err();
            assert!(matches!(&error, ReloadError::State { nf, .. } if nf == "nat"), "{error}");
        }
        flow(control, 1000);
        let told = control.reload(Reload { dry_run: true, accept_loss: true }).unwrap();
        assert!(told.to_string().ends_with("state lost"), "{told}");
        flow(control, 1000);
        control.reload(Reload { dry_run: false, accept_loss: true }).unwrap();
        flow(control, 1000);
    });
    check(&folder, &report);
    assert_eq!(report.reloads, 1);
    let sources = folder.packets("out.pcap").into_iter().map(|packet| packet[26]);
    let mut sources: Vec<_> = sources.collect();
    sources.dedup();
    assert_eq!(sources, [198, 203]);
}

#[test]
fn a_dry_run_tells_what_would_change_and_changes_nothing() {
    let folder = folder(&chain(&[("a", &test_nf(0))]));
    let report = run_and(&folder, 2, |control| {
        let more = PORTS.to_owned() + "[output.more]\ncapture = \"more.pcap\"\n";
        let new = chain(&[("a", &test_nf(1))]).replace(PORTS, &more);
        folder.write("chain.toml", &new);
        let told = control.reload(Reload { dry_run: true, ..Reload::default() }).unwrap();
        let expected = "+ output 'more': capture more.pcap\n~ nf 'a': test NF 0 -> test NF 1";
        assert!(told.to_string().replace(&format!("{}/", folder.root()), "").starts_with(expected));
        flow(control, 1000);
    });
    check(&folder, &report);
    assert_eq!((report.reloads, report.outputs.len()), (0, 1));
    assert!(!folder.path("more.pcap").exists());
}

#[test]
fn mistakes_and_what_cannot_change_leave_everything_as_it_was() {
    let good = chain(&[("a", &test_nf(0)), ("wall", "kind = \"filter\"")]);
    let folder = folder(&good);
    let report = run_and(&folder, 2, |control| {
        let refused = [
            (good.replace("\"filter\"", "\"filtre\""), "unknown NF kind 'filtre'"),
            (good.replace("\"filter\"", "\"filter\"\nrules = [\"drop x\"]"), "chain.toml:11:16: "),
            (good.clone() + "[memory]\nframes = 4096\n", "'frames' cannot change"),
            (good.clone() + "[run]\nworkers = 4\n", "'workers' cannot change"),
            (good.clone() + "[run]\nseed = 4\n", "'seed' cannot change"),
            (good.replace("in.pcap", "gone.pcap"), "gone.pcap"),
            (good.replace("\"out.pcap\"", "\"no/such/folder/out.pcap\""), "no such folder"),
            (good.replace("number = 0", "number = 0\nfails = true"), "the reload panicked: as"),
        ];
        for (chain, expected) in refused {
            let error = reload(&folder, control, &chain).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        // A signal gets no answer: the report has it.
        folder.write("chain.toml", "nonsense\n");
        control.request_reload();
        flow(control, 50_000);
    });
    check(&folder, &report);
    assert_eq!((report.reloads, report.warnings.len()), (0, 1), "{:?}", report.warnings);
    assert!(report.warnings[0].starts_with("not reloaded: "), "{:?}", report.warnings);
}

#[test]
fn ports_come_and_go_and_files_that_stay_go_on() {
    for workers in [1, 2] {
        let a = test_nf(0);
        let one = chain(&[("a", &a)]);
        let folder = folder(&one);
        let tags = (0..500).map(|n| Tag { flow: 77, back: false, lineage: 0, sequence: n });
        folder.capture("other.pcap", &tags.collect::<Vec<_>>());
        let report = run_and(&folder, workers, |control| {
            let more = "[input.other]\ncapture = \"other.pcap\"\n[output.copy]\ndiscard = true\n";
            let routes = "[[route]]\npath = [\"in\", \"a\", \"out\"]\n\
                          [[route]]\npath = [\"other\", \"copy\"]\n";
            let both = one.split("[[route]]").next().unwrap().to_owned() + more + routes;
            reload(&folder, control, &both).unwrap();
            flow(control, 5_000);
            let all = control.snapshot(Duration::from_secs(20)).unwrap();
            assert_eq!((all.inputs.len(), all.outputs[1].packets), (2, all.inputs[1].packets));
            reload(&folder, control, &one).unwrap();
            flow(control, 1_000);
        });
        check(&folder, &report);
        let former = report.former.as_ref().unwrap();
        assert_eq!(former.inputs.packets, former.outputs.packets);
        assert_eq!(report.packets_in, report.inputs[0].packets + former.inputs.packets);
        assert!(former.inputs.packets > 0);
        let written = folder.tags("out.pcap").len() as u64;
        assert_eq!(report.outputs[0].packets, written);
    }
}

#[test]
fn packet_types_come_and_go() {
    let class = "[[class]]\ntype = \"web\"\nrules = [\"udp,tp_dst=1001\"]\n";
    for workers in [1, 2] {
        let plain = chain(&[("a", &test_nf(0))]);
        let folder = folder(&plain);
        let report = run_and(&folder, workers, |control| {
            let told = reload(&folder, control, &format!("{plain}{class}")).unwrap();
            assert!(told.starts_with("+ class 'web'"), "{told}");
            flow(control, 8_000);
            let now = control.snapshot(Duration::from_secs(20)).unwrap();
            // Each port has one flow in four.
            assert!(now.types["web"].packets >= 1_900, "{:?}", now.types);
            reload(&folder, control, &plain).unwrap();
        });
        check(&folder, &report);
        let former = report.former.as_ref().unwrap();
        assert_eq!(report.types["other"].packets + former.types.packets, report.packets_in);
        assert!(former.types.packets >= 1_900);
    }
}

#[test]
fn an_nf_gets_a_thread_of_its_own_and_gives_it_back() {
    for workers in [1, 2] {
        let here = chain(&[("a", &test_nf(0)), ("b", &test_nf(1))]);
        let folder = folder(&here);
        let report = run_and(&folder, workers, |control| {
            for _ in 0..3 {
                reload(&folder, control, &here.replace("number = 0", "number = 0\npinned = true"))
                    .unwrap();
                flow(control, 2_000);
                reload(&folder, control, &here).unwrap();
                flow(control, 2_000);
            }
        });
        check(&folder, &report);
        assert_eq!(report.reloads, 6);
        assert_eq!(report.nfs[0].packets, report.packets_in);
    }
}

#[test]
fn nobody_waits_for_a_run_that_has_ended() {
    let folder = folder(&chain(&[("a", &test_nf(0))]));
    let control = Arc::new(Control::default());
    run(folder.load().unwrap(), &RunOptions::default(), &control).unwrap();
    assert!(matches!(control.reload(Reload::default()), Err(ReloadError::Ended)));
    assert!(control.snapshot(Duration::from_secs(60)).is_none());
}

/// Threads that reload at the same time are answered one after the other.
#[test]
fn reloads_do_not_mix() {
    let folder = folder(&chain(&[("a", &test_nf(0))]));
    let report = run_and(&folder, 2, |control| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..10 {
                        let chain = chain(&[("a", &test_nf(n % 3))]);
                        reload(&folder, control, &chain).unwrap();
                    }
                });
            }
        });
    });
    check(&folder, &report);
    assert!(report.reloads > 0);
}

/// A file may change after it was read, and before the run looks at files for the first time.
#[test]
fn a_watched_file_that_has_changed_since_it_was_read_is_read_again() {
    let folder = folder(&chain(&[("a", &test_nf(0))]));
    let plan = folder.load().unwrap();
    folder.write("chain.toml", &chain(&[("b", &test_nf(1))]));
    let options =
        RunOptions { loops: Some(0), workers: Some(1), watch: true, ..RunOptions::default() };
    let control = Control::default();
    let report = thread::scope(|scope| {
        let run = scope.spawn(|| run(plan, &options, &control).unwrap());
        let stop = StopAtEnd(&control);
        common::wait(|| control.plan().is_some_and(|plan| plan.nfs[0].name == "b"));
        drop(stop);
        run.join().unwrap()
    });
    assert_eq!((report.reloads, report.failed()), (1, false));
}
