//! Filters select the packets of captures that tcpdump selects with the same filter.
#![cfg(feature = "libpcap")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_io::{CaptureFiles, CaptureInput, Filter, MemoryInput, Selection};
use thalweg_testkit::{captures, data_folder, peer};

use common::{Drained, drain};

const FILTERS: [&str; 8] = [
    "tcp port 80 or udp port 53",
    "ip6",
    "icmp or arp",
    "tcp[tcpflags] & tcp-syn != 0 and not port 443",
    "greater 200",
    "net 10.0.0.0/8 and not broadcast",
    "vlan and ip",
    "ip[6:2] & 0x1fff != 0",
];

/// Whether a capture's packets are all Ethernet, which `tcpdump` needs to count lengths as we do.
fn is_ethernet(path: &Path) -> bool {
    let types = Command::new("capinfos").args(["-E", "-T", "-r"]).arg(path).output();
    types.is_ok_and(|found| String::from_utf8_lossy(&found.stdout).trim().ends_with("\tether"))
}

/// The packets that tcpdump selects; `None` if it does not read the capture to its end.
fn by_tcpdump(path: &Path, filter: &str, folder: &Path) -> Option<Drained> {
    let selected = folder.join("selected.pcap");
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["--nano", "-r"]).arg(path).arg("-w").arg(&selected).arg(filter);
    let output = tcpdump.output().expect("tcpdump runs");
    if !output.status.success() {
        return None;
    }
    Some(drain(&mut CaptureInput::open(&selected, 1).ok()?))
}

/// Compares a capture with each filter; returns the packets that matched.
fn compare(path: &Path, folder: &Path) -> usize {
    let files = CaptureFiles::one(path);
    let mut matched = 0;
    for text in FILTERS {
        let Some(expected) = by_tcpdump(path, text, folder) else { continue };
        let filter = Some(Filter::compile(text).unwrap());
        let selection = Selection { filter, ..Selection::default() };
        let Ok(mut input) = CaptureInput::open_files(&files, selection.clone(), 1) else {
            continue;
        };
        let ours = drain(&mut input);
        assert_eq!(ours.received, expected.received, "{text}: {}", path.display());
        assert!(ours.packets == expected.packets, "{text}: {}", path.display());
        let mut memory = MemoryInput::load_files(&files, selection, 1).unwrap();
        assert_eq!(drain(&mut memory).packets, ours.packets, "{text}: {}", path.display());
        matched += ours.received;
    }
    matched
}

#[test]
fn the_packets_of_public_captures_that_match_are_those_of_tcpdump() {
    let Some(folder) = data_folder() else { return };
    if !peer::is_there("tcpdump", &["--version"]) || !peer::is_there("capinfos", &["--version"]) {
        return;
    }
    // Of malformed captures, tcpdump changes packets, times and lengths.
    let is_whole = |path: &PathBuf| !path.components().any(|part| part.as_os_str() == "malformed");
    let is_long = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() > 20_000);
    let some = captures(&folder).into_iter().filter(is_whole).filter(is_long).step_by(2);
    let some: Vec<PathBuf> = some.filter(|path| is_ethernet(path)).collect();
    let own = tempfile::tempdir().unwrap();
    let matched: usize = some.iter().map(|path| compare(path, own.path())).sum();
    println!("{matched} packets of {} captures matched", some.len());
    assert!(some.len() > 30 && matched > 3000, "{matched} packets of {} captures", some.len());
}
