//! The one region of memory that packets live in.
//!
//! `unsafe` here: the region is reached through a raw pointer because a NIC or
//! a GPU may own the mapping.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

/// What backs a [`PacketMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Ordinary anonymous pages.
    Anonymous,
    /// Explicit huge pages of the system's default size.
    HugePages,
    /// Memory that another owner allocated: a GPU's shared memory, a NIC's UMEM.
    Foreign,
}

/// One contiguous, page-aligned region that a [`Pool`](crate::Pool) is cut from.
pub struct PacketMemory {
    base: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
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
        Self::mapped(MmapOptions::new().len(len).map_anon()?, MemoryKind::Anonymous)
    }

    /// Maps `len` bytes of huge pages, rounded up to 2 MiB.
    ///
    /// # Errors
    /// The kernel's error when no huge pages are reserved.
    pub fn huge_pages(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(2 << 20);
        Self::mapped(MmapOptions::new().len(len).huge(None).map_anon()?, MemoryKind::HugePages)
    }

    fn mapped(mut map: MmapMut, kind: MemoryKind) -> io::Result<Self> {
        let len = map.len();
        let base = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, kind, _owner: Box::new(map) })
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
        Self { base, len, kind: MemoryKind::Foreign, _owner: owner }
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
