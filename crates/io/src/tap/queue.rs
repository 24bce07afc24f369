//! A queue of a TAP device (Linux, `Documentation/networking/tuntap.rst`): all calls to the system.
//!
//! `unsafe` here: system calls that take pointers.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, c_ulong};

use crate::bpf::Program;
use crate::interface::request_for;
use crate::offload::HEADER;

/// The file that makes devices.
const CLONE: &str = "/dev/net/tun";

/// How long a queue of a device waits for one of another program to be closed, and the time between looks.
const PATIENCE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(10);

/// What the reader of a queue completes: checksums, segmentation of TCP, and of UDP since Linux 6.2.
const CHECKSUMS: c_uint = libc::TUN_F_CSUM;
const TCP: c_uint = libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP: c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A queue of a device; the device that a queue has made goes with its last one.
#[derive(Debug)]
pub(super) struct Queue(OwnedFd);

impl Queue {
    /// Opens a queue of the device `name`, which is made if there is none. Only a device of `several`
    /// queues can have more than one.
    ///
    /// # Errors
    /// The system's; `EBUSY` if another program has a queue of it without offload headers.
    pub(super) fn open(name: &str, several: bool) -> io::Result<Self> {
        let since = Instant::now();
        loop {
            let queue = Self::attach(name, several)?;
            // The kernel attaches a queue to a device that has one and leaves the device as it is, without a
            // word. Whoever has just made it, as ip-tuntap(8) does, is about to close its own.
            if queue.flags()? & libc::IFF_VNET_HDR != 0 {
                return Ok(queue);
            }
            if since.elapsed() > PATIENCE {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            drop(queue);
            thread::sleep(PAUSE);
        }
    }

    fn attach(name: &str, several: bool) -> io::Result<Self> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(CLONE)?;
        let mut request = request_for(name);
        let several = if several { libc::IFF_MULTI_QUEUE } else { 0 };
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the request has the form that this call expects, and is alive.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let size = HEADER as c_int;
        // SAFETY: the call reads an integer.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) })?;
        Ok(Self(file.into()))
    }

    /// Sets which packets the kernel leaves unfinished: those without checksums, and super-packets if
    /// they are taken. Returns what it leaves to be segmented, in a few words.
    pub(super) fn set_offloads(&self, takes_supers: bool) -> io::Result<&'static str> {
        let set = |offloads: c_uint| {
            let value = c_ulong::from(offloads);
            // SAFETY: the call takes a number, not a pointer.
            checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD, value) })
        };
        if !takes_supers {
            return set(CHECKSUMS).map(|_| "no super-packets");
        }
        match set(CHECKSUMS | TCP | UDP) {
            Ok(_) => Ok("super-packets of TCP and UDP"),
            Err(_) => set(CHECKSUMS | TCP).map(|_| "super-packets of TCP"),
        }
    }

    /// Has a program choose the queue of a packet that the host sends by the device; without one, the kernel
    /// chooses it.
    pub(super) fn steer_by(&self, program: Option<&Program>) -> io::Result<()> {
        let program: c_int = program.map_or(-1, |program| program.as_fd().as_raw_fd());
        let place = &raw const program;
        // SAFETY: the call reads an integer.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETSTEERINGEBPF, place) })
            .map(drop)
    }

    /// Whether its device still exists, under whatever name and in whatever network namespace.
    pub(super) fn has_device(&self) -> bool {
        self.flags().is_ok()
    }

    /// The flags of its device.
    fn flags(&self) -> io::Result<c_int> {
        let mut request = request_for("");
        let place = &raw mut request;
        // SAFETY: the request has the form that this call expects, and is alive.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNGETIFF, place) })?;
        // SAFETY: the call has written the flags there.
        Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
    }

    /// Receives a packet into `pieces`, after its offload header; returns its length. What they have
    /// no room for is lost.
    pub(super) fn receive(
        &self,
        header: &mut [u8; HEADER],
        pieces: [&mut [u8]; 2],
    ) -> io::Result<usize> {
        let [first, second] = pieces;
        let mut pieces = [IoSliceMut::new(header), IoSliceMut::new(first), IoSliceMut::new(second)];
        let len = rustix::io::readv(&self.0, &mut pieces)?;
        Ok(len.saturating_sub(HEADER))
    }

    /// Sends a packet, whose offload header is its first piece.
    pub(super) fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.0, pieces)?;
        Ok(())
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
