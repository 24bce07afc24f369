//! Lookup accelerators beside the slices of the last-level cache (HALO, section 4).
//!
//! A table belongs to one accelerator, found by a hash of its address. A query waits for
//! a place on its scoreboard, and goes on: the table's metadata, the key, its hash, the
//! buckets, the keys of entries whose signature agrees. An accelerator does not own what
//! it reads: the lines of a table lie in all slices.

use crate::calendar::{Calendar, Cycle, Lane};
use crate::config::{BucketFetch, Config, HaloConfig, KeySource};
use crate::machine::{Address, CoreId, LINE, Memory, Tile};
use crate::table::{HashTable, Walk};

/// Bytes of a query without its key: table, key's address, result's address.
pub(crate) const QUERY: u64 = 24;
/// Bytes of a result.
pub(crate) const RESULT: u64 = 8;

/// A lookup that an accelerator is to do.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The core that issues the query.
    pub core: CoreId,
    /// The table.
    pub table: &'a HashTable,
    /// Where the key lies.
    pub key: Address,
    /// The path of the lookup.
    pub walk: &'a Walk,
}

/// Where the cycles of a query went; they add up to its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Decoding, hashing, comparing.
    pub compute: Cycle,
    /// Waiting for metadata, key, buckets and keys.
    pub data: Cycle,
    /// Between core and accelerator.
    pub transport: Cycle,
    /// Waiting for the accelerator.
    pub queue: Cycle,
}

impl Parts {
    /// All of it.
    pub fn total(&self) -> Cycle {
        self.compute + self.data + self.transport + self.queue
    }

    /// The increase since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            compute: self.compute - before.compute,
            data: self.data - before.data,
            transport: self.transport - before.transport,
            queue: self.queue - before.queue,
        }
    }

    /// Adds the parts of another query.
    pub fn add(&mut self, other: &Self) {
        self.compute += other.compute;
        self.data += other.data;
        self.transport += other.transport;
        self.queue += other.queue;
    }
}

/// The end of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The core that issued the query.
    pub core: CoreId,
    /// When the accelerator had taken it in.
    pub accepted: Cycle,
    /// When it has the result.
    pub at: Cycle,
    /// Which accelerator.
    pub tile: Tile,
    /// Where the time went, from the core's instruction to the result.
    pub parts: Parts,
}

#[derive(Clone, Debug)]
struct Accelerator {
    /// When each place of the scoreboard is free.
    scoreboard: Vec<Cycle>,
    /// Tables whose metadata is cached, and from when; the most recently used last.
    metadata: Vec<(Address, Cycle)>,
    hash: Calendar,
    /// Of each a cycle: metadata read, a request to memory, a line from it, an answer.
    known: Lane,
    requests: Lane,
    lines: Lane,
    answers: Lane,
    /// When each of the queries that a table may have under way is done.
    under_way: Vec<(Address, Vec<Cycle>)>,
}

/// A read of a query, and its latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// From where.
    pub address: Address,
    /// Cycles until it was there.
    pub latency: Cycle,
}

/// A query step by step, for building the accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The key.
    pub key: u32,
    /// Where it lies.
    pub key_address: Address,
    /// When the query arrived.
    pub arrived: Cycle,
    /// When it was answered.
    pub at: Cycle,
    /// Whether the key was found.
    pub found: bool,
    /// Its reads, in order.
    pub reads: Vec<Read>,
}

/// All accelerators, one a slice.
#[derive(Clone, Debug)]
pub struct Halo {
    config: HaloConfig,
    /// Queries are recorded here, if it is there.
    pub record: Option<Vec<Recorded>>,
    tiles: Vec<Accelerator>,
    /// Queries so far.
    pub queries: u64,
    /// Where their time went.
    pub parts: Parts,
}

/// A read that has ended: when its last line was requested, and arrived.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    asked: Cycle,
    at: Cycle,
}

/// A query's clock: time goes to one part after the other.
struct Clock {
    now: Cycle,
    parts: Parts,
}

impl Clock {
    fn compute(&mut self, cycles: Cycle) {
        self.now += cycles;
        self.parts.compute += cycles;
    }

    fn data(&mut self, until: Cycle) {
        self.parts.data += until.saturating_sub(self.now);
        self.now = self.now.max(until);
    }

    fn queue(&mut self, until: Cycle) {
        self.parts.queue += until.saturating_sub(self.now);
        self.now = self.now.max(until);
    }

    fn transport(&mut self, until: Cycle) {
        self.parts.transport += until.saturating_sub(self.now);
        self.now = self.now.max(until);
    }
}

impl Halo {
    /// Idle accelerators.
    pub fn new(config: &Config) -> Self {
        let accelerator = Accelerator {
            scoreboard: vec![0; config.halo.scoreboard],
            metadata: Vec::new(),
            hash: Calendar::new(1),
            known: Lane::default(),
            requests: Lane::default(),
            lines: Lane::default(),
            answers: Lane::default(),
            under_way: Vec::new(),
        };
        Self {
            config: config.halo,
            record: None,
            tiles: vec![accelerator; config.llc.slices],
            queries: 0,
            parts: Parts::default(),
        }
    }

    /// The accelerator of a table.
    pub fn tile(&self, table: &HashTable) -> Tile {
        let mixed = (table.metadata(0).0 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        Tile(mixed as usize % self.tiles.len())
    }

    /// A query that the core's instruction issues at `now`.
    pub fn query(&mut self, memory: &mut Memory, query: Query<'_>, now: Cycle) -> Answered {
        let (tile, config) = (self.tile(query.table), self.config);
        let mut clock = Clock { now, parts: Parts::default() };
        let inline = config.key_source == KeySource::Inline;
        let bytes = QUERY + if inline { query.table.key_bytes() } else { 0 };
        clock.transport(memory.from_core(query.core, tile, bytes, now));
        let arrived = clock.now;
        if let Some(record) = &mut self.record {
            let (key, found) = (query.walk.key, query.walk.found);
            let reads = Vec::new();
            record.push(Recorded { key, key_address: query.key, arrived, at: 0, found, reads });
        }
        let (place, turn) = self.take_place(tile, &query, clock.now);
        clock.queue(place.1);
        let accepted = clock.now;
        clock.queue(turn.1);
        clock.compute(config.decode);
        self.metadata(memory, tile, query.table, &mut clock);
        if !inline {
            let bytes = query.table.key_bytes();
            clock.data(self.read(memory, tile, query.key, bytes, clock.now).at);
        }
        let begun = self.tiles[tile.0].hash.reserve_run(clock.now, config.hash_ii);
        clock.queue(begun);
        clock.compute(config.hash_latency);
        self.search(memory, tile, &query, &mut clock);
        let accelerator = &mut self.tiles[tile.0];
        let answered = accelerator.answers.reserve(clock.now);
        clock.queue(answered);
        clock.compute(config.commit);
        accelerator.scoreboard[place.0] = clock.now;
        let (_, under_way) = &mut accelerator.under_way[turn.0.0];
        under_way[turn.0.1] = clock.now;
        if let Some(recorded) = self.recorded() {
            recorded.at = clock.now;
        }
        self.queries += 1;
        Answered { core: query.core, accepted, at: clock.now, tile, parts: clock.parts }
    }

    /// A place on the scoreboard, and one among the queries of the table: which, and
    /// when they are free.
    fn take_place(
        &mut self,
        tile: Tile,
        query: &Query<'_>,
        now: Cycle,
    ) -> ((usize, Cycle), ((usize, usize), Cycle)) {
        let most = self.config.in_flight_per_table;
        let accelerator = &mut self.tiles[tile.0];
        let first = |free: &[Cycle]| {
            let at = (0..free.len()).min_by_key(|at| free[*at]).unwrap_or(0);
            (at, free[at].max(now))
        };
        let place = first(&accelerator.scoreboard);
        let id = query.table.metadata(0);
        let known = accelerator.under_way.iter().position(|(table, _)| *table == id);
        let at = known.unwrap_or_else(|| {
            accelerator.under_way.push((id, vec![0; most]));
            accelerator.under_way.len() - 1
        });
        let turn = first(&accelerator.under_way[at].1);
        (place, ((at, turn.0), turn.1))
    }

    /// Has the table's metadata at hand.
    fn metadata(&mut self, memory: &mut Memory, tile: Tile, table: &HashTable, clock: &mut Clock) {
        let id = table.metadata(0);
        let line = memory.line(id);
        let held = &mut self.tiles[tile.0].metadata;
        let known = held.iter().position(|(other, _)| *other == id).map(|at| held.remove(at).1);
        let at = match known {
            Some(at) if memory.locks.is_watched(line) => at,
            // Who wrote it has cleared the bit.
            _ => {
                if held.len() == self.config.metadata_entries {
                    held.remove(0);
                }
                memory.locks.watch(line);
                // That it is not here is known when it would be.
                clock.compute(self.config.metadata_hit);
                self.read(memory, tile, id, 1, clock.now).at
            }
        };
        self.tiles[tile.0].metadata.push((id, at));
        clock.data(at);
        let read = self.tiles[tile.0].known.reserve(clock.now);
        clock.queue(read);
        clock.compute(self.config.metadata_hit);
    }

    /// Buckets and keys.
    fn search(&mut self, memory: &mut Memory, tile: Tile, query: &Query<'_>, clock: &mut Clock) {
        let (table, walk, config) = (query.table, query.walk, self.config);
        let mut arrived = [None; 2];
        if config.bucket_fetch == BucketFetch::Parallel {
            let (begun, mut asked) = (clock.now, clock.now);
            for (bucket, at) in walk.buckets.iter().zip(&mut arrived) {
                let read = self.read(memory, tile, table.bucket(*bucket), LINE, begun);
                (asked, *at) = (read.asked, Some(read.at));
            }
            // Both are on their way before the first is looked at.
            clock.data(asked + 1);
        }
        for (choice, bucket) in walk.buckets.iter().enumerate() {
            let at = arrived[choice].unwrap_or_else(|| {
                self.read(memory, tile, table.bucket(*bucket), LINE, clock.now).at
            });
            clock.data(at);
            clock.compute(config.sig_compare);
            let mut found = false;
            for candidate in walk.candidates.iter().filter(|c| c.choice == choice) {
                let slot = table.slot(candidate.key);
                let read = self.read(memory, tile, slot, 8 + table.key_bytes(), clock.now);
                clock.data(read.at);
                clock.compute(config.key_compare);
                found = walk.found && Some(candidate) == walk.candidates.last();
            }
            if found {
                return;
            }
        }
    }

    /// The record of the query that goes on, if there is one.
    fn recorded(&mut self) -> Option<&mut Recorded> {
        self.record.as_mut()?.last_mut()
    }

    /// Reads `bytes` bytes, all of their lines at once.
    fn read(
        &mut self,
        memory: &mut Memory,
        tile: Tile,
        from: Address,
        bytes: u64,
        now: Cycle,
    ) -> Arrived {
        let lines = (from.0 % LINE + bytes).div_ceil(LINE);
        let accelerator = &mut self.tiles[tile.0];
        let (mut asked, mut at, mut latency) = (now, now, 0);
        for n in 0..lines {
            asked = accelerator.requests.reserve(now);
            let arrived = memory.accelerator_read(tile, from.plus(LINE * n), asked).at;
            latency = latency.max(arrived - asked);
            at = at.max(accelerator.lines.reserve(arrived));
        }
        if let Some(recorded) = self.recorded() {
            recorded.reads.push(Read { address: from, latency });
        }
        Arrived { asked, at }
    }

    /// Brings a result back to the core's register; when it is there.
    pub fn to_core(&mut self, memory: &mut Memory, mut answered: Answered) -> Cycle {
        let at = memory.to_core(answered.core, answered.tile, RESULT, answered.at);
        answered.parts.transport += at - answered.at;
        self.parts.add(&answered.parts);
        at
    }

    /// Writes a result to memory; when the core can read it.
    pub fn to_memory(&mut self, memory: &mut Memory, mut answered: Answered, to: Address) -> Cycle {
        let at = memory.accelerator_write(answered.tile, to, answered.at);
        answered.parts.transport += at - answered.at;
        self.parts.add(&answered.parts);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Layout;

    struct Rig {
        halo: Halo,
        memory: Memory,
        table: HashTable,
        keys: crate::machine::Region,
    }

    fn rig(change: impl FnOnce(&mut Config)) -> Rig {
        let mut config = Config::default();
        change(&mut config);
        let mut layout = Layout::default();
        let mut table = HashTable::new(1 << 12, 2, 16, 1, &mut layout);
        assert!((0..3000).all(|key| table.insert(key)));
        let mut memory = Memory::new(&config);
        (0..table.line_count()).for_each(|n| memory.warm(table.line(n), false));
        memory.warm(table.metadata(0), false);
        let keys = layout.region(1 << 16);
        (0..1 << 10).for_each(|n| memory.warm(keys.at(64 * n), false));
        Rig { halo: Halo::new(&config), memory, table, keys }
    }

    /// Ends of queries that are all issued at the same time.
    fn together(rig: &mut Rig, queries: u32) -> Vec<Answered> {
        let mut walk = Walk::default();
        let ask = |n: u32| {
            rig.table.walk(n, &mut walk);
            let key = rig.keys.at(64 * u64::from(n));
            let query = Query { core: CoreId(0), table: &rig.table, key, walk: &walk };
            rig.halo.query(&mut rig.memory, query, 1000)
        };
        (0..queries).map(ask).collect()
    }

    #[test]
    fn the_parts_of_a_query_are_its_time() {
        let mut rig = rig(|_| ());
        for answered in together(&mut rig, 30) {
            assert_eq!(answered.parts.total(), answered.at - 1000);
        }
    }

    #[test]
    fn a_query_takes_its_latencies() {
        let mut rig = rig(|config| {
            config.mesh.hop = 0;
            config.halo.key_source = KeySource::Inline;
        });
        let query = together(&mut rig, 1)[0];
        // Decode, metadata, hash, signatures of one bucket or two, key, commit.
        assert!((13..=14).contains(&query.parts.compute), "{query:?}");
        // Metadata, buckets and key: three times the slice's latency.
        assert_eq!(query.parts.data, 36);
    }

    #[test]
    fn a_scoreboard_of_one_serves_one_after_the_other() {
        let ends = |scoreboard, in_flight| {
            let mut rig = rig(|config| {
                config.halo.scoreboard = scoreboard;
                config.halo.in_flight_per_table = in_flight;
            });
            together(&mut rig, 8).into_iter().map(|answered| answered.at).max().unwrap_or(0) - 1000
        };
        let (one, serial, all) = (ends(1, 10), ends(10, 1), ends(10, 10));
        assert!(one > 4 * all && serial > 4 * all, "{one} {serial} {all}");
    }

    #[test]
    fn metadata_is_fetched_again_when_a_core_has_changed_it() {
        let mut rig = rig(|config| config.halo.key_source = KeySource::Inline);
        let reads = |rig: &mut Rig| {
            let before = rig.memory.counts.accelerator_accesses;
            together(rig, 1);
            rig.memory.counts.accelerator_accesses - before
        };
        let (first, second) = (reads(&mut rig), reads(&mut rig));
        assert_eq!(first, second + 1);
        let metadata = rig.table.metadata(0);
        rig.memory.core(CoreId(0), metadata, crate::machine::Access::Write, 5000);
        assert_eq!((reads(&mut rig), reads(&mut rig)), (first, second));
    }

    #[test]
    fn a_key_in_the_cores_cache_takes_longer_to_fetch() {
        let time = |written: bool| {
            let mut rig = rig(|_| ());
            if written {
                let key = rig.keys.at(0);
                rig.memory.core(CoreId(0), key, crate::machine::Access::Write, 10);
            }
            together(&mut rig, 1)[0].at
        };
        assert!(time(true) > time(false) + 14);
    }
}
