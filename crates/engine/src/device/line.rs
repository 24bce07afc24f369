//! A line to a device: which of its packets are back.

use thalweg_nf::device::{
    DeviceCounts, DeviceFault, DeviceJob, DeviceLine, DeviceResult, DeviceReturn,
};
use thalweg_packet::Batch;

/// A line, and the visits whose packets it has.
pub(super) struct Line {
    line: Box<dyn DeviceLine>,
    /// By number: the visits; those that are not `free` are under way.
    visits: Vec<Visit>,
    free: Vec<usize>,
    /// Packets that are not back.
    under_way: usize,
    /// Frames that a failed device keeps, as it may still write to them.
    kept_frames: u64,
    /// Reused, empty.
    back: Vec<DeviceReturn>,
    lists: (Vec<DeviceJob>, Vec<DeviceResult>),
}

/// A batch of which packets are with the device.
#[derive(Default)]
struct Visit {
    /// How many are not back.
    left: usize,
    back: Vec<DeviceReturn>,
}

impl Line {
    pub(super) fn new(line: Box<dyn DeviceLine>) -> Self {
        let (visits, free, back) = (Vec::new(), Vec::new(), Vec::new());
        Self { line, visits, free, under_way: 0, kept_frames: 0, back, lists: Default::default() }
    }

    /// How many packets keep the device busy.
    pub(super) fn capacity(&self) -> usize {
        self.line.capacity()
    }

    /// What went through it so far.
    pub(super) fn counts(&self) -> DeviceCounts {
        self.line.counts()
    }

    /// How many frames a failed device keeps.
    pub(super) fn kept_frames(&self) -> u64 {
        self.kept_frames
    }

    /// Whether more packets would not only wait.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.capacity()
    }

    /// Submits packets of a batch; returns the number of the visit, which is to be
    /// [collected](Self::collect).
    pub(super) fn submit(&mut self, batch: &mut Batch, jobs: &[DeviceJob]) -> usize {
        let visit = self.free.pop().unwrap_or_else(|| {
            self.visits.push(Visit::default());
            self.visits.len() - 1
        });
        let left = self.line.submit(batch, visit, jobs);
        self.visits[visit].left = left;
        self.under_way += left;
        visit
    }

    /// Takes packets back; returns whether there were any, and what the device did wrong.
    pub(super) fn poll(&mut self) -> (bool, Result<(), DeviceFault>) {
        if self.under_way == 0 {
            return (false, Ok(()));
        }
        let polled = self.line.poll(&mut self.back);
        let some = !self.back.is_empty();
        for back in self.back.drain(..) {
            let visit = &mut self.visits[back.visit];
            visit.left -= 1;
            self.under_way -= 1;
            self.kept_frames += u64::from(back.frame.is_none());
            visit.back.push(back);
        }
        (some, polled)
    }

    /// Whether all packets of a visit are back.
    pub(super) fn is_back(&self, visit: usize) -> bool {
        self.visits[visit].left == 0
    }

    /// Ends a visit whose packets are back: puts them into their batch, with a result for each job, by
    /// lane. Returns whether all have frames: those that the device keeps get others, if the pool has
    /// some.
    pub(super) fn collect(
        &mut self,
        number: usize,
        batch: &mut Batch,
        jobs: &[DeviceJob],
        results: &mut Vec<DeviceResult>,
    ) -> bool {
        let mut is_whole = true;
        results.clear();
        for DeviceReturn { lane, frame, result, .. } in self.visits[number].back.drain(..) {
            if let Some(frame) = frame {
                batch.restore(lane, frame);
            } else {
                is_whole &= replace(batch, lane);
            }
            results.push((lane, result));
        }
        if results.len() < jobs.len() {
            let is_left = |job: &&DeviceJob| results.iter().all(|(lane, _)| *lane != job.lane);
            let left: Vec<_> = jobs.iter().filter(is_left).map(|job| (job.lane, None)).collect();
            results.extend(left);
        }
        results.sort_unstable_by_key(|(lane, _)| *lane);
        self.free.push(number);
        is_whole
    }

    /// Two empty lists, for jobs and results.
    pub(super) fn take_lists(&mut self) -> (Vec<DeviceJob>, Vec<DeviceResult>) {
        std::mem::take(&mut self.lists)
    }

    /// Keeps lists for another visit.
    pub(super) fn put_lists(&mut self, mut jobs: Vec<DeviceJob>, results: Vec<DeviceResult>) {
        jobs.clear();
        self.lists = (jobs, results);
    }
}

/// Gives the packet of a lane, whose frame a failed device keeps, another frame without bytes; returns
/// whether the pool has one.
fn replace(batch: &mut Batch, lane: usize) -> bool {
    // Super-packets have large frames.
    if batch.meta.segment_size[lane] == 0 {
        batch.pool().write_off();
    }
    let Some(frame) = batch.pool().take() else { return false };
    batch.restore(lane, frame);
    batch.truncate(lane, 0);
    true
}
