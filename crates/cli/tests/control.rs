//! `thalweg run --control` and `thalweg ctl`.

#[path = "support/controlled.rs"]
mod controlled;
mod support;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use controlled::{Controlled, ENDLESS, ctl, folder, message};
use serde_json::Value;
use support::{command, succeeds, thalweg, wait, write};

fn sockets(folder: &Path) -> usize {
    fs::read_dir(folder.join("sockets")).map_or(0, Iterator::count)
}

#[test]
fn a_run_is_shown_and_stopped() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let pid = run.child.id();
    // It is the only one: -s is not needed.
    let status = run.succeeds(&["status"]);
    assert!(status.starts_with(&format!("run      edge, process {pid}, thalweg ")), "{status}");
    assert!(status.contains("/endless.toml\nstate    running for "), "{status}");
    let document: Value = serde_json::from_str(&run.succeeds(&["status", "--json"])).unwrap();
    assert_eq!((&document["name"], &document["pid"]), (&"edge".into(), &pid.into()));
    let ports = run.succeeds(&["ports"]);
    assert!(ports.contains("1000000000 generated packets in 100 flows"), "{ports}");
    let nfs = run.succeeds(&["nfs"]);
    assert!(nfs.contains("\nwatch  monitor") && nfs.contains("filter-drop "), "{nfs}");
    let rules = run.succeeds(&["rules", "--limit", "1"]);
    assert!(rules.contains("priority=7,tcp,tp_dst=443\n1 of 2 rules shown\n"), "{rules}");
    let report: Value = serde_json::from_str(&run.succeeds(&["report"])).unwrap();
    assert_eq!((&report["schema"], &report["conserved"]), (&"thalweg.run/1".into(), &true.into()));
    assert!(run.succeeds(&["metrics"]).ends_with("# EOF\n"));
    let list = run.succeeds(&["list"]);
    assert!(list.contains(&format!("edge  {pid}")), "{list}");
    assert_eq!(run.succeeds(&["stop"]), format!("run 'edge' (process {pid}) stops\n"));
    let report = run.end();
    assert_eq!(report["conserved"], true);
    assert_eq!(sockets(folder.path()), 0);
}

#[test]
fn a_reload_shows_what_changes_or_is_refused_as_a_whole() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    assert_eq!(run.succeeds(&["reload"]), "nothing has changed\n");
    write(
        folder.path(),
        "endless.toml",
        &ENDLESS.replace("\"deny icmp\"", "\"deny udp\", \"deny icmp\""),
    );
    let changes = run.succeeds(&["reload", "--dry-run"]);
    assert!(changes.starts_with("~ nf 'gate': "), "{changes}");
    assert!(run.succeeds(&["nfs", "--json"]).contains("1 rule, default permit"));
    assert_eq!(run.succeeds(&["reload"]), changes);
    assert!(run.succeeds(&["nfs", "--json"]).contains("2 rules, default permit"));
    write(folder.path(), "endless.toml", &ENDLESS.replace("deny icmp", "deny icmq"));
    let error = message(&run.ctl(&["reload"]), 1);
    assert!(error.contains("the run refuses: not reloaded: ") && error.contains("icmq"), "{error}");
    run.succeeds(&["stop"]);
    let report = run.end();
    assert_eq!((&report["reloads"], &report["conserved"]), (&1.into(), &true.into()));
}

/// The port is opened by the run, which goes on as it was.
#[test]
fn a_port_that_a_reload_cannot_open_is_named_with_its_place() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let lines = ENDLESS.lines().count();
    let more = "[input.more]\nmemif = 'nowhere/x.sock'\nrole = 'server'\n";
    write(folder.path(), "endless.toml", &format!("{}\n{more}", ENDLESS.trim_end()));
    let error = message(&run.ctl(&["reload"]), 1);
    let place = format!("endless.toml:{}:9: memif ", lines + 2);
    assert!(error.contains("the run refuses: not reloaded: ") && error.contains(&place), "{error}");
    assert!(error.contains("cannot listen there: No such file or directory"), "{error}");
    run.succeeds(&["stop"]);
    assert_eq!(run.end()["conserved"], true);
}

/// Also one of a file that the chain file names; a mistake is a warning of the report. A change counts from the moment
/// at which the file was read, although the run looks at files later.
#[test]
fn a_watched_chain_is_reloaded_when_a_file_changes() {
    let folder = folder();
    let chain = ENDLESS.replace("\"deny icmp\"]", "]\nfiles = [\"more.rules\"]");
    write(folder.path(), "chain.toml", &chain);
    write(folder.path(), "more.rules", "deny icmp\n");
    let arguments = ["--control=edge", "--watch", "-v"];
    let run = Controlled::start(folder.path(), "edge", "chain.toml", &arguments);
    write(folder.path(), "more.rules", "deny icmp\ndeny udp\n");
    wait(|| run.succeeds(&["nfs", "--json"]).contains("2 rules, default permit"));
    write(folder.path(), "more.rules", "deny icmq\n");
    wait(|| run.messages().contains("more.rules:1:6: "));
    run.succeeds(&["stop"]);
    let told = run.messages();
    assert!(told.contains("reloaded: ~ nf 'gate': 1 rule, default permit -> 2 rules"), "{told}");
    let report = run.end();
    assert_eq!((&report["reloads"], &report["conserved"]), (&1.into(), &true.into()));
}

#[test]
fn the_level_of_the_log_changes_during_the_run() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    assert_eq!(run.succeeds(&["log"]), "warn\n");
    assert_eq!(run.messages(), "");
    assert_eq!(run.succeeds(&["log", "info"]), "info\n");
    assert_eq!(run.messages(), "info: log level INFO, as requested by the control API\n");
    run.succeeds(&["log", "error"]);
    run.succeeds(&["stop"]);
    let error = run.messages();
    assert!(!error.contains("stopping"), "{error}");
}

#[test]
fn a_name_in_use_is_refused_with_its_process_and_the_run_is_unharmed() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let mut second = support::command(folder.path(), &["run", "endless.toml", "--control=edge"]);
    second.env("THALWEG_RUNTIME_DIR", folder.path().join("sockets"));
    let refused = message(&second.output().unwrap(), 1);
    let expected =
        format!("/sockets/edge.sock: in use by process {}; --control=NAME", run.child.id());
    assert!(refused.contains(&expected), "{refused}");
    let other = Controlled::start(folder.path(), "other", "endless.toml", &["--control=other"]);
    let error = message(&run.ctl(&["status"]), 2);
    assert!(error.contains("several runs") && error.contains("one of edge (process "), "{error}");
    assert!(run.succeeds(&["-s", "other", "status"]).starts_with("run      other, "));
    run.succeeds(&["-s", "edge", "stop"]);
    run.end();
    drop(other);
}

#[test]
fn the_socket_of_a_killed_run_is_taken_over() {
    let folder = folder();
    drop(Controlled::endless(folder.path(), "edge"));
    assert_eq!(sockets(folder.path()), 2, "a killed run leaves its files");
    let error = message(&ctl(folder.path(), &["status"]), 1);
    assert!(error.contains("no run has a control socket"), "{error}");
    let error = message(&ctl(folder.path(), &["-s", "edge", "status"]), 1);
    assert!(error.contains("no run listens at"), "{error}");
    let run = Controlled::endless(folder.path(), "edge");
    run.succeeds(&["stop"]);
    run.end();
    assert_eq!(sockets(folder.path()), 0);
}

#[test]
fn a_run_may_listen_at_a_path_and_has_the_name_of_its_folder() {
    let folder = folder();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    write(&site, "chain.toml", ENDLESS);
    let run = Controlled::start(folder.path(), "site", "site/chain.toml", &["--control"]);
    assert!(run.succeeds(&["status"]).starts_with("run      site, process "));
    drop(run);
    let chain = "site/chain.toml";
    let run = Controlled::start(folder.path(), "./here.sock", chain, &["--control=./here.sock"]);
    assert!(folder.path().join("here.sock").exists());
    run.succeeds(&["-s", "./here.sock", "stop"]);
    run.end();
    assert!(!folder.path().join("here.sock").exists());
}

#[test]
fn a_run_without_a_live_interface_listens_only_on_request() {
    let folder = folder();
    write(folder.path(), "chain.toml", &ENDLESS.replace("1000000000", "1000"));
    let mut run = command(folder.path(), &["run", "chain.toml", "-v"]);
    let output = run.env("THALWEG_RUNTIME_DIR", folder.path().join("sockets")).output().unwrap();
    assert!(output.status.success());
    assert_eq!(sockets(folder.path()), 0);
}

#[test]
fn commands_without_a_chain_file_are_steered_as_runs_are() {
    let folder = folder();
    let path = folder.path();
    succeeds(path, &["gen", "in.pcap", "--packets", "100", "--flows", "10", "--size", "64"]);
    let capture = fs::read(path.join("in.pcap")).unwrap();
    let rules = |message: &str| {
        write(
            path,
            "my.rules",
            &format!("alert ip any any -> any any (msg:\"{message}\"; sid:1;)\n"),
        );
    };
    rules("old");
    let nat = ["--inside", "10.0.0.0/8", "--external", "192.0.2.1", "-w", "out.pcap"];
    let commands: [(&str, &[&str], &str); 4] = [
        ("ids", &["-S", "my.rules"], "  old [1:1:0]\n"),
        ("flows", &["--json"], "\"thalweg.monitor/2\""),
        ("assets", &["--json"], "\"thalweg.assets/1\""),
        ("nat", &nat, ""),
    ];
    for (name, arguments, record) in commands {
        // The pipe stays open, so that the run does not end by itself.
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&capture).unwrap();
        let arguments = [&[name, "-r", "-", "--control"], arguments].concat();
        let mut run = Controlled::spawn(path, name, command(path, &arguments).stdin(reader));
        let status = run.succeeds(&["status"]);
        assert!(status.starts_with(&format!("run      {name}, process ")), "{status}");
        assert!(status.contains(&format!("chain    thalweg {name} -r - --control")), "{status}");
        wait(|| run.succeeds(&["status"]).contains("packets  100 in"));
        if name == "ids" {
            rules("new");
            assert!(run.succeeds(&["reload"]).starts_with("~ nf 'ids': "));
        }
        run.succeeds(&["export"]);
        let out = || fs::read_to_string(path.join(format!("{name}.out"))).unwrap();
        wait(|| out().contains(record));
        run.succeeds(&["stop"]);
        wait(|| run.has_ended());
        assert!(run.child.wait().unwrap().success(), "{}", run.messages());
        assert_eq!(sockets(path), 0);
    }
    let mut quiet = command(path, &["flows", "-q", "-r", "in.pcap", "-l", "flows.json"]);
    assert!(quiet.env("THALWEG_RUNTIME_DIR", path.join("sockets")).status().unwrap().success());
    assert_eq!(sockets(path), 0, "a capture needs no socket");
    for arguments in [&["--control", "--no-control"][..], &["--control-tcp", "127.0.0.1:0"]] {
        message(&thalweg(path, &[&["flows", "-r", "in.pcap"], arguments].concat()), 2);
    }
}

#[test]
fn mistakes_are_named() {
    let folder = folder();
    write(folder.path(), "chain.toml", ENDLESS);
    let mistakes: [(&[&str], i32, &str); 7] = [
        (&["ctl", "-s", "a b", "status"], 2, "'a b' is not a name of a socket; expected 1 to 64"),
        (&["ctl", "-s", "./none", "status"], 1, "no run listens at './none'"),
        (&["ctl", "log", "loud"], 2, "possible values: off, error, warn, info, debug, trace"),
        (&["ctl", "rules", "--limit", "0"], 2, "1..=1000"),
        (&["run", "chain.toml", "--control", "--no-control"], 2, "cannot be used with"),
        (&["run", "chain.toml", "--control-tcp", "127.0.0.1:0"], 2, "--control-cert"),
        (&["run", "chain.toml", "--control=./chain.toml"], 1, "chain.toml: not a socket"),
    ];
    for (arguments, code, expected) in mistakes {
        let error = message(&thalweg(folder.path(), arguments), code);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("chain.toml")).unwrap(), ENDLESS);
}

#[test]
fn a_refusal_of_the_run_is_shown() {
    let folder = folder();
    let run = Controlled::endless(folder.path(), "edge");
    let held = run.succeeds(&["export"]);
    assert!(held.ends_with("writes what it holds\n"), "{held}");
    let error = message(&run.ctl(&["export"]), 1);
    assert!(
        error.contains("the run refuses: the last export was less than a second ago"),
        "{error}"
    );
    wait(|| run.ctl(&["export"]).status.success());
}
