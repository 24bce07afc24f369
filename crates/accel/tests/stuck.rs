//! Launches that do not end in time, on a device: nothing that they use is used again, and nobody waits for them.
#![allow(unsafe_code)] // a byte that a kernel waits for

mod common;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::backends;
use thalweg_accel::{Accelerator, Fault, Job, Options, Partition, Syncer};
use thalweg_nf::device::{DeviceFunction, Way};
use thalweg_packet::{Frame, Pool};

/// Ends when the first byte is not 0, or after this number of looks.
const STUCK: DeviceFunction = DeviceFunction {
    name: "stuck",
    source:
        "uint2 stuck(global uchar *bytes, uint len, uint2 argument, global const uchar *table) {
        volatile global uchar *first = bytes;
        uint looks = 0;
        while (*first == 0 && looks < argument.x) looks++;
        return (uint2)(looks, len);
    }",
    near: 0,
    split: None,
    changes: true,
    scalar: |bytes, _, _| [0, bytes.len() as u32],
};

/// A packet whose kernel looks this often, and the place of its first byte.
fn submit(syncer: &mut Syncer<()>, pool: &Pool, looks: u32) -> usize {
    let mut frame = pool.take().unwrap();
    pool.bytes_mut(&mut frame)[..64].fill(0);
    let place = pool.offset_of(&frame);
    syncer.submit(0, Job { frame, bytes: 0..64, argument: [looks, 0], tag: () }).unwrap();
    place
}

fn fault(syncer: &mut Syncer<()>) -> Fault {
    loop {
        match syncer.poll(|_| panic!("a packet is back")) {
            Ok(_) => thread::sleep(Duration::from_millis(1)),
            Err(fault) => return fault,
        }
    }
}

#[test]
fn a_launch_that_does_not_end_in_time_is_a_fault_and_is_not_waited_for() {
    let devices = backends();
    for backend in devices.all.iter().filter(|backend| backend.way() != Way::Resident) {
        let memory = backend.allocate(Pool::region_len(8, 2048)).unwrap();
        let pool = Arc::new(Pool::new(memory, 2048).unwrap());
        let (patience, stop) = (Duration::from_millis(50), Duration::from_millis(20));
        let options = Options { patience, stop, ..Options::default() };
        let partition = Partition { function: STUCK, table: Vec::new().into(), work_groups: 1 };
        let mut accelerator =
            Accelerator::start(&**backend, vec![partition], options, pool.clone()).unwrap();
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        // Over shared memory the kernel can be released; else it ends by itself.
        let is_shared = backend.way() == Way::Shared;
        let looks = if is_shared { u32::MAX } else { 300_000_000 };
        let place = submit(&mut syncer, &pool, looks);
        let fault = fault(&mut syncer);
        assert!(matches!(fault, Fault::Stalled { work_group: 0, .. }), "{fault}");
        let mut lost = Vec::new();
        syncer.abandon(|(), frame: Option<Frame>| lost.push(frame));
        assert_eq!(lost, [None], "the device may still write to the frame");
        let start = Instant::now();
        assert!(!accelerator.stop(), "the launch is under way");
        assert!(start.elapsed() < Duration::from_secs(10));
        if is_shared {
            // SAFETY: inside of the pool's memory.
            let first = unsafe { pool.memory().base().as_ptr().add(place) };
            // SAFETY: as above; the frame is lost to the pool, so nothing but the kernel uses the byte.
            unsafe { first.write_volatile(1) };
        }
        while !accelerator.stop() {
            assert!(start.elapsed() < Duration::from_secs(120), "the launch ends");
        }
        assert_eq!(pool.in_use(), 1);
    }
}
