//! An NF whose work a device does in part.

use std::fmt;

use thalweg_chain::{NfIndex, OnDevice, Plan};
use thalweg_nf::device::{DeviceFault, DeviceJob, DeviceLine, DeviceResult};
use thalweg_nf::{Context, NetworkFunction};
use thalweg_packet::{Batch, Lanes};

/// The way of an NF's packets to its device.
pub(crate) struct Device {
    line: Box<dyn DeviceLine>,
    /// Whether the NF goes on without it when it has failed.
    falls_back: bool,
    jobs: Vec<DeviceJob>,
    results: Vec<DeviceResult>,
    /// What it did when it failed, until that is reported.
    fault: Option<DeviceFault>,
    has_failed: bool,
}

/// What does a part of an NF's work after a reload.
pub(crate) enum NextDevice {
    /// The device that did it before, if one did.
    Same,
    /// This one, or none.
    Other(Option<Device>),
}

impl Device {
    /// Starts what the device of an NF does for it; `None` for an NF without one.
    ///
    /// # Errors
    /// In words, with the NF's name.
    pub(crate) fn start(plan: &Plan, nf: NfIndex) -> Result<Option<Self>, String> {
        let nf = &plan.nfs[usize::from(nf.0)];
        let Some(OnDevice { place, falls_back }) = &nf.device else { return Ok(None) };
        let failed = |why: String| format!("NF '{}' at '{}': {why}", nf.name, place.at);
        let devices = plan.kinds.devices.as_ref();
        let devices = devices.ok_or_else(|| failed("this program has no devices".into()))?;
        let work = nf.blueprint.device_work();
        let work = work.ok_or_else(|| failed("a device can do nothing for it".into()))?;
        let line = devices.start(place, work, &plan.pool).map_err(failed)?;
        let (jobs, results) = (Vec::new(), Vec::new());
        let (fault, has_failed, falls_back) = (None, false, *falls_back);
        Ok(Some(Self { line, falls_back, jobs, results, fault, has_failed }))
    }

    /// Lets an NF process packets, and the device do its part.
    pub(crate) fn process(
        &mut self,
        function: &mut dyn NetworkFunction,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let nf = if self.has_failed && self.falls_back { None } else { function.on_device() };
        let Some(nf) = nf else { return function.process(batch, lanes, context) };
        self.jobs.clear();
        self.results.clear();
        nf.begin(batch, lanes, context, &mut self.jobs);
        if self.jobs.is_empty() {
            return;
        }
        if let Err(fault) = self.line.run(batch, &self.jobs, &mut self.results) {
            self.fail(fault, batch);
        }
        nf.finish(batch, &self.results, context);
    }

    /// Gives up the device, and the packets that it has.
    fn fail(&mut self, fault: DeviceFault, batch: &mut Batch) {
        // Their bytes are gone with their frames: in others they are empty.
        for lane in fault.lost {
            if let Some(frame) = batch.pool().take() {
                batch.restore(lane, frame);
                batch.truncate(lane, 0);
            }
        }
        let is_back = |lane: usize, results: &[DeviceResult]| results.iter().any(|r| r.0 == lane);
        for job in &self.jobs {
            if !is_back(job.lane, &self.results) {
                self.results.push((job.lane, None));
            }
        }
        if !self.has_failed {
            self.fault = Some(fault);
        }
        self.has_failed = true;
    }

    /// What ends the run, if the device has failed and the NF does not go on without it. Reports a
    /// failure once.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        let fault = self.fault.take()?;
        if self.falls_back {
            log::error!("a device has failed; the NF continues on the processor: {fault}");
            return None;
        }
        Some(fault.to_string())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("has_failed", &self.has_failed).finish_non_exhaustive()
    }
}
