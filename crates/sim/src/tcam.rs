//! Ternary memory: all rules compared at once, beyond the mesh.

use crate::calendar::{Calendar, Cycle};
use crate::config::{Config, Method};
use crate::halo::RESULT;
use crate::machine::{CoreId, Memory, Tile};

/// The tile that it is beside: one in the middle.
const TILE: Tile = Tile(6);

/// A ternary memory. It begins a search each cycle.
#[derive(Clone, Debug)]
pub struct Tcam {
    tile: Tile,
    search: Cycle,
    begins: Calendar,
    /// Searches so far.
    pub searches: u64,
}

impl Tcam {
    /// An idle one, built from ternary or from static cells depending on `method`.
    pub fn new(config: &Config, method: Method) -> Self {
        let search = match method {
            Method::SramTcam => config.tcam.sram_search_cycles,
            _ => config.tcam.search_cycles,
        };
        let tile = Tile(TILE.0 % config.llc.slices);
        Self { tile, search, begins: Calendar::new(1), searches: 0 }
    }

    /// Searches for a key of `key_bytes` bytes that `core` sends at `now`; when the
    /// core has the result.
    pub fn search(
        &mut self,
        memory: &mut Memory,
        core: CoreId,
        key_bytes: u64,
        now: Cycle,
    ) -> Cycle {
        self.searches += 1;
        let arrived = memory.from_core(core, self.tile, key_bytes, now);
        let found = self.begins.reserve(arrived) + self.search;
        memory.to_core(core, self.tile, RESULT, found)
    }
}
