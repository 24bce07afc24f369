//! The devices of this machine, for users.

use thalweg_nf::device::Launches;

use crate::backend::Backend;
use crate::error::AccelError;
use crate::names::Name;
use crate::opencl::{Found, find};

/// The device that is threads, in chain files.
const SOFT: &str = "soft";

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

/// The memory that a device shares with the processor, by OpenCL's words for it (SVM, OpenCL 3.0 §3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMemory {
    /// None.
    None,
    /// Coarse-grained: shared between kernels, not while one runs.
    Coarse,
    /// Fine-grained: what the driver has allocated is shared at any time.
    Fine,
    /// Fine-grained system memory: all memory of the process is shared at any time.
    FineSystem,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in a chain file: `soft`, `opencl:0`, `cuda:0`.
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
    /// The memory that it shares, as its driver reports.
    pub shared_memory: SharedMemory,
    /// Whether processor and device can access that memory atomically, so that one sees the other's steps in
    /// their order.
    pub atomics: bool,
    /// What it can do.
    pub residency: Residency,
    /// What it lacks for resident kernels.
    pub lacks: Option<String>,
}

impl Device {
    /// Whether NFs run on it, if a chain has these launches.
    pub fn runs(&self, launches: Launches) -> bool {
        let can_stay = self.residency == Residency::Resident;
        match launches {
            _ if self.place == SOFT => true,
            Launches::Never => can_stay,
            Launches::Auto => can_stay || self.is_opencl(),
            Launches::Shared => self.is_opencl() && self.residency != Residency::Batches,
            Launches::Copied => self.is_opencl(),
        }
    }

    fn is_opencl(&self) -> bool {
        self.place.starts_with("opencl:")
    }

    fn soft() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            place: SOFT.into(),
            name: "threads of this program".into(),
            platform: "Thalweg".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            kind: "cpu",
            compute_units: cores as u32,
            shared_memory: SharedMemory::FineSystem,
            atomics: true,
            residency: Residency::Resident,
            lacks: None,
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(number: usize, found: crate::cuda::Found) -> Self {
        let lacks = found.residency().err();
        let residency = if lacks.is_none() { Residency::Resident } else { Residency::Batches };
        let (major, minor) = found.capability;
        let atomics = found.maps_memory && found.has_system_accesses();
        Self {
            place: format!("cuda:{number}"),
            name: found.name,
            platform: "CUDA".into(),
            version: format!("compute capability {major}.{minor}"),
            kind: "gpu",
            compute_units: found.multiprocessors,
            shared_memory: if found.maps_memory { SharedMemory::Fine } else { SharedMemory::None },
            atomics,
            residency,
            lacks,
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
        let (shared_memory, atomics) = (found.shared_memory(), found.has_atomics());
        let Found { name, platform, version, compute_units, .. } = found;
        Self {
            place: format!("opencl:{number}"),
            name,
            platform,
            version,
            kind,
            compute_units,
            shared_memory,
            atomics,
            residency,
            lacks,
        }
    }
}

/// What was found on this machine.
#[derive(Debug)]
pub struct Listing {
    /// All devices: threads, then those of OpenCL, then those of CUDA.
    pub devices: Vec<Device>,
    /// Why there are none of OpenCL, if there are none.
    pub without_opencl: Option<AccelError>,
    /// Why there are none of CUDA, if there are none.
    pub without_cuda: Option<AccelError>,
}

/// Looks for devices.
pub fn devices() -> Listing {
    let mut devices = vec![Device::soft()];
    let mut add = |found: Result<Vec<Device>, AccelError>| match found {
        Ok(found) => {
            devices.extend(found);
            None
        }
        Err(why) => Some(why),
    };
    let opencl = find().map(|found| {
        let numbered = found.into_iter().enumerate();
        numbered.map(|(number, found)| Device::opencl(number, found)).collect()
    });
    let (without_opencl, without_cuda) = (add(opencl), add(cuda_devices()));
    Listing { devices, without_opencl, without_cuda }
}

/// Whether this program is built with CUDA devices (the feature `cuda`).
pub const HAS_CUDA: bool = cfg!(feature = "cuda");

#[cfg(feature = "cuda")]
fn cuda_devices() -> Result<Vec<Device>, AccelError> {
    let numbered = crate::cuda::find()?.into_iter().enumerate();
    Ok(numbered.map(|(number, found)| Device::cuda(number, found)).collect())
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Result<Vec<Device>, AccelError> {
    Err(AccelError::Missing(WITHOUT_CUDA.into()))
}

/// Why there are no devices of CUDA in a build without them.
#[cfg(not(feature = "cuda"))]
const WITHOUT_CUDA: &str = "this program is built without the feature 'cuda'; \
    build it by make on x86-64, or by cargo with --features cuda";

/// Opens a CUDA device by its name, `cuda:0`; `None` for another name.
///
/// # Errors
/// When the device, its driver or its compiler is missing, or it lacks what resident kernels need.
pub fn open_cuda(place: &str) -> Option<Result<Box<dyn Backend>, AccelError>> {
    match Name::parse(place) {
        Ok(Name::Cuda(number)) => Some(open_cuda_device(number)),
        _ => None,
    }
}

#[cfg(feature = "cuda")]
fn open_cuda_device(number: usize) -> Result<Box<dyn Backend>, AccelError> {
    Ok(Box::new(crate::cuda::Cuda::open(number)?))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda_device(_: usize) -> Result<Box<dyn Backend>, AccelError> {
    Err(AccelError::Missing(WITHOUT_CUDA.into()))
}
