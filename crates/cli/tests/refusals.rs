//! `check` reports what `run` would refuse, without writing or creating anything.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use support::{Running, pipe, succeeds, thalweg, write};

/// The names and contents of all files of a folder.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), if path.is_file() { fs::read(path).unwrap() } else { vec![] }))
        .collect();
    all.sort();
    all
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, n\n*, n, egress\n");
    write(path, "old.pcap", "the content of an earlier run");
    succeeds(path, &["gen", "in.pcap", "--packets", "10"]);
    fs::create_dir(path.join("sub")).unwrap();
    folder
}

/// A chain; its input is in line 3, its output in line 5, an option of its NF in line 8.
fn chain(input: &str, output: &str, nf: &str) -> String {
    format!("routes = 'routes.csv'\n[input.a]\n{input}\n[output.o]\n{output}\n[nf.n]\n{nf}\n")
}

const INPUT: &str = "capture = 'in.pcap'";
const OUTPUT: &str = "discard = true";
const NF: &str = "kind = 'refrag'";

/// Checks that `check` refuses the chain at `line` with `message`, and `run` too, and that neither
/// leaves a trace.
fn is_refused(folder: &Path, chain: &str, line: u32, message: &str, run: impl Fn(&str) -> Output) {
    write(folder, "chain.toml", chain);
    let before = content(folder);
    for command in ["check", "run"] {
        let output = run(command);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{command} {chain}: {error}");
        assert!(error.contains(&format!("chain.toml:{line}:")), "{command} {line}: {error}");
        assert!(error.contains(message), "{command} {message}: {error}");
        assert!(content(folder) == before, "{command} changed the folder of {chain}");
    }
}

#[test]
fn what_a_run_cannot_read_or_write_is_refused() {
    let folder = folder();
    let path = folder.path();
    write(path, "empty.pcap", "");
    write(path, "text.pcap", "this is text");
    write(path, "cut.pcapng", "\u{a}\u{d}\u{d}\u{a}");
    pipe(path, "pipe");
    std::os::unix::fs::symlink("/proc/none.pcap", path.join("link.pcap")).unwrap();
    let output = |name: &str| chain(INPUT, &format!("capture = '{name}'"), NF);
    let input = |name: &str| chain(&format!("capture = '{name}'"), OUTPUT, NF);
    let nf = |text: &str| chain(INPUT, OUTPUT, text);
    let long = format!("{}.pcap", "n".repeat(300));
    let monitor = |key: &str, file: &str| nf(&format!("kind = 'monitor'\n{key} = '{file}'"));
    let cases = [
        (output("/proc/x.pcap"), 5, "cannot write this file: permission denied"),
        (output("/sys/kernel/x.pcap.gz"), 5, "cannot write this file: permission denied"),
        (output("link.pcap"), 5, "cannot write this file: permission denied"),
        (output(&long), 5, "cannot write this file: File name too long"),
        (output("sub"), 5, "this is a folder"),
        (output("in.pcap/x.pcap"), 5, "no such folder"),
        (output("none/x.pcap"), 5, "no such folder"),
        (output("in.pcap"), 5, "this would overwrite the file that input 'a' reads"),
        (output("x.txt"), 5, "unknown capture format"),
        (chain(INPUT, "interface = 'no-such'", NF), 5, "there is no interface 'no-such'"),
        (chain("interface = 'no-such'", OUTPUT, NF), 3, "there is no interface 'no-such'"),
        (input("none.pcap"), 3, "cannot read this capture: No such file"),
        (input("in.pcap/x"), 3, "cannot read this capture: Not a directory"),
        (input("sub"), 3, "this folder has no files"),
        (input("empty.pcap"), 3, "the file is empty"),
        (input("text.pcap"), 3, "not a pcap or pcapng capture"),
        (input("cut.pcapng"), 3, "at byte "),
        (monitor("json", "/proc/x"), 8, "cannot write this file: permission denied"),
        (monitor("ipfix", "/sys/x"), 8, "cannot write this file: permission denied"),
        (monitor("ipfix", "sub"), 8, "this is a folder"),
        (
            nf("kind = 'acl'\nhits = '/proc/x'\nrules = ['permit ip']"),
            8,
            "cannot write this file: permission denied",
        ),
        (
            nf("kind = 'assets'\ninventory = '/sys/x'"),
            8,
            "cannot write this file: permission denied",
        ),
        (nf("kind = 'nids'\nrules = ['none']"), 8, "cannot read the file: No such file"),
    ];
    for (text, line, message) in cases {
        is_refused(path, &text, line, message, |command| thalweg(path, &[command, "chain.toml"]));
    }
    // A trace writes nothing, and so needs no permission to.
    write(path, "chain.toml", &output("/proc/x.pcap"));
    succeeds(path, &["trace", "chain.toml", "--packet", "1"]);
}

#[test]
fn what_a_run_accepts_is_accepted_and_left_alone() {
    let folder = folder();
    let path = folder.path();
    pipe(path, "pipe.pcap");
    let accepts = |text: &str| {
        write(path, "chain.toml", text);
        let before = content(path);
        succeeds(path, &["check", "chain.toml"]);
        assert!(content(path) == before, "{text}");
    };
    for name in ["old.pcap", "new.pcap", "sub/new.pcapng.gz"] {
        let text = chain(INPUT, &format!("capture = '{name}'"), NF);
        accepts(&text);
        succeeds(path, &["run", "chain.toml"]);
    }
    accepts(&chain(INPUT, OUTPUT, "kind = 'monitor'\njson = '/dev/stdout'\nipfix = '/dev/null'"));
    succeeds(path, &["run", "chain.toml"]);
    accepts(&chain("capture = 'pipe.pcap'", OUTPUT, NF));
    // The reader of a pipe does not notice a check of its writer, and the other way round.
    write(path, "chain.toml", &chain("capture = 'pipe.pcap'", OUTPUT, NF));
    let reader = Running::start(path, &[], Stdio::null());
    let writer = "routes = 'routes.csv'\n[input.a]\ncapture = 'in.pcap'\n[output.o]\n\
        capture = 'pipe.pcap'\n[nf.n]\nkind = 'refrag'\n";
    write(path, "writer.toml", writer);
    for _ in 0..3 {
        succeeds(path, &["check", "writer.toml"]);
        succeeds(path, &["check", "chain.toml"]);
    }
    succeeds(path, &["run", "writer.toml"]);
    let reader = reader.end();
    assert_eq!(reader.report()["packets_out"], 10, "{}", reader.error);
}

/// A user without permissions, where this system lets us become one.
#[test]
fn permissions_are_those_of_the_user() {
    let folder = folder();
    let path = folder.path();
    let program = path.join("thalweg");
    fs::copy(env!("CARGO_BIN_EXE_thalweg"), &program).unwrap();
    let mode = |name: &str, mode: u32| {
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    mode("thalweg", 0o755);
    let run = |command: &str| {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
        let mut setpriv = Command::new("setpriv");
        setpriv.args(user).arg(&program).args([command, "chain.toml"]).current_dir(path);
        setpriv.env("NO_COLOR", "1").output().unwrap()
    };
    write(path, "chain.toml", &chain(INPUT, OUTPUT, NF));
    for name in ["in.pcap", "routes.csv", "chain.toml"] {
        mode(name, 0o644);
    }
    let possible = Command::new("setpriv").arg("--version").output().is_ok();
    if !possible || !run("check").status.success() {
        eprintln!("SKIPPED: setpriv cannot become another user here");
        return;
    }
    let output = |name: &str| chain(INPUT, &format!("capture = '{name}'"), NF);
    fs::create_dir(path.join("open")).unwrap();
    mode("open", 0o777);
    write(path, "open/private", "kept");
    mode("open/private", 0o600);
    write(path, "secret.pcap", "secret");
    mode("secret.pcap", 0o600);
    pipe(path, "pipe.pcap");
    mode("pipe.pcap", 0o600);
    let denied = "Permission denied (os error 13)";
    let cannot_write = format!("cannot write this file: {denied}");
    let hits = |file: &str| {
        chain(INPUT, OUTPUT, &format!("kind = 'acl'\nhits = '{file}'\nrules = ['permit ip']"))
    };
    let interface = "interface 'lo': cannot open a packet socket";
    let cases = [
        (output("new.pcap"), 5, cannot_write.as_str()),
        (output("secret.pcap"), 5, &cannot_write),
        (output("pipe.pcap"), 5, &cannot_write),
        (hits("hits.json"), 8, &cannot_write),
        (chain("capture = 'secret.pcap'", OUTPUT, NF), 3, denied),
        (chain("capture = 'pipe.pcap'", OUTPUT, NF), 3, denied),
        (chain(INPUT, OUTPUT, "kind = 'nids'\nrules = ['open/private']"), 8, denied),
        (chain("interface = 'lo'", OUTPUT, NF), 3, interface),
        (chain(INPUT, "interface = 'lo'", NF), 5, interface),
    ];
    for (text, line, message) in cases {
        is_refused(path, &text, line, message, run);
    }
    // A file that is replaced as a whole needs permissions for its folder only.
    write(path, "chain.toml", &hits("open/private"));
    for command in ["check", "run"] {
        let output = run(command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(fs::read_to_string(path.join("open/private")).unwrap().contains("\"packets\":10"));
}
