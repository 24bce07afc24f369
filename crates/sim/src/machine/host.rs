//! A core over its memory, and short names for what programs emit.

use crate::calendar::Cycle;
use crate::config::Config;
use crate::engine::{Core, Op, Tag};

use super::address::Address;
use super::memory::Memory;

/// A core with its memory.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The core.
    pub core: Core,
    /// What is below it.
    pub memory: Memory,
}

impl Machine {
    /// An idle machine.
    pub fn new(config: &Config) -> Self {
        Self { core: Core::new(config), memory: Memory::new(config) }
    }

    /// When the last operation so far retires.
    pub fn now(&self) -> Cycle {
        self.core.now()
    }

    /// Arithmetic of one cycle.
    #[inline]
    pub fn alu(&mut self, sources: &[Tag]) -> Tag {
        self.core.push(&mut self.memory, Op::Alu(1), sources)
    }

    /// `n` operations of one cycle, none of which needs the one before.
    #[inline]
    pub fn alus(&mut self, n: u32, sources: &[Tag]) -> Tag {
        (0..n).fold(Tag::NONE, |_, _| self.alu(sources))
    }

    /// `n` operations of one cycle, each of which needs the one before.
    #[inline]
    pub fn chain(&mut self, n: u32, first: Tag) -> Tag {
        (0..n).fold(first, |last, _| self.alu(&[last]))
    }

    /// A multiplication.
    #[inline]
    pub fn multiply(&mut self, sources: &[Tag]) -> Tag {
        self.core.push(&mut self.memory, Op::Alu(3), sources)
    }

    /// A load.
    #[inline]
    pub fn load(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.core.push(&mut self.memory, Op::Load(address), sources)
    }

    /// A store.
    #[inline]
    pub fn store(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.core.push(&mut self.memory, Op::Store(address), sources)
    }

    /// A prefetch.
    #[inline]
    pub fn prefetch(&mut self, address: Address, sources: &[Tag]) {
        self.core.push(&mut self.memory, Op::Prefetch(address), sources);
    }

    /// An atomic read-modify-write.
    #[inline]
    pub fn locked(&mut self, address: Address, sources: &[Tag]) -> Tag {
        self.core.push(&mut self.memory, Op::Locked(address), sources)
    }

    /// A comparison and the branch on it.
    #[inline]
    pub fn branch(&mut self, pc: u32, taken: bool, sources: &[Tag]) {
        let compared = self.alu(sources);
        self.core.push(&mut self.memory, Op::Branch { pc, taken }, &[compared]);
    }

    /// A jump or call through a pointer.
    #[inline]
    pub fn indirect(&mut self, pc: u32, target: u32, sources: &[Tag]) {
        self.core.push(&mut self.memory, Op::Indirect { pc, target }, sources);
    }
}
