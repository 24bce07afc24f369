//! The memory through which the processor and a device exchange packets: indexes, queues, tables.
//!
//! Every work-group has a circular queue of rows, a row has a slot for each of its work-items (so each
//! work-item has a logical queue of its own), and two indexes, each in a line of its own:
//!
//! - `sealed`: rows that the processor has filled and given away, written by the one thread that owns
//!   the work-group;
//! - `done`: rows that the device has worked on, written by the work-group alone.
//!
//! Rows from `done` to `sealed` belong to the device, all others to the processor. A row is sealed when
//! it is full, or when the work-group idles and a packet waits; its other slots are *dummies*, so that
//! no packet waits for others. There are only loads and stores of one writer, no operation that reads
//! and writes: over PCIe those are not atomic between device and processor.
//!
//! In the algorithm as printed by Choi et al. ("Hummingbird", section IV-C) both sides count from 0
//! what the other has already allowed, and neither begins; and the processor replaces dummies of a row
//! that the device may be reading. Here the device never gets a row that the processor may still
//! write.
//!
//! `unsafe` here: the words are reached through a raw pointer, as a device may own the mapping.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering as Order};

use thalweg_packet::PacketMemory;

use crate::error::AccelError;
use crate::slot::{SLOT, Slot};
use crate::sync::{AtomicU32, Ordering};

/// Words of a line that processor and device fetch as one: 128 bytes, as caches of GPUs have them and
/// as processors fetch two of theirs.
pub(crate) const LINE: usize = if cfg!(loom) { 4 } else { 32 };

/// The most work-groups of a region.
pub const MOST_WORK_GROUPS: usize = 4096;
/// The most work-items of a work-group.
pub const MOST_LANES: usize = 1024;
/// The most rows of a queue.
pub const MOST_ROWS: usize = 4096;

/// How many queues there are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Work-groups, each with a queue.
    pub work_groups: usize,
    /// Work-items of each: the slots of a row.
    pub lanes: usize,
    /// Rows of a queue; a power of two.
    pub rows: usize,
}

impl Shape {
    /// Checks the bounds.
    fn check(self) -> Result<Self, AccelError> {
        let fits = (1..=MOST_WORK_GROUPS).contains(&self.work_groups)
            && (1..=MOST_LANES).contains(&self.lanes)
            && (1..=MOST_ROWS).contains(&self.rows)
            && self.rows.is_power_of_two();
        if fits { Ok(self) } else { Err(AccelError::Shape(self)) }
    }

    /// The word at which slots begin: behind the line of the end, and two lines for each work-group.
    pub(crate) fn slots_at(self) -> usize {
        LINE * (1 + 2 * self.work_groups)
    }

    /// The word at which tables begin.
    fn tables_at(self) -> usize {
        (self.slots_at() + self.work_groups * self.rows * self.lanes * SLOT).next_multiple_of(LINE)
    }
}

/// Whether a work-group is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Runs,
    Ended,
}

/// Queues, indexes and tables in memory that a device shares.
pub struct Region {
    words: Words,
    shape: Shape,
    /// What each work-group does.
    duties: Vec<Duty>,
    /// By work-group: whether it was given up. Not in shared memory, nor a part of the protocol.
    given_up: Vec<AtomicBool>,
}

/// The function of a work-group, and where its table is: in bytes from the region's start, and how long.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(loom, allow(dead_code))]
struct Duty {
    function: usize,
    table: (usize, usize),
}

impl Region {
    /// Bytes that a region of this shape with these tables needs.
    ///
    /// # Errors
    /// When the shape is out of bounds.
    pub fn len_for(shape: Shape, tables: &[&[u8]]) -> Result<usize, AccelError> {
        let words = shape.check()?.tables_at();
        let of_tables = tables.iter().map(|table| table.len().next_multiple_of(4 * LINE));
        Ok(of_tables.fold(4 * words, usize::saturating_add))
    }

    /// Lays queues and tables into `memory`, for work-groups that have not started: each has the function
    /// and the table of one of `partitions`, by its number.
    ///
    /// # Errors
    /// When the shape is out of bounds, or the memory is too small.
    pub(crate) fn new(
        memory: PacketMemory,
        shape: Shape,
        partitions: &[usize],
        tables: &[&[u8]],
    ) -> Result<Self, AccelError> {
        let needed = Self::len_for(shape, tables)?;
        // A table begins at a word that a word counts.
        if memory.len() < needed || needed / 4 > u32::MAX as usize {
            return Err(AccelError::Region { needed, len: memory.len() });
        }
        assert_eq!(partitions.len(), shape.work_groups, "each work-group is of a partition");
        let words = Words::new(memory, needed / 4);
        let mut places = Vec::new();
        let mut at = shape.tables_at();
        for table in tables {
            for (word, bytes) in words.all()[at..].iter().zip(table.chunks(4)) {
                let mut value = [0; 4];
                value[..bytes.len()].copy_from_slice(bytes);
                word.store(u32::from_ne_bytes(value), Ordering::Relaxed);
            }
            places.push((at, table.len()));
            at += table.len().next_multiple_of(4 * LINE) / 4;
        }
        words.all()[..shape.tables_at()].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let given_up = (0..shape.work_groups).map(|_| AtomicBool::new(false)).collect();
        let mut region = Self { words, shape, duties: Vec::new(), given_up };
        for (group, &function) in partitions.iter().enumerate() {
            let (at, len) = places[function];
            let values = [function as u32, at as u32, len as u32];
            for (word, value) in region.line(1 + 2 * group)[1..].iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
            region.duties.push(Duty { function, table: (4 * at, len) });
        }
        Ok(region)
    }

    /// The shape of the queues.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The region's first byte, for a device.
    #[cfg(not(loom))]
    pub(crate) fn base(&self) -> std::ptr::NonNull<u8> {
        self.words.memory.base()
    }

    /// All tables, one after the other, with what is between them.
    #[cfg(not(loom))]
    pub(crate) fn tables(&self) -> &[u8] {
        let at = 4 * self.shape.tables_at();
        // SAFETY: the words of the region have been placed in its memory, tables behind all others.
        let start = unsafe { self.base().as_ptr().add(at) };
        // SAFETY: as above; nothing writes them after `new`, and the region lives as long as `self`.
        unsafe { std::slice::from_raw_parts(start, 4 * self.words.len - at) }
    }

    /// The table of a work-group among [all](Self::tables): the byte at which it begins, and its length.
    #[cfg(not(loom))]
    pub(crate) fn place_of_table(&self, group: usize) -> (usize, usize) {
        let (at, len) = self.duties[group].table;
        (at - 4 * self.shape.tables_at(), len)
    }

    /// The number of a work-group's function.
    #[cfg(not(loom))]
    pub(crate) fn function(&self, group: usize) -> usize {
        self.duties[group].function
    }

    /// The table of a work-group.
    #[cfg(not(loom))]
    pub(crate) fn table(&self, group: usize) -> &[u8] {
        let (at, len) = self.duties[group].table;
        // SAFETY: `new` has placed the table inside the region; nothing writes it after that.
        let start = unsafe { self.base().as_ptr().add(at) };
        // SAFETY: as above; the region lives as long as `self`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    fn line(&self, number: usize) -> &[AtomicU32] {
        &self.words.all()[number * LINE..][..LINE]
    }

    /// The index of the rows that are sealed.
    fn sealed_word(&self, group: usize) -> &AtomicU32 {
        &self.line(1 + 2 * group)[0]
    }

    /// The line of a work-group that the device writes.
    fn device_line(&self, group: usize) -> &[AtomicU32] {
        self.line(2 + 2 * group)
    }

    pub(crate) fn sealed(&self, group: usize) -> u32 {
        self.sealed_word(group).load(Ordering::Acquire)
    }

    /// Gives rows to the device.
    pub(crate) fn seal(&self, group: usize, sealed: u32) {
        self.sealed_word(group).store(sealed, Ordering::Release);
    }

    pub(crate) fn done(&self, group: usize) -> u32 {
        self.device_line(group)[0].load(Ordering::Acquire)
    }

    /// Gives rows back to the processor.
    pub(crate) fn finish(&self, group: usize, done: u32) {
        self.device_line(group)[0].store(done, Ordering::Release);
    }

    pub(crate) fn state(&self, group: usize) -> State {
        match self.device_line(group)[1].load(Ordering::Acquire) {
            0 => State::Absent,
            1 => State::Runs,
            _ => State::Ended,
        }
    }

    pub(crate) fn set_state(&self, group: usize, state: State) {
        self.device_line(group)[1].store(state as u32, Ordering::Release);
    }

    /// Notes that a work-group was given up while it may still run.
    pub(crate) fn give_up(&self, group: usize) {
        self.given_up[group].store(true, Order::Release);
    }

    /// Whether all work-groups have ended but for those that were given up.
    #[cfg(not(loom))]
    pub(crate) fn has_ended_but_for_given_up(&self) -> bool {
        let mut groups = self.given_up.iter().enumerate();
        groups.all(|(group, up)| up.load(Order::Acquire) || self.state(group) == State::Ended)
    }

    /// Whether a work-group was given up that has not ended since.
    #[cfg(not(loom))]
    pub(crate) fn has_given_up(&self) -> bool {
        let mut groups = self.given_up.iter().enumerate();
        groups.any(|(group, up)| up.load(Order::Acquire) && self.state(group) != State::Ended)
    }

    /// Whether work-groups are to end when they have worked on all sealed rows.
    pub(crate) fn ends(&self) -> bool {
        self.line(0)[0].load(Ordering::Acquire) != 0
    }

    /// Ends all work-groups.
    pub(crate) fn end(&self) {
        self.line(0)[0].store(1, Ordering::Release);
    }

    /// The slot of a work-item in a row; rows count without end.
    #[inline]
    pub(crate) fn slot(&self, group: usize, row: u32, lane: usize) -> Slot<'_> {
        let Shape { rows, lanes, .. } = self.shape;
        assert!(lane < lanes, "a row has {lanes} slots");
        let row = row as usize & (rows - 1);
        let at = self.shape.slots_at() + ((group * rows + row) * lanes + lane) * SLOT;
        let words = self.words.all()[at..].first_chunk();
        Slot(words.expect("the shape's slots lie in the region"))
    }
}

/// Tables may have keys: memory that a driver allocates is not zeroed for its next use.
#[cfg(not(loom))]
impl Drop for Region {
    fn drop(&mut self) {
        let tables = &self.words.all()[self.shape.tables_at()..];
        tables.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // What frees the memory does not read it: the stores must not be left out.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// The words of a region.
#[cfg(not(loom))]
pub(crate) struct Words {
    memory: PacketMemory,
    len: usize,
}

#[cfg(not(loom))]
impl Words {
    /// The first `len` words of some memory.
    ///
    /// # Panics
    /// When it has fewer.
    pub(crate) fn new(memory: PacketMemory, len: usize) -> Self {
        assert!(4 * len <= memory.len() && memory.base().cast::<AtomicU32>().is_aligned());
        Self { memory, len }
    }

    /// The first byte.
    pub(crate) fn base(&self) -> std::ptr::NonNull<u8> {
        self.memory.base()
    }

    #[inline]
    pub(crate) fn all(&self) -> &[AtomicU32] {
        let base = self.memory.base().cast::<AtomicU32>().as_ptr();
        // SAFETY: `new` has checked length and alignment; the memory is mapped as long as `self`
        // lives, zeroed or written before, and all access to it is atomic, save for tables, which
        // nothing writes once they are there.
        unsafe { std::slice::from_raw_parts(base, self.len) }
    }
}

#[cfg(loom)]
struct Words(Vec<AtomicU32>);

#[cfg(loom)]
impl Words {
    fn new(_: PacketMemory, len: usize) -> Self {
        Self((0..len).map(|_| AtomicU32::new(0)).collect())
    }

    fn all(&self) -> &[AtomicU32] {
        &self.0
    }
}
