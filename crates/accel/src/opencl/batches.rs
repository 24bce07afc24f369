//! The way without resident kernels, for comparison: a launch for each batch, in shared memory or with
//! copies to memory of the device and back.
//!
//! `unsafe` here: kernels are given addresses and buffers.
#![allow(unsafe_code)]

use std::sync::Arc;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING};
use thalweg_nf::device::DeviceFunction;
use thalweg_packet::{PacketMemory, Pool};

use super::{OpenCl, failed, resident, source};
use crate::error::AccelError;
use crate::slot::{Request, SLOT, Slot};
use crate::sync::AtomicU32;
use crate::syncer::{Done, Job};

/// Work-items of a work-group.
const LANES: usize = 32;

/// How the packets of a batch reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// They lie in memory that it shares.
    Shared,
    /// They are copied there and back.
    Copied,
}

/// A function on an OpenCL device, launched for each batch.
pub struct Batches {
    pool: Arc<Pool>,
    kernel: Kernel,
    queue: CommandQueue,
    /// The slots of a batch, in shared memory.
    slots: PacketMemory,
    most: usize,
    copies: Option<Copies>,
    name: String,
    /// What the kernel and its queue need; dropped after them.
    _kept: (PacketMemory, Program, Arc<Context>),
}

/// Memory of the device for copies of slots and packets, and the packets one after the other.
struct Copies {
    slots: Buffer<u8>,
    packets: Buffer<u8>,
    slots_here: Vec<u8>,
    packets_here: Vec<u8>,
}

impl OpenCl {
    /// Prepares a function for batches of at most `most` packets, each at most `len` bytes long if they
    /// are copied.
    ///
    /// # Errors
    /// As [`Backend::start`](crate::Backend::start).
    pub fn batches(
        &self,
        function: DeviceFunction,
        table: &[u8],
        pool: Arc<Pool>,
        transfer: Transfer,
        (most, len): (usize, usize),
    ) -> Result<Batches, AccelError> {
        use crate::Backend;
        let found = &self.found;
        if !self.shared.have(pool.memory()) {
            return Err(AccelError::ForeignPool(found.name.clone()));
        }
        let text = source::of_batches(&[function]);
        let (program, kernel) = resident::compile(found, &self.context, &text, "batch")?;
        let queue = resident::queue(found, &self.context)?;
        let most = most.next_multiple_of(LANES);
        let slots = self.allocate(most * SLOT * 4)?;
        let in_device = self.allocate(table.len().max(1))?;
        // SAFETY: the memory has as many bytes, and nothing else refers to it yet.
        unsafe {
            in_device.base().as_ptr().copy_from_nonoverlapping(table.as_ptr(), table.len());
        }
        let buffer = |len: usize| {
            // SAFETY: no memory of ours is given to it.
            unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, len, std::ptr::null_mut()) }
                .map_err(failed(found, "clCreateBuffer"))
        };
        let copies = match transfer {
            Transfer::Shared => None,
            Transfer::Copied => Some(Copies {
                slots: buffer(most * SLOT * 4)?,
                packets: buffer(most * len)?,
                slots_here: vec![0; most * SLOT * 4],
                packets_here: vec![0; most * len],
            }),
        };
        let table = in_device.base().as_ptr().cast_const().cast();
        // SAFETY: shared memory of this context, which `Batches` keeps.
        unsafe { kernel.set_arg_svm_pointer(3, table) }
            .map_err(failed(found, "clSetKernelArgSVMPointer"))?;
        let (context, name) = (self.context.clone(), found.name.clone());
        let kept = (in_device, program, context);
        Ok(Batches { pool, kernel, queue, slots, most, copies, name, _kept: kept })
    }
}

impl Batches {
    /// Works on a batch of packets; calls `each` with every one, in their order.
    ///
    /// # Errors
    /// When a call fails. The packets are lost to the pool then: a kernel may still run.
    ///
    /// # Panics
    /// When the batch is larger than prepared for, or a frame is of another pool.
    pub fn run<T>(
        &mut self,
        jobs: Vec<Job<T>>,
        each: impl FnMut(Done<T>),
    ) -> Result<(), AccelError> {
        assert!(jobs.len() <= self.most, "at most {} packets", self.most);
        let mut there = jobs.iter().scan(0, |sum, job| {
            let start = *sum;
            *sum += job.bytes.len();
            Some(start)
        });
        for (at, job) in jobs.iter().enumerate() {
            let inside = self.pool.offset_of(&job.frame) + job.bytes.start;
            let offset = if self.copies.is_some() { there.next().unwrap_or(0) } else { inside };
            let (len, argument) = (job.bytes.len() as u32, job.argument);
            self.slot(at).write(Request { offset: offset as u64, len, argument });
        }
        let done = match self.copies {
            Some(_) => self.copied(jobs),
            None => self.launch(jobs.len()).map(|()| jobs),
        };
        let call = |e: ClError| AccelError::Call {
            device: self.name.clone(),
            call: "a batch",
            why: e.to_string(),
        };
        let jobs = done.map_err(call)?;
        let done =
            |(at, Job { frame, tag, .. })| Done { frame, tag, result: self.slot(at).result() };
        jobs.into_iter().enumerate().map(done).for_each(each);
        Ok(())
    }

    fn slot(&self, at: usize) -> Slot<'_> {
        let words = self.slots.base().cast::<AtomicU32>().as_ptr();
        // SAFETY: the memory has `most` slots, of which this is one.
        let first = unsafe { words.add(at * SLOT) };
        // SAFETY: as above; all access to them is atomic while no kernel runs.
        Slot(unsafe { &*first.cast() })
    }

    /// Launches the kernel for the slots in shared memory, and waits for its end.
    fn launch(&self, count: usize) -> Result<(), ClError> {
        let (slots, packets) = (self.slots.base(), self.pool.memory().base());
        for (number, pointer) in [(0, slots), (2, packets)] {
            let pointer = pointer.as_ptr().cast_const().cast();
            // SAFETY: shared memory of the kernel's context, which `self` keeps.
            unsafe { self.kernel.set_arg_svm_pointer(number, pointer) }?;
        }
        self.enqueue(count)?;
        self.queue.finish()
    }

    /// Copies slots and packets to the device, launches the kernel, and copies them back.
    fn copied<T>(&mut self, mut jobs: Vec<Job<T>>) -> Result<Vec<Job<T>>, ClError> {
        let Some(mut copies) = self.copies.take() else { return Ok(jobs) };
        let mut end = 0;
        for job in &jobs {
            let bytes = &self.pool.bytes(&job.frame)[job.bytes.clone()];
            copies.packets_here[end..][..bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        }
        let len = jobs.len() * SLOT * 4;
        let slots = self.slots.base().as_ptr();
        // SAFETY: the slots are inside the memory, and no kernel runs.
        unsafe { slots.copy_to_nonoverlapping(copies.slots_here.as_mut_ptr(), len) };
        let Copies { slots: to_slots, packets: to_packets, slots_here, packets_here } = &mut copies;
        let (queue, none) = (&self.queue, &[][..]);
        for (number, buffer) in [(0, &*to_slots), (2, &*to_packets)] {
            // SAFETY: a buffer is what the kernel expects there.
            unsafe { self.kernel.set_arg(number, buffer) }?;
        }
        // SAFETY: the slices stay until `finish` at the latest: reading back blocks.
        unsafe {
            queue.enqueue_write_buffer(to_slots, CL_NON_BLOCKING, 0, &slots_here[..len], none)
        }?;
        // SAFETY: as above.
        unsafe {
            queue.enqueue_write_buffer(to_packets, CL_NON_BLOCKING, 0, &packets_here[..end], none)
        }?;
        self.enqueue(jobs.len())?;
        // SAFETY: as above.
        unsafe {
            queue.enqueue_read_buffer(to_slots, CL_NON_BLOCKING, 0, &mut slots_here[..len], none)
        }?;
        // SAFETY: as above; the queue is in order, so all is done when this is.
        unsafe {
            queue.enqueue_read_buffer(to_packets, CL_BLOCKING, 0, &mut packets_here[..end], none)
        }?;
        // SAFETY: the slots are inside the memory, and no kernel runs.
        unsafe { slots.copy_from_nonoverlapping(slots_here.as_ptr(), len) };
        let mut start = 0;
        for job in &mut jobs {
            let bytes = &mut self.pool.bytes_mut(&mut job.frame)[job.bytes.clone()];
            bytes.copy_from_slice(&packets_here[start..][..bytes.len()]);
            start += bytes.len();
        }
        self.copies = Some(copies);
        Ok(jobs)
    }

    fn enqueue(&self, count: usize) -> Result<(), ClError> {
        let number = count as u32;
        // SAFETY: a number of this size is what the kernel expects there.
        unsafe { self.kernel.set_arg(1, &number) }?;
        let (all, each) = ([count.next_multiple_of(LANES)], [LANES]);
        let (none, all, each) = (std::ptr::null(), all.as_ptr(), each.as_ptr());
        let kernel = self.kernel.get();
        // SAFETY: the sizes are of one dimension; the arguments are set, and `self` keeps them.
        unsafe { self.queue.enqueue_nd_range_kernel(kernel, 1, none, all, each, &[]) }.map(drop)
    }
}
