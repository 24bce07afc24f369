//! Arguments of `thalweg gen`.

use std::path::PathBuf;

use clap::Args;

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
