//! A device made of threads: the reference of the protocol, and there on every machine.
//!
//! `unsafe` here: bytes of packets are reached by offsets from the pool's memory, as a device does it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_nf::device::{DeviceRoom, Scalar};
use thalweg_packet::{PacketMemory, Pool};

use crate::backend::{Backend, Launch, Resident};
use crate::error::AccelError;
use crate::region::{MOST_WORK_GROUPS, Region};
use crate::slot::Request;
use crate::work_group;

/// Threads of this process, one a work-group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Soft;

impl Backend for Soft {
    fn name(&self) -> String {
        "soft".into()
    }

    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError> {
        PacketMemory::anonymous(len).map_err(|e| AccelError::Memory {
            device: self.name(),
            len,
            why: e.to_string(),
        })
    }

    /// Threads reach all memory of the process.
    fn adopt(&self, memory: PacketMemory) -> Result<PacketMemory, AccelError> {
        Ok(memory)
    }

    /// As many as queues can have.
    fn room(&self) -> Option<DeviceRoom> {
        let all = MOST_WORK_GROUPS;
        Some(DeviceRoom { all, free: all, remedy: "work-groups are threads" })
    }

    fn compiles(&self) -> bool {
        false
    }

    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError> {
        let launch = Arc::new(launch);
        let mut threads = Vec::new();
        for group in 0..launch.region.shape().work_groups {
            let mine = launch.clone();
            let thread = thread::Builder::new().name(format!("work-group-{group}"));
            match thread.spawn(move || run(&mine, group)) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    launch.region.end();
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    let (device, why) = (self.name(), e.to_string());
                    return Err(AccelError::Call { device, call: "starting a thread", why });
                }
            }
        }
        Ok(Box::new(Threads { region: launch.region.clone(), threads }))
    }
}

/// Serves the queue of a work-group.
fn run(launch: &Launch, group: usize) {
    let Launch { region, pool, functions } = launch;
    let scalar = functions[region.function(group)].scalar;
    let table = region.table(group);
    // Looks in vain since the last packet.
    let looks = Cell::new(0u32);
    let serve = |request| {
        looks.set(0);
        work(pool, scalar, table, request)
    };
    work_group::serve(region, group, serve, || rest(looks.replace(looks.get().saturating_add(1))));
}

/// Calls the function on the bytes of a request.
fn work(pool: &Pool, scalar: Scalar, table: &[u8], request: Request) -> [u32; 2] {
    let memory = pool.memory();
    let (start, len) = (request.offset as usize, request.len as usize);
    let is_inside = start.checked_add(len).is_some_and(|end| end <= memory.len());
    assert!(is_inside, "a request outside of packet memory");
    // SAFETY: the bytes lie in the memory, as was just checked.
    let first = unsafe { memory.base().as_ptr().add(start) };
    // SAFETY: as above; the syncer owns the frame of these bytes while the row is the work-group's, and
    // nothing else reads or writes them: a frame has a slot of its own in its row, or several, for pieces, in rows
    // of this work-group, which works on one after the other.
    let bytes = unsafe { std::slice::from_raw_parts_mut(first, len) };
    scalar(bytes, request.argument, table)
}

/// What a work-group does after this number of looks in vain: it looks again at once, then lets others
/// run, then sleeps.
fn rest(looks: u32) {
    match looks {
        0..64 => std::hint::spin_loop(),
        64..10_000 => thread::yield_now(),
        _ => thread::sleep(Duration::from_micros(50)),
    }
}

struct Threads {
    region: Arc<Region>,
    threads: Vec<JoinHandle<()>>,
}

impl Resident for Threads {
    fn stop(&mut self, within: Duration) -> bool {
        self.region.end();
        let until = Instant::now() + within;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
        let has_ended = self.threads.iter().all(JoinHandle::is_finished);
        if has_ended {
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        has_ended
    }
}
