//! The engine: takes packets from port to port through the NFs of a chain, and reports the fate of
//! each.
//!
//! [`run`] sends traffic through a [`Plan`](thalweg_chain::Plan), [`Engine`] does so on a thread of its
//! own; [`trace()`] explains the path of
//! one packet. [`Control`] steers a run, and observes its packets.

mod advice;
mod batch_times;
mod burst;
mod classification;
mod control;
mod counters;
mod course;
mod device;
mod failed_devices;
mod forwarding;
mod gate;
pub mod guard;
mod live;
mod mailbox;
mod observe;
mod overload;
mod parts;
mod published;
mod reload;
mod report;
mod runtime;
mod series;
mod station;
mod supers;
mod tally;
mod trace;
mod turn;
mod visit;
mod watch;

pub use batch_times::{BatchReport, SlowBatch};
pub use control::{Control, Progress, ReloadCounts};
pub use failed_devices::DeviceFailure;
pub use live::Engine;
pub use observe::{DropPlace, DropRecord, Drops, DropsWanted, ObserveError, Traces};
pub use reload::{Reload, ReloadError};
pub use report::{
    DeviceReport, FormerNf, FormerReport, LatencyReport, NfReport, PauseReport, PortReport,
    QueueReport, Report, SandboxReport, SumReport, TypeReport, WorkerReport,
};
pub use runtime::{RunError, RunOptions, StateFolderError, TraceError, run, state_schema, trace};
pub use series::{Interval, Meter, NfInterval, Pace, Sampler, Series};
pub use trace::{Change, Step, Trace};
