//! TAP devices: network interfaces of this machine whose other end is the chain.
//!
//! What the host sends by the device is received here, and what is sent here the host receives. So
//! virtual machines and containers are ports of a chain, and a gateway with one NIC can itself be
//! reached: by a TAP device with an address.

mod device;
mod input;
mod kind;
mod output;
mod place;
mod queue;
mod setup;

pub use kind::KIND;
