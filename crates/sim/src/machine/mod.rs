//! The machine below the core: caches, mesh, memory.

mod address;
mod cache;
mod dram;
mod host;
mod memory;
mod mesh;
#[cfg(test)]
mod tests;

pub use address::{Address, Layout, Region};
pub use cache::{Cache, Evicted, LEAST_SETS, LINE, LineNumber};
pub use dram::Dram;
pub use host::Machine;
pub use memory::{Access, Done, Level, Memory, MemoryCounts};
pub use mesh::{Mesh, Tile};
