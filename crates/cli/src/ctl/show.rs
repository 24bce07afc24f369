//! Answers of a run as text.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_api::Listening;
use thalweg_io::kind::Link;
use thalweg_nf::device::Way;
use thalweg_source::{counted, visible};

use crate::args::Request;
use crate::report::plain_table;
use crate::reports::tables;
use crate::units::wait;

#[derive(Deserialize)]
struct Status {
    name: String,
    pid: u32,
    version: String,
    chain: String,
    state: String,
    started: String,
    workers: u64,
    /// Absent if the workers may use any.
    #[serde(default)]
    cores: Vec<u32>,
    progress: Progress,
    log: String,
    api: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Progress {
    uptime_s: f64,
    packets_in: u64,
    packets_out: u64,
    packets_dropped: u64,
    share: Option<f64>,
}

#[derive(Deserialize)]
struct Ports {
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Port {
    name: String,
    direction: String,
    kind: String,
    what: String,
    link: Option<Link>,
    mode: Option<String>,
    packets: u64,
    bytes: u64,
    drops: IndexMap<String, u64>,
}

#[derive(Deserialize)]
struct Nfs {
    nfs: Vec<Nf>,
}

#[derive(Deserialize)]
struct Device {
    way: String,
}

#[derive(Deserialize)]
struct Nf {
    name: String,
    kind: String,
    at: String,
    work_groups: Option<usize>,
    device: Option<Device>,
    failed_at: Option<String>,
    packets: u64,
    bytes: u64,
    generated: u64,
    drops: IndexMap<String, u64>,
    cycles_per_packet: f64,
    latency_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    p50: u64,
    p99: u64,
}

#[derive(Deserialize)]
struct Rules {
    default_type: String,
    total: u64,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    id: u32,
    priority: u32,
    r#type: String,
    text: String,
}

#[derive(Deserialize)]
struct Reloaded {
    text: Vec<String>,
}

#[derive(Deserialize)]
struct Level {
    level: String,
}

/// Writes the answer to `request`.
///
/// # Errors
/// When the answer is not one of this version, or cannot be written.
pub fn answer(out: &mut Vec<u8>, request: &Request, body: &[u8]) -> io::Result<()> {
    match request {
        Request::Ports => ports(out, &read(body)?),
        Request::Nfs => nfs(out, &read(body)?),
        Request::Rules { from, .. } => rules(out, *from, &read(body)?),
        Request::Reload { .. } => reloaded(out, &read(body)?),
        Request::Log { .. } => writeln!(out, "{}", read::<Level>(body)?.level),
        Request::Export => writeln!(out, "{} writes what it holds", name(body)?),
        Request::Stop => writeln!(out, "{} stops", name(body)?),
        Request::List
        | Request::Status
        | Request::Report
        | Request::Metrics
        | Request::Trace(_)
        | Request::Capture(_) => status(out, &read(body)?),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    let wrong = |e| io::Error::other(format!("the run answers with another document: {e}"));
    serde_json::from_slice(body).map_err(wrong)
}

/// The run of a status, as messages name it.
fn name(body: &[u8]) -> io::Result<String> {
    let Status { name, pid, .. } = read(body)?;
    Ok(format!("run '{}' (process {pid})", visible(&name)))
}

/// Writes the runs that listen.
pub fn list(out: &mut impl Write, listening: &[Listening]) -> io::Result<()> {
    let mut table = plain_table(&["run", "process", "socket"]);
    for run in listening {
        let pid = run.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        table.add_row([
            run.name.clone(),
            pid,
            visible(&run.path.display().to_string()).into_owned(),
        ]);
    }
    writeln!(out, "{table}")
}

fn status(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let Status { name, pid, version, chain, state, started, workers, progress, log, api, .. } =
        status;
    let uptime = wait(Duration::try_from_secs_f64(progress.uptime_s).unwrap_or_default());
    let mut workers = counted(*workers, "worker");
    if !status.cores.is_empty() {
        workers.push_str(" with ");
        workers.push_str(&thalweg_chain::on_cores(&status.cores));
    }
    writeln!(out, "run      {}, process {pid}, thalweg {version}", visible(name))?;
    writeln!(out, "chain    {}", visible(chain))?;
    writeln!(out, "state    {state} for {uptime} on {workers}, since {started}")?;
    let Progress { packets_in, packets_out, packets_dropped, .. } = progress;
    write!(out, "packets  {packets_in} in, {packets_out} out, {packets_dropped} dropped")?;
    match progress.share {
        Some(share) => writeln!(out, ", {:.0} %", 100.0 * share)?,
        None => writeln!(out)?,
    }
    writeln!(out, "log      {log}")?;
    // Requests and events are no news; what was refused or interrupted is.
    let usual = ["connections", "requests", "events"];
    let unusual = api.iter().filter(|(name, count)| !usual.contains(&&***name) && **count > 0);
    let unusual: Vec<_> =
        unusual.map(|(name, n)| format!("{} {n}", name.replace('_', " "))).collect();
    let requests = counted(api.get("requests").copied().unwrap_or(0), "request");
    writeln!(out, "control  {}", [vec![requests], unusual].concat().join(", "))
}

fn ports(out: &mut impl Write, ports: &Ports) -> io::Result<()> {
    let headings = ["port", "", "kind", "what", "packets", "bytes", "drops by reason"];
    let mut table = plain_table(&headings).with_numbers(4..6);
    for port in &ports.ports {
        table.add_row([
            port.name.clone(),
            port.direction.clone(),
            port.kind.clone(),
            visible(&port.described()).into_owned(),
            port.packets.to_string(),
            port.bytes.to_string(),
            tables::list(&port.drops).join(", "),
        ]);
    }
    writeln!(out, "{table}")
}

impl Port {
    /// What it is, with the state of its link and how packets pass.
    fn described(&self) -> String {
        let link = self.link.map(|link| link.to_string()).filter(|text| !text.is_empty());
        let more: Vec<_> = link.into_iter().chain(self.mode.clone()).collect();
        match more.as_slice() {
            [] => self.what.clone(),
            more => format!("{} ({})", self.what, more.join("; ")),
        }
    }
}

impl Nf {
    /// Where it runs, with its work-groups there, and the way of packets if that is no kernel that stays.
    fn place(&self) -> String {
        if let Some(device) = &self.failed_at {
            return format!("{}, as {device} has failed", self.at);
        }
        let at = &self.at;
        let place = match self.work_groups {
            None => return at.clone(),
            Some(1) => format!("{at}, 1 work-group"),
            Some(number) => format!("{at}, {number} work-groups"),
        };
        match &self.device {
            Some(Device { way }) if way != Way::Resident.name() => format!("{place}, {way}"),
            _ => place,
        }
    }
}

fn nfs(out: &mut impl Write, nfs: &Nfs) -> io::Result<()> {
    let rows = nfs.nfs.iter().map(|nf| tables::Nf {
        name: &nf.name,
        kind: &nf.kind,
        place: Some(nf.place()),
        packets: nf.packets,
        bytes: nf.bytes,
        generated: nf.generated,
        dropped: nf.drops.values().sum(),
        drops: tables::list(&nf.drops),
        cycles_per_packet: nf.cycles_per_packet,
        p50: nf.latency_ns.p50,
        p99: nf.latency_ns.p99,
    });
    writeln!(out, "{}", tables::of_nfs(rows).text())
}

fn reloaded(out: &mut impl Write, reloaded: &Reloaded) -> io::Result<()> {
    if reloaded.text.is_empty() {
        return writeln!(out, "nothing has changed");
    }
    reloaded.text.iter().try_for_each(|change| writeln!(out, "{}", visible(change)))
}

fn rules(out: &mut impl Write, from: u32, rules: &Rules) -> io::Result<()> {
    let mut table = plain_table(&["rule", "priority", "type", "text"]).with_numbers(0..2);
    for rule in &rules.rules {
        table.add_row([
            rule.id.to_string(),
            rule.priority.to_string(),
            rule.r#type.clone(),
            visible(&rule.text).into_owned(),
        ]);
    }
    writeln!(out, "{table}")?;
    let shown = rules.rules.len() as u64;
    if from > 0 || shown < rules.total {
        writeln!(out, "{shown} of {} shown", counted(rules.total, "rule"))?;
    }
    writeln!(out, "other packets: {}", visible(&rules.default_type))
}
