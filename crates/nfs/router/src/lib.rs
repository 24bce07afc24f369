//! The `router` NF: IPv4 and IPv6 longest-prefix-match routing.
//!
//! [`RouteTable`] looks up the [`NextHop`] of an address: IPv4 by DIR-24-8,
//! IPv6 by a compressed multibit trie; both are changed while they are read.
//! [`parse_routes`] reads the route file. A packet is checked (`check`), looked
//! up together with its batch and forwarded (`forward`), fragmented if it is too long
//! (`thalweg_nf::toolkit::fragment`), or answered if it is for the router itself (`local`). MAC addresses that
//! are not configured are resolved (`resolve`, `neighbors`). Routes and neighbours of the Linux kernel
//! are followed by netlink (`kernel`).

mod check;
mod config;
pub mod device;
mod dir24_8;
mod file;
mod forward;
mod kernel;
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
use toml::Spanned;

use self::config::{Config, Options};
use self::device::{HOP, MOST_BYTES};
use self::forward::{Router, Shared};
use self::kernel::{Follow, Follower};
use thalweg_nf::device::DeviceWork;
use thalweg_nf::{
    Blueprint, BuildError, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
};

pub use config::{Port, Ports};
pub use file::{ParsedRoutes, parse_routes};
pub use kernel::replay_netlink;
pub use prefix::{Address, IpPrefix, Prefix};
pub use table::{
    Changes, HopId, MAX_HOPS, Mac, NextHop, ReaderV6, RouteList, RouteTable, RouterPort, TableError,
};

/// A checked router.
struct RouterBlueprint {
    ports: Ports,
    icmp_rate: u32,
    routes: Routes,
    warnings: Vec<SourceError>,
}

/// Where the routes of a router come from.
enum Routes {
    /// From its file, in its table.
    File(Arc<Shared>),
    /// From a table of the kernel; those of the file, and to the router itself, are fixed.
    Kernel { table: u32, fixed: RouteList },
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
    runs_on_devices: true,
    bypass_hazard: Some("packets would leave without a next hop"),
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let config = Config::read(section, environment).map_err(BuildError)?;
    let (source, parsed) = match &config.routes {
        Some(routes) => {
            let source = section.read(routes.span(), routes.get_ref())?;
            let parsed = parse_routes(&source, &config.ports).map_err(BuildError)?;
            (Some(source), parsed)
        }
        None => (None, file::own_routes(&config.ports)),
    };
    let (ports, icmp_rate) = (config.ports, config.icmp_rate);
    let mut warnings = parsed.warnings;
    let routes = if let Some(table) = config.kernel_table {
        warnings.extend(check_kernel(section, &table)?);
        Routes::Kernel { table: table.into_inner(), fixed: parsed.list }
    } else {
        let table = RouteTable::new();
        table.replace(parsed.list).map_err(|error| {
            let (message, expected) = (error.to_string(), "a table within the router's limits");
            match &source {
                Some(source) => source.error(0..0, message, expected),
                None => section.error(section.span(), &message, expected),
            }
        })?;
        Routes::File(Arc::new(Shared::new(table, ports.clone(), icmp_rate)))
    };
    Ok(Box::new(RouterBlueprint { ports, icmp_rate, routes, warnings }))
}

/// Checks that a table of the kernel can be read; returns a warning if it has no routes.
fn check_kernel(
    section: &Section<'_>,
    table: &Spanned<u32>,
) -> Result<Option<SourceError>, SourceError> {
    let number = *table.get_ref();
    let found = kernel::open(number).and_then(|(mut feed, _)| kernel::has_routes(&mut *feed));
    match found {
        Ok(true) => Ok(None),
        Ok(false) => {
            let message = format!("the kernel's table {number} has no routes yet");
            let expected = "the number of a table with routes, as of `ip route show table all`";
            Ok(Some(section.error(table.span(), &message, expected)))
        }
        Err(error) => {
            let message = format!("cannot follow the kernel's routes: {error}");
            Err(section.error(table.span(), &message, "Linux, and permission to use netlink"))
        }
    }
}

impl RouterBlueprint {
    /// A router that follows a table of the kernel, with what is in that now.
    fn following(&self, number: u32, fixed: &RouteList) -> Router {
        let table = RouteTable::new();
        if let Err(error) = table.replace(fixed.clone()) {
            log::error!("router: the routes of the file do not fit: {error}");
        }
        let shared = Arc::new(Shared::new(table, self.ports.clone(), self.icmp_rate));
        match kernel::open(number) {
            Ok((feed, stop)) => {
                let follow = Follow::new(number, shared.clone(), fixed);
                Router::following(shared, Follower::start(follow, feed, stop))
            }
            Err(error) => {
                log::error!("router: cannot follow the kernel's routes: {error}");
                Router::new(shared)
            }
        }
    }
}

impl Blueprint for RouterBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(match &self.routes {
            Routes::File(shared) => Router::new(shared.clone()),
            Routes::Kernel { table, fixed } => self.following(*table, fixed),
        })
    }

    fn device_work(&self) -> Option<DeviceWork> {
        let Routes::File(shared) = &self.routes else { return None };
        let (table, mark) = shared.view.load().table.for_device(MOST_BYTES);
        shared.mark.get_or_init(|| mark);
        Some(DeviceWork { function: HOP, table: table.into(), alternatives: None })
    }

    // The first half changes no state, and every packet has a second one.
    fn overlaps_on_device(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let ports = self.ports.names();
        let noun = if self.ports.iter().count() == 1 { "port" } else { "ports" };
        match &self.routes {
            Routes::File(shared) => {
                let (v4, v6) = shared.view.load().table.len();
                format!("{v4} IPv4 and {v6} IPv6 routes over {noun} {ports}")
            }
            Routes::Kernel { table, fixed } => {
                let (v4, v6) = fixed.len();
                format!(
                    "the kernel's table {table} and {v4} IPv4 and {v6} IPv6 routes over {noun} {ports}"
                )
            }
        }
    }

    fn warnings(&self) -> &[SourceError] {
        &self.warnings
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let same = |old: &&Self| (&old.ports, old.icmp_rate) == (&self.ports, self.icmp_rate);
        let old = old.downcast().filter(same)?;
        // A router that follows the kernel begins again with what is there.
        let (Routes::File(_), Routes::File(shared)) = (&old.routes, &self.routes) else {
            return None;
        };
        let shared = shared.clone();
        Some(Box::new(|instance| {
            let router = instance.downcast_mut::<Router>()?;
            Some(Box::new(router.renew(shared)))
        }))
    }
}
