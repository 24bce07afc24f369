//! Fine-grained shared virtual memory: the same addresses for processor and device, at any time.
//!
//! `unsafe` here: memory comes from OpenCL as a raw pointer.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free,
};
use thalweg_packet::PacketMemory;

/// Regions begin at pages, as interfaces that receive into them want it.
const PAGE: usize = 4096;

/// The addresses at which the regions that are allocated begin.
pub(super) type Starts = Arc<Mutex<Vec<usize>>>;

/// Owns a region; frees it when dropped.
struct Allocation {
    pointer: *mut c_void,
    start: usize,
    context: Arc<Context>,
    starts: Starts,
}

// SAFETY: the pointer is only passed to `svm_free`, which any thread may call.
unsafe impl Send for Allocation {}
// SAFETY: as above; a shared reference gives no access to it.
unsafe impl Sync for Allocation {}

/// Allocates `len` zeroed bytes that all devices of `context` share, and notes where they begin.
pub(super) fn allocate(
    context: &Arc<Context>,
    starts: &Starts,
    len: usize,
) -> Result<PacketMemory, ClError> {
    let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS;
    // Some implementations refuse an alignment of a page, so there is a page more.
    let whole = len.next_multiple_of(PAGE) + PAGE;
    // SAFETY: the context is alive.
    let pointer = unsafe { svm_alloc(context.get(), flags, whole, 0) }?;
    // SAFETY: `whole` bytes begin at the pointer.
    unsafe { pointer.write_bytes(0, whole) };
    let before = pointer.cast::<u8>().align_offset(PAGE);
    // SAFETY: less than a page, which is inside.
    let base = unsafe { pointer.cast::<u8>().add(before) };
    // SAFETY: behind a pointer that is not null.
    let base = unsafe { NonNull::new_unchecked(base) };
    let (start, context, starts) = (base.addr().get(), context.clone(), starts.clone());
    starts.lock().unwrap_or_else(PoisonError::into_inner).push(start);
    let owner = Allocation { pointer, start, context, starts };
    // SAFETY: `len` bytes from `base` are inside the allocation, which `owner` frees.
    Ok(unsafe { PacketMemory::from_raw_parts(base, len, Box::new(owner)) })
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.retain(|start| *start != self.start);
        // SAFETY: the pointer is from `svm_alloc` for this context; who owns this has ended all use of
        // the memory, kernels included.
        if let Err(e) = unsafe { svm_free(self.context.get(), self.pointer) } {
            log::error!("clSVMFree: {}", ClError(e));
        }
    }
}
