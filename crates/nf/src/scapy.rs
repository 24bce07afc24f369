//! Scapy, for tests that compare packets with it.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a Python script that uses scapy; `None` if scapy is not installed.
pub(crate) fn scapy(script: &str, input: &str) -> Option<String> {
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|p| {
        let test = Command::new(p).args(["-c", "import scapy.all, cryptography"]).output();
        test.is_ok_and(|o| o.status.success())
    });
    let Some(python) = python else {
        assert!(std::env::var_os("REQUIRE_PEERS").is_none(), "scapy is required and missing");
        println!("SKIPPED: no scapy");
        return None;
    };
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}
