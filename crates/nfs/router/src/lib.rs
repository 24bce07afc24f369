//! The `router` NF: IPv4 and IPv6 longest-prefix-match routing.
//!
//! [`RouteTable`] looks up the [`NextHop`] of an address: IPv4 by DIR-24-8,
//! IPv6 by a compressed multibit trie; both are changed while they are read.
//! [`parse_routes`] reads the route file. A packet is checked (`check`), looked
//! up together with its batch and forwarded (`forward`), fragmented if it is too long
//! (`thalweg_nf::toolkit::fragment`), or answered if it is for the router itself (`local`). MAC addresses that
//! are not configured are resolved (`resolve`, `neighbors`).

mod check;
mod config;
mod dir24_8;
mod file;
mod forward;
mod local;
mod neighbors;
mod prefix;
mod resolve;
mod table;
mod trie6;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_source::SourceError;

use self::config::{Config, Options};
use self::forward::{Router, Shared};
use thalweg_nf::{
    Blueprint, BuildError, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
};

pub use config::{Port, Ports};
pub use file::{ParsedRoutes, parse_routes};
pub use prefix::{Address, IpPrefix, Prefix};
pub use table::{
    Changes, HopId, MAX_HOPS, Mac, NextHop, ReaderV6, RouteList, RouteTable, RouterPort, TableError,
};

/// A checked router, with its table.
struct RouterBlueprint {
    shared: Arc<Shared>,
    warnings: Vec<SourceError>,
}

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "router",
    summary: "IPv4 and IPv6 longest-prefix-match router",
    state: None,
    grain: Grain::None,
    limits: &[
        "48 MiB for IPv4, plus 0.5 KiB for each /24 with longer prefixes in it, at most 32768 /24s",
        "about 26 MiB for a full IPv6 table; at most 1048576 IPv6 routes",
        "32767 different next hops over the life of a table",
        "a packet is dropped (pool-exhausted) if the pool has no frames for all of its fragments",
        "65536 resolved neighbours, 1024 unanswered at a time, 3 packets waiting for each",
    ],
    chooses_output: true,
    keeps_names: true,
    takes_supers: true,
    bypass_hazard: Some("packets would leave without a next hop"),
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let config = Config::read(section, environment).map_err(BuildError)?;
    let source = section.read(config.routes.span(), config.routes.get_ref())?;
    let parsed = parse_routes(&source, &config.ports).map_err(BuildError)?;
    let table = RouteTable::new();
    table.replace(parsed.list).map_err(|error| {
        source.error(0..0, error.to_string(), "a table within the router's limits")
    })?;
    let shared = Shared { table, ports: config.ports, icmp_rate: config.icmp_rate };
    Ok(Box::new(RouterBlueprint { shared: Arc::new(shared), warnings: parsed.warnings }))
}

impl Blueprint for RouterBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Router::new(self.shared.clone()))
    }

    fn describe(&self) -> String {
        let (v4, v6) = self.shared.table.len();
        let ports = self.shared.ports.names();
        let noun = if self.shared.ports.iter().count() == 1 { "port" } else { "ports" };
        format!("{v4} IPv4 and {v6} IPv6 routes over {noun} {ports}")
    }

    fn warnings(&self) -> &[SourceError] {
        &self.warnings
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let same = |old: &&Self| {
            (&old.shared.ports, old.shared.icmp_rate) == (&self.shared.ports, self.shared.icmp_rate)
        };
        old.downcast().filter(same)?;
        let shared = self.shared.clone();
        Some(Box::new(|instance| {
            let router = instance.downcast_mut::<Router>()?;
            Some(Box::new(router.renew(shared)))
        }))
    }
}
