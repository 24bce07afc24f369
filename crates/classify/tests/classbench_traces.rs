//! The ClassBench evaluation sets: each header of a trace must meet the rule
//! that its authors say.

mod support;

use std::path::Path;
use std::sync::Arc;

use thalweg_classify::source::Source;
use thalweg_classify::{Classifier, Config, Lookup, RuleId, RuleTable, SharedRules, classbench};
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType, field};

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
            .unwrap();
        return text;
    }
    String::from_utf8(bytes).unwrap()
}

fn header(line: &str) -> (FlowKey, u32) {
    let n: Vec<u64> = line.split_whitespace().map(|w| w.parse().unwrap()).collect();
    let mut key = FlowKey::default();
    key.set(field::DL_TYPE, 0x0800);
    key.set(field::NW_SRC, n[0]);
    key.set(field::NW_DST, n[1]);
    key.set(field::TP_SRC, n[2]);
    key.set(field::TP_DST, n[3]);
    key.set(field::NW_PROTO, n[4]);
    (key, *n.last().unwrap() as u32)
}

#[test]
fn the_wustl_traces_meet_the_rules_their_authors_say() {
    let Some(data) = support::data_folder() else { return };
    let folder = data.join("classification/wustl");
    let (mut sets, mut headers) = (0, 0);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let rules_path = entry.unwrap().path();
        let name = rules_path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(".rules") {
            continue;
        }
        let trace_path = folder.join(name.replace(".rules", ".trace"));
        let source = Source::new(&rules_path, read(&rules_path));
        let rules = classbench::parse(&source, RuleId(1), 1 << 20, PacketType(1)).unwrap();
        let mut table = RuleTable::new(PacketType(0));
        table.extend(rules);
        let config = Config { emc_insert_inverse_probability: 2, ..Config::default() };
        let mut classifier = Classifier::new(Arc::new(SharedRules::new(table)), config);
        let trace: Vec<_> = read(&trace_path).lines().map(header).collect();
        for chunk in trace.chunks(BATCH) {
            let mut keys = [FlowKey::default(); BATCH];
            for (key, (header, _)) in keys.iter_mut().zip(chunk) {
                *key = *header;
            }
            let mut out = [Lookup::default(); BATCH];
            let lanes = Lanes::first(chunk.len());
            classifier.classify_batch(&keys, lanes, &[64; BATCH], Nanoseconds(0), &mut out);
            for (lane, (_, expected)) in chunk.iter().enumerate() {
                assert_eq!(out[lane].rule, Some(RuleId(*expected)), "{name}");
            }
        }
        sets += 1;
        headers += trace.len();
    }
    println!("{sets} rule sets, {headers} headers");
    assert!(sets >= 6 && headers > 10_000, "{sets} sets, {headers} headers");
}
