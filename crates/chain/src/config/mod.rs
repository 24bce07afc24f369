//! The chain file: read, checked as a whole, and turned into a [`Plan`].

mod classes;
mod file;
mod plan;
mod ports;
mod routes;

pub(crate) use plan::NfPlan;
pub use plan::{Plan, PlanOptions};
pub(crate) use ports::{InputPlan, InputSource, OutputPlan, OutputTarget};
