//! A device that returns packets late and in any order, and may fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_nf::device::{
    DeviceCounts, DeviceFault, DeviceJob, DeviceLine, DeviceReturn, DeviceShare, DeviceWork,
    Devices, Named,
};
use thalweg_packet::{Batch, Frame, PacketMemory, Pool};

/// The packets that a line has at most, but for those of the last burst.
pub const CAPACITY: usize = 256;

/// The device, which may fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odd {
    /// The number of the batch from which on it returns no packets; `None` for never.
    pub fails_at: Option<usize>,
    /// How long it is polled without a packet until that is found.
    pub found_after: Duration,
    /// Whether it keeps all packets that it has then, and not only every second one.
    pub keeps_all: bool,
}

impl Odd {
    /// One that fails at this batch, and keeps every second packet that it has then.
    pub fn failing_at(batch: usize) -> Self {
        Self { fails_at: Some(batch), ..Self::default() }
    }
}

struct Line {
    device: Odd,
    work: DeviceWork,
    pool: Arc<Pool>,
    batches: usize,
    packets: u64,
    /// When it was polled first after the batch at which it fails.
    silent_since: Option<Instant>,
    has_failed: bool,
    jobs: Vec<Submitted>,
    random: u64,
}

struct Submitted {
    visit: usize,
    job: DeviceJob,
    frame: Frame,
    /// Where the packet begins in its frame.
    start: usize,
}

impl Devices for Odd {
    fn allocate(&self, _: Named<'_>, len: usize) -> Result<PacketMemory, String> {
        PacketMemory::anonymous(len).map_err(|e| e.to_string())
    }

    fn start(
        &self,
        _: Named<'_>,
        shares: Vec<DeviceShare>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String> {
        let share = |DeviceShare { work, lines, .. }| {
            let line = |number| -> Box<dyn DeviceLine> {
                Box::new(Line {
                    device: *self,
                    work: DeviceWork::clone(&work),
                    pool: pool.clone(),
                    batches: 0,
                    packets: 0,
                    silent_since: None,
                    has_failed: false,
                    jobs: Vec::new(),
                    random: number as u64,
                })
            };
            (0..lines).map(line).collect()
        };
        Ok(shares.into_iter().map(share).collect())
    }
}

impl Line {
    /// A number below `limit` (Knuth's generator).
    fn random(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(99);
        (self.random >> 33) as usize % limit
    }
}

impl DeviceLine for Line {
    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn submit(&mut self, batch: &mut Batch, visit: usize, jobs: &[DeviceJob]) -> usize {
        self.batches += 1;
        self.packets += jobs.len() as u64;
        for job in jobs {
            let (frame, packet) = batch.lend(job.lane).unwrap();
            self.jobs.push(Submitted { visit, job: *job, frame, start: packet.start });
        }
        jobs.len()
    }

    fn poll(&mut self, back: &mut Vec<DeviceReturn>) -> Result<(), DeviceFault> {
        if self.device.fails_at.is_some_and(|batch| self.batches >= batch) {
            let silent_since = *self.silent_since.get_or_insert_with(Instant::now);
            if silent_since.elapsed() < self.device.found_after {
                return Ok(());
            }
            let keeps = !self.has_failed;
            for (number, Submitted { visit, job, frame, .. }) in self.jobs.drain(..).enumerate() {
                let is_kept = keeps && (self.device.keeps_all || number % 2 == 0);
                let frame = Some(frame).filter(|_| !is_kept);
                back.push(DeviceReturn { visit, lane: job.lane, frame, result: None });
            }
            self.has_failed = true;
            return if keeps { Err(DeviceFault("it burns".into())) } else { Ok(()) };
        }
        let most = self.random(80).min(self.jobs.len());
        for _ in 0..most {
            let at = self.random(self.jobs.len());
            let Submitted { visit, job, mut frame, start } = self.jobs.swap_remove(at);
            let bytes = &mut self.pool.bytes_mut(&mut frame)[start + job.start..][..job.len];
            let result = (self.work.function.scalar)(bytes, job.argument, &self.work.table);
            back.push(DeviceReturn {
                visit,
                lane: job.lane,
                frame: Some(frame),
                result: Some(result),
            });
        }
        Ok(())
    }

    /// Its rows are batches, which have no slots to spare.
    fn counts(&self) -> DeviceCounts {
        let (packets, rows) = (self.packets, self.batches as u64);
        DeviceCounts { packets, rows, slots: packets, ..DeviceCounts::default() }
    }
}
