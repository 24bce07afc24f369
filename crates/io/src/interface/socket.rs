//! A packet socket (packet(7)): all calls to the system.
//!
//! `unsafe` here: system calls that take pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use arrayvec::ArrayVec;
use libc::{c_int, c_void, socklen_t};
use thalweg_packet::BATCH;
use thalweg_source::poll::wait_writable;

/// Every protocol, in the byte order that a packet socket expects.
const EVERY_PROTOCOL: u16 = (libc::ETH_P_ALL as u16).to_be();

const NO_ADDRESS: libc::sockaddr_ll = libc::sockaddr_ll {
    sll_family: libc::AF_PACKET as u16,
    sll_protocol: 0,
    sll_ifindex: 0,
    sll_hatype: 0,
    sll_pkttype: 0,
    sll_halen: 0,
    sll_addr: [0; 8],
};

/// A group of sockets, of whose interface's packets a classic BPF program chooses the socket. The packets
/// that the host itself sends are left out (since Linux 5.15; before, the flag has no effect).
const GROUP: u32 = (libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING) << 16;

/// A raw packet socket.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    /// An error that a call to receive has returned in place of a packet; 0 if there was none.
    pending: AtomicI32,
}

impl PacketSocket {
    /// Opens a socket, which receives no packets until it is bound.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd: RawFd = checked(fd)?;
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, pending: AtomicI32::new(0) })
    }

    /// Binds it to an interface, to receive all of its packets or none; returns the interface's
    /// ARP hardware type.
    pub(super) fn bind(&self, index: c_int, receives: bool) -> io::Result<u16> {
        let address = libc::sockaddr_ll {
            sll_protocol: if receives { EVERY_PROTOCOL } else { 0 },
            sll_ifindex: index,
            ..NO_ADDRESS
        };
        let len = size_of::<libc::sockaddr_ll>() as socklen_t;
        let place = (&raw const address).cast::<libc::sockaddr>();
        // SAFETY: the address has the length passed.
        checked(unsafe { libc::bind(self.raw(), place, len) })?;
        Ok(self.address()?.sll_hatype)
    }

    /// The address that it is bound to.
    fn address(&self) -> io::Result<libc::sockaddr_ll> {
        let mut address = NO_ADDRESS;
        let mut len = size_of::<libc::sockaddr_ll>() as socklen_t;
        let place = (&raw mut address).cast::<libc::sockaddr>();
        // SAFETY: the address is written to, up to the length passed.
        checked(unsafe { libc::getsockname(self.raw(), place, &raw mut len) })?;
        Ok(address)
    }

    /// Whether the interface that it is bound to still exists: the kernel unbinds the sockets of
    /// one that it removes, or moves to another network namespace.
    pub(crate) fn has_interface(&self) -> bool {
        self.address().is_ok_and(|address| address.sll_ifindex > 0)
    }

    /// Sets an option to a value, which is a C integer or a structure of the option.
    pub(super) fn set<T: Copy>(&self, level: c_int, option: c_int, value: T) -> io::Result<()> {
        let place = (&raw const value).cast::<c_void>();
        let len = size_of::<T>() as socklen_t;
        // SAFETY: the value has the length passed, and is only read.
        checked(unsafe { libc::setsockopt(self.raw(), level, option, place, len) }).map(drop)
    }

    fn get<T: Copy>(&self, level: c_int, option: c_int, mut value: T) -> io::Result<T> {
        let place = (&raw mut value).cast::<c_void>();
        let mut len = size_of::<T>() as socklen_t;
        // SAFETY: at most the value's length is written. All types that this is called with are
        // made of integers, for which all bytes are values.
        checked(unsafe { libc::getsockopt(self.raw(), level, option, place, &raw mut len) })?;
        Ok(value)
    }

    /// Attaches a filter: packets for which it returns 0 are not received.
    pub(super) fn attach(&self, instructions: &[libc::sock_filter]) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program(instructions)?)
    }

    /// Detaches the filter.
    pub(super) fn detach(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0 as c_int)
    }

    /// Makes a group of this socket alone, which is bound: each packet goes to one socket of it. The
    /// program returns a number for each packet, whose remainder is the place of its socket. Returns the
    /// identifier of the group.
    pub(super) fn found_group(&self, steering: &[libc::sock_filter]) -> io::Result<u32> {
        const NEW: u32 = GROUP | (libc::PACKET_FANOUT_FLAG_UNIQUEID << 16);
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, NEW)?;
        let group = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT, 0_u32)?;
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program(steering)?)?;
        Ok(group & 0xffff)
    }

    /// Joins the group with this identifier, at the last place.
    pub(super) fn join_group(&self, group: u32) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, GROUP | group)
    }

    /// Enables promiscuous mode of the interface.
    pub(crate) fn hear_all(&self, index: c_int) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
    }

    /// The number of packets lost for lack of room since the last call.
    pub(super) fn missed(&self) -> u64 {
        let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let stats = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, none);
        stats.map_or(0, |stats| u64::from(stats.tp_drops))
    }

    /// The socket's pending error since the last call, such as that its interface went down.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        match self.pending.swap(0, Ordering::Relaxed) {
            0 => {}
            code => return Some(io::Error::from_raw_os_error(code)),
        }
        match self.get(libc::SOL_SOCKET, libc::SO_ERROR, 0 as c_int) {
            Ok(0) => None,
            Ok(code) => Some(io::Error::from_raw_os_error(code)),
            Err(error) => Some(error),
        }
    }

    /// Sends packets, as many as there is room for; at least one, or returns the error of the
    /// first. Each is in pieces.
    pub(super) fn send<'a, const N: usize>(
        &self,
        packets: impl Iterator<Item = ArrayVec<&'a [u8], N>>,
    ) -> io::Result<usize> {
        let packets = packets.take(BATCH).collect::<ArrayVec<_, BATCH>>();
        let mut pieces = packets
            .iter()
            .map(|pieces| pieces.iter().map(|piece| vector(piece)).collect::<ArrayVec<_, N>>())
            .collect::<ArrayVec<_, BATCH>>();
        let mut messages = pieces
            .iter_mut()
            .map(|pieces| {
                // SAFETY: zeros are a header without address, pieces and control.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = pieces.as_mut_ptr();
                message.msg_hdr.msg_iovlen = pieces.len();
                message
            })
            .collect::<ArrayVec<_, BATCH>>();
        let (first, count) = (messages.as_mut_ptr(), messages.len() as u32);
        // SAFETY: `count` headers are at `first`; their pieces are alive, and only read.
        let sent = unsafe { libc::sendmmsg(self.raw(), first, count, libc::MSG_DONTWAIT) };
        checked(sent).map(|sent| sent as usize)
    }

    /// Reads the next packet that was too long for the ring: its first bytes into `header`, the
    /// others into `buffer`. Returns the number of the latter.
    pub(super) fn receive(&self, header: &mut [u8], buffer: &mut [u8]) -> io::Result<usize> {
        let mut pieces = [vector_mut(header), vector_mut(buffer)];
        // SAFETY: zeros are a header without address, pieces and control.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        let mut read = || {
            // SAFETY: at most the lengths of the pieces are written, which are borrowed mutably.
            let len = unsafe { libc::recvmsg(self.raw(), &raw mut message, libc::MSG_DONTWAIT) };
            usize::try_from(len).map_err(|_| io::Error::last_os_error())
        };
        let mut len = read();
        if let Err(error) = &len
            && error.kind() != io::ErrorKind::WouldBlock
        {
            // A pending error, such as that the interface went down, comes before the packet, which
            // stays there: the next call would take it for another one.
            self.pending.store(error.raw_os_error().unwrap_or(0), Ordering::Relaxed);
            len = read();
        }
        len.map(|len| len.saturating_sub(header.len()))
    }

    /// Waits until packets can be sent, at most for `most`.
    pub(super) fn wait_for_room(&self, most: Duration) {
        wait_writable(&self.fd, most);
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The index of the interface with this name.
pub(crate) fn index_of(name: &str) -> Option<c_int> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    c_int::try_from(index).ok().filter(|index| *index != 0)
}

/// The MTU of an interface, in bytes after the link header; by any socket.
pub(crate) fn mtu(socket: impl AsFd, name: &str) -> io::Result<usize> {
    let mut request = request_for(name);
    // SAFETY: the request has the form that this call expects.
    checked(unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGIFMTU, &raw mut request)
    })?;
    // SAFETY: the call has written the MTU there.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or_default())
}

/// The name of an interface's driver: `veth`, `mlx5_core`.
pub(crate) fn driver(socket: impl AsFd, name: &str) -> io::Result<String> {
    /// `struct ethtool_drvinfo`, of which only the first fields are of interest.
    #[repr(C)]
    struct DriverInfo {
        command: u32,
        driver: [u8; 32],
        others: [u8; 160],
    }
    const GET_DRIVER: u32 = 3;
    let mut info = DriverInfo { command: GET_DRIVER, driver: [0; 32], others: [0; 160] };
    let mut request = request_for(name);
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the request points to a structure of the length that this command writes.
    checked(unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as _, &raw mut request) })?;
    let name = info.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// A request about an interface.
pub(crate) fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: zeros are a request without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name[..libc::IF_NAMESIZE - 1].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// The names of this machine's network interfaces.
pub fn interfaces() -> Vec<String> {
    // SAFETY: takes nothing.
    let list = unsafe { libc::if_nameindex() };
    let mut names = Vec::new();
    if list.is_null() {
        return names;
    }
    for at in 0.. {
        // SAFETY: the list ends with an entry without a name, and the loop stops there.
        let entry = unsafe { *list.wrapping_add(at) };
        if entry.if_name.is_null() {
            break;
        }
        // SAFETY: a name of the list ends with zero.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        names.push(name.to_string_lossy().into_owned());
    }
    // SAFETY: it is the list that was returned, and nothing refers to it any more.
    unsafe { libc::if_freenameindex(list) };
    names
}

/// A piece of a message, as the system describes it.
fn vector(piece: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }
}

/// The same, to be written to.
fn vector_mut(piece: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }
}

/// A classic BPF program, as the system describes it. The kernel copies the instructions, and only reads
/// them.
fn program(instructions: &[libc::sock_filter]) -> io::Result<libc::sock_fprog> {
    let len = u16::try_from(instructions.len())
        .map_err(|_| io::Error::other("the program has more than 65535 instructions"))?;
    Ok(libc::sock_fprog { len, filter: instructions.as_ptr().cast_mut() })
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
