//! A launch: rows of slots that a kernel works on, and its end. Packets lie in memory that the device shares, or
//! are copied there and back.
//!
//! What is used of OpenCL is in version 1.2, except for shared memory, and so is the language of kernels: what runs
//! on one device is what runs on all.
//!
//! `unsafe` here: kernels are given addresses and buffers, and bytes of packets are reached by their offsets, as a
//! device does it.
#![allow(unsafe_code)]

use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING};
use thalweg_nf::device::DeviceFunction;
use thalweg_packet::Pool;

use super::{Found, OpenCl, failed, memory, resident, source};
use crate::error::AccelError;
use crate::region::Words;
use crate::relay::{Flight, Limits};
use crate::slot::{Request, SLOT, Slot};
use crate::sync::Ordering;

/// OpenCL C without what is optional in later versions.
const OPTIONS: &str = "-cl-std=CL1.2";
/// Words of a row ahead of its slots.
const HEAD: usize = 4;

/// How the packets of a launch reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// They lie in memory that it shares.
    Shared,
    /// They are copied there and back.
    Copied,
}

/// A compiled kernel for launches, and its tables.
pub(super) struct Launcher {
    found: Found,
    program: Program,
    tables: Buffer<u8>,
    /// The bytes of the tables.
    len: usize,
    queue: CommandQueue,
    limits: Limits,
    context: Arc<Context>,
}

impl Launcher {
    /// Compiles a kernel with these functions, and copies their tables to the device.
    pub(super) fn new(
        opencl: &OpenCl,
        functions: &[DeviceFunction],
        tables: &[u8],
        limits: Limits,
    ) -> Result<Arc<Self>, AccelError> {
        let (found, context) = (opencl.found.clone(), opencl.context.clone());
        found.check_lanes(limits.lanes)?;
        let text = source::of_launches(limits.lanes, functions);
        let (program, _) = resident::build(&found, &context, &text, (OPTIONS, "launch"))?;
        let queue = queue(&found, &context)?;
        let mut in_device = buffer(&found, &context, tables.len().max(4))?;
        if !tables.is_empty() {
            // SAFETY: the call returns when it has read the tables.
            unsafe { queue.enqueue_write_buffer(&mut in_device, CL_BLOCKING, 0, tables, &[]) }
                .map_err(failed(&found, "clEnqueueWriteBuffer"))?;
        }
        let len = tables.len();
        Ok(Arc::new(Self { found, program, tables: in_device, len, queue, limits, context }))
    }
}

/// Tables may have keys: what a driver frees is not zeroed for its next use.
impl Drop for Launcher {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        let zeros = vec![0; self.len];
        // No launch is under way: each has its launcher.
        // SAFETY: the call returns when it has read the zeros.
        let written = unsafe {
            self.queue.enqueue_write_buffer(&mut self.tables, CL_BLOCKING, 0, &zeros, &[])
        };
        if let Err(e) = written {
            log::warn!("{}: tables are not zeroed: clEnqueueWriteBuffer: {e}", self.found.name);
        }
    }
}

/// A queue of commands, which are carried out in order.
#[allow(deprecated, reason = "OpenCL 1.2 has no other call for it")]
fn queue(found: &Found, context: &Context) -> Result<CommandQueue, AccelError> {
    // SAFETY: the device is the one of the context.
    unsafe { CommandQueue::create(context, found.device().id(), 0) }
        .map_err(failed(found, "clCreateCommandQueue"))
}

fn buffer(found: &Found, context: &Context, len: usize) -> Result<Buffer<u8>, AccelError> {
    // SAFETY: no memory of ours is given to it.
    unsafe { Buffer::create(context, CL_MEM_READ_WRITE, len, ptr::null_mut()) }
        .map_err(failed(found, "clCreateBuffer"))
}

/// A packet in a launch to which packets are copied.
#[derive(Clone, Copy)]
struct Copied {
    /// Where it is in packet memory, and how long.
    offset: usize,
    len: usize,
    /// Where its copy is.
    at: usize,
}

/// A launch. Its memory has the rows, the results behind them, and the copies of packets behind those; first the
/// ones that come back. So there is one copy to the device, and one from it.
pub(super) struct Launched {
    launcher: Arc<Launcher>,
    pool: Arc<Pool>,
    queue: ManuallyDrop<CommandQueue>,
    kernel: ManuallyDrop<Kernel>,
    words: ManuallyDrop<Words>,
    /// The device's memory, if packets are copied.
    there: ManuallyDrop<Option<Buffer<u8>>>,
    rows: usize,
    copied: Vec<Copied>,
    /// Where copies end, and where those end that come back; in bytes.
    end: usize,
    end_of_changed: usize,
    /// The last command, once there is one.
    event: Option<Event>,
}

impl Launched {
    /// A launch of the packets of `pool`, which are in memory that the device shares, unless they are copied.
    pub(super) fn new(
        opencl: &OpenCl,
        launcher: &Arc<Launcher>,
        pool: &Arc<Pool>,
        transfer: Transfer,
    ) -> Result<Self, AccelError> {
        let (found, context) = (&launcher.found, &launcher.context);
        let Limits { lanes, rows, bytes } = launcher.limits;
        let queue = queue(found, context)?;
        let kernel =
            Kernel::create(&launcher.program, "launch").map_err(failed(found, "clCreateKernel"))?;
        let arg = failed(found, "clSetKernelArg");
        let len = rows * (row_len(lanes) + 2 * lanes);
        // SAFETY: a buffer is what the kernel expects there, and the launcher keeps it.
        unsafe { kernel.set_arg(2, &launcher.tables) }.map_err(&arg)?;
        let (words, there) = match transfer {
            Transfer::Shared => {
                let memory = memory::allocate(context, &opencl.shared, 4 * len, false)
                    .map_err(failed(found, "clSVMAlloc"))?;
                for (number, base) in [(0, memory.base()), (1, pool.memory().base())] {
                    let pointer = base.as_ptr().cast_const().cast();
                    // SAFETY: shared memory of the kernel's context: the caller's word for packets. Both stay
                    // until the launch is over.
                    unsafe { kernel.set_arg_svm_pointer(number, pointer) }.map_err(&arg)?;
                }
                (Words::new(memory, len), None)
            }
            Transfer::Copied => {
                let len = len + bytes.div_ceil(4);
                let memory = opencl.own_memory(4 * len)?;
                let there = buffer(found, context, 4 * len)?;
                for number in [0, 1] {
                    // SAFETY: a buffer is what the kernel expects there; it stays until the launch is over.
                    unsafe { kernel.set_arg(number, &there) }.map_err(&arg)?;
                }
                (Words::new(memory, len), Some(there))
            }
        };
        Ok(Self {
            launcher: launcher.clone(),
            pool: pool.clone(),
            queue: ManuallyDrop::new(queue),
            kernel: ManuallyDrop::new(kernel),
            words: ManuallyDrop::new(words),
            there: ManuallyDrop::new(there),
            rows: 0,
            copied: Vec::new(),
            end: 0,
            end_of_changed: 0,
            event: None,
        })
    }

    /// A packet and its copy.
    fn places(&self, Copied { offset, len, at }: Copied) -> (*mut u8, *mut u8) {
        let (packets, words) = (self.pool.memory(), 4 * self.words.all().len());
        let fits = |start: usize, all: usize| start.checked_add(len).is_some_and(|end| end <= all);
        assert!(fits(offset, packets.len()) && fits(at, words), "a packet outside of its memory");
        // SAFETY: inside of packet memory.
        let packet = unsafe { packets.base().as_ptr().add(offset) };
        // SAFETY: inside of the words.
        let copy = unsafe { self.words.base().as_ptr().add(at) };
        (packet, copy)
    }

    fn slot(&self, row: usize, lane: usize) -> Slot<'_> {
        let lanes = self.launcher.limits.lanes;
        assert!(row < self.rows && lane < lanes, "a launch has {} rows", self.rows);
        let words = self.words.all()[row * row_len(lanes) + HEAD + lane * SLOT..].first_chunk();
        Slot(words.expect("slots lie in the words"))
    }

    /// Copies rows and packets to the device, launches the kernel, and copies back what it changes.
    fn launch(&mut self) -> Result<(), ClError> {
        let lanes = self.launcher.limits.lanes;
        let base = self.words.base().as_ptr();
        if let Some(there) = &mut *self.there {
            // SAFETY: nothing writes as many bytes of the words until the launch is over.
            let here = unsafe { std::slice::from_raw_parts(base, self.end) };
            // SAFETY: as above; the words stay until then.
            let event =
                unsafe { self.queue.enqueue_write_buffer(there, CL_NON_BLOCKING, 0, here, &[]) };
            self.event = Some(event?);
        }
        let (all, each) = ([self.rows * lanes], [lanes]);
        let (none, all, each) = (ptr::null(), all.as_ptr(), each.as_ptr());
        let kernel = self.kernel.get();
        // SAFETY: the sizes are of one dimension; what the arguments name stays until the launch is over.
        let event = unsafe { self.queue.enqueue_nd_range_kernel(kernel, 1, none, all, each, &[]) };
        self.event = Some(event?);
        if let Some(there) = &*self.there {
            let first = 4 * self.rows * row_len(lanes);
            // SAFETY: inside of the words.
            let start = unsafe { base.add(first) };
            // SAFETY: nothing reads or writes as many bytes of the words until the launch is over.
            let here =
                unsafe { std::slice::from_raw_parts_mut(start, self.end_of_changed - first) };
            // SAFETY: as above; the words stay until then.
            let event =
                unsafe { self.queue.enqueue_read_buffer(there, CL_NON_BLOCKING, first, here, &[]) };
            self.event = Some(event?);
        }
        self.queue.flush()
    }
}

impl Flight for Launched {
    fn lay_out(&mut self, rows: usize) {
        let Limits { lanes, rows: most, .. } = self.launcher.limits;
        assert!((1..=most).contains(&rows) && self.is_over().is_some(), "1 to {most} rows");
        self.event = None;
        self.rows = rows;
        self.copied.clear();
        self.end = 4 * rows * (row_len(lanes) + 2 * lanes);
        self.end_of_changed = self.end;
    }

    fn head(&mut self, row: usize, function: usize, (table, len): (usize, usize)) {
        let at = row * row_len(self.launcher.limits.lanes);
        let values = [function, table / 4, len, 0];
        for (word, value) in self.words.all()[at..].iter().zip(values) {
            word.store(value as u32, Ordering::Relaxed);
        }
    }

    fn put(&mut self, row: usize, lane: usize, request: Option<Request>, change: bool) {
        let Some(mut request) = request else { return self.slot(row, lane).clear() };
        if self.there.is_some() {
            let (offset, len) = (request.offset as usize, request.len as usize);
            let at = self.end;
            let copied = Copied { offset, len, at };
            let (packet, copy) = self.places(copied);
            // SAFETY: both are inside of their memory, which do not overlap. No other thread has the packet, whose
            // frame a syncer owns while the row is the device's; no launch is under way.
            unsafe { copy.copy_from_nonoverlapping(packet, len) };
            self.end = at + len.next_multiple_of(4);
            if change {
                self.copied.push(copied);
                self.end_of_changed = self.end;
            }
            request.offset = at as u64;
        }
        self.slot(row, lane).write(request);
    }

    fn depart(&mut self) -> Result<(), String> {
        self.launch().map_err(|e| e.to_string())
    }

    fn is_over(&self) -> Option<Result<(), String>> {
        let Some(event) = &self.event else { return Some(Ok(())) };
        match event.command_execution_status() {
            Ok(status) if status.0 < 0 => Some(Err(ClError(status.0).to_string())),
            Ok(status) => (status.0 == CL_COMPLETE).then_some(Ok(())),
            // Unknown: nothing of it may be used again.
            Err(_) => None,
        }
    }

    fn land(&mut self) {
        assert!(self.is_over().is_some(), "a launch lands when it is over");
        for copied in &self.copied {
            let (packet, copy) = self.places(*copied);
            // SAFETY: as in `put`.
            unsafe { packet.copy_from_nonoverlapping(copy, copied.len) };
        }
    }

    fn result(&self, row: usize, lane: usize) -> [u32; 2] {
        let lanes = self.launcher.limits.lanes;
        let at = self.rows * row_len(lanes) + 2 * (row * lanes + lane);
        [at, at + 1].map(|at: usize| self.words.all()[at].load(Ordering::Relaxed))
    }
}

/// Words of a row.
fn row_len(lanes: usize) -> usize {
    HEAD + lanes * SLOT
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.is_over().is_none() {
            // Not freed: the device may still read and write it.
            mem::forget(self.launcher.clone());
            mem::forget(self.pool.clone());
            return;
        }
        self.event = None;
        // SAFETY: dropped once, here, and not used after that. So are the others.
        unsafe { ManuallyDrop::drop(&mut self.kernel) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.there) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.words) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
    }
}
