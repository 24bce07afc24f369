//! Functions that a device runs on packets: the part of an NF that takes the time.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use thalweg_packet::{Batch, Frame, Lanes, PacketMemory, Pool};
use zeroize::Zeroizing;

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
    /// OpenCL C 1.2 that defines `uint2 NAME(global uchar *bytes, uint len, uint2 argument, global const
    /// uchar *table)`; with bytes that are `near`, it has `local const uchar *near` in addition. Other names in
    /// it begin with `NAME_`, as several functions become one kernel; a text that several functions share
    /// guards itself against a second inclusion.
    pub source: &'static str,
    /// How many bytes at the start of the table each work-group copies to its local memory when it starts, at
    /// most [`MOST_NEAR`]; 0 for none.
    pub near: usize,
    /// How long jobs are divided among work-items; `None` if the function needs all bytes at once, or changes
    /// them.
    pub split: Option<Split>,
    /// Whether it changes the bytes. If not, a device with copies of them need not send these back.
    pub changes: bool,
    /// The same on a processor.
    pub scalar: Scalar,
}

/// How the bytes of a long job are divided into pieces, each for a work-item of its own, so that the others of a
/// work-group, which run in step, need not wait for the one with the longest packet.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// From more bytes than this on, there are several pieces; about as many are in each.
    pub piece: usize,
    /// How many bytes each piece has in common with the next one.
    pub overlap: usize,
    /// The result of the function for two neighbouring pieces, from those for each.
    pub join: fn([u32; 2], [u32; 2]) -> [u32; 2],
}

impl Split {
    /// The pieces of `len` bytes, at least one and at most `most`.
    pub fn pieces(self, len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
        let number = len.div_ceil(self.piece.max(1)).clamp(1, most.max(1));
        let each = len.div_ceil(number).max(1);
        let piece = move |start: usize| start..(start + each + self.overlap).min(len);
        (0..len.max(1)).step_by(each).map(piece)
    }
}

/// The most bytes of a table in local memory: every device has as many for each of its work-groups.
pub const MOST_NEAR: usize = 16 << 10;

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
    pub table: DeviceTable,
    /// Other functions that would do the same.
    pub alternatives: Option<Alternatives>,
}

/// Functions with the same results as another one, from the same table. Which of them is the fastest depends on
/// the device, which is measured with packets of these.
#[derive(Clone, Debug)]
pub struct Alternatives {
    /// The others.
    pub functions: &'static [DeviceFunction],
    /// A table to measure with, without secrets.
    pub table: Vec<u8>,
    /// Packets, and what the functions are to do with them: the same number of each is measured. At least one.
    pub samples: Vec<(Vec<u8>, [u32; 2])>,
}

/// What a function reads in addition to packets. It may have keys, so it is zeroed when it is dropped; what
/// copies it does the same.
pub type DeviceTable = Zeroizing<Vec<u8>>;

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
/// has failed: then the NF drops the packet, whose bytes are unspecified and must not be read.
pub type DeviceResult = (usize, Option<[u32; 2]>);

/// An NF whose work a device does in part. Both halves together do what
/// [`process`](crate::NetworkFunction::process) does, byte for byte.
///
/// Each half gets the batches in the order in which they arrived. If the blueprint
/// [allows it](crate::Blueprint::overlaps_on_device), the first half may have got later batches before
/// the second half gets one: then what earlier packets decide about later ones must be decided in one
/// and the same half.
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

    /// The second half, for the packets with jobs, by lane in ascending order. The context has the
    /// verdicts and the generated packets of the first half.
    fn finish(&mut self, batch: &mut Batch, results: &[DeviceResult], context: &mut Context<'_>);
}

/// Whether a device may do its work in launches: kernels that end, each for the packets that wait. What a launch
/// costs is divided among these, so it is another trade than a kernel that stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Launches {
    /// Only in kernels that stay: a device that cannot run them is refused.
    #[default]
    Never,
    /// In launches on a device that cannot run kernels that stay; over shared memory if it has any that both
    /// sides may use at any time.
    Auto,
    /// In launches over shared memory.
    Shared,
    /// In launches to which packets are copied, and from which they are copied back.
    Copied,
}

impl Launches {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Never, Self::Auto, Self::Shared, Self::Copied];

    /// Its name in a chain file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Auto => "auto",
            Self::Shared => "shared",
            Self::Copied => "copied",
        }
    }
}

/// How packets reach a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Through memory that it shares, while its kernel stays.
    #[default]
    Resident,
    /// Through memory that it shares, in launches.
    Shared,
    /// By copies, in launches.
    Copied,
}

impl Way {
    /// Its name, in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Shared => "launches-shared",
            Self::Copied => "launches-copied",
        }
    }
}

/// A device that a chain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// As `at` in a chain file.
    pub at: &'a str,
    /// Whether it may do its work in launches.
    pub launches: Launches,
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

/// What is known of a device before it has work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its own name, which is the same for all names that lead to it: `cuda:0` for `gpu`.
    pub place: String,
    /// Its room for work-groups; `None` if that shows only when they start.
    pub room: Option<DeviceRoom>,
}

/// How many work-groups a device runs at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRoom {
    /// All of them.
    pub all: usize,
    /// Those that no kernel of this program has.
    pub free: usize,
    /// How a user gets more, as a part of a sentence.
    pub remedy: &'static str,
}

/// Why a device cannot be used, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; expected {expected}")]
pub struct Unusable {
    /// What is wrong.
    pub why: String,
    /// What would be right.
    pub expected: String,
}

/// The devices of a program, by their names in a chain file.
pub trait Devices: Debug + Send + Sync {
    /// Opens a device, without work, and returns what is known of it.
    ///
    /// # Errors
    /// When there is no such device, or it cannot be used.
    fn find(&self, device: Named<'_>) -> Result<DeviceFacts, Unusable> {
        Ok(DeviceFacts { place: device.at.to_owned(), room: None })
    }

    /// Whether a device is open whose driver opens files and starts programs while it works.
    fn have_driver(&self) -> bool {
        false
    }

    /// Opens no further devices: this program is confined to its files, among which no driver is.
    fn confine(&self) {}

    /// Allocates packet memory that a device shares, or from which packets are copied to it.
    ///
    /// # Errors
    /// In words for the user: what is missing, and how to get it.
    fn allocate(&self, device: Named<'_>, len: usize) -> Result<PacketMemory, String>;

    /// Has a device share packet memory that it has not allocated, such as a file in memory that a
    /// peer maps, or huge pages. It is the same memory, at the same addresses.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); also if the device shares only what it has allocated.
    fn adopt(&self, device: Named<'_>, memory: PacketMemory) -> Result<PacketMemory, String> {
        drop(memory);
        Err(format!("'{}' shares only memory that it has allocated", device.at))
    }

    /// Starts the work of all NFs of a chain on a device, for packets of `pool`: all of it at
    /// once, in one kernel. Returns the lines of each share.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); also if the device does not run all work-groups at a time.
    fn start(
        &self,
        device: Named<'_>,
        shares: Vec<DeviceShare>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String>;
}

/// An NF's share of a device.
#[derive(Clone, Debug)]
pub struct DeviceShare {
    /// How much of the device it has.
    pub place: DevicePlace,
    /// What the device does.
    pub work: DeviceWork,
    /// How many lines lead there, each to work-groups of its own; at most as many as work-groups.
    pub lines: usize,
}

/// The way of packets to a device and back. Several lines of an NF are used by several threads.
pub trait DeviceLine: Send {
    /// How many packets keep the device busy: with that number submitted and not back, more only wait.
    fn capacity(&self) -> usize;

    /// Takes the frames of packets with `jobs` out of `batch` and gives them to the device, now or when
    /// it has room; returns how many it took, which come back from [`poll`](Self::poll) with `visit`.
    /// Packets whose lanes have no frame are left out.
    fn submit(&mut self, batch: &mut Batch, visit: usize, jobs: &[DeviceJob]) -> usize;

    /// Adds the packets that are back since the last call to `back`, in any order. Never waits. A device
    /// that idles gets what has been submitted so far.
    ///
    /// # Errors
    /// What the device did wrong. All packets that it had are in `back` then, without results. After
    /// that, packets that are submitted come back in the same way.
    fn poll(&mut self, back: &mut Vec<DeviceReturn>) -> Result<(), DeviceFault>;

    /// What went through it so far.
    fn counts(&self) -> DeviceCounts;
}

/// What went to a device: packets, in rows of slots of which a work-group works on one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Packets submitted.
    pub packets: u64,
    /// Rows that the device was given.
    pub rows: u64,
    /// Slots of these rows.
    pub slots: u64,
    /// Those of them that are empty.
    pub dummies: u64,
    /// How packets reach the device: of several, the last one that is known.
    pub way: Way,
    /// Launches that had some of the rows.
    pub launches: u64,
    /// Bytes of packets that were copied, there and back.
    pub copied: u64,
}

impl DeviceCounts {
    /// Adds the counts of another line, or of another device.
    pub fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.rows += other.rows;
        self.slots += other.slots;
        self.dummies += other.dummies;
        self.way = other.way;
        self.launches += other.launches;
        self.copied += other.copied;
    }
}

/// A packet that is back from a device.
#[derive(Debug)]
pub struct DeviceReturn {
    /// As submitted.
    pub visit: usize,
    /// The packet's lane.
    pub lane: usize,
    /// Its frame; `None` if the device has failed and may still write to it.
    pub frame: Option<Frame>,
    /// What the function returned; `None` if the device has failed.
    pub result: Option<[u32; 2]>,
}

/// What a device that failed did, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceFault(pub String);
