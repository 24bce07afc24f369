//! Routes and neighbours of the Linux kernel, followed by netlink (RFC 3549, rtnetlink(7)).
//!
//! A thread of its own ([`thread`]) subscribes to the kernel's changes, then dumps its tables, and
//! from then on applies each change in the order of the kernel ([`follow`]). Messages come from a
//! [`feed`]: the kernel's ([`socket`]), or one of a test. [`message`] reads them, and [`rib`] holds the
//! routes of the followed table, of which the best of each prefix is in the router's own table.
//! `docs/adr/0012-kernel-routes.md` explains the choices.

pub(crate) mod feed;
mod follow;
mod hops;
pub(crate) mod message;
mod rib;
#[cfg(target_os = "linux")]
mod socket;
mod thread;

use std::collections::HashMap;
use std::io;

use thalweg_source::outside;

use super::neighbors::Neighbor;
use super::prefix::IpPrefix;
use super::table::{Mac, RouterPort};

pub(super) use feed::{Feed, has_routes};
pub(super) use follow::Follow;
pub(super) use thread::{Follower, Stop};

/// The MAC addresses of the neighbours that the kernel has resolved.
pub(super) type KernelNeighbors = HashMap<Neighbor, Mac>;

/// Opens a feed from the kernel, for a table of routes; and what stops it.
///
/// # Errors
/// If the system has no netlink, or does not permit its use.
pub(super) fn open(table: u32) -> io::Result<(Box<dyn Feed>, Stop)> {
    #[cfg(target_os = "linux")]
    {
        // A large buffer needs a privilege.
        let (socket, stop) = outside::privileged(|| socket::Socket::open(table))?;
        Ok((Box::new(socket), stop))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = table;
        Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has netlink"))
    }
}

/// The number of prefixes whose routes have a next hop after the changes in a netlink datagram, on a
/// system whose interfaces 1 to 4 are ports: for the fuzzer.
pub fn replay_netlink(datagram: &[u8]) -> usize {
    let ports = (1..=6).map(|link| (link, RouterPort(link as u16))).collect();
    let mut rib = rib::Rib::default();
    for (_, message) in message::messages(datagram) {
        match message {
            message::Message::Route { verb, route } => drop(rib.change(verb, route)),
            message::Message::Object { id, object: Some(object) } => {
                rib.objects.insert(id, object);
            }
            _ => {}
        }
    }
    let known = hops::Known { ports: &ports, objects: &rib.objects };
    let has_hop = |prefix: &IpPrefix| {
        rib.targets(*prefix).any(|target| matches!(known.choose(target), hops::Choice::Hop(_)))
    };
    rib.prefixes().filter(has_hop).count()
}
