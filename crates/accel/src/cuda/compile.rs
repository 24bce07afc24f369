//! NVRTC: the compiler of kernels, as a library.
//!
//! `unsafe` here: a library is loaded.
#![allow(unsafe_code)]

use std::error::Error;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::is_culib_present;
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};
use libloading::Library;
use thalweg_nf::device::DeviceFunction;

use super::source;
use crate::error::AccelError;
use crate::region::Shape;

/// Names the library, if it is not where the system looks for it.
const PATH: &str = "NVRTC_DYLIB_PATH";

/// Loads the library that `NVRTC_DYLIB_PATH` names, for good; returns why not if it is set and wrong.
///
/// Another search for a library of its name finds the one that is loaded.
fn load_named() -> Option<String> {
    static LOADED: OnceLock<Result<Option<Library>, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let Some(path) = std::env::var_os(PATH) else { return Ok(None) };
        // SAFETY: the user names a library, whose initialisation runs, as with every library.
        let library = unsafe { Library::new(&path) };
        library.map(Some).map_err(|e| {
            let cause = e.source().map_or_else(String::new, |cause| format!(": {cause}"));
            format!("{PATH}: {e}{cause}")
        })
    });
    loaded.as_ref().err().cloned()
}

/// Checks that the compiler is there.
///
/// # Errors
/// How to get it.
pub(super) fn check() -> Result<(), AccelError> {
    if let Some(why) = load_named() {
        return Err(AccelError::Missing(why));
    }
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
