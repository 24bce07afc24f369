//! State that one run exports and another imports.

mod support;

use std::fs;
use std::path::Path;

use support::{report, succeeds, thalweg, write};

const NAT: &str = "routes = 'routes.csv'\n[input.a]\ncapture = '@IN@.pcap'\n\
    [output.o]\ncapture = '@IN@-out.pcap'\n[nf.n]\nkind = 'nat'\n\
    inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1-192.0.2.2']\nports = '1024-4000'\n";
const ASSETS: &str = "routes = 'routes.csv'\n[input.a]\ncapture = '@IN@.pcap'\n\
    [output.o]\ndiscard = true\n[nf.n]\nkind = 'assets'\n";

const MONITOR: &str = "routes = 'routes.csv'\n[input.a]\ncapture = '@IN@.pcap'\n\
    [output.o]\ndiscard = true\n[nf.n]\nkind = 'monitor'\njson = '@IN@.json'\n";

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

/// The names of the files in `kept`.
fn left(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("kept")).unwrap();
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// The records of flows that a run of [`MONITOR`] wrote.
fn flows(folder: &Path, part: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join(format!("{part}.json"))).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
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

/// Makes the folder `kept` one of an older version, with a file for each of two workers.
fn divide(folder: &Path) {
    let kept = folder.join("kept");
    fs::copy(kept.join("n.0.state"), kept.join("n.1.state")).unwrap();
    let manifest = fs::read_to_string(kept.join("state.json")).unwrap();
    let two = manifest.replace("\"instances\": 1", "\"instances\": 2");
    assert_ne!(two, manifest);
    fs::write(kept.join("state.json"), two).unwrap();
}

#[test]
fn any_number_of_workers_continues() {
    let folder = folder(ASSETS);
    let path = folder.path();
    let hosts = |arguments: &[&str]| {
        let (told, code, error) = report(path, &[arguments, &["--json"]].concat());
        assert_eq!(code, 0, "{error}");
        told["nfs"][0]["figures"]["hosts"].as_u64().unwrap()
    };
    let all = hosts(&["run", "whole.toml"]);
    assert!(hosts(&["run", "one.toml", "--workers", "2", "--export-state", "kept"]) > 100);
    assert_eq!(left(path), ["n.0.state", "state.json"]);
    let import = ["--import-state", "kept"];
    for workers in ["3", "1"] {
        let two = [&["run", "two.toml", "--workers", workers], &import[..]].concat();
        assert_eq!(hosts(&two), all);
    }
    divide(path);
    let keep = [&["run", "two.toml"], &import[..], &["--export-state", "kept"]].concat();
    assert_eq!(hosts(&keep), all);
    assert_eq!(left(path), ["n.0.state", "state.json"], "the files of other instances are removed");
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
    fails(&["--import-state", "nowhere"], "cannot read the state folder nowhere: No such file");
    let file = path.join("kept/n.0.state");
    let state = fs::read(&file).unwrap();
    fs::write(&file, &state[..state.len() - 1]).unwrap();
    fails(&["--import-state", "kept"], "kept/n.0.state: state stream ends after ");
    fs::write(&file, &state[..50]).unwrap();
    fails(&["--import-state", "kept"], "kept/n.0.state: state stream ends within record 0");
    fs::write(&file, [&state[..], &state[..]].concat()).unwrap();
    fails(&["--import-state", "kept"], "kept/n.0.state: unexpected bytes after the end");
    let mut changed = state.clone();
    changed[200] ^= 1;
    fs::write(&file, changed).unwrap();
    fails(&["--import-state", "kept"], "checksum mismatch");
    fs::write(&file, [b"THWS\x02\0\x07monitor", &state[10..]].concat()).unwrap();
    fails(&["--import-state", "kept"], "state of 'monitor' version 2, expected 'nat'");
    fails(&["--export-state", "one.pcap"], "cannot create the state folder one.pcap: File exists");
}

#[test]
fn a_part_of_what_was_left_is_not_taken_over() {
    let folder = folder(ASSETS);
    let path = folder.path();
    let import = |chain: &str, more: &[&str]| {
        let run = thalweg(path, &[&["run", chain, "--import-state", "kept"], more].concat());
        (run.status.code().unwrap(), String::from_utf8(run.stderr).unwrap())
    };
    let fails = |chain: &str, more: &[&str], expected: &str| {
        let (code, told) = import(chain, more);
        assert!(code == 1 && told.contains(expected), "{told}");
    };
    succeeds(path, &["run", "one.toml", "--workers", "2", "--export-state", "kept"]);
    divide(path);
    for (chain, from, to) in [("named", "[nf.n]", "[nf.m]"), ("kind", "'assets'", "'monitor'")] {
        write(path, &format!("{chain}.toml"), &ASSETS.replace("@IN@", "two").replace(from, to));
    }
    write(path, "two.csv", "*, ingress, n\n*, n, m\n*, m, egress\n");
    let both = ASSETS.replace("@IN@", "two").replace("routes.csv", "two.csv");
    write(path, "both.toml", &format!("{both}[nf.m]\nkind = 'monitor'\n"));
    write(path, "routes.csv", "*, ingress, m\n*, m, egress\n");
    fails(
        "named.toml",
        &[],
        "kept: holds state of NF 'n' of kind 'assets', and the chain has no NF of",
    );
    write(path, "routes.csv", "*, ingress, n\n*, n, egress\n");
    fails(
        "kind.toml",
        &[],
        "holds state of NF 'n' of kind 'assets', but its kind is 'monitor' now",
    );
    let (code, told) = import("both.toml", &["--workers", "2"]);
    assert!(code == 0 && told.contains("kept: no state of NF 'm'; it starts without"), "{told}");
    for lost in ["n.1.state", "n.0.state"] {
        fs::rename(path.join("kept").join(lost), path.join("lost")).unwrap();
        for workers in ["1", "2"] {
            let expected = format!("cannot read kept/{lost}: No such file");
            fails("two.toml", &["--workers", workers], &expected);
        }
        fs::rename(path.join("lost"), path.join("kept").join(lost)).unwrap();
    }
    fs::copy(path.join("kept/n.1.state"), path.join("kept/n.2.state")).unwrap();
    let (code, told) = import("two.toml", &["--workers", "2"]);
    assert!(
        code == 0 && told.contains("kept/n.2.state: ignored, because state.json does not name it"),
        "{told}"
    );
    let manifest = fs::read_to_string(path.join("kept/state.json")).unwrap();
    for (from, to, expected) in [
        ("state/1", "state/2", "unknown schema 'thalweg.state/2'; expected 'thalweg.state/1'"),
        (": 2", ": 0", "'n' has 0 instances"),
        ("\"n\"", "\"../n\"", "expected a name without '/'"),
        ("{", "", "kept/state.json: "),
    ] {
        fs::write(path.join("kept/state.json"), manifest.replace(from, to)).unwrap();
        fails("two.toml", &[], expected);
    }
    // The folder after an interrupted export.
    fs::remove_file(path.join("kept/state.json")).unwrap();
    fails("two.toml", &[], "kept: no complete state: state.json, which --export-state");
}

#[test]
fn a_folder_keeps_what_it_has_until_all_is_written() {
    let folder = folder(MONITOR);
    let path = folder.path();
    let export = ["--workers", "2", "--export-state", "kept"];
    succeeds(path, &[&["run", "one.toml"], &export[..]].concat());
    let kept = |name: &str| fs::read(path.join("kept").join(name)).unwrap();
    let before = kept("n.0.state");
    assert!(before.len() > 1000 && flows(path, "one").is_empty());
    fs::create_dir(path.join("kept/n.0.partial")).unwrap();
    let run = thalweg(path, &[&["run", "two.toml"], &export[..]].concat());
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(
        run.status.code() == Some(1) && told.contains("cannot write kept/n.0.partial"),
        "{told}"
    );
    fs::remove_dir(path.join("kept/n.0.partial")).unwrap();
    assert_eq!(kept("n.0.state"), before);
    assert_eq!(left(path), ["n.0.state", "state.json"]);
    // No other run will report these flows.
    let told = flows(path, "two");
    succeeds(path, &["run", "two.toml", "--workers", "2"]);
    assert!(!told.is_empty() && told == flows(path, "two"));
}

#[test]
fn flows_that_go_on_in_another_run_are_written_out_once() {
    for pinned in ["", "pinned = true\n"] {
        let folder = folder(&format!("{MONITOR}{pinned}"));
        let path = folder.path();
        succeeds(path, &["run", "whole.toml"]);
        let whole = flows(path, "whole");
        assert!(whole.len() > 400);
        for workers in ["1", "2"] {
            let keep = ["--workers", workers, "--export-state", "kept"];
            succeeds(path, &[&["run", "one.toml"], &keep[..]].concat());
            assert_eq!(flows(path, "one"), [""; 0]);
            let take = ["--workers", workers, "--import-state", "kept"];
            succeeds(path, &[&["run", "two.toml"], &take[..]].concat());
            assert_eq!(flows(path, "two"), whole);
        }
        // Without an export the flows end with the run.
        succeeds(path, &["run", "one.toml"]);
        assert!(flows(path, "one").iter().all(|line| line.contains("forced-end")));
        assert!(flows(path, "one").len() > 300);
    }
}
