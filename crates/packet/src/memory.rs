//! The one region of memory that packets live in.
//!
//! `unsafe` here: the region is reached through a raw pointer because a NIC or
//! a GPU may own the mapping.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

/// What backs a [`PacketMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Ordinary anonymous pages.
    Anonymous,
    /// Explicit huge pages of the system's default size.
    HugePages,
    /// Ordinary pages of a file in memory, which other processes can map.
    Shared,
    /// Memory that another owner allocated: a GPU's shared memory, a NIC's UMEM.
    Foreign,
}

/// One contiguous, page-aligned region that a [`Pool`](crate::Pool) is cut from.
pub struct PacketMemory {
    base: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
    /// The file of shared memory.
    file: Option<OwnedFd>,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the region is plain memory without thread affinity; `Pool` decides
// which thread may use which part, as it hands out each frame once.
unsafe impl Send for PacketMemory {}
// SAFETY: as above; `PacketMemory` itself never reads or writes the region.
unsafe impl Sync for PacketMemory {}

impl PacketMemory {
    /// Maps `len` bytes of ordinary zeroed pages.
    ///
    /// # Errors
    /// The kernel's error when it has no memory to map.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::mapped(MmapOptions::new().len(len).map_anon()?, MemoryKind::Anonymous, None)
    }

    /// Maps `len` bytes of huge pages, rounded up to 2 MiB.
    ///
    /// # Errors
    /// The kernel's error when no huge pages are reserved.
    pub fn huge_pages(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(2 << 20);
        let map = MmapOptions::new().len(len).huge(None).map_anon()?;
        Self::mapped(map, MemoryKind::HugePages, None)
    }

    /// Maps `len` bytes of ordinary zeroed pages that other processes can map too, by
    /// [`file`](Self::file): a memfd of that length, sealed against shrinking and growing.
    ///
    /// Whoever has the file can read and write the packets in the memory at any time, also while they
    /// are processed. Pass it only to a process that is trusted as this one is, and that writes only
    /// to frames that were handed to it.
    ///
    /// # Errors
    /// The kernel's error when it has no memory to map, or has no memfds.
    #[cfg(target_os = "linux")]
    pub fn shared(len: usize) -> io::Result<Self> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let file = memfd_create("thalweg-packets", flags)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: the file cannot shrink, so that each of its pages stays mapped. It is this process's
        // alone until its owner passes it on, to a process that writes only to frames that it has.
        let map = unsafe { MmapOptions::new().len(len).map_mut(&file) }?;
        Self::mapped(map, MemoryKind::Shared, Some(file))
    }

    /// As on systems without memfds.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub fn shared(_len: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn mapped(mut map: MmapMut, kind: MemoryKind, file: Option<OwnedFd>) -> io::Result<Self> {
        let len = map.len();
        let base = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, kind, file, _owner: Box::new(map) })
    }

    /// Adopts a region that another owner allocated, and keeps `owner` alive with it.
    ///
    /// # Safety
    /// `base..base + len` must stay readable and writable, and must not be
    /// referenced by other Rust code, until `owner` is dropped.
    pub unsafe fn from_raw_parts(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { base, len, kind: MemoryKind::Foreign, file: None, _owner: owner }
    }

    /// The region's first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The region's size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file by which other processes can map [shared](Self::shared) memory, from its first byte.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// What backs the region.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }
}

impl fmt::Debug for PacketMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketMemory")
            .field("len", &self.len)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_that_of_its_file() {
        let memory = PacketMemory::shared(8192).unwrap();
        assert_eq!((memory.len(), memory.kind()), (8192, MemoryKind::Shared));
        let file = memory.file().unwrap();
        rustix::io::pwrite(file, b"packet", 4096).unwrap();
        // SAFETY: it is in the region, to which nothing refers.
        let place = unsafe { memory.base().add(4096) };
        // SAFETY: as above; six bytes are there.
        let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr(), 6) };
        assert_eq!(bytes, b"packet");
        assert!(rustix::fs::ftruncate(file, 4096).is_err(), "it is sealed");
        assert!(PacketMemory::anonymous(4096).unwrap().file().is_none());
    }
}
