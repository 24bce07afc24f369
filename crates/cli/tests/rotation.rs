//! Files of events begin again at a size, and where another program has renamed them; nothing is
//! lost, and each file is whole.

#[path = "support/controlled.rs"]
mod controlled;
mod support;

use std::fs;
use std::path::Path;

use controlled::Controlled;
use support::{pipe, report, succeeds, thalweg, wait, write};

const MIB: u64 = 1 << 20;

/// A chain with all NFs that append to files; `rotate` is an option of each.
fn chain(rotate: &str) -> String {
    format!(
        "[input.a]\ncapture = 'in.pcap'\n[output.o]\ndiscard = true\n\
         [nf.n]\nkind = 'nids'\nrules = ['ids.rules']\nalerts = 'alerts.json'\n{rotate}\n\
         [nf.m]\nkind = 'monitor'\njson = 'flows.json'\nipfix = 'flows.ipfix'\n{rotate}\n\
         [[route]]\npath = ['ingress', 'n', 'm', 'egress']\n"
    )
}

/// A folder with a capture of many flows and a rule that every packet matches.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "ids.rules", "alert ip any any -> any any (msg:\"any\"; sid:1;)\n");
    let flows = ["gen", "in.pcap", "--packets", "40000", "--flows", "40000", "--size", "64"];
    succeeds(path, &flows);
    folder
}

/// The contents of the file `name` and of its renamed ones, the oldest first.
fn files(folder: &Path, name: &str) -> Vec<Vec<u8>> {
    let numbered = (1..).map(|number| format!("{name}.{number}"));
    let names = std::iter::once(name.to_owned()).chain(numbered);
    let mut files: Vec<_> = names.map_while(|name| fs::read(folder.join(name)).ok()).collect();
    files.reverse();
    files
}

/// Removes the files that runs have renamed.
fn remove(folder: &Path) {
    for name in ["alerts.json", "flows.json", "flows.ipfix"] {
        for number in 1..files(folder, name).len() {
            fs::remove_file(folder.join(format!("{name}.{number}"))).unwrap();
        }
    }
}

/// The IPFIX messages of a file, without the templates that it must begin with.
fn without_templates(file: &[u8]) -> &[u8] {
    let number = |at: usize| usize::from(u16::from_be_bytes([file[at], file[at + 1]]));
    assert_eq!((number(0), number(16)), (10, 2), "a message with a set of templates");
    let rest = &file[number(2)..];
    assert!(rest.is_empty() || rest[8..12] == file[8..12], "their numbers follow each other");
    rest
}

#[test]
fn files_begin_again_at_their_size_and_hold_the_records_of_one() {
    let folder = folder();
    let path = folder.path();
    write(path, "chain.toml", &chain(""));
    succeeds(path, &["run", "chain.toml"]);
    let whole = ["alerts.json", "flows.json", "flows.ipfix"].map(|name| files(path, name));
    assert!(whole.iter().all(|files| files.len() == 1 && files[0].len() as u64 > MIB));
    for workers in ["1", "2"] {
        remove(path);
        write(path, "chain.toml", &chain("rotate = { size_mib = 1, keep = 100 }"));
        succeeds(path, &["run", "chain.toml", "--workers", workers]);
        for (name, whole) in ["alerts.json", "flows.json"].into_iter().zip(&whole) {
            let files = files(path, name);
            assert!(files.len() > 2, "{name}: {}", files.len());
            let is_sound = |file: &Vec<u8>| file.len() as u64 <= MIB && file.ends_with(b"\n");
            assert!(files.iter().all(is_sound));
            assert!(files.concat() == whole[0], "{name}");
        }
        let files = files(path, "flows.ipfix");
        assert!(files.len() > 1 && files.iter().all(|file| file.len() as u64 <= MIB));
        let messages: Vec<_> = files.iter().map(|file| without_templates(file)).collect();
        assert!(messages.concat() == without_templates(&whole[2][0]));
    }
    remove(path);
    write(path, "chain.toml", &chain("rotate = { size_mib = 1, keep = 1 }"));
    succeeds(path, &["run", "chain.toml"]);
    let kept = files(path, "alerts.json");
    assert_eq!(kept.len(), 2);
    assert!(whole[0][0].ends_with(&kept.concat()));
}

#[test]
fn a_file_that_cannot_be_renamed_is_continued_with_a_warning() {
    let folder = folder();
    let path = folder.path();
    write(path, "chain.toml", &chain("rotate = { size_mib = 1 }"));
    fs::create_dir(path.join("alerts.json.1")).unwrap();
    let (report, code, messages) = report(path, &["run", "chain.toml", "--json"]);
    assert_eq!((code, &report["failures"]), (0, &serde_json::json!([])), "{messages}");
    let warning = "alerts.json, which is continued: ";
    assert!(messages.contains(warning) && messages.contains("json.1 is not a file"), "{messages}");
    assert!(messages.matches(warning).count() < 20, "{messages}");
    let text = fs::read_to_string(path.join("alerts.json")).unwrap();
    assert_eq!(report["nfs"][0]["figures"]["alerts"], text.lines().count());
    assert!(files(path, "flows.json").len() > 2, "other files are renamed");
}

#[test]
fn a_file_that_is_moved_away_is_opened_again_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "ids.rules", "alert ip any any -> any any (msg:\"any\"; sid:1;)\n");
    let endless = "generate = { packets = 1000000000, flows = 100, rate = 20000 }\npace = 1.0";
    write(path, "live.toml", &chain("").replace("capture = 'in.pcap'", endless));
    let run = Controlled::start(path, "live", "live.toml", &["--control=live", "--workers", "2"]);
    let signal = || {
        let kill = format!("kill -USR1 {}", run.child.id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    };
    let export = || drop(run.succeeds(&["export"]));
    let requests: [&dyn Fn(); 2] = [&signal, &export];
    let lines = |name: &str| fs::read_to_string(path.join(name)).unwrap().lines().count();
    for (n, request) in requests.into_iter().enumerate() {
        for name in ["alerts.json", "flows.json", "flows.ipfix"] {
            wait(|| path.join(name).exists());
            fs::rename(path.join(name), path.join(format!("{name}.moved{n}"))).unwrap();
        }
        request();
        for name in ["alerts.json", "flows.json"] {
            wait(|| path.join(name).exists());
        }
        // Packets have come for the next files.
        wait(|| lines("alerts.json") > 0);
    }
    run.succeeds(&["stop"]);
    let report = run.end();
    let all = |name: &str| {
        let renamed = [0, 1].map(|n| lines(&format!("{name}.moved{n}")));
        renamed.iter().sum::<usize>() + lines(name)
    };
    assert_eq!(report["nfs"][0]["figures"]["alerts"], all("alerts.json"));
    assert_eq!(report["nfs"][1]["figures"]["records_exported"], all("flows.json"));
    for name in ["flows.ipfix.moved0", "flows.ipfix.moved1", "flows.ipfix"] {
        assert!(!without_templates(&fs::read(path.join(name)).unwrap()).is_empty(), "{name}");
    }
}

#[test]
fn what_cannot_rotate_is_refused_with_its_place() {
    let folder = folder();
    let path = folder.path();
    pipe(path, "pipe");
    let alerts = |name: &str| chain("rotate = { size_mib = 1 }").replace("alerts.json", name);
    let cases = [
        (chain("rotate = { size_mib = 0 }"), "1 to 1048576"),
        (chain("rotate = { size_mib = 1, keep = 101 }"), "1 to 100"),
        (chain("rotate = { keep = 1 }"), "missing field `size_mib`"),
        (chain("rotate = { size_mib = 1, age = 1 }"), "unknown field `age`"),
        (alerts("pipe"), "pipes, devices and standard output cannot be rotated"),
        (alerts("/dev/null"), "pipes, devices and standard output cannot be rotated"),
        (alerts("alerts.json").replace("alerts = 'alerts.json'", ""), "there is no file to rotate"),
        (
            alerts("x").replace("flows.json", "x.3"),
            "x.3 would overwrite the file that NF 'm' writes",
        ),
        (
            alerts("in").replace("in.pcap", "in.2"),
            "in.2 would overwrite the file that input 'a' reads",
        ),
    ];
    fs::copy(path.join("in.pcap"), path.join("in.2")).unwrap();
    for (text, expected) in cases {
        write(path, "chain.toml", &text);
        let output = thalweg(path, &["check", "chain.toml"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{expected}: {message}");
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(message.contains(expected) && message.contains("chain.toml:"), "{message}");
    }
    write(path, "chain.toml", &alerts("/dev/stdout"));
    let output = thalweg(path, &["run", "chain.toml"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be rotated"));
}
