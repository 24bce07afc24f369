//! Helpers of the tests of the program.
#![allow(dead_code)] // each test file uses a part

use std::path::Path;
use std::process::{Command, Output};

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

/// Writes a pcap capture of packets, each with its time in milliseconds.
pub fn capture(folder: &Path, name: &str, packets: &[(u64, Vec<u8>)]) {
    let words = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (time, packet) in packets {
        let len = packet.len() as u32;
        let head = [(time / 1000) as u32, (time % 1000 * 1000) as u32, len, len];
        bytes.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(packet);
    }
    std::fs::write(folder.join(name), bytes).expect("the test folder takes a file");
}
