//! What a monitor counts, and what it exports.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{Decapsulate, Pool};

use thalweg_nf::Units;
use thalweg_testkit::{moving, peer};

use super::*;
use thalweg_nf::Emitted;

/// (source host, destination port, payload bytes, seconds)
type Sent = (u8, u16, usize, u64);

fn packet((host, port, len, _): Sent) -> Vec<u8> {
    PacketBuilder::new([2; 6], [4; 6])
        .ip([10, 0, 0, host].into(), [10, 9, 0, 1].into())
        .udp(99, port)
        .build(&vec![0; len])
}

fn feed(monitor: &mut dyn NetworkFunction, sent: &[Sent]) {
    let pool = Arc::new(Pool::anonymous(64, 2048).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let mut clock = Nanoseconds(0);
    for s in sent {
        clock = clock.max(Nanoseconds::from_secs(s.3));
        let lane = batch.push_bytes(&packet(*s)).unwrap();
        batch.meta.timestamp[lane] = Nanoseconds::from_secs(s.3);
        batch.parse(Lanes::one(lane), Decapsulate::No);
        let mut context = Context::new(clock, &mut emitted, None);
        monitor.process(&mut batch, Lanes::one(lane), &mut context);
        batch.release(Lanes::ALL);
    }
}

/// Packets and bytes by (host, port).
type Totals = BTreeMap<(String, u64), (u64, u64)>;

/// The totals of the packets themselves.
fn sums(sent: &[Sent]) -> Totals {
    let mut totals = Totals::new();
    for s in sent {
        let sum = totals.entry((format!("10.0.0.{}", s.0), s.1.into())).or_default();
        sum.0 += 1;
        sum.1 += packet(*s).len() as u64;
    }
    totals
}

/// The totals over all records of a file, and the reasons of the records.
fn totals(path: &std::path::Path) -> (Totals, Vec<String>) {
    let (mut totals, mut reasons) = (BTreeMap::new(), Vec::new());
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let flow =
            (record["src"].as_str().unwrap().to_owned(), record["dst_port"].as_u64().unwrap());
        let sum: &mut (u64, u64) = totals.entry(flow).or_default();
        sum.0 += record["packets"].as_u64().unwrap();
        sum.1 += record["bytes"].as_u64().unwrap();
        reasons.push(record["end_reason"].as_str().unwrap().to_owned());
    }
    (totals, reasons)
}

fn blueprint(folder: &std::path::Path, options: &str) -> Box<dyn Blueprint> {
    let text = format!("json = '{0}/f.json'\nipfix = '{0}/f.ipfix'\n{options}", folder.display());
    KIND.build_in(&text, &Environment::default()).unwrap()
}

fn monitor(folder: &std::path::Path, options: &str) -> Box<dyn NetworkFunction> {
    blueprint(folder, options).instance()
}

fn sent() -> impl Strategy<Value = Vec<Sent>> {
    proptest::collection::vec((0u8..4, 1u16..4, 0usize..50, 0u64..3), 0..60).prop_map(|mut all| {
        let mut now = 0;
        for s in &mut all {
            now += s.3 * 7;
            s.3 = now;
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn the_records_of_a_flow_add_up_to_its_packets(sent in sent(), max in 1usize..6, request in 0usize..60) {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("max_flows = {max}\nidle_timeout_s = 5\nactive_timeout_s = 20");
        let mut monitor = monitor(folder.path(), &options);
        let (before, after) = sent.split_at(request.min(sent.len()));
        feed(&mut *monitor, before);
        monitor.flush().unwrap();
        feed(&mut *monitor, after);
        monitor.flush().unwrap();
        prop_assert_eq!(totals(&folder.path().join("f.json")).0, sums(&sent));
    }

    #[test]
    fn state_taken_over_counts_on(sent in sent(), cut in 0usize..60) {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (before, after) = sent.split_at(cut.min(sent.len()));
        let mut whole = monitor(one.path(), "idle_timeout_s = 100000\nactive_timeout_s = 100000");
        feed(&mut *whole, &sent);
        whole.flush().unwrap();
        let mut first = monitor(two.path(), "idle_timeout_s = 100000\nactive_timeout_s = 100000");
        feed(&mut *first, before);
        let mut stream = Vec::new();
        let mut writer = StateWriter::new(&mut stream, "monitor", 1).unwrap();
        first.export_state(&mut writer).unwrap();
        writer.finish().unwrap();
        let mut second = monitor(two.path(), "idle_timeout_s = 100000\nactive_timeout_s = 100000");
        second.import_state(&mut StateReader::new(&mut &stream[..], "monitor", 1).unwrap()).unwrap();
        feed(&mut *second, after);
        second.flush().unwrap();
        let read = |f: &tempfile::TempDir| std::fs::read_to_string(f.path().join("f.json")).unwrap();
        prop_assert_eq!(read(&one), read(&two));
    }
}

/// Packets of many flows: often at one time, rarely after a pause, sometimes from long before.
fn crowd() -> impl Strategy<Value = Vec<Sent>> {
    let one =
        (0u8..40, 1u16..9, 0usize..9, prop_oneof![30 => Just(0u64), 2 => 1u64..4, 1 => 5u64..30]);
    proptest::collection::vec(one, 0..900).prop_map(|mut all| {
        let mut now = 100;
        for (n, sent) in all.iter_mut().enumerate() {
            now += sent.3;
            sent.3 = if n % 7 == 6 { now - 90 } else { now };
        }
        all
    })
}

proptest! {
    // Of 450 packets in the mean.
    #![proptest_config(ProptestConfig::with_cases(30))]
    /// Packets that arrive while a sweep is under way find the flows as if it were over.
    #[test]
    fn a_sweep_in_steps_writes_what_one_at_once_writes(sent in crowd(), flows in 1usize..20) {
        let options = "idle_timeout_s = 4\nactive_timeout_s = 20";
        let written = |step| {
            let folder = tempfile::tempdir().unwrap();
            let mut nf = monitor(folder.path(), options);
            let monitor = nf.downcast_mut::<Monitor>().unwrap();
            monitor.step = step;
            feed(monitor, &sent);
            monitor.flush().unwrap();
            let figures = monitor.figures();
            (std::fs::read_to_string(folder.path().join("f.json")).unwrap(), figures)
        };
        let (at_once, in_steps) = (written(Most::ALL), written(Most { slots: 40, flows }));
        prop_assert_eq!(at_once, in_steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// No packet is lost or counted twice while the export is written.
    #[test]
    fn an_export_on_request_holds_the_packets_before_it(
        sent in crowd(), at in 0usize..900, each in 1usize..40, flows in 1usize..20,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let options = "idle_timeout_s = 4\nactive_timeout_s = 20\nmax_flows = 100";
        let mut nf = monitor(folder.path(), options);
        let monitor = nf.downcast_mut::<Monitor>().unwrap();
        monitor.step = Most { slots: 40, flows };
        let (before, after) = sent.split_at(at.min(sent.len()));
        feed(monitor, before);
        let mut after = after.chunks(each);
        while !monitor.flush_some().unwrap() {
            feed(monitor, after.next().unwrap_or_default());
        }
        let written = || totals(&folder.path().join("f.json")).0;
        let first = written();
        prop_assert!(sums(before).iter().all(|(flow, sum)| first[flow].0 >= sum.0));
        after.for_each(|sent| feed(monitor, sent));
        while !monitor.flush_some().unwrap() {}
        prop_assert!(monitor.flows.is_empty() && monitor.backlog.is_empty());
        prop_assert_eq!(written(), sums(&sent));
    }
}

#[test]
fn an_export_on_request_is_written_some_records_at_a_time() {
    const ALL: usize = 1000;
    let sent: Vec<Sent> = (0..ALL).map(|n| (n as u8, 1 + n as u16, n % 50, 1)).collect();
    let written = |export: fn(&mut Monitor)| {
        let folder = tempfile::tempdir().unwrap();
        let mut nf = monitor(folder.path(), "");
        let monitor = nf.downcast_mut::<Monitor>().unwrap();
        feed(monitor, &sent);
        export(monitor);
        assert_eq!((monitor.flows.len(), monitor.exported), (0, ALL as u64));
        std::fs::read_to_string(folder.path().join("f.json")).unwrap()
    };
    let in_steps = written(|monitor| {
        for call in 1.. {
            let (flows, exported) = (monitor.flows.len(), monitor.exported);
            let is_complete = monitor.flush_some().unwrap();
            assert!(flows - monitor.flows.len() <= STEP.flows);
            assert!(monitor.exported - exported <= WRITTEN as u64);
            if is_complete {
                assert!(call >= ALL / STEP.flows, "{call}");
                return;
            }
        }
    });
    let at_once = written(|monitor| monitor.flush().unwrap());
    assert!(in_steps == at_once, "the same records in the same order");
}

#[test]
fn a_full_table_exports_one_flow_for_each_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut monitor = monitor(folder.path(), "max_flows = 3");
    feed(&mut *monitor, &[(1, 1, 0, 1), (2, 1, 0, 2), (3, 1, 0, 3), (1, 1, 0, 4)]);
    feed(&mut *monitor, &[(4, 1, 0, 5), (5, 1, 0, 6)]);
    let sources = || {
        let lines = std::fs::read_to_string(folder.path().join("f.json")).unwrap();
        let record = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let fields = |record: serde_json::Value| (record["src"].clone(), record["packets"].clone());
        lines.lines().map(record).map(fields).collect::<Vec<_>>()
    };
    // The first was used again.
    assert_eq!(sources(), [("10.0.0.2".into(), 1.into()), ("10.0.0.3".into(), 1.into())]);
    monitor.flush().unwrap();
    assert_eq!(sources()[2], ("10.0.0.1".into(), 2.into()));
    assert_eq!(sources().len(), 5);
    assert!(monitor.figures().contains(&("times_table_full", 2)));
}

#[test]
fn each_export_gives_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut monitor =
        monitor(folder.path(), "max_flows = 2\nidle_timeout_s = 10\nactive_timeout_s = 15");
    feed(&mut *monitor, &[(1, 1, 0, 0), (2, 1, 0, 12), (2, 1, 0, 20), (2, 1, 0, 28)]);
    feed(&mut *monitor, &[(3, 1, 0, 29), (4, 1, 0, 29), (5, 1, 0, 29)]);
    monitor.flush().unwrap();
    let (_, reasons) = totals(&folder.path().join("f.json"));
    assert_eq!(reasons[..2], ["idle-timeout", "active-timeout"]);
    assert!(reasons.contains(&"lack-of-resources".into()));
    assert_eq!(reasons.last().unwrap(), "forced-end");
}

#[test]
fn tshark_reads_the_ipfix_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut monitor = monitor(folder.path(), "");
    feed(&mut *monitor, &[(1, 53, 10, 5), (1, 53, 20, 6), (2, 80, 0, 7)]);
    monitor.flush().unwrap();
    let path = folder.path().join("f.ipfix");
    let fields = [
        "cflow.srcaddr",
        "cflow.dstport",
        "cflow.packets",
        "cflow.flow_end_reason",
        "_ws.malformed",
    ];
    let mut tshark = std::process::Command::new("tshark");
    tshark.arg("-r").arg(&path).args(["-T", "fields"]);
    fields.iter().for_each(|f| {
        tshark.args(["-e", f]);
    });
    if !peer::is_there("tshark", &["--version"]) {
        return;
    }
    let text = peer::output(&mut tshark, "");
    let line = text.lines().find(|l| l.contains("10.0.0.1"));
    let line = line.unwrap_or_else(|| panic!("no record in: {text}"));
    assert_eq!(line, "10.0.0.1,10.0.0.2\t53,80\t2,1\t4,4\t");
}

#[test]
fn nonsense_options_are_refused() {
    for text in ["max_flows = 0", "idle_timeout_s = 0", "jason = 'x'"] {
        assert!(KIND.build_alone(text).is_err(), "{text}");
    }
}

/// A recorded stream of the format before: IPv4, IPv6 and ARP.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    let mut monitor = KIND.build_alone("").unwrap().instance();
    moving::assert_reads_recorded(&mut *monitor, "monitor", FORMAT_2, 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Packets may go to either of two instances: what the two count adds up.
    #[test]
    fn counts_of_two_instances_merge(sent in sent(), at in proptest::collection::vec(any::<bool>(), 60)) {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = "idle_timeout_s = 100000\nactive_timeout_s = 100000";
        let mut whole = monitor(one.path(), options);
        let both = blueprint(two.path(), options);
        let (mut old, mut new) = (both.instance(), both.instance());
        for (sent, is_new) in sent.iter().zip(at) {
            feed(&mut *whole, std::slice::from_ref(sent));
            feed(if is_new { &mut *new } else { &mut *old }, std::slice::from_ref(sent));
        }
        prop_assert!(old.begin_move(Units::whole()) && old.is_ready(0));
        let stream = moving::exported(&*old, "monitor");
        moving::import(&mut *new, "monitor", &stream);
        old.forget_unit(0);
        old.end_move();
        // What has been handed over is not reported here, too.
        [&mut whole, &mut old, &mut new].into_iter().for_each(|nf| nf.flush().unwrap());
        let read = |f: &tempfile::TempDir| std::fs::read_to_string(f.path().join("f.json")).unwrap();
        prop_assert_eq!(read(&one), read(&two));
    }
}

/// A reload: packet types that are added change nothing, other numbers end the records before.
#[test]
fn records_have_the_names_that_their_numbers_had() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("json = '{}/f.json'", folder.path().display());
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let types = names(&["web"]);
    let environment = Environment { types: &types, ..Environment::default() };
    let (mut blueprint, files) = thalweg_testkit::build(&KIND, &text, &environment).unwrap();
    let mut nf = blueprint.instance();
    feed(&mut *nf, &[(1, 1, 1, 0)]);
    for types in [&["web", "dns"][..], &["web"], &["mail", "web"], &["mail", "web"]] {
        let types = names(types);
        let environment =
            Environment { types: &types, open_files: &files, ..Environment::default() };
        thalweg_testkit::renew(&KIND, &text, &environment, &mut blueprint, &mut *nf).unwrap();
        feed(&mut *nf, &[(1, 1, 1, 0)]);
    }
    nf.flush().unwrap();
    let lines = std::fs::read_to_string(folder.path().join("f.json")).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let seen: Vec<_> = lines
        .map(|line| (line["packet_type"].as_str().unwrap().to_owned(), line["packets"].as_u64()))
        .collect();
    assert_eq!(seen, [("web".to_owned(), Some(3)), ("mail".to_owned(), Some(2))]);
}

/// A reload that lets the files rotate keeps the flows, and the files that are open.
#[test]
fn a_running_monitor_begins_to_rotate_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.json");
    let text = format!("json = '{}'\n", path.display());
    let environment = Environment::default();
    let (mut blueprint, files) = thalweg_testkit::build(&KIND, &text, &environment).unwrap();
    let mut nf = blueprint.instance();
    // About 2 MiB of records.
    let flows: Vec<Sent> = (0..8000).map(|n| (1 + (n / 4000) as u8, n % 4000, 1, 1)).collect();
    feed(&mut *nf, &flows);
    let environment = Environment { open_files: &files, ..environment };
    let text = format!("{text}rotate = {{ size_mib = 1 }}");
    thalweg_testkit::renew(&KIND, &text, &environment, &mut blueprint, &mut *nf).unwrap();
    nf.flush().unwrap();
    let renamed = path.with_file_name("f.json.1");
    for path in [&path, &renamed] {
        assert!(path.metadata().unwrap().len() <= 1 << 20, "{}", path.display());
    }
    let records: usize = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().lines().count())
        .sum();
    assert_eq!(records, flows.len());
}
