//! The network between the tiles: a mesh with one link each way between neighbours.

use std::ops::Range;

use crate::calendar::{Cycle, Lane};

/// A tile: a core with a slice of the last-level cache and, perhaps, an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile(pub usize);

/// A mesh in which messages go along the row first, then along the column.
#[derive(Clone, Debug)]
pub struct Mesh {
    hop: Cycle,
    link_bytes: u64,
    tiles: usize,
    /// Of each pair of tiles, the place in `steps` where the links between them begin; and
    /// the end of the last.
    routes: Box<[u32]>,
    steps: Box<[u16]>,
    /// Four of each tile, by direction.
    links: Vec<Lane>,
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
        let tiles = columns * rows;
        let (mut routes, mut steps) = (vec![0], Vec::new());
        for pair in 0..tiles * tiles {
            steps.extend(route(columns, pair / tiles, pair % tiles));
            routes.push(steps.len() as u32);
        }
        let links = vec![Lane::default(); 4 * tiles];
        Self { hop, link_bytes, tiles, routes: routes.into(), steps: steps.into(), links }
    }

    /// The links between two tiles.
    #[inline]
    fn route(&self, from: Tile, to: Tile) -> Range<usize> {
        let pair = from.0 * self.tiles + to.0;
        self.routes[pair] as usize..self.routes[pair + 1] as usize
    }

    /// Hops between two tiles.
    pub fn hops(&self, from: Tile, to: Tile) -> u64 {
        self.route(from, to).len() as u64
    }

    /// Sends `bytes` bytes at `now`; when the first of them arrive. The rest follow
    /// behind, and those who want them wait no longer: cores take the part of a line
    /// that they asked for first.
    #[inline]
    pub fn send(&mut self, from: Tile, to: Tile, bytes: u64, now: Cycle) -> Cycle {
        let flits = if bytes <= self.link_bytes { 1 } else { bytes.div_ceil(self.link_bytes) };
        let mut arrived = now;
        for link in &self.steps[self.route(from, to)] {
            arrived = self.links[usize::from(*link)].reserve_run(arrived, flits) + self.hop;
        }
        arrived
    }
}

/// The links from one tile to another, by number.
fn route(columns: usize, from: usize, to: usize) -> Vec<u16> {
    let (column, row) = (from % columns, from / columns);
    let (to_column, to_row) = (to % columns, to / columns);
    let along = if column < to_column { (EAST, 1) } else { (WEST, usize::MAX) };
    let across = if row < to_row { (SOUTH, columns) } else { (NORTH, columns.wrapping_neg()) };
    let (mut at, mut links) = (from, Vec::new());
    for (count, (direction, step)) in
        [(column.abs_diff(to_column), along), (row.abs_diff(to_row), across)]
    {
        for _ in 0..count {
            links.push((4 * at + direction) as u16);
            at = at.wrapping_add(step);
        }
    }
    links
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
