//! Which of several functions with the same results a device is fastest with: measured on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_nf::device::{Alternatives, DeviceFunction, DeviceWork};
use thalweg_packet::Pool;

use crate::accelerator::{Accelerator, Options, Partition};
use crate::backend::Backend;
use crate::error::{AccelError, Fault};
use crate::syncer::{Job, Syncer};

/// How long a function is measured, once its kernel runs; longer until there are [`ROUNDS`].
const TIME: Duration = Duration::from_millis(30);
/// The rounds of a measurement at least. The fastest one counts, as other programs may slow some down.
const ROUNDS: usize = 5;
/// Packets of a round: a few rows, one of which the work-group has while others wait.
const PACKETS: usize = 128;
/// Bytes of a frame.
const FRAME: usize = 2048;

/// The function of `work`, or the alternative to it, with which a work-group of the device works on the most
/// packets in the same time. Each is measured in a kernel of its own, which has ended when this returns; where
/// there is no alternative, or the device runs the portable code, nothing is.
///
/// # Errors
/// [`AccelError`], as for the kernel of the work itself.
pub fn fastest(backend: &dyn Backend, work: &DeviceWork) -> Result<DeviceFunction, AccelError> {
    let Some(alternatives) = work.alternatives.as_ref().filter(|_| backend.compiles()) else {
        return Ok(work.function);
    };
    let mut best: Option<(f64, DeviceFunction)> = None;
    for function in std::iter::once(&work.function).chain(alternatives.functions) {
        let rate = rate(backend, *function, alternatives)?;
        log::debug!("{}: {}: {rate:.0} packets/s a work-group", backend.name(), function.name);
        if best.is_none_or(|(most, _)| rate > most) {
            best = Some((rate, *function));
        }
    }
    Ok(best.map_or(work.function, |(_, function)| function))
}

/// Packets a second through one work-group, in the fastest round.
fn rate(
    backend: &dyn Backend,
    function: DeviceFunction,
    alternatives: &Alternatives,
) -> Result<f64, AccelError> {
    let pool = Pool::new(backend.allocate(Pool::region_len(PACKETS, FRAME))?, FRAME);
    let pool = Arc::new(pool.map_err(|e| AccelError::Memory {
        device: backend.name(),
        len: Pool::region_len(PACKETS, FRAME),
        why: e.to_string(),
    })?);
    let partition =
        Partition { function, table: alternatives.table.clone().into(), work_groups: 1 };
    let options = Options { patience: Duration::from_secs(5), ..Options::default() };
    let mut accelerator = Accelerator::start(backend, vec![partition], options, pool.clone())?;
    let mut syncer = accelerator.share(0, 1, options.patience)?.remove(0);
    let (mut best, start) = (Duration::MAX, Instant::now());
    for round in 0.. {
        if round >= ROUNDS && start.elapsed() >= TIME {
            break;
        }
        let jobs = jobs(&pool, alternatives);
        let start = Instant::now();
        through(&mut syncer, &pool, jobs).map_err(|fault| AccelError::Call {
            device: backend.name(),
            call: "a measurement",
            why: fault.to_string(),
        })?;
        best = best.min(start.elapsed());
    }
    Ok(PACKETS as f64 / best.as_secs_f64().max(1e-9))
}

/// The packets of a round.
fn jobs(pool: &Pool, alternatives: &Alternatives) -> Vec<Job<()>> {
    let mut frames = Vec::new();
    pool.take_many(PACKETS, |frame| frames.push(frame));
    let job = |(mut frame, (bytes, argument)): (_, &(Vec<u8>, _))| {
        let len = bytes.len().min(FRAME);
        pool.bytes_mut(&mut frame)[..len].copy_from_slice(&bytes[..len]);
        Job { frame, bytes: 0..len, argument: *argument, tag: () }
    };
    frames.into_iter().zip(alternatives.samples.iter().cycle()).map(job).collect()
}

/// Sends packets through the device, and waits for them.
fn through(syncer: &mut Syncer<()>, pool: &Pool, jobs: Vec<Job<()>>) -> Result<(), Fault> {
    let mut waiting = VecDeque::from(jobs);
    while !waiting.is_empty() || syncer.under_way() > 0 {
        while let Some(job) = waiting.pop_front() {
            if let Err(job) = syncer.submit(0, job) {
                waiting.push_front(job);
                break;
            }
        }
        if syncer.poll(|done| pool.give_back([done.frame]))? == 0 {
            thread::yield_now();
        }
    }
    Ok(())
}
