//! CUDA: kernels compile without a device; with one, it does what every device does (laws.rs).
#![cfg(feature = "cuda")]

use thalweg_accel::cuda::compile;
use thalweg_accel::{AccelError, Listing, REFLECT, Shape};
use thalweg_nf::device::DeviceFunction;
use thalweg_testkit::peer;

const SHAPE: Shape = Shape { work_groups: 4, lanes: 32, rows: 64 };

/// The PTX of a kernel with these functions; `None` without the compiler, which is printed.
fn ptx(functions: &[DeviceFunction], capability: (i32, i32)) -> Option<Result<String, String>> {
    match compile(SHAPE, functions, capability) {
        Err(AccelError::Missing(why)) => {
            peer::missing(&format!("NVRTC: {why}"));
            None
        }
        other => Some(other.map_err(|e| e.to_string())),
    }
}

#[test]
fn the_resident_kernel_compiles_with_accesses_that_the_processor_sees() {
    for capability in [(7, 0), (8, 0), (9, 0)] {
        let Some(ptx) = ptx(&[REFLECT], capability) else { return };
        let ptx = ptx.unwrap();
        assert!(ptx.contains(".visible .entry resident("), "{ptx}");
        let count = |what: &str| ptx.matches(what).count();
        // The end and `sealed`; `done`, and the state at the start and at the end. Loops may be unrolled.
        assert!(count("ld.acquire.sys") >= 2, "{ptx}");
        assert!(count("st.release.sys") >= 3, "{ptx}");
        // The queue is shared memory of the processor's: no access bypasses its coherence.
        assert_eq!(count("ld.global.nc"), 0, "{ptx}");
        assert!(count("bar.sync") >= 3, "{ptx}");
    }
}

#[test]
fn a_function_that_does_not_compile_shows_the_compilers_log() {
    let broken = DeviceFunction { source: "uint2 reflect(", ..REFLECT };
    let Some(ptx) = ptx(&[broken], (9, 0)) else { return };
    let error = ptx.unwrap_err();
    assert!(error.contains("the kernel does not compile on compute capability 9.0"), "{error}");
    assert!(error.contains("resident.cu(") && error.contains("error"), "{error}");
}

#[test]
fn a_device_is_there_or_its_absence_has_a_reason() {
    let Listing { devices, without_cuda, .. } = thalweg_accel::devices();
    let is_there = devices.iter().any(|device| device.place.starts_with("cuda:"));
    match without_cuda {
        None => assert!(is_there, "{devices:?}"),
        // No peer that every machine can have.
        Some(why) => {
            assert!(!is_there, "{devices:?}");
            let why = why.to_string();
            println!("SKIPPED: no CUDA device: {why}");
            assert!(why.contains("install the driver of your NVIDIA GPU"), "{why}");
        }
    }
}
