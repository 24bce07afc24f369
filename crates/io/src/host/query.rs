//! Questions to the kernel about routes, addresses and interfaces, by netlink.

use std::os::fd::AsFd;
use std::time::Duration;
use std::{io, iter};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR};
use thalweg_source::netlink::{self, DONE, ERROR, Socket, SocketAddr};
use thalweg_source::poll::wait_readable;

/// The longest wait for a datagram.
const ANSWER: Duration = Duration::from_secs(5);
/// How often a dump is requested that changes interrupt. After that its last answer counts.
const ATTEMPTS: u32 = 3;

/// Sends a request.
fn send(kind: u16, flags: u16, body: &[u8]) -> io::Result<Socket> {
    let socket = netlink::open()?;
    // Before Linux 4.20 it is unknown, and the kernel dumps more than was requested.
    let _ = socket.set_netlink_get_strict_chk(true);
    socket.send_to(&netlink::request(kind, flags, 1, body), &SocketAddr::new(0, 0), 0)?;
    Ok(socket)
}

fn receive(socket: &Socket, datagram: &mut Vec<u8>) -> io::Result<()> {
    wait_readable(iter::once(socket.as_fd()), ANSWER);
    netlink::receive(socket, datagram).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

/// The bodies of the messages of the type `answer` that the kernel dumps for a request, as `read` reads
/// each; those of which it makes nothing are left out.
///
/// # Errors
/// What the kernel refuses, and a message that is truncated.
pub(super) fn dump<T>(
    kind: u16,
    body: &[u8],
    answer: u16,
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        found.clear();
        let is_whole = dump_once(kind, body, answer, |body| found.extend(read(body)))?;
        if is_whole {
            break;
        }
    }
    Ok(found)
}

/// Dumps once; returns whether nothing has changed meanwhile.
fn dump_once(kind: u16, body: &[u8], answer: u16, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
    let socket = send(kind, NLM_F_DUMP, body)?;
    let (mut datagram, mut is_whole) = (Vec::new(), true);
    loop {
        receive(&socket, &mut datagram)?;
        for frame in netlink::frames(&datagram) {
            let frame = frame.ok_or(io::ErrorKind::InvalidData)?;
            is_whole &= frame.flags & NLM_F_DUMP_INTR == 0;
            match frame.kind {
                DONE => return Ok(is_whole),
                ERROR => return Err(refusal(frame.error())),
                kind if kind == answer => each(frame.body),
                _ => {}
            }
        }
    }
}

/// The body of the one message by which the kernel answers a request.
///
/// # Errors
/// What the kernel refuses.
pub(super) fn ask(kind: u16, body: &[u8], answer: u16) -> io::Result<Vec<u8>> {
    let socket = send(kind, 0, body)?;
    let mut datagram = Vec::new();
    receive(&socket, &mut datagram)?;
    for frame in netlink::frames(&datagram).flatten() {
        match frame.kind {
            ERROR => return Err(refusal(frame.error())),
            kind if kind == answer => return Ok(frame.body.to_vec()),
            _ => {}
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn refusal(code: Option<i32>) -> io::Error {
    code.map_or_else(|| io::ErrorKind::InvalidData.into(), io::Error::from_raw_os_error)
}
