//! What belongs to one core: its caches, miss registers and ports.

use crate::calendar::{Calendar, Cycle};
use crate::config::Config;

use super::cache::{Cache, LineNumber, Timed};
use super::mesh::Tile;

/// The tile of the first core in the default mesh: one that is as far from all slices as
/// the average tile is.
const FIRST: usize = 1;

/// A core, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreId(pub usize);

/// Through which a core's threads issue.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Arithmetic and branches.
    pub alu: Calendar,
    /// Loads.
    pub load: Calendar,
    /// Stores.
    pub store: Calendar,
    /// Fetch, where threads share it.
    pub fetch: Calendar,
}

/// The caches that the threads of a core share, and other cores do not.
#[derive(Clone, Debug)]
pub(super) struct Private {
    pub(super) tile: Tile,
    pub(super) l1: Cache<Timed>,
    pub(super) l2: Cache<Timed>,
    /// When each register for a miss under way is free again.
    pub(super) mshr: Vec<Cycle>,
    pub(super) ports: Ports,
}

impl Private {
    pub(super) fn new(config: &Config, id: CoreId) -> Self {
        let core = &config.core;
        Self {
            tile: Tile((FIRST + id.0) % config.llc.slices),
            l1: Cache::new(config.l1d.kib << 10, config.l1d.ways),
            l2: Cache::new(config.l2.kib << 10, config.l2.ways),
            mshr: vec![0; core.mshr],
            ports: Ports {
                alu: Calendar::new(core.alu_ports),
                load: Calendar::new(core.load_ports),
                store: Calendar::new(core.store_ports),
                fetch: Calendar::new(core.width),
            },
        }
    }

    /// The register for a miss that is free first, and when it is.
    #[inline]
    pub(super) fn miss_register(&self) -> (usize, Cycle) {
        let free = self.mshr.iter().copied().enumerate();
        free.min_by_key(|(_, free)| *free).unwrap_or((0, 0))
    }

    /// Forgets a line; whether it was written here.
    pub(super) fn remove(&mut self, line: LineNumber) -> bool {
        let of_l1 = self.l1.remove(line);
        self.l2.remove(line) || of_l1
    }

    /// Takes a line in without time passing.
    pub(super) fn warm(&mut self, line: LineNumber) {
        for cache in [&mut self.l2, &mut self.l1] {
            if cache.touch(line).is_none() {
                cache.fill(line, 0, false);
            }
        }
    }
}
