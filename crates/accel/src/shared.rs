//! Memory that a device shares with the processor: regions of it, and where they begin.
//!
//! `unsafe` here: memory comes from a driver as a raw pointer.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_packet::PacketMemory;

/// Regions begin at pages, as interfaces that receive into them want it.
const PAGE: usize = 4096;

/// The regions of a device that are allocated, by the addresses at which they begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions(Arc<Mutex<Vec<usize>>>);

/// Gives memory back to its driver.
pub(crate) type Free = Box<dyn Fn(*mut c_void) + Send + Sync>;

/// Owns a region; frees it when dropped.
struct Allocation {
    pointer: NonNull<c_void>,
    start: usize,
    free: Free,
    regions: Regions,
}

// SAFETY: the pointer is only passed to `free`, which any thread may call.
unsafe impl Send for Allocation {}
// SAFETY: as above; a shared reference gives no access to it.
unsafe impl Sync for Allocation {}

impl Regions {
    /// The bytes to allocate for a region of `len` bytes that begins at a page, wherever the driver lets
    /// memory begin.
    pub(crate) fn whole(len: usize) -> usize {
        len.next_multiple_of(PAGE) + PAGE
    }

    /// A region of `len` zeroed bytes.
    ///
    /// # Safety
    /// [`whole`](Self::whole) bytes that nothing else uses begin at `pointer`, until `free` is called with
    /// it.
    pub(crate) unsafe fn own(
        &self,
        pointer: NonNull<c_void>,
        len: usize,
        free: Free,
    ) -> PacketMemory {
        let first = pointer.cast::<u8>();
        // SAFETY: the caller's word.
        unsafe { first.write_bytes(0, Self::whole(len)) };
        // SAFETY: less than a page further, which is inside.
        let base = unsafe { first.add(first.align_offset(PAGE)) };
        let start = base.addr().get();
        self.lock().push(start);
        let owner = Allocation { pointer, start, free, regions: self.clone() };
        // SAFETY: `len` bytes from `base` are inside the allocation, which `owner` frees.
        unsafe { PacketMemory::from_raw_parts(base, len, Box::new(owner)) }
    }

    /// Whether memory is one of these regions.
    pub(crate) fn have(&self, memory: &PacketMemory) -> bool {
        self.lock().contains(&memory.base().addr().get())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // The driver may return the same address next.
        self.regions.lock().retain(|start| *start != self.start);
        (self.free)(self.pointer.as_ptr());
    }
}
