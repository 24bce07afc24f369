//! A launch for each batch of packets, for comparison with resident kernels: in shared memory, or with copies to
//! memory of the device and back.

use std::sync::Arc;
use std::thread;

use thalweg_nf::device::DeviceFunction;
use thalweg_packet::Pool;

use super::OpenCl;
use super::flight::{Launched, Launcher, Transfer};
use crate::error::AccelError;
use crate::relay::{Flight, Limits};
use crate::slot::Request;
use crate::syncer::{Done, Job};

/// Work-items of a work-group.
const LANES: usize = 32;

/// A function on an OpenCL device, launched for each batch.
pub struct Batches {
    pool: Arc<Pool>,
    function: DeviceFunction,
    /// The bytes of its table.
    table: usize,
    flight: Launched,
    most: usize,
    name: String,
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
        if transfer == Transfer::Shared {
            self.check_shared(pool.memory())?;
        }
        let rows = most.div_ceil(LANES);
        let bytes = rows * LANES * len.next_multiple_of(4);
        let launcher =
            Launcher::new(self, &[function], table, Limits { lanes: LANES, rows, bytes })?;
        let flight = Launched::new(self, &launcher, &pool, transfer)?;
        let (name, table, most) = (self.found.name.clone(), table.len(), rows * LANES);
        Ok(Batches { pool, function, table, flight, most, name })
    }
}

impl Batches {
    /// Works on a batch of packets; calls `each` with every one, in their order.
    ///
    /// # Errors
    /// When a call fails. The packets are lost to the pool then: a kernel may still run.
    ///
    /// # Panics
    /// When the batch is empty or larger than prepared for, or a frame is of another pool.
    pub fn run<T>(
        &mut self,
        jobs: Vec<Job<T>>,
        each: impl FnMut(Done<T>),
    ) -> Result<(), AccelError> {
        assert!(jobs.len() <= self.most, "at most {} packets", self.most);
        let rows = jobs.len().div_ceil(LANES);
        self.flight.lay_out(rows);
        for row in 0..rows {
            self.flight.head(row, 0, (0, self.table));
            for lane in 0..LANES {
                let request = jobs.get(row * LANES + lane).map(|job| {
                    let offset = (self.pool.offset_of(&job.frame) + job.bytes.start) as u64;
                    Request { offset, len: job.bytes.len() as u32, argument: job.argument }
                });
                self.flight.put(row, lane, request, self.function.changes);
            }
        }
        self.launch().map_err(|why| AccelError::Call {
            device: self.name.clone(),
            call: "a batch",
            why,
        })?;
        self.flight.land();
        let done = |(at, Job { frame, tag, .. })| {
            let result = self.flight.result(at / LANES, at % LANES);
            Done { frame, result, tag }
        };
        jobs.into_iter().enumerate().map(done).for_each(each);
        Ok(())
    }

    /// Launches, and waits for the end.
    fn launch(&mut self) -> Result<(), String> {
        self.flight.depart()?;
        loop {
            match self.flight.is_over() {
                Some(ended) => return ended,
                None => thread::yield_now(),
            }
        }
    }
}
