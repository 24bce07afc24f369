//! OpenCL devices: fine-grained shared virtual memory, and a kernel that stays resident; or launches, in such memory
//! or with copies, for devices that cannot do that.
//!
//! The library is loaded when it is first asked for: `libOpenCL.so.1`, or what `OPENCL_DYLIB_PATH`
//! names.

mod batches;
mod flight;
mod found;
mod handlers;
mod launched;
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
use thalweg_nf::device::{DeviceRoom, Launches, Way};
use thalweg_packet::PacketMemory;

pub use batches::Batches;
pub use flight::Transfer;
pub(crate) use found::{Found, WITH_LAUNCHES, find};

/// An OpenCL device, and how packets reach it.
pub struct OpenCl {
    found: Found,
    way: Way,
    context: Arc<Context>,
    shared: Regions,
    /// The work-groups of kernels that have not ended.
    resident: Arc<AtomicUsize>,
}

impl OpenCl {
    /// Opens device number `number` of those that [`devices`](crate::devices) lists, for resident kernels or
    /// `launches`.
    ///
    /// # Errors
    /// When OpenCL or the device is missing, or the device lacks what that needs.
    pub fn open(number: usize, launches: Launches) -> Result<Self, AccelError> {
        let mut all = find()?;
        if number >= all.len() {
            let why = names::out_of_range("OpenCL device", number, "opencl", all.len());
            return Err(AccelError::Missing(why));
        }
        let found = all.swap_remove(number);
        let way = match found.way(launches) {
            Ok(way) => way,
            Err(why) => return Err(AccelError::Unfit { device: found.name, why }),
        };
        let context = handlers::kept(|| Context::from_device(&found.device()))
            .map_err(failed(&found, "clCreateContext"))?;
        Ok(Self {
            found,
            way,
            context: Arc::new(context),
            shared: Regions::default(),
            resident: Arc::default(),
        })
    }

    /// Whether the device shares packet memory: its own, or any.
    fn check_shared(&self, memory: &PacketMemory) -> Result<(), AccelError> {
        if self.found.shares_all() || self.shared.have(memory) {
            return Ok(());
        }
        Err(AccelError::ForeignPool(self.found.name.clone()))
    }

    fn no_memory(&self, len: usize, why: impl ToString) -> AccelError {
        AccelError::Memory { device: self.found.name.clone(), len, why: why.to_string() }
    }

    /// Memory of this process alone.
    fn own_memory(&self, len: usize) -> Result<PacketMemory, AccelError> {
        PacketMemory::anonymous(len).map_err(|e| self.no_memory(len, e))
    }
}

impl Backend for OpenCl {
    fn name(&self) -> String {
        self.found.name.clone()
    }

    fn way(&self) -> Way {
        self.way
    }

    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError> {
        let has_atomics = match self.way {
            Way::Resident => true,
            Way::Shared => false,
            Way::Copied => return self.own_memory(len),
        };
        memory::allocate(&self.context, &self.shared, len, has_atomics)
            .map_err(|e| self.no_memory(len, e))
    }

    /// In launches, the queues stay with the processor.
    fn allocate_region(&self, len: usize) -> Result<PacketMemory, AccelError> {
        if self.way == Way::Resident { self.allocate(len) } else { self.own_memory(len) }
    }

    fn adopt(&self, memory: PacketMemory) -> Result<PacketMemory, AccelError> {
        if self.way == Way::Copied || self.found.shares_all() {
            Ok(memory)
        } else {
            Err(AccelError::OwnMemory(self.found.name.clone()))
        }
    }

    fn room(&self) -> Option<DeviceRoom> {
        // PoCL has a thread for each compute unit, and a work-group that stays keeps its thread. Other
        // devices may run several work-groups on a unit.
        if self.way != Way::Resident || !self.found.is_pocl() {
            return None;
        }
        let all = self.found.compute_units as usize;
        let free = all.saturating_sub(self.resident.load(Ordering::Acquire));
        Some(DeviceRoom { all, free, remedy: pocl::MORE_WORK_GROUPS })
    }

    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError> {
        if self.way != Way::Copied {
            self.check_shared(launch.pool.memory())?;
        }
        let transfer = match self.way {
            Way::Resident => {
                let (context, resident) = (self.context.clone(), self.resident.clone());
                return resident::start(&self.found, context, launch, resident);
            }
            Way::Shared => Transfer::Shared,
            Way::Copied => Transfer::Copied,
        };
        launched::start(self, launch, transfer)
    }
}

/// A failed call, with OpenCL's word for the error.
fn failed(found: &Found, call: &'static str) -> impl Fn(ClError) -> AccelError {
    let device = found.name.clone();
    move |error| AccelError::Call { device: device.clone(), call, why: error.to_string() }
}
