//! Sockets of the control channel (SOCK_SEQPACKET), with descriptors beside messages.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};

use super::Fault;
use super::address::Address;
use super::message::{LEN, Message};

/// The descriptors that are taken from a message: one is expected, further ones are closed.
const DESCRIPTORS: usize = 4;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// What was read from a control socket.
pub(super) enum Heard {
    Message(Message, Option<OwnedFd>),
    Nothing,
    /// The peer has closed it, or it failed.
    Ended,
}

/// One end of a control channel. No call waits.
#[derive(Debug)]
pub(super) struct ControlSocket(OwnedFd);

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl ControlSocket {
    /// Connects to a server.
    pub(super) fn connect(address: &Address) -> io::Result<Self> {
        let socket = new_socket()?;
        connect(&socket, &address.socket()?)?;
        Ok(Self(socket))
    }

    /// Sends a message, and a descriptor with it.
    pub(super) fn send(&self, message: &Message, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = message.encode();
        let with: Vec<_> = with.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&with));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        if sent == LEN { Ok(()) } else { Err(Errno::MSGSIZE) }
    }

    /// Reads the next message.
    pub(super) fn hear(&self) -> Result<Heard, Fault> {
        // One byte more, so that a longer message shows.
        let mut bytes = [0; LEN + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let read = match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(read) => read.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Heard::Nothing),
            Err(_) => return Ok(Heard::Ended),
        };
        let mut with = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // Further ones are closed here.
                descriptors.for_each(|descriptor| with = with.take().or(Some(descriptor)));
            }
        }
        if read == 0 {
            return Ok(Heard::Ended);
        }
        Ok(Heard::Message(Message::decode(&bytes[..read])?, with))
    }
}

impl From<OwnedFd> for ControlSocket {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The socket on which a server listens; its file is removed with it.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    address: Address,
}

impl Listener {
    /// Listens at `address`. A file that a server left there which no longer runs is replaced.
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        let socket = new_socket()?;
        let place = address.socket()?;
        if let Err(error) = bind(&socket, &place) {
            let path = address.path().filter(|_| error == Errno::ADDRINUSE).ok_or(error)?;
            // Nobody listens: the file is a leftover.
            let is_left = matches!(ControlSocket::connect(address), Err(Errno::CONNREFUSED));
            if !is_left {
                return Err(error);
            }
            rustix::fs::unlink(path)?;
            bind(&socket, &place)?;
        }
        let listener = Self { socket, address: address.clone() };
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// The next client that waits; `None` if there is none.
    pub(super) fn accept(&self) -> Option<ControlSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        accept_with(&self.socket, flags).ok().map(ControlSocket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = self.address.path() {
            let _ = rustix::fs::unlink(path);
        }
    }
}
