//! `thalweg ctl`: shows and steers a run by its control socket.

mod capture;
pub mod find;
mod show;
mod trace;

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thalweg_api::axum::http::Method;
use thalweg_api::{Answer, Client, ClientError, Folders, query};
use thalweg_source::message_lines;

use crate::args::{self, Request};
use crate::errors::Failure;
use crate::report::write_json;

/// How long a run may take for an answer; longer than its own limit.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same for a reload.
const RELOAD_PATIENCE: Duration = Duration::from_secs(305);

/// The media type of the documents.
pub const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

/// Sends the request, and prints the answer.
pub fn ctl(options: &args::Ctl) -> Result<(), Failure> {
    let folders = Folders::from_environment();
    if matches!(options.request, Request::List) {
        return list(&folders, options.json);
    }
    let path = find::socket(&folders, options.socket.as_ref())?;
    let sent = Sent::of(&options.request);
    let body = sent.body.as_ref().map(|body| body.to_string().into_bytes());
    let is_reload = matches!(options.request, Request::Reload { .. });
    let client = Client::new(&path, if is_reload { RELOAD_PATIENCE } else { PATIENCE });
    let answer = match &options.request {
        Request::Trace(request) => trace::print(&client, &sent, request, options.json)?,
        Request::Capture(_) if options.json => {
            return Err(Failure::Usage("a capture is pcapng; expected no --json".into()));
        }
        Request::Capture(request) => capture::record(&client, &sent, request)?,
        _ => client.request(sent.method, &sent.target, sent.accept, body),
    };
    let answer = answer.map_err(|e| failure(&folders, e))?;
    if !answer.status.is_success() {
        return Err(refused(&answer));
    }
    if matches!(options.request, Request::Trace(_) | Request::Capture(_)) {
        return Ok(());
    }
    let mut text = Vec::new();
    if options.json || matches!(options.request, Request::Report | Request::Metrics) {
        text.extend_from_slice(&answer.body);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
    } else {
        show::answer(&mut text, &options.request, &answer.body)?;
    }
    Ok(io::stdout().write_all(&text)?)
}

/// A request as HTTP.
struct Sent {
    method: Method,
    target: String,
    accept: &'static str,
    body: Option<Value>,
}

impl Sent {
    fn of(request: &Request) -> Self {
        let get = |target: &str| (Method::GET, target.to_owned());
        let post = |target: &str| (Method::POST, target.to_owned());
        let mut body = None;
        let (method, target) = match request {
            Request::List | Request::Status => get("/v1/status"),
            Request::Ports => get("/v1/ports"),
            Request::Nfs => get("/v1/nfs"),
            Request::Rules { from, limit } => get(&format!("/v1/rules?from={from}&limit={limit}")),
            Request::Report => get("/v1/report"),
            Request::Metrics => get("/metrics"),
            Request::Trace(args::CtlTrace { pattern, count, seconds }) => {
                let (count, seconds) = (count.to_string(), seconds.to_string());
                let wish = [("pattern", &**pattern), ("count", &count), ("seconds", &seconds)];
                get(&query("/v1/trace", &wish))
            }
            Request::Capture(args::CtlCapture { pattern, nf, count, seconds, .. }) => {
                let (count, seconds) = (count.map(|count| count.to_string()), seconds.to_string());
                let mut wish = vec![("pattern", &**pattern), ("seconds", &seconds)];
                wish.extend(nf.as_deref().map(|name| ("nf", name)));
                wish.extend(count.as_deref().map(|count| ("count", count)));
                get(&query("/v1/drops", &wish))
            }
            Request::Reload { dry_run, accept_loss } => {
                body = Some(json!({"dry_run": dry_run, "accept_loss": accept_loss}));
                post("/v1/reload")
            }
            Request::Export => post("/v1/export"),
            Request::Stop => post("/v1/stop"),
            Request::Log { level: None } => get("/v1/log"),
            Request::Log { level: Some(level) } => {
                let level = level.to_possible_value().expect("no level is left out");
                body = Some(json!({"level": level.get_name()}));
                (Method::PUT, "/v1/log".into())
            }
        };
        let accept = match request {
            Request::Metrics => OPEN_METRICS,
            Request::Trace(_) => "text/event-stream",
            Request::Capture(_) => "application/x-pcapng",
            _ => JSON,
        };
        Self { method, target, accept, body }
    }
}

/// What is wrong with a request, in the words of the run.
pub fn refused(answer: &Answer) -> Failure {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let problem: Result<Problem, _> = serde_json::from_slice(&answer.body);
    let detail = problem.map_or_else(|_| answer.status.to_string(), |problem| problem.detail);
    Failure::Run(format!("the run refuses: {}", message_lines(&detail)))
}

/// Why there is no answer: a run that has just ended is one that does not run.
pub fn failure(folders: &Folders, error: ClientError) -> Failure {
    match error {
        ClientError::Connect { path, source } if find::is_dead(&source) => {
            find::no_run(folders, &path.display())
        }
        other => Failure::Run(other.to_string()),
    }
}

fn list(folders: &Folders, json: bool) -> Result<(), Failure> {
    let listening = folders.listening();
    let mut out = io::stdout().lock();
    if json {
        let runs = listening.into_iter().map(|run| Run {
            name: run.name,
            pid: run.pid,
            socket: run.path.display().to_string(),
        });
        return Ok(write_json(&mut out, &Runs { schema: "thalweg.runs/1", runs: runs.collect() })?);
    }
    Ok(show::list(&mut out, &listening)?)
}

/// The runs that have a control socket.
#[derive(Serialize, JsonSchema)]
pub struct Runs {
    #[schemars(extend("const" = "thalweg.runs/1"))]
    schema: &'static str,
    runs: Vec<Run>,
}

/// A run.
#[derive(Serialize, JsonSchema)]
struct Run {
    name: String,
    /// Its process; null if its owner is another user.
    pid: Option<u32>,
    /// The path of its socket.
    socket: String,
}
