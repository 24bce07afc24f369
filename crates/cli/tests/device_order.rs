//! Devices that fail, or return packets late and in any order: no packet is lost but those that a device
//! keeps, and all leave in the order in which they came.

mod support;
#[path = "support/tunnels.rs"]
mod tunnels;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{frames_lost, generate, report, write};
use thalweg_chain::{Plan, PlanOptions};
use thalweg_cli::built_in_kinds;
use thalweg_engine::{Control, Report, RunOptions};
use thalweg_nf::device::{
    DeviceCounts, DeviceFault, DeviceJob, DeviceLine, DeviceReturn, DeviceShare, Devices, Named,
};
use thalweg_packet::{Batch, PacketMemory, Pool};
use thalweg_testkit::odd_device::{CAPACITY, Odd};
use tunnels::sealing;

/// A device that remembers how many lines lead to it.
#[derive(Debug, Default)]
struct Counted(Mutex<Vec<usize>>);

impl Devices for Counted {
    fn allocate(&self, device: Named<'_>, len: usize) -> Result<PacketMemory, String> {
        Odd::default().allocate(device, len)
    }

    fn start(
        &self,
        device: Named<'_>,
        shares: Vec<DeviceShare>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String> {
        self.0.lock().unwrap().extend(shares.iter().map(|share| share.lines));
        Odd::default().start(device, shares, pool)
    }
}

/// Packets that a device keeps before it returns any: more than 16 bursts of 128.
const HOARD: usize = 20 * 128;

/// A device that returns packets when it has [`HOARD`], or gets no more; it remembers how many it had at
/// most.
#[derive(Debug, Default)]
struct Hoarding(Arc<AtomicUsize>);

/// A line to it, and what it has.
struct Hoard {
    line: Box<dyn DeviceLine>,
    has: usize,
    most: Arc<AtomicUsize>,
    /// Polls since it got packets.
    polls: u32,
    returns: bool,
}

impl Devices for Hoarding {
    fn allocate(&self, device: Named<'_>, len: usize) -> Result<PacketMemory, String> {
        Odd::default().allocate(device, len)
    }

    fn start(
        &self,
        device: Named<'_>,
        shares: Vec<DeviceShare>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String> {
        let hoard = |line| -> Box<dyn DeviceLine> {
            let most = self.0.clone();
            Box::new(Hoard { line, has: 0, most, polls: 0, returns: false })
        };
        let lines = Odd::default().start(device, shares, pool)?;
        Ok(lines.into_iter().map(|lines| lines.into_iter().map(hoard).collect()).collect())
    }
}

impl DeviceLine for Hoard {
    fn counts(&self) -> DeviceCounts {
        self.line.counts()
    }

    fn capacity(&self) -> usize {
        2 * HOARD
    }

    fn submit(&mut self, batch: &mut Batch, visit: usize, jobs: &[DeviceJob]) -> usize {
        let taken = self.line.submit(batch, visit, jobs);
        (self.has, self.polls) = (self.has + taken, 0);
        self.most.fetch_max(self.has, Ordering::Relaxed);
        taken
    }

    fn poll(&mut self, back: &mut Vec<DeviceReturn>) -> Result<(), DeviceFault> {
        self.polls += 1;
        self.returns |= self.has >= HOARD || self.polls > 10_000;
        if self.returns {
            let before = back.len();
            self.line.poll(back)?;
            self.has -= back.len() - before;
            self.returns = self.has > 0;
        }
        Ok(())
    }
}

/// The plan of a chain that seals packets on this device, with more keys for the NF.
fn plan(folder: &Path, device: Arc<dyn Devices>, more: &str) -> Plan {
    plan_in(folder, device, more, "")
}

/// As [`plan`], with more sections.
fn plan_in(folder: &Path, device: Arc<dyn Devices>, more: &str, sections: &str) -> Plan {
    let chain = sections.to_owned() + &sealing(&format!("at = 'odd'\nwork_groups = 4\n{more}"));
    let absolute = |name: &str| format!("'{}'", folder.join(name).display());
    let chain = chain.replace("'clear.pcap'", &absolute("clear.pcap"));
    let chain = chain.replace("'sealed.pcap'", &absolute("odd.pcap"));
    write(folder, "chain.toml", &chain);
    let kinds = built_in_kinds().with_devices(device);
    Plan::load(&folder.join("chain.toml"), &kinds, PlanOptions::default()).unwrap()
}

fn options(workers: usize) -> RunOptions {
    RunOptions { workers: Some(workers), ..RunOptions::default() }
}

#[test]
fn each_worker_has_a_line_if_there_are_as_many_work_groups() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), "clear.pcap --seed 3 --packets 500");
    let lines = |workers: usize, more: &str| {
        let device = Arc::new(Counted::default());
        let plan = plan(folder.path(), device.clone(), more);
        let report = thalweg_engine::run(plan, &options(workers), &Control::default()).unwrap();
        assert_eq!((report.failures, report.conserved), (vec![], true));
        let lines = device.0.lock().unwrap();
        assert_eq!(lines.len(), 1);
        lines[0]
    };
    for (workers, expected) in [(1, 1), (2, 2), (5, 4)] {
        assert_eq!(lines(workers, ""), expected, "{workers} workers, 4 work-groups");
        // It waits for each batch.
        assert_eq!(lines(workers, "pinned = true\n"), 1, "{workers} workers");
    }
}

#[test]
fn packets_leave_in_their_order_however_a_device_returns_them() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 5000 --flows 50");
    write(f, "cpu.toml", &sealing(""));
    let (cpu, code, error) = report(f, &["run", "cpu.toml", "--json"]);
    assert_eq!((code, &*error), (0, ""));
    for workers in [1, 2, 4] {
        let plan = plan(f, Arc::new(Odd::default()), "");
        let report = thalweg_engine::run(plan, &options(workers), &Control::default()).unwrap();
        assert_eq!(report.failures, [""; 0]);
        let report = serde_json::to_value(report).unwrap();
        for key in ["packets", "drops", "figures"] {
            assert_eq!(report["nfs"][0][key], cpu["nfs"][0][key], "{workers} workers: {key}");
        }
        let same =
            fs::read(f.join("odd.pcap")).unwrap() == fs::read(f.join("sealed.pcap")).unwrap();
        assert!(same, "{workers} workers");
    }
}

/// The chain that examines packets and routes them, on this device.
fn examining(folder: &Path, at: &str) -> String {
    let file = |name: &str| format!("'{}'", folder.join(name).display());
    let [clear, out, rules, alerts, table] =
        ["clear.pcap", "out.pcap", "t.rules", "alerts.json", "table.txt"].map(file);
    format!(
        "[run]\nseed = 5\n[input.in]\ncapture = {clear}\n[output.out]\ncapture = {out}\n\
         [nf.ids]\nkind = 'nids'\nrules = [{rules}]\nalerts = {alerts}\n{at}\
         [nf.edge]\nkind = 'router'\nroutes = {table}\n{at}\
         [nf.edge.ports.wan]\noutput = 'out'\nmac = '02:00:00:00:00:02'\nip = '203.0.113.2'\n\
         neighbors = {{ '203.0.113.1' = '02:00:00:00:02:01', '203.0.113.3' = '02:00:00:00:02:03' }}\n\
         [[route]]\npath = ['ingress', 'ids', 'edge', 'out']\n"
    )
}

#[test]
fn all_kinds_go_on_while_a_device_has_packets_and_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 5000 --flows 50 --size 512");
    // Contents of two bytes are in some of these payloads, which are random.
    let rule = |n: u32| {
        format!("alert ip any any -> any any (msg:\"{n}\"; content:\"|{n:02x} 7d|\"; sid:{n};)\n")
    };
    write(f, "t.rules", &(1..9).map(rule).collect::<String>());
    write(f, "table.txt", "0.0.0.0/1 203.0.113.1 wan\n128.0.0.0/1 203.0.113.3 wan\n");
    write(f, "cpu.toml", &examining(f, ""));
    let (_, code, error) = report(f, &["run", "cpu.toml", "--json"]);
    assert_eq!((code, &*error), (0, ""));
    let read = |name: &str| fs::read(f.join(name)).unwrap();
    let alone = ["out.pcap", "alerts.json"].map(read);
    let alerts = String::from_utf8_lossy(&alone[1]).lines().count();
    assert!(alerts > 50, "there are alerts: {alerts}");
    write(f, "chain.toml", &examining(f, "at = 'odd'\nwork_groups = 4\n"));
    for workers in [1, 2, 4] {
        let device = Arc::new(Counted::default());
        let kinds = built_in_kinds().with_devices(device.clone());
        let plan = Plan::load(&f.join("chain.toml"), &kinds, PlanOptions::default()).unwrap();
        let report = thalweg_engine::run(plan, &options(workers), &Control::default()).unwrap();
        assert_eq!((report.failures, report.conserved), (vec![], true), "{workers} workers");
        assert_eq!(*device.0.lock().unwrap(), [workers; 2], "each worker has a line to each NF");
        assert!(["out.pcap", "alerts.json"].map(read) == alone, "{workers} workers");
    }
}

#[test]
fn packets_keep_their_order_with_more_bursts_at_a_device_than_workers_usually_have() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 20000 --flows 50 --tcp 1 --udp 0 --icmp 0");
    write(f, "cpu.toml", &sealing(""));
    let (_, code, error) = report(f, &["run", "cpu.toml", "--json"]);
    assert_eq!((code, &*error), (0, ""));
    for workers in [1, 2, 3] {
        let device = Arc::new(Hoarding::default());
        let more = "[memory]\nframes = 65536\n";
        let plan = plan_in(f, device.clone(), "", more);
        let report = thalweg_engine::run(plan, &options(workers), &Control::default()).unwrap();
        assert_eq!((report.failures, report.conserved), (vec![], true), "{workers} workers");
        let most = device.0.load(Ordering::Relaxed);
        assert!(most >= HOARD, "{workers} workers: at most {most} packets at a line");
        let same =
            fs::read(f.join("odd.pcap")).unwrap() == fs::read(f.join("sealed.pcap")).unwrap();
        assert!(same, "{workers} workers");
    }
}

#[test]
fn each_snapshot_balances_while_a_device_has_packets() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    generate(f, "clear.pcap --seed 3 --packets 500 --flows 50");
    for workers in [1, 2] {
        let plan = plan(f, Arc::new(Odd::default()), "");
        let options = RunOptions { loops: Some(0), ..options(workers) };
        let control = Control::default();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| thalweg_engine::run(plan, &options, &control).unwrap());
            let (mut before, mut differing) = (0, 0);
            for _ in 0..50 {
                let report = control.snapshot(Duration::from_secs(20)).expect("the run answers");
                assert!(report.conserved && report.packets_in >= before, "{workers} workers");
                let value = serde_json::to_value(&report).unwrap();
                assert_eq!(value["nfs"][0]["packets"], report.packets_in, "{workers} workers");
                let figures = &value["nfs"][0]["figures"];
                let done = ["protected", "bypassed"].map(|name| figures[name].as_u64().unwrap());
                assert_eq!(done.iter().sum::<u64>(), report.packets_out, "{workers} workers");
                differing += u32::from(report.packets_in > before);
                before = report.packets_in;
            }
            assert!(differing > 5, "the run went on: {differing}");
            control.stop();
            run.join().unwrap();
        });
    }
}

/// Runs a chain whose device fails.
fn with_failing_device(folder: &Path, more: &str, workers: usize) -> Report {
    generate(folder, "clear.pcap --seed 3 --packets 3000 --tcp 1 --udp 0 --icmp 0");
    let plan = plan(folder, Arc::new(Odd::failing_at(10)), more);
    thalweg_engine::run(plan, &options(workers), &Control::default()).unwrap()
}

#[test]
fn when_a_device_fails_its_packets_are_lost_and_the_processor_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    for workers in [1, 2] {
        let report = with_failing_device(folder.path(), "fallback = 'cpu'\n", workers);
        let report = serde_json::to_value(report).unwrap();
        let nf = &report["nfs"][0];
        let lost = nf["drops"]["device-failed"].as_u64().unwrap();
        let most = workers * (CAPACITY + 128);
        assert!((1..=most as u64).contains(&lost), "{report}");
        assert_eq!(report["packets_in"], 3000, "{report}");
        assert_eq!(report["packets_out"], 3000 - lost, "{report}");
        assert_eq!(nf["figures"]["protected"], 3000 - lost, "{report}");
        assert_eq!(report["conserved"], true, "{report}");
        // The device may still write to every second of them, so their frames are lost, which is named.
        assert_eq!(report["failures"], serde_json::json!([]), "{report}");
        assert_eq!(report["leaked_frames"], 0, "{report}");
        assert_eq!(nf["device"]["failed"], "it burns", "{report}");
        let kept = nf["device"]["kept_frames"].as_u64().unwrap();
        assert!((1..=lost.div_ceil(2) + 1).contains(&kept), "{report}");
        let warnings = report["warnings"].as_array().unwrap();
        let named = frames_lost(kept);
        assert!(warnings.iter().any(|what| what.as_str().unwrap().starts_with(&named)), "{report}");
    }
}

#[test]
fn without_a_fallback_a_device_that_fails_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for workers in [1, 2] {
        let report = with_failing_device(folder.path(), "", workers);
        let report = serde_json::to_value(report).unwrap();
        let failures = report["failures"].as_array().unwrap();
        assert!(
            failures.iter().any(|what| what.as_str().unwrap().contains("it burns")),
            "{report}"
        );
        assert_eq!(report["conserved"], true, "{report}");
        assert!(report["packets_in"].as_u64().unwrap() < 3000, "{report}");
    }
}
