//! Chains: takes packets from NF to NF, and reports the fate of each.
//!
//! Dynamic chaining as in Hummingbird: classification gives each packet its
//! type once; the [`RouteDecider`] maps (packet type, current NF) to the next
//! NF; packet forwarding takes the packet there. [`Plan::load`] checks a chain
//! file as a whole, [`run`] sends traffic through it, [`trace()`] explains the
//! path of one packet.

mod advice;
mod config;
mod control;
mod counters;
mod forwarding;
mod graph;
mod report;
mod route_decider;
mod runtime;
mod trace;
mod visit;
mod worker;

pub use config::{Names, Plan, PlanOptions, Routes, read_routes};
pub use control::{Control, Progress};
pub use graph::Graph;
pub use report::{LatencyReport, NfReport, PortReport, Report};
pub use route_decider::{Next, NfIndex, RouteDecider, Stage};
pub use runtime::{RunError, RunOptions, StateFolderError, TraceError, run, state_schema, trace};
pub use trace::{Change, Step, Trace};
