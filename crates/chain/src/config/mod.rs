//! The chain file: read, checked as a whole, and turned into a [`Plan`].

mod classes;
mod cores;
mod device;
mod difference;
mod exclusion;
mod file;
mod files;
mod flows;
mod hops;
mod include;
mod memory;
mod names;
mod needs;
mod nfs;
mod opening;
mod parts;
mod paths;
mod plan;
mod ports;
mod routes;
mod served;
mod succession;
mod table;
mod variables;
mod ways;

pub use device::OnDevice;
pub use difference::{Change, Difference, How, StateFate};
pub use files::Files;
pub use flows::parse_flow;
pub use names::Names;
pub use nfs::NfPlan;
pub use plan::{Plan, PlanOptions};
pub use ports::{InputPlan, MergeBy, OutputPlan, PortPlan};
pub use routes::{Routes, read_routes};
pub use succession::{Heir, Succession};
pub(crate) use ways::distinct_inputs;
