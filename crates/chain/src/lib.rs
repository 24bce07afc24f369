//! Chains: which NFs a packet takes, and in which order.
//!
//! Dynamic chaining as in Hummingbird: classification gives each packet its
//! type once; the [`RouteDecider`] maps (packet type, current NF) to the next
//! NF. [`Plan::load`] checks a chain file as a whole and loads what it names;
//! [`Graph`] draws it.

mod config;
mod graph;
mod kinds;
mod overload;
mod route_decider;
mod routing;
mod workers;

pub use config::{
    Change, Difference, Files, Heir, How, InputPlan, MergeBy, Names, NfPlan, OnDevice, OutputPlan,
    Plan, PlanOptions, PortPlan, Routes, StateFate, Succession, parse_flow, read_routes,
};
pub use graph::{Graph, Nf as GraphNf, Port as GraphPort, on_cores};
pub use kinds::Kinds;
pub use overload::{OnOverload, Overload};
pub use route_decider::{Next, NfIndex, RouteDecider, Stage};
pub use routing::Routing;
pub use workers::{MAX_WORKERS, Workers};
