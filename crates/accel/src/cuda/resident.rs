//! A kernel that stays resident on a CUDA device.
//!
//! `unsafe` here: a kernel is given addresses, and works on them until it ends.
#![allow(unsafe_code)]

use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{cuStreamQuery, cudaError_enum};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};

use super::{Found, compile, failed, memory};
use crate::backend::{Launch, Resident};
use crate::error::AccelError;

/// A running kernel, and all that it uses; `None` once it has ended, or was given up.
struct Running {
    in_use: Option<InUse>,
    /// Whether it has not ended within its time.
    is_given_up: bool,
}

/// What must stay as long as the kernel runs.
struct InUse {
    launch: Launch,
    stream: Arc<CudaStream>,
    _kernel: CudaFunction,
}

/// Compiles and starts the kernel of `launch`, whose packets are in memory that the device maps.
pub(super) fn start(
    found: &Found,
    context: &Arc<CudaContext>,
    launch: Launch,
) -> Result<Box<dyn Resident>, AccelError> {
    let shape = launch.region.shape();
    let ptx = compile::to_ptx(shape, &launch.functions, found.capability)?;
    context.bind_to_thread().map_err(failed(found, "cuCtxSetCurrent"))?;
    let module = context.load_module(ptx).map_err(failed(found, "cuModuleLoadData"))?;
    let kernel = module.load_function("resident").map_err(failed(found, "cuModuleGetFunction"))?;
    let lanes = shape.lanes as u32;
    let each = kernel
        .occupancy_max_active_blocks_per_multiprocessor(lanes, 0, None)
        .map_err(failed(found, "cuOccupancyMaxActiveBlocksPerMultiprocessor"))?;
    let runs = each as usize * found.multiprocessors as usize;
    if shape.work_groups > runs {
        let (device, needed) = (found.name.clone(), shape.work_groups);
        return Err(AccelError::Residency { device, needed, runs });
    }
    // A stream of its own: the default one waits for all others.
    let stream = context.new_stream().map_err(failed(found, "cuStreamCreate"))?;
    let address =
        |base| memory::of_device(base).map_err(failed(found, "cuMemHostGetDevicePointer"));
    let region = address(launch.region.base())?;
    let packets = address(launch.pool.memory().base())?;
    let grid = LaunchConfig {
        grid_dim: (shape.work_groups as u32, 1, 1),
        block_dim: (lanes, 1, 1),
        shared_mem_bytes: 0,
    };
    let mut builder = stream.launch_builder(&kernel);
    builder.arg(&region).arg(&packets);
    // Cooperative: the driver refuses work-groups that would not be resident together.
    // SAFETY: the kernel takes two addresses, of memory that stays allocated in `InUse` until it has ended.
    unsafe { builder.launch_cooperative(grid) }
        .map_err(failed(found, "cuLaunchCooperativeKernel"))?;
    let in_use = Some(InUse { launch, stream, _kernel: kernel });
    Ok(Box::new(Running { in_use, is_given_up: false }))
}

impl InUse {
    /// Whether the kernel has ended, well or not.
    fn has_ended(&self) -> bool {
        // SAFETY: the stream is alive.
        let outcome = unsafe { cuStreamQuery(self.stream.cu_stream()) };
        outcome != cudaError_enum::CUDA_ERROR_NOT_READY
    }
}

impl Resident for Running {
    fn stop(&mut self, within: Duration) -> bool {
        let Some(in_use) = &self.in_use else { return !self.is_given_up };
        in_use.launch.region.end();
        let until = Instant::now() + within;
        while !in_use.has_ended() && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
        if !in_use.has_ended() {
            // Not freed: the kernel may still read and write it.
            mem::forget(self.in_use.take());
            self.is_given_up = true;
            return false;
        }
        self.in_use = None;
        true
    }

    fn failure(&self) -> Option<String> {
        // SAFETY: the stream is alive.
        let outcome = unsafe { cuStreamQuery(self.in_use.as_ref()?.stream.cu_stream()) };
        let is_error =
            !matches!(outcome, cudaError_enum::CUDA_SUCCESS | cudaError_enum::CUDA_ERROR_NOT_READY);
        is_error.then(|| DriverError(outcome).to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.in_use.is_some() {
            self.stop(Duration::from_secs(5));
        }
    }
}
