//! What NFs leave to a device compiles for CUDA, without a device.
#![cfg(feature = "cuda")]

mod support;

use support::succeeds;
use thalweg_accel::cuda::compile;
use thalweg_accel::{AccelError, Listing, REFLECT, Shape};
use thalweg_ipsec::device::{ESP, ESP_SLICED};
use thalweg_nids::device::LITERALS;
use thalweg_router::device::HOP;
use thalweg_testkit::peer;

#[test]
fn functions_of_nfs_compile_into_one_kernel() {
    let shape = Shape { work_groups: 2, lanes: 32, rows: 64 };
    for capability in [(7, 0), (9, 0)] {
        let functions = [ESP, ESP_SLICED, LITERALS, HOP, REFLECT];
        match compile(shape, &functions, capability) {
            Err(AccelError::Missing(why)) => return peer::missing(&format!("NVRTC: {why}")),
            Err(e) => panic!("{e}"),
            Ok(ptx) => assert!(ptx.contains(".visible .entry resident("), "{ptx}"),
        }
    }
}

#[test]
fn without_a_device_the_reason_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let list = succeeds(folder.path(), &["devices"]);
    let Listing { devices, without_cuda, .. } = thalweg_accel::devices();
    assert!(devices.iter().all(|device| list.contains(&device.place)), "{list}");
    let reason = without_cuda.map(|why| format!("no CUDA devices: {why}"));
    assert!(reason.is_none_or(|reason| list.contains(&reason)), "{list}");
}
