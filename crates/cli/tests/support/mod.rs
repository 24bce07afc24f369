//! Helpers of the tests of the program.
#![allow(dead_code)] // each test file uses a part

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of shared test data, or `None`, with a message, if it is missing.
pub fn data_folder() -> Option<PathBuf> {
    let near = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("THALWEG_DATA").map_or_else(near, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: no data folder");
    None
}

/// Whether a program that tests need is installed. If not, prints that, and fails if
/// `REQUIRE_PEERS` is set.
pub fn peer(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        assert!(std::env::var_os("REQUIRE_PEERS").is_none(), "{program} is required and missing");
        println!("SKIPPED: no {program}");
    }
    there
}

/// Runs `thalweg` with `arguments` in `folder`.
pub fn thalweg(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts")
}

/// Standard output of a run that must succeed.
pub fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = thalweg(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// The report of a run as JSON, and its exit code and standard error.
pub fn report(folder: &Path, arguments: &[&str]) -> (serde_json::Value, i32, String) {
    let output = thalweg(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {error}"));
    (report, output.status.code().unwrap_or(-1), error)
}

pub fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("the test folder takes a file");
}

/// All captures below `folder`, sorted.
pub fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
            if path.is_dir() {
                folders.push(path);
            } else if ["pcap", "pcapng", "cap", "dmp", "trace"].contains(&extension)
                && !path.components().any(|c| c.as_os_str() == "classification")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
