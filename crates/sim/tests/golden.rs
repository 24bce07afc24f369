//! Reports are the same to the last digit, whatever machine and optimisation.
//!
//! `UPDATE_GOLDEN=1 cargo test -p thalweg-sim --test golden` writes the file anew, after a
//! change that is meant to change results.

use std::path::Path;

use thalweg_sim::config::{Config, Method};
use thalweg_sim::experiment::compare;

#[test]
fn a_report_is_that_of_the_file() {
    let settings = [
        "sim.measured_lookups=600",
        "sim.warmup_lookups=200",
        "workload.entries=4096",
        "workload.hit_rate=0.9",
        "workload.tuples=2",
    ];
    let config = Config::with_settings("", &settings).unwrap();
    let reports = compare(&config, &Method::ALL).unwrap();
    let text = serde_json::to_string_pretty(&reports).unwrap() + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    assert!(text == std::fs::read_to_string(&file).unwrap(), "the report is not golden.json's");
}
