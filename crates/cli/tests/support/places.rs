//! The places where NFs of the tests run.
#![allow(dead_code)] // each test file uses a part

use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_accel::{Device, Listing, Residency, devices};
use thalweg_testkit::peer;

/// Keeps tests apart: kernels of several would wait for each other's to end.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The places of NFs: the processor, threads, and all other devices with resident kernels. Without one, tests
/// go on with the others, and print so, or fail where every peer is required.
pub fn places() -> (Vec<String>, MutexGuard<'static, ()>) {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut places = vec!["cpu".to_owned(), "soft".to_owned()];
    let Listing { devices: found, without_opencl: why, .. } = devices();
    let resident = |device: &Device| device.residency == Residency::Resident;
    let found = found.into_iter().filter(|device| device.place != "soft" && resident(device));
    places.extend(found.map(|device| device.place));
    if places.len() == 2 {
        let why = why.map(|why| why.to_string());
        peer::missing(why.as_deref().unwrap_or("OpenCL device with SVM atomics"));
    }
    (places, turn)
}

/// Those of the places that are devices with memory of their own; threads without one.
pub fn devices_of(places: &[String]) -> impl Iterator<Item = &str> {
    places.iter().skip(2.min(places.len() - 1)).map(String::as_str)
}
