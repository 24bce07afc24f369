//! The program with its own NF: generated packets, the report, and state from run to run.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_own-nf"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the program starts")
}

/// Standard output of a run that must succeed.
fn succeeds(arguments: &[&str]) -> String {
    let output = program(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// The report of a run of the chain, which must balance, on its NF.
fn limit(arguments: &[&str]) -> Value {
    let arguments = [&["run", "chain.toml", "--json"], arguments].concat();
    let report: Value = serde_json::from_str(&succeeds(&arguments)).unwrap();
    assert_eq!(report["conserved"], true, "{report}");
    report["nfs"][0].clone()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn the_program_knows_its_kind_and_the_others() {
    let kinds = succeeds(&["nf", "list"]);
    assert!(kinds.contains("quota") && kinds.contains("router"), "{kinds}");
    let options = succeeds(&["nf", "show", "quota"]);
    assert!(options.contains("bytes") && options.contains("required"), "{options}");
    let chain = succeeds(&["check", "chain.toml"]);
    assert!(chain.contains("limit (quota: 15000 bytes for each source)"), "{chain}");
}

#[test]
fn sources_are_counted_and_dropped_after_their_quota() {
    let report = limit(&[]);
    assert_eq!(report["kind"], "quota");
    let (packets, dropped) = (&report["packets"], &report["drops"]["filter-drop"]);
    assert!((1..number(packets)).contains(&number(dropped)), "{report}");
    let (sources, exhausted) = (&report["figures"]["sources"], &report["figures"]["exhausted"]);
    assert!((1..number(sources)).contains(&number(exhausted)), "{report}");
    // The same, whatever the number of workers.
    let workers = limit(&["--workers", "2"]);
    for part in ["packets", "bytes", "drops", "figures"] {
        assert_eq!(workers[part], report[part], "{part}");
    }
}

#[test]
fn a_trace_explains_the_count() {
    let trace = succeeds(&["trace", "chain.toml", "--packet", "1"]);
    assert!(trace.contains(" of 15000 bytes"), "{trace}");
}

#[test]
fn the_state_is_exported_and_the_next_run_continues_it() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    let first = limit(&["--export-state", kept]);
    assert!(Path::new(kept).join("limit.0.state").is_file());
    let second = limit(&["--import-state", kept]);
    // The same packets again: the same sources, which had sent something already.
    let of = |report: &Value, figure: &str| number(&report["figures"][figure]);
    assert_eq!(of(&second, "sources"), of(&first, "sources"));
    assert!(of(&second, "exhausted") > of(&first, "exhausted"), "{first} {second}");
    let dropped = |report: &Value| number(&report["drops"]["filter-drop"]);
    assert!(dropped(&second) > dropped(&first), "{first} {second}");
}
