//! The processor's side of the protocol: fills rows, seals them, collects results.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use thalweg_packet::{Frame, Pool};

use crate::entries::{Entries, Entry};
use crate::error::Fault;
use crate::looks::Looks;
use crate::region::{Region, Shape, State};
use crate::slot::Request;

/// A packet for a device, or a part of one.
#[derive(Debug)]
pub struct Job<T> {
    /// The packet's frame. Whoever submits it has no access to the bytes until it is back.
    pub frame: Frame,
    /// The bytes to work on, in the frame.
    pub bytes: Range<usize>,
    /// What the function is to do with them.
    pub argument: [u32; 2],
    /// What comes back with the result.
    pub tag: T,
}

/// A packet that is back from a device.
#[derive(Debug)]
pub struct Done<T> {
    /// Its frame.
    pub frame: Frame,
    /// What the function returned. It is the device's word: any value may occur.
    pub result: [u32; 2],
    /// As submitted.
    pub tag: T,
}

/// Carries packets to work-groups of a device, and back: Hummingbird's CPUSyncer. Several share a
/// device, each with work-groups of its own.
#[derive(Debug)]
pub struct Syncer<T> {
    region: Arc<Region>,
    pool: Arc<Pool>,
    /// By partition: its work-groups that are ours.
    partitions: Vec<Groups<T>>,
    /// How long a work-group may have work without moving on.
    patience: Duration,
    under_way: usize,
    counts: Counts,
}

/// What went through the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets submitted.
    pub packets: u64,
    /// Rows sealed.
    pub rows: u64,
    /// Slots without a packet in them.
    pub dummies: u64,
}

#[derive(Debug)]
struct Groups<T> {
    groups: Vec<Group<T>>,
    /// The one that gets the next packet.
    next: usize,
}

#[derive(Debug)]
struct Group<T> {
    index: usize,
    /// Rows given to the device.
    sealed: u32,
    /// Rows taken back.
    collected: u32,
    /// Slots filled in the row that is not sealed.
    filled: usize,
    entries: Entries<T>,
    /// How long it has not moved on, if it has work.
    stands: Option<Looks>,
}

impl<T> Syncer<T> {
    /// A syncer of these work-groups, by partition.
    pub(crate) fn new(
        region: Arc<Region>,
        pool: Arc<Pool>,
        partitions: Vec<Vec<usize>>,
        patience: Duration,
    ) -> Self {
        let Shape { rows, lanes, .. } = region.shape();
        let group = |index| {
            let entries = Entries::new(rows, lanes);
            Group { index, sealed: 0, collected: 0, filled: 0, entries, stands: None }
        };
        let groups =
            |own: Vec<usize>| Groups { groups: own.into_iter().map(group).collect(), next: 0 };
        let partitions = partitions.into_iter().map(groups).collect();
        Self { region, pool, partitions, patience, under_way: 0, counts: Counts::default() }
    }

    /// Gives a packet to the function of partition number `partition`.
    ///
    /// # Errors
    /// Hands the job back when all queues of that partition are full: [`poll`](Self::poll) makes room.
    ///
    /// # Panics
    /// When there is no such partition, the frame is of another pool, or the bytes are not in it.
    pub fn submit(&mut self, partition: usize, job: Job<T>) -> Result<(), Job<T>> {
        let Job { frame, bytes, .. } = &job;
        let is_inside = bytes.start <= bytes.end && bytes.end <= self.pool.size_of(frame);
        assert!(is_inside, "the frame has no bytes {bytes:?}");
        let offset = (self.pool.offset_of(frame) + bytes.start) as u64;
        let request = Request { offset, len: bytes.len() as u32, argument: job.argument };
        let own = &mut self.partitions[partition];
        for _ in 0..own.groups.len() {
            let group = &mut own.groups[own.next];
            if group.has_room(&self.region) {
                let entry = Entry { frame: job.frame, tag: job.tag };
                let is_sealed = group.put(&self.region, request, entry, &mut self.counts);
                if is_sealed {
                    own.next = (own.next + 1) % own.groups.len();
                }
                self.under_way += 1;
                self.counts.packets += 1;
                return Ok(());
            }
            own.next = (own.next + 1) % own.groups.len();
        }
        Err(job)
    }

    /// Calls `each` with every packet that is back, and gives rows that are not full to work-groups
    /// that idle; returns how many packets were back. Never waits.
    ///
    /// The packets of one work-group come back in the order of their submission; those of several, in
    /// any.
    ///
    /// # Errors
    /// What the device did wrong; it is to be given up then: [`abandon`](Self::abandon).
    pub fn poll(&mut self, mut each: impl FnMut(Done<T>)) -> Result<usize, Fault> {
        let before = self.under_way;
        for group in self.partitions.iter_mut().flat_map(|own| &mut own.groups) {
            let back = group.collect(&self.region, &mut each)?;
            self.under_way -= back;
            group.seal_if_idle(&self.region, &mut self.counts);
            if back == 0 {
                group.check(&self.region, self.patience)?;
            }
        }
        Ok(before - self.under_way)
    }

    /// How many work-groups it serves.
    pub fn work_groups(&self) -> usize {
        self.partitions.iter().map(|own| own.groups.len()).sum()
    }

    /// How many packets are with the device.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// What went through the queues so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Gives up a device: calls `each` with the tag of every packet that is with it, and its frame if
    /// the work-group has ended. Other frames are lost to the pool until it is dropped, as the device
    /// may still write to them.
    pub fn abandon(mut self, mut each: impl FnMut(T, Option<Frame>)) {
        for group in self.partitions.iter_mut().flat_map(|own| &mut own.groups) {
            let has_ended = self.region.state(group.index) == State::Ended;
            for Entry { frame, tag } in group.entries.drain() {
                each(tag, has_ended.then_some(frame));
            }
        }
    }
}

impl<T> Group<T> {
    /// Whether the row at `sealed` has a slot that is neither filled nor the device's.
    fn has_room(&self, region: &Region) -> bool {
        (self.sealed.wrapping_sub(self.collected) as usize) < region.shape().rows
    }

    /// Fills a slot; returns whether that filled the row, which is sealed then.
    fn put(
        &mut self,
        region: &Region,
        request: Request,
        entry: Entry<T>,
        counts: &mut Counts,
    ) -> bool {
        region.slot(self.index, self.sealed, self.filled).write(request);
        self.entries.put(self.sealed, self.filled, entry);
        self.filled += 1;
        let is_full = self.filled == region.shape().lanes;
        if is_full {
            self.seal(region, counts);
        }
        is_full
    }

    fn seal(&mut self, region: &Region, counts: &mut Counts) {
        let lanes = region.shape().lanes;
        for lane in self.filled..lanes {
            region.slot(self.index, self.sealed, lane).clear();
        }
        counts.dummies += (lanes - self.filled) as u64;
        counts.rows += 1;
        self.filled = 0;
        self.sealed = self.sealed.wrapping_add(1);
        region.seal(self.index, self.sealed);
    }

    /// Seals the row that is not full if the work-group has done all others.
    fn seal_if_idle(&mut self, region: &Region, counts: &mut Counts) {
        if self.filled > 0 && self.collected == self.sealed {
            self.seal(region, counts);
        }
    }

    /// Takes rows back.
    fn collect(&mut self, region: &Region, each: &mut impl FnMut(Done<T>)) -> Result<usize, Fault> {
        let done = region.done(self.index);
        if done.wrapping_sub(self.collected) > self.sealed.wrapping_sub(self.collected) {
            return Err(Fault::Index { work_group: self.index, done, sealed: self.sealed });
        }
        let mut back = 0;
        while self.collected != done {
            for lane in 0..region.shape().lanes {
                let Some(Entry { frame, tag }) = self.entries.take(self.collected, lane) else {
                    // Slots are filled from the first.
                    break;
                };
                let result = region.slot(self.index, self.collected, lane).result();
                back += 1;
                each(Done { frame, result, tag });
            }
            self.collected = self.collected.wrapping_add(1);
            self.stands = None;
        }
        Ok(back)
    }

    /// Whether a work-group with work has moved on within `patience`.
    fn check(&mut self, region: &Region, patience: Duration) -> Result<(), Fault> {
        if self.collected == self.sealed {
            return Ok(());
        }
        let work_group = self.index;
        let after = self.stands.get_or_insert_with(Looks::new).again(patience);
        if region.state(self.index) == State::Ended && region.done(self.index) == self.collected {
            return Err(Fault::Ended { work_group });
        }
        if after > patience {
            return Err(Fault::Stalled { work_group, after });
        }
        Ok(())
    }
}
