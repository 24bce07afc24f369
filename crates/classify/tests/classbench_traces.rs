//! The ClassBench evaluation sets: each header of a trace must meet the rule
//! that its authors say, or that plain arithmetic on the file's columns says.

#[path = "support/classbench.rs"]
mod files;

use std::path::Path;
use std::sync::Arc;

use thalweg_classify::{Classifier, Config, Lookup, RuleId, RuleTable, SharedRules, classbench};
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType, TransposedKeys};
use thalweg_source::Source;

use files::{headers, key, read, rule_files, trace_of};

/// A classifier of the rules in `path`, numbered from `first`.
fn classifier(path: &Path, first: u32) -> Classifier {
    let source = Source::new(path, read(path));
    let rules = classbench::parse(&source, RuleId(first), 1 << 20, PacketType(1)).unwrap();
    let mut table = RuleTable::new(PacketType(0));
    table.extend(rules);
    let config = Config { emc_insert_inverse_probability: 2, ..Config::default() };
    Classifier::new(Arc::new(SharedRules::new(table)), config)
}

/// The rules that the headers meet, a batch at a time.
fn classify(classifier: &mut Classifier, headers: &[[u64; 5]]) -> Vec<Option<RuleId>> {
    let mut rules = Vec::new();
    for chunk in headers.chunks(BATCH) {
        let mut keys = [FlowKey::default(); BATCH];
        for (place, header) in keys.iter_mut().zip(chunk) {
            *place = key(header);
        }
        let mut out = [Lookup::default(); BATCH];
        let lanes = Lanes::first(chunk.len());
        let keys = TransposedKeys::from_keys(&keys);
        classifier.classify_batch(&keys, lanes, &[64; BATCH], Nanoseconds(0), &mut out);
        rules.extend(out[..chunk.len()].iter().map(|o| o.rule));
    }
    rules
}

#[test]
fn the_wustl_traces_meet_the_rules_their_authors_say() {
    let Some(files) = rule_files("wustl") else { return };
    let (mut sets, mut count) = (0, 0);
    for path in files {
        let trace = headers(&trace_of(&path));
        let fields: Vec<_> = trace.iter().map(|(h, _)| *h).collect();
        let got = classify(&mut classifier(&path, 1), &fields);
        for ((_, expected), got) in trace.iter().zip(got) {
            assert_eq!(got, Some(RuleId(*expected as u32)), "{}", path.display());
        }
        sets += 1;
        count += trace.len();
    }
    println!("{sets} rule sets, {count} headers");
    assert_eq!((sets, count), (10, 230_940));
}

/// A rule as its line says it: prefixes, ranges, protocol under mask.
struct Columns {
    addresses: [(u64, u32); 2],
    ports: [(u64, u64); 2],
    protocol: (u64, u64),
}

impl Columns {
    fn read(line: &str) -> Self {
        let words: Vec<&str> = line.trim_start_matches('@').split_whitespace().collect();
        let address = |word: &str| {
            let (address, length) = word.split_once('/').unwrap();
            let octets = address.split('.').map(|o| o.parse::<u64>().unwrap());
            (octets.fold(0, |a, o| a * 256 + o), length.parse().unwrap())
        };
        let port = |i: usize| (words[i].parse().unwrap(), words[i + 2].parse().unwrap());
        let (value, mask) = words[8].split_once('/').unwrap();
        let byte = |t: &str| u64::from_str_radix(t.trim_start_matches("0x"), 16).unwrap();
        Self {
            addresses: [address(words[0]), address(words[1])],
            ports: [port(2), port(5)],
            protocol: (byte(value), byte(mask)),
        }
    }

    fn covers(&self, header: &[u64; 5]) -> bool {
        let address = |i: usize| {
            let (value, length) = self.addresses[i];
            value >> (32 - length) == header[i] >> (32 - length)
        };
        let port = |i: usize| (self.ports[i].0..=self.ports[i].1).contains(&header[2 + i]);
        let (protocol, mask) = self.protocol;
        address(0) && address(1) && port(0) && port(1) && header[4] & mask == protocol & mask
    }
}

#[test]
fn other_traces_meet_the_first_rule_whose_columns_cover_them() {
    let Some(files) = rule_files("partitionsort") else { return };
    let (mut count, mut met) = (0, 0);
    for path in &files {
        let text = read(path);
        let rules: Vec<_> = text.lines().map(Columns::read).collect();
        // The scan is slow: of the long traces, a part.
        let step = if rules.len() > 2000 { 16 } else { 1 };
        let trace = headers(&trace_of(path));
        let fields: Vec<_> = trace.iter().map(|(h, _)| *h).step_by(step).collect();
        let got = classify(&mut classifier(path, 0), &fields);
        for (header, got) in fields.iter().zip(got) {
            let expected = rules.iter().position(|r| r.covers(header));
            assert_eq!(got.map(|r| r.0 as usize), expected, "{} {header:?}", path.display());
            met += usize::from(got.is_some());
        }
        count += fields.len();
    }
    println!("{} rule sets, {count} headers, {met} met a rule", files.len());
    assert!(files.len() == 20 && count > 10_000 && met > 10_000);
}

#[test]
fn the_dpdk_trace_meets_the_rules_its_authors_say() {
    let Some(files) = rule_files("dpdk-acl") else { return };
    let path = files.iter().find(|p| p.to_string_lossy().contains("v4")).unwrap();
    let trace = headers(&trace_of(path));
    let fields: Vec<_> = trace.iter().map(|(h, _)| *h).collect();
    let got = classify(&mut classifier(path, 0), &fields);
    assert!(!trace.is_empty());
    for ((_, expected), got) in trace.iter().zip(got) {
        // All ones is "no rule".
        let expected = (*expected != u64::from(u32::MAX)).then_some(RuleId(*expected as u32));
        assert_eq!(got, expected);
    }
}

#[test]
fn every_rule_of_the_large_sets_is_read() {
    let (Some(mut files), Some(more)) = (rule_files("neurocuts"), rule_files("large")) else {
        return;
    };
    files.extend(more);
    let mut count = 0;
    for path in &files {
        let text = read(path);
        let lines = text.lines().count();
        let source = Source::new(path, text);
        let rules = classbench::parse(&source, RuleId(0), 1 << 20, PacketType(1)).unwrap();
        assert_eq!(rules.len(), lines, "{}", path.display());
        count += lines;
    }
    println!("{} rule sets, {count} rules", files.len());
    assert!(files.len() == 18 && count > 100_000);
}

#[test]
fn ipv6_filter_files_are_refused_line_by_line() {
    let Some(files) = rule_files("dpdk-acl") else { return };
    let path = files.iter().find(|p| p.to_string_lossy().contains("v6")).unwrap();
    let text = read(path);
    let rules = text.lines().filter(|l| l.starts_with('@')).count();
    let errors = classbench::parse(&Source::new(path, text), RuleId(0), 9, PacketType(1));
    assert_eq!(errors.unwrap_err().len(), rules);
}
