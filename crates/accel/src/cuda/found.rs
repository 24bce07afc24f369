//! The CUDA devices of this machine, and what each can do.
//!
//! `unsafe` here: calls of the driver.
#![allow(unsafe_code)]

use cudarc::driver::sys::{CUdevice_attribute as Attribute, is_culib_present};
use cudarc::driver::{DriverError, result};

use crate::error::AccelError;

/// The compute capability from which on devices have acquiring and releasing accesses that the processor
/// sees, and `__nanosleep`.
const LEAST: (i32, i32) = (7, 0);

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// Its compute capability.
    pub(crate) capability: (i32, i32),
    /// Its multiprocessors.
    pub(crate) multiprocessors: u32,
    /// Whether it reaches memory of the processor.
    pub(crate) maps_memory: bool,
    launches_together: bool,
}

impl Found {
    fn new(number: i32) -> Result<Self, DriverError> {
        let device = result::device::get(number)?;
        let name = result::device::get_name(device)?;
        let has = |attribute| {
            // SAFETY: the device is one of the driver's.
            unsafe { result::device::get_attribute(device, attribute) }
        };
        let major = has(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = has(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = has(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let maps_memory = has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)? != 0;
        let launches_together = has(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0;
        let multiprocessors = u32::try_from(multiprocessors).unwrap_or_default();
        let capability = (major, minor);
        Ok(Self { name, capability, multiprocessors, maps_memory, launches_together })
    }

    /// Whether its accesses to memory of the processor acquire and release for the whole system.
    pub(crate) fn has_system_accesses(&self) -> bool {
        self.capability >= LEAST
    }

    /// Whether it can run resident kernels.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn residency(&self) -> Result<(), String> {
        let (major, minor) = self.capability;
        if !self.maps_memory {
            Err("it maps no memory of the processor".into())
        } else if !self.has_system_accesses() {
            Err(format!("its compute capability is {major}.{minor}, and 7.0 is needed"))
        } else if !self.launches_together {
            Err("it has no cooperative launch".into())
        } else {
            Ok(())
        }
    }
}

/// All devices.
///
/// # Errors
/// Why there is none: no driver, or a driver without a device.
pub(crate) fn find() -> Result<Vec<Found>, AccelError> {
    let missing =
        |what: &str| AccelError::Missing(format!("{what}; install the driver of your NVIDIA GPU"));
    // SAFETY: loading the driver runs its own initialisation only.
    let is_there = unsafe { is_culib_present() };
    if !is_there {
        // Without the library, all other calls panic.
        return Err(missing("libcuda.so.1 is not there"));
    }
    let list = || {
        result::init()?;
        (0..result::device::get_count()?).map(Found::new).collect::<Result<Vec<_>, _>>()
    };
    match list() {
        Ok(all) if all.is_empty() => Err(missing("CUDA has no device")),
        Ok(all) => Ok(all),
        Err(e) => Err(missing(&format!("CUDA lists no devices: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_lacks_is_named() {
        let fit = Found {
            name: "a device".into(),
            capability: (9, 0),
            multiprocessors: 132,
            maps_memory: true,
            launches_together: true,
        };
        assert_eq!(fit.residency(), Ok(()));
        let old = Found { capability: (6, 1), ..fit.clone() };
        assert_eq!(
            old.residency().unwrap_err(),
            "its compute capability is 6.1, and 7.0 is needed"
        );
        let alone = Found { launches_together: false, ..fit.clone() };
        assert_eq!(alone.residency().unwrap_err(), "it has no cooperative launch");
        let apart = Found { maps_memory: false, ..fit };
        assert_eq!(apart.residency().unwrap_err(), "it maps no memory of the processor");
    }
}
