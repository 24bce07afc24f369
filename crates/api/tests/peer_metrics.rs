//! Texts of metrics, as Prometheus' own readers understand them.

use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};
use thalweg_api::metrics::{Family, Format, Kind, Metrics};
use thalweg_testkit::peer;

/// Reads a list of `[media type, text]`, and writes for each the samples that the reader of that
/// format finds: family, its type and help, labels, value.
const PARSE: &str = "
import json, sys
from prometheus_client import openmetrics, parser
import prometheus_client.openmetrics.parser, prometheus_client.parser
readers = {'openmetrics': openmetrics.parser.text_string_to_metric_families,
           'text': parser.text_string_to_metric_families}
def samples(kind, text):
    return [[family.type, family.documentation, sample.name, sample.labels, float(sample.value)]
            for family in readers[kind](text) for sample in family.samples]
print(json.dumps([samples(*case) for case in json.load(sys.stdin)]))
";

/// A family of each kind, whose texts hold anything.
fn metrics(help: &str, label: &str, values: &[f64]) -> Metrics {
    let mut metrics = Metrics::default();
    let (mut bytes, mut share) = (
        Family::new(Kind::Counter, "test_bytes", help),
        Family::new(Kind::Gauge, "test_share_ratio", help),
    );
    for (number, value) in values.iter().enumerate() {
        let number = number.to_string();
        let labels = [("number", &*number), ("label", label)];
        bytes = bytes.sample(&labels, value.abs());
        share = share.sample(&labels, *value);
    }
    let quantiles = [(0.5, values[0].abs()), (0.999, 2.0)];
    let time = Family::new(Kind::Summary, "test_time_seconds", help);
    metrics.extend([
        bytes,
        share,
        time.quantiles(&[("label", label)], &quantiles, 7),
        Family::new(Kind::Info, "test_build", help).sample(&[("label", label)], 1.0),
    ]);
    metrics
}

/// The samples that a reader should find: type, help, name, labels, value.
fn expected(help: &str, label: &str, values: &[f64], format: Format) -> Value {
    let mut all = Vec::new();
    let mut add = |kind: &str, name: &str, more: &[(&str, &str)], value: f64| {
        let mut labels = json!({"label": label});
        more.iter().for_each(|(name, value)| labels[*name] = json!(value));
        all.push(json!([kind, help, name, labels, value]));
    };
    for (number, value) in values.iter().enumerate() {
        let number = number.to_string();
        add("counter", "test_bytes_total", &[("number", &number)], value.abs());
    }
    for (number, value) in values.iter().enumerate() {
        let number = number.to_string();
        add("gauge", "test_share_ratio", &[("number", &number)], *value);
    }
    for (quantile, value) in [("0.5", values[0].abs()), ("0.999", 2.0)] {
        add("summary", "test_time_seconds", &[("quantile", quantile)], value);
    }
    add("summary", "test_time_seconds_count", &[], 7.0);
    let info = if format == Format::OpenMetrics { "info" } else { "gauge" };
    add(info, "test_build_info", &[], 1.0);
    Value::Array(all)
}

#[test]
fn both_formats_are_read_as_they_were_meant() {
    // Texts as the protocols allow: any characters but those that end a line for Python's reader.
    let text = "[ -~äß日\n\\\\\"]{1,20}".prop_filter("a help text is no blank", |text: &String| {
        !text.trim().is_empty() && text.trim() == text
    });
    // Decimal fractions that every reader rounds alike.
    let value = (-1_000_000_000..1_000_000_000).prop_map(|eighths| f64::from(eighths) / 8.0);
    let values = proptest::collection::vec(value, 1..4);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = (text.clone(), text, values);
    let (mut cases, mut wanted) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let (help, label, values) = strategy.new_tree(&mut runner).unwrap().current();
        let metrics = metrics(&help, &label, &values);
        for (name, format) in [("openmetrics", Format::OpenMetrics), ("text", Format::Text)] {
            cases.push(json!([name, metrics.to_text(format)]));
            wanted.push(expected(&help, &label, &values, format));
        }
    }
    let input = Value::Array(cases.clone()).to_string();
    let Some(output) = peer::python("prometheus_client", PARSE, &input) else { return };
    let read: Vec<Value> = serde_json::from_str(&output).unwrap();
    assert_eq!(read.len(), wanted.len());
    for ((read, wanted), case) in read.iter().zip(&wanted).zip(&cases) {
        assert_eq!(read, wanted, "{}", case[1].as_str().unwrap());
    }
}

#[test]
fn promtool_accepts_the_text_format() {
    if !peer::is_there("promtool", &["--version"]) {
        return;
    }
    let text = metrics("Help \"with\" \\ and\nline.", "l\"\\\n", &[1.0, 2.5]).to_text(Format::Text);
    let said = peer::output(Command::new("promtool").args(["check", "metrics"]), &text);
    assert_eq!(said, "");
}
