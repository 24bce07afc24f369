//! Files of the ClassBench evaluation sets.

use std::path::{Path, PathBuf};

use thalweg_packet::wire::ethertype;
use thalweg_packet::{FlowKey, field};

/// The text of a file, which may be compressed.
pub fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
            .unwrap();
        return text;
    }
    String::from_utf8(bytes).unwrap()
}

/// The rule files of a folder of the classification data.
pub fn rule_files(folder: &str) -> Option<Vec<PathBuf>> {
    let folder = thalweg_testkit::data_folder()?.join("classification").join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let is_rules = |p: &PathBuf| p.to_string_lossy().contains("rule");
    let mut files: Vec<_> = entries.filter(is_rules).collect();
    files.sort();
    Some(files)
}

/// The trace that goes with a rule file; not all have one.
pub fn trace_of(rules: &Path) -> PathBuf {
    let name = rules.file_name().unwrap().to_string_lossy().replace("rule", "trace");
    let plural = name.replace("traces", "trace");
    rules.with_file_name(plural)
}

/// Source, destination, source port, destination port, protocol; last column.
fn header(line: &str) -> ([u64; 5], u64) {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => word.parse().unwrap(),
    };
    let n: Vec<u64> = line.split_whitespace().map(number).collect();
    ([n[0], n[1], n[2], n[3], n[4]], *n.last().unwrap())
}

/// The headers of a trace, and its last column.
pub fn headers(path: &Path) -> Vec<([u64; 5], u64)> {
    read(path).lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(header).collect()
}

/// The key of a header.
pub fn key(header: &[u64; 5]) -> FlowKey {
    let mut key = FlowKey::default();
    key.set(field::DL_TYPE, ethertype::IPV4.into());
    let places = [field::NW_SRC, field::NW_DST, field::TP_SRC, field::TP_DST, field::NW_PROTO];
    for (place, value) in places.into_iter().zip(header) {
        key.set(place, *value);
    }
    key
}
