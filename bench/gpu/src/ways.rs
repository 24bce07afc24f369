//! The ways in which packets reach a function.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use thalweg_accel::{Accelerator, Backend, OpenCl, Options, Partition, Syncer, Transfer};
use thalweg_packet::{Frame, Pool};

use crate::Settings;
use crate::clock::{Clock, Rate, reading, thread_time};
use crate::works::{LONGEST, Random, START, Work};

/// Rows of a queue.
const ROWS: usize = 64;

/// Packets that are under way with a resident kernel: half of what its queues hold, as each has rows to work on
/// while others are prepared.
pub(crate) fn under_way(settings: &Settings) -> usize {
    settings.work_groups * settings.lanes * ROWS / 2
}

/// Frames with packets in them.
fn frames(pool: &Pool, number: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    pool.take_many(number, |frame| frames.push(frame));
    let mut random = Random(2);
    for frame in &mut frames {
        let bytes = &mut pool.bytes_mut(frame)[START..START + LONGEST];
        bytes.iter_mut().for_each(|byte| *byte = random.byte());
    }
    frames
}

/// A resident kernel for a function, and packets for it.
struct Resident<'a> {
    syncer: Syncer<()>,
    frames: Vec<Frame>,
    before: Option<Vec<u8>>,
    pool: &'a Pool,
    /// Stopped when the packets are back.
    _accelerator: Accelerator,
}

impl<'a> Resident<'a> {
    fn start(
        backend: &dyn Backend,
        pool: &'a Arc<Pool>,
        work: &Work,
        size: usize,
        settings: &Settings,
    ) -> Result<Self, Box<dyn Error>> {
        let (function, table) = (work.function, work.table.clone().into());
        let partition = Partition { function, table, work_groups: settings.work_groups };
        // A machine that others use may stand still for a while.
        let patience = Duration::from_secs(60);
        let options = Options { lanes: settings.lanes, rows: ROWS, patience, ..Options::default() };
        let mut accelerator = Accelerator::start(backend, vec![partition], options, pool.clone())?;
        let syncer = accelerator.syncers(1)?.remove(0);
        let frames = frames(pool, under_way(settings));
        let before = work.before(size);
        Ok(Self { syncer, frames, before, pool, _accelerator: accelerator })
    }

    /// Submits packets until there are no more or no more room; returns how many.
    fn submit(&mut self, work: &Work, size: usize) -> usize {
        let had = self.frames.len();
        while let Some(frame) = self.frames.pop() {
            let job = work.job(self.pool, frame, size, self.before.as_deref());
            if let Err(job) = self.syncer.submit(0, job) {
                self.frames.push(job.frame);
                break;
            }
        }
        had - self.frames.len()
    }

    /// Takes packets back; returns how many.
    fn poll(&mut self, work: &Work) -> Result<usize, Box<dyn Error>> {
        let Self { syncer, frames, .. } = self;
        let back = syncer.poll(|done| {
            work.check(done.result);
            frames.push(done.frame);
        })?;
        Ok(back)
    }

    /// Takes all packets back.
    fn end(mut self, work: &Work) -> Result<(), Box<dyn Error>> {
        while self.syncer.under_way() > 0 {
            self.poll(work)?;
            std::thread::yield_now();
        }
        self.pool.give_back(std::mem::take(&mut self.frames));
        Ok(())
    }
}

/// Through a kernel that stays.
pub(crate) fn resident(
    backend: &dyn Backend,
    pool: &Arc<Pool>,
    work: &Work,
    size: usize,
    settings: &Settings,
) -> Result<Rate, Box<dyn Error>> {
    let mut resident = Resident::start(backend, pool, work, size, settings)?;
    let (mut packets, clock) = (0, Clock::start());
    while packets == 0 || clock.seconds() < settings.seconds {
        resident.submit(work, size);
        let back = resident.poll(work)?;
        packets += back as u64;
        if back == 0 {
            std::thread::yield_now();
        }
    }
    let rate = clock.of_others(packets);
    resident.end(work)?;
    Ok(rate)
}

/// The processor time that the syncer takes for its packets, without that of waiting for them: turns in
/// which none are back do not count. The time of reading the clock is taken off.
pub(crate) fn syncer(
    backend: &dyn Backend,
    pool: &Arc<Pool>,
    work: &Work,
    size: usize,
    settings: &Settings,
) -> Result<Rate, Box<dyn Error>> {
    let reading = reading();
    let mut resident = Resident::start(backend, pool, work, size, settings)?;
    resident.submit(work, size);
    let (mut packets, mut busy, mut turns) = (0, Duration::ZERO, 0u32);
    let clock = Clock::start();
    while packets == 0 || clock.seconds() < settings.seconds {
        let before = thread_time();
        let back = resident.poll(work)?;
        if back == 0 {
            std::thread::yield_now();
            continue;
        }
        resident.submit(work, size);
        busy += thread_time().saturating_sub(before);
        turns += 1;
        packets += back as u64;
    }
    let seconds = clock.seconds();
    resident.end(work)?;
    let cpu_seconds = busy.saturating_sub(reading * turns).as_secs_f64();
    Ok(Rate { packets, seconds, cpu_seconds })
}

/// Through a launch for each batch.
pub(crate) fn launched(
    opencl: &OpenCl,
    pool: &Arc<Pool>,
    work: &Work,
    size: usize,
    settings: &Settings,
    (transfer, batch): (Transfer, usize),
) -> Result<Rate, Box<dyn Error>> {
    let limits = (batch, (work.len)(size));
    let mut batches = opencl.batches(work.function, &work.table, pool.clone(), transfer, limits)?;
    let mut frames = frames(pool, batch);
    let before = work.before(size);
    let mut batch = |frames: &mut Vec<Frame>| {
        let job = |frame| work.job(pool, frame, size, before.as_deref());
        let jobs = frames.drain(..).map(job).collect();
        batches.run(jobs, |done| {
            work.check(done.result);
            frames.push(done.frame);
        })
    };
    // The first launch compiles.
    batch(&mut frames)?;
    let (mut packets, clock) = (0, Clock::start());
    while clock.seconds() < settings.seconds {
        batch(&mut frames)?;
        packets += frames.len() as u64;
    }
    let rate = clock.of_others(packets);
    pool.give_back(frames);
    Ok(rate)
}

/// On this thread, by the function's reference.
pub(crate) fn scalar(pool: &Pool, work: &Work, size: usize, settings: &Settings) -> Rate {
    let mut frames = frames(pool, under_way(settings));
    let before = work.before(size);
    let (mut packets, clock) = (0, Clock::start());
    while clock.seconds() < settings.seconds {
        for frame in &mut frames {
            let bytes = &mut pool.bytes_mut(frame)[START..START + (work.len)(size)];
            if let Some(before) = &before {
                bytes.copy_from_slice(before);
            }
            work.check((work.function.scalar)(bytes, work.argument, &work.table));
        }
        packets += frames.len() as u64;
    }
    let rate = clock.of_this(packets);
    pool.give_back(frames);
    rate
}
