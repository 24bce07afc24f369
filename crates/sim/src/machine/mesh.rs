//! The network between the tiles: a mesh with one link each way between neighbours.

use crate::calendar::{Calendar, Cycle};

/// A tile: a core with a slice of the last-level cache and, perhaps, an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile(pub usize);

/// A mesh in which messages go along the row first, then along the column.
#[derive(Clone, Debug)]
pub struct Mesh {
    columns: usize,
    hop: Cycle,
    link_bytes: u64,
    /// Column and row of each tile.
    places: Vec<(usize, usize)>,
    /// By tile and direction.
    links: Vec<[Calendar; 4]>,
}

/// Directions.
const EAST: usize = 0;
const WEST: usize = 1;
const SOUTH: usize = 2;
const NORTH: usize = 3;

impl Mesh {
    /// `columns` by `rows` tiles; a hop takes `hop` cycles, and a link carries
    /// `link_bytes` bytes a cycle.
    pub fn new(columns: usize, rows: usize, hop: Cycle, link_bytes: u64) -> Self {
        let links = std::array::from_fn(|_| Calendar::new(1));
        let places = (0..columns * rows).map(|tile| (tile % columns, tile / columns)).collect();
        Self { columns, hop, link_bytes, places, links: vec![links; columns * rows] }
    }

    /// Hops between two tiles.
    pub fn hops(&self, from: Tile, to: Tile) -> u64 {
        let (from, to) = (self.at(from), self.at(to));
        (from.0.abs_diff(to.0) + from.1.abs_diff(to.1)) as u64
    }

    #[inline]
    fn at(&self, tile: Tile) -> (usize, usize) {
        self.places[tile.0]
    }

    /// Sends `bytes` bytes at `now`; when the first of them arrive. The rest follow
    /// behind, and those who want them wait no longer: cores take the part of a line
    /// that they asked for first.
    pub fn send(&mut self, from: Tile, to: Tile, bytes: u64, now: Cycle) -> Cycle {
        let flits = if bytes <= self.link_bytes { 1 } else { bytes.div_ceil(self.link_bytes) };
        let ((column, row), (to_column, to_row)) = (self.at(from), self.at(to));
        let (mut at, mut arrived) = (from.0, now);
        let along = if column < to_column { (EAST, 1) } else { (WEST, usize::MAX) };
        let across =
            if row < to_row { (SOUTH, self.columns) } else { (NORTH, self.columns.wrapping_neg()) };
        let steps = [(column.abs_diff(to_column), along), (row.abs_diff(to_row), across)];
        for (count, (direction, step)) in steps {
            for _ in 0..count {
                arrived = self.links[at][direction].reserve_run(arrived, flits) + self.hop;
                at = at.wrapping_add(step);
            }
        }
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_mesh_takes_a_hop_for_each_step() {
        let mut mesh = Mesh::new(4, 4, 2, 32);
        for (from, to) in [(0, 0), (0, 15), (12, 3), (5, 6), (6, 5), (1, 13)] {
            let (from, to) = (Tile(from), Tile(to));
            let hops = mesh.hops(from, to);
            let start = 1000 * (1 + from.0 as u64);
            assert_eq!(mesh.send(from, to, 64, start), start + 2 * hops, "{from:?} {to:?}");
        }
        assert_eq!(mesh.hops(Tile(0), Tile(15)), 6);
    }

    #[test]
    fn messages_wait_for_each_other_on_a_link() {
        let mut mesh = Mesh::new(2, 1, 2, 32);
        assert_eq!(mesh.send(Tile(0), Tile(1), 64, 0), 2);
        assert_eq!(mesh.send(Tile(0), Tile(1), 64, 0), 4);
        assert_eq!(mesh.send(Tile(1), Tile(0), 64, 0), 2);
    }
}
