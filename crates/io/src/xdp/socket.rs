//! An AF_XDP socket (`Documentation/networking/af_xdp.rst`): all calls to the system for it.
//!
//! `unsafe` here: system calls that take pointers.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use thalweg_packet::PacketMemory;

use super::ring::{Consumer, Producer};

/// The options of sockets that the `libc` crate lacks (`asm-generic/socket.h`).
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
/// The packets that a busy poll handles at most.
const BUDGET: c_int = 64;

/// How packet memory is divided for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// The bytes of a chunk, which begins where a frame does.
    pub(super) size: u32,
    /// The bytes left free in a chunk, after those that the kernel leaves free
    /// (`XDP_PACKET_HEADROOM`).
    pub(super) headroom: u32,
}

/// What the kernel has counted since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// Received packets that were lost, but for those of `receive_full`.
    pub(super) dropped: u64,
    /// Received packets for which the receive ring had no room.
    pub(super) receive_full: u64,
    /// Looks at a fill ring that was empty.
    pub(super) fill_empty: u64,
    /// Descriptors of the fill ring that the kernel refused.
    pub(super) invalid_fill: u64,
    /// Descriptors of the transmit ring that the kernel refused.
    pub(super) invalid_transmit: u64,
}

/// The rings of a socket.
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) receive: Consumer<libc::xdp_desc>,
    pub(super) transmit: Producer<libc::xdp_desc>,
    pub(super) completion: Consumer<u64>,
}

/// What a socket is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binding<'a> {
    /// Memory that this socket has registered, with these flags (`XDP_COPY`, ...).
    Own(u16),
    /// The memory of another socket, whose flags hold.
    Shared(BorrowedFd<'a>),
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(super) struct XdpSocket(OwnedFd);

impl XdpSocket {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd = checked(fd)?;
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A file in place of a socket: calls for packets fail.
    #[cfg(any(test, fuzzing))]
    pub(super) fn played(file: OwnedFd) -> Self {
        Self(file)
    }

    /// Makes all of `memory` known to the kernel, which keeps its pages.
    pub(super) fn register(&self, memory: &PacketMemory, chunks: Chunks) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: memory.base().as_ptr().expose_provenance() as u64,
            len: memory.len() as u64,
            chunk_size: chunks.size,
            headroom: chunks.headroom,
            flags: libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, registration)
    }

    /// Makes its rings, of `size` entries each. Must be called before it is bound.
    pub(super) fn make_rings(&self, size: u32) -> io::Result<Rings> {
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            self.set(libc::SOL_XDP, ring, size)?;
        }
        let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let offsets = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
        let at: libc::xdp_mmap_offsets =
            self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, offsets)?;
        let fd = self.0.as_raw_fd();
        Ok(Rings {
            fill: Producer::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, at.fr, size)?,
            receive: Consumer::map(fd, libc::XDP_PGOFF_RX_RING as u64, at.rx, size)?,
            transmit: Producer::map(fd, libc::XDP_PGOFF_TX_RING as u64, at.tx, size)?,
            completion: Consumer::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, size)?,
        })
    }

    /// Binds it to a queue of an interface.
    pub(super) fn bind(&self, index: u32, queue: u32, binding: Binding<'_>) -> io::Result<()> {
        let (flags, shared) = match binding {
            Binding::Own(flags) => (flags, 0),
            Binding::Shared(fd) => (libc::XDP_SHARED_UMEM, fd.as_raw_fd() as u32),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared,
        };
        let len = size_of::<libc::sockaddr_xdp>() as socklen_t;
        let place = (&raw const address).cast::<libc::sockaddr>();
        // SAFETY: the address has the length passed.
        checked(unsafe { libc::bind(self.0.as_raw_fd(), place, len) }).map(drop)
    }

    /// Whether the driver receives into packet memory itself.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let none = libc::xdp_options { flags: 0 };
        let options: libc::xdp_options = self.get(libc::SOL_XDP, libc::XDP_OPTIONS, none)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Has calls for packets poll the driver for up to `microseconds`, in place of interrupts.
    pub(super) fn poll_busily(&self, microseconds: u32) -> io::Result<()> {
        let microseconds = c_int::try_from(microseconds).unwrap_or(c_int::MAX);
        self.set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1 as c_int)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
        self.set(libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, BUDGET)
    }

    /// Has the kernel send what the transmit ring holds, as far as one call does.
    pub(super) fn wake_transmit(&self) -> io::Result<()> {
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: no bytes are passed.
        let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the driver look at the fill ring, and poll if it does so busily.
    pub(super) fn wake_receive(&self) -> io::Result<()> {
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        let none = std::ptr::null_mut::<c_void>();
        // SAFETY: there is room for no bytes, and none are written.
        let got = unsafe { libc::recv(fd, none, 0, flags) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// What the kernel has counted.
    pub(super) fn statistics(&self) -> Statistics {
        let none = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        let counts: io::Result<libc::xdp_statistics> =
            self.get(libc::SOL_XDP, libc::XDP_STATISTICS, none);
        counts.map_or_else(
            |_| Statistics::default(),
            |counts| Statistics {
                dropped: counts.rx_dropped,
                receive_full: counts.rx_ring_full,
                fill_empty: counts.rx_fill_ring_empty_descs,
                invalid_fill: counts.rx_invalid_descs,
                invalid_transmit: counts.tx_invalid_descs,
            },
        )
    }

    fn set<T: Copy>(&self, level: c_int, option: c_int, value: T) -> io::Result<()> {
        let place = (&raw const value).cast::<c_void>();
        let (fd, len) = (self.0.as_raw_fd(), size_of::<T>() as socklen_t);
        // SAFETY: the value has the length passed, and is only read.
        checked(unsafe { libc::setsockopt(fd, level, option, place, len) }).map(drop)
    }

    fn get<T: Copy>(&self, level: c_int, option: c_int, mut value: T) -> io::Result<T> {
        let place = (&raw mut value).cast::<c_void>();
        let (fd, mut len) = (self.0.as_raw_fd(), size_of::<T>() as socklen_t);
        // SAFETY: at most the value's length is written. All types that this is called with are made
        // of integers, for which all bytes are values.
        checked(unsafe { libc::getsockopt(fd, level, option, place, &raw mut len) })?;
        if len as usize == size_of::<T>() {
            Ok(value)
        } else {
            Err(io::Error::other("the kernel is older than Linux 5.9"))
        }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
