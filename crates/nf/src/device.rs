//! Functions that a device runs on packets: the part of an NF that takes the time.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use thalweg_packet::{Batch, Lanes, PacketMemory, Pool};

use crate::context::Context;

/// The work of an NF on one packet, as a device can do it: without state, without branches to other
/// packets, over bytes and a table.
///
/// It exists twice. What [`scalar`](Self::scalar) returns and leaves in the bytes defines what the
/// [`source`](Self::source) has to.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFunction {
    /// Its name: an identifier of C.
    pub name: &'static str,
    /// OpenCL C that defines `uint2 NAME(global uchar *bytes, uint len, uint2 argument, global const
    /// uchar *table)`. Other names in it begin with `NAME_`, as several functions become one kernel.
    pub source: &'static str,
    /// The same on a processor.
    pub scalar: Scalar,
}

/// Works on the bytes of a job in place, by its argument and a table; returns its result.
///
/// The table is what the NF wrote. Bytes come from a network: any content must be harmless, as it
/// must be in the OpenCL form.
pub type Scalar = fn(bytes: &mut [u8], argument: [u32; 2], table: &[u8]) -> [u32; 2];

/// What a device does for an NF.
#[derive(Clone, Debug)]
pub struct DeviceWork {
    /// The function.
    pub function: DeviceFunction,
    /// What it reads in addition to packets.
    pub table: Vec<u8>,
}

/// A packet for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceJob {
    /// Its lane, which has no other job.
    pub lane: usize,
    /// Where the bytes to work on begin in the packet.
    pub start: usize,
    /// How many they are.
    pub len: usize,
    /// What the function is to do with them.
    pub argument: [u32; 2],
}

/// A packet's lane, and what the function returned for it, which may be any value; `None` if the device
/// has failed: then the NF drops the packet, whose bytes are unspecified.
pub type DeviceResult = (usize, Option<[u32; 2]>);

/// An NF whose work a device does in part. Both halves together do what
/// [`process`](crate::NetworkFunction::process) does, byte for byte.
pub trait OnDevice {
    /// The first half: all that comes before the device's part. What is left for the device is added
    /// to `jobs`, at most one for a packet; packets without one are ready.
    fn begin(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
        jobs: &mut Vec<DeviceJob>,
    );

    /// The second half, for the packets with jobs.
    fn finish(&mut self, batch: &mut Batch, results: &[DeviceResult], context: &mut Context<'_>);
}

/// Where a device does work, and how much of the device it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePlace {
    /// The name of the device, as `at` in a chain file.
    pub at: String,
    /// Work-groups.
    pub work_groups: usize,
    /// How long it may have packets and not move on before it has failed.
    pub patience: Duration,
}

/// The devices of a program, by their names in a chain file.
pub trait Devices: Debug + Send + Sync {
    /// Allocates packet memory that the device `at` shares.
    ///
    /// # Errors
    /// In words for the user: what is missing, and how to get it.
    fn allocate(&self, at: &str, len: usize) -> Result<PacketMemory, String>;

    /// Starts `work` at `place`, for packets of `pool`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn start(
        &self,
        place: &DevicePlace,
        work: DeviceWork,
        pool: &Arc<Pool>,
    ) -> Result<Box<dyn DeviceLine>, String>;
}

/// The way of packets to a device and back.
pub trait DeviceLine: Send {
    /// Lets the device do `jobs`, and waits for them; adds a result for each.
    ///
    /// # Errors
    /// What the device did wrong, and the packets that it has: their lanes are without frames, and are
    /// to be released. After that the line is of no use.
    fn run(
        &mut self,
        batch: &mut Batch,
        jobs: &[DeviceJob],
        results: &mut Vec<DeviceResult>,
    ) -> Result<(), DeviceFault>;
}

/// A device that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct DeviceFault {
    /// What it did, in words.
    pub what: String,
    /// The packets that are lost.
    pub lost: Lanes,
}
