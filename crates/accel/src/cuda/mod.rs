//! CUDA devices: pinned memory of the processor, which the device maps, and a kernel that stays resident.
//!
//! The driver, `libcuda.so.1`, and the compiler, NVRTC, are loaded when they are first needed. The kernels are
//! those for OpenCL, translated (`source`). Never run on a device so far: tests compile the kernels.
//!
//! `unsafe` here: a setting of the context.
#![allow(unsafe_code)]

mod compile;
mod found;
mod memory;
mod resident;
mod source;

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError};
use thalweg_packet::PacketMemory;

use crate::backend::{Backend, Launch, Resident};
use crate::error::AccelError;
use crate::names;
use crate::shared::Regions;

pub use compile::compile;
pub(crate) use found::{Found, find};

/// A CUDA device that can run resident kernels.
pub struct Cuda {
    found: Found,
    context: Arc<CudaContext>,
    shared: Regions,
}

impl Cuda {
    /// Opens the device with this number.
    ///
    /// # Errors
    /// When the driver, the compiler or the device is missing, or the device lacks what resident kernels
    /// need.
    pub fn open(number: usize) -> Result<Self, AccelError> {
        let mut all = find()?;
        if number >= all.len() {
            let why = names::out_of_range("CUDA device", number, "cuda", all.len());
            return Err(AccelError::Missing(why));
        }
        let found = all.swap_remove(number);
        if let Err(why) = found.residency() {
            let why = format!("cannot run resident kernels: {why}");
            return Err(AccelError::Unfit { device: found.name, why });
        }
        compile::check()?;
        let context = CudaContext::new(number).map_err(failed(&found, "cuCtxCreate"))?;
        // SAFETY: events order accesses to memory that cudarc manages, of which none is used here.
        unsafe { context.disable_event_tracking() };
        Ok(Self { found, context, shared: Regions::default() })
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        self.found.name.clone()
    }

    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError> {
        memory::allocate(&self.context, &self.shared, len).map_err(|e| {
            let device = self.found.name.clone();
            AccelError::Memory { device, len, why: e.to_string() }
        })
    }

    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError> {
        if !self.shared.have(launch.pool.memory()) {
            return Err(AccelError::ForeignPool(self.found.name.clone()));
        }
        resident::start(&self.found, &self.context, launch)
    }
}

/// A failed call, with the driver's words for the error.
fn failed(found: &Found, call: &'static str) -> impl Fn(DriverError) -> AccelError {
    let device = found.name.clone();
    move |error| AccelError::Call { device: device.clone(), call, why: error.to_string() }
}
