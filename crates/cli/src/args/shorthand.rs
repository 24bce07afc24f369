//! The command lines of the commands that need no chain file.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use thalweg_chain::Workers;

use super::{ControlOptions, Observed, duration};

/// Where the packets come from and go to, and how the command runs.
#[derive(Debug, Args)]
pub struct Traffic {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Receive only packets to this machine from interfaces: no promiscuous mode
    #[arg(short = 'p', long, requires = "interface")]
    pub no_promiscuous: bool,
    /// Worker threads, or `auto` for one a processor; their number changes nothing but the speed
    /// [default: 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<Workers>,
    /// Stop after TIME: a number with ms, s, m or h; without a unit, seconds
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Stop after N packets
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Confine nothing, and remain the user that starts the command: for debugging
    #[arg(long)]
    pub no_sandbox: bool,
    /// Treat warnings about the configuration, such as skipped rules, as errors
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub observed: Observed,
    #[command(flatten)]
    pub control: ControlOptions,
    /// Print the chain file that the command stands for, and run nothing
    #[arg(long)]
    pub print_chain: bool,
}

/// The inputs: at least one.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct Inputs {
    /// Read the packets of captures, `-` for standard input
    #[arg(short, long, value_name = "FILE", num_args = 1.., action = ArgAction::Append)]
    pub read: Vec<PathBuf>,
    /// Receive packets from network interfaces, until Ctrl-C, --duration or --count
    #[arg(short, long, value_name = "NAME", num_args = 1.., action = ArgAction::Append)]
    pub interface: Vec<String>,
}

/// Arguments of `thalweg ids`.
#[derive(Debug, Args)]
pub struct Ids {
    #[command(flatten)]
    pub traffic: Traffic,
    /// Files of rules in Snort's syntax
    #[arg(short = 'S', long, value_name = "FILE", required = true, num_args = 1..,
        action = ArgAction::Append)]
    pub rules: Vec<PathBuf>,
    /// Write alerts to FILE as lines of EVE JSON, instead of to standard output
    #[arg(short = 'l', long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Print alerts as lines of EVE JSON (schema thalweg.nids.alert/1)
    #[arg(long)]
    pub json: bool,
    /// The addresses that $HOME_NET stands for: prefixes, separated by commas
    /// [default: the private ones]
    #[arg(long, value_name = "ADDRESSES")]
    pub home_net: Option<String>,
    /// Set another variable of rules, such as HTTP_PORTS=[80,8080]
    #[arg(long, value_name = "NAME=VALUE", action = ArgAction::Append)]
    pub set: Vec<String>,
    /// The checksums to verify: TCP segments with wrong ones join no stream
    #[arg(short = 'k', long, value_enum, default_value_t = Checksums::All)]
    pub checksums: Checksums,
    /// Write the packets that no rule drops to FILE (.pcap, .pcapng, either with .gz), `-` for
    /// standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// The checksums that `thalweg ids` verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Checksums {
    /// Those of IPv4 and TCP
    All,
    /// No checksums, for captures of a sender whose network card computes them
    None,
}

/// Arguments of `thalweg flows`.
#[derive(Debug, Args)]
pub struct Flows {
    #[command(flatten)]
    pub traffic: Traffic,
    /// Print records as lines of JSON (schema thalweg.monitor/2)
    #[arg(long, conflicts_with = "top")]
    pub json: bool,
    /// Write records to FILE as lines of JSON, instead of to standard output
    #[arg(short = 'l', long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// Write records to FILE as IPFIX messages, too
    #[arg(long, value_name = "FILE")]
    pub ipfix: Option<PathBuf>,
    /// Show only the N records with the most bytes, the largest first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub top: Option<u32>,
    /// End the record of a flow after SECONDS without a packet [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,
    /// End the record of a flow that is active for SECONDS; a new one follows [default: 1800]
    #[arg(long, value_name = "SECONDS")]
    pub active_timeout: Option<u64>,
    /// Write the packets to FILE (.pcap, .pcapng, either with .gz), `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Arguments of `thalweg assets`.
#[derive(Debug, Args)]
pub struct Assets {
    #[command(flatten)]
    pub traffic: Traffic,
    /// Print the inventory as lines of JSON (schema thalweg.assets/1)
    #[arg(long)]
    pub json: bool,
    /// Write the inventory to FILE as lines of JSON, instead of to standard output
    #[arg(short = 'l', long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Record only hosts in these networks [default: all hosts]
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    pub networks: Vec<String>,
    /// Files of fingerprints in Thalweg's own format; they take precedence over all others
    #[arg(long, value_name = "FILE", num_args = 1.., action = ArgAction::Append)]
    pub fingerprints: Vec<PathBuf>,
    /// The fingerprint file of p0f 3
    #[arg(long, value_name = "FILE")]
    pub p0f: Option<PathBuf>,
    /// Files of Rapid7's recog, or folders of them
    #[arg(long, value_name = "PATH", num_args = 1.., action = ArgAction::Append)]
    pub recog: Vec<PathBuf>,
    /// Write the packets to FILE (.pcap, .pcapng, either with .gz), `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Arguments of `thalweg nat`.
#[derive(Debug, Args)]
pub struct Nat {
    #[command(flatten)]
    pub traffic: Traffic,
    /// IPv4 prefixes of the inside hosts, which are translated
    #[arg(long, value_name = "PREFIX,...", required = true, value_delimiter = ',')]
    pub inside: Vec<String>,
    /// External addresses, single ones or ranges FIRST-LAST
    #[arg(long, value_name = "ADDRESS,...", required = true, value_delimiter = ',')]
    pub external: Vec<String>,
    /// The range of external ports [default: 1024-65535]
    #[arg(long, value_name = "FIRST-LAST")]
    pub ports: Option<String>,
    /// Which outside hosts may send through a mapping
    #[arg(long, value_enum, default_value_t = Filtering::AddressDependent)]
    pub filtering: Filtering,
    /// Write the translated packets to FILE (.pcap, .pcapng, either with .gz), `-` for standard
    /// output
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Print the report as JSON (schema thalweg.run/1) on standard output
    #[arg(long)]
    pub json: bool,
}

/// The filtering of a NAT (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Filtering {
    /// All hosts
    EndpointIndependent,
    /// Hosts that the inside host has sent to, from any port
    AddressDependent,
    /// Addresses and ports that the inside host has sent to
    AddressAndPortDependent,
}
