//! A cycle-level simulator of flow lookup.
//!
//! How fast is a packet's flow found by software, by accelerators beside the slices of
//! the last-level cache (Yuan, Wang, Wang and Huang, "HALO: Accelerating Flow
//! Classification for Scalable Packet Processing in NFV", ISCA 2019), by ternary
//! memory? Tables are real, at simulated addresses; time is kept by a model of the core
//! ([`engine`]) over one of caches, mesh and memory ([`machine`]). The simulator knows
//! nothing of the results that the paper claims.

pub mod calendar;
pub mod calibrate;
pub mod config;
pub mod energy;
pub mod engine;
pub mod experiment;
pub mod flow_register;
pub mod halo;
pub mod host;
pub mod machine;
pub mod own;
mod random;
pub mod report;
pub mod software;
pub mod table;
pub mod tcam;
