//! What goes wrong with devices.

use std::time::Duration;

use crate::region::{MOST_LANES, MOST_ROWS, MOST_WORK_GROUPS, Shape};

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccelError {
    /// The queues are out of bounds.
    #[error(
        "{} work-groups of {} work-items with {} rows: at most {MOST_WORK_GROUPS} of {MOST_LANES} \
         with {MOST_ROWS} rows (a power of two), and at least 1 of each",
        .0.work_groups, .0.lanes, .0.rows
    )]
    Shape(Shape),
    /// The memory is too small for queues and tables, or they are too large for any.
    #[error("queues and tables of {needed} bytes do not fit into {len} bytes of shared memory")]
    Region {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that are there.
        len: usize,
    },
    /// No memory is available to share with the device.
    #[error("no memory of {len} bytes that {device} shares: {why}")]
    Memory {
        /// The device.
        device: String,
        /// Bytes requested.
        len: usize,
        /// The cause, as the device reports it.
        why: String,
    },
    /// The packets are in memory that the device does not share.
    #[error(
        "the packets are not in memory that {0} shares; 'device' in [memory] decides that from the start"
    )]
    ForeignPool(String),
    /// The device shares only memory that it has allocated, and not that of another owner.
    #[error("{0} shares only memory that it has allocated itself")]
    OwnMemory(String),
    /// A syncer would have no work-group of a partition.
    #[error("{syncers} syncers need as many work-groups of each function; '{function}' has {has}")]
    TooFewWorkGroups {
        /// Syncers requested.
        syncers: usize,
        /// The function.
        function: &'static str,
        /// Its work-groups.
        has: usize,
    },
    /// OpenCL is not there.
    #[error("{0}")]
    Missing(String),
    /// The device cannot do what is needed.
    #[error("{device} {why}")]
    Unfit {
        /// The device.
        device: String,
        /// What it cannot do, and why.
        why: String,
    },
    /// The kernel does not compile.
    #[error("the kernel does not compile on {device}:\n{log}")]
    Compile {
        /// The device.
        device: String,
        /// The compiler's log.
        log: String,
    },
    /// A call of the device's interface failed.
    #[error("{device}: {call}: {why}")]
    Call {
        /// The device.
        device: String,
        /// What was called.
        call: &'static str,
        /// The interface's error.
        why: String,
    },
    /// The device does not run all work-groups at once.
    #[error("needs {needed} resident work-groups, {device} runs {runs}")]
    Residency {
        /// The device.
        device: String,
        /// Work-groups that are needed.
        needed: usize,
        /// Work-groups for which it has room.
        runs: usize,
    },
    /// The device has not started all work-groups, and does not report how many it can run at once.
    #[error(
        "needs {needed} resident work-groups, {device} runs {runs}: the others have not started \
         within {} s; for most devices, nothing else shows how many they run at once", .within.as_secs()
    )]
    Late {
        /// The device.
        device: String,
        /// Work-groups that are needed.
        needed: usize,
        /// Work-groups that have started.
        runs: usize,
        /// The time that they had.
        within: Duration,
    },
}

/// What a device did wrong while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It does not answer.
    #[error("work-group {work_group} has not moved on for {} ms", .after.as_millis())]
    Stalled {
        /// The work-group.
        work_group: usize,
        /// For how long.
        after: Duration,
    },
    /// It counts rows that it was not given.
    #[error("work-group {work_group} counts {done} rows done of {sealed} it was given")]
    Index {
        /// The work-group.
        work_group: usize,
        /// Its count.
        done: u32,
        /// Rows that it was given.
        sealed: u32,
    },
    /// It ended without a request.
    #[error("work-group {work_group} has ended by itself")]
    Ended {
        /// The work-group.
        work_group: usize,
    },
}
