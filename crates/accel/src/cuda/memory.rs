//! Pinned memory of the processor, which the device maps: both read and write it at any time.
//!
//! `unsafe` here: memory comes from the driver as a raw pointer.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, cuMemHostGetDevicePointer_v2,
};
use cudarc::driver::{CudaContext, DriverError, result};
use thalweg_packet::PacketMemory;

/// Regions begin at pages, as interfaces that receive into them want it.
const PAGE: usize = 4096;

/// The addresses at which the regions that are allocated begin.
pub(super) type Starts = Arc<Mutex<Vec<usize>>>;

/// Owns a region; frees it when dropped.
struct Allocation {
    pointer: *mut c_void,
    start: usize,
    context: Arc<CudaContext>,
    starts: Starts,
}

// SAFETY: the pointer is only passed to `free_host`, which any thread may call.
unsafe impl Send for Allocation {}
// SAFETY: as above; a shared reference gives no access to it.
unsafe impl Sync for Allocation {}

/// Allocates `len` zeroed bytes that the device maps, and notes where they begin.
pub(super) fn allocate(
    context: &Arc<CudaContext>,
    starts: &Starts,
    len: usize,
) -> Result<PacketMemory, DriverError> {
    context.bind_to_thread()?;
    let whole = len.next_multiple_of(PAGE) + PAGE;
    let flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: the context is this thread's; the memory is written before it is read.
    let pointer = unsafe { result::malloc_host(whole, flags) }?;
    // SAFETY: `whole` bytes begin at the pointer.
    unsafe { pointer.write_bytes(0, whole) };
    let before = pointer.cast::<u8>().align_offset(PAGE);
    // SAFETY: less than a page, which is inside.
    let base = unsafe { pointer.cast::<u8>().add(before) };
    // SAFETY: the driver's pointer is not null, nor is one after it.
    let base = unsafe { NonNull::new_unchecked(base) };
    let (start, context, starts) = (base.addr().get(), context.clone(), starts.clone());
    starts.lock().unwrap_or_else(PoisonError::into_inner).push(start);
    let owner = Allocation { pointer, start, context, starts };
    // SAFETY: `len` bytes from `base` are inside the allocation, which `owner` frees.
    Ok(unsafe { PacketMemory::from_raw_parts(base, len, Box::new(owner)) })
}

/// The address by which the device knows a byte of such memory.
pub(super) fn of_device(base: NonNull<u8>) -> Result<u64, DriverError> {
    let mut address = MaybeUninit::uninit();
    // SAFETY: the caller's thread has a context; the driver refuses memory that it has not allocated.
    let outcome =
        unsafe { cuMemHostGetDevicePointer_v2(address.as_mut_ptr(), base.as_ptr().cast(), 0) };
    outcome.result()?;
    // SAFETY: the call has succeeded, so that it has written the address.
    Ok(unsafe { address.assume_init() })
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.retain(|start| *start != self.start);
        let bound = self.context.bind_to_thread();
        // SAFETY: the pointer is from `malloc_host`; who owns this has ended all use of the memory, kernels
        // included.
        let freed = bound.and_then(|()| unsafe { result::free_host(self.pointer) });
        if let Err(e) = freed {
            log::error!("cuMemFreeHost: {e}");
        }
    }
}
