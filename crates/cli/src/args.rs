//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

/// Packet processing on everything a server can compute with.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version,
    after_help = "Examples:
  thalweg check examples/edge-gateway/chain.toml
  thalweg run examples/edge-gateway/chain.toml
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
  thalweg run chain.toml --loop 0 --duration 10s
  sudo thalweg run live.toml   (with interface = \"eth1\" in it)
  thalweg run chain.toml --export-state kept
  thalweg run chain.toml --import-state kept --export-state kept

Signals during the run:
  SIGINT (Ctrl-C)  stop receiving, finish the packets under way and print the
  or SIGTERM       report; a second one ends the program at once
  SIGHUP           read again, while packets pass, the [[class]] rules of the
                   chain file and the files of NFs: rules (acl, filter, nids),
                   routes (router), fingerprints (assets). Packet types, ports,
                   NFs, their options and the chain's routes do not change.
                   After a mistake in the chain file or its rules, all [[class]]
                   rules stay as they were (everything does if the file is not
                   TOML); after one in an NF's file, that NF does. The report
                   warns of each mistake
  SIGUSR1          make NFs and outputs write what they hold

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
            Self::Check(options) => options.json,
            Self::Gen(options) => options.json,
            Self::Trace(options) => options.json,
            Self::Profile(options) => options.json,
            Self::Nf(Nf::List { json } | Nf::Show { json, .. }) => *json,
            Self::Sim(Sim::Run(options)) => options.json,
            Self::Sim(Sim::Race(options)) => options.json,
            Self::Sim(Sim::Predict(options)) => options.json,
            Self::Sim(Sim::Claims(options)) => options.json,
            Self::Doctor(options) => options.json,
            Self::Sim(_) | Self::Schema(_) | Self::Completions { .. } | Self::Man { .. } => false,
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
    /// Worker threads; flows are spread over them [default: the chain file's, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Read each capture N times, 0 to repeat it forever [default: the chain file's, else 1]
    #[arg(long = "loop", value_name = "N")]
    pub loops: Option<u64>,
    /// Import the NF state that an earlier run exported to FOLDER; all of it must fit the chain
    #[arg(long, value_name = "FOLDER")]
    pub import_state: Option<PathBuf>,
    /// Export the NF state to FOLDER at the end; creates the folder if it is missing
    #[arg(long, value_name = "FOLDER")]
    pub export_state: Option<PathBuf>,
    /// Treat warnings about the configuration, such as skipped rules, as errors
    #[arg(long)]
    pub strict: bool,
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
    /// Accept interfaces that this machine does not have, to check a chain for another one
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

/// The commands of `thalweg sim`.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Simulate one workload with several lookup methods and compare them
    #[command(after_help = "Examples:
  thalweg sim run
  thalweg sim run --set workload.entries=1048576 --set workload.stream=dependent
  thalweg sim run machine.toml --method lock-free,halo-blocking --json")]
    Run(SimRun),
    /// Simulate every combination of several settings, one line of JSON for each
    #[command(after_help = "Examples:
  thalweg sim sweep --over workload.entries=1024,131072 --over workload.occupancy=0.25,0.75 out.jsonl
  thalweg sim sweep --over workload.tuples=5,10,15,20 --set workload.entries=1024 tuples.jsonl

An interrupted sweep resumes when it is started again with the same file: combinations
that the file holds already are not simulated again.")]
    Sweep(SimSweep),
    /// Simulate a writer and concurrent readers: lookups that miss while entries are displaced
    #[command(after_help = "Examples:
  thalweg sim race
  thalweg sim race --set workload.entries=64 --set race.readers=16 --json

The readers look up keys that are always in the table, while the writer inserts and removes
others, under each guard: none, the change counter of software, the locks of accelerators.")]
    Race(SimRace),
    /// Write the queries of an accelerator step by step, for its RTL
    #[command(after_help = "Examples:
  thalweg sim queries --set workload.method=halo-blocking > queries.txt

rtl/check.sh runs them through the accelerator in SystemVerilog.")]
    Queries(SimConfig),
    /// Simulate the claims of the HALO paper, and report which of them hold
    #[command(after_help = "Examples:
  thalweg sim claims --out report
  thalweg sim claims --out report --set llc.tag_data=24

Writes figures (SVG, PDF and CSV), tables, claims.md and claims.json to the folder. runs.jsonl
there keeps every finished simulation, so that an interrupted command resumes where it stopped.")]
    Claims(SimClaims),
    /// Simulate and draw one figure of the HALO paper
    #[command(after_help = "Examples:
  thalweg sim figure 11 --out report")]
    Figure(SimNumber),
    /// Simulate and print one table of the HALO paper
    #[command(after_help = "Examples:
  thalweg sim table 4 --out report")]
    Table(SimNumber),
    /// Measure this machine's caches with a pointer chase, and print them as a configuration
    #[command(after_help = "Examples:
  thalweg sim calibrate --out host.toml
  thalweg sim run host.toml

Measures only the time of dependent loads, over more and more memory; the core's width,
queues and ports are those of the configuration that it begins with.")]
    Calibrate(SimCalibrate),
    /// Time lookups in our own cuckoo table on this machine, next to the simulation's times
    ///
    /// FILE is the machine's configuration, as `thalweg sim calibrate` writes it. The simulation
    /// uses nothing that is measured here.
    #[command(after_help = "Examples:
  thalweg sim calibrate --out host.toml && thalweg sim predict host.toml
  thalweg sim predict host.toml --places 10,17 --json")]
    Predict(SimPredict),
    /// Print the whole configuration, including the defaults
    #[command(after_help = "Examples:
  thalweg sim config > machine.toml
  thalweg sim config machine.toml --set core.width=6")]
    Config(SimConfig),
}

/// A simulation's configuration.
#[derive(Debug, Args)]
pub struct SimConfig {
    /// A file with settings that differ from the defaults
    pub file: Option<PathBuf>,
    /// Override one setting of the file; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Arguments of `thalweg sim run`.
#[derive(Debug, Args)]
pub struct SimRun {
    #[command(flatten)]
    pub config: SimConfig,
    /// Lookup methods, instead of workload.method [default: all]
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',')]
    pub method: Vec<String>,
    /// Print the reports as JSON (schema thalweg.sim.run/2)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg sim calibrate`.
#[derive(Debug, Args)]
pub struct SimCalibrate {
    #[command(flatten)]
    pub config: SimConfig,
    /// The file to write, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The most memory to chase through; must be much larger than the last-level cache
    #[arg(long, value_name = "MIB", default_value_t = 192,
        value_parser = clap::value_parser!(u64).range(16..=65536))]
    pub most: u64,
}

/// Arguments of `thalweg sim predict`.
#[derive(Debug, Args)]
pub struct SimPredict {
    #[command(flatten)]
    pub config: SimConfig,
    /// Sizes of the tables, each as the base-2 logarithm of its places
    #[arg(long, value_name = "BITS,...", value_delimiter = ',', default_value = "6,10,14,17,20",
        value_parser = clap::value_parser!(u32).range(3..=26))]
    pub places: Vec<u32>,
    /// Print the measured and simulated times as JSON (schema thalweg.sim.predict/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg sim race`.
#[derive(Debug, Args)]
pub struct SimRace {
    #[command(flatten)]
    pub config: SimConfig,
    /// Print the results as JSON (schema thalweg.sim.race/1)
    #[arg(long)]
    pub json: bool,
}

/// The options that many simulations share.
#[derive(Debug, Args)]
pub struct SimGrid {
    /// A file with settings that differ from the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one setting in all simulations; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    pub settings: Vec<String>,
    /// Simulations to run in parallel [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Arguments of `thalweg sim claims`.
#[derive(Debug, Args)]
pub struct SimClaims {
    #[command(flatten)]
    pub paper: SimPaper,
    /// Print the claims with their verdicts as JSON (schema thalweg.sim.claims/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the commands that simulate what the HALO paper shows.
#[derive(Debug, Args)]
pub struct SimPaper {
    /// The folder to write to; created if it is missing
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    #[command(flatten)]
    pub grid: SimGrid,
}

/// Arguments of `thalweg sim figure` and `thalweg sim table`.
#[derive(Debug, Args)]
pub struct SimNumber {
    /// The number of the figure or table in the paper
    pub number: String,
    #[command(flatten)]
    pub paper: SimPaper,
}

/// Arguments of `thalweg sim sweep`.
#[derive(Debug, Args)]
pub struct SimSweep {
    /// The file to write: reports as lines of JSON (schema thalweg.sim.run/2)
    pub output: PathBuf,
    /// A setting and its values; may be repeated
    #[arg(long, value_name = "TABLE.KEY=VALUE,...", required = true)]
    pub over: Vec<String>,
    #[command(flatten)]
    pub grid: SimGrid,
}

/// Arguments of `thalweg doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print the findings as JSON (schema thalweg.doctor/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg gen`.
#[derive(Debug, Args)]
pub struct Gen {
    /// The capture to write: .pcap or .pcapng, either with .gz
    pub output: PathBuf,
    /// Seed of all random choices; the same seed generates the same bytes
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Number of packets [default: 10000]
    #[arg(long, value_name = "N")]
    pub packets: Option<u64>,
    /// Number of flows [default: 100]
    #[arg(long, value_name = "N")]
    pub flows: Option<u32>,
    /// Zipf skew of the flows' popularity [default: all flows alike]
    #[arg(long, value_name = "SKEW")]
    pub zipf: Option<f64>,
    /// Frame sizes with the check sequence: imix, 64, 64-1500, or 64:7,594:4 [default: imix]
    #[arg(long, value_name = "SIZES")]
    pub size: Option<String>,
    /// Weight of TCP flows [default: 70]
    #[arg(long, value_name = "WEIGHT")]
    pub tcp: Option<f64>,
    /// Weight of UDP flows [default: 25]
    #[arg(long, value_name = "WEIGHT")]
    pub udp: Option<f64>,
    /// Weight of ICMP flows [default: 5]
    #[arg(long, value_name = "WEIGHT")]
    pub icmp: Option<f64>,
    /// Weight of SCTP flows [default: 0]
    #[arg(long, value_name = "WEIGHT")]
    pub sctp: Option<f64>,
    /// Share of flows over IPv6, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub ipv6: Option<f64>,
    /// VLAN IDs of tagged flows [default: 10]
    #[arg(long, value_name = "VID,...", value_delimiter = ',')]
    pub vlan: Vec<u16>,
    /// Share of flows with a VLAN tag, 0 to 1 [default: 0, or 1 with --vlan]
    #[arg(long, value_name = "SHARE")]
    pub vlan_share: Option<f64>,
    /// Share of tagged flows with a second, outer tag [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub qinq_share: Option<f64>,
    /// Prefixes of the clients [default: 10.0.0.0/16 and 2001:db8:a::/64]
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Prefixes of the servers [default: 198.51.100.0/24 and 2001:db8:b::/64]
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// Ports that servers listen on [default: 80,443,53,22,25,123,8080]
    #[arg(long, value_name = "PORT,...", value_delimiter = ',')]
    pub server_ports: Vec<u16>,
    /// Share of packets with a truncated or invalid header, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub malformed: Option<f64>,
    /// Share of packets that are attacks (floods, fragments, conflicting segments, endless
    /// messages, forged resets, FINs and ICMP errors), 0 to 1; 1 without a number [default: 0]
    #[arg(long, value_name = "SHARE", num_args = 0..=1, default_missing_value = "1")]
    pub hostile: Option<f64>,
    /// Packets per second, by the capture's timestamps [default: 100000]
    #[arg(long, value_name = "PACKETS")]
    pub rate: Option<f64>,
    /// Payload of the packets [default: random]
    #[arg(long, value_enum)]
    pub payload: Option<Filling>,
    /// Print a summary as JSON (schema thalweg.gen/1)
    #[arg(long)]
    pub json: bool,
}

/// The payload of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Filling {
    /// Random bytes
    Random,
    /// Zeros
    Zeros,
    /// Text like HTTP
    Http,
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
