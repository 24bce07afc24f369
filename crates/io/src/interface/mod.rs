//! Live ports: the network interfaces of this machine, by packet sockets (AF_PACKET).
//!
//! An interface is Ethernet or the loopback. The kernel's own network stack receives the same
//! packets; to reserve an interface for thalweg, give it no address.

mod arrivals;
mod input;
mod kind;
mod link;
mod output;
mod ring;
mod socket;

pub(crate) use arrivals::{Arrivals, Sink, may_be_fragmented};
pub use input::InterfaceInput;
pub use kind::KIND;
pub(crate) use kind::check_name;
pub(crate) use link::link_of;
pub use output::InterfaceOutput;
pub(crate) use ring::Slot;
pub use socket::interfaces;
pub(crate) use socket::{PacketSocket, driver, index_of, mtu, request_for};

use std::io;

use crate::kind::Refusal;
use crate::port::IoError;

/// Checks that the system permits this program to open interfaces.
///
/// # Errors
/// The reason why it does not.
pub fn may_use_interfaces() -> io::Result<()> {
    PacketSocket::new().map(drop)
}

/// Checks that the interface `name` can be opened, without receiving from it.
///
/// # Errors
/// As [`InterfaceInput::open`].
pub fn check_interface(name: &str) -> Result<(), IoError> {
    let (socket, index) = open(name)?;
    bind(&socket, name, index, false)
}

/// Opens a socket, which is not bound yet, and finds the index of its interface.
pub(crate) fn open(name: &str) -> Result<(PacketSocket, i32), IoError> {
    let index = socket::index_of(name).ok_or_else(|| gone(name))?;
    let socket =
        PacketSocket::new().map_err(|e| failed(name, "cannot open a packet socket", &e))?;
    Ok((socket, index))
}

/// Binds a socket to an interface, which must be Ethernet.
pub(crate) fn bind(
    socket: &PacketSocket,
    name: &str,
    index: i32,
    receives: bool,
) -> Result<(), IoError> {
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

/// Sets a buffer of the socket to `bytes`; without CAP_NET_ADMIN, to at most the system's maximum
/// (`rmem_max`, `wmem_max`).
fn set_buffer(socket: &PacketSocket, force: libc::c_int, plain: libc::c_int, bytes: libc::c_int) {
    let set = |option| socket.set(libc::SOL_SOCKET, option, bytes);
    // If both fail, the buffer keeps the system's default.
    let _ = set(force).or_else(|_| set(plain));
}

/// The error of a port whose interface was removed.
pub(crate) fn removed(name: &str) -> IoError {
    IoError::Removed(name.to_owned())
}

pub(crate) fn failed(name: &str, what: &str, error: &io::Error) -> IoError {
    let what = format!("{what}: {error}");
    if error.kind() != io::ErrorKind::PermissionDenied {
        return IoError::Interface { name: name.to_owned(), what };
    }
    let expected = "to run as root or with the capability CAP_NET_RAW";
    Refusal::new(&[], what, expected).of(format!("interface {name}"))
}
