//! The command line.

mod control;
mod devices;
mod generate;
mod observed;
mod place;
mod port;
mod selection;
mod shorthand;
mod sim;
mod top;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use thalweg_chain::Workers;

pub use control::{ControlOptions, Ctl, CtlCapture, CtlTrace, Request};
pub use devices::Devices;
pub use generate::{Filling, Gen};
pub use observed::{Observed, ReportFormat, StatsFormat};
pub use place::Place;
pub use port::Port;
pub use selection::Selected;
pub use shorthand::*;
pub use sim::*;
pub use top::Top;

/// Packet processing on everything a server can compute with.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version,
    after_help = "Examples:
  thalweg check examples/edge-gateway/chain.toml
  thalweg run examples/edge-gateway/chain.toml
  thalweg ids -r traffic.pcap -S my.rules
  thalweg gen --flows 1000 --packets 100000 traffic.pcap
  thalweg doctor

Exit codes: 0 success, 1 failed run, 2 bad usage, 78 bad configuration."
)]
pub struct Arguments {
    /// Log more on standard error (-v, -vv, -vvv)
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Log only errors on standard error
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send traffic through a chain of network functions
    #[command(after_help = "Examples:
  thalweg run chain.toml
  thalweg run chain.toml --workers 2 --json > report.json
  thalweg run chain.toml --loop 0 --duration 10s --stats 1s
  thalweg run chain.toml --report report.html --report report.json
  thalweg run chain.toml --filter 'tcp port 80 and not host 10.1.0.7'
  thalweg run chain.toml --from 2024-05-01T12:00:00Z --to 2024-05-01T12:05:00Z
  sudo thalweg run live.toml   (with interface = \"eth1\" in it)
  thalweg run chain.toml --export-state kept
  thalweg run chain.toml --import-state kept --export-state kept
  thalweg run chain.toml --loop 0 --control=edge     (then: thalweg ctl -s edge status)

Signals during the run:
  SIGINT (Ctrl-C)  stop receiving, finish the packets under way and print the
  or SIGTERM       report; a second one ends the program at once
  SIGHUP           reload the chain file and all files that it names, while
                   packets pass: all that has changed applies or, after a
                   mistake, nothing. What is the same stays as it is, and NFs
                   that change keep their state. The log names what has changed
                   (-v) and each mistake, and the report warns of the mistakes.
                   thalweg ctl reload shows both, --dry-run in advance
  SIGUSR1          make NFs and outputs write what they hold, and NFs open files
                   again that another program has renamed

Progress is a line on standard error if that is a terminal, else, with -v, a message
every 10 seconds. It has the percentage done and the time left where the end is known:
with files, generated traffic, --count or --duration. Tables fit the terminal; for
other outputs they are as wide as needed, unless COLUMNS gives a width")]
    Run(Run),
    /// Check a chain file and show the chain, without running it
    #[command(after_help = "Examples:
  thalweg check chain.toml
  thalweg check chain.toml --format dot | dot -Tsvg > chain.svg
  thalweg check chain.toml --format mermaid
  thalweg check examples/live-gateway/chain.toml --any-interface")]
    Check(Check),
    /// Detect intrusions with rules in Snort's syntax, without a chain file
    #[command(after_help = "Examples:
  thalweg ids -r traffic.pcap -S my.rules
  thalweg ids -r traffic.pcap -S emerging.rules --home-net 10.0.0.0/8 --json | jq .alert.signature
  sudo thalweg ids -i eth0 -S my.rules -l alerts.json
  thalweg ids -r traffic.pcap -S my.rules --print-chain > chain.toml

Alerts are lines on standard output: time, severity, protocol, addresses, message, and the rule's
[gid:sid:rev]. The report of the run follows on standard error, unless --quiet. SIGHUP reads the
rules again, as with thalweg run.")]
    Ids(Ids),
    /// List the flows of traffic, without a chain file
    #[command(after_help = "Examples:
  thalweg flows -r traffic.pcap
  zcat traffic.pcap.gz | thalweg flows -r - --top 10
  sudo thalweg flows -i eth0 --duration 10s --json > flows.json

A flow is unidirectional. A record counts its packets and bytes until it is idle or active for
long. Records are shown in the order in which they end, up to 1000 in one table. The report of the
run follows on standard error, unless --quiet.")]
    Flows(Flows),
    /// List hosts, their systems and services as seen in traffic, without a chain file
    #[command(after_help = "Examples:
  thalweg assets -r traffic.pcap
  sudo thalweg assets -i eth0 --duration 10m --networks 10.0.0.0/8
  thalweg assets -r traffic.pcap --p0f /etc/p0f/p0f.fp --json > hosts.json

The inventory is printed at the end of the run, and its report follows on standard error, unless
--quiet.")]
    Assets(Assets),
    /// Translate addresses and ports (NAT) in a capture, without a chain file
    #[command(after_help = "Examples:
  thalweg nat -r in.pcap --inside 10.0.0.0/8 --external 192.0.2.1 -w out.pcapng
  thalweg nat -r - --inside 10.0.0.0/8 --external 192.0.2.1-192.0.2.8 -w - < in.pcap | tcpdump -r -

The report of the run follows on standard error, unless --quiet.")]
    Nat(Nat),
    /// Show and steer a run by its control socket
    #[command(after_help = "Examples:
  thalweg run chain.toml --loop 0 --control &
  thalweg ctl status
  thalweg ctl list
  thalweg ctl -s edge nfs
  thalweg ctl report | jq .drops
  thalweg ctl trace 'tcp,nw_src=10.1.0.7' --count 5
  thalweg ctl capture --drops -w drops.pcapng --nf gate
  thalweg ctl reload --dry-run
  thalweg ctl log debug
  thalweg ctl stop

A run listens with a live interface or with --control. Where only one run listens, -s is not
needed. THALWEG_RUNTIME_DIR names another folder for the sockets than /run/thalweg and
$XDG_RUNTIME_DIR/thalweg, for run and ctl alike. docs/control.md describes the API that it uses.")]
    Ctl(Ctl),
    /// Show the rates of a run by port, NF, worker and packet type, each second
    #[command(after_help = "Examples:
  thalweg run chain.toml --loop 0 --control &
  thalweg top
  thalweg top -s edge --count 10 > rates.txt

The run must have a control socket, as for thalweg ctl. Cycles are those per packet in the last
second; p50 and p99 are percentiles since the start of the run. On a terminal, q and Ctrl-C end.
Without one, the rates of one second are printed.")]
    Top(Top),
    /// Generate synthetic traffic
    #[command(after_help = "Examples:
  thalweg gen traffic.pcap
  thalweg gen --seed 7 --flows 10000 --packets 1000000 --zipf 1.1 --size imix big.pcapng.gz
  thalweg gen --tcp 0 --udp 100 --size 64 --rate 1000000 small.pcap
  thalweg gen --vlan 10,20 --vlan-share 0.5 --malformed 0.05 odd.pcap")]
    Gen(Gen),
    /// Explain every step that one packet takes through a chain
    #[command(after_help = "Examples:
  thalweg trace chain.toml --packet 1
  thalweg trace chain.toml --packet 42 --json")]
    Trace(Trace),
    /// Show the kinds of network function: options, defaults, state, limits
    #[command(subcommand)]
    Nf(Nf),
    /// Show the kinds of port: keys of their sections, defaults
    #[command(subcommand)]
    Port(Port),
    /// Measure where the cycles of a packet go, for several kinds of traffic
    #[command(after_help = "Examples:
  thalweg profile
  thalweg profile --svg profile.svg
  thalweg profile --samples 15
  thalweg profile --emc-entries 0 --json")]
    Profile(Profile),
    /// Simulate flow lookups: software, near-cache accelerators, ternary memory
    #[command(subcommand)]
    Sim(Sim),
    /// Report what this machine has for packet processing, and what each part gains
    #[command(after_help = "Examples:
  thalweg doctor
  thalweg doctor --json")]
    Doctor(Doctor),
    /// List the devices that NFs could run on, and what each can do
    #[command(after_help = "Examples:
  thalweg devices
  thalweg devices --json")]
    Devices(Devices),
    /// Measure where each NF of a chain runs the cheapest: on the processor or on a device
    #[command(after_help = "Examples:
  thalweg place --measure chain.toml
  thalweg place --measure chain.toml --sizes 64 1500 --samples 5
  thalweg place --measure chain.toml --json

Each NF is measured alone, between captures in memory and outputs that discard, by one worker. The
packets are the chain's own, from its captures and generators, and generated ones between the same
hosts. The cheapest placement is that of the least energy a packet, or, on a machine without sensors
of energy, of the least processor time. docs/gpu.md describes the figures.")]
    Place(Place),
    /// Print the JSON Schema of a document that the program writes, or list them all
    #[command(after_help = "Examples:
  thalweg schema
  thalweg schema run > run.schema.json
  thalweg schema thalweg.trace/1
  thalweg schema --out schemas")]
    Schema(Schema),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  thalweg completions bash > /etc/bash_completion.d/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of thalweg or of one of its commands
    #[command(after_help = "Examples:
  thalweg man | man -l -
  thalweg man run > thalweg-run.1")]
    Man {
        /// The command; without it, the page of thalweg
        command: Option<String>,
    },
}

impl Command {
    /// Whether the command prints its result as JSON, and so its failure too.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Run(options) => options.json,
            Self::Ids(options) => options.json,
            Self::Flows(options) => options.json,
            Self::Assets(options) => options.json,
            Self::Nat(options) => options.json,
            Self::Check(options) => options.json,
            Self::Ctl(options) => options.json,
            Self::Gen(options) => options.json,
            Self::Trace(options) => options.json,
            Self::Profile(options) => options.json,
            Self::Nf(Nf::List { json } | Nf::Show { json, .. })
            | Self::Port(Port::List { json } | Port::Show { json, .. }) => *json,
            Self::Sim(Sim::Run(options)) => options.json,
            Self::Sim(Sim::Race(options)) => options.json,
            Self::Sim(Sim::Predict(options)) => options.json,
            Self::Sim(Sim::Claims(options)) => options.json,
            Self::Doctor(options) => options.json,
            Self::Devices(options) => options.json,
            Self::Place(options) => options.json,
            Self::Sim(_)
            | Self::Top(_)
            | Self::Schema(_)
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }
}

/// Commands of `thalweg nf`.
#[derive(Debug, Subcommand)]
pub enum Nf {
    /// List the kinds of network function
    #[command(after_help = "Examples:
  thalweg nf list
  thalweg nf list --json")]
    List {
        /// Print them as JSON (schema thalweg.nf.list/1)
        #[arg(long)]
        json: bool,
    },
    /// Show a kind's options with their defaults, its state and its limits
    #[command(after_help = "Examples:
  thalweg nf show router
  thalweg nf show router --json | jq .options > router.schema.json")]
    Show {
        /// The kind
        kind: String,
        /// Print it as JSON (schema thalweg.nf/1), its options as JSON Schema
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `thalweg run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The chain file
    pub chain: PathBuf,
    /// Print the report as JSON (schema thalweg.run/1); mistakes in files too (thalweg.mistakes/1)
    #[arg(long)]
    pub json: bool,
    /// Stop after TIME: a number with ms, s, m or h; without a unit, seconds
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Stop after N packets
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Worker threads, or `auto` for one a processor; their number changes nothing but the speed
    /// [default: the chain file's, else 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<Workers>,
    /// Read each capture N times, 0 to repeat it forever [default: the chain file's, else 1]
    #[arg(long = "loop", value_name = "N")]
    pub loops: Option<u64>,
    #[command(flatten)]
    pub selected: Selected,
    /// Import the NF state that an earlier run exported to FOLDER; all of it must fit the chain
    #[arg(long, value_name = "FOLDER")]
    pub import_state: Option<PathBuf>,
    /// Export the NF state to FOLDER at the end; creates the folder if it is missing
    #[arg(long, value_name = "FOLDER")]
    pub export_state: Option<PathBuf>,
    /// Reload the chain file whenever it changes, or a file that it names (captures apart)
    #[arg(long)]
    pub watch: bool,
    /// Time each stage of the path; with one worker and no NF on a device also the processor time from each
    /// batch of packets to the next
    #[arg(long)]
    pub stages: bool,
    #[command(flatten)]
    pub observed: Observed,
    /// Confine nothing, and remain the user that starts the run: for debugging
    #[arg(long)]
    pub no_sandbox: bool,
    /// Treat warnings about the configuration, such as skipped rules, as errors
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Arguments of `thalweg check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The chain file
    pub chain: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t = GraphFormat::Tree, conflicts_with = "json")]
    pub format: GraphFormat,
    /// Print the chain as JSON (schema thalweg.check/1), or its mistakes (thalweg.mistakes/1)
    #[arg(long)]
    pub json: bool,
    /// Accept interfaces and cores that this machine does not have, to check a chain for another one
    #[arg(long)]
    pub any_interface: bool,
    /// Treat warnings about the configuration, such as skipped rules, as errors
    #[arg(long)]
    pub strict: bool,
}

/// How `thalweg check` shows a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphFormat {
    /// A tree for each packet type
    Tree,
    /// Graphviz
    Dot,
    /// Mermaid
    Mermaid,
}

/// Arguments of `thalweg schema`.
#[derive(Debug, Args)]
pub struct Schema {
    /// The document, as its field `schema` names it; thalweg. and the version may be left out
    pub name: Option<String>,
    /// Write all schemas to files in FOLDER; creates the folder if it is missing
    #[arg(long, value_name = "FOLDER", conflicts_with = "name")]
    pub out: Option<PathBuf>,
}

/// Arguments of `thalweg trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// The chain file
    pub chain: PathBuf,
    /// The packet to explain, counted from 1 in the order received
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: u64,
    #[command(flatten)]
    pub selected: Selected,
    /// Print the trace as JSON (schema thalweg.trace/1); mistakes in files too (thalweg.mistakes/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg profile`.
#[derive(Debug, Args)]
pub struct Profile {
    /// Print the profile as JSON (schema thalweg.profile/1)
    #[arg(long)]
    pub json: bool,
    /// Draw the profile as stacked bars in this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Packets to send for each sample of a kind of traffic
    #[arg(long, value_name = "N", default_value_t = 2_000_000,
        value_parser = clap::value_parser!(u64).range(1000..))]
    pub packets: u64,
    /// How often to measure each kind of traffic; the median and the spread are shown
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub samples: u16,
    /// Entries of the exact-match cache, 0 to turn it off
    #[arg(long, value_name = "N", default_value_t = 8192,
        value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub emc_entries: u32,
}

/// Arguments of `thalweg doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print the findings as JSON (schema thalweg.doctor/1)
    #[arg(long)]
    pub json: bool,
}

/// Reads a duration such as `10s`, `1500ms`, `2m`, `1h` or `0.5s`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("'{text}' is not a time; expected a number with ms, s, m or h, as in 10s");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let seconds = match &text[digits..] {
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        for wrong in ["", "s", "1d", "-1s", "1s2", "1e99h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
