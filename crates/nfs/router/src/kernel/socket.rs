//! Netlink messages from the kernel, by sockets of the family `NETLINK_ROUTE`.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netlink_packet_core::NLM_F_DUMP;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use thalweg_source::netlink::{self, Socket as Netlink, SocketAddr, receive};

use super::feed::{Dump, Feed, Woken};
use super::thread::Stop;

/// The receive buffer for changes, in bytes, as far as `rmem_max` permits it: some 50,000 changes.
const BUFFER: u32 = 16 << 20;
/// The longest wait for a datagram of a dump.
const ANSWER: Duration = Duration::from_secs(10);

/// Groups of changes (`RTNLGRP_LINK`, `_NEIGH`, `_IPV4_IFADDR`, `_IPV4_ROUTE`, `_IPV6_IFADDR`,
/// `_IPV6_ROUTE`).
const GROUPS: [u32; 6] = [1, 3, 5, 7, 9, 11];
/// `RTNLGRP_NEXTHOP`, which kernels before 5.3 do not have.
const NEXTHOP: u32 = 32;

/// A feed from the kernel.
pub(crate) struct Socket {
    /// The followed table.
    table: u32,
    changes: Netlink,
    dump: Netlink,
    /// Readable when the follower has to stop.
    stopped: UnixStream,
}

impl Socket {
    /// Subscribes to changes. Returns also what ends the feed's waits when it is dropped.
    pub(crate) fn open(table: u32) -> io::Result<(Self, Stop)> {
        let changes = netlink::open()?;
        // As much as is permitted.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&changes, BUFFER as usize)
            .or_else(|_| {
                rustix::net::sockopt::set_socket_recv_buffer_size(&changes, BUFFER as usize)
            });
        for group in GROUPS {
            changes.add_membership(group)?;
        }
        let _ = changes.add_membership(NEXTHOP);
        let (stop, stopped) = UnixStream::pair()?;
        Ok((Self { table, changes, dump: dump_socket()?, stopped }, Stop(stop)))
    }

    /// Waits until `socket` is readable, the follower has to stop, or the time is over.
    fn wait_for(&self, socket: &Netlink, most: Duration) -> io::Result<Woken> {
        let mut waited = [
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            PollFd::new(&self.stopped, PollFlags::IN),
        ];
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut waited, Some(&most)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Woken::Nothing),
            Ok(_) if !waited[1].revents().is_empty() => Ok(Woken::Stop),
            Ok(_) => Ok(Woken::Changes),
            Err(error) => Err(error.into()),
        }
    }
}

/// A socket that requests dumps of exactly what they name (strict checking).
fn dump_socket() -> io::Result<Netlink> {
    let socket = netlink::open()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Kernels before 4.20 dump all tables, of which the follower takes its own.
    let _ = socket.set_netlink_get_strict_chk(true);
    Ok(socket)
}

impl Feed for Socket {
    fn request(&mut self, dump: Dump) -> io::Result<()> {
        // What is left of a dump that was not read to its end goes with its socket.
        self.dump = dump_socket()?;
        self.dump.send(&request(dump, self.table), 0).map(|_| ())
    }

    fn dumped(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        loop {
            match receive(&self.dump, datagram) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            match self.wait_for(&self.dump, ANSWER)? {
                Woken::Changes => {}
                Woken::Nothing => return Err(io::ErrorKind::TimedOut.into()),
                Woken::Stop => return Err(io::ErrorKind::Interrupted.into()),
            }
        }
    }

    fn wait(&mut self, most: Duration) -> io::Result<Woken> {
        self.wait_for(&self.changes, most)
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<bool> {
        match receive(&self.changes, datagram) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The message that requests a dump.
fn request(dump: Dump, table: u32) -> Vec<u8> {
    let (kind, family, header) = match dump {
        Dump::Links => (18, 0, 16),
        Dump::Addresses => (22, 0, 8),
        Dump::Neighbors => (30, 0, 12),
        Dump::Objects => (106, 0, 8),
        Dump::RoutesV4 => (26, 2, 12),
        Dump::RoutesV6 => (26, 10, 12),
    };
    let mut body = vec![0; header];
    body[0] = family;
    if matches!(dump, Dump::RoutesV4 | Dump::RoutesV6) {
        // RTA_TABLE, as a number of 32 bits.
        netlink::push_attribute(&mut body, 15, &table.to_ne_bytes());
    }
    netlink::request(kind, NLM_F_DUMP, 1, &body)
}
