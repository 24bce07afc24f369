//! Live ports: the network interfaces of this machine, by packet sockets (AF_PACKET).
//!
//! An interface is one of Ethernet or the loopback. The kernel's own network stack sees what
//! arrives there as well; whoever wants an interface for thalweg alone gives it no address.

mod arrivals;
mod input;
mod output;
mod ring;
mod socket;

pub use input::InterfaceInput;
pub use output::InterfaceOutput;
pub use socket::{interfaces, wait_any};

use std::io;

use crate::port::IoError;
use socket::PacketSocket;

/// Whether the system lets this program open interfaces.
///
/// # Errors
/// Why not.
pub fn may_use_interfaces() -> io::Result<()> {
    PacketSocket::new().map(drop)
}

/// A new socket and its interface's number; it is not bound yet.
fn open(name: &str) -> Result<(PacketSocket, i32), IoError> {
    let index = socket::index_of(name).ok_or_else(|| gone(name))?;
    let socket =
        PacketSocket::new().map_err(|e| failed(name, "cannot open a packet socket", &e))?;
    Ok((socket, index))
}

/// Binds a socket to an interface, which must be of Ethernet.
fn bind(socket: &PacketSocket, name: &str, index: i32, receives: bool) -> Result<(), IoError> {
    let link = socket.bind(index, receives).map_err(|e| failed(name, "cannot bind to it", &e))?;
    if link != libc::ARPHRD_ETHER && link != libc::ARPHRD_LOOPBACK {
        let what = format!("its link is not Ethernet (ARP hardware type {link})");
        return Err(IoError::Interface { name: name.to_owned(), what });
    }
    Ok(())
}

fn gone(name: &str) -> IoError {
    IoError::Interface { name: name.to_owned(), what: "there is no such interface".into() }
}

fn failed(name: &str, what: &str, error: &io::Error) -> IoError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; that takes root or the capability CAP_NET_RAW",
        _ => "",
    };
    IoError::Interface { name: name.to_owned(), what: format!("{what}: {error}{hint}") }
}
