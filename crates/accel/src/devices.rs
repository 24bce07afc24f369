//! The devices of this machine, for users.

use crate::error::AccelError;
use crate::opencl::{Found, find};

/// How an NF can run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Resident kernels: packets pass through shared memory while the kernel runs.
    Resident,
    /// Memory is shared while a kernel runs, but without atomics.
    LiveMemory,
    /// Batches only, each a launch of its own.
    Batches,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in a chain file: `soft`, `opencl:0`.
    pub place: String,
    /// What it calls itself.
    pub name: String,
    /// The platform it belongs to.
    pub platform: String,
    /// The version of its interface.
    pub version: String,
    /// `gpu`, `cpu` or `other`.
    pub kind: &'static str,
    /// Its compute units: at least this number of work-groups run at once.
    pub compute_units: u32,
    /// What it can do.
    pub residency: Residency,
    /// What it lacks for resident kernels.
    pub lacks: Option<String>,
}

impl Device {
    fn soft() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            place: "soft".into(),
            name: "threads of this program".into(),
            platform: "Thalweg".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            kind: "cpu",
            compute_units: cores as u32,
            residency: Residency::Resident,
            lacks: None,
        }
    }

    fn opencl(number: usize, found: Found) -> Self {
        let lacks = found.residency().err();
        let residency = match lacks {
            None => Residency::Resident,
            Some(_) if found.shares_live() => Residency::LiveMemory,
            Some(_) => Residency::Batches,
        };
        let kind = match () {
            () if found.is_gpu => "gpu",
            () if found.is_cpu => "cpu",
            () => "other",
        };
        let Found { name, platform, version, compute_units, .. } = found;
        let place = format!("opencl:{number}");
        Self { place, name, platform, version, kind, compute_units, residency, lacks }
    }
}

/// All devices, and why there are none of OpenCL if so.
pub fn devices() -> (Vec<Device>, Option<AccelError>) {
    let mut all = vec![Device::soft()];
    match find() {
        Ok(found) => {
            let numbered = found.into_iter().enumerate();
            all.extend(numbered.map(|(number, found)| Device::opencl(number, found)));
            (all, None)
        }
        Err(why) => (all, Some(why)),
    }
}
