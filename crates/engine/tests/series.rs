//! A run over time: its intervals add up to its report, to the packet.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Folder, Tag};
use thalweg_engine::{
    Control, Interval, NfInterval, Pace, PortReport, Report, RunOptions, Sampler, Series, run,
};

const CHAIN: &str = r#"[input.in]
capture = "in.pcap"
memory = true
pace = 1.0
[input.other]
capture = "other.pcap"
memory = true
pace = 1.0
[output.out]
discard = true
[[class]]
type = "web"
rules = ["udp,tp_dst=1001"]
[nf.guard]
kind = "filter"
rules = ["drop udp,tp_dst=1003"]
[nf.count]
kind = "monitor"
[[route]]
path = ["ingress", "guard", "count", "egress"]
"#;

/// How fast packets come: as fast as they are processed.
const BUSY: &str = "";
/// 20,000 a second, so that a run of seconds leaves the processor to others.
const CALM: &str = "pace = 0.02";

fn folder(pace: &str) -> Folder {
    let folder = Folder::new();
    let tags = |first, count| -> Vec<_> {
        let tag = |n: u32| Tag { flow: n % 50, back: n.is_multiple_of(3), lineage: 0, sequence: n };
        (first..first + count).map(tag).collect()
    };
    folder.capture("in.pcap", &tags(0, 1000)).capture("other.pcap", &tags(5000, 300));
    folder.write("chain.toml", &CHAIN.replace("pace = 1.0", pace));
    folder
}

/// A sampled run, and the intervals that its observer has received.
fn sampled(
    packets: &str,
    options: &RunOptions,
    pace: Pace,
    stop_at: u64,
) -> (Report, Series, Vec<Interval>) {
    let folder = folder(packets);
    let plan = folder.load().unwrap();
    let control = Arc::new(Control::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (kept, ended) = (seen.clone(), Arc::new(AtomicBool::new(false)));
    let stopper = control.clone();
    let sampler = Sampler::start(control.clone(), pace, move |interval, is_last| {
        assert!(!ended.swap(is_last, Relaxed), "nothing follows the last interval");
        let mut kept = kept.lock().unwrap();
        kept.push(interval.clone());
        if kept.len() as u64 >= stop_at {
            stopper.stop();
        }
    });
    let report = run(plan, options, &control).unwrap();
    let series = sampler.unwrap().finish(&report);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (report, series, seen)
}

fn sum_ports(intervals: &[Interval], of: fn(&Interval) -> &Vec<PortReport>) -> Vec<PortReport> {
    let mut sum = of(&intervals[0]).clone();
    for interval in &intervals[1..] {
        for (port, more) in sum.iter_mut().zip(of(interval)) {
            assert_eq!(port.name, more.name);
            port.packets += more.packets;
            port.bytes += more.bytes;
            more.drops.iter().for_each(|(why, n)| *port.drops.entry(why).or_default() += n);
        }
    }
    sum
}

/// Checks that intervals follow each other and add up to the report.
#[track_caller]
fn check(report: &Report, intervals: &[Interval]) {
    let sum = |count: fn(&Interval) -> u64| intervals.iter().map(count).sum::<u64>();
    assert_eq!(sum(|i| i.packets_in), report.packets_in);
    assert_eq!(sum(|i| i.bytes_in), report.bytes_in);
    assert_eq!(sum(|i| i.packets_out), report.packets_out);
    assert_eq!(sum(|i| i.bytes_out), report.bytes_out);
    assert_eq!(sum(|i| i.packets_dropped), report.packets_dropped);
    let reasons: Vec<_> = report.drops.keys().copied().collect();
    for reason in reasons {
        let of_all = intervals.iter().filter_map(|i| i.drops.get(reason)).sum::<u64>();
        assert_eq!(of_all, report.drops[reason], "{reason}");
    }
    for interval in intervals {
        let ends = interval.packets_out + interval.packets_dropped;
        assert_eq!(interval.packets_in + interval.generated, ends, "{interval:?}");
        assert_eq!(interval.drops.values().sum::<u64>(), interval.packets_dropped);
    }
    let both = [
        (sum_ports(intervals, |i| &i.inputs), &report.inputs),
        (sum_ports(intervals, |i| &i.outputs), &report.outputs),
    ];
    for (found, expected) in both {
        let counts = |ports: &[PortReport]| -> Vec<_> {
            ports.iter().map(|p| (p.name.clone(), p.packets, p.bytes, p.drops.clone())).collect()
        };
        assert_eq!(counts(&found), counts(expected));
    }
    for (n, nf) in report.nfs.iter().enumerate() {
        let sum = |count: fn(&NfInterval) -> u64| {
            intervals.iter().map(|interval| count(&interval.nfs[n])).sum::<u64>()
        };
        assert_eq!((sum(|nf| nf.packets), sum(|nf| nf.bytes)), (nf.packets, nf.bytes));
        assert_eq!(sum(|nf| nf.drops.values().sum()), nf.drops.values().sum::<u64>());
        let cycles = sum(|nf| nf.cycles) as f64 / nf.packets.max(1) as f64;
        assert!((cycles - nf.cycles_per_packet).abs() < 1e-6 * cycles.max(1.0));
    }
    for (name, of_type) in &report.types {
        let packets =
            intervals.iter().filter_map(|i| i.types.get(name)).map(|t| t.packets).sum::<u64>();
        assert_eq!(packets, of_type.packets, "{name}");
    }
    assert_eq!(intervals[0].start_s.to_bits(), 0.0f64.to_bits());
    let last = intervals.last().unwrap();
    assert_eq!(last.end_s.to_bits(), report.duration_s.to_bits());
    for pair in intervals.windows(2) {
        assert_eq!(pair[0].end_s.to_bits(), pair[1].start_s.to_bits());
    }
}

#[test]
fn intervals_add_up_to_the_report_with_any_number_of_workers() {
    for workers in [1, 3] {
        let options =
            RunOptions { loops: Some(0), workers: Some(workers), ..RunOptions::default() };
        let pace = Pace::Steady(Duration::from_millis(15));
        let (report, series, seen) = sampled(BUSY, &options, pace, 12);
        assert!(seen.len() >= 12 && report.packets_in > 0 && report.packets_dropped > 0);
        check(&report, &seen);
        check(&report, &series.intervals);
        // An interval in which packets passed has their times and rates.
        let busy: Vec<_> = seen.iter().filter(|i| i.packets_out > 0).collect();
        assert!(busy.len() > 3);
        for interval in busy {
            let latency = interval.latency_ns;
            assert!(latency.p50 > 0 && latency.p50 <= latency.p99 && latency.p99 <= latency.max);
            let rate = interval.packets_in as f64 / interval.seconds();
            assert!((interval.packets_per_second - rate).abs() <= 1e-6 * rate);
            // A bucket of the whole run's histogram has three digits, one of an interval 6 bits.
            assert!(latency.max <= report.latency_ns.max + report.latency_ns.max / 32 + 1);
        }
    }
}

#[test]
fn a_run_that_ends_before_the_first_snapshot_is_one_interval() {
    let options = RunOptions { count: Some(70), ..RunOptions::default() };
    let pace = Pace::Steady(Duration::from_secs(3600));
    let (report, series, seen) = sampled(BUSY, &options, pace, u64::MAX);
    assert_eq!((report.packets_in, series.intervals.len(), seen.len()), (70, 1, 1));
    check(&report, &seen);
}

#[test]
fn a_long_series_is_bounded_and_keeps_its_sums() {
    let options = RunOptions { loops: Some(0), ..RunOptions::default() };
    let pace = Pace::Steady(Duration::from_millis(1));
    let (report, series, seen) = sampled(CALM, &options, pace, 1300);
    assert!(seen.len() >= 1300 && series.intervals.len() <= 600, "{}", series.intervals.len());
    assert!(series.interval_s >= 0.002, "{}", series.interval_s);
    check(&report, &seen);
    check(&report, &series.intervals);
    for most in [1, 2, 20, 599] {
        let short = series.of_at_most(most);
        assert!(!short.intervals.is_empty() && short.intervals.len() <= most);
        check(&report, &short.intervals);
    }
    // The whole as one interval has the percentiles of the report.
    let whole = &series.of_at_most(1).intervals[0];
    for (found, exact) in [
        (whole.latency_ns.p50, report.latency_ns.p50),
        (whole.latency_ns.p99, report.latency_ns.p99),
    ] {
        let near = exact / 10 + 2;
        assert!(found.abs_diff(exact) <= near, "{found}, {exact}");
    }
}

#[test]
fn snapshots_become_rare_where_only_the_series_is_of_interest() {
    let options = RunOptions {
        loops: Some(0),
        duration: Some(Duration::from_millis(1500)),
        ..RunOptions::default()
    };
    let (report, series, seen) =
        sampled(CALM, &options, Pace::Slowing(Duration::from_millis(1)), u64::MAX);
    check(&report, &series.intervals);
    // 600 in the first 0.6 s, 300 more until 1.2 s, 75 until the end; fewer on a busy machine.
    assert!(seen.len() <= 600 + 300 + 100, "{}", seen.len());
}
