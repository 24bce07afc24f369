//! The chain file: read, checked as a whole, and turned into a [`Plan`].

mod captures;
mod classes;
mod file;
mod files;
mod hops;
mod identity;
mod include;
mod names;
mod parts;
mod paths;
mod plan;
mod ports;
mod routes;
mod table;
mod variables;
mod ways;

pub use files::Files;
pub use names::Names;
pub use plan::{NfPlan, Plan, PlanOptions};
pub use ports::{InputPlan, InputSource, MergeBy, OutputPlan, OutputTarget};
pub use routes::{Routes, read_routes};
pub(crate) use ways::distinct_inputs;
