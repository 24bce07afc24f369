//! Sensors of NVIDIA's GPUs: their driver's library (NVML), loaded at run time.

use std::ffi::OsStr;
use std::io;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::Reading;

/// The library as drivers install it; the name without a version is of development packages.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";

/// The library, once it has found a driver.
pub(super) struct Nvidia(Nvml);

impl Nvidia {
    /// Loads the library; `None` without it, or if it finds no driver.
    pub(super) fn load(library: &str) -> Option<Self> {
        Nvml::builder().lib_path(OsStr::new(library)).init().ok().map(Self)
    }

    /// The GPUs that have a sensor, each by its number, its name, and what the sensor gives: a counter,
    /// as GPUs since Volta have, or else a meter.
    ///
    /// # Errors
    /// When a GPU cannot be read.
    pub(super) fn sensors(&self) -> Result<Vec<(u32, String, Reading)>, NvmlError> {
        let mut found = Vec::new();
        for gpu in 0..self.0.device_count()? {
            let device = self.0.device_by_index(gpu)?;
            let reading = if supported(device.total_energy_consumption())? {
                Reading::Counter { most: u64::MAX }
            } else if supported(device.power_usage().map(u64::from))? {
                Reading::Power
            } else {
                continue;
            };
            found.push((gpu, device.name()?, reading));
        }
        Ok(found)
    }

    /// Microjoules so far, or microwatts now: what the sensor of a GPU gives.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self, gpu: u32, reading: Reading) -> io::Result<u64> {
        let device = self.0.device_by_index(gpu).map_err(io::Error::other)?;
        let thousandths = match reading {
            Reading::Counter { .. } => device.total_energy_consumption(),
            Reading::Power => device.power_usage().map(u64::from),
        };
        Ok(thousandths.map_err(io::Error::other)?.saturating_mul(1_000))
    }
}

/// Whether a GPU has what was read.
fn supported(outcome: Result<u64, NvmlError>) -> Result<bool, NvmlError> {
    match outcome {
        Ok(_) => Ok(true),
        Err(NvmlError::NotSupported) => Ok(false),
        Err(e) => Err(e),
    }
}
