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

Exit codes: 0 done, 1 the run failed, 2 bad usage, 78 bad configuration."
)]
pub struct Arguments {
    /// Say more on standard error (-v, -vv, -vvv)
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Say only errors on standard error
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// What to do
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

While it runs: Ctrl-C (SIGINT) or SIGTERM ends the run with its report, SIGHUP
reads rules and routes again, SIGUSR1 writes out what the NFs have collected.")]
    Run(Run),
    /// Check a chain file and show the chain, without running it
    #[command(after_help = "Examples:
  thalweg check chain.toml
  thalweg check chain.toml --format dot | dot -Tsvg > chain.svg
  thalweg check chain.toml --format mermaid")]
    Check(Check),
    /// Make synthetic traffic
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
    /// Say where the cycles of a packet go, for several kinds of traffic
    #[command(after_help = "Examples:
  thalweg profile
  thalweg profile --svg profile.svg
  thalweg profile --emc-entries 0 --json")]
    Profile(Profile),
    /// Simulate flow lookups: software, near-cache accelerators, ternary memory
    #[command(subcommand)]
    Sim(Sim),
    /// Say what this machine has for packet processing, and what it would gain
    #[command(after_help = "Examples:
  thalweg doctor
  thalweg doctor --json")]
    Doctor(Doctor),
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

/// Commands of `thalweg nf`.
#[derive(Debug, Subcommand)]
pub enum Nf {
    /// Name the kinds of network function
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
        /// Which kind
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
    /// Print the report as JSON (schema thalweg.run/1)
    #[arg(long)]
    pub json: bool,
    /// End after this time: a number with ms, s, m or h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// End after this many packets were received
    #[arg(long, value_name = "PACKETS")]
    pub count: Option<u64>,
    /// Worker threads; flows are spread over them [default: the chain file's, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Send each input this many times, 0 for ever [default: the chain file's, else 1]
    #[arg(long = "loop", value_name = "N")]
    pub loops: Option<u64>,
    /// Take over the NFs' state that another run left in this folder, all of it
    #[arg(long, value_name = "FOLDER")]
    pub import_state: Option<PathBuf>,
    /// Leave the NFs' state in this folder at the end; made if need be
    #[arg(long, value_name = "FOLDER")]
    pub export_state: Option<PathBuf>,
}

/// Arguments of `thalweg check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The chain file
    pub chain: PathBuf,
    /// How to show the chain
    #[arg(long, value_enum, default_value_t = GraphFormat::Tree, conflicts_with = "json")]
    pub format: GraphFormat,
    /// Print the chain as JSON (schema thalweg.check/1)
    #[arg(long)]
    pub json: bool,
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

/// Arguments of `thalweg trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// The chain file
    pub chain: PathBuf,
    /// The packet to explain, counted from 1 in the order of receive
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: u64,
    /// Print the trace as JSON (schema thalweg.trace/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg profile`.
#[derive(Debug, Args)]
pub struct Profile {
    /// Print the profile as JSON (schema thalweg.profile/1)
    #[arg(long)]
    pub json: bool,
    /// Draw the profile as stacked bars into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Packets to send for each kind of traffic
    #[arg(long, value_name = "N", default_value_t = 8_000_000,
        value_parser = clap::value_parser!(u64).range(1000..))]
    pub packets: u64,
    /// Places of the exact-match cache, 0 to do without
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub emc_entries: usize,
}

/// The commands of `thalweg sim`.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Simulate one workload by several methods and compare them
    #[command(after_help = "Examples:
  thalweg sim run
  thalweg sim run --set workload.entries=1048576 --set workload.stream=dependent
  thalweg sim run machine.toml --method lock-free,halo-blocking --json")]
    Run(SimRun),
    /// Simulate every combination of some settings, one line of JSON for each
    #[command(after_help = "Examples:
  thalweg sim sweep --over workload.entries=1024,131072 --over workload.occupancy=0.25,0.75 out.jsonl
  thalweg sim sweep --over workload.tuples=5,10,15,20 --set workload.entries=1024 tuples.jsonl

A sweep that was stopped goes on where it was when it is started again with the same
file: what it holds is not simulated again.")]
    Sweep(SimSweep),
    /// Simulate a writer beside readers: what lookups miss while entries are displaced
    #[command(after_help = "Examples:
  thalweg sim race
  thalweg sim race --set workload.entries=64 --set race.readers=16 --json

Keys that are always there are looked up while others come and go, under each guard: none,
the change counter of software, the locks of accelerators.")]
    Race(SimRace),
    /// Write the queries of an accelerator step by step, for its RTL
    #[command(after_help = "Examples:
  thalweg sim queries --set workload.method=halo-blocking > queries.txt

rtl/check.sh runs the accelerator in SystemVerilog on them.")]
    Queries(SimConfig),
    /// Simulate what the HALO paper claims, and say what of it holds
    #[command(after_help = "Examples:
  thalweg sim claims --out report
  thalweg sim claims --out report --set llc.tag_data=24

Writes figures (SVG and CSV), tables and claims.md into the folder. What was simulated is
kept in runs.jsonl there: started again, it goes on where it was stopped.")]
    Claims(SimPaper),
    /// Simulate and draw one figure of the HALO paper
    #[command(after_help = "Examples:
  thalweg sim figure 11 --out report")]
    Figure(SimNumber),
    /// Simulate and print one table of the HALO paper
    #[command(after_help = "Examples:
  thalweg sim table 4 --out report")]
    Table(SimNumber),
    /// Measure this machine's caches by a pointer chase, and print them as a configuration
    #[command(after_help = "Examples:
  thalweg sim calibrate --out host.toml
  thalweg sim run host.toml

Measures only the time of loads that wait for each other, through more and more memory; what
the core has (width, queues, ports) is that of the configuration it begins with.")]
    Calibrate(SimCalibrate),
    /// Look keys up in our own cuckoo table on this machine, and say what is simulated
    ///
    /// FILE is the machine's configuration, as `thalweg sim calibrate` writes it. Nothing that
    /// is measured here goes into what is simulated.
    #[command(after_help = "Examples:
  thalweg sim calibrate --out host.toml && thalweg sim predict host.toml
  thalweg sim predict host.toml --places 10,17 --json")]
    Predict(SimPredict),
    /// Print the whole configuration, with its defaults
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
    /// A setting on top of the file's; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Arguments of `thalweg sim run`.
#[derive(Debug, Args)]
pub struct SimRun {
    #[command(flatten)]
    pub config: SimConfig,
    /// Who looks up, instead of workload.method [default: all]
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
    /// The most memory to chase through; it has to be much more than the last cache
    #[arg(long, value_name = "MIB", default_value_t = 192,
        value_parser = clap::value_parser!(u64).range(16..=65536))]
    pub most: u64,
}

/// Arguments of `thalweg sim predict`.
#[derive(Debug, Args)]
pub struct SimPredict {
    #[command(flatten)]
    pub config: SimConfig,
    /// Logarithms of the numbers of places of the tables
    #[arg(long, value_name = "BITS,...", value_delimiter = ',', default_value = "6,10,14,17,20",
        value_parser = clap::value_parser!(u32).range(3..=26))]
    pub places: Vec<u32>,
    /// Print what was measured and simulated as JSON (schema thalweg.sim.predict/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg sim race`.
#[derive(Debug, Args)]
pub struct SimRace {
    #[command(flatten)]
    pub config: SimConfig,
    /// Print what was seen as JSON
    #[arg(long)]
    pub json: bool,
}

/// What many simulations have in common.
#[derive(Debug, Args)]
pub struct SimGrid {
    /// A file with settings that differ from the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A setting that all have, on top of the file's; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    pub settings: Vec<String>,
    /// Simulations at the same time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Arguments of `thalweg sim claims`.
#[derive(Debug, Args)]
pub struct SimPaper {
    /// The folder to write into; made if need be
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    #[command(flatten)]
    pub grid: SimGrid,
}

/// Arguments of `thalweg sim figure` and `thalweg sim table`.
#[derive(Debug, Args)]
pub struct SimNumber {
    /// Its number in the paper
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
    /// Seed of all random choices; the same seed makes the same bytes
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many packets [default: 10000]
    #[arg(long, value_name = "N")]
    pub packets: Option<u64>,
    /// How many flows they belong to [default: 100]
    #[arg(long, value_name = "N")]
    pub flows: Option<u32>,
    /// Skew of the flows' popularity after Zipf [default: all alike]
    #[arg(long, value_name = "SKEW")]
    pub zipf: Option<f64>,
    /// Frame sizes with frame check sequence: imix, 64, 64-1500, or 64:7,594:4 [default: imix]
    #[arg(long, value_name = "SIZES")]
    pub size: Option<String>,
    /// Share of TCP flows, in proportion [default: 70]
    #[arg(long, value_name = "WEIGHT")]
    pub tcp: Option<f64>,
    /// Share of UDP flows, in proportion [default: 25]
    #[arg(long, value_name = "WEIGHT")]
    pub udp: Option<f64>,
    /// Share of ICMP flows, in proportion [default: 5]
    #[arg(long, value_name = "WEIGHT")]
    pub icmp: Option<f64>,
    /// Share of SCTP flows, in proportion [default: 0]
    #[arg(long, value_name = "WEIGHT")]
    pub sctp: Option<f64>,
    /// Share of flows over IPv6, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub ipv6: Option<f64>,
    /// VLAN ids of tagged flows [default: 10]
    #[arg(long, value_name = "VID,...", value_delimiter = ',')]
    pub vlan: Vec<u16>,
    /// Share of flows with a VLAN tag, 0 to 1 [default: 0, or 1 with --vlan]
    #[arg(long, value_name = "SHARE")]
    pub vlan_share: Option<f64>,
    /// Share of tagged flows with a second, outer tag [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub qinq_share: Option<f64>,
    /// Where clients are [default: 10.0.0.0/16 and 2001:db8:a::/64]
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Where servers are [default: 198.51.100.0/24 and 2001:db8:b::/64]
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// Ports that servers listen on [default: 80,443,53,22,25,123,8080]
    #[arg(long, value_name = "PORT,...", value_delimiter = ',')]
    pub server_ports: Vec<u16>,
    /// Share of packets with a header that is cut or wrong, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub malformed: Option<f64>,
    /// Share of packets that are attacks (floods, fragments, contradicting segments, messages
    /// without end, forged ends and errors), 0 to 1; without a number all [default: 0]
    #[arg(long, value_name = "SHARE", num_args = 0..=1, default_missing_value = "1")]
    pub hostile: Option<f64>,
    /// Packets a second, in the capture's time [default: 100000]
    #[arg(long, value_name = "PACKETS")]
    pub rate: Option<f64>,
    /// What fills the packets [default: random]
    #[arg(long, value_enum)]
    pub payload: Option<Filling>,
    /// Print what was made as JSON (schema thalweg.gen/1)
    #[arg(long)]
    pub json: bool,
}

/// What fills generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Filling {
    /// Random bytes
    Random,
    /// Zeros
    Zeros,
    /// Text like HTTP
    Http,
}

/// Reads `10s`, `1500ms`, `2m`, `1h`, `0.5s`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no time; expected a number with ms, s, m or h, as in 10s");
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
