//! What a device has to be able to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_nf::device::{DeviceFunction, DeviceRoom, Way};
use thalweg_packet::{PacketMemory, Pool};

use crate::error::AccelError;
use crate::region::Region;

/// What to start: work-groups that serve the queues of a region.
#[derive(Debug)]
pub struct Launch {
    /// The queues; each work-group is assigned a function and a table.
    pub region: Arc<Region>,
    /// The packets.
    pub pool: Arc<Pool>,
    /// By number: the functions.
    pub functions: Vec<DeviceFunction>,
}

/// A device, by the interface through which it is driven.
pub trait Backend: Send + Sync {
    /// The device's name, for messages.
    fn name(&self) -> String;

    /// How packets reach it.
    fn way(&self) -> Way {
        Way::Resident
    }

    /// Allocates memory for packets: what processor and device can both read and write, at any time or while no
    /// kernel runs, or any memory if packets are copied.
    ///
    /// # Errors
    /// When there is none.
    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError>;

    /// Allocates memory for a [`Region`].
    ///
    /// # Errors
    /// When there is none.
    fn allocate_region(&self, len: usize) -> Result<PacketMemory, AccelError> {
        self.allocate(len)
    }

    /// Shares packet memory that the device has not allocated: the same memory, at the same addresses.
    ///
    /// # Errors
    /// When it shares only memory that it has allocated.
    fn adopt(&self, memory: PacketMemory) -> Result<PacketMemory, AccelError> {
        drop(memory);
        Err(AccelError::OwnMemory(self.name()))
    }

    /// How many work-groups can be resident, where that is known before they start.
    fn room(&self) -> Option<DeviceRoom> {
        None
    }

    /// Whether it runs the OpenCL C of functions, and not their portable code.
    fn compiles(&self) -> bool {
        true
    }

    /// Starts the work-groups of `launch`, which it keeps until they have ended.
    ///
    /// # Errors
    /// When the kernel does not compile or start, or memory of `launch` is not the device's.
    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError>;
}

/// What launches did, by partition.
#[derive(Debug)]
pub struct Figures(Box<[(AtomicU64, AtomicU64)]>);

impl Figures {
    /// Of this number of partitions.
    pub(crate) fn new(partitions: usize) -> Self {
        Self((0..partitions).map(|_| Default::default()).collect())
    }

    /// Adds a launch with work for a partition, and the bytes of packets that were copied for it.
    pub(crate) fn add(&self, partition: usize, bytes: u64) {
        let (launches, copied) = &self.0[partition];
        launches.fetch_add(1, Ordering::Relaxed);
        copied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Launches with work for a partition, and the bytes of packets that were copied for it.
    pub fn of(&self, partition: usize) -> (u64, u64) {
        let (launches, copied) = &self.0[partition];
        (launches.load(Ordering::Relaxed), copied.load(Ordering::Relaxed))
    }
}

/// Work-groups that run until they are stopped.
pub trait Resident: Send {
    /// What launches did, if there are any.
    fn figures(&self) -> Option<Arc<Figures>> {
        None
    }

    /// Lets the work-groups end, which their region requests, and waits for `within` at most; returns
    /// whether all have ended. If not, what they use stays allocated for good.
    fn stop(&mut self, within: Duration) -> bool;

    /// Why all work-groups have ended, as the driver reports it, if they have by an error.
    fn failure(&self) -> Option<String> {
        None
    }
}
