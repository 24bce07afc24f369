//! All levels of vector instructions give the same results, over every capture
//! and every ClassBench rule set of the shared data.

mod support;

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_classify::{
    Classifier, Config, LinearTable, Lookup, Rule, RuleId, RuleTable, SharedRules, classbench,
};
use thalweg_cpu::Isa;
use thalweg_io::{CaptureInput, Input};
use thalweg_packet::{
    BATCH, Batch, Decapsulate, DropCounts, FlowKey, Lanes, Nanoseconds, PacketType, Pool,
    PortIndex, TransposedKeys,
};
use thalweg_source::Source;
use thalweg_testkit::{captures, data_folder};

/// The most rules that all linear scans together try, so that the test takes seconds.
const MOST_TRIED: usize = 30_000_000;

/// The keys of all packets of a capture, parsed by each level; asserts that the
/// levels agree on keys and headers.
fn keys(path: &Path, keys: &mut Vec<FlowKey>) {
    let Ok(mut input) = CaptureInput::open(path, 1) else { return };
    let pool = Arc::new(Pool::anonymous(4 * BATCH, 16 * 1024).unwrap());
    let mut batch = Batch::with_isa(pool.clone(), Isa::Scalar);
    let mut ended = false;
    while !ended {
        let received = input.receive(&mut batch, BATCH, &mut DropCounts::default());
        ended = received.map_or(true, |r| r.ended);
        let lanes = batch.lanes();
        batch.meta.in_port.fill(PortIndex(3));
        batch.parse(lanes, Decapsulate::Yes);
        for isa in Isa::available().skip(1) {
            let mut other = Batch::with_isa(pool.clone(), isa);
            let copies: Vec<usize> = lanes
                .into_iter()
                .map(|lane| other.push_bytes(batch.bytes(lane)).expect("a frame for each"))
                .collect();
            other.meta.in_port.fill(PortIndex(3));
            other.parse(Lanes::ALL, Decapsulate::Yes);
            for (lane, copy) in lanes.into_iter().zip(copies) {
                assert_eq!(batch.key(lane), other.key(copy), "{isa}: {}", path.display());
                assert_eq!(batch.headers(lane), other.headers(copy), "{isa}: {}", path.display());
            }
        }
        keys.extend(lanes.into_iter().map(|lane| batch.key(lane)));
        batch.release(lanes);
    }
}

fn rule_sets(data: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["wustl", "partitionsort"] {
        let folder = data.join("classification").join(folder);
        let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
        files.extend(entries.filter(|p| p.to_string_lossy().contains("rule")));
    }
    files.sort();
    files
}

fn rules(path: &Path) -> Vec<Rule> {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    let source = Source::new(path, text);
    classbench::parse(&source, RuleId(0), 1 << 20, PacketType(1)).unwrap()
}

/// The answers of a classifier of this level for all `keys`, twice over, so that
/// the caches answer too.
fn answers(shared: &Arc<SharedRules>, isa: Isa, keys: &[FlowKey]) -> Vec<Option<RuleId>> {
    let config = Config { emc_insert_inverse_probability: 2, isa, ..Config::default() };
    let mut classifier = Classifier::new(shared.clone(), config);
    let mut answers = Vec::new();
    for chunk in keys.chunks(BATCH).chain(keys.chunks(BATCH)) {
        let mut batch = TransposedKeys::default();
        chunk.iter().enumerate().for_each(|(lane, key)| batch.set(lane, key));
        let (lanes, mut out) = (Lanes::first(chunk.len()), [Lookup::default(); BATCH]);
        classifier.classify_batch(&batch, lanes, &[64; BATCH], Nanoseconds(0), &mut out);
        answers.extend(out[..chunk.len()].iter().map(|lookup| lookup.rule));
    }
    let stats = classifier.stats();
    assert!(stats.emc_hits > 0 && stats.megaflow_hits > 0 && stats.rule_lookups > 0);
    answers
}

#[test]
fn all_levels_classify_every_packet_alike_and_as_a_linear_scan() {
    let Some(data) = data_folder() else { return };
    let mut all = Vec::new();
    captures(&data).iter().for_each(|path| keys(path, &mut all));
    let mut seen = HashSet::new();
    let distinct: Vec<FlowKey> = all.iter().copied().filter(|key| seen.insert(*key)).collect();
    let sets = rule_sets(&data);
    let (mut matched, mut scanned) = (0, 0);
    for path in &sets {
        let rules = rules(path);
        // Packets of captures seldom match random rules: so some are changed to match.
        let mut keys = all.clone();
        keys.extend(rules.iter().step_by(7).zip(&distinct).map(|(rule, key)| {
            let (value, mask) = (rule.matches[0].value(), rule.matches[0].mask());
            let bent = |i: usize| value.words[i] | key.words[i] & !mask.words[i];
            FlowKey { words: std::array::from_fn(bent) }
        }));
        let mut table = RuleTable::new(PacketType(0));
        table.extend(rules.iter().cloned());
        let shared = Arc::new(SharedRules::new(table));
        let mut levels = Isa::available().map(|isa| answers(&shared, isa, &keys));
        let first = levels.next().unwrap();
        levels.for_each(|other| assert_eq!(first, other, "{}", path.display()));
        matched += first.iter().flatten().count();

        let patterns: usize = rules.iter().map(|rule| rule.matches.len()).sum();
        let scans = (MOST_TRIED / sets.len() / patterns).max(100);
        let linear = LinearTable::new(rules, PacketType(0));
        for at in (0..keys.len()).step_by(keys.len().div_ceil(scans)) {
            assert_eq!(first[at], linear.lookup(&keys[at]).0, "{}", path.display());
            scanned += 1;
        }
    }
    let (packets, keys) = (all.len(), distinct.len());
    println!("{packets} packets, {keys} keys, {} rule sets, {matched} matches", sets.len());
    assert!(packets > 30_000 && sets.len() > 10 && matched > 10_000 && scanned > 1000);
}

#[test]
fn a_run_uses_the_level_that_is_forced_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    support::succeeds(folder.path(), &["gen", "in.pcap", "--packets", "500"]);
    support::write(folder.path(), "routes.csv", "*, ingress, egress\n");
    let chain = "routes = 'routes.csv'\n[input.in]\ncapture = 'in.pcap'\n\
        [output.out]\ncapture = 'out.pcap'\n[[class]]\ntype = 'web'\nrules = ['tcp,tp_dst=80']\n";
    support::write(folder.path(), "chain.toml", chain);
    let run = |level: &str| {
        std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["run", "chain.toml", "--json"])
            .current_dir(folder.path())
            .env("THALWEG_ISA", level)
            .output()
            .unwrap()
    };
    let mut results = HashSet::new();
    for isa in Isa::available() {
        let output = run(isa.name());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["isa"], isa.name());
        let sent = std::fs::read(folder.path().join("out.pcap")).unwrap();
        results.insert((report["types"].to_string(), sent));
    }
    assert_eq!(results.len(), 1, "the levels differ");
    let output = run("sse9");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("THALWEG_ISA=sse9: unknown instruction set; expected scalar, avx2"),
        "{error}"
    );
}
