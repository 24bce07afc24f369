//! NF `l7fw`: a firewall by application, category and host, as nDPI recognises them.

// Without the library nothing is recognised, but the options are still checked.
#[cfg_attr(not(feature = "ndpi"), allow(dead_code))]
mod application;
mod config;
#[cfg(feature = "ndpi")]
mod firewall;
#[cfg(feature = "ndpi")]
mod flows;
#[cfg(feature = "ndpi")]
mod head;
#[cfg(feature = "ndpi")]
mod hello;
#[cfg(feature = "ndpi")]
mod hold;
#[cfg(feature = "ndpi")]
mod host;
#[cfg(feature = "ndpi")]
mod inspect;
#[cfg(feature = "ndpi")]
mod labels;
#[cfg_attr(not(feature = "ndpi"), allow(dead_code))]
mod line;
#[cfg(feature = "ndpi")]
mod ndpi;
#[cfg(feature = "ndpi")]
mod record;
#[cfg(feature = "ndpi")]
mod report;
#[cfg(feature = "ndpi")]
mod rules;
#[cfg(feature = "ndpi")]
mod setup;
#[cfg(feature = "ndpi")]
mod stream;
#[cfg(feature = "ndpi")]
mod watch;

use config::Options;
use thalweg_nf::{Grain, Kind};

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "l7fw",
    summary: "firewall by application, category and host (nDPI)",
    state: Some("flows whose application is known, with what nDPI recognised"),
    grain: Grain::Units,
    limits: &[
        "needs the feature ndpi (Debian's libndpi-dev 4.2)",
        "packets pass before the verdict: a TCP handshake, all segments of a request or ClientHello \
         but the one that completes the host's name, and of other protocols the packets that nDPI \
         needs. undecided = \"hold\" holds those that carry data until the verdict; what exceeds \
         hold_packets, hold_bytes or hold_ms passes, unless hold_exceeded = \"block\"",
        "packets that are held when the run ends or the state moves are lost",
        "the first 64,000 bytes of each direction of a TCP connection are reassembled; a host \
         named later in one request, or after bytes that took another path, is not read",
        "hosts are read from HTTP/1 requests, one after another on a connection, and from TLS \
         ClientHellos; others (QUIC, HTTP/2 without TLS, STARTTLS) as far as nDPI 4.2 \
         reads them, and the name inside an encrypted ClientHello not at all",
        "fragments are not inspected and pass, whatever the rules",
        "a flow whose application is not known yet takes about 2 KiB, plus what nDPI collects of \
         TLS handshakes, and unacknowledged bytes of its start (64 MiB in all; then starts of \
         more than 4 KiB are given up); after a move to another instance its inspection restarts, \
         and requests after the first are not read",
        "max_flows flows: when full, the least recently used of eight is evicted for each new one",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: Some("connections that its rules block would pass"),
    options: || schemars::schema_for!(Options),
    #[cfg(feature = "ndpi")]
    build: setup::build,
    #[cfg(not(feature = "ndpi"))]
    build: without_library,
};

/// The JSON Schema of a line of `flows`: a flow with its verdict.
pub fn line_schema() -> schemars::Schema {
    thalweg_nf::toolkit::output::schema_of::<line::Line<'_>>()
}

/// Reports that this program was built without the library.
#[cfg(not(feature = "ndpi"))]
fn without_library(
    section: &thalweg_nf::Section<'_>,
    _environment: &thalweg_nf::Environment<'_>,
) -> Result<Box<dyn thalweg_nf::Blueprint>, thalweg_nf::BuildError> {
    let _: Options = section.parse()?;
    let message = "this program was built without nDPI";
    Err(section.error(section.span(), message, "a build with the feature ndpi").into())
}

#[cfg(all(test, feature = "ndpi"))]
mod tests;
