//! The source of netlink messages.

use std::io;
use std::time::Duration;

use super::message::{Message, messages};

/// What the kernel can be requested to dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dump {
    /// Interfaces.
    Links,
    /// Addresses of interfaces.
    Addresses,
    /// Next-hop objects.
    Objects,
    /// Neighbours.
    Neighbors,
    /// IPv4 routes of the followed table.
    RoutesV4,
    /// IPv6 routes of the followed table.
    RoutesV6,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Changes have arrived.
    Changes,
    /// Nothing has arrived in time.
    Nothing,
    /// The follower has to end.
    Stop,
}

/// Netlink datagrams: changes as they happen, and dumps on request.
pub(crate) trait Feed: Send {
    /// Requests a dump, in place of the one before.
    fn request(&mut self, dump: Dump) -> io::Result<()>;

    /// Waits for the next datagram of the dump.
    fn dumped(&mut self, datagram: &mut Vec<u8>) -> io::Result<()>;

    /// Waits for changes.
    fn wait(&mut self, most: Duration) -> io::Result<Woken>;

    /// Takes the next datagram of changes; returns whether there was one. An error means that
    /// changes are lost.
    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<bool>;
}

/// The end of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything was dumped.
    Complete,
    /// The kernel's table changed meanwhile, so that something may be missing.
    Interrupted,
}

/// The kernel's numbers of errors, which all architectures of Linux share.
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Requests a dump, and hands `each` of its messages out. What the kernel does not have (no such
/// table, no such kind of object) is an empty dump.
pub(crate) fn dump(
    feed: &mut dyn Feed,
    dump: Dump,
    mut each: impl FnMut(Message),
) -> io::Result<End> {
    feed.request(dump)?;
    let mut datagram = Vec::new();
    let mut end = End::Complete;
    loop {
        feed.dumped(&mut datagram)?;
        for (header, message) in messages(&datagram) {
            if header.is_interrupted() {
                end = End::Interrupted;
            }
            match message {
                Message::Done(0 | ENOENT | EOPNOTSUPP) | Message::Failed(ENOENT | EOPNOTSUPP) => {
                    return Ok(end);
                }
                // Kernels before 5.3 have no next-hop objects.
                Message::Failed(EINVAL) if dump == Dump::Objects => return Ok(end),
                Message::Done(error) | Message::Failed(error) => {
                    return Err(io::Error::from_raw_os_error(error));
                }
                message => each(message),
            }
        }
    }
}

/// Whether the followed table has a route, as far as its first messages tell.
pub(crate) fn has_routes(feed: &mut dyn Feed) -> io::Result<bool> {
    let mut datagram = Vec::new();
    for dump in [Dump::RoutesV4, Dump::RoutesV6] {
        feed.request(dump)?;
        feed.dumped(&mut datagram)?;
        if messages(&datagram).any(|(_, message)| matches!(message, Message::Route { .. })) {
            return Ok(true);
        }
    }
    Ok(false)
}
