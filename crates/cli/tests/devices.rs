//! NFs on devices: what leaves a chain is the same wherever its NFs run.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/places.rs"]
mod places;
mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use controlled::Controlled;
use places::places;
use serde_json::Value;
use support::{report, succeeds, thalweg, wait, write};
use thalweg_chain::{Plan, PlanOptions};
use thalweg_cli::built_in_kinds;
use thalweg_engine::{Control, Report, RunOptions};
use thalweg_nf::device::{
    DeviceFault, DeviceJob, DeviceLine, DevicePlace, DeviceResult, DeviceWork, Devices,
};
use thalweg_packet::{Batch, Lanes, PacketMemory, Pool};

/// An association in each direction for each of three ways: what devices do, the same with extended
/// sequence numbers, and a suite that they do not do.
fn associations(direction: &str) -> String {
    let association = |name: &str, spi: u32, more: &str| {
        format!(
            "[[nf.vpn.sa]]\nname = '{name}'\ndirection = '{direction}'\nspi = {spi}\n\
             source = '192.0.2.1'\ndestination = '192.0.2.10'\n{more}\n"
        )
    };
    let cbc = "suite = 'aes128-cbc-hmac-sha1-96'\nencryption_key = '7e1a90b3c4d5f60718293a4b5c6d7e8f'\n\
               authentication_key = '00112233445566778899aabbccddeeff01234567'";
    let other = "suite = 'aes128-cbc-hmac-sha1-96'\nencryption_key = '000102030405060708090a0b0c0d0e0f'\n\
                 authentication_key = 'ff112233445566778899aabbccddeeff01234567'\nesn = true";
    let gcm = "suite = 'aes128-gcm16'\nencryption_key = '1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11'";
    [association("a", 4097, cbc), association("b", 4098, other), association("c", 4099, gcm)]
        .concat()
}

/// The chain that seals packets of a capture.
fn sealing(at: &str) -> String {
    format!(
        "[run]\nseed = 5\n[input.in]\ncapture = 'clear.pcap'\n[output.out]\ncapture = 'sealed.pcap'\n\
         [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{at}{}\
         [[nf.vpn.policy]]\nmatch = 'tcp'\naction = 'protect'\nsa = 'a'\n\
         [[nf.vpn.policy]]\nmatch = 'udp,tp_dst=0x0/0x1'\naction = 'protect'\nsa = 'b'\n\
         [[nf.vpn.policy]]\nmatch = 'udp'\naction = 'protect'\nsa = 'c'\n\
         [[route]]\npath = ['ingress', 'vpn', 'out']\n",
        associations("out")
    )
}

/// The chain that opens them: twice, so that replayed packets are among them.
fn opening(at: &str) -> String {
    format!(
        "[run]\nseed = 5\n[input.in]\ncapture = 'damaged.pcap'\nloop = 2\n\
         [output.out]\ncapture = 'opened.pcap'\n\
         [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{at}{}\
         [[route]]\npath = ['ingress', 'vpn', 'out']\n",
        associations("in")
    )
}

/// The keys of an NF at this place; a device that shares its cores with other tests may take its time.
fn key(at: &str) -> String {
    let patience = if at == "cpu" { "" } else { "failed_after_ms = 30000\n" };
    format!("at = '{at}'\n{patience}")
}

/// Changes a byte near the end of every seventh packet of a capture.
fn damage(folder: &Path) {
    let mut bytes = fs::read(folder.join("sealed.pcap")).unwrap();
    let (mut at, mut number) = (24, 0);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        if number % 7 == 0 && len > 80 {
            bytes[at + 16 + len - 30] ^= 4;
        }
        (at, number) = (at + 16 + len, number + 1);
    }
    fs::write(folder.join("damaged.pcap"), bytes).unwrap();
}

#[test]
fn packets_are_sealed_and_opened_the_same_wherever_ipsec_runs() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let generate = [
        "gen",
        "clear.pcap",
        "--seed",
        "3",
        "--packets",
        "3000",
        "--flows",
        "50",
        "--size",
        "imix",
    ];
    succeeds(f, &generate);
    let (places, _turn) = places();
    let mut first: Option<(Vec<u8>, Value, Vec<u8>, Value)> = None;
    for at in &places {
        for workers in ["1", "2"] {
            write(f, "seal.toml", &sealing(&key(at)));
            let (sealed, code, error) =
                report(f, &["run", "seal.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            damage(f);
            write(f, "open.toml", &opening(&key(at)));
            let (opened, code, error) =
                report(f, &["run", "open.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            let bytes = |name: &str| fs::read(f.join(name)).unwrap();
            let nf = |report: &Value| {
                let nf = &report["nfs"][0];
                serde_json::json!([
                    nf["packets"],
                    nf["bytes"],
                    nf["drops"],
                    nf["figures"],
                    report["drops"]
                ])
            };
            let now = (bytes("sealed.pcap"), nf(&sealed), bytes("opened.pcap"), nf(&opened));
            let first = first.get_or_insert_with(|| now.clone());
            assert!(now.0 == first.0, "sealed at {at} by {workers} workers");
            assert_eq!(now.1, first.1, "sealed at {at} by {workers} workers");
            assert!(now.2 == first.2, "opened at {at} by {workers} workers");
            assert_eq!(now.3, first.3, "opened at {at} by {workers} workers");
        }
    }
    let (_, _, _, opened) = first.unwrap();
    let drops = opened[2].as_object().unwrap();
    assert!(
        drops.contains_key("replayed") && drops.contains_key("authentication-failed"),
        "{opened}"
    );
}

#[test]
fn an_nf_moves_between_processor_and_device_by_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let generate = [
        "gen",
        "clear.pcap",
        "--seed",
        "3",
        "--packets",
        "500",
        "--flows",
        "50",
        "--tcp",
        "1",
        "--udp",
        "0",
        "--icmp",
        "0",
    ];
    succeeds(f, &generate);
    let (places, _turn) = places();
    let device = places.last().unwrap();
    let chain = |at: &str| {
        let chain = sealing(&key(at))
            .replace("'clear.pcap'", "'clear.pcap'\nmemory = true\nloop = 0\npace = 1");
        let chain = chain.replace("capture = 'sealed.pcap'", "discard = true");
        format!("[memory]\ndevice = '{device}'\n{chain}")
    };
    write(f, "chain.toml", &chain("cpu"));
    let run = Controlled::start(f, "moves", "chain.toml", &["--control=moves"]);
    let protected = || {
        let nfs: Value =
            serde_json::from_str(&run.succeeds(&["-s", "moves", "nfs", "--json"])).unwrap();
        nfs["nfs"][0]["figures"]["protected"].as_u64().unwrap_or(0)
    };
    wait(|| protected() > 0);
    let mut before = 0;
    for at in [device, "cpu", "soft", device] {
        write(f, "chain.toml", &chain(at));
        let answer = run.succeeds(&["-s", "moves", "reload"]);
        assert!(answer.contains("vpn"), "to {at}: {answer}");
        let now = protected();
        assert!(now >= before, "to {at}: the counts go on: {before}, {now}");
        wait(|| protected() > now);
        before = now;
    }
    run.succeeds(&["-s", "moves", "stop"]);
    let report = run.end();
    assert_eq!(report["nfs"][0]["drops"], serde_json::json!({}), "{report}");
    assert_eq!(report["reloads"], 4, "{report}");
}

#[test]
fn what_cannot_run_on_a_device_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    succeeds(f, &["gen", "clear.pcap", "--packets", "10"]);
    let refused = |chain: &str| {
        write(f, "chain.toml", chain);
        let output = thalweg(f, &["check", "chain.toml"]);
        assert_eq!(output.status.code(), Some(78), "{chain}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let _turn = places();
    for (at, expected) in [
        ("at = 'vax'\n", "unknown device 'vax'; expected cpu, gpu, soft"),
        ("at = 'opencl:99'\n", "there is no OpenCL device 99"),
        ("at = 7\n", "'at' is not a name"),
        ("at = 'soft'\nwork_groups = 0\n", "'work_groups' is out of range"),
        ("at = 'soft'\nfallback = 'gpu'\n", "unknown value of 'fallback'"),
        ("work_groups = 2\n", "'work_groups' is for an NF on a device"),
        ("at = 'soft'\nfailed_after_ms = 0\n", "'failed_after_ms' is out of range"),
    ] {
        let error = refused(&sealing(at));
        assert!(error.contains(expected), "{at}: {error}");
    }
    let error =
        refused(&sealing("at = 'soft'\n").replace("'vpn', 'out'", "'vpn', 'f', 'out'").replace(
            "[nf.vpn]",
            "[nf.f]\nkind = 'filter'\nrules = ['allow any']\nat = 'soft'\n[nf.vpn]",
        ));
    assert!(error.contains("an NF of kind 'filter' cannot run on a device"), "{error}");
    let gcm = "[input.in]\ncapture = 'clear.pcap'\n[output.out]\ndiscard = true\n\
               [nf.vpn]\nkind = 'ipsec'\nat = 'soft'\n[[route]]\npath = ['ingress', 'vpn', 'out']\n";
    let error = refused(gcm);
    assert!(error.contains("a device can do nothing for NF 'vpn'"), "{error}");
}

/// A device that fails at its tenth batch, and keeps every second packet of it.
#[derive(Debug)]
struct Fails;

struct FailingLine {
    work: DeviceWork,
    batches: usize,
}

impl Devices for Fails {
    fn allocate(&self, _: &str, len: usize) -> Result<PacketMemory, String> {
        PacketMemory::anonymous(len).map_err(|e| e.to_string())
    }

    fn start(
        &self,
        _: &DevicePlace,
        work: DeviceWork,
        _: &Arc<Pool>,
    ) -> Result<Box<dyn DeviceLine>, String> {
        Ok(Box::new(FailingLine { work, batches: 0 }))
    }
}

impl DeviceLine for FailingLine {
    fn run(
        &mut self,
        batch: &mut Batch,
        jobs: &[DeviceJob],
        results: &mut Vec<DeviceResult>,
    ) -> Result<(), DeviceFault> {
        self.batches += 1;
        let DeviceWork { function, table } = &self.work;
        let mut lost = Lanes::NONE;
        for (number, job) in jobs.iter().enumerate() {
            if self.batches < 10 {
                let bytes = &mut batch.bytes_mut(job.lane)[job.start..job.start + job.len];
                results.push((job.lane, Some((function.scalar)(bytes, job.argument, table))));
            } else if number % 2 == 0 && batch.lend(job.lane).is_some() {
                lost.insert(job.lane);
            }
        }
        if self.batches < 10 { Ok(()) } else { Err(DeviceFault { what: "it burns".into(), lost }) }
    }
}

/// Runs a chain whose device fails.
fn with_failing_device(folder: &Path, more: &str, workers: usize) -> Report {
    succeeds(
        folder,
        &[
            "gen",
            "clear.pcap",
            "--seed",
            "3",
            "--packets",
            "3000",
            "--tcp",
            "1",
            "--udp",
            "0",
            "--icmp",
            "0",
        ],
    );
    let at = format!("at = 'burning'\n{more}");
    let chain =
        sealing(&at).replace("'clear.pcap'", &format!("'{}'", folder.join("clear.pcap").display()));
    let chain = chain.replace("capture = 'sealed.pcap'", "discard = true");
    write(folder, "chain.toml", &chain);
    let kinds = built_in_kinds().with_devices(Arc::new(Fails));
    let plan = Plan::load(&folder.join("chain.toml"), &kinds, PlanOptions::default()).unwrap();
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    thalweg_engine::run(plan, &options, &Control::default()).unwrap()
}

#[test]
fn when_a_device_fails_its_packets_are_lost_and_the_processor_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    for workers in [1, 2] {
        let report = with_failing_device(folder.path(), "fallback = 'cpu'\n", workers);
        let report = serde_json::to_value(report).unwrap();
        let nf = &report["nfs"][0];
        let lost = nf["drops"]["device-failed"].as_u64().unwrap();
        assert!((1..=32).contains(&lost), "{report}");
        assert_eq!(report["packets_in"], 3000, "{report}");
        assert_eq!(report["packets_out"], 3000 - lost, "{report}");
        assert_eq!(nf["figures"]["protected"], 3000 - lost, "{report}");
        assert_eq!(report["conserved"], true, "{report}");
        // The device may still write to every second of them, so their frames are lost, which is named.
        let frames = lost.div_ceil(2);
        let named = format!("frames that did not return to the pool: {frames}");
        assert_eq!(report["failures"], serde_json::json!([named]), "{report}");
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
