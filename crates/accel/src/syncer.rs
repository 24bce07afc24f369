//! The processor's side of the protocol: fills rows, seals them, collects results.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use thalweg_nf::device::{DeviceCounts, Split};
use thalweg_packet::{Frame, Pool};

use crate::entries::{Content, Entries, Entry};
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
    counts: DeviceCounts,
}

/// Work-groups of a partition, and how its jobs are divided.
pub(crate) type OwnGroups = (Vec<usize>, Option<Split>);

#[derive(Debug)]
struct Groups<T> {
    /// How the function's jobs are divided.
    split: Option<Split>,
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
    /// The result for the pieces so far of a packet whose others are not collected.
    joined: Option<[u32; 2]>,
    /// How long it has not moved on, if it has work.
    stands: Option<Looks>,
}

impl<T> Syncer<T> {
    /// A syncer of these work-groups, by partition.
    pub(crate) fn new(
        region: Arc<Region>,
        pool: Arc<Pool>,
        partitions: Vec<OwnGroups>,
        patience: Duration,
    ) -> Self {
        let Shape { rows, lanes, .. } = region.shape();
        let group = |index| {
            let entries = Entries::new(rows, lanes);
            let (sealed, collected, filled, stands) = (0, 0, 0, None);
            Group { index, sealed, collected, filled, entries, joined: None, stands }
        };
        let groups = |(own, split): OwnGroups| {
            let groups = own.into_iter().map(group).collect();
            Groups { split, groups, next: 0 }
        };
        let partitions = partitions.into_iter().map(groups).collect();
        Self { region, pool, partitions, patience, under_way: 0, counts: DeviceCounts::default() }
    }

    /// Gives a packet to the function of partition number `partition`, in pieces if it is long and the
    /// function allows it: on work-items next to each other, and with one result.
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
        let split = own.split.filter(|split| bytes.len() > split.piece);
        let lanes = self.region.shape().lanes;
        let slots = split.map_or(1, |split| split.pieces(bytes.len(), lanes).count());
        for _ in 0..own.groups.len() {
            let group = &mut own.groups[own.next];
            if group.has_room(&self.region, slots) {
                let entry = Entry { frame: job.frame, tag: job.tag };
                let is_sealed =
                    group.put_all(&self.region, request, split, entry, &mut self.counts);
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
        for (split, group) in self.partitions.iter_mut().flat_map(Groups::each) {
            let back = group.collect(&self.region, split, &mut each)?;
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
    pub fn counts(&self) -> DeviceCounts {
        self.counts
    }

    /// Gives up a device: calls `each` with the tag of every packet that is with it, and its frame if
    /// the work-group has ended. Other frames are lost to the pool until it is dropped, as the device
    /// may still write to them.
    pub fn abandon(self, each: impl FnMut(T, Option<Frame>)) {
        self.abandon_kernel(false, each);
    }

    /// As [`abandon`](Self::abandon); with all frames if the kernel `has_ended`, by the word of its driver.
    pub(crate) fn abandon_kernel(
        mut self,
        has_ended: bool,
        mut each: impl FnMut(T, Option<Frame>),
    ) {
        for group in self.partitions.iter_mut().flat_map(|own| &mut own.groups) {
            let has_ended = has_ended || self.region.state(group.index) == State::Ended;
            if !has_ended {
                self.region.give_up(group.index);
            }
            for Entry { frame, tag } in group.entries.drain() {
                each(tag, has_ended.then_some(frame));
            }
        }
    }
}

impl<T> Groups<T> {
    /// The work-groups, each with how its jobs are divided.
    fn each(&mut self) -> impl Iterator<Item = (Option<Split>, &mut Group<T>)> {
        let split = self.split;
        self.groups.iter_mut().map(move |group| (split, group))
    }
}

impl<T> Group<T> {
    /// Whether this number of slots, at most a row, are neither filled nor the device's.
    fn has_room(&self, region: &Region, slots: usize) -> bool {
        let Shape { rows, lanes, .. } = region.shape();
        let free = rows - self.sealed.wrapping_sub(self.collected) as usize;
        self.filled + slots <= free * lanes
    }

    /// Fills slots with a request, or with its pieces, the last of which has the packet; returns whether that
    /// filled a row, which is sealed then.
    fn put_all(
        &mut self,
        region: &Region,
        request: Request,
        split: Option<Split>,
        entry: Entry<T>,
        counts: &mut DeviceCounts,
    ) -> bool {
        let Some(split) = split else {
            return self.put(region, request, Content::Packet(entry), counts);
        };
        let pieces = split.pieces(request.len as usize, region.shape().lanes);
        let (mut pieces, mut entry, mut is_sealed) = (pieces.peekable(), Some(entry), false);
        while let Some(bytes) = pieces.next() {
            let offset = request.offset + bytes.start as u64;
            let piece = Request { offset, len: bytes.len() as u32, ..request };
            let is_last = pieces.peek().is_none();
            let packet = if is_last { entry.take() } else { None };
            let content = packet.map_or(Content::Piece, Content::Packet);
            is_sealed |= self.put(region, piece, content, counts);
        }
        is_sealed
    }

    /// Fills a slot; returns whether that filled the row, which is sealed then.
    fn put(
        &mut self,
        region: &Region,
        request: Request,
        content: Content<T>,
        counts: &mut DeviceCounts,
    ) -> bool {
        region.slot(self.index, self.sealed, self.filled).write(request);
        self.entries.put(self.sealed, self.filled, content);
        self.filled += 1;
        let is_full = self.filled == region.shape().lanes;
        if is_full {
            self.seal(region, counts);
        }
        is_full
    }

    fn seal(&mut self, region: &Region, counts: &mut DeviceCounts) {
        let lanes = region.shape().lanes;
        for lane in self.filled..lanes {
            region.slot(self.index, self.sealed, lane).clear();
        }
        counts.dummies += (lanes - self.filled) as u64;
        counts.rows += 1;
        counts.slots += lanes as u64;
        self.filled = 0;
        self.sealed = self.sealed.wrapping_add(1);
        region.seal(self.index, self.sealed);
    }

    /// Seals the row that is not full if the work-group has done all others.
    fn seal_if_idle(&mut self, region: &Region, counts: &mut DeviceCounts) {
        if self.filled > 0 && self.collected == self.sealed {
            self.seal(region, counts);
        }
    }

    /// Takes rows back.
    fn collect(
        &mut self,
        region: &Region,
        split: Option<Split>,
        each: &mut impl FnMut(Done<T>),
    ) -> Result<usize, Fault> {
        let done = region.done(self.index);
        if done.wrapping_sub(self.collected) > self.sealed.wrapping_sub(self.collected) {
            return Err(Fault::Index { work_group: self.index, done, sealed: self.sealed });
        }
        let mut back = 0;
        while self.collected != done {
            for lane in 0..region.shape().lanes {
                let Some(content) = self.entries.take(self.collected, lane) else {
                    // Slots are filled from the first.
                    break;
                };
                let own = region.slot(self.index, self.collected, lane).result();
                let result = match (self.joined.take(), split) {
                    (Some(joined), Some(split)) => (split.join)(joined, own),
                    _ => own,
                };
                match content {
                    Content::Piece => self.joined = Some(result),
                    Content::Packet(Entry { frame, tag }) => {
                        back += 1;
                        each(Done { frame, result, tag });
                    }
                }
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
