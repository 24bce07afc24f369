//! A writer beside readers: what a lookup misses while entries are displaced.
//!
//! A cuckoo insertion copies entries from bucket to bucket. A reader that looks at one
//! bucket before the copy, and at the other after the entry was overwritten, misses a key
//! that was there all the time (HALO, figure 7). Software counts changes and looks again;
//! accelerators lock the lines that they have read until they have their answer.
//!
//! Here each step of a lookup and of an insertion is an event of its own, in the order of
//! time: the lines are really read and written between each other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::calendar::Cycle;
use crate::config::{Config, ConfigError, Table};
use crate::halo::{QUERY, RESULT};
use crate::machine::{Access, Address, CoreId, LINE, Layout, Memory, Tile};
use crate::random::Random;
use crate::table::{HashTable, Room, bucket_of};

/// How readers guard themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Guard {
    /// Software that does not.
    #[default]
    SoftwareNone,
    /// Software that looks again when the table's change counter has moved.
    SoftwareCounter,
    /// Accelerators that lock nothing.
    HaloNone,
    /// Accelerators that lock the lines they read.
    HaloLock,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::SoftwareNone, Self::SoftwareCounter, Self::HaloNone, Self::HaloLock];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SoftwareNone => "software",
            Self::SoftwareCounter => "software, change counter",
            Self::HaloNone => "accelerators",
            Self::HaloLock => "accelerators, locks",
        }
    }

    fn is_software(self) -> bool {
        matches!(self, Self::SoftwareNone | Self::SoftwareCounter)
    }
}

/// The results under one guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Race {
    /// The guard.
    pub guard: Guard,
    /// Lookups of keys that were there all the time.
    pub lookups: u64,
    /// Those that did not find theirs.
    pub false_negatives: u64,
    /// Times that a lookup began again because of changes.
    pub retries: u64,
    /// Keys put in.
    pub insertions: u64,
    /// Entries displaced by them.
    pub displacements: u64,
    /// Writes that found their line locked.
    pub snoop_misses: u64,
    /// The most of them that one write met.
    pub most_snoop_misses: u64,
    /// Cycles a lookup.
    pub lookup_cycles: f64,
    /// Cycles of removing a key and putting one in.
    pub change_cycles: f64,
}

/// Cycles of a software lookup before it reads the table: hashing.
const HASH: Cycle = 40;
/// Cycles to compare a bucket.
const COMPARE: Cycle = 8;
/// Keys that readers parsed lie in a line of each.
const KEY_LINES: u64 = 64;

/// Runs the race under each guard, for `sim.measured_lookups` lookups.
///
/// # Errors
/// When it cannot be simulated.
pub fn race(config: &Config) -> Result<Vec<Race>, ConfigError> {
    config.check()?;
    // Only in the cuckoo table do entries move, so that readers can miss them.
    if config.workload.table != Table::Cuckoo {
        let (value, allowed) = ("not supported".into(), "cuckoo".into());
        return Err(ConfigError::Range { key: "workload.table of a race", value, allowed });
    }
    Ok(Guard::ALL.into_iter().map(|guard| Run::new(config, guard).run()).collect())
}

/// Where a reader is.
#[derive(Clone, Debug, Default)]
struct Reader {
    key: u32,
    begun: Cycle,
    /// Whether the key is hashed, so that its buckets are known.
    hashed: bool,
    /// The change counter, as it was read before.
    counter: u64,
    /// What of the key's buckets has been looked at; two are all.
    looked: usize,
    found: bool,
    /// Lines that its query has locked.
    locked: Vec<u64>,
}

/// Where the writer is.
#[derive(Clone, Debug)]
enum Writer {
    /// It removes a key next.
    Remove,
    /// It puts a key in next, in the place of one that was removed.
    Plan,
    /// The counter announces the next copy, which has this number.
    Announce(Room, usize),
    /// The copy is made; after the last one the key is put in.
    Move(Room, usize),
}

struct Run<'a> {
    config: &'a Config,
    guard: Guard,
    table: HashTable,
    memory: Memory,
    keys: Address,
    tile: Tile,
    random: Random,
    /// Keys that stay.
    stable: Vec<u32>,
    /// Keys that are inserted and removed: inside, and outside.
    inside: Vec<u32>,
    outside: Vec<u32>,
    readers: Vec<Reader>,
    writer: Writer,
    change_begun: Cycle,
    refused: u64,
    counter: u64,
    seen: Race,
    lookup_cycles: Cycle,
    change_cycles: Cycle,
}

/// The writer's number among the actors; readers have the others.
const WRITER: usize = 0;

impl<'a> Run<'a> {
    fn new(config: &'a Config, guard: Guard) -> Self {
        let work = &config.workload;
        let mut layout = Layout::default();
        let mut table =
            HashTable::new(work.entries, 2, work.key_bytes, config.sim.seed, &mut layout);
        let keys = layout.region(KEY_LINES * LINE).at(0);
        let wanted = ((work.entries as f64 * work.occupancy) as u32).max(2);
        let mut stable: Vec<u32> = (0..wanted).filter(|key| table.insert(*key)).collect();
        // One at least of each.
        let changing = (stable.len() as f64 * config.race.changing) as usize;
        let inside = stable.split_off(stable.len() - changing.clamp(1, stable.len() - 1));
        let mut memory = Memory::with_cores(config, 1 + config.race.readers);
        (0..table.line_count()).for_each(|n| memory.warm(table.line(n), false));
        (0..4).for_each(|n| memory.warm(table.metadata(n), false));
        let tile = Tile((crate::table::mix(config.sim.seed) % config.llc.slices as u64) as usize);
        Self {
            config,
            guard,
            table,
            memory,
            keys,
            tile,
            random: Random::new(config.sim.seed),
            stable,
            inside,
            outside: (wanted..=work.entries as u32).collect(),
            readers: vec![Reader::default(); 1 + config.race.readers],
            writer: Writer::Remove,
            change_begun: 0,
            refused: 0,
            counter: 0,
            seen: Race { guard, ..Race::default() },
            lookup_cycles: 0,
            change_cycles: 0,
        }
    }

    fn run(mut self) -> Race {
        let mut events = BinaryHeap::new();
        for actor in 0..self.readers.len() {
            events.push(Reverse((actor as Cycle, actor)));
        }
        (1..self.readers.len()).for_each(|reader| self.begin(reader, reader as Cycle));
        while self.seen.lookups < self.config.sim.measured_lookups {
            let Some(Reverse((now, actor))) = events.pop() else { break };
            let next = if actor == WRITER { self.write(now) } else { self.read(actor, now) };
            events.push(Reverse((next.max(now + 1), actor)));
        }
        self.seen.snoop_misses = self.memory.locks.snoop_misses;
        self.seen.lookup_cycles = self.lookup_cycles as f64 / self.seen.lookups as f64;
        self.seen.change_cycles = self.change_cycles as f64 / self.seen.insertions.max(1) as f64;
        let held: usize = self.readers.iter().map(|reader| reader.locked.len()).sum();
        assert_eq!(self.memory.locks.taken, self.memory.locks.given_up + held as u64);
        self.seen
    }

    /// The next lookup of a reader.
    fn begin(&mut self, reader: usize, now: Cycle) {
        let key = self.stable[self.random.index(self.stable.len())];
        self.readers[reader] = Reader { key, begun: now, ..Reader::default() };
    }

    /// The next step of a reader; returns when the one after it is due.
    fn read(&mut self, reader: usize, now: Cycle) -> Cycle {
        let Reader { key, hashed, looked, found, .. } = self.readers[reader];
        if !hashed {
            return self.before(reader, now);
        }
        if found || looked == 2 {
            return self.end(reader, now);
        }
        let bucket = self.table.buckets_of(key)[looked];
        let address = self.table.bucket(bucket);
        // The contents of the line when it is read, and locked.
        let at = if self.guard.is_software() {
            self.memory.core(CoreId(reader), address, Access::Read, now).at + COMPARE
        } else {
            self.memory.accelerator_read(self.tile, address, now).at + self.config.halo.sig_compare
        };
        if self.guard == Guard::HaloLock {
            let line = self.memory.line(address);
            self.memory.locks.take(line);
            self.readers[reader].locked.push(line);
        }
        self.readers[reader].found = self.table.entry_in(bucket, key).is_some();
        self.readers[reader].looked += 1;
        at
    }

    /// What comes before the first bucket; when it is done.
    fn before(&mut self, reader: usize, now: Cycle) -> Cycle {
        let id = CoreId(reader);
        let key = self.keys.plus(reader as u64 % KEY_LINES * LINE);
        let parsed = self.memory.core(id, key, Access::Write, now).at;
        (self.readers[reader].counter, self.readers[reader].hashed) = (self.counter, true);
        match self.guard {
            Guard::SoftwareNone => parsed + HASH,
            Guard::SoftwareCounter => {
                let counter = self.table.metadata(1);
                self.memory.core(id, counter, Access::Read, parsed + HASH).at
            }
            Guard::HaloNone | Guard::HaloLock => {
                let halo = &self.config.halo;
                let arrived = self.memory.from_core(id, self.tile, QUERY, parsed) + halo.decode;
                let fetched = self.memory.accelerator_read(self.tile, key, arrived).at;
                fetched + halo.metadata_hit + halo.hash_latency
            }
        }
    }

    /// The end of a lookup, or of a try; when the reader continues.
    fn end(&mut self, reader: usize, now: Cycle) -> Cycle {
        let id = CoreId(reader);
        let Reader { key, begun, counter, found, .. } = self.readers[reader];
        let mut at = now;
        for line in std::mem::take(&mut self.readers[reader].locked) {
            self.memory.locks.give_up(line);
        }
        if self.guard == Guard::SoftwareCounter && !found {
            at = self.memory.core(id, self.table.metadata(1), Access::Read, now).at;
            if counter != self.counter {
                self.seen.retries += 1;
                self.readers[reader] = Reader { key, begun, ..Reader::default() };
                return at;
            }
        }
        if found {
            let slot = self.table.slot(key);
            at = if self.guard.is_software() {
                self.memory.core(id, slot, Access::Read, at).at + COMPARE
            } else {
                self.memory.accelerator_read(self.tile, slot, at).at + self.config.halo.key_compare
            };
        }
        if !self.guard.is_software() {
            at = self.memory.to_core(id, self.tile, RESULT, at + self.config.halo.commit);
        }
        self.seen.lookups += 1;
        self.seen.false_negatives += u64::from(!found);
        self.lookup_cycles += at - begun;
        self.begin(reader, at);
        at
    }

    /// The next step of the writer; returns when the one after it is due.
    fn write(&mut self, now: Cycle) -> Cycle {
        match std::mem::replace(&mut self.writer, Writer::Plan) {
            Writer::Remove => {
                self.change_begun = now;
                let at = self.random.index(self.inside.len());
                let key = self.inside[at];
                let entry = self.table.entry_of(key).expect("what was put in is there");
                let Some(at_line) = self.own(bucket_of(entry), now) else {
                    self.writer = Writer::Remove;
                    return now + self.config.halo.snoop_miss_retry;
                };
                self.table.clear(entry);
                self.inside.swap_remove(at);
                self.outside.push(key);
                at_line
            }
            Writer::Plan => {
                let at = self.random.index(self.outside.len());
                let key = self.outside.swap_remove(at);
                // In a small table the free entries may be out of reach of a key.
                let Some(room) = self.table.make_room(key) else {
                    self.outside.push(key);
                    return now + HASH;
                };
                self.inside.push(key);
                self.writer = Writer::Announce(room, 0);
                // The search reads the buckets; the key goes to its slot.
                self.memory.core(CoreId(WRITER), self.table.slot(key), Access::Write, now).at + HASH
            }
            Writer::Announce(room, next) => {
                let mut at = now;
                if next < room.moves.len() {
                    self.counter += 1;
                    let counter = self.table.metadata(1);
                    at = self.memory.core(CoreId(WRITER), counter, Access::Write, now).at;
                }
                self.writer = Writer::Move(room, next);
                at
            }
            Writer::Move(room, next) => self.move_entry(room, next, now),
        }
    }

    /// Copies an entry, or puts the key in.
    fn move_entry(&mut self, room: Room, next: usize, now: Cycle) -> Cycle {
        let moved = room.moves.get(next).copied();
        let to = moved.map_or(room.place, |(_, to)| to);
        let Some(at) = self.own(bucket_of(to), now) else {
            self.writer = Writer::Move(room, next);
            return now + self.config.halo.snoop_miss_retry;
        };
        let Some(entries) = moved else {
            let key = *self.inside.last().expect("the key that is put in");
            self.table.put(key, room.place);
            self.seen.insertions += 1;
            self.change_cycles += at - self.change_begun;
            self.writer = Writer::Remove;
            return at;
        };
        self.table.copy(entries);
        self.seen.displacements += 1;
        self.writer = Writer::Announce(room, next + 1);
        at
    }

    /// Makes the line of a bucket the writer's; `None` when a query holds it.
    fn own(&mut self, bucket: u64, now: Cycle) -> Option<Cycle> {
        let address = self.table.bucket(bucket);
        let line = self.memory.line(address);
        if self.memory.locks.refuses(line) {
            self.refused += 1;
            self.seen.most_snoop_misses = self.seen.most_snoop_misses.max(self.refused);
            return None;
        }
        self.refused = 0;
        Some(self.memory.core(CoreId(WRITER), address, Access::Write, now).at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn no_key_is_missed_under_a_guard_whatever_the_table(
            bits in 3u32..9, occupancy in 0.01..0.95f64, changing in 0.001..0.9f64,
            readers in 1usize..5, seed in any::<u64>(),
        ) {
            let mut config = config(seed >> 8);
            (config.workload.entries, config.workload.occupancy) = (1 << bits, occupancy);
            (config.race.changing, config.race.readers) = (changing, readers);
            config.sim.measured_lookups = 2000;
            let [_, counter, _, lock] = race(&config).unwrap()[..] else { panic!("four guards") };
            prop_assert_eq!((counter.false_negatives, lock.false_negatives), (0, 0));
            prop_assert!(counter.lookups == 2000 && lock.lookups == 2000);
        }
    }

    fn config(seed: u64) -> Config {
        let mut config = Config::default();
        config.sim.seed = seed;
        config.workload.entries = 64;
        config.workload.occupancy = 0.95;
        config.race.changing = 0.5;
        config.race.readers = 2;
        config.sim.measured_lookups = 100_000;
        config
    }

    #[test]
    fn without_a_guard_keys_are_missed_and_with_one_none_is() {
        let (mut missed, mut retries) = ([0; 4], 0);
        for seed in 1..4 {
            let seen = race(&config(seed)).unwrap();
            for (race, missed) in seen.iter().zip(&mut missed) {
                assert!(race.displacements > 100, "{race:?}");
                *missed += race.false_negatives;
            }
            let [_, counter, none, lock] = seen[..] else { panic!("four guards") };
            retries += counter.retries;
            assert!(lock.snoop_misses > 0 && none.snoop_misses == 0, "{lock:?}");
            // No write waits for ever.
            assert!(lock.most_snoop_misses < 100, "{lock:?}");
        }
        assert!(missed[0] > 0 && missed[2] > 0, "{missed:?}");
        assert!(retries > 0);
        assert_eq!((missed[1], missed[3]), (0, 0));
    }

    #[test]
    fn equal_seeds_give_equal_races() {
        let mut config = config(1);
        config.sim.measured_lookups = 50_000;
        assert_eq!(race(&config).unwrap(), race(&config).unwrap());
    }

    #[test]
    fn a_writer_gets_its_turn_beside_sixteen_readers() {
        let mut config = config(1);
        config.race.readers = 16;
        let [.., none, lock] = race(&config).unwrap()[..] else { panic!("four guards") };
        assert!(lock.insertions > none.insertions / 2 && lock.false_negatives == 0, "{lock:?}");
        assert!(lock.most_snoop_misses < 200, "{lock:?}");
    }
}
