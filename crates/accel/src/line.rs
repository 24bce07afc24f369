//! The devices of this machine for the NFs of a chain.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_nf::device::{
    DeviceCounts, DeviceFault, DeviceFunction, DeviceJob, DeviceLine, DevicePlace, DeviceReturn,
    DeviceShare, DeviceWork, Devices, Launches, Named, Way,
};
use thalweg_packet::{Batch, PacketMemory, Pool};

use crate::accelerator::{Accelerator, Options, Partition};
use crate::backend::{Backend, Figures};
use crate::choice::fastest;
use crate::devices::{devices, open_cuda};
use crate::error::AccelError;
use crate::opencl::{OpenCl, WITH_LAUNCHES};
use crate::soft::Soft;
use crate::syncer::{Done, Job, Syncer};

/// The devices of this machine, opened when they are first asked for.
#[derive(Default)]
pub struct Installed {
    opened: Mutex<HashMap<(String, Launches), Arc<dyn Backend>>>,
    /// By device and function: the one that the device is fastest with, of the function and its alternatives.
    fastest: Mutex<HashMap<(String, &'static str), DeviceFunction>>,
}

impl Installed {
    /// The devices of this machine, and another one, with the name `at` in a chain file.
    #[must_use]
    pub fn with(self, at: &str, device: Arc<dyn Backend>) -> Self {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert((at.to_owned(), Launches::default()), device);
        drop(opened);
        self
    }

    /// The device with this name in a chain file.
    fn open(&self, Named { at, launches }: Named<'_>) -> Result<Arc<dyn Backend>, String> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&(at.to_owned(), launches)) {
            return Ok(device.clone());
        }
        let place = if at == "gpu" { gpu(launches)? } else { at.to_owned() };
        let device: Arc<dyn Backend> = match place.strip_prefix("opencl:") {
            Some(number) => {
                let number = number.parse().map_err(|_| unknown(at))?;
                Arc::new(OpenCl::open(number, launches).map_err(|e| e.to_string())?)
            }
            None if place == "soft" => Arc::new(Soft),
            None if matches!(launches, Launches::Shared | Launches::Copied)
                && place.starts_with("cuda:") =>
            {
                let why = "launches are for OpenCL devices; this one runs resident kernels";
                return Err(format!("{place}: {why}"));
            }
            None => {
                let device = open_cuda(&place).ok_or_else(|| unknown(at))?;
                Arc::from(device.map_err(|e| e.to_string())?)
            }
        };
        // The same device by two names shares its memory.
        let device = opened.entry((place, launches)).or_insert(device).clone();
        opened.insert((at.to_owned(), launches), device.clone());
        log::info!(
            "'{at}' is {}; packets reach it by way '{}'",
            device.name(),
            device.way().name()
        );
        Ok(device)
    }
}

impl Installed {
    /// The function for some work on a device, which is measured the first time.
    fn fastest(
        &self,
        device: &dyn Backend,
        work: &DeviceWork,
    ) -> Result<DeviceFunction, AccelError> {
        if work.alternatives.is_none() {
            return Ok(work.function);
        }
        let key = (device.name(), work.function.name);
        let mut known = self.fastest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = known.get(&key) {
            return Ok(*function);
        }
        let function = fastest(device, work)?;
        log::info!("{}: '{}' is the fastest form of '{}'", key.0, function.name, key.1);
        known.insert(key, function);
        Ok(function)
    }
}

fn unknown(at: &str) -> String {
    format!("unknown device '{at}'; expected cpu, gpu, soft, or a name that thalweg devices lists")
}

/// The name of the first GPU on which NFs run; one with resident kernels, if launches are allowed and not demanded.
fn gpu(launches: Launches) -> Result<String, String> {
    let (all, why) = devices();
    let first = |launches| all.iter().find(|device| device.kind == "gpu" && device.runs(launches));
    let resident = if launches == Launches::Auto { first(Launches::Never) } else { None };
    if let Some(device) = resident.or_else(|| first(launches)) {
        return Ok(device.place.clone());
    }
    let kernels = if launches == Launches::Never { "resident kernels" } else { "launches" };
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let others = first(Launches::Auto).map(|gpu| format!("; {}: {WITH_LAUNCHES}", gpu.place));
    let others = others.unwrap_or_default();
    Err(format!("no GPU here can run {kernels}{why}{others}; thalweg devices lists what there is"))
}

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").finish_non_exhaustive()
    }
}

impl Devices for Installed {
    fn allocate(&self, device: Named<'_>, len: usize) -> Result<PacketMemory, String> {
        self.open(device)?.allocate(len).map_err(|e| e.to_string())
    }

    fn adopt(&self, device: Named<'_>, memory: PacketMemory) -> Result<PacketMemory, String> {
        self.open(device)?.adopt(memory).map_err(|e| e.to_string())
    }

    fn start(
        &self,
        device: Named<'_>,
        shares: Vec<DeviceShare>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String> {
        let device = self.open(device)?;
        let (mut partitions, mut of_shares) = (Vec::new(), Vec::new());
        let needed = shares.iter().map(|share| share.place.work_groups).sum::<usize>();
        let is_possible = device.free_work_groups().is_none_or(|free| needed <= free);
        for DeviceShare { place, work, lines } in shares {
            // Without room for all work-groups, the start is refused, for which nothing needs measuring.
            let function =
                if is_possible { self.fastest(&*device, &work) } else { Ok(work.function) };
            let (function, table) = (function.map_err(|e| e.to_string())?, work.table);
            partitions.push(Partition { function, table, work_groups: place.work_groups });
            of_shares.push((lines, place));
        }
        let started = Accelerator::start(&*device, partitions, Options::default(), pool.clone());
        let accelerator = Arc::new(Mutex::new(started.map_err(|e| e.to_string())?));
        let (name, way): (Arc<str>, _) = (device.name().into(), device.way());
        let ahead = if way == Way::Resident { AHEAD } else { AHEAD_OF_LAUNCHES };
        let lines = |(number, (lines, place)): (usize, (usize, DevicePlace))| {
            let mut of = accelerator.lock().unwrap_or_else(PoisonError::into_inner);
            let syncers = of.share(number, lines, place.patience).map_err(|e| e.to_string())?;
            // Launches are those of the whole share, which its first line counts.
            let mut figures = of.figures().map(|figures| (figures, number));
            let line = |syncer: Syncer<Tag>| -> Box<dyn DeviceLine> {
                Box::new(Line {
                    way,
                    figures: figures.take(),
                    capacity: ahead * Options::default().lanes * syncer.work_groups(),
                    syncer: Some(syncer),
                    waiting: VecDeque::new(),
                    before: DeviceCounts::default(),
                    name: name.clone(),
                    next_look: Instant::now() + BETWEEN_LOOKS,
                    accelerator: accelerator.clone(),
                })
            };
            Ok(syncers.into_iter().map(line).collect())
        };
        of_shares.into_iter().enumerate().map(lines).collect()
    }
}

/// The rows of a work-group that keep it busy: while it works on one, others wait.
const AHEAD: usize = 8;
/// The same for launches, each of which takes many rows.
const AHEAD_OF_LAUNCHES: usize = 32;

/// The time between two looks for a failure of the kernel, while no packet comes back.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A packet's visit and lane.
type Tag = (usize, usize);

/// An NF's share of a device, or a part of it.
struct Line {
    way: Way,
    /// What launches did, and for which partition, if this line counts that.
    figures: Option<(Arc<Figures>, usize)>,
    /// `None` once the device has failed.
    syncer: Option<Syncer<Tag>>,
    /// Packets for which the queues have no room.
    waiting: VecDeque<Job<Tag>>,
    /// Packets that keep the work-groups busy.
    capacity: usize,
    /// What went through the syncer, once there is none.
    before: DeviceCounts,
    name: Arc<str>,
    /// When the driver is to be asked next whether the kernel has failed.
    next_look: Instant,
    /// Stopped when its last line is dropped: after the syncer has its packets back.
    accelerator: Arc<Mutex<Accelerator>>,
}

impl Line {
    /// Gives the device what waits, as long as it has room.
    fn fill(&mut self) {
        let Some(syncer) = &mut self.syncer else { return };
        while let Some(job) = self.waiting.pop_front() {
            if let Err(job) = syncer.submit(0, job) {
                self.waiting.push_front(job);
                return;
            }
        }
    }

    /// Why the kernel has ended, if the driver reports an error; looks now and then, or `now`.
    fn failure(&mut self, now: bool) -> Option<String> {
        if !now && Instant::now() < self.next_look {
            return None;
        }
        self.next_look = Instant::now() + BETWEEN_LOOKS;
        self.accelerator.lock().unwrap_or_else(PoisonError::into_inner).failure()
    }

    /// Returns all packets that are under way, without results; with all frames if the kernel `has_ended`.
    fn give_up(&mut self, has_ended: bool, back: &mut Vec<DeviceReturn>) {
        let mut lose = |(visit, lane): Tag, frame| {
            back.push(DeviceReturn { visit, lane, frame, result: None });
        };
        if let Some(syncer) = self.syncer.take() {
            self.before = syncer.counts();
            syncer.abandon_kernel(has_ended, &mut lose);
        }
        self.waiting.drain(..).for_each(|job| lose(job.tag, Some(job.frame)));
    }
}

impl DeviceLine for Line {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn submit(&mut self, batch: &mut Batch, visit: usize, jobs: &[DeviceJob]) -> usize {
        let before = self.waiting.len();
        self.waiting.extend(jobs.iter().filter_map(|job| lend(batch, visit, job)));
        let taken = self.waiting.len() - before;
        self.fill();
        taken
    }

    fn poll(&mut self, back: &mut Vec<DeviceReturn>) -> Result<(), DeviceFault> {
        let Some(syncer) = &mut self.syncer else {
            self.give_up(false, back);
            return Ok(());
        };
        if syncer.under_way() == 0 && self.waiting.is_empty() {
            return Ok(());
        }
        let polled = syncer.poll(|Done { frame, result, tag: (visit, lane) }| {
            back.push(DeviceReturn { visit, lane, frame: Some(frame), result: Some(result) });
        });
        let failure = match &polled {
            Ok(1..) => None,
            polled => self.failure(polled.is_err()),
        };
        if let Some(why) = failure {
            self.give_up(true, back);
            return Err(DeviceFault(format!("{}: the kernel has ended: {why}", self.name)));
        }
        if let Err(fault) = polled {
            self.give_up(false, back);
            return Err(DeviceFault(format!("{}: {fault}", self.name)));
        }
        self.fill();
        Ok(())
    }

    fn counts(&self) -> DeviceCounts {
        let counts = self.syncer.as_ref().map_or(self.before, Syncer::counts);
        let of = |(figures, partition): &(Arc<Figures>, usize)| figures.of(*partition);
        let (launches, copied) = self.figures.as_ref().map(of).unwrap_or_default();
        DeviceCounts { way: self.way, launches, copied, ..counts }
    }
}

/// Takes a packet's frame for its job.
fn lend(batch: &mut Batch, visit: usize, job: &DeviceJob) -> Option<Job<Tag>> {
    let (frame, packet) = batch.lend(job.lane)?;
    let start = (packet.start + job.start).min(packet.end);
    let bytes = start..(start + job.len).min(packet.end);
    Some(Job { frame, bytes, argument: job.argument, tag: (visit, job.lane) })
}
