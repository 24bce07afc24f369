//! Threads that process packets are confined before their first packet, and a system call that is
//! refused to one ends the run with the name of the NF that made it.

mod common;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{Folder, Tag, kinds, wait};
use thalweg_chain::{Plan, PlanOptions};
use thalweg_engine::guard::{Confinement, refuse};
use thalweg_engine::{Control, Reload, Report, RunError, RunOptions, run};
use thalweg_nf::{Blueprint, Context, Grain, Kind, NetworkFunction};
use thalweg_packet::{Batch, Lanes};

/// The name of the calling thread.
fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Remembers which threads it has confined.
#[derive(Debug, Default)]
struct Witness {
    opened: AtomicUsize,
    confined: Mutex<Vec<String>>,
    /// What it fails with.
    fails: Option<&'static str>,
}

impl Confinement for Witness {
    fn opened(&self) -> Result<(), String> {
        assert_eq!(self.confined.lock().unwrap().len(), 0, "no packet before that");
        self.opened.fetch_add(1, Ordering::Relaxed);
        if self.fails == Some("opened") { Err("no".into()) } else { Ok(()) }
    }

    fn confine_thread(&self) -> Result<(), String> {
        self.confined.lock().unwrap().push(name());
        if self.fails == Some("thread") { Err("never".into()) } else { Ok(()) }
    }
}

/// An NF whose system call is refused at the third of its calls.
#[derive(Default)]
struct Prisoner {
    calls: u32,
}

impl NetworkFunction for Prisoner {
    fn process(&mut self, _: &mut Batch, _: Lanes, _: &mut Context<'_>) {
        self.calls += 1;
        if self.calls == 3 {
            // As a signal handler does.
            refuse("openat");
            refuse("connect");
        }
    }
}

struct Cell;

impl Blueprint for Cell {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Prisoner::default())
    }

    fn describe(&self) -> String {
        "a prisoner".into()
    }
}

const PRISONER: Kind = Kind {
    name: "prisoner",
    summary: "makes a system call that is refused",
    state: None,
    grain: Grain::None,
    limits: &[],
    chooses_output: false,
    keeps_names: false,
    takes_supers: false,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::json_schema!({}),
    build: |_, _| Ok(Box::new(Cell)),
};

fn folder(nf: &str) -> Folder {
    let folder = Folder::new();
    let tag = |n| Tag { flow: n % 50, back: false, lineage: 0, sequence: n };
    folder.capture("in.pcap", &(0..1000).map(tag).collect::<Vec<_>>());
    let chain = format!(
        "[input.in]\ncapture = 'in.pcap'\nmemory = true\n[output.out]\ndiscard = true\n\
         [nf.a]\n{nf}\n[[route]]\npath = ['ingress', 'a', 'egress']\n"
    );
    folder.write("chain.toml", &chain);
    folder
}

fn load(folder: &Folder) -> Plan {
    let kinds = kinds().with(PRISONER);
    Plan::load(&folder.path("chain.toml"), &kinds, PlanOptions::default()).unwrap()
}

fn options(workers: usize, witness: &Arc<Witness>) -> RunOptions {
    let confinement: Arc<dyn Confinement> = witness.clone();
    RunOptions {
        workers: Some(workers),
        loops: Some(0),
        confinement: Some(confinement),
        ..RunOptions::default()
    }
}

fn refused_run(workers: usize, pinned: bool) -> Report {
    let folder = folder(&format!("kind = 'prisoner'\npinned = {pinned}"));
    run(load(&folder), &options(workers, &Arc::default()), &Control::default()).unwrap()
}

#[test]
fn a_refused_call_ends_the_run_and_names_its_nf_with_every_packet_counted() {
    for (workers, pinned) in [(1, false), (1, true), (2, false), (2, true)] {
        let report = refused_run(workers, pinned);
        let told = "NF 'a' (prisoner) made the system call 'openat', which the sandbox refuses to \
                    threads that process packets; the run was ended";
        assert_eq!(report.failures, [told], "{workers} workers, pinned: {pinned}");
        assert!(report.conserved && report.leaked_frames == 0);
        assert!(report.drops["unfinished"] > 0);
    }
}

#[test]
fn all_threads_that_process_packets_are_confined_anew_after_each_reload() {
    for (workers, pinned, threads) in
        [(1, false, &["worker 0"][..]), (2, true, &["pinned 0", "worker 0", "worker 1"])]
    {
        let folder = folder(&format!("kind = 'test'\nnumber = 0\npinned = {pinned}"));
        let witness = Arc::new(Witness::default());
        let (options, control) = (options(workers, &witness), Control::default());
        thread::scope(|scope| {
            let run = scope.spawn(|| run(load(&folder), &options, &control).unwrap());
            wait(|| control.progress().packets_in > 1000);
            let chain = std::fs::read_to_string(folder.path("chain.toml")).unwrap();
            folder.write("chain.toml", &chain.replace("number = 0", "number = 1"));
            control.reload(Reload { accept_loss: true, ..Reload::default() }).unwrap();
            let at = control.progress().packets_in;
            wait(|| control.progress().packets_in > at + 1000);
            control.stop();
            assert!(!run.join().unwrap().failed());
        });
        let mut confined = witness.confined.lock().unwrap().clone();
        confined.sort();
        let twice: Vec<_> = threads.iter().flat_map(|name| [*name; 2]).collect();
        assert_eq!(confined, twice);
        assert_eq!(witness.opened.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_run_that_cannot_be_confined_does_not_process_packets() {
    for workers in [1, 2] {
        let folder = folder("kind = 'test'\nnumber = 0");
        let witness = Arc::new(Witness { fails: Some("opened"), ..Witness::default() });
        let refused = run(load(&folder), &options(workers, &witness), &Control::default());
        assert!(matches!(refused, Err(RunError::Confinement(why)) if why == "no"));
        let witness = Arc::new(Witness { fails: Some("thread"), ..Witness::default() });
        let report = run(load(&folder), &options(workers, &witness), &Control::default()).unwrap();
        assert_eq!(report.packets_in, 0);
        assert!(report.failures.iter().all(|failure| failure == "sandbox: never"));
        assert!(report.failed());
    }
}
