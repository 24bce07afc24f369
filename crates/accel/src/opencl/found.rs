//! The OpenCL devices of this machine, and what each can do.

use opencl3::device::{
    CL_DEVICE_SVM_ATOMICS, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_BUFFER,
    CL_DEVICE_SVM_FINE_GRAIN_SYSTEM, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU,
    Device as ClDevice,
};
use opencl3::error_codes::ClError;
use opencl3::platform::get_platforms;
use opencl3::types::cl_device_id;
use thalweg_nf::device::{Launches, Way};

use super::handlers::kept;
use super::pocl;
use crate::devices::SharedMemory;
use crate::error::AccelError;
use crate::library::Named;

/// How a device without resident kernels runs NFs, for messages.
pub(crate) const WITH_LAUNCHES: &str =
    "with launches = \"auto\" in [memory], NFs run on it in launches";

/// How to get OpenCL, for messages.
const REMEDY: &str =
    "install the driver of your GPU, or ocl-icd-libopencl1 and pocl-opencl-icd for the processor";

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The address by which OpenCL knows it, as a number: it has no thread of its own.
    id: usize,
    pub(crate) name: String,
    pub(crate) platform: String,
    pub(crate) version: String,
    pub(crate) is_gpu: bool,
    pub(crate) is_cpu: bool,
    pub(crate) compute_units: u32,
    /// The most work-items of a work-group.
    pub(crate) work_items: usize,
    svm: u64,
}

impl Found {
    fn new(id: cl_device_id, platform: &str) -> Option<Self> {
        let device = ClDevice::new(id);
        let kind = device.dev_type().ok()?;
        Some(Self {
            id: id as usize,
            name: device.name().ok()?.trim().to_owned(),
            platform: platform.to_owned(),
            version: device.version().ok()?.trim().to_owned(),
            is_gpu: kind & CL_DEVICE_TYPE_GPU != 0,
            is_cpu: kind & CL_DEVICE_TYPE_CPU != 0,
            compute_units: device.max_compute_units().ok()?,
            work_items: device.max_work_group_size().ok()?,
            svm: device.svm_mem_capability(),
        })
    }

    pub(super) fn device(&self) -> ClDevice {
        ClDevice::new(self.id as cl_device_id)
    }

    fn has(&self, capability: u64) -> bool {
        self.svm & capability != 0
    }

    /// The memory that it reports to share.
    pub(crate) fn shared_memory(&self) -> SharedMemory {
        let by_capability = [
            (CL_DEVICE_SVM_FINE_GRAIN_SYSTEM, SharedMemory::FineSystem),
            (CL_DEVICE_SVM_FINE_GRAIN_BUFFER, SharedMemory::Fine),
            (CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, SharedMemory::Coarse),
        ];
        let best = by_capability.into_iter().find(|(capability, _)| self.has(*capability));
        best.map_or(SharedMemory::None, |(_, memory)| memory)
    }

    /// Whether accesses to the memory that it shares can be atomic.
    pub(crate) fn has_atomics(&self) -> bool {
        self.has(CL_DEVICE_SVM_ATOMICS)
    }

    /// Whether processor and device can read and write the same memory at any time.
    pub(crate) fn shares_live(&self) -> bool {
        self.has(CL_DEVICE_SVM_FINE_GRAIN_BUFFER)
    }

    /// Whether it reaches all memory of the process, at the same addresses and at any time (system SVM).
    pub(super) fn shares_all(&self) -> bool {
        // PoCL does not report what holds for threads of this process.
        self.has(CL_DEVICE_SVM_FINE_GRAIN_SYSTEM) || self.is_pocl() && self.is_cpu
    }

    /// Whether it can run resident kernels.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn residency(&self) -> Result<(), String> {
        if self.shares_live() && self.has_atomics() {
            Ok(())
        } else if self.shares_live() {
            Err("its shared memory has no atomics, so neither side sees the other's steps".into())
        } else if self.has(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) {
            Err("it shares memory only between kernels, not while one runs".into())
        } else {
            Err("it shares no memory with the processor (OpenCL 2.0's SVM)".into())
        }
    }

    /// How packets reach it.
    ///
    /// # Errors
    /// Why not in this way, with what would be one.
    pub(crate) fn way(&self, launches: Launches) -> Result<Way, String> {
        match (launches, self.residency()) {
            (Launches::Never | Launches::Auto, Ok(())) => Ok(Way::Resident),
            (Launches::Never, Err(why)) => {
                Err(format!("cannot run resident kernels: {why}; {WITH_LAUNCHES}"))
            }
            (Launches::Auto | Launches::Shared, _) if self.shares_live() => Ok(Way::Shared),
            (Launches::Shared, _) => {
                let why = "shares no memory that both sides may use at any time";
                Err(format!("{why}; launches = \"copied\" in [memory] copies packets"))
            }
            (Launches::Auto | Launches::Copied, _) => Ok(Way::Copied),
        }
    }

    /// Whether it has work-groups of this number of work-items.
    ///
    /// # Errors
    /// How many they have.
    pub(super) fn check_lanes(&self, lanes: usize) -> Result<(), AccelError> {
        if lanes <= self.work_items {
            return Ok(());
        }
        let why = format!("has work-groups of {} work-items at most", self.work_items);
        Err(AccelError::Unfit { device: self.name.clone(), why })
    }

    /// PoCL runs the work-groups in threads of this process.
    pub(super) fn is_pocl(&self) -> bool {
        self.platform == pocl::PLATFORM
    }
}

/// All devices, platform by platform.
///
/// # Errors
/// Why there is none: no library, no driver, or a driver without a device.
pub(crate) fn find() -> Result<Vec<Found>, AccelError> {
    kept(search)
}

/// What is loaded for `cl3`, which looks there, too, but takes the library of the system if there is none.
static NAMED: Named = Named::by("OPENCL_DYLIB_PATH");

fn search() -> Result<Vec<Found>, AccelError> {
    let missing = |what: String| AccelError::Missing(format!("{what}; {REMEDY}"));
    NAMED.check().map_err(missing)?;
    // The library's own numbers: -2000 if it cannot be loaded, -1001 if it knows no driver.
    let platforms = get_platforms().map_err(|ClError(number)| match number {
        -2000 => missing("libOpenCL.so.1 is not there".into()),
        -1001 => missing("OpenCL has no driver".into()),
        _ => missing(format!("OpenCL lists no platforms: {}", ClError(number))),
    })?;
    let (mut all, mut idle_pocl) = (Vec::new(), false);
    for platform in platforms {
        let name = platform.name().unwrap_or_default().trim().to_owned();
        // A platform without devices is an error, too.
        let devices = platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default();
        idle_pocl |= devices.is_empty() && name == pocl::PLATFORM;
        all.extend(devices.into_iter().filter_map(|id| Found::new(id, &name)));
    }
    if all.is_empty() && idle_pocl {
        return Err(AccelError::Missing(pocl::without_device()));
    }
    if all.is_empty() {
        return Err(missing("OpenCL has no device".into()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use opencl3::device::CL_DEVICE_SVM_ATOMICS as ATOMICS;

    use super::*;

    const COARSE: u64 = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    const FINE: u64 = COARSE | CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
    const SYSTEM: u64 = FINE | CL_DEVICE_SVM_FINE_GRAIN_SYSTEM;

    /// A device of a vendor with these capabilities.
    fn found(svm: u64) -> Found {
        Found {
            id: 0,
            name: "a device".into(),
            platform: "a vendor".into(),
            version: "OpenCL 3.0".into(),
            is_gpu: true,
            is_cpu: false,
            compute_units: 4,
            work_items: 256,
            svm,
        }
    }

    #[test]
    fn a_device_is_used_in_the_best_way_that_it_has_and_the_chain_allows() {
        use Launches::{Auto, Copied, Never, Shared};
        for (svm, launches, way) in [
            (FINE | ATOMICS, Never, Some(Way::Resident)),
            (FINE | ATOMICS, Auto, Some(Way::Resident)),
            (FINE | ATOMICS, Shared, Some(Way::Shared)),
            (FINE | ATOMICS, Copied, Some(Way::Copied)),
            (FINE, Never, None),
            (FINE, Auto, Some(Way::Shared)),
            (FINE, Shared, Some(Way::Shared)),
            (FINE, Copied, Some(Way::Copied)),
            (COARSE, Never, None),
            (COARSE, Auto, Some(Way::Copied)),
            (COARSE, Shared, None),
            (0, Never, None),
            (0, Auto, Some(Way::Copied)),
            (0, Shared, None),
            (0, Copied, Some(Way::Copied)),
        ] {
            assert_eq!(found(svm).way(launches).ok(), way, "{svm:#x}, {launches:?}");
        }
        for svm in [0, COARSE, FINE] {
            let why = found(svm).way(Never).unwrap_err();
            assert!(why.contains("launches = \"auto\" in [memory]"), "{why}");
        }
    }

    #[test]
    fn what_a_device_shares_decides_what_it_can_run() {
        let none = "it shares no memory with the processor (OpenCL 2.0's SVM)";
        let coarse = "it shares memory only between kernels, not while one runs";
        let no_atomics = "its shared memory has no atomics, so neither side sees the other's steps";
        for (svm, memory, lacks) in [
            (0, SharedMemory::None, Some(none)),
            (ATOMICS, SharedMemory::None, Some(none)),
            (COARSE, SharedMemory::Coarse, Some(coarse)),
            (COARSE | ATOMICS, SharedMemory::Coarse, Some(coarse)),
            (FINE, SharedMemory::Fine, Some(no_atomics)),
            (FINE | ATOMICS, SharedMemory::Fine, None),
            (SYSTEM, SharedMemory::FineSystem, Some(no_atomics)),
            (SYSTEM | ATOMICS, SharedMemory::FineSystem, None),
        ] {
            let found = found(svm);
            assert_eq!(found.residency().err().as_deref(), lacks, "{svm:#x}");
            assert_eq!(found.shared_memory(), memory, "{svm:#x}");
            assert_eq!(found.has_atomics(), svm & ATOMICS != 0, "{svm:#x}");
            assert_eq!(found.shares_live(), svm & FINE == FINE, "{svm:#x}");
            assert_eq!(found.shares_all(), svm & SYSTEM == SYSTEM, "{svm:#x}");
        }
    }

    #[test]
    fn pocl_shares_all_memory_of_the_process_on_processors_alone() {
        let pocl = Found { platform: pocl::PLATFORM.into(), ..found(0) };
        assert!(!pocl.shares_all());
        assert!(Found { is_cpu: true, ..pocl }.shares_all());
    }
}
