//! Netlink of the family `NETLINK_ROUTE` (rtnetlink(7)): its sockets, and the framing of its messages.
//!
//! What the fields of a message mean is up to its reader. Lengths are checked here, and no input
//! panics.

#[cfg(target_os = "linux")]
use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer, NlasIterator};
#[cfg(target_os = "linux")]
pub use netlink_sys::{Socket, SocketAddr};

/// The length of a message's header, in bytes.
const HEADER: usize = 16;
/// The length of an attribute's header, in bytes.
const ATTRIBUTE: usize = 4;
/// The most bytes of a datagram: those of the kernel have up to 32 KiB.
#[cfg(target_os = "linux")]
const MOST_BYTES: usize = 1 << 16;

/// The type of a message that reports an error, or acknowledges a request (`NLMSG_ERROR`).
pub const ERROR: u16 = 2;
/// The type of the last message of a dump (`NLMSG_DONE`).
pub const DONE: u16 = 3;

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags (`NLM_F_*`).
    pub flags: u16,
    /// The number of the request that it answers; 0 for changes.
    pub sequence: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// The error number of an [`ERROR`] message, positive; 0 acknowledges a request.
    pub fn error(&self) -> Option<i32> {
        let code = self.body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))?;
        (self.kind == ERROR).then_some(code.wrapping_neg())
    }
}

/// Opens a socket that never waits, and has a number of its own.
///
/// # Errors
/// What the system refuses.
#[cfg(target_os = "linux")]
pub fn open() -> io::Result<Socket> {
    open_family(netlink_sys::protocols::NETLINK_ROUTE)
}

/// As [`open`], of the family `NETLINK_GENERIC`, whose messages have a header of four bytes more.
///
/// # Errors
/// What the system refuses.
#[cfg(target_os = "linux")]
pub fn open_generic() -> io::Result<Socket> {
    open_family(netlink_sys::protocols::NETLINK_GENERIC)
}

#[cfg(target_os = "linux")]
fn open_family(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Receives a datagram of the kernel in place of what `datagram` holds.
///
/// # Errors
/// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none; `ENOBUFS` if the kernel had no room for
/// some of them.
#[cfg(target_os = "linux")]
pub fn receive(socket: &Socket, datagram: &mut Vec<u8>) -> io::Result<()> {
    const KERNEL: u32 = 0;
    loop {
        datagram.clear();
        datagram.reserve(MOST_BYTES);
        let (_, sender) = socket.recv_from(datagram, 0)?;
        // Privileged processes can send datagrams, too.
        if sender.port_number() == KERNEL {
            return Ok(());
        }
    }
}

/// The messages of a datagram; `None`, at its end, for one that is truncated.
pub fn frames(datagram: &[u8]) -> impl Iterator<Item = Option<Frame<'_>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Ok(buffer) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            return Some(None);
        };
        let (kind, length) = (buffer.message_type(), buffer.length() as usize);
        let (flags, sequence) = (buffer.flags(), buffer.sequence_number());
        let body = &rest[HEADER..length];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Some(Frame { kind, flags, sequence, body }))
    })
}

/// Hands out the attributes after the first `header` bytes of `body`; returns `None` if one is
/// truncated, or if `each` does.
pub fn attributes<'a>(
    body: &'a [u8],
    header: usize,
    mut each: impl FnMut(u16, &'a [u8]) -> Option<()>,
) -> Option<()> {
    for attribute in NlasIterator::new(body.get(header..)?) {
        let attribute = attribute.ok()?;
        let value = attribute.into_inner().get(ATTRIBUTE..usize::from(attribute.length()))?;
        each(attribute.kind(), value)?;
    }
    Some(())
}

/// The number of 32 bits at `at`, in the byte order of this machine.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A request with the number `sequence`: `flags` beside `NLM_F_REQUEST`, and what follows the header.
pub fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend(body);
    let length = message.len() as u32;
    let mut buffer = NetlinkBuffer::new(&mut message);
    buffer.set_length(length);
    buffer.set_message_type(kind);
    buffer.set_flags(NLM_F_REQUEST | flags);
    buffer.set_sequence_number(sequence);
    message
}

/// Appends an attribute to a request's body, padded to a multiple of four bytes.
pub fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_are_written() {
        let mut body = vec![1, 2, 3, 4];
        push_attribute(&mut body, 7, b"abc");
        push_attribute(&mut body, 8, &9u32.to_ne_bytes());
        let mut datagram = request(16, 0x300, 5, &body);
        datagram.extend(request(DONE, 0, 6, &[0; 4]));
        let found: Vec<_> = frames(&datagram).map(Option::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].kind, found[0].flags, found[0].sequence), (16, 0x301, 5));
        let mut seen = Vec::new();
        let read = attributes(found[0].body, 4, |kind, value| {
            seen.push((kind, value.to_vec()));
            Some(())
        });
        assert_eq!(read, Some(()));
        assert_eq!(seen, [(7, b"abc".to_vec()), (8, 9u32.to_ne_bytes().to_vec())]);
        assert_eq!((found[1].kind, found[1].sequence), (DONE, 6));
    }

    #[test]
    fn what_is_truncated_is_none_and_nothing_panics() {
        let mut body = vec![0; 4];
        push_attribute(&mut body, 7, &[1; 8]);
        let datagram = request(16, 0, 1, &body);
        for end in 1..datagram.len() {
            assert_eq!(frames(&datagram[..end]).collect::<Vec<_>>(), [None], "{end}");
        }
        for end in 5..body.len() {
            assert_eq!(attributes(&body[..end], 4, |_, _| Some(())), None, "{end}");
        }
        assert_eq!(attributes(&body, 40, |_, _| Some(())), None);
        let refusal = request(ERROR, 0, 1, &(-19i32).to_ne_bytes());
        assert_eq!(frames(&refusal).next().unwrap().unwrap().error(), Some(19));
        assert_eq!(Frame { kind: ERROR, flags: 0, sequence: 0, body: &[1] }.error(), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_answers_requests() {
        let socket = open().unwrap();
        // RTM_GETLINK of the loopback, whose index is 1.
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&1i32.to_ne_bytes());
        socket.send_to(&request(18, 0, 4, &body), &SocketAddr::new(0, 0), 0).unwrap();
        let mut datagram = Vec::new();
        receive(&socket, &mut datagram).unwrap();
        let frame = frames(&datagram).next().unwrap().unwrap();
        assert_eq!((frame.kind, frame.sequence, u32_at(frame.body, 4)), (16, 4, Some(1)));
        let end = receive(&socket, &mut datagram).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
    }
}
