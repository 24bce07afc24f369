//! A run under way with its API, for tests.
#![allow(dead_code)] // each test file uses a part

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use thalweg_api::{Answer, Client, Counted, Limits, Listeners, Server, Socket};
use thalweg_chain::{Kinds, Plan, PlanOptions};
use thalweg_control::{Subject, serve};
use thalweg_engine::{Control, Report, RunOptions, run};

/// Generated traffic of two types, one of which passes two NFs, in real time.
const CHAIN: &str = r#"
[input.traffic]
generate = { packets = 1000000000, flows = 100, rate = 20000 }
pace = 1.0
[output.out]
discard = true
[[class]]
type = "web"
rules = ["priority=7,tcp,tp_dst=443", "udp,tp_dst=53"]
[nf.watch]
kind = "monitor"
[nf.gate]
kind = "acl"
default = "permit"
rules = ["deny icmp"]
[[route]]
type = "*"
path = ["ingress", "watch", "gate", "egress"]
"#;

/// A run, until it is ended.
pub struct Running {
    server: Option<Server>,
    pub path: PathBuf,
    pub control: Arc<Control>,
    thread: Option<JoinHandle<Report>>,
    folder: TempDir,
}

/// The kinds of the chain.
pub fn kinds() -> Kinds {
    Kinds::from(thalweg_nf::Kinds::new([thalweg_acl::KIND, thalweg_monitor::KIND]))
}

/// Starts a run over generated traffic without end.
pub fn start(workers: usize, limits: Limits) -> Running {
    start_chain(CHAIN, workers, limits)
}

/// As [`start`], with as many packets as the run can take.
pub fn start_at_full_speed(workers: usize, limits: Limits) -> Running {
    start_chain(&CHAIN.replace("pace = 1.0\n", ""), workers, limits)
}

fn start_chain(chain: &str, workers: usize, limits: Limits) -> Running {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chain.toml"), chain).unwrap();
    let running = start_in(folder, workers, limits);
    wait(|| running.control.progress().packets_in > 1000);
    running
}

/// Starts a run of the chain in `folder`.
pub fn start_in(folder: TempDir, workers: usize, limits: Limits) -> Running {
    start_with(&kinds(), folder, workers, limits)
}

/// As [`start_in`], with these kinds.
pub fn start_with(kinds: &Kinds, folder: TempDir, workers: usize, limits: Limits) -> Running {
    let chain = folder.path().join("chain.toml");
    let plan = Plan::load(&chain, kinds, PlanOptions::default());
    let plan = plan.unwrap_or_else(|mistakes| panic!("{}", mistakes[0]));
    let control = Arc::new(Control::default());
    let path = folder.path().join("a.sock");
    let chain = chain.display().to_string();
    let subject = Subject::new("test".into(), chain, &plan, workers, control.clone());
    let listeners = Listeners { unix: Some(Socket::claim(&path).unwrap()), tcp: None };
    let server = serve(subject, listeners, limits).unwrap();
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    let steered = control.clone();
    let thread = std::thread::spawn(move || run(plan, &options, &steered).unwrap());
    Running { server: Some(server), path, control, thread: Some(thread), folder }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Running {
    pub fn client(&self) -> Client {
        Client::new(&self.path, Duration::from_secs(5))
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn get(&self, target: &str) -> Answer {
        self.request("GET", target, "*/*", None)
    }

    pub fn request(&self, method: &str, target: &str, accept: &str, body: Option<&str>) -> Answer {
        let body = body.map(|body| body.as_bytes().to_vec());
        self.client().request(method.parse().unwrap(), target, accept, body).unwrap()
    }

    /// The document at `target`.
    #[track_caller]
    pub fn json(&self, target: &str) -> Value {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.media_type, "application/json");
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Stops the run; returns its report.
    pub fn end(mut self) -> Report {
        self.control.stop();
        let report = self.thread.take().unwrap().join().unwrap();
        drop(self.server.take());
        report
    }

    /// What the server has counted.
    pub fn counted(&self) -> Counted {
        self.server.as_ref().unwrap().counts().now()
    }
}

/// The events at `target`: names and data.
pub fn events(run: &Running, target: &str) -> impl Iterator<Item = (String, Value)> + use<> {
    let mut stream = UnixStream::connect(&run.path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    std::iter::from_fn(move || {
        let name = lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned))?;
        let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned))?;
        Some((name, serde_json::from_str(&data).unwrap()))
    })
}

/// The document of an answer.
pub fn document(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Waits until `done`, for some seconds at most.
#[track_caller]
pub fn wait(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(8), "waited without success");
        std::thread::sleep(Duration::from_millis(2));
    }
}
