//! The devices of this machine for the NFs of a chain.

use std::collections::HashMap;
use std::fmt;
use std::hint;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use thalweg_nf::device::{
    DeviceFault, DeviceJob, DeviceLine, DevicePlace, DeviceResult, DeviceWork, Devices,
};
use thalweg_packet::{Batch, Lanes, PacketMemory, Pool};

use crate::accelerator::{Accelerator, Options, Partition};
use crate::backend::Backend;
use crate::devices::{Residency, devices, open_cuda};
use crate::error::Fault;
use crate::opencl::OpenCl;
use crate::soft::Soft;
use crate::syncer::{Job, Syncer};

/// The devices of this machine, opened when they are first asked for.
#[derive(Default)]
pub struct Installed {
    opened: Mutex<HashMap<String, Arc<dyn Backend>>>,
}

impl Installed {
    /// The device with this name in a chain file.
    fn open(&self, at: &str) -> Result<Arc<dyn Backend>, String> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(at) {
            return Ok(device.clone());
        }
        let place = if at == "gpu" { gpu()? } else { at.to_owned() };
        let device: Arc<dyn Backend> = match place.strip_prefix("opencl:") {
            Some(number) => {
                let number = number.parse().map_err(|_| unknown(at))?;
                Arc::new(OpenCl::open(number).map_err(|e| e.to_string())?)
            }
            None if place == "soft" => Arc::new(Soft),
            None => {
                let device = open_cuda(&place).ok_or_else(|| unknown(at))?;
                Arc::from(device.map_err(|e| e.to_string())?)
            }
        };
        // The same device by two names shares its memory.
        let device = opened.entry(place).or_insert(device).clone();
        opened.insert(at.to_owned(), device.clone());
        Ok(device)
    }
}

fn unknown(at: &str) -> String {
    format!("unknown device '{at}'; expected cpu, gpu, soft, or a name that thalweg devices lists")
}

/// The name of the first GPU that can run resident kernels.
fn gpu() -> Result<String, String> {
    let (all, why) = devices();
    let is_fit =
        |device: &&crate::Device| device.kind == "gpu" && device.residency == Residency::Resident;
    if let Some(device) = all.iter().find(is_fit) {
        return Ok(device.place.clone());
    }
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Err(format!("no GPU here can run resident kernels{why}; thalweg devices lists what there is"))
}

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").finish_non_exhaustive()
    }
}

impl Devices for Installed {
    fn allocate(&self, at: &str, len: usize) -> Result<PacketMemory, String> {
        self.open(at)?.allocate(len).map_err(|e| e.to_string())
    }

    fn start(
        &self,
        place: &DevicePlace,
        work: DeviceWork,
        pool: &Arc<Pool>,
    ) -> Result<Box<dyn DeviceLine>, String> {
        let device = self.open(&place.at)?;
        let DeviceWork { function, table } = work;
        let partition = Partition { function, table, work_groups: place.work_groups };
        let options = Options { patience: place.patience, ..Options::default() };
        let started = Accelerator::start(&*device, vec![partition], options, pool.clone());
        let mut accelerator = started.map_err(|e| e.to_string())?;
        let mut syncers = accelerator.syncers(1).map_err(|e| e.to_string())?;
        let syncer = syncers.pop();
        Ok(Box::new(Line { syncer, name: device.name(), _accelerator: accelerator }))
    }
}

/// An NF's share of a device.
struct Line {
    /// `None` once the device has failed.
    syncer: Option<Syncer<usize>>,
    name: String,
    /// Stopped when it is dropped: after the syncer has its packets back.
    _accelerator: Accelerator,
}

impl DeviceLine for Line {
    fn run(
        &mut self,
        batch: &mut Batch,
        jobs: &[DeviceJob],
        results: &mut Vec<DeviceResult>,
    ) -> Result<(), DeviceFault> {
        let Some(syncer) = &mut self.syncer else {
            return Err(DeviceFault {
                what: format!("{} has failed", self.name),
                lost: Lanes::NONE,
            });
        };
        let Err(fault) = carry(syncer, batch, jobs, results) else { return Ok(()) };
        let what = format!("{}: {fault}", self.name);
        let mut lost = Lanes::NONE;
        if let Some(syncer) = self.syncer.take() {
            syncer.abandon(|lane, frame| match frame {
                Some(frame) => batch.restore(lane, frame),
                None => lost.insert(lane),
            });
        }
        Err(DeviceFault { what, lost })
    }
}

/// Carries packets to the device and back.
fn carry(
    syncer: &mut Syncer<usize>,
    batch: &mut Batch,
    jobs: &[DeviceJob],
    results: &mut Vec<DeviceResult>,
) -> Result<(), Fault> {
    let mut jobs = jobs.iter();
    let mut refused = None;
    let mut waits = 0u32;
    loop {
        while let Some(job) = refused.take().or_else(|| jobs.find_map(|job| lend(batch, job))) {
            if let Err(job) = syncer.submit(0, job) {
                refused = Some(job);
                break;
            }
        }
        let back = syncer.poll(|done| {
            batch.restore(done.tag, done.frame);
            results.push((done.tag, Some(done.result)));
        });
        match back {
            Ok(0) if syncer.under_way() == 0 && refused.is_none() => return Ok(()),
            Ok(0) => {
                // Where a device's threads share cores with ours, it has to get one.
                waits += 1;
                if waits < 64 { hint::spin_loop() } else { thread::yield_now() }
            }
            Ok(_) => waits = 0,
            Err(fault) => {
                if let Some(Job { frame, tag, .. }) = refused {
                    batch.restore(tag, frame);
                }
                return Err(fault);
            }
        }
    }
}

/// Takes a packet's frame for its job.
fn lend(batch: &mut Batch, job: &DeviceJob) -> Option<Job<usize>> {
    let (frame, packet) = batch.lend(job.lane)?;
    let start = (packet.start + job.start).min(packet.end);
    let bytes = start..(start + job.len).min(packet.end);
    Some(Job { frame, bytes, argument: job.argument, tag: job.lane })
}
