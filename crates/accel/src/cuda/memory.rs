//! Pinned memory of the processor, which the device maps: both read and write it at any time.
//!
//! `unsafe` here: memory comes from the driver as a raw pointer.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUresult, cuMemHostGetDevicePointer_v2,
};
use cudarc::driver::{CudaContext, DriverError, result};
use thalweg_packet::PacketMemory;

use crate::shared::Regions;

/// Allocates `len` zeroed bytes that the device maps.
pub(super) fn allocate(
    context: &Arc<CudaContext>,
    regions: &Regions,
    len: usize,
) -> Result<PacketMemory, DriverError> {
    context.bind_to_thread()?;
    let flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: the context is this thread's; the memory is written before it is read.
    let pointer = unsafe { result::malloc_host(Regions::whole(len), flags) }?;
    let pointer = NonNull::new(pointer).ok_or(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
    let context = context.clone();
    let free = Box::new(move |pointer| {
        let bound = context.bind_to_thread();
        // SAFETY: the pointer is from `malloc_host`; who owned the region has ended all use of it, kernels
        // included.
        if let Err(e) = bound.and_then(|()| unsafe { result::free_host(pointer) }) {
            log::error!("cuMemFreeHost: {e}");
        }
    });
    // SAFETY: as many bytes begin at the pointer, which only `free` frees.
    Ok(unsafe { regions.own(pointer, len, free) })
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
