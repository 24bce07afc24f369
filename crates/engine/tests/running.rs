//! Runs controlled from outside, and runs in which a part fails.

mod common;

use std::time::Duration;

use common::{Folder, Tag, wait};
use thalweg_engine::{Control, Engine, Reload, Report, RunError, RunOptions, run};

fn chain(extra: &str) -> String {
    format!(
        "routes = \"routes.csv\"\n{extra}\n[input.in]\ncapture = \"in.pcap\"\nmemory = true\n\
         [output.out]\ncapture = \"out.pcap\"\n\
         [[class]]\ntype = \"web\"\nfile = \"web.flows\"\n\
         [nf.a]\nkind = \"test\"\nnumber = 0\n"
    )
}

fn folder(extra: &str) -> Folder {
    let folder = Folder::new();
    let tags: Vec<_> =
        (0..1000).map(|n| Tag { flow: n % 50, back: false, lineage: 0, sequence: n }).collect();
    folder.capture("in.pcap", &tags).write("chain.toml", &chain(extra));
    folder.write("routes.csv", "*,ingress,a\n*,a,egress\n");
    folder.write("web.flows", "udp,tp_dst=1001\n");
    folder
}

fn run_once(folder: &Folder) -> Report {
    run(folder.load().unwrap(), &RunOptions::default(), &Control::default()).unwrap()
}

/// Runs without end, acts once packets flow, and then stops.
fn run_and(folder: &Folder, workers: usize, act: impl FnOnce(&Control)) -> Report {
    let plan = folder.load().unwrap();
    let options = RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
    let control = Control::default();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run(plan, &options, &control).unwrap());
        wait(|| control.progress().packets_in > 1000);
        act(&control);
        control.stop();
        run.join().unwrap()
    })
}

#[test]
fn each_worker_counts_what_it_has_done() {
    let folder = folder("");
    let check = |report: &Report, workers: usize| {
        assert_eq!(report.by_worker.len(), workers);
        let numbers: Vec<_> = report.by_worker.iter().map(|worker| worker.worker).collect();
        assert_eq!(numbers, (0..workers).collect::<Vec<_>>());
        let packets: u64 = report.by_worker.iter().map(|worker| worker.packets).sum();
        assert_eq!(packets, report.packets_in);
        for worker in &report.by_worker {
            assert!((0.0..=1.0).contains(&worker.busy_share), "{worker:?}");
            assert!(worker.packets >= worker.bursts, "{worker:?}");
            assert!(worker.bursts == 0 || worker.core.is_some(), "{worker:?}");
        }
    };
    for workers in [1, 2, 3] {
        let report = run_and(&folder, workers, |control| {
            for _ in 0..20 {
                check(&control.snapshot(Duration::from_secs(20)).unwrap(), workers);
            }
        });
        check(&report, workers);
        let busy: f64 = report.by_worker.iter().map(|worker| worker.busy_s).sum();
        assert!(busy > 0.0 && busy <= report.duration_s * 1.01 * workers as f64, "{busy}");
        let alone = report.by_worker.iter().map(|worker| worker.waits + worker.taken_over);
        assert!(workers > 1 || alone.sum::<u64>() == 0);
    }
}

#[test]
fn a_static_chain_is_one_type_and_one_way() {
    let folder = folder("");
    folder.write(
        "chain.toml",
        &chain("").replace("[[class]]\ntype = \"web\"\nfile = \"web.flows\"\n", ""),
    );
    let report = run_once(&folder);
    assert_eq!((report.packets_in, report.packets_out), (1000, 1000));
    assert_eq!(report.types["other"].packets, 1000);
    assert_eq!(report.nfs[0].packets, 1000);
    assert_eq!(
        folder.tags("out.pcap").iter().map(|t| t.sequence).collect::<Vec<_>>(),
        (0..1000).collect::<Vec<_>>()
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], "thalweg.run/1");
    assert_eq!(json["conserved"], true);
    assert!(report.nfs[0].latency_ns.p50 <= report.nfs[0].latency_ns.max);
    assert!(report.cycles_per_packet > 0.0 && report.latency_ns.p50 > 0);
}

/// An NF that changes headers only marks the packet; the next one must see the new headers.
#[test]
fn an_nf_sees_what_the_one_before_it_changed() {
    let folder = folder("");
    let text = chain("").replace(
        "kind = \"test\"\nnumber = 0\n",
        "kind = \"nat\"\ninside = [\"10.0.0.0/8\"]\nexternal = [\"198.51.100.7\"]\n\
         [nf.b]\nkind = \"filter\"\ndefault = \"drop\"\n\
         rules = [\"accept udp,nw_src=198.51.100.7\"]\n",
    );
    folder.write("chain.toml", &text).write("routes.csv", "*,ingress,a\n*,a,b\n*,b,egress\n");
    for workers in [1, 2] {
        let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
        let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
        assert_eq!((report.packets_in, report.packets_out), (1000, 1000));
    }
}

#[test]
fn new_rules_are_taken_up_while_packets_flow() {
    for workers in [1, 2] {
        let folder = folder("");
        let report = run_and(&folder, workers, |control| {
            folder.write("web.flows", "udp,tp_dst=1002\n");
            let told = control.reload(Reload::default()).unwrap().to_string();
            assert_eq!(told, "~ class: 1 rule -> 1 rule");
            let at = control.progress().packets_in;
            wait(|| control.progress().packets_in > at + 100_000);
        });
        assert_eq!(report.warnings, [""; 0]);
        assert!(report.conserved);
        // Each port has one flow in four; after the reload another port matches.
        let web = report.types["web"].packets as f64 / report.packets_in as f64;
        assert!((0.2..0.3).contains(&web), "{web}");
        // Each of the four flows was looked up at most once before it, and some after.
        assert!(report.classification["rule_lookups"] > 4, "{:?}", report.classification);
    }
}

#[test]
fn a_reload_with_mistakes_leaves_everything_as_it_was() {
    let folder = folder("");
    let report = run_and(&folder, 1, |control| {
        folder.write("web.flows", "udp,tp_dst=\nbogus\n");
        let error = control.reload(Reload::default()).unwrap_err();
        let lines = error.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("web.flows:1:"), "{lines:?}");
        assert!(lines[1].contains("web.flows:2:1: "), "{lines:?}");
        let at = control.progress().packets_in;
        wait(|| control.progress().packets_in > at + 10_000);
    });
    assert_eq!(report.classification["revalidated_away"], 0);
    assert!(!report.failed());
}

#[test]
fn a_damaged_capture_is_processed_to_the_damage_and_the_other_input_to_its_end() {
    for workers in [1, 2] {
        let folder = folder("[input.cut]\ncapture = \"cut.pcap\"\n");
        let whole = std::fs::read(folder.path("in.pcap")).unwrap();
        // A header of 24 bytes, then records of 16 + 55 bytes; the 101st is truncated.
        std::fs::write(folder.path("cut.pcap"), &whole[..24 + 71 * 100 + 30]).unwrap();
        let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
        let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
        assert_eq!(report.inputs.iter().map(|i| i.packets).collect::<Vec<_>>(), [100, 1000]);
        assert_eq!(report.packets_out, 1100);
        assert!(report.conserved && report.failed());
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
        assert!(report.failures[0].contains("cut.pcap: at byte "), "{:?}", report.failures);
    }
}

#[test]
fn a_full_output_ends_the_run_with_every_packet_counted() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("SKIPPED: no /dev/full");
        return;
    }
    for workers in [1, 2] {
        let folder = folder("");
        std::os::unix::fs::symlink("/dev/full", folder.path("out.pcap")).unwrap();
        let options =
            RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
        match run(folder.load().unwrap(), &options, &Control::default()) {
            // The file header could not be written.
            Err(RunError::Io(e)) => assert!(e.to_string().contains("out.pcap"), "{e}"),
            Err(e) => panic!("{e}"),
            Ok(report) => {
                assert!(report.conserved && report.failed());
                assert!(report.drops["output-failed"] > 0);
                assert_eq!(report.leaked_frames, 0);
            }
        }
    }
}

#[test]
fn an_nf_that_panics_ends_the_run_with_a_failure_and_every_packet_counted() {
    for (workers, pinned) in [(1, false), (1, true), (2, false), (2, true)] {
        let folder = folder("");
        let nf = format!("number = 0\ndies_at = 500\npinned = {pinned}\n");
        folder.write("chain.toml", &chain("").replace("number = 0\n", &nf));
        let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
        let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
        let (said, why) = (&report.failures[0], "panicked: requested by the test");
        assert!(said.contains("NF 'a'") && said.ends_with(why), "{said}");
        assert!(report.conserved && report.drops["unfinished"] > 0);
        assert_eq!(report.leaked_frames, 0);
    }
}

#[test]
fn too_many_workers_are_refused() {
    let options = RunOptions { workers: Some(257), ..RunOptions::default() };
    let error = run(folder("").load().unwrap(), &options, &Control::default()).unwrap_err();
    assert_eq!(error.to_string(), "bad number of workers: 257; expected 1 to 256");
}

#[test]
fn inputs_can_have_ways_of_their_own() {
    let folder = folder("[input.side]\ncapture = \"side.pcap\"\n");
    let tags: Vec<_> =
        (0..70).map(|n| Tag { flow: 900, back: false, lineage: 0, sequence: n }).collect();
    folder.capture("side.pcap", &tags);
    folder.write("routes.csv", "*,ingress,a\n*,side,drop\n*,a,egress\n");
    let report = run_once(&folder);
    assert_eq!(report.packets_out, 1000);
    assert_eq!(report.chain_drops["policy"], 70);
    assert!(folder.load().unwrap().graph().to_tree().contains("other from side"));
}

#[test]
fn an_engine_runs_beside_its_owner_until_it_is_stopped_or_dropped() {
    let folder = folder("");
    let options = RunOptions { loops: Some(0), ..RunOptions::default() };
    let engine = Engine::start(folder.load().unwrap(), options.clone()).unwrap();
    wait(|| engine.control().progress().packets_in > 1000);
    let before = engine.control().snapshot(Duration::from_secs(20)).unwrap();
    engine.control().stop();
    let report = engine.join();
    assert!(report.conserved && report.packets_in >= before.packets_in);
    let engine = Engine::start(folder.load().unwrap(), options).unwrap();
    let control = engine.control().clone();
    drop(engine);
    assert!(control.is_stopping());
    assert!(matches!(control.reload(Reload::default()), Err(thalweg_engine::ReloadError::Ended)));
}

#[test]
fn an_engine_that_cannot_start_says_why() {
    let folder = folder("");
    let plan = folder.load().unwrap();
    std::fs::remove_file(folder.path("in.pcap")).unwrap();
    let error = Engine::start(plan, RunOptions::default()).unwrap_err();
    assert!(error.to_string().contains("in.pcap"), "{error}");
}
