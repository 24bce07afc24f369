//! The devices of the tests: threads, and the first OpenCL device with resident kernels, also in launches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_accel::{Backend, HAS_CUDA, Listing, OpenCl, Residency, Soft, devices, open_cuda};
use thalweg_nf::device::Launches;
use thalweg_testkit::peer;

/// Keeps tests apart: kernels of several would wait for each other's to end.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The devices of this machine that can run resident kernels, for one test at a time. Without one of OpenCL the test goes on
/// with threads, and prints so, or fails where every peer is required.
pub fn backends() -> Devices {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<Box<dyn Backend>> = vec![Box::new(Soft)];
    let Listing { devices: found, without_opencl: why, .. } = devices();
    let opencl = found.iter().filter(|device| device.place.starts_with("opencl"));
    let resident = opencl.enumerate().find(|(_, device)| device.residency == Residency::Resident);
    match resident {
        Some((number, _)) => {
            for launches in [Launches::Never, Launches::Shared, Launches::Copied] {
                all.push(Box::new(OpenCl::open(number, launches).unwrap()));
            }
        }
        None => peer::missing(
            &why.map_or("no OpenCL device with SVM atomics".into(), |w| w.to_string()),
        ),
    }
    let cuda = found
        .iter()
        .find(|device| device.place.starts_with("cuda") && device.residency == Residency::Resident);
    match cuda {
        Some(device) => all.push(open_cuda(&device.place).unwrap().unwrap()),
        // A device is no peer that every machine can have.
        None if HAS_CUDA => println!("SKIPPED: no CUDA device"),
        None => {}
    }
    Devices { all, _turn: turn }
}

/// The devices, while it is this test's turn.
pub struct Devices {
    pub all: Vec<Box<dyn Backend>>,
    _turn: MutexGuard<'static, ()>,
}
