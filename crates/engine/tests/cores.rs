//! Threads run on the cores that the chain file gives them, and helpers on any.
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::{Folder, Tag};
use thalweg_cpu::cores::{as_text, permitted};
use thalweg_engine::{Control, Engine, Reload, RunError, RunOptions, run};

const CHAIN: &str = r#"routes = "routes.csv"
[input.in]
capture = "in.pcap"
memory = true
[output.out]
discard = true
[nf.a]
kind = "test"
number = 0
[nf.b]
kind = "test"
number = 1
"#;

fn folder(lines: &str) -> Folder {
    let folder = Folder::new();
    let tag = |sequence| Tag { flow: sequence % 9, back: false, lineage: 0, sequence };
    folder.capture("in.pcap", &(0..500).map(tag).collect::<Vec<_>>());
    folder.write("routes.csv", "*,ingress,a\n*,a,b\n*,b,egress\n");
    folder.write("chain.toml", &format!("{lines}{CHAIN}"));
    folder
}

/// The cores that each thread of this process may use, by its name.
fn allowed() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
        found.insert(value("Name:").to_owned(), value("Cpus_allowed_list:").to_owned());
    }
    found
}

/// Waits until the threads have these cores.
#[track_caller]
fn wait_for(expected: &[(&str, String)]) {
    let began = Instant::now();
    loop {
        let found = allowed();
        if expected.iter().all(|(name, cores)| found.get(*name) == Some(cores)) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{found:?}; expected {expected:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn endless() -> RunOptions {
    RunOptions { loops: Some(0), ..RunOptions::default() }
}

/// One test, since threads are found by their names.
#[test]
fn each_thread_has_its_core_before_and_after_a_reload_and_helpers_have_all() {
    let (all, cores) = (as_text(permitted()), permitted());
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    let folder = self::folder(&format!("run = {{ workers = 2, cores = [{first}, \"{last}\"] }}\n"));
    let pinned = format!("number = 1\npinned = true\ncore = {last}");
    let chain = fs::read_to_string(folder.path("chain.toml")).unwrap();
    folder.write("chain.toml", &chain.replace("number = 1", &pinned));
    let engine = Engine::start(folder.load().unwrap(), endless()).unwrap();
    let workers = [("worker 0", first.to_string()), ("worker 1", last.to_string())];
    wait_for(&[&workers[..], &[("pinned 1", last.to_string()), ("engine", all.clone())]].concat());
    // The thread of the pinned NF moves, and the workers stay.
    folder.write(
        "chain.toml",
        &chain.replace(
            "number = 1",
            &pinned.replace(&format!("core = {last}"), &format!("core = {first}")),
        ),
    );
    let changes = engine.control().reload(Reload::default()).unwrap();
    assert_eq!(changes.0.len(), 1, "{changes}");
    wait_for(&[&workers[..], &[("pinned 1", first.to_string())]].concat());
    folder.write("chain.toml", &chain.replace("workers = 2, ", ""));
    let refused = engine.control().reload(Reload::default()).unwrap_err().to_string();
    assert!(refused.contains("'workers' cannot change while the chain runs"), "{refused}");
    engine.control().stop();
    let report = engine.join();
    let ran_on: Vec<_> = report.by_worker.iter().filter(|worker| worker.bursts > 0).collect();
    assert!(!ran_on.is_empty());
    for worker in ran_on {
        assert_eq!(worker.core, Some([first, last][worker.worker]));
    }

    // On one thread, which has all cores again at the end.
    let folder = self::folder(&format!("run.cores = \"{last}\"\n"));
    let (plan, control) = (folder.load().unwrap(), Control::default());
    thread::scope(|scope| {
        let alone = thread::Builder::new().name("alone".into()).spawn_scoped(scope, || {
            let report = run(plan, &endless(), &control).unwrap();
            (report, allowed()["alone"].clone())
        });
        wait_for(&[("alone", last.to_string())]);
        while control.progress().packets_in == 0 {
            thread::yield_now();
        }
        control.stop();
        let (report, after) = alone.unwrap().join().unwrap();
        assert_eq!(report.by_worker[0].core, Some(last));
        assert_eq!(after, all);
    });
}

#[test]
fn more_workers_than_cores_do_not_start() {
    let folder = folder(&format!("run.cores = {}\n", permitted()[0]));
    let options = RunOptions { workers: Some(2), ..RunOptions::default() };
    let error = run(folder.load().unwrap(), &options, &Control::default()).unwrap_err();
    assert!(matches!(error, RunError::Cores { workers: 2, cores: 1 }));
    let expected = "2 workers, but 1 core in 'cores' of [run]; expected a core for each worker";
    assert_eq!(error.to_string(), expected);
}
