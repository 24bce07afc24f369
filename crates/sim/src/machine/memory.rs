//! The way of a load through the caches, for a core and for an accelerator.

use crate::calendar::{Calendar, Cycle};
use crate::config::Config;

use super::address::{Address, line_of};
use super::cache::{Cache, LINE, LineNumber, Small};
use super::dram::Dram;
use super::locks::Locks;
use super::mesh::{Mesh, Tile};
use super::private::{CoreId, Ports, Private};

/// Lines from memory that may be on their way.
const ARRIVING: usize = 1024;
/// Words of the bits of written lines.
const WRITTEN: usize = 128;
/// Bytes of a request on the mesh.
const REQUEST: u64 = 8;

/// Word and bit of a line among those of written lines.
#[inline]
fn written_bit(line: LineNumber) -> (usize, u64) {
    let place = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51;
    ((place / 64) as usize, 1 << (place % 64))
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The value.
    Read,
    /// To write.
    Write,
    /// A prefetch into the caches, which no operation waits for.
    Prefetch,
}

/// Who had the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The first-level cache.
    L1,
    /// The second-level cache.
    L2,
    /// The last-level cache.
    Llc,
    /// A private cache, snooped by the last-level one.
    Snooped,
    /// Main memory.
    Dram,
}

/// The end of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When the value is there.
    pub at: Cycle,
    /// From where.
    pub level: Level,
}

/// How often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Lines that the core missed in its first-level cache.
    pub l1_misses: u64,
    /// In its second-level cache.
    pub l2_misses: u64,
    /// In the last-level cache.
    pub llc_misses: u64,
    /// Accesses of accelerators.
    pub accelerator_accesses: u64,
    /// Those that missed in the last-level cache.
    pub accelerator_misses: u64,
    /// Those that found their line written by the core.
    pub snoops: u64,
    /// Copies that a core lost because another one wrote.
    pub invalidations: u64,
}

/// All below the core.
#[derive(Clone, Debug)]
pub struct Memory {
    cores: Vec<Private>,
    /// Slices of the last-level cache.
    slices: Vec<Cache<Small>>,
    /// The last lines that came from memory, each in the place of its number's lowest bits,
    /// and when they came.
    arriving: Box<[(LineNumber, Cycle)]>,
    slice_ports: Vec<Calendar>,
    mesh: Mesh,
    dram: Dram,
    /// A bit for the lines that some core has written, several to a bit: for most lines it
    /// shows that their caches need not be searched.
    written: [u64; WRITTEN],
    /// Lines that accelerators hold, and those of whose changes they are notified.
    pub locks: Locks,
    seed: u64,
    times: Times,
    /// How often what happened.
    pub counts: MemoryCounts,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    l1: Cycle,
    l2: Cycle,
    egress: Cycle,
    ingress: Cycle,
    cha: Cycle,
    tag_data: Cycle,
}

impl Memory {
    /// Empty caches, of one core.
    pub fn new(config: &Config) -> Self {
        Self::with_cores(config, 1)
    }

    /// Empty caches of `cores` cores.
    pub fn with_cores(config: &Config, cores: usize) -> Self {
        let (llc, mesh) = (&config.llc, &config.mesh);
        let slice = Cache::new((llc.mib << 20) / llc.slices as u64, llc.ways);
        Self {
            cores: (0..cores).map(|n| Private::new(config, CoreId(n))).collect(),
            slices: vec![slice; llc.slices],
            arriving: vec![(0, 0); ARRIVING].into(),
            slice_ports: vec![Calendar::new(llc.ports_per_slice); llc.slices],
            mesh: Mesh::new(mesh.cols, mesh.rows, mesh.hop, mesh.link_bytes),
            dram: Dram::new(&config.dram, config.core.ghz),
            written: [0; WRITTEN],
            locks: Locks::default(),
            seed: config.sim.seed,
            times: Times {
                l1: config.l1d.load_to_use,
                l2: config.l2.load_to_use,
                egress: mesh.core_egress,
                ingress: mesh.core_ingress,
                cha: llc.cha_pipeline,
                tag_data: llc.tag_data,
            },
            counts: MemoryCounts::default(),
        }
    }

    /// The physical line of `address`.
    #[inline]
    pub fn line(&self, address: Address) -> LineNumber {
        line_of(address, self.seed)
    }

    /// The slice that a line lies in: all bits of its number take part.
    #[inline]
    pub fn slice(&self, line: LineNumber) -> Tile {
        let slices = self.slices.len() as u64;
        if slices == 16 {
            // The same in four steps: halves of halves on each other.
            let folded = [32, 16, 8, 4].into_iter().fold(line, |line, by| line ^ line >> by);
            return Tile((folded % 16) as usize);
        }
        let bits = slices.trailing_zeros().max(1);
        let (mut folded, mut rest) = (0, line);
        while rest != 0 {
            folded ^= rest;
            rest >>= bits;
        }
        Tile((folded % slices) as usize)
    }

    /// The ports that the threads of a core issue through.
    #[inline]
    pub fn ports(&mut self, core: CoreId) -> &mut Ports {
        &mut self.cores[core.0].ports
    }

    /// An access of a core to the line of `address`, issued at `now`.
    #[inline]
    pub fn core(&mut self, core: CoreId, address: Address, access: Access, now: Cycle) -> Done {
        let line = self.line(address);
        let done = match self.cores[core.0].l1.touch(line) {
            Some(arrives) => Done { at: arrives.max(now + self.times.l1), level: Level::L1 },
            None => self.core_miss(core, line, now),
        };
        if access == Access::Write { self.own(core, line, done) } else { done }
    }

    /// Makes a line that a core has its own, for writing.
    #[inline]
    fn own(&mut self, core: CoreId, line: LineNumber, done: Done) -> Done {
        let alone = self.cores.len() == 1;
        let l1 = &mut self.cores[core.0].l1;
        if l1.is_dirty(line) {
            return done;
        }
        l1.set_dirty(line, true);
        let (word, bit) = written_bit(line);
        self.written[word] |= bit;
        self.locks.written(line);
        if alone { done } else { Done { at: self.invalidate(core, line, done.at), ..done } }
    }

    /// Takes a line from all cores but one; when that is done.
    fn invalidate(&mut self, core: CoreId, line: LineNumber, now: Cycle) -> Cycle {
        let holds = |other: &mut Private| other.l1.holds(line) || other.l2.holds(line);
        let others = (0..self.cores.len()).filter(|n| *n != core.0);
        let sharers: Vec<usize> = others.filter(|n| holds(&mut self.cores[*n])).collect();
        if sharers.is_empty() {
            return now;
        }
        let (tile, home) = (self.cores[core.0].tile, self.slice(line));
        let sent = now + self.times.egress;
        let asked = self.mesh.send(tile, home, REQUEST, sent) + self.times.cha;
        let mut last = asked;
        for other in sharers {
            self.counts.invalidations += 1;
            let to = self.cores[other].tile;
            let there = self.mesh.send(home, to, REQUEST, asked);
            let dirty = self.cores[other].remove(line);
            let back = self.mesh.send(to, home, REQUEST, there + self.times.l2);
            if dirty {
                self.fill_slice(home, line, back, true);
            }
            last = last.max(back);
        }
        self.mesh.send(home, tile, REQUEST, last) + self.times.ingress
    }

    fn core_miss(&mut self, core: CoreId, line: LineNumber, now: Cycle) -> Done {
        self.counts.l1_misses += 1;
        let (register, free) = self.cores[core.0].miss_register();
        let start = now.max(free);
        let done = match self.cores[core.0].l2.touch(line) {
            Some(arrives) => Done { at: arrives.max(start + self.times.l2), level: Level::L2 },
            None => self.core_far(core, line, start),
        };
        self.cores[core.0].mshr[register] = done.at;
        self.fill_l1(core, line, done.at);
        done
    }

    /// A miss of both private caches.
    fn core_far(&mut self, core: CoreId, line: LineNumber, start: Cycle) -> Done {
        self.counts.l2_misses += 1;
        let (home, tile) = (self.slice(line), self.cores[core.0].tile);
        let sent = start + self.times.l2 + self.times.egress;
        let arrived = self.mesh.send(tile, home, REQUEST, sent);
        let (data, level) = self.home(home, line, arrived);
        self.counts.llc_misses += u64::from(level == Level::Dram);
        let at = self.mesh.send(home, tile, LINE, data) + self.times.ingress;
        if let Some(out) = self.cores[core.0].l2.fill(line, at, false)
            && out.dirty
        {
            self.write_back(tile, out.line, at);
        }
        Done { at, level }
    }

    /// Asks a slice for a line, from memory if need be.
    fn home(&mut self, home: Tile, line: LineNumber, arrived: Cycle) -> (Cycle, Level) {
        let begun = self.slice_ports[home.0].reserve(arrived + self.times.cha);
        let tags = begun + self.times.tag_data;
        match self.writer(line).filter(|_| self.cores.len() > 1) {
            Some(writer) => (self.snoop(writer, home, line, tags), Level::Snooped),
            None => self.slice_or_memory(home, line, tags),
        }
    }

    /// The data of a line whose slice has looked its tags up at `tags`: the slice's own, or
    /// that of memory.
    fn slice_or_memory(&mut self, home: Tile, line: LineNumber, tags: Cycle) -> (Cycle, Level) {
        let place = line as usize % ARRIVING;
        if self.touch_slice(home, line) {
            let (arriving, at) = self.arriving[place];
            return (if arriving == line { tags.max(at) } else { tags }, Level::Llc);
        }
        let data = self.dram.access(line, tags);
        self.arriving[place] = (line, data);
        self.fill_slice(home, line, data, false);
        (data, Level::Dram)
    }

    /// Whether a slice holds a line; counts as use.
    fn touch_slice(&mut self, home: Tile, line: LineNumber) -> bool {
        let within = self.within_slice(line);
        self.slices[home.0].touch(within).is_some()
    }

    /// Asks for the tags that an access of `address` will be compared with: nothing of the
    /// machine changes, but they will be in our own cache.
    #[inline]
    pub fn prefetch(&self, address: Address) {
        let line = self.line(address);
        self.slices[self.slice(line).0].prefetch(self.within_slice(line));
    }

    /// Lines of a slice by a number without the bits that chose the slice, so that all
    /// its sets are used.
    fn within_slice(&self, line: LineNumber) -> LineNumber {
        line / self.slices.len() as u64
    }

    fn fill_slice(&mut self, home: Tile, line: LineNumber, arrives: Cycle, dirty: bool) {
        let within = self.within_slice(line);
        if let Some(out) = self.slices[home.0].fill(within, arrives, dirty)
            && out.dirty
        {
            // Which of the neighbours it was does not matter to the memory's bus.
            self.dram.access(out.line * self.slices.len() as u64, arrives);
        }
    }

    fn fill_l1(&mut self, core: CoreId, line: LineNumber, arrives: Cycle) {
        let Private { tile, l1, l2, .. } = &mut self.cores[core.0];
        let tile = *tile;
        if let Some(out) = l1.fill(line, arrives, false)
            && out.dirty
        {
            if l2.holds(out.line) {
                l2.set_dirty(out.line, true);
            } else if let Some(out) = l2.fill(out.line, arrives, true)
                && out.dirty
            {
                self.write_back(tile, out.line, arrives);
            }
        }
    }

    fn write_back(&mut self, tile: Tile, line: LineNumber, now: Cycle) {
        let home = self.slice(line);
        let arrived = self.mesh.send(tile, home, LINE, now);
        let at = self.slice_ports[home.0].reserve(arrived);
        self.fill_slice(home, line, at, true);
    }

    /// A read of the accelerator at `tile`. It allocates in no private cache.
    pub fn accelerator_read(&mut self, tile: Tile, address: Address, now: Cycle) -> Done {
        self.counts.accelerator_accesses += 1;
        let line = self.line(address);
        let home = self.slice(line);
        let arrived = self.mesh.send(tile, home, REQUEST, now);
        let begun = self.slice_ports[home.0].reserve(arrived);
        let tags = begun + self.times.tag_data;
        let (data, level) = match self.writer(line) {
            Some(writer) => (self.snoop(writer, home, line, tags), Level::Snooped),
            None => self.slice_or_memory(home, line, tags),
        };
        self.counts.accelerator_misses += u64::from(level == Level::Dram);
        Done { at: self.mesh.send(home, tile, LINE, data), level }
    }

    /// A write of eight bytes by the accelerator at `tile` into a line at its home
    /// slice, which takes it from the private caches; when others can read it.
    pub fn accelerator_write(&mut self, tile: Tile, address: Address, now: Cycle) -> Cycle {
        let line = self.line(address);
        let home = self.slice(line);
        let arrived = self.mesh.send(tile, home, REQUEST, now);
        let begun = self.slice_ports[home.0].reserve(arrived);
        let mut at = begun + self.times.tag_data;
        if let Some(writer) = self.writer(line) {
            at = self.snoop(writer, home, line, at);
        }
        self.cores.iter_mut().for_each(|core| {
            core.remove(line);
        });
        self.fill_slice(home, line, at, true);
        at
    }

    /// A read of a core at the home slice that changes nothing: when the slice is
    /// read, and when the core has the value.
    pub fn snapshot(&mut self, core: CoreId, address: Address, now: Cycle) -> (Cycle, Cycle) {
        let (home, tile) = (self.slice(self.line(address)), self.cores[core.0].tile);
        let arrived = self.mesh.send(tile, home, REQUEST, now + self.times.egress);
        let begun = self.slice_ports[home.0].reserve(arrived + self.times.cha);
        let read = begun + self.times.tag_data;
        (read, self.mesh.send(home, tile, LINE, read) + self.times.ingress)
    }

    /// A message of `bytes` bytes from a core to `tile`.
    pub fn from_core(&mut self, core: CoreId, tile: Tile, bytes: u64, now: Cycle) -> Cycle {
        self.mesh.send(self.cores[core.0].tile, tile, bytes, now + self.times.egress)
    }

    /// A message of `bytes` bytes from `tile` to a core.
    pub fn to_core(&mut self, core: CoreId, tile: Tile, bytes: u64, now: Cycle) -> Cycle {
        self.mesh.send(tile, self.cores[core.0].tile, bytes, now) + self.times.ingress
    }

    /// The core whose caches have a line in a form that the last-level cache does not.
    #[inline]
    fn writer(&mut self, line: LineNumber) -> Option<CoreId> {
        let (word, bit) = written_bit(line);
        if self.written[word] & bit == 0 {
            return None;
        }
        let wrote = |core: &mut Private| core.l1.is_dirty(line) || core.l2.is_dirty(line);
        self.cores.iter_mut().position(wrote).map(CoreId)
    }

    /// Has a core give a line that it wrote to its home slice; when that has it.
    fn snoop(&mut self, writer: CoreId, home: Tile, line: LineNumber, now: Cycle) -> Cycle {
        self.counts.snoops += 1;
        let tile = self.cores[writer.0].tile;
        let asked = self.mesh.send(home, tile, REQUEST, now);
        let back = self.mesh.send(tile, home, LINE, asked + self.times.l2);
        let writer = &mut self.cores[writer.0];
        writer.l1.set_dirty(line, false);
        writer.l2.set_dirty(line, false);
        self.fill_slice(home, line, back, true);
        back
    }

    /// The cores that hold a line, and whether each wrote it.
    #[cfg(test)]
    pub(super) fn holders(&mut self, address: Address) -> Vec<(CoreId, bool)> {
        let line = self.line(address);
        let cores = self.cores.iter_mut().enumerate();
        let held = cores.filter_map(|(n, core)| {
            let wrote = core.l1.is_dirty(line) || core.l2.is_dirty(line);
            (core.l1.holds(line) || core.l2.holds(line)).then_some((CoreId(n), wrote))
        });
        held.collect()
    }

    /// Brings lines into the caches without time passing, as far as they would be there
    /// after long use: the last-level cache, and with `near` the cores' too.
    pub fn warm(&mut self, address: Address, near: bool) {
        let line = self.line(address);
        let home = self.slice(line);
        if !self.touch_slice(home, line) {
            let within = self.within_slice(line);
            self.slices[home.0].fill(within, 0, false);
        }
        if near {
            self.cores.iter_mut().for_each(|core| core.warm(line));
        }
    }
}
