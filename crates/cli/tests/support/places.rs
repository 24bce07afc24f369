//! The places where NFs of the tests run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_accel::{Residency, devices};
use thalweg_testkit::peer;

/// Keeps tests apart: kernels of several would wait for each other's to end.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The places of NFs: the processor, threads, and the first OpenCL device with resident kernels. Without
/// one, tests go on with the others, and print so, or fail where every peer is required.
pub fn places() -> (Vec<String>, MutexGuard<'static, ()>) {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut places = vec!["cpu".to_owned(), "soft".to_owned()];
    let (found, why) = devices();
    let mut found = found.into_iter().filter(|device| device.place != "soft");
    if let Some(device) = found.find(|device| device.residency == Residency::Resident) {
        places.push(device.place);
    } else {
        let why = why.map(|why| why.to_string());
        peer::missing(why.as_deref().unwrap_or("OpenCL device with SVM atomics"));
    }
    (places, turn)
}
