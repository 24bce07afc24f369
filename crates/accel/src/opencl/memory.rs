//! Fine-grained shared virtual memory: the same addresses for processor and device, at any time.
//!
//! `unsafe` here: memory comes from OpenCL as a raw pointer.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use opencl3::context::Context;
use opencl3::error_codes::{CL_MEM_OBJECT_ALLOCATION_FAILURE, ClError};
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free,
};
use thalweg_packet::PacketMemory;

use crate::shared::Regions;

/// Allocates `len` zeroed bytes that all devices of `context` share, with or without atomics.
pub(super) fn allocate(
    context: &Arc<Context>,
    regions: &Regions,
    len: usize,
    has_atomics: bool,
) -> Result<PacketMemory, ClError> {
    let atomics = if has_atomics { CL_MEM_SVM_ATOMICS } else { 0 };
    let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | atomics;
    // Some implementations refuse an alignment of a page.
    // SAFETY: the context is alive.
    let pointer = unsafe { svm_alloc(context.get(), flags, Regions::whole(len), 0) }?;
    let pointer = NonNull::new(pointer).ok_or(ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE))?;
    let context = context.clone();
    let free = Box::new(move |pointer| {
        // SAFETY: the pointer is from `svm_alloc` for this context; who owned the region has ended all
        // use of it, kernels included.
        if let Err(e) = unsafe { svm_free(context.get(), pointer) } {
            log::error!("clSVMFree: {}", ClError(e));
        }
    });
    // SAFETY: as many bytes begin at the pointer, which only `free` frees.
    Ok(unsafe { regions.own(pointer, len, free) })
}
