//! Chains: which NFs a packet takes, and in which order.
//!
//! Dynamic chaining as in Hummingbird: classification gives each packet its
//! type once; the [`RouteDecider`] maps (packet type, current NF) to the next
//! NF. [`Plan::load`] checks a chain file as a whole and loads what it names;
//! [`Graph`] draws it.

mod config;
mod graph;
mod overload;
mod route_decider;
mod routing;
mod workers;

pub use config::{
    Change, Difference, Files, Heir, How, InputPlan, InputSource, MergeBy, Names, NfPlan,
    OutputPlan, OutputTarget, Plan, PlanOptions, Routes, StateFate, Succession, read_routes,
};
pub use graph::{Graph, Nf as GraphNf, Port as GraphPort, PortKind, on_cores};
pub use overload::{OnOverload, Overload};
pub use route_decider::{Next, NfIndex, RouteDecider, Stage};
pub use routing::Routing;
pub use workers::{MAX_WORKERS, Workers};
