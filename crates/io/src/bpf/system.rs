//! Maps, programs and links of the kernel's virtual machine (bpf(2)).
//!
//! `unsafe` here: the system call takes pointers.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_long;

use super::assembler::Instruction;

/// Commands and kinds of `linux/bpf.h`.
const MAP_CREATE: c_long = 0;
const MAP_UPDATE: c_long = 2;
const MAP_DELETE: c_long = 3;
const PROGRAM_LOAD: c_long = 5;
const LINK_CREATE: c_long = 28;
const XSKMAP: u32 = 17;
const SOCKET_FILTER: u32 = 1;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program can do with packets of which it sees only the first buffer.
const HAS_FRAGS: u32 = 1 << 5;

/// Where a program runs (`XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// In the driver, before the kernel makes a packet of its own.
    Native,
    /// In the kernel's network stack, with any driver.
    Generic,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attachment: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attachment: u32,
    flags: u32,
}

/// Calls the system with the attributes of a command, in which all pointers must be valid for it.
unsafe fn bpf<T>(command: c_long, attributes: &mut T) -> io::Result<c_long> {
    let place = std::ptr::from_mut(attributes);
    // SAFETY: the attributes have the length passed; the caller answers for pointers in them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, place, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The descriptor that a command has returned.
fn descriptor(result: c_long) -> OwnedFd {
    // SAFETY: the descriptor is new (the kernel makes it close-on-exec), and has no other owner.
    unsafe { OwnedFd::from_raw_fd(result as i32) }
}

/// The address of a value, for the kernel.
fn address<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
}

/// A map of sockets by the number of a queue.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    /// An empty map for `queues` queues.
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        let word = size_of::<u32>() as u32;
        let mut attributes = MapCreate {
            kind: XSKMAP,
            key_size: word,
            value_size: word,
            entries: queues,
            ..Default::default()
        };
        // SAFETY: the attributes have no pointers.
        let map = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
        Ok(Self(descriptor(map)))
    }

    /// Has packets of a queue go to a socket.
    pub(crate) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let (key, value) = (address(&queue), address(&value));
        let mut attributes = MapElement { map: self.raw(), padding: 0, key, value, flags: 0 };
        // SAFETY: key and value have four bytes as the map was made with, and are alive.
        unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(drop)
    }

    /// Has packets of a queue go to the kernel.
    pub(crate) fn remove(&self, queue: u32) -> io::Result<()> {
        let key = address(&queue);
        let mut attributes = MapElement { map: self.raw(), padding: 0, key, value: 0, flags: 0 };
        // SAFETY: the key has four bytes as the map was made with, and is alive.
        unsafe { bpf(MAP_DELETE, &mut attributes) }.map(drop)
    }

    pub(crate) fn raw(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program for an interface, for packets of several buffers if the kernel has them
    /// (Linux 5.18).
    pub(crate) fn load_xdp(instructions: &[Instruction]) -> io::Result<Self> {
        let load = |flags| Self::load(instructions, PROGRAM_XDP, ATTACH_XDP, flags);
        load(HAS_FRAGS).or_else(|_| load(0))
    }

    /// Loads a program that returns a number for a packet. Some systems permit that to any user.
    pub(crate) fn load_filter(instructions: &[Instruction]) -> io::Result<Self> {
        Self::load(instructions, SOCKET_FILTER, 0, 0)
    }

    fn load(
        instructions: &[Instruction],
        kind: u32,
        expected_attachment: u32,
        flags: u32,
    ) -> io::Result<Self> {
        let license = c"Dual MIT/GPL";
        let mut name = [0; 16];
        name[..8].copy_from_slice(b"thalweg_");
        let mut attributes = ProgramLoad {
            kind,
            instruction_count: instructions.len() as u32,
            instructions: address(instructions),
            license: address(license.to_bytes_with_nul()),
            flags,
            name,
            expected_attachment,
            ..Default::default()
        };
        // SAFETY: the instructions are as many as passed, the license ends with zero, and both are
        // alive and only read.
        let program = unsafe { bpf(PROGRAM_LOAD, &mut attributes) }?;
        Ok(Self(descriptor(program)))
    }

    /// Attaches it to an interface until the link is dropped, also by the end of this process.
    pub(crate) fn attach(&self, index: u32, attachment: Attachment) -> io::Result<ProgramLink> {
        const GENERIC: u32 = 1 << 1;
        const NATIVE: u32 = 1 << 2;
        let flags = if attachment == Attachment::Native { NATIVE } else { GENERIC };
        let program = self.0.as_raw_fd() as u32;
        let mut attributes =
            LinkCreate { program, interface: index, attachment: ATTACH_XDP, flags };
        // SAFETY: the attributes have no pointers.
        let link = unsafe { bpf(LINK_CREATE, &mut attributes) }?;
        Ok(ProgramLink { _link: descriptor(link) })
    }

    /// What it returns for a packet.
    #[cfg(test)]
    pub(crate) fn run(&self, packet: &[u8]) -> io::Result<u32> {
        #[repr(C)]
        struct TestRun {
            program: u32,
            result: u32,
            len: u32,
            out_len: u32,
            packet: u64,
            out: u64,
            repeat: u32,
            duration: u32,
        }
        const TEST_RUN: c_long = 10;
        let mut attributes = TestRun {
            program: self.0.as_raw_fd() as u32,
            result: 0,
            len: packet.len() as u32,
            out_len: 0,
            packet: address(packet),
            out: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: the packet has the length passed, is alive, and is only read.
        unsafe { bpf(TEST_RUN, &mut attributes) }?;
        Ok(attributes.result)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A program at an interface; it is detached when this is dropped.
#[derive(Debug)]
pub(crate) struct ProgramLink {
    _link: OwnedFd,
}
