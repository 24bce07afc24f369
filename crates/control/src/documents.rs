//! The documents of the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_api::Counted;
use thalweg_engine::{NfReport, PortReport};
use thalweg_io::LinkChange;
use thalweg_io::kind::Link;

/// The state of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Status {
    /// `thalweg.status/1`.
    #[schemars(extend("const" = "thalweg.status/1"))]
    pub schema: &'static str,
    /// The name of the run, by which `thalweg ctl -s NAME` finds it.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// The version of the program.
    pub version: &'static str,
    /// Its chain file; of a command without one, the command line.
    pub chain: String,
    /// Whether it receives packets.
    pub state: State,
    /// When it started: RFC 3339, UTC.
    pub started: String,
    /// Worker threads.
    pub workers: usize,
    /// The core of each worker, by its number; absent if they may use any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u32>,
    /// What it has done so far.
    pub progress: ProgressNow,
    /// The level of its log.
    pub log: Level,
    /// What its API has done, refused and interrupted.
    pub api: Counted,
}

/// Whether a run receives packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It receives packets.
    Running,
    /// It receives no more packets, and those under way finish.
    Stopping,
}

/// The progress of a run, about a batch late: the counts may not balance, unlike those of a report.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ProgressNow {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets transmitted.
    pub packets_out: u64,
    /// Packets dropped.
    pub packets_dropped: u64,
    /// The share of the work that is done, from 0 to 1; absent if the end is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// The ports of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Ports {
    /// `thalweg.ports/1`.
    #[schemars(extend("const" = "thalweg.ports/1"))]
    pub schema: &'static str,
    /// The inputs and then the outputs, in the order of the chain file.
    pub ports: Vec<PortState>,
}

/// A port, and what it has counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortState {
    /// Whether packets arrive or leave there.
    pub direction: Direction,
    /// The name of its kind: `interface`, `capture`, `generator`, `discard`, or that of a kind of
    /// your own.
    pub kind: &'static str,
    /// The interface, the files or the traffic.
    pub what: String,
    /// The state of its link at this moment, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Its name and its counts.
    #[serde(flatten)]
    pub counts: PortReport,
}

/// An event of the network interface of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LinkEventNow {
    /// The port.
    pub port: String,
    /// Whether packets arrive or leave there.
    pub direction: Direction,
    /// The interface, by the name that it had then.
    pub interface: String,
    /// What has happened.
    pub change: LinkChange,
    /// The same in words, with the values.
    pub text: String,
    /// When it was noticed: RFC 3339, UTC.
    pub time: String,
}

/// The device of an NF has failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceFailureNow {
    /// The NF.
    pub nf: String,
    /// The device, by its name in the chain file.
    pub at: String,
    /// What it did.
    pub text: String,
    /// When it was noticed: RFC 3339, UTC.
    pub time: String,
}

/// The direction of the packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// An input.
    In,
    /// An output.
    Out,
}

/// The NFs of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Nfs {
    /// `thalweg.nfs/1`.
    #[schemars(extend("const" = "thalweg.nfs/1"))]
    pub schema: &'static str,
    /// The NFs, in the order of the chain file.
    pub nfs: Vec<NfState>,
}

/// An NF, and what it has counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NfState {
    /// Its options, in words.
    pub what: String,
    /// Whether it runs on its own worker.
    pub pinned: bool,
    /// The core of that worker; absent if it may use any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Where it runs: `cpu`, or the device that does a part of its work.
    pub at: String,
    /// Its work-groups there; absent on the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_groups: Option<usize>,
    /// The device that did a part of its work until it failed; absent otherwise. `device.failed` has what it
    /// did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<String>,
    /// Its name, its kind and its counts.
    #[serde(flatten)]
    pub counts: NfReport,
}

/// Rules that give packets their types, or a part of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Rules {
    /// `thalweg.rules/1`.
    #[schemars(extend("const" = "thalweg.rules/1"))]
    pub schema: &'static str,
    /// The type of packets that no rule matches.
    pub default_type: String,
    /// The number of all rules.
    pub total: usize,
    /// The rules that were requested, in the order in which they were given.
    pub rules: Vec<RuleState>,
}

/// A rule that gives packets their type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RuleState {
    /// Its number: its position among the rules.
    pub id: u32,
    /// The rule with the highest priority decides; the first of equals.
    pub priority: u32,
    /// The packet type that it assigns.
    #[serde(rename = "type")]
    pub packet_type: String,
    /// The rule as it was given.
    pub text: String,
}

/// The level of the log of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// The least important messages that are logged.
    pub level: Level,
}

/// The importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is logged.
    Off,
    /// Failures.
    Error,
    /// What the user should know.
    Warn,
    /// What the run does.
    Info,
    /// Details.
    Debug,
    /// All details.
    Trace,
}

impl From<log::LevelFilter> for Level {
    fn from(level: log::LevelFilter) -> Self {
        match level {
            log::LevelFilter::Off => Self::Off,
            log::LevelFilter::Error => Self::Error,
            log::LevelFilter::Warn => Self::Warn,
            log::LevelFilter::Info => Self::Info,
            log::LevelFilter::Debug => Self::Debug,
            log::LevelFilter::Trace => Self::Trace,
        }
    }
}

impl From<Level> for log::LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::Off,
            Level::Error => Self::Error,
            Level::Warn => Self::Warn,
            Level::Info => Self::Info,
            Level::Debug => Self::Debug,
            Level::Trace => Self::Trace,
        }
    }
}
