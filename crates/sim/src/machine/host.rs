//! Cores over their memory, and short names for what programs emit.

use crate::calendar::Cycle;
use crate::config::Config;
use crate::engine::{Core, Op, Tag};

use super::address::Address;
use super::memory::Memory;
use super::private::CoreId;

/// Cores, or threads of one, with their memory. One of them runs: what is emitted is its.
#[derive(Clone, Debug)]
pub struct Machine {
    cores: Vec<Core>,
    runs: usize,
    /// The memory below them.
    pub memory: Memory,
}

impl Machine {
    /// An idle machine of one core.
    pub fn new(config: &Config) -> Self {
        Self::with_cores(config, 1)
    }

    /// An idle machine of `cores` cores.
    pub fn with_cores(config: &Config, cores: usize) -> Self {
        let core = |n| Core::new(config, CoreId(n), 1);
        let memory = Memory::with_cores(config, cores);
        Self { cores: (0..cores).map(core).collect(), runs: 0, memory }
    }

    /// An idle machine of one core with two threads.
    pub fn with_threads(config: &Config) -> Self {
        let thread = Core::new(config, CoreId(0), 2);
        Self { cores: vec![thread.clone(), thread], runs: 0, memory: Memory::new(config) }
    }

    /// The same caches below cores, or threads, that have done nothing yet.
    pub fn renew_cores(&mut self, config: &Config) {
        // Threads of a core have its number.
        let threads = |of: CoreId| self.cores.iter().filter(|core| core.id() == of).count();
        let new = |core: &Core| Core::new(config, core.id(), threads(core.id()));
        self.cores = self.cores.iter().map(new).collect();
    }

    /// The core or thread that runs.
    #[inline]
    pub fn core(&self) -> &Core {
        &self.cores[self.runs]
    }

    /// Core or thread `n` runs from now on.
    ///
    /// # Panics
    /// Later, when there is none of that number.
    pub fn run(&mut self, n: usize) {
        self.runs = n;
    }

    /// Switches to the thread that is furthest behind in time; returns its number.
    pub fn run_furthest_behind(&mut self) -> usize {
        let clocks = self.cores.iter().map(Core::now).enumerate();
        self.runs = clocks.min_by_key(|(_, now)| *now).map_or(0, |(n, _)| n);
        self.runs
    }

    /// The core that runs, and the memory.
    #[inline]
    pub fn parts(&mut self) -> (&mut Core, &mut Memory) {
        (&mut self.cores[self.runs], &mut self.memory)
    }

    /// When the last operation so far of the core that runs retires.
    pub fn now(&self) -> Cycle {
        self.core().now()
    }

    /// No later operation is dispatched before all earlier ones are complete.
    pub fn fence(&mut self) {
        self.cores[self.runs].fence();
    }

    #[inline]
    fn push(&mut self, op: Op, sources: &[Tag]) -> Tag {
        self.cores[self.runs].push(&mut self.memory, op, sources)
    }

    /// Arithmetic of one cycle.
    #[inline]
    pub fn alu(&mut self, sources: &[Tag]) -> Tag {
        self.arithmetic(1, sources, 1)
    }

    #[inline]
    fn arithmetic(&mut self, cycles: u8, sources: &[Tag], count: u32) -> Tag {
        let (core, memory) = self.parts();
        core.arithmetic(memory, cycles.into(), sources, count)
    }

    /// `n` operations of one cycle, none of which needs the one before.
    #[inline]
    pub fn alus(&mut self, n: u32, sources: &[Tag]) -> Tag {
        self.arithmetic(1, sources, n)
    }

    /// `n` operations of one cycle, each of which needs the one before.
    #[inline]
    pub fn chain(&mut self, n: u32, first: Tag) -> Tag {
        (0..n).fold(first, |last, _| self.alu(&[last]))
    }

    /// Arithmetic of this many cycles.
    #[inline]
    pub fn slow(&mut self, cycles: u8, sources: &[Tag]) -> Tag {
        self.arithmetic(cycles, sources, 1)
    }

    /// A multiplication.
    #[inline]
    pub fn multiply(&mut self, sources: &[Tag]) -> Tag {
        self.slow(3, sources)
    }

    /// A load.
    #[inline]
    pub fn load(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.push(Op::Load(address), sources)
    }

    /// A load of the whole line that begins at `address`.
    #[inline]
    pub fn load_line(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.push(Op::LoadLine(address), sources)
    }

    /// A store.
    #[inline]
    pub fn store(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.push(Op::Store(address), sources)
    }

    /// A prefetch.
    #[inline]
    pub fn prefetch(&mut self, address: Address, sources: &[Tag]) {
        self.push(Op::Prefetch(address), sources);
    }

    /// An atomic read-modify-write.
    #[inline]
    pub fn locked(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.push(Op::Locked(address), sources)
    }

    /// A comparison and the branch on it, which decoding makes one of.
    #[inline]
    pub fn fused_branch(&mut self, pc: u32, taken: bool, sources: &[Tag]) {
        self.push(Op::Branch { pc, taken }, sources);
    }

    /// A comparison and the branch on it.
    #[inline]
    pub fn branch(&mut self, pc: u32, taken: bool, sources: &[Tag]) {
        let compared = self.alu(sources);
        self.push(Op::Branch { pc, taken }, &[compared]);
    }

    /// A jump or call through a pointer.
    #[inline]
    pub fn indirect(&mut self, pc: u32, target: u32, sources: &[Tag]) {
        self.push(Op::Indirect { pc, target }, sources);
    }
}
