//! OpenCL devices: fine-grained shared virtual memory, and a kernel that stays resident.
//!
//! The library is loaded when it is first asked for: `libOpenCL.so.1`, or what `OPENCL_DYLIB_PATH`
//! names.

mod batches;
mod found;
mod handlers;
mod library;
mod memory;
mod pocl;
mod resident;
pub(crate) mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opencl3::context::Context;
use opencl3::error_codes::ClError;

use crate::backend::{Backend, Launch, Resident};
use crate::error::AccelError;
use crate::names;
use crate::shared::Regions;
use thalweg_nf::device::DeviceRoom;
use thalweg_packet::PacketMemory;

pub use batches::{Batches, Transfer};
pub(crate) use found::{Found, find};

/// An OpenCL device that can run resident kernels.
pub struct OpenCl {
    found: Found,
    context: Arc<Context>,
    shared: Regions,
    /// The work-groups of kernels that have not ended.
    resident: Arc<AtomicUsize>,
}

impl OpenCl {
    /// Opens device number `number` of those that [`devices`](crate::devices) lists.
    ///
    /// # Errors
    /// When OpenCL or the device is missing, or the device lacks what resident kernels need.
    pub fn open(number: usize) -> Result<Self, AccelError> {
        let mut all = find()?;
        if number >= all.len() {
            let why = names::out_of_range("OpenCL device", number, "opencl", all.len());
            return Err(AccelError::Missing(why));
        }
        let found = all.swap_remove(number);
        if let Err(why) = found.residency() {
            return Err(AccelError::Unfit { device: found.name, why });
        }
        let context = handlers::kept(|| Context::from_device(&found.device()))
            .map_err(failed(&found, "clCreateContext"))?;
        Ok(Self {
            found,
            context: Arc::new(context),
            shared: Regions::default(),
            resident: Arc::default(),
        })
    }
}

impl Backend for OpenCl {
    fn name(&self) -> String {
        self.found.name.clone()
    }

    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError> {
        memory::allocate(&self.context, &self.shared, len).map_err(|e| {
            let device = self.found.name.clone();
            AccelError::Memory { device, len, why: e.to_string() }
        })
    }

    fn adopt(&self, memory: PacketMemory) -> Result<PacketMemory, AccelError> {
        if self.found.shares_all() {
            Ok(memory)
        } else {
            Err(AccelError::OwnMemory(self.found.name.clone()))
        }
    }

    fn room(&self) -> Option<DeviceRoom> {
        // PoCL has a thread for each compute unit, and a work-group that stays keeps its thread. Other
        // devices may run several work-groups on a unit.
        let all = self.found.is_pocl().then_some(self.found.compute_units as usize)?;
        let free = all.saturating_sub(self.resident.load(Ordering::Acquire));
        Some(DeviceRoom { all, free, remedy: pocl::MORE_WORK_GROUPS })
    }

    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError> {
        if !self.found.shares_all() && !self.shared.have(launch.pool.memory()) {
            return Err(AccelError::ForeignPool(self.found.name.clone()));
        }
        resident::start(&self.found, self.context.clone(), launch, self.resident.clone())
    }
}

/// A failed call, with OpenCL's word for the error.
fn failed(found: &Found, call: &'static str) -> impl Fn(ClError) -> AccelError {
    let device = found.name.clone();
    move |error| AccelError::Call { device: device.clone(), call, why: error.to_string() }
}
