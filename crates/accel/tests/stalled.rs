//! A kernel of OpenCL that does not end. It keeps a thread of PoCL busy for good, so this is a program of its
//! own with one test.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::backends;
use thalweg_accel::{Accelerator, Fault, Job, Options, Partition};
use thalweg_nf::device::{DeviceFunction, Way};
use thalweg_packet::Pool;

/// Returns the first byte, and never does if that is 255.
const ENDLESS: DeviceFunction = DeviceFunction {
    name: "endless",
    source:
        "uint2 endless(global uchar *bytes, uint len, uint2 argument, global const uchar *table) {
        volatile global uchar *read = bytes;
        while (read[0] == 255) {}
        return (uint2)(read[0], len);
    }",
    near: 0,
    split: None,
    changes: false,
    scalar: |bytes, _, _| {
        while std::hint::black_box(bytes[0]) == 255 {
            thread::sleep(Duration::from_millis(100));
        }
        [bytes[0].into(), bytes.len() as u32]
    },
};

#[test]
fn a_kernel_that_does_not_end_is_a_fault_and_others_still_start() {
    let devices = backends();
    // tests/stuck.rs has launches, of which one has all rows.
    for backend in devices.all.iter().filter(|backend| backend.way() == Way::Resident) {
        let name = backend.name();
        let memory = backend.allocate(Pool::region_len(256, 2048)).unwrap();
        let pool = Arc::new(Pool::new(memory, 2048).unwrap());
        let options = Options {
            lanes: 4,
            rows: 8,
            patience: Duration::from_secs(2),
            stop: Duration::from_secs(60),
            ..Options::default()
        };
        let partition = || Partition { function: ENDLESS, table: vec![].into(), work_groups: 1 };
        let start = || Accelerator::start(&**backend, vec![partition()], options, pool.clone());
        let mut accelerator = start().unwrap();
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        let submit = |syncer: &mut thalweg_accel::Syncer<u8>, byte: u8| {
            let mut frame = pool.take().unwrap();
            pool.bytes_mut(&mut frame)[0] = byte;
            syncer.submit(0, Job { frame, bytes: 0..64, argument: [0; 2], tag: byte }).unwrap();
        };
        // Four rows that end, and the one that does not; one that is not begun.
        (0..16).chain([255, 1, 2, 3, 4]).for_each(|byte| submit(&mut syncer, byte));
        let mut back = Vec::new();
        let fault = loop {
            let polled = syncer.poll(|done| {
                assert_eq!(done.result, [done.tag.into(), 64], "{name}");
                back.push(done.tag);
                pool.give_back([done.frame]);
            });
            match polled {
                Err(fault) => break fault,
                Ok(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        assert!(matches!(fault, Fault::Stalled { work_group: 0, .. }), "{name}: {fault}");
        assert_eq!(back, (0..16).collect::<Vec<_>>(), "{name}");
        assert_eq!(accelerator.failure(), None, "{name}: its driver reports no error");
        let mut lost = Vec::new();
        syncer.abandon(|byte, frame| {
            assert!(frame.is_none(), "{name}: the device may still write it");
            lost.push(byte);
        });
        assert_eq!(lost, [255, 1, 2, 3, 4], "{name}");
        assert_eq!(pool.in_use(), 5, "{name}");
        let begin = Instant::now();
        drop(accelerator);
        assert!(begin.elapsed() < Duration::from_secs(5), "{name}: waited for it again");
        // Its work-group is taken; if the device has another one, that starts beside it.
        if backend.room().is_some_and(|room| room.free == 0) {
            let error = start().map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("needs 1 resident work-groups"), "{name}: {error}");
            continue;
        }
        let mut accelerator = start().unwrap();
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        submit(&mut syncer, 9);
        let mut back = 0;
        while back == 0 {
            back = syncer.poll(|done| pool.give_back([done.frame])).unwrap();
            thread::yield_now();
        }
        assert!(accelerator.stop(), "{name}");
        assert_eq!(pool.in_use(), 5, "{name}");
    }
}
