//! NVRTC: the compiler of kernels, as a library.
//!
//! `unsafe` here: a library is loaded.
#![allow(unsafe_code)]

use cudarc::nvrtc::sys::is_culib_present;
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};
use thalweg_nf::device::DeviceFunction;

use super::source;
use crate::error::AccelError;
use crate::library::Named;
use crate::region::Shape;

/// Names the library, if it is not where the system looks for it.
const PATH: &str = "NVRTC_DYLIB_PATH";
static NAMED: Named = Named::by(PATH);

/// Checks that the compiler is there.
///
/// # Errors
/// How to get it.
pub(super) fn check() -> Result<(), AccelError> {
    NAMED.check().map_err(AccelError::Missing)?;
    // SAFETY: loading the library runs its own initialisation only.
    if unsafe { is_culib_present() } {
        return Ok(());
    }
    let remedy = format!("install NVIDIA's CUDA toolkit, or name the library by {PATH}");
    Err(AccelError::Missing(format!("libnvrtc.so is not there; {remedy}")))
}

/// Compiles the kernel that serves queues of `shape` with these functions to PTX, for devices of this
/// compute capability and later ones. It needs no device.
///
/// # Errors
/// When the compiler is missing, or does not compile the text: with its log.
pub fn compile(
    shape: Shape,
    functions: &[DeviceFunction],
    capability: (i32, i32),
) -> Result<String, AccelError> {
    to_ptx(shape, functions, capability).map(|ptx| ptx.to_src())
}

pub(super) fn to_ptx(
    shape: Shape,
    functions: &[DeviceFunction],
    (major, minor): (i32, i32),
) -> Result<Ptx, AccelError> {
    check()?;
    let options = [
        format!("--gpu-architecture=compute_{major}{minor}"),
        "--device-as-default-execution-space".into(),
    ];
    let options = CompileOptions {
        name: Some("resident.cu".into()),
        options: options.into(),
        ..CompileOptions::default()
    };
    compile_ptx_with_opts(source::of(shape, functions), options).map_err(|e| {
        let log = match e {
            CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
            other => other.to_string(),
        };
        AccelError::Compile { device: format!("compute capability {major}.{minor}"), log }
    })
}
