//! Metrics of a run: their formats by Prometheus' own programs, and their numbers by the report.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{Running, start};
use serde_json::Value;
use thalweg_api::Limits;
use thalweg_testkit::peer;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

fn metrics(run: &Running, accept: &str) -> (String, String) {
    let answer = run.request("GET", "/metrics", accept, None);
    assert_eq!(answer.status, 200);
    (answer.media_type, String::from_utf8(answer.body.to_vec()).unwrap())
}

#[test]
fn the_format_is_negotiated() {
    let run = start(1, Limits::default());
    let (media_type, text) = metrics(&run, "*/*");
    assert_eq!(media_type, "text/plain; version=0.0.4; charset=utf-8");
    assert!(text.contains("# TYPE thalweg_received_packets_total counter\n"));
    let (media_type, text) = metrics(&run, OPEN_METRICS);
    assert_eq!(media_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(text.contains("# TYPE thalweg_received_packets counter\n"));
    assert!(text.ends_with("# EOF\n"));
}

/// The samples of a text: name with labels, and value.
fn samples(text: &str) -> Vec<(&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(n, v)| (n, v.parse().unwrap())).collect()
}

#[test]
fn every_metric_has_help_and_each_sample_is_there_once() {
    let run = start(1, Limits::default());
    let (_, text) = metrics(&run, OPEN_METRICS);
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: Vec<_> = families.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(families.len() > 30, "{families:?}");
    for family in &families {
        assert!(text.contains(&format!("# HELP {family} ")), "{family}");
    }
    let names: Vec<_> = samples(&text).into_iter().map(|(name, _)| name).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    for name in names {
        assert!(families.iter().any(|family| name.starts_with(family)), "{name}");
    }
}

#[test]
fn the_documentation_names_the_metrics_that_there_are() {
    let run = start(1, Limits::default());
    let (_, text) = metrics(&run, "text/plain");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let there: BTreeSet<_> = types.map(|line| line.split(' ').next().unwrap()).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control.md");
    let page = std::fs::read_to_string(page).unwrap();
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let documented: BTreeSet<_> = words.filter(|word| word.starts_with("thalweg_")).collect();
    assert_eq!(there, documented);
}

#[test]
fn numbers_are_those_of_the_report() {
    let run = start(1, Limits::default());
    let (_, before) = metrics(&run, OPEN_METRICS);
    let report: Value = run.json("/v1/report");
    std::thread::sleep(std::time::Duration::from_millis(120));
    let (_, after) = metrics(&run, OPEN_METRICS);
    let of = |text: &str, name: &str| {
        let found = samples(text).into_iter().find(|(sample, _)| *sample == name);
        found.unwrap_or_else(|| panic!("no {name} in {text}")).1
    };
    for (metric, pointer) in [
        ("thalweg_received_packets_total", "/packets_in"),
        ("thalweg_received_bytes_total", "/bytes_in"),
        ("thalweg_transmitted_packets_total", "/packets_out"),
        ("thalweg_dropped_packets_total{reason=\"filter-drop\"}", "/drops/filter-drop"),
        ("thalweg_input_packets_total{port=\"traffic\"}", "/inputs/0/packets"),
        ("thalweg_output_bytes_total{port=\"out\"}", "/outputs/0/bytes"),
        ("thalweg_nf_packets_total{nf=\"watch\",kind=\"monitor\"}", "/nfs/0/packets"),
        ("thalweg_nf_figure{nf=\"gate\",kind=\"acl\",figure=\"denied\"}", "/nfs/1/figures/denied"),
        ("thalweg_type_packets_total{type=\"web\"}", "/types/web/packets"),
        ("thalweg_classification_events_total{event=\"emc_hits\"}", "/classification/emc_hits"),
        ("thalweg_workers", "/workers"),
    ] {
        let reported = report.pointer(pointer).and_then(Value::as_f64).unwrap();
        let (before, after) = (of(&before, metric), of(&after, metric));
        assert!(before <= reported && reported <= after, "{metric}: {before} {reported} {after}");
    }
    // Of one moment.
    let drops: f64 = samples(&after)
        .iter()
        .filter(|(name, _)| name.starts_with("thalweg_dropped_packets_total"))
        .map(|(_, drops)| drops)
        .sum();
    let out = of(&after, "thalweg_transmitted_packets_total");
    let unaccounted = of(&after, "thalweg_received_packets_total") - out - drops;
    assert!(unaccounted.abs() < 0.5, "{unaccounted}");
}

#[test]
fn promtool_finds_nothing_wrong() {
    if !peer::is_there("promtool", &["--version"]) {
        return;
    }
    let run = start(1, Limits::default());
    let (_, text) = metrics(&run, "text/plain");
    let said = peer::output(Command::new("promtool").args(["check", "metrics"]), &text);
    assert_eq!(said, "");
}

/// Reads OpenMetrics on standard input, strictly, and writes the number of families.
const PARSE: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
print(len(list(text_string_to_metric_families(sys.stdin.read()))))
";

#[test]
fn openmetrics_is_read_by_a_strict_reader() {
    let run = start(1, Limits::default());
    let (_, text) = metrics(&run, OPEN_METRICS);
    let Some(said) = peer::python("prometheus_client", PARSE, &text) else { return };
    let families = text.matches("# TYPE ").count();
    assert_eq!(said.trim(), families.to_string());
}
