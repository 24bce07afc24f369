//! Thousands of captures in one run, with few descriptors.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::write;
use thalweg_io::{CaptureOutput, Output};
use thalweg_packet::Nanoseconds;

/// Writes `count` captures of 5 packets, which overlap in `together` files.
fn captures(folder: &Path, count: u64, together: u64) {
    std::fs::create_dir(folder).unwrap();
    for number in 0..count {
        let (group, place) = (number / together, number % together);
        let mut output = CaptureOutput::create(&folder.join(format!("{number}.pcap"))).unwrap();
        for n in 0..5 {
            let time = (group * 5 + n) * together + place;
            output.write(&[0; 60], 60, Nanoseconds(time * 1000)).unwrap();
        }
        output.flush().unwrap();
    }
}

#[test]
fn thousands_of_files_need_few_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (name, together) in [("rotated", 1), ("overlapping", 1500)] {
        captures(&path.join(name), 3000, together);
        let chain = format!(
            "routes = 'routes.csv'\n[input.in]\ncapture = '{name}'\n[output.out]\n\
             capture = 'out.pcap'\n[nf.n]\nkind = 'refrag'\n"
        );
        write(path, "chain.toml", &chain);
        write(path, "routes.csv", "*, ingress, n\n*, n, egress\n");
        let program = env!("CARGO_BIN_EXE_thalweg");
        let script = format!("ulimit -n 256 && exec '{program}' run chain.toml --json");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(path).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {error}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["packets_out"], 15_000, "{name}");
        assert_eq!(report["warnings"], serde_json::json!([]), "{name}");
    }
}
