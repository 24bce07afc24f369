//! `examples/observability`: what its dashboard and rules name is there, and Prometheus accepts it.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::start;
use serde_json::Value;
use thalweg_api::Limits;
use thalweg_packet::DropReason;
use thalweg_testkit::peer;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/observability")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("dashboard.json")).unwrap()
}

/// The metrics that a text names; not the names of rules, which have colons.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
    words.filter(|word| word.starts_with("thalweg_") && !word.contains(':')).collect()
}

/// The metrics as a run serves them.
fn served() -> String {
    let run = start(1, Limits::default());
    let answer = run.request("GET", "/metrics", "text/plain", None);
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[test]
fn every_metric_of_the_dashboard_and_the_rules_is_served() {
    let text = served();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut there: BTreeSet<_> = types.map(|line| line.split(' ').next().unwrap()).collect();
    there.insert("thalweg_run_info");
    for (name, least) in [("dashboard.json", 25), ("rules.yml", 4)] {
        let file = read(name);
        let named = metrics(&file);
        let unknown: Vec<_> = named.difference(&there).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        assert!(named.len() >= least, "{name}: {named:?}");
    }
}

/// The names in `{{NAME}}` of a legend.
fn labels(legend: &str) -> impl Iterator<Item = &str> {
    legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap())
}

#[test]
fn the_panels_of_the_dashboard_have_the_labels_of_their_metrics() {
    let (text, dashboard) = (served(), dashboard());
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert!(ids.len() == panels.len() && panels.len() > 10);
    let mut checked = 0;
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let [expression, legend] =
            ["expr", "legendFormat"].map(|key| target[key].as_str().unwrap());
        assert!(expression.contains("instance=~\"$instance\""), "{expression}");
        for metric in metrics(expression) {
            let prefix = format!("{metric}{{");
            // A metric has no samples without drops of its kind.
            let Some(sample) = text.lines().find(|line| line.starts_with(&prefix)) else {
                continue;
            };
            // Prometheus adds the instance.
            for label in labels(legend).filter(|label| *label != "instance") {
                let is_there = sample.contains(&format!("{label}=\""));
                assert!(is_there, "{legend} of {metric}: {sample}");
                assert!(expression.contains(label), "{expression} loses {label}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn the_reasons_of_the_rules_are_reasons_of_drops() {
    let rules = read("rules.yml");
    let reasons: Vec<_> = rules
        .split("reason=~\"")
        .skip(1)
        .flat_map(|rest| rest.split('"').next().unwrap().split('|'))
        .collect();
    assert!(!reasons.is_empty());
    for reason in reasons {
        assert!(DropReason::ALL.iter().any(|known| known.name() == reason), "{reason}");
    }
}

#[test]
fn prometheus_accepts_configuration_and_rules() {
    if !peer::is_there("promtool", &["--version"]) {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    for name in ["prometheus.yml", "rules.yml"] {
        std::fs::copy(folder().join(name), files.path().join(name)).unwrap();
    }
    // promtool looks for them.
    for name in ["authority.pem", "client.pem", "client.key"] {
        std::fs::write(files.path().join(name), "").unwrap();
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "config", "prometheus.yml"]).current_dir(files.path());
    let text = peer::output(&mut promtool, "");
    assert!(text.contains("SUCCESS: 5 rules found"), "{text}");
    // Each expression of the dashboard is one of PromQL, as a rule.
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let rules: Vec<_> = expressions
        .enumerate()
        .map(|(number, expression)| {
            let expression = expression.replace("$__rate_interval", "1m");
            serde_json::json!({"record": format!("panel:{number}"), "expr": expression})
        })
        .collect();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(files.path().join("dashboard.yml"), groups.to_string()).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "dashboard.yml"]).current_dir(files.path());
    let text = peer::output(&mut promtool, "");
    assert!(text.contains(&format!("SUCCESS: {} rules found", rules.len())), "{text}");
}
