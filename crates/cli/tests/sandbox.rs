//! The sandbox of a run: an NF that tries to break out is stopped and named, a run needs no more
//! privileges than its threads have, and all that a run does still works.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use controlled::Controlled;
use serde_json::Value;
use support::{command, packets, report, succeeds, thalweg, wait, write};
use thalweg_nf::{Blueprint, Context, Grain, Kind, NetworkFunction};
use thalweg_packet::{Batch, Lanes};
use thalweg_testkit::peer;

/// The variable with the arguments of the program, by which this test binary becomes the program
/// with one more kind of NF.
const ARGUMENTS: &str = "THALWEG_SANDBOX_TEST";

/// An NF that tries to break out at its first packet.
#[derive(Clone, Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum Spy {
    /// Opens this file for reading.
    Reads(PathBuf),
    /// Creates this file.
    Creates(PathBuf),
    /// Connects to this address.
    Connects(SocketAddr),
    /// Starts a thread, which creates this file.
    Starts(PathBuf),
    /// Has a program create this file.
    Executes(PathBuf),
    /// Removes this file.
    Removes(PathBuf),
}

impl Spy {
    fn break_out(&self) {
        // Whether it succeeds or not, it goes on.
        match self {
            Self::Reads(path) => drop(fs::File::open(path)),
            Self::Creates(path) => drop(fs::write(path, "created")),
            Self::Connects(address) => drop(TcpStream::connect(address)),
            Self::Starts(path) => {
                let path = path.clone();
                let work = move || drop(fs::write(path, "created"));
                drop(thread::Builder::new().spawn(work).map(thread::JoinHandle::join));
            }
            Self::Executes(path) => drop(Command::new("touch").arg(path).status()),
            Self::Removes(path) => drop(fs::remove_file(path)),
        }
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    tries: Spy,
}

impl Blueprint for Options {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Agent { tries: Some(self.tries.clone()) })
    }

    fn describe(&self) -> String {
        format!("{:?}", self.tries)
    }
}

struct Agent {
    tries: Option<Spy>,
}

impl NetworkFunction for Agent {
    fn process(&mut self, _: &mut Batch, _: Lanes, _: &mut Context<'_>) {
        if let Some(tries) = self.tries.take() {
            tries.break_out();
        }
    }
}

const SPY: Kind = Kind {
    name: "spy",
    summary: "tries to break out",
    state: None,
    grain: Grain::None,
    limits: &[],
    chooses_output: false,
    keeps_names: false,
    takes_supers: false,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::schema_for!(Options),
    build: |section, _| Ok(Box::new(section.parse::<Options>()?)),
};

/// No test by itself: the program, if another test of this file requests it.
#[test]
fn the_program_with_a_spy() {
    let Some(arguments) = std::env::var_os(ARGUMENTS) else { return };
    let arguments = arguments.into_string().unwrap();
    let arguments = std::iter::once("thalweg").chain(arguments.split('\n')).map(OsString::from);
    let code = thalweg_cli::main_with(&thalweg_cli::built_in_kinds().with(SPY), arguments);
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

/// Runs the program with the spy.
fn with_spy(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_program_with_a_spy", "--nocapture", "--test-threads=1"]);
    command.env(ARGUMENTS, arguments.join("\n")).env("NO_COLOR", "1");
    command.current_dir(folder).output().expect("the test binary starts")
}

/// A folder with a capture.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    succeeds(folder.path(), &["gen", "in.pcap", "--packets", "5000"]);
    folder
}

/// A chain whose NF 'agent' tries something.
fn chain(tries: &str, more: &str) -> String {
    format!(
        "[input.a]\ncapture = 'in.pcap'\n[output.o]\ndiscard = true\n\
         [nf.agent]\nkind = 'spy'\n{more}\ntries = {tries}\n\
         [[route]]\npath = ['ingress', 'agent', 'egress']\n"
    )
}

fn can_confine(folder: &Path) -> bool {
    let doctor: Value = serde_json::from_str(&succeeds(folder, &["doctor", "--json"])).unwrap();
    let found = |name: &str| {
        let mut findings = doctor["findings"].as_array().unwrap().iter();
        findings.any(|finding| finding["name"] == name && finding["found"] == true)
    };
    let has_all = found("Landlock") && found("seccomp filters");
    if !has_all {
        peer::missing("Landlock and seccomp filters");
    }
    has_all
}

#[test]
fn an_nf_that_tries_to_break_out_is_stopped_and_named() {
    let folder = folder();
    let path = folder.path();
    if !can_confine(path) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    write(path, "kept", "content");
    let address = listener.local_addr().unwrap();
    for (tries, calls) in [
        ("{ reads = 'in.pcap' }".to_owned(), &["openat"][..]),
        ("{ creates = 'new' }".to_owned(), &["openat"]),
        (format!("{{ connects = '{address}' }}"), &["socket"]),
        ("{ starts = 'new' }".to_owned(), &["clone3", "clone"]),
        (
            "{ executes = 'new' }".to_owned(),
            &["clone3", "clone", "fork", "vfork", "pipe2", "socketpair"],
        ),
        ("{ removes = 'kept' }".to_owned(), &["unlink", "unlinkat"]),
    ] {
        for (workers, more) in [("1", ""), ("2", ""), ("1", "pinned = true")] {
            write(path, "chain.toml", &chain(&tries, more));
            let output = with_spy(path, &["run", "chain.toml", "--workers", workers]);
            let error = String::from_utf8_lossy(&output.stderr);
            let is_named = |call: &&str| {
                let named = "error: NF 'agent' (spy) made the system call";
                error.contains(&format!("{named} '{call}', which the sandbox refuses"))
            };
            assert!(calls.iter().any(is_named), "{tries}: {error}");
            assert_eq!(output.status.code(), Some(1), "{error}");
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(shown.contains(" in + 0 generated = "), "all are accounted for: {shown}");
            assert!(!path.join("new").exists() && path.join("kept").exists(), "{tries}");
            assert!(listener.accept().is_err(), "nothing has connected");
        }
    }
    // The same NF without a sandbox does what it tries.
    write(path, "chain.toml", &chain("{ creates = 'new' }", ""));
    let output = with_spy(path, &["run", "chain.toml", "--no-sandbox"]);
    assert!(output.status.success() && path.join("new").exists());
}

/// What the kernel reports of each thread of a process: its name, and fields of its status.
fn threads(process: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_task = |path: PathBuf| {
        let name = fs::read_to_string(path.join("comm")).ok()?.trim().to_owned();
        Some((name, fs::read_to_string(path.join("status")).ok()?))
    };
    tasks.flatten().filter_map(|task| of_task(task.path())).collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no field {name}")).trim()
}

const NONE: &str = "0000000000000000";
/// CAP_NET_ADMIN and CAP_NET_RAW.
const OF_INTERFACES: &str = "0000000000003000";

/// The numbers of the user and group `nobody`.
fn nobody() -> (u32, u32) {
    let number = |what| {
        let id = Command::new("id").args([what, "nobody"]).output().unwrap();
        String::from_utf8(id.stdout).unwrap().trim().parse().unwrap()
    };
    (number("-u"), number("-g"))
}

const LIVE: &str = "[input.wire]\ninterface = 'lo'\n[output.o]\ncapture = 'out.pcap'\n\
    [nf.m]\nkind = 'monitor'\njson = 'flows.json'\n[[route]]\npath = ['ingress', 'm', 'egress']\n";

#[test]
fn a_live_run_of_root_becomes_its_user_and_one_thread_keeps_what_interfaces_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    if !can_confine(path) || !peer::has_root("other users") {
        return;
    }
    let (user, group) = nobody();
    let sockets = path.join("sockets");
    fs::create_dir(&sockets).unwrap();
    for folder in [path, &sockets] {
        chown(folder, Some(user), Some(group)).unwrap();
    }
    for workers in ["1", "2"] {
        let chain = format!("[run]\nuser = 'nobody'\n{LIVE}");
        write(path, "chain.toml", &chain);
        let arguments = ["--control=edge", "--workers", workers];
        let run = Controlled::start(path, "edge", "chain.toml", &arguments);
        // One worker has answered; another may have just begun.
        let is_confined = |(name, status): &(String, String)| {
            name.starts_with("worker") && field(status, "Seccomp") == "2"
        };
        let confined = || threads(run.child.id()).into_iter().filter(is_confined).count();
        wait(|| confined().to_string() == workers);
        let threads = threads(run.child.id());
        for (name, status) in &threads {
            let expected = user.to_string();
            let ids: Vec<_> = field(status, "Uid").split_whitespace().collect();
            assert_eq!(ids, [&*expected; 4], "{name}");
            assert_eq!(field(status, "Gid").split_whitespace().last(), Some(&*group.to_string()));
            assert_eq!(field(status, "NoNewPrivs"), "1", "{name}");
            let kept = if name == "privileged" { OF_INTERFACES } else { NONE };
            assert_eq!([field(status, "CapPrm"), field(status, "CapEff")], [kept; 2], "{name}");
            assert_eq!([field(status, "CapInh"), field(status, "CapBnd")], [NONE; 2], "{name}");
            let is_worker = name.starts_with("worker");
            assert_eq!(field(status, "Seccomp"), if is_worker { "2" } else { "0" }, "{name}");
        }
        // The interface is opened again, an output is new, and the other files stay.
        let more = chain.replace("interface = 'lo'", "interface = 'lo'\npromiscuous = false");
        write(path, "chain.toml", &more.replace("out.pcap", "second.pcap"));
        let told = run.succeeds(&["-s", "edge", "reload"]);
        assert!(told.contains("input 'wire'") && told.contains("output"), "{told}");
        fs::rename(path.join("flows.json"), path.join("flows.old")).unwrap();
        run.succeeds(&["-s", "edge", "export"]);
        wait(|| path.join("flows.json").exists());
        assert_eq!(path.join("flows.json").metadata().unwrap().uid(), user);
        assert_eq!(path.join("second.pcap").metadata().unwrap().uid(), user);
        run.succeeds(&["-s", "edge", "stop"]);
        let report = run.end();
        let mode = report["inputs"][0]["mode"].as_str().unwrap();
        assert!(mode.contains("own addresses"), "{mode}");
        let sandbox = &report["sandbox"];
        assert_eq!(sandbox["user"], "nobody");
        assert_eq!(sandbox["capabilities"], serde_json::json!(["CAP_NET_ADMIN", "CAP_NET_RAW"]));
        assert_eq!((&sandbox["files"], &sandbox["calls"]), (&true.into(), &true.into()));
        assert!(!path.join("sockets/edge.sock").exists(), "its user removes the socket");
        for name in ["flows.json", "flows.old", "second.pcap", "out.pcap"] {
            fs::remove_file(path.join(name)).unwrap();
        }
    }
}

#[test]
fn a_run_of_another_user_is_confined_too() {
    let folder = folder();
    let path = folder.path();
    if !can_confine(path) || !peer::has_root("other users") {
        return;
    }
    let (user, group) = nobody();
    chown(path, Some(user), Some(group)).unwrap();
    write(path, "chain.toml", &LIVE.replace("interface = 'lo'", "capture = 'in.pcap'"));
    let mut command = command(path, &["run", "chain.toml", "--json", "--workers", "2"]);
    let output = command.uid(user).gid(group).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sandbox = &report["sandbox"];
    assert_eq!(sandbox["user"], "nobody");
    assert_eq!(sandbox["capabilities"], Value::Array(vec![]));
    assert_eq!((&sandbox["files"], &sandbox["calls"]), (&true.into(), &true.into()));
    assert_eq!(packets(&path.join("out.pcap")), 5000);
    // Only root can become another user.
    let chain = fs::read_to_string(path.join("chain.toml")).unwrap();
    write(path, "chain.toml", &format!("[run]\nuser = 'root'\n{chain}"));
    let output = command.uid(user).gid(group).output().unwrap();
    let error = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("only root can become user 'root'"), "{error}");
}

#[test]
fn files_that_the_user_cannot_write_keep_the_run_from_its_start() {
    let folder = folder();
    let path = folder.path();
    let chain = |user: &str, rotate: &str| {
        format!(
            "[run]\nuser = '{user}'\n[input.a]\ncapture = 'in.pcap'\n[output.o]\ndiscard = true\n\
             [nf.m]\nkind = 'monitor'\njson = 'flows.json'\n{rotate}\n\
             [[route]]\npath = ['ingress', 'm', 'egress']\n"
        )
    };
    write(path, "chain.toml", &chain("no-such-user", ""));
    let output = thalweg(path, &["run", "chain.toml"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("chain.toml:2:8: there is no user 'no-such-user'"), "{error}");
    assert_eq!(output.status.code(), Some(78));
    if !peer::has_root("other users") {
        return;
    }
    let rotate = "rotate = { size_mib = 1 }";
    write(path, "chain.toml", &chain("nobody", rotate));
    let output = thalweg(path, &["run", "chain.toml"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("user 'nobody' cannot rename this file: Permission denied"), "{error}");
    assert!(!path.join("flows.json").exists(), "nothing was started");
    // A file that stays open needs no right.
    write(path, "chain.toml", &chain("nobody", ""));
    let state = ["run", "chain.toml", "--export-state", "state"];
    let output = thalweg(path, &state);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("user 'nobody' cannot write state/state: Permission denied"), "{error}");
    let (report, code, error) = report(path, &["run", "chain.toml", "--json"]);
    assert_eq!((code, &report["sandbox"]["user"]), (0, &Value::from("nobody")), "{error}");
    assert!(fs::read_to_string(path.join("flows.json")).unwrap().lines().count() > 1);
}

#[test]
fn a_run_opens_no_file_outside_the_folders_of_its_chain() {
    let (folder, other) = (folder(), folder());
    let path = folder.path();
    if !can_confine(path) {
        return;
    }
    write(
        path,
        "chain.toml",
        &LIVE.replace("interface = 'lo'", "capture = 'in.pcap'\nloop = 0\npace = 1.0"),
    );
    let run = Controlled::start(path, "edge", "chain.toml", &["--control=edge"]);
    let elsewhere = other.path().join("in.pcap");
    let chain = fs::read_to_string(path.join("chain.toml")).unwrap();
    write(path, "chain.toml", &chain.replace("in.pcap", elsewhere.to_str().unwrap()));
    let output = run.ctl(&["-s", "edge", "reload"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("Permission denied"), "{error}");
    // A new file beside the others is no problem.
    fs::copy(&elsewhere, path.join("more.pcap")).unwrap();
    write(path, "chain.toml", &chain.replace("in.pcap", "more.pcap"));
    let told = run.succeeds(&["-s", "edge", "reload"]);
    assert!(told.contains("input 'wire'"), "{told}");
    run.succeeds(&["-s", "edge", "stop"]);
    run.end();
}
