//! A kernel that stays resident on an OpenCL device.
//!
//! `unsafe` here: a kernel is given addresses, and works on them until it ends.
#![allow(unsafe_code)]

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::Kernel;
use opencl3::program::Program;

use super::handlers::kept;
use super::{Found, failed, pocl, source};
use crate::backend::{Launch, Resident};
use crate::error::AccelError;

/// OpenCL C with the atomics of C11.
const OPTIONS: &str = "-cl-std=CL3.0";
/// The same for compilers before 3.0, which had them from the start.
const OLDER_OPTIONS: &str = "-cl-std=CL2.0";

/// A running kernel, and all that it uses.
struct Running {
    event: Event,
    in_use: Option<InUse>,
    /// The resident work-groups of the device; those of a kernel that does not end stay counted.
    resident: Arc<AtomicUsize>,
}

/// What must stay as long as the kernel runs.
struct InUse {
    launch: Launch,
    queue: CommandQueue,
    _kernel: Kernel,
    _program: Program,
    _context: Arc<Context>,
}

/// Compiles and starts the kernel of `launch`, whose packets are in memory of `context`.
pub(super) fn start(
    found: &Found,
    context: Arc<Context>,
    launch: Launch,
    resident: Arc<AtomicUsize>,
) -> Result<Box<dyn Resident>, AccelError> {
    let shape = launch.region.shape();
    found.check_lanes(shape.lanes)?;
    let text = source::of(shape, &launch.functions, pause(found));
    let options = if found.version.starts_with("OpenCL 2") { OLDER_OPTIONS } else { OPTIONS };
    let (program, kernel) = build(found, &context, &text, (options, "resident"))?;
    let queue = queue(found, &context)?;
    let arguments = [launch.region.base(), launch.pool.memory().base()];
    for (number, argument) in arguments.into_iter().enumerate() {
        let pointer = argument.as_ptr().cast_const().cast();
        // SAFETY: both regions are shared memory of this context: the caller has checked the packets',
        // and the other comes from the same allocation.
        unsafe { kernel.set_arg_svm_pointer(number as u32, pointer) }
            .map_err(failed(found, "clSetKernelArgSVMPointer"))?;
    }
    let (all, each) = ([shape.work_groups * shape.lanes], [shape.lanes]);
    let (none, all, each) = (std::ptr::null(), all.as_ptr(), each.as_ptr());
    // SAFETY: the sizes are of one dimension; the arguments stay allocated in `InUse` until the kernel
    // has ended.
    let event = unsafe { queue.enqueue_nd_range_kernel(kernel.get(), 1, none, all, each, &[]) }
        .map_err(failed(found, "clEnqueueNDRangeKernel"))?;
    queue.flush().map_err(failed(found, "clFlush"))?;
    let in_use = InUse { launch, queue, _kernel: kernel, _program: program, _context: context };
    resident.fetch_add(shape.work_groups, Ordering::AcqRel);
    Ok(Box::new(Running { event, in_use: Some(in_use), resident }))
}

/// Compiles a program with these options, and makes its kernel of this name.
pub(super) fn build(
    found: &Found,
    context: &Context,
    text: &str,
    (options, name): (&str, &str),
) -> Result<(Program, Kernel), AccelError> {
    let start = SystemTime::now();
    let program = kept(|| Program::create_and_build_from_source(context, text, options))
        .map_err(|log| AccelError::Compile { device: found.name.clone(), log })?;
    if found.is_pocl()
        && let Err(why) = pocl::check_linker(start, name)
    {
        return Err(AccelError::Unfit { device: found.name.clone(), why });
    }
    let kernel = Kernel::create(&program, name).map_err(failed(found, "clCreateKernel"))?;
    Ok((program, kernel))
}

/// A queue of commands, which are carried out in order.
fn queue(found: &Found, context: &Context) -> Result<CommandQueue, AccelError> {
    CommandQueue::create_default_with_properties(context, 0, 0)
        .map_err(failed(found, "clCreateCommandQueue"))
}

/// What a work-group does before it looks again. Where its threads share processors with ours, it lets
/// others run: without that, each look takes a time slice.
fn pause(found: &Found) -> &'static str {
    if found.is_pocl() && cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        // sched_yield.
        "__asm__ volatile(\"syscall\" : : \"a\"(24L) : \"rcx\", \"r11\", \"memory\")"
    } else {
        "(void)0"
    }
}

impl Running {
    /// Whether the kernel has ended, well or not.
    fn has_ended(&self) -> bool {
        self.event.command_execution_status().is_ok_and(|status| status.0 <= CL_COMPLETE)
    }
}

impl Resident for Running {
    fn stop(&mut self, within: Duration) -> bool {
        let Some(in_use) = &self.in_use else { return self.has_ended() };
        in_use.launch.region.end();
        let until = Instant::now() + within;
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
        if !self.has_ended() {
            // Not freed: the kernel may still read and write it.
            mem::forget(self.in_use.take());
            return false;
        }
        if let Some(in_use) = self.in_use.take() {
            let work_groups = in_use.launch.region.shape().work_groups;
            self.resident.fetch_sub(work_groups, Ordering::AcqRel);
            if let Err(e) = in_use.queue.finish() {
                log::warn!("clFinish: {e}");
            }
        }
        true
    }

    fn failure(&self) -> Option<String> {
        failure(&self.event)
    }
}

/// Why a command has ended, if it has by an error.
fn failure(event: &Event) -> Option<String> {
    let status = event.command_execution_status().ok()?.0;
    (status < CL_COMPLETE).then(|| ClError(status).to_string())
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.in_use.is_some() {
            self.stop(Duration::from_secs(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use opencl3::event::{CL_COMPLETE, create_user_event, set_user_event_status};
    use thalweg_nf::device::Launches;
    use thalweg_testkit::peer;

    use super::*;
    use crate::opencl::OpenCl;

    #[test]
    fn a_command_that_ended_by_an_error_has_the_error_of_the_driver() {
        let device = match OpenCl::open(0, Launches::Auto) {
            Ok(device) => device,
            Err(e) => return peer::missing(&e.to_string()),
        };
        let event = || Event::new(create_user_event(device.context.get()).unwrap());
        for (status, expected) in [(CL_COMPLETE, None), (-5, Some("CL_OUT_OF_RESOURCES"))] {
            let event = event();
            assert_eq!(failure(&event), None, "it has not ended");
            set_user_event_status(event.get(), status).unwrap();
            assert_eq!(failure(&event).as_deref(), expected);
        }
    }
}
