//! Devices: NFs that stay resident beside the processor's own.
//!
//! Packets lie in memory that a device and the processor share, and never move. A kernel is started
//! once; its work-groups wait for rows of [`Job`]s, which a [`Syncer`] writes into queues in such
//! memory, and return the results through the same [queues](Region). Several functions share a device
//! by work-groups: [`Partition`]. The design is Hummingbird's (persistent kernels, logical queues);
//! where its algorithm had to be corrected is said in [`region`].
//!
//! A device speaks the protocol through a [`Backend`]: [`OpenCl`], `Cuda` with the feature `cuda`, or
//! [`Soft`], which is threads and always there, as the reference of the protocol. For OpenCL devices that cannot run
//! resident kernels, a thread speaks it, and launches a kernel for the rows that wait.

mod entries;
mod error;
mod looks;
#[cfg(all(test, loom))]
mod model;
pub mod region;
mod slot;
mod sync;
mod syncer;
mod work_group;

pub use error::{AccelError, Fault};
pub use region::{Region, Shape};
pub use syncer::{Done, Job, Syncer};

// The model checker runs the protocol alone: its atomics are in no memory that a device shares.
#[cfg(not(loom))]
mod accelerator;
#[cfg(not(loom))]
mod backend;
#[cfg(not(loom))]
mod choice;
#[cfg(all(feature = "cuda", not(loom)))]
pub mod cuda;
#[cfg(not(loom))]
mod devices;
#[cfg(not(loom))]
mod library;
#[cfg(not(loom))]
mod line;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod opencl;
#[cfg(not(loom))]
mod reflect;
#[cfg(not(loom))]
mod relay;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod soft;

#[cfg(not(loom))]
pub use accelerator::{Accelerator, Options, Partition};
#[cfg(not(loom))]
pub use backend::{Backend, Figures, Launch, Resident};
#[cfg(not(loom))]
pub use choice::fastest;
#[cfg(all(feature = "cuda", not(loom)))]
pub use cuda::Cuda;
#[cfg(not(loom))]
pub use devices::{Device, HAS_CUDA, Listing, Residency, SharedMemory, devices, open_cuda};
#[cfg(not(loom))]
pub use line::Installed;
#[cfg(not(loom))]
pub use opencl::{Batches, OpenCl, Transfer};
#[cfg(not(loom))]
pub use reflect::REFLECT;
#[cfg(not(loom))]
pub use soft::Soft;
