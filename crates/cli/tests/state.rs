//! State that one run leaves and another takes over.

mod support;

use std::fs;
use std::path::Path;

use support::{report, succeeds, thalweg, write};

const NAT: &str = "routes = 'routes.csv'\n[input.a]\ncapture = '@IN@.pcap'\n\
    [output.o]\ncapture = '@IN@-out.pcap'\n[nf.n]\nkind = 'nat'\n\
    inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1-192.0.2.2']\nports = '1024-4000'\n";
const ASSETS: &str = "routes = 'routes.csv'\n[input.a]\ncapture = '@IN@.pcap'\n\
    [output.o]\ndiscard = true\n[nf.n]\nkind = 'assets'\n";

/// A capture of 3000 packets as `whole.pcap`, and its parts as `one.pcap` and `two.pcap`.
fn folder(chain: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "routes.csv", "*, ingress, n\n*, n, egress\n");
    for part in ["whole", "one", "two"] {
        write(folder.path(), &format!("{part}.toml"), &chain.replace("@IN@", part));
    }
    let arguments = ["gen", "whole.pcap", "--packets", "3000", "--flows", "400", "--seed", "3"];
    succeeds(folder.path(), &arguments);
    let whole = fs::read(folder.path().join("whole.pcap")).unwrap();
    let at = (0..1500).fold(24, |at, _| at + record(&whole[at..]));
    fs::write(folder.path().join("one.pcap"), &whole[..at]).unwrap();
    fs::write(folder.path().join("two.pcap"), [&whole[..24], &whole[at..]].concat()).unwrap();
    folder
}

/// Bytes of a capture's first record.
fn record(records: &[u8]) -> usize {
    let length = records[8..12].first_chunk().unwrap();
    16 + u32::from_le_bytes(*length) as usize
}

/// The packets that a run sent, with their times.
fn sent(folder: &Path, part: &str) -> Vec<u8> {
    fs::read(folder.join(format!("{part}-out.pcap"))).unwrap()[24..].to_vec()
}

#[test]
fn a_run_goes_on_where_another_ended() {
    let folder = folder(NAT);
    let path = folder.path();
    succeeds(path, &["run", "whole.toml"]);
    let first = ["run", "one.toml", "--export-state", "kept"];
    succeeds(path, &first);
    let (told, ..) = report(
        path,
        &["run", "two.toml", "--import-state", "kept", "--export-state", "kept", "--json"],
    );
    assert_eq!([sent(path, "one"), sent(path, "two")].concat(), sent(path, "whole"));
    // The file is that of the second run now.
    let (again, ..) = report(path, &["run", "two.toml", "--import-state", "kept", "--json"]);
    let mappings =
        |told: &serde_json::Value| told["nfs"][0]["figures"]["mappings"].as_u64().unwrap();
    assert!(mappings(&told) > 100, "{told}");
    assert_eq!(mappings(&again), mappings(&told));
    assert_eq!(again["nfs"][0]["figures"]["created"], 0);
    // Without the state the ports would be others.
    succeeds(path, &["run", "two.toml"]);
    assert_ne!([sent(path, "one"), sent(path, "two")].concat(), sent(path, "whole"));
}

#[test]
fn as_many_workers_take_over_or_one() {
    let folder = folder(ASSETS);
    let path = folder.path();
    let hosts = |arguments: &[&str]| {
        let (told, code, error) = report(path, &[arguments, &["--json"]].concat());
        assert_eq!(code, 0, "{error}");
        told["nfs"][0]["figures"]["hosts"].as_u64().unwrap()
    };
    let keep = ["--import-state", "kept", "--export-state", "kept"];
    let all = hosts(&["run", "whole.toml"]);
    let one = hosts(&["run", "one.toml", "--workers", "2", "--export-state", "kept"]);
    assert!(one > 100, "each worker counts its own: {one}");
    let left = || {
        let mut names: Vec<_> =
            fs::read_dir(path.join("kept")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(left(), ["n.0.state", "n.1.state"]);
    let three = [&["run", "two.toml", "--workers", "3"], &keep[..2]].concat();
    let wrong = thalweg(path, &three);
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(1) && told.contains("'n' left the state of 2"), "{told}");
    let two = [&["run", "two.toml", "--workers", "2"], &keep[..]].concat();
    assert!(hosts(&two) >= all);
    assert_eq!(hosts(&[&["run", "two.toml"], &keep[..]].concat()), all);
    assert_eq!(left(), ["n.0.state"], "what more instances left is gone");
}

#[test]
fn what_cannot_be_taken_over_is_named_and_nothing_begins() {
    let folder = folder(NAT);
    let path = folder.path();
    succeeds(path, &["run", "one.toml", "--export-state", "kept"]);
    let before = sent(path, "one");
    let fails = |arguments: &[&str], expected: &str| {
        let wrong = thalweg(path, &[&["run", "one.toml"], arguments].concat());
        let told = String::from_utf8(wrong.stderr).unwrap();
        assert!(wrong.status.code() == Some(1) && told.contains(expected), "{told}");
        assert_eq!(sent(path, "one"), before, "the output is as it was");
    };
    fails(&["--import-state", "nowhere"], "nowhere: state stream: No such file");
    let file = path.join("kept/n.0.state");
    let state = fs::read(&file).unwrap();
    fs::write(&file, &state[..state.len() - 1]).unwrap();
    fails(&["--import-state", "kept"], "kept/n.0.state: state stream ends behind ");
    let mut changed = state.clone();
    changed[200] ^= 1;
    fs::write(&file, changed).unwrap();
    fails(&["--import-state", "kept"], "the checksum is wrong");
    fs::write(&file, [b"THWS\x02\0\x07monitor", &state[10..]].concat()).unwrap();
    fails(&["--import-state", "kept"], "state of 'monitor' version 2, expected 'nat'");
    fails(&["--export-state", "one.pcap"], "one.pcap: state stream: File exists");
}
