//! Starts what devices do for the NFs of a chain: all NFs on one device at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_chain::{Next, NfIndex, NfPlan, Plan, Routing, Stage};
use thalweg_nf::device::{DeviceRoom, DeviceShare, Named};
use thalweg_packet::PacketType;

use super::Device;
use crate::course::stations;

/// What does a part of an NF's work after a reload.
pub(crate) enum NextDevice {
    /// The device that did it before, if one did.
    Same,
    /// This one, or none.
    Other(Option<Arc<Device>>),
}

/// For each NF, whether it begins with further packets while a device has some: it allows that, is alone
/// in its station, on no thread of its own, and gets no packet back from itself.
pub(crate) fn overlapping(plan: &Plan) -> Vec<bool> {
    let mut overlapping = vec![false; plan.nfs.len()];
    for nfs in stations(&plan.routing) {
        let [nf] = nfs[..] else { continue };
        let NfPlan { pinned, device, blueprint, .. } = &plan.nfs[usize::from(nf.0)];
        overlapping[usize::from(nf.0)] = device.is_some()
            && !pinned
            && blueprint.overlaps_on_device()
            && !returns(&plan.routing, nf);
    }
    overlapping
}

/// Whether packets of a type go from an NF to itself.
fn returns(routing: &Routing, nf: NfIndex) -> bool {
    let next =
        |packet_type: usize| routing.routes.next(PacketType(packet_type as u16), Stage::Behind(nf));
    (0..routing.types).any(|packet_type| matches!(next(packet_type), Next::Nf(to) if to == nf))
}

/// The NFs on each device, by their numbers.
fn by_device(plan: &Plan) -> BTreeMap<&str, Vec<usize>> {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, nf) in plan.nfs.iter().enumerate() {
        if let Some(device) = &nf.device {
            places.entry(&device.place.at).or_default().push(number);
        }
    }
    places
}

/// By NF, the lines that lead to its device: one for each worker if it has as many work-groups. An NF
/// that waits for its packets uses one.
fn lines(plan: &Plan, workers: usize) -> Vec<usize> {
    let lines = |(nf, overlaps): (&NfPlan, bool)| match &nf.device {
        Some(device) if overlaps => workers.min(device.place.work_groups),
        _ => 1,
    };
    plan.nfs.iter().zip(overlapping(plan)).map(lines).collect()
}

/// Starts what devices do for the NFs of `plan`, in a run with `workers` workers; returns it by NF.
///
/// # Errors
/// In words, with the names of the NFs.
pub(crate) fn start(plan: &Plan, workers: usize) -> Result<Vec<Option<Arc<Device>>>, String> {
    let mut devices = vec![None; plan.nfs.len()];
    let lines = lines(plan, workers);
    for (at, nfs) in by_device(plan) {
        for (nf, device) in start_at(plan, at, &nfs, &lines)? {
            devices[nf] = Some(device);
        }
    }
    Ok(devices)
}

/// What does parts of the work of NFs after a reload.
pub(crate) struct Renewed {
    /// By NF.
    pub(crate) next: Vec<NextDevice>,
    /// Why devices that have failed could not be started again: their NFs stay on the processor.
    pub(crate) refused: Vec<String>,
}

/// As [`start`], for a plan that follows `running`; `kept` are the running NFs that go on with what they
/// were made of, by the number of the new ones. If nothing changes for any NF on a device, and it has not
/// `failed` any of them, it stays; otherwise all NFs on it get a new kernel beside the old one. In a dry
/// run, nothing is started.
///
/// # Errors
/// As [`start`]; also if a device has no room for both kernels. A device that is only started because it
/// has failed is no error if it fails again.
pub(crate) fn renew(
    running: &Plan,
    plan: &Plan,
    workers: usize,
    kept: &[Option<NfIndex>],
    dry_run: bool,
    failed: &[String],
) -> Result<Renewed, String> {
    let (before, lines_before, lines) =
        (by_device(running), lines(running, workers), lines(plan, workers));
    let is_same = |nf: usize| {
        kept[nf].map(|was| usize::from(was.0)).is_some_and(|was| {
            running.nfs[was].device == plan.nfs[nf].device && lines_before[was] == lines[nf]
        })
    };
    let mut next: Vec<_> = plan.nfs.iter().map(|_| NextDevice::Other(None)).collect();
    let mut refused = Vec::new();
    for (at, nfs) in by_device(plan) {
        let had = before.get(at).map_or(0, Vec::len);
        let is_same = had == nfs.len() && nfs.iter().all(|nf| is_same(*nf));
        let has_failed = nfs.iter().any(|nf| failed.contains(&plan.nfs[*nf].name));
        if is_same && !has_failed {
            nfs.into_iter().for_each(|nf| next[nf] = NextDevice::Same);
            continue;
        }
        let start = || if dry_run { Ok(Vec::new()) } else { start_at(plan, at, &nfs, &lines) };
        match check_room(plan, at, &nfs).and_then(|()| start()) {
            Ok(started) => {
                let started = started.into_iter();
                started.for_each(|(nf, device)| next[nf] = NextDevice::Other(Some(device)));
            }
            Err(why) if !is_same => return Err(why),
            Err(why) => {
                refused.push(why);
                nfs.into_iter().for_each(|nf| next[nf] = NextDevice::Same);
            }
        }
    }
    Ok(Renewed { next, refused })
}

/// Checks that a device has room for a kernel of these NFs beside those that run.
fn check_room(plan: &Plan, at: &str, nfs: &[usize]) -> Result<(), String> {
    let Some(devices) = &plan.kinds.devices else { return Ok(()) };
    let device = Named { at, launches: plan.launches };
    let facts = devices.find(device).map_err(|e| at_device(plan, at, nfs, &e.to_string()))?;
    let groups = |nf: &usize| plan.nfs[*nf].device.as_ref().map_or(0, |on| on.place.work_groups);
    let needed = nfs.iter().map(groups).sum::<usize>();
    match facts.room.filter(|room| needed > room.free) {
        Some(DeviceRoom { all, free, remedy }) => {
            let why = format!(
                "a reload needs {needed} resident work-groups in addition to those that run until it is done; \
                 of {all}, {free} are free; {remedy}"
            );
            Err(at_device(plan, at, nfs, &why))
        }
        None => Ok(()),
    }
}

/// What went wrong with these NFs on a device.
fn at_device(plan: &Plan, at: &str, nfs: &[usize], why: &str) -> String {
    let names: Vec<_> = nfs.iter().map(|nf| format!("'{}'", plan.nfs[*nf].name)).collect();
    let noun = if names.len() == 1 { "NF" } else { "NFs" };
    format!("{noun} {} at '{at}': {why}", names.join(", "))
}

/// Starts what one device does for these NFs.
fn start_at(
    plan: &Plan,
    at: &str,
    nfs: &[usize],
    lines: &[usize],
) -> Result<Vec<(usize, Arc<Device>)>, String> {
    let failed = |why: String| at_device(plan, at, nfs, &why);
    let devices = plan.kinds.devices.as_ref();
    let devices = devices.ok_or_else(|| failed("this program has no devices".into()))?;
    let (mut shares, mut falls_back) = (Vec::new(), Vec::new());
    for nf in nfs {
        let NfPlan { device, blueprint, name, .. } = &plan.nfs[*nf];
        let (Some(device), Some(work)) = (device, blueprint.device_work()) else {
            return Err(failed(format!("a device can do nothing for NF '{name}'")));
        };
        shares.push(DeviceShare { place: device.place.clone(), work, lines: lines[*nf] });
        falls_back.push(device.falls_back);
    }
    let started =
        devices.start(Named { at, launches: plan.launches }, shares, &plan.pool).map_err(failed)?;
    let device = |((nf, lines), falls_back): ((&usize, _), bool)| {
        (*nf, Arc::new(Device::new(lines, falls_back)))
    };
    Ok(nfs.iter().zip(started).zip(falls_back).map(device).collect())
}
