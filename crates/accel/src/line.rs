//! The devices of this machine for the NFs of a chain.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_nf::device::{
    DeviceCounts, DeviceFacts, DeviceFault, DeviceFunction, DeviceJob, DeviceLine, DevicePlace,
    DeviceReturn, DeviceShare, DeviceWork, Devices, Launches, Named, Unusable, Way,
};
use thalweg_packet::{Batch, PacketMemory, Pool};

use crate::accelerator::{Accelerator, Options, Partition};
use crate::backend::{Backend, Figures};
use crate::choice::fastest;
use crate::devices::open_cuda;
use crate::error::AccelError;
use crate::names::{Name, gpu};
use crate::opencl::OpenCl;
use crate::soft::Soft;
use crate::syncer::{Done, Job, Syncer};

/// The devices of this machine, opened when they are first asked for.
#[derive(Default)]
pub struct Installed {
    opened: Mutex<Opened>,
    /// By device and function: the one that the device is fastest with, of the function and its alternatives.
    fastest: Mutex<HashMap<(String, &'static str), DeviceFunction>>,
}

/// The devices that are open.
#[derive(Default)]
struct Opened {
    /// By their own names.
    devices: HashMap<(String, Launches), Arc<dyn Backend>>,
    /// The own names of GPUs, by the names that led to them: these stay what they are.
    gpus: HashMap<(String, Launches), String>,
    /// Whether no others can be opened.
    is_confined: bool,
}

impl Opened {
    /// The device with this name in a chain file, and its own name.
    fn device(
        &mut self,
        Named { at, launches }: Named<'_>,
    ) -> Result<(String, Arc<dyn Backend>), Unusable> {
        let key = (at.to_owned(), launches);
        let known = self.gpus.get(&key).map_or(at, |place| place).to_owned();
        let known = (known, launches);
        if let Some(device) = self.devices.get(&known) {
            return Ok((known.0, device.clone()));
        }
        let name = Name::parse(at)?;
        if self.is_confined && name != Name::Soft {
            return Err(Unusable {
                why: "this run is confined to its files, and has opened no device".into(),
                expected: format!("device = \"{at}\" in [memory] from the start of the run"),
            });
        }
        let place = match name {
            Name::Gpu(number) => gpu(number, launches)?,
            _ => at.to_owned(),
        };
        let device = match self.devices.get(&(place.clone(), launches)) {
            Some(device) => device.clone(),
            None => opened(&place, launches)?,
        };
        self.devices.insert((place.clone(), launches), device.clone());
        if let Name::Gpu(_) = name {
            self.gpus.insert(key, place.clone());
        }
        Ok((place, device))
    }
}

/// Opens a device by its own name.
fn opened(place: &str, launches: Launches) -> Result<Arc<dyn Backend>, Unusable> {
    let device = open(place, launches).map_err(|why| Unusable {
        why: why.to_string(),
        expected: "a device that can be used; thalweg devices lists those of this machine".into(),
    })?;
    log::info!("{place} is {}; packets reach it by way '{}'", device.name(), device.way().name());
    Ok(device)
}

fn open(place: &str, launches: Launches) -> Result<Arc<dyn Backend>, AccelError> {
    match Name::parse(place) {
        Ok(Name::OpenCl(number)) => Ok(Arc::new(OpenCl::open(number, launches)?)),
        Ok(Name::Soft) => Ok(Arc::new(Soft)),
        Ok(Name::Cuda(_)) if matches!(launches, Launches::Shared | Launches::Copied) => {
            Err(AccelError::Unfit {
                device: place.to_owned(),
                why: "runs resident kernels; launches are for OpenCL devices".into(),
            })
        }
        _ => open_cuda(place).map_or_else(
            || Err(AccelError::Missing(format!("unknown device '{place}'"))),
            |device| device.map(Arc::from),
        ),
    }
}

impl Installed {
    /// The devices of this machine, and another one, with the name `at` in a chain file.
    #[must_use]
    pub fn with(self, at: &str, device: Arc<dyn Backend>) -> Self {
        self.opened().devices.insert((at.to_owned(), Launches::default()), device);
        self
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device with this name in a chain file.
    fn open(&self, device: Named<'_>) -> Result<Arc<dyn Backend>, String> {
        self.opened().device(device).map(|(_, device)| device).map_err(|e| e.why)
    }

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

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").finish_non_exhaustive()
    }
}

impl Devices for Installed {
    fn find(&self, device: Named<'_>) -> Result<DeviceFacts, Unusable> {
        let (place, device) = self.opened().device(device)?;
        Ok(DeviceFacts { place, room: device.room() })
    }

    fn have_driver(&self) -> bool {
        self.opened().devices.keys().any(|(place, _)| place != "soft")
    }

    fn confine(&self) {
        self.opened().is_confined = true;
    }

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
        let is_possible = device.room().is_none_or(|room| needed <= room.free);
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
