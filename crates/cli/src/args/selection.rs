//! Options that select packets.

use clap::Args;
use thalweg_io::{Filter, TIME, TimeRange, parse_time};
use thalweg_packet::Nanoseconds;

/// Which packets are received.
#[derive(Debug, Args)]
pub struct Selected {
    /// Receive only packets captured at TIME or later: 2024-05-01T12:00:00Z (RFC 3339), or seconds
    /// since 1970 [default: the chain file's, else all]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Nanoseconds>,
    /// Receive only packets captured before TIME [default: the chain file's, else all]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Nanoseconds>,
    /// Receive only packets of captures and interfaces that match a filter of pcap-filter(7), such
    /// as 'tcp port 80' [default: the chain file's, else all]
    #[arg(long, value_name = "FILTER", value_parser = Filter::compile)]
    pub filter: Option<Filter>,
}

impl Selected {
    /// The range of captured times.
    pub fn times(&self) -> TimeRange {
        TimeRange { from: self.from, to: self.to }
    }
}

fn time(text: &str) -> Result<Nanoseconds, String> {
    parse_time(text).ok_or_else(|| format!("expected {TIME}"))
}
