//! A whole chain, which tests break line by line.
#![allow(dead_code)] // each test file uses a part

use crate::common::{Folder, Tag};

/// A whole chain; tests break it line by line.
pub const CHAIN: &str = r#"routes = "routes.csv"
default_type = "other"
[input.in]
capture = "in.pcap"
[output.out]
capture = "out.pcap"
[[class]]
type = "web"
rules = ["priority=10,tcp,tp_dst=80", "udp"]
[nf.a]
kind = "test"
number = 0
"#;

/// Its routes.
pub const ROUTES: &str = "*,ingress,a\n*,a,egress\n";

/// A folder with a chain, its routes, and a capture of a packet.
pub fn folder(chain: &str) -> Folder {
    let folder = Folder::new();
    let tag = Tag { flow: 1, back: false, lineage: 0, sequence: 0 };
    folder.capture("in.pcap", &[tag]).write("routes.csv", ROUTES).write("chain.toml", chain);
    folder
}

/// The mistakes of the chain with `from` replaced by `to`.
#[track_caller]
pub fn broken(from: &str, to: &str) -> Vec<String> {
    assert_eq!(CHAIN.matches(from).count(), 1, "{from}");
    folder(&CHAIN.replace(from, to)).mistakes()
}

/// Checks that the chain with `from` replaced by `to` has this mistake alone.
#[track_caller]
pub fn is_told(from: &str, to: &str, expected: &str) {
    assert_eq!(broken(from, to), [expected]);
}
