//! The control socket of a run, and the command that uses it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use thalweg_api::Address;

/// Where a run can be controlled.
#[derive(Debug, Args)]
pub struct ControlOptions {
    /// Listen on a control socket, for thalweg ctl: /run/thalweg/NAME.sock, in $XDG_RUNTIME_DIR where
    /// that cannot be written, or PATH (with a slash) [default: on with a live interface; NAME is
    /// that of the chain file, of its folder if it is chain.toml, or of the command without one]
    #[arg(long, value_name = "NAME|PATH", num_args = 0..=1, require_equals = true)]
    #[allow(clippy::option_option, reason = "clap distinguishes the option without a value")]
    pub control: Option<Option<Address>>,
    /// Listen on no control socket
    #[arg(long, conflicts_with = "control")]
    pub no_control: bool,
    /// Accept control over TCP too, encrypted (TLS 1.3) and for clients with a certificate only
    #[arg(long, value_name = "ADDRESS:PORT",
        requires_all = ["control_cert", "control_key", "control_clients"])]
    pub control_tcp: Option<SocketAddr>,
    /// The certificate of this server for TCP, in PEM
    #[arg(long, value_name = "FILE", requires = "control_tcp")]
    pub control_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "control_tcp")]
    pub control_key: Option<PathBuf>,
    /// The authorities that sign the certificates of clients, in PEM
    #[arg(long, value_name = "FILE", requires = "control_tcp")]
    pub control_clients: Option<PathBuf>,
}

/// Arguments of `thalweg ctl`.
#[derive(Debug, Args)]
pub struct Ctl {
    /// The run: the NAME of its control socket or its PATH [default: the only one that runs]
    #[arg(short, long, value_name = "NAME|PATH")]
    pub socket: Option<Address>,
    /// Print the answer as JSON, as the run gives it; report and metrics always are as given
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub request: Request,
}

/// Requests to a run.
#[derive(Debug, Subcommand)]
pub enum Request {
    /// List the runs that have a control socket
    List,
    /// Show the state and the progress of the run
    Status,
    /// Show the ports and their counts
    Ports,
    /// Show the NFs and their counts
    Nfs,
    /// Show the rules that give packets their types
    Rules {
        /// The number of the first rule to show
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u32,
        /// The most rules to show
        #[arg(long, value_name = "N", default_value_t = 100,
            value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Print the report of the run so far as JSON (schema thalweg.run/1)
    Report,
    /// Print the metrics of the run for Prometheus (OpenMetrics)
    Metrics,
    /// Trace the next packets that match a pattern, step by step, as thalweg trace does for a capture
    Trace(CtlTrace),
    /// Record packets that the run drops in a pcapng capture, each with place and reason as a comment
    Capture(CtlCapture),
    /// Reload the chain file while packets pass: all of it or, with a mistake, nothing
    Reload {
        /// Show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Let NFs begin without state that they cannot keep
        #[arg(long)]
        accept_loss: bool,
    },
    /// Make NFs and outputs write what they hold, and NFs open files again that were renamed
    Export,
    /// Stop receiving; the run ends when the packets under way have finished
    Stop,
    /// Show or set the level of the log of the run
    Log {
        /// The new level
        level: Option<LogLevel>,
    },
}

/// Arguments of `thalweg ctl trace`.
#[derive(Debug, Args)]
pub struct CtlTrace {
    /// The packets, as a flow in the syntax of rules, such as 'in_port=uplink,tcp,nw_src=10.1.0.7'
    /// [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    pub pattern: String,
    /// The number of packets
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: u16,
    /// How long to wait for them, in seconds: 0.1 to 3600
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,
}

/// Arguments of `thalweg ctl capture`.
#[derive(Debug, Args)]
pub struct CtlCapture {
    /// The packets, as a flow in the syntax of rules that they match when they are dropped
    /// [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    pub pattern: String,
    /// Record the packets that are dropped: by NFs, by routes and for lack of one, and at outputs
    #[arg(long, required = true)]
    pub drops: bool,
    /// The capture, or - for standard output
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub write: PathBuf,
    /// Only those that this NF drops
    #[arg(long, value_name = "NAME")]
    pub nf: Option<String>,
    /// Stop after this many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Stop after this time, in seconds: 0.1 to 3600; Ctrl-C stops, too
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub seconds: f64,
}

/// The level of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// Nothing
    Off,
    /// Failures
    Error,
    /// What the user should know
    Warn,
    /// What the run does
    Info,
    /// Details
    Debug,
    /// All details
    Trace,
}
