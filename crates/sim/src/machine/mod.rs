//! The machine below the core: caches, mesh, memory.

mod address;
mod cache;
mod dram;
mod host;
mod locks;
mod memory;
mod mesh;
mod private;
#[cfg(test)]
mod tests;

pub use address::{Address, Layout, Region};
pub use cache::{Cache, Evicted, LEAST_SETS, LINE, LineNumber, Place, Small, Timed};
pub use dram::Dram;
pub use host::Machine;
pub use locks::Locks;
pub use memory::{Access, Done, Level, Memory, MemoryCounts};
pub use mesh::{Mesh, Tile};
pub use private::{CoreId, Ports};
