//! Runs whose device does harm in the middle, held against those by the processor.
#![allow(dead_code)] // each test file uses a part

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use thalweg_accel::Installed;
use thalweg_chain::{Plan, PlanOptions};
use thalweg_cli::built_in_kinds;
use thalweg_engine::{Control, RunOptions};

use crate::hostile::{ERROR, Harm, Hostile};
use crate::support::{frames_lost, write};

/// What devices do wrong, after some rows of 32 packets.
pub const HARMS: [(Harm, u32); 6] = [
    (Harm::CountsAhead, 3),
    (Harm::CountsBack, 3),
    (Harm::Ends, 3),
    (Harm::Stalls, 3),
    (Harm::Fails, 3),
    (Harm::Ends, 0),
];

/// The keys of an NF on a device that does harm.
pub const AT: &str = "at = 'hostile'\nfallback = 'cpu'\nfailed_after_ms = 100\n";

/// The report of a run in `folder`, in which `hostile` is such a device.
pub fn run(folder: &Path, chain: &str, harm: Option<(Harm, u32)>, workers: usize) -> Value {
    write(folder, "chain.toml", chain);
    let kinds = match harm {
        Some((harm, after)) => {
            let device = Arc::new(Hostile::new(harm, after));
            built_in_kinds().with_devices(Arc::new(Installed::default().with("hostile", device)))
        }
        None => built_in_kinds(),
    };
    let plan = Plan::load(&folder.join("chain.toml"), &kinds, PlanOptions::default());
    let plan = plan.unwrap_or_else(|mistakes| panic!("{}", mistakes[0]));
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    let report = thalweg_engine::run(plan, &options, &Control::default()).unwrap();
    serde_json::to_value(report).unwrap()
}

/// Checks the report of a run whose device did harm and whose first NF has fallen back on the processor;
/// returns how many packets were lost with the device.
pub fn lost(report: &Value, harm: Harm, workers: usize) -> u64 {
    let nf = &report["nfs"][0];
    let lost = nf["drops"]["device-failed"].as_u64().unwrap_or(0);
    // What a work-group has and what waits for it, and a burst or two of each worker.
    assert!((1..=(256 + 256 * workers) as u64).contains(&lost), "{lost}: {report}");
    assert_eq!(report["failures"], serde_json::json!([]), "{report}");
    assert_eq!(report["conserved"], true, "{report}");
    assert_eq!(report["leaked_frames"], 0, "{report}");
    let failed = nf["device"]["failed"].as_str().unwrap();
    let expected = match harm {
        Harm::CountsAhead | Harm::CountsBack => "rows done of",
        Harm::Ends => "work-group 0 has ended by itself",
        Harm::Fails => ERROR,
        _ => "work-group 0 has not moved on for",
    };
    assert!(failed.starts_with("hostile: ") && failed.contains(expected), "{failed}");
    let warnings: Vec<_> = report["warnings"].as_array().unwrap().iter().collect();
    let warns = |what: &str| warnings.iter().any(|text| text.as_str().unwrap().contains(what));
    assert!(warns("on the processor, as 'hostile' has failed: hostile: "), "{report}");
    let kept = nf["device"]["kept_frames"].as_u64().unwrap_or(0);
    if matches!(harm, Harm::Ends | Harm::Fails) {
        assert_eq!(kept, 0, "a device that has ended keeps no frames: {report}");
    } else {
        assert!((1..=lost).contains(&kept), "{report}");
        assert!(warns(&frames_lost(kept)), "{report}");
    }
    lost
}

/// A packet of a capture: its time, as the seconds and their fraction that the file has, and its bytes.
pub type Record = (u64, Vec<u8>);

/// The packets of a capture in pcap, which is whole.
pub fn records(path: &Path) -> Vec<Record> {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut all) = (24, Vec::new());
    while at < bytes.len() {
        let (time, len) = (u64::from(word(at)) << 32 | u64::from(word(at + 4)), word(at + 8));
        all.push((time, bytes[at + 16..][..len as usize].to_vec()));
        at += 16 + len as usize;
    }
    all
}

/// Whether `part` is `whole` without some packets.
pub fn is_part(part: &[Record], whole: &[Record]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|record| whole.any(|other| other == record))
}

/// How often there is each of these packets.
pub fn counts(records: &[Record]) -> BTreeMap<&[u8], usize> {
    let mut counts = BTreeMap::new();
    records.iter().for_each(|(_, bytes)| *counts.entry(&bytes[..]).or_default() += 1);
    counts
}
