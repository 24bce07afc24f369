//! Files that runs write: none destroys one that is read, or that another run writes, and a full
//! disk leaves whole records that the report counts.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use support::{Running, packets, pipe, report, succeeds, thalweg, wait, write};

/// An IDS between a capture and `out.pcap`; the alerts and flows of `nfs` come after it.
fn chain(nfs: &str) -> String {
    format!(
        "routes = 'routes.csv'\n[input.a]\ncapture = 'in.pcap'\n[output.o]\ncapture = 'out.pcap'\n\
         [[class]]\ntype = 'web'\nfile = 'web.flows'\n\
         [nf.n]\nkind = 'nids'\nrules = ['ids.rules']\n{nfs}"
    )
}

/// A folder with the chain, all files that it reads, and 200 packets.
fn folder(nfs: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "chain.toml", &chain(nfs));
    write(path, "routes.csv", "*, ingress, n\n*, n, egress\n");
    write(path, "web.flows", "tcp,tp_dst=80\n");
    write(path, "ids.rules", "alert ip any any -> any any (msg:\"any\"; sid:1;)\n");
    succeeds(path, &["gen", "in.pcap", "--packets", "200", "--size", "64"]);
    folder
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn no_name_of_a_file_that_is_read_lets_a_run_overwrite_it() {
    let read = [
        ("in.pcap", "the file that input 'a' reads"),
        ("chain.toml", "the chain file"),
        ("routes.csv", "the routes file"),
        ("web.flows", "the rules file of type 'web'"),
        ("ids.rules", "the file that NF 'n' reads"),
    ];
    let folder = folder("alerts = 'name'\n");
    let path = folder.path();
    fs::create_dir(path.join("sub")).unwrap();
    for (file, what) in read {
        let before = fs::read(path.join(file)).unwrap();
        let refuses = |name: &str| {
            write(path, "chain.toml", &chain(&format!("alerts = '{name}'\n")));
            let chain = fs::read(path.join("chain.toml")).unwrap();
            for command in ["check", "run"] {
                let output = thalweg(path, &[command, "chain.toml"]);
                assert_eq!(output.status.code(), Some(78), "{command} {name}: {}", told(&output));
                let told = told(&output);
                assert!(told.contains(&format!("this would overwrite {what}")), "{told}");
            }
            let now = fs::read(path.join(file)).unwrap();
            assert_eq!(now, if file == "chain.toml" { chain } else { before.clone() });
        };
        let link = path.join("name");
        fs::hard_link(path.join(file), &link).unwrap();
        refuses("name");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(format!("sub/../{file}"), &link).unwrap();
        refuses("name");
        fs::remove_file(&link).unwrap();
        for other in [format!("./{file}"), format!("sub/../{file}"), format!("sub/.././/{file}")] {
            refuses(&other);
        }
    }
}

#[test]
fn a_capture_and_its_hard_link_are_one_file_for_outputs_too() {
    let folder = folder("");
    let path = folder.path();
    let before = fs::read(path.join("in.pcap")).unwrap();
    fs::hard_link(path.join("in.pcap"), path.join("out.pcap")).unwrap();
    let output = thalweg(path, &["run", "chain.toml"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(told(&output).contains("this would overwrite the file that input 'a' reads"));
    assert_eq!(fs::read(path.join("in.pcap")).unwrap(), before);
}

#[test]
fn two_outputs_need_two_files_even_if_neither_exists() {
    let folder = folder("alerts = 'alerts.json'\n");
    let path = folder.path();
    let refuses = |first: &str| {
        let output = thalweg(path, &["check", "chain.toml"]);
        assert_eq!(output.status.code(), Some(78), "{first}: {}", told(&output));
        assert!(told(&output).contains("this would overwrite the file that output 'o' writes"));
    };
    // A link to a file that does not exist yet, and one to that link.
    std::os::unix::fs::symlink("out.pcap", path.join("next")).unwrap();
    std::os::unix::fs::symlink("./next", path.join("alerts.json")).unwrap();
    refuses("links");
    fs::remove_file(path.join("alerts.json")).unwrap();
    write(path, "out.pcap", "old");
    fs::hard_link(path.join("out.pcap"), path.join("alerts.json")).unwrap();
    refuses("hard link");
    assert_eq!(fs::read(path.join("out.pcap")).unwrap(), b"old");
    fs::remove_file(path.join("alerts.json")).unwrap();
    succeeds(path, &["run", "chain.toml"]);
}

#[test]
fn state_is_not_overwritten_and_overwrites_nothing() {
    let flows = "[nf.m]\nkind = 'monitor'\njson = 'kept/m.0.state'\n";
    let folder = folder("[nf.m]\nkind = 'monitor'\n");
    let path = folder.path();
    let run = |more: &[&str]| thalweg(path, &[&["run", "chain.toml"], more].concat());
    write(path, "routes.csv", "*, ingress, n\n*, n, m\n*, m, egress\n");
    succeeds(path, &["run", "chain.toml", "--export-state", "kept"]);
    let state = fs::read(path.join("kept/m.0.state")).unwrap();
    let original = fs::read_to_string(path.join("chain.toml")).unwrap();
    write(path, "chain.toml", &chain(flows));
    for option in ["--import-state", "--export-state"] {
        let output = run(&[option, "kept"]);
        let expected = "kept/m.0.state: this state file is also the file that NF 'm' writes";
        assert!(told(&output).contains(expected), "{}", told(&output));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(fs::read(path.join("kept/m.0.state")).unwrap(), state);
    }
    write(path, "chain.toml", &original);
    // The file that state is written to before it is complete is a link to the input.
    let input = fs::read(path.join("in.pcap")).unwrap();
    fs::hard_link(path.join("in.pcap"), path.join("kept/m.0.partial")).unwrap();
    let output = run(&["--export-state", "kept"]);
    assert!(
        told(&output).contains("kept/m.0.partial: this state file is also the file that input")
    );
    // Or to a file that this chain does not know.
    fs::remove_file(path.join("kept/m.0.partial")).unwrap();
    write(path, "precious", "precious");
    fs::hard_link(path.join("precious"), path.join("kept/m.0.partial")).unwrap();
    std::os::unix::fs::symlink("../precious", path.join("kept/state.partial")).unwrap();
    succeeds(path, &["run", "chain.toml", "--export-state", "kept"]);
    assert_eq!(fs::read(path.join("precious")).unwrap(), b"precious");
    assert_eq!(fs::read(path.join("in.pcap")).unwrap(), input);
    assert_eq!(fs::read(path.join("kept/m.0.state")).unwrap(), state);
}

/// Every file that a run writes is refused to another run until the first ends.
#[test]
fn two_runs_do_not_write_one_file() {
    let nfs = "alerts = 'alerts.json'\n[nf.m]\nkind = 'monitor'\njson = 'flows.json'\n\
        ipfix = 'flows.ipfix'\n[nf.h]\nkind = 'assets'\ninventory = 'hosts.json'\n\
        [nf.c]\nkind = 'acl'\nrules = ['permit ip']\nhits = 'hits.json'\n";
    let folder = folder(nfs);
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, n\n*, n, m\n*, m, h\n*, h, c\n*, c, egress\n");
    write(path, "hosts.json", "");
    write(path, "hits.json", "");
    let whole = fs::read_to_string(path.join("chain.toml")).unwrap();
    pipe(path, "slow.pcap");
    write(path, "chain.toml", &whole.replace("in.pcap", "slow.pcap"));
    let first = Running::start(path, &["--export-state", "kept"], Stdio::null());
    let names = ["alerts.json", "flows.json", "flows.ipfix", "hosts.json", "hits.json"];
    wait(|| names.iter().all(|name| path.join(name).exists()) && path.join("kept").exists());
    wait(|| fs::metadata(path.join("out.pcap")).is_ok_and(|file| file.len() == 24));
    let unused = |name: &str| whole.replace(&format!("'{name}'"), &format!("'other-{name}'"));
    let refuses = |arguments: &[&str], expected: &str| {
        let output = thalweg(path, arguments);
        assert_eq!(output.status.code(), Some(1), "{expected}: {}", told(&output));
        assert!(told(&output).contains(expected), "{}", told(&output));
    };
    for name in names {
        // Only this file is also the first run's.
        let mut text = unused("out.pcap").replace("other-out.pcap", &format!("{name}.pcap"));
        for other in names.iter().filter(|other| **other != name) {
            text = text.replace(&format!("'{other}'"), &format!("'other-{other}'"));
        }
        write(path, "second.toml", &text);
        refuses(&["run", "second.toml"], &format!("{name}: in use by another run"));
        assert_eq!(size(path, &format!("{name}.pcap")), 0, "{name}: nothing was begun");
    }
    let mut others = whole.clone();
    for name in names {
        others = others.replace(&format!("'{name}'"), &format!("'other-{name}'"));
    }
    write(path, "second.toml", &others);
    refuses(&["run", "second.toml"], "out.pcap: in use by another run");
    refuses(&["gen", "out.pcap"], "out.pcap: in use by another run");
    fs::hard_link(path.join("out.pcap"), path.join("link.pcap")).unwrap();
    refuses(&["gen", "link.pcap"], "link.pcap: in use by another run");
    write(path, "second.toml", &others.replace("'out.pcap'", "'third.pcap'"));
    let folder_in_use = "cannot use the state folder kept: in use by another run";
    refuses(&["run", "second.toml", "--export-state", "kept"], folder_in_use);
    assert_eq!(size(path, "out.pcap"), 24, "the first run's file is untouched");
    // The first run goes on, and its files are free afterwards.
    fs::write(path.join("slow.pcap"), fs::read(path.join("in.pcap")).unwrap()).unwrap();
    let first = first.end();
    assert_eq!(first.status.code(), Some(0), "{}", first.error);
    assert_eq!(packets(&path.join("out.pcap")), 200);
    write(path, "chain.toml", &whole);
    let (report, code, error) = report(path, &["run", "chain.toml", "--json"]);
    assert_eq!((report["packets_out"].as_u64(), code), (Some(200), 0), "{error}");
    for name in names {
        assert!(size(path, name) > 0, "{name}");
    }
}

fn size(folder: &Path, name: &str) -> u64 {
    fs::metadata(folder.join(name)).unwrap().len()
}

#[test]
fn pipes_and_devices_are_neither_locked_nor_replaced() {
    let nfs = "alerts = '/dev/null'\n[nf.c]\nkind = 'acl'\nrules = ['permit ip']\n\
        hits = 'hits'\n[nf.h]\nkind = 'assets'\ninventory = 'link'\n";
    let folder = folder(nfs);
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, n\n*, n, c\n*, c, h\n*, h, egress\n");
    pipe(path, "hits");
    std::os::unix::fs::symlink("hosts.json", path.join("link")).unwrap();
    std::os::unix::fs::symlink("/dev/null", path.join("null.pcap")).unwrap();
    let text = fs::read_to_string(path.join("chain.toml")).unwrap();
    write(path, "chain.toml", &text.replace("out.pcap", "null.pcap"));
    let reader = std::thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read_to_string(path.join("hits")).unwrap());
        succeeds(path, &["run", "chain.toml"]);
        reader.join().unwrap()
    });
    assert!(reader.contains("\"packets\":200"), "{reader}");
    assert!(path.join("link").is_symlink() && size(path, "hosts.json") > 0);
    assert!(path.join("null.pcap").is_symlink() && !Path::new("/dev/null").is_file());
    assert!(!path.join("hits").is_file(), "it is a pipe still");
}

/// Lines and the report, one after the other: neither overwrites the other.
#[test]
fn a_file_that_standard_output_leads_to_is_shared() {
    let folder = folder("alerts = '/dev/stdout'\n");
    let path = folder.path();
    write(path, "all", "before\n");
    let all = fs::File::options().append(true).open(path.join("all")).unwrap();
    let run = support::command(path, &["run", "chain.toml"]).stdout(all).status();
    assert!(run.unwrap().success());
    let text = fs::read_to_string(path.join("all")).unwrap();
    assert!(text.starts_with("before\n"), "{text}");
    let alerts = text.lines().filter(|line| line.contains("\"signature\":\"any\"")).count();
    assert!(alerts > 100, "{text}");
    assert!(text.contains("200 in + 0 generated = 200 out + 0 dropped"), "{text}");
}

/// Runs with a limit of file sizes, in blocks of 512 bytes, like a disk that fills up.
fn limited(folder: &Path, blocks: u32, arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_thalweg");
    let script = format!("ulimit -f {blocks}; exec '{program}' {arguments}");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder).env("NO_COLOR", "1").output().unwrap()
}

#[test]
fn a_full_disk_holds_the_packets_that_the_report_counts() {
    let zero_copy = "\nzero_copy = true";
    for (name, more) in [
        ("out.pcap", ""),
        ("out.pcapng", ""),
        ("out.pcap.gz", ""),
        ("out.pcapng.gz", ""),
        ("out.pcap", zero_copy),
        ("out.pcapng", zero_copy),
    ] {
        for workers in ["1", "2"] {
            let folder = folder("");
            let path = folder.path();
            let named = chain("").replace("'out.pcap'", &format!("'{name}'{more}"));
            write(path, "chain.toml", &named);
            succeeds(path, &["gen", "in.pcap", "--packets", "5000", "--size", "64-300"]);
            let arguments = format!("run chain.toml --json --workers {workers}");
            let output = limited(path, 301, &arguments);
            assert_eq!(output.status.code(), Some(1), "{name}: {:?}", output.status);
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let written = packets(&path.join(name));
            assert!(written > 500, "{name}: {written}");
            assert_eq!(report["packets_out"], written, "{name} {workers}: {report}");
            assert_eq!(report["outputs"][0]["packets"], written);
            assert_eq!(report["conserved"], true, "{report}");
            assert!(report["drops"]["output-failed"].as_u64() > Some(0), "{report}");
            let failure = format!("{name}: File too large (os error 27)");
            assert_eq!(report["failures"], serde_json::json!([failure]));
        }
    }
}

#[test]
fn a_full_disk_holds_whole_lines_and_messages() {
    let nfs = "alerts = 'alerts.json'\n[nf.m]\nkind = 'monitor'\njson = 'flows.json'\n\
        ipfix = 'flows.ipfix'\nidle_timeout_s = 1\nactive_timeout_s = 1\n";
    let folder = folder(nfs);
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, n\n*, n, m\n*, m, egress\n");
    let text = fs::read_to_string(path.join("chain.toml")).unwrap();
    write(path, "chain.toml", &text.replace("capture = 'out.pcap'", "discard = true"));
    let gen_it = ["gen", "in.pcap", "--packets", "5000", "--flows", "2000", "--rate", "500"];
    succeeds(path, &gen_it);
    let output = limited(path, 41, "run chain.toml --json");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["packets_out"].as_u64(), &report["conserved"]), (Some(5000), &true.into()));
    for name in ["alerts.json", "flows.json", "flows.ipfix"] {
        let failures = report["failures"].as_array().unwrap();
        let fails = |failure: &serde_json::Value| failure.as_str().unwrap().contains(name);
        assert!(name == "flows.ipfix" || failures.iter().any(fails), "{name}: {failures:?}");
    }
    for name in ["alerts.json", "flows.json"] {
        let text = fs::read_to_string(path.join(name)).unwrap();
        assert!(text.len() > 10_000 && text.ends_with('\n'), "{name}: {}", text.len());
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    }
    let messages = fs::read(path.join("flows.ipfix")).unwrap();
    let mut at = 0;
    while at < messages.len() {
        assert_eq!(messages[at..at + 2], [0, 10], "at {at} of {}", messages.len());
        at += usize::from(u16::from_be_bytes([messages[at + 2], messages[at + 3]]));
    }
    assert_eq!(at, messages.len());
}

#[test]
fn a_full_disk_leaves_the_content_that_was_to_be_replaced() {
    let nfs = "[nf.h]\nkind = 'assets'\ninventory = 'hosts.json'\n";
    let folder = folder(nfs);
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, n\n*, n, h\n*, h, egress\n");
    let text = fs::read_to_string(path.join("chain.toml")).unwrap();
    write(path, "chain.toml", &text.replace("capture = 'out.pcap'", "discard = true"));
    succeeds(path, &["run", "chain.toml"]);
    let before = fs::read(path.join("hosts.json")).unwrap();
    let output = limited(path, 1, "run chain.toml --json");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("hosts.json: File too large"), "{}", told(&output));
    assert_eq!(fs::read(path.join("hosts.json")).unwrap(), before);
    assert!(!path.join("hosts.json.new").exists());
}

#[test]
fn traffic_for_a_full_disk_ends_with_a_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let output = limited(folder.path(), 20, "gen x.pcapng --packets 1000");
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    assert!(told(&output).contains("x.pcapng: File too large"), "{}", told(&output));
    assert!(packets(&folder.path().join("x.pcapng")) > 3);
}
