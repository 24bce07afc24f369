//! DPDK: devices whose drivers receive packets into packet memory, and send them out of it, without the
//! kernel.
//!
//! An mbuf of DPDK stands for each frame of the pool; mbufs lie in memory of their own (`mbufs.c`,
//! [`binding`], and docs/adr/0017). A frame that a driver has is lent ([`loans`]), and nothing else
//! refers to it. A device has one input and one output, with some of its queues each ([`device`]);
//! DPDK itself is started with the first one ([`eal`]).
//!
//! Without the feature `dpdk` the kind exists, and each use of it is an error that names the feature.

#[cfg(feature = "dpdk")]
mod binding;
#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod eal;
#[cfg(feature = "dpdk")]
mod input;
mod kind;
#[cfg(feature = "dpdk")]
mod loans;
#[cfg(feature = "dpdk")]
mod log;
#[cfg(feature = "dpdk")]
mod output;
#[cfg(not(feature = "dpdk"))]
#[path = "none.rs"]
mod ports;
#[cfg(feature = "dpdk")]
mod ports;
mod settings;
#[cfg(feature = "dpdk")]
mod wire;

#[cfg(all(test, feature = "dpdk"))]
mod tests;

pub use kind::KIND;

/// Whether this build has DPDK: the feature `dpdk`.
pub const HAS_DPDK: bool = cfg!(feature = "dpdk");

/// What a build without it lacks.
const WITHOUT: &str = "this build has no DPDK: it lacks the feature dpdk (Debian: libdpdk-dev)";
