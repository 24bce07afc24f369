//! Packet memory that is too small for all that want frames of it: a run goes on with what is left, or ends
//! with the reason; it never stands still.

mod common;
#[path = "common/queues.rs"]
mod queues;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Folder, kinds};
use queues::{SINK, SOURCE, seen};
use thalweg_engine::{Engine, Report, RunOptions};
use thalweg_testkit::odd_device::Odd;

/// How long a run may take that takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// The packets of each queue.
const EACH: u64 = 3000;

/// A run of a chain whose first and last NF have their packets on `device`.
struct Case {
    device: Odd,
    frames: usize,
    workers: usize,
    queues: usize,
    /// Frames that never come back, as those in rings of ports.
    held: usize,
}

fn run(sink: &str, case: &Case) -> Report {
    let Case { device, frames, workers, queues, held } = *case;
    let folder = Folder::new();
    let chain = format!(
        "[memory]\nframes = {frames}\n\
         [input.a]\nsource = {EACH}\nqueues = {queues}\n[output.o]\nsink = '{sink}'\nqueues = {queues}\n\
         [nf.first]\nkind = 'test'\nnumber = 0\nat = 'odd'\nwork_groups = 2\nfallback = 'cpu'\n\
         [nf.second]\nkind = 'test'\nnumber = 1\n\
         [nf.third]\nkind = 'test'\nnumber = 2\nat = 'odd'\nwork_groups = 4\nfallback = 'cpu'\n\
         [[route]]\npath = ['ingress', 'first', 'second', 'third', 'o']\n"
    );
    folder.write("chain.toml", &chain);
    let kinds = kinds().with_port(&SOURCE).with_port(&SINK).with_devices(Arc::new(device));
    let plan = folder.load_of(&kinds).unwrap();
    // Dropped, so that they are never given back.
    plan.pool.take_many(held, drop);
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    let engine = Engine::start(plan, options).unwrap();
    let control = engine.control().clone();
    let joined = thread::spawn(move || engine.join());
    let start = Instant::now();
    while !joined.is_finished() {
        if start.elapsed() > PATIENCE {
            let progress = control.progress();
            control.stop();
            panic!("{frames} frames, {workers} workers, {queues} queues: it stands, {progress:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let report = joined.join().unwrap();
    assert!(report.conserved, "{report:?}");
    assert_eq!(seen(sink).lock().unwrap().disorder, [""; 0]);
    report
}

/// Frames, workers and queues: pools that are too small for the bursts of all workers, and two whose bursts
/// keep their frames as long as none are lost.
const SHAPES: [(usize, usize, usize); 7] =
    [(128, 1, 1), (128, 3, 1), (128, 2, 2), (256, 4, 2), (160, 3, 3), (1024, 1, 1), (8192, 2, 2)];

/// Runs with a device in each shape.
fn runs(name: &str, device: Odd, mut check: impl FnMut(&Case, &Report)) {
    for (number, (frames, workers, queues)) in SHAPES.into_iter().enumerate() {
        let case = Case { device, frames, workers, queues, held: 0 };
        check(&case, &run(&format!("{name} {number}"), &case));
    }
}

impl Case {
    fn sent(&self) -> u64 {
        EACH * self.queues.min(self.workers) as u64
    }
}

#[test]
fn a_device_with_the_packets_of_a_small_pool_delays_others_and_loses_none() {
    runs("small", Odd::default(), |case, report| {
        assert_eq!(report.failures, [""; 0]);
        assert_eq!([report.packets_in, report.packets_out], [case.sent(); 2]);
    });
}

/// A device that returns nothing from some batch on has all packets that it can get when that is found.
fn silent(batch: usize) -> Odd {
    Odd { found_after: Duration::from_millis(30), ..Odd::failing_at(batch) }
}

#[test]
fn a_run_goes_on_with_the_frames_that_a_failed_device_leaves() {
    for batch in [1, 3, 10] {
        runs(&format!("failed {batch}"), silent(batch), |case, report| {
            assert_eq!(report.packets_in, case.sent(), "{:?}", report.failures);
            assert_eq!(report.failures, [""; 0]);
            let kept =
                report.nfs.iter().filter_map(|nf| nf.device.as_ref()).map(|of| of.kept_frames);
            assert!(kept.sum::<u64>() > 0, "frames are lost, and counted");
            assert!(report.packets_dropped > 0);
        });
    }
}

#[test]
fn a_run_ends_with_the_reason_if_failed_devices_leave_too_few_frames() {
    let (mut ended, mut went_on) = (0, 0);
    for batch in [1, 3, 10] {
        let device = Odd { keeps_all: true, ..silent(batch) };
        runs(&format!("all {batch}"), device, |case, report| {
            let failure = report.failures.first();
            if let Some(failure) = failure {
                assert!(failure.starts_with("devices that failed keep "), "{failure}");
                ended += 1;
                assert!(failure.contains(&format!("of {} frames", case.frames)));
            } else {
                went_on += 1;
                assert_eq!(report.packets_in, case.sent(), "{:?}", report.failures);
            }
        });
    }
    assert!(ended > 0 && went_on > 0, "{ended} ended, {went_on} went on");
}

/// Fewer are left than a run keeps free for packets that NFs generate.
#[test]
fn frames_in_rings_of_ports_do_not_keep_a_run_from_receiving() {
    for (number, (frames, workers, queues)) in SHAPES.into_iter().enumerate() {
        let case = Case { device: Odd::default(), frames, workers, queues, held: frames - 48 };
        let report = run(&format!("held {number}"), &case);
        assert_eq!([report.packets_in, report.packets_out], [case.sent(); 2]);
    }
}
