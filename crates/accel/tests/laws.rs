//! What every device does, whichever interface drives it: each packet comes back once, as its function
//! left it.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::backends;
use proptest::prelude::*;
use thalweg_accel::{
    Accelerator, Backend, Fault, Job, Options, Partition, REFLECT, Soft, Syncer, fastest,
};
use thalweg_nf::device::{Alternatives, DeviceCounts, DeviceFunction, DeviceWork, Split, Way};
use thalweg_packet::{Frame, PacketMemory, Pool};

/// Adds up the bytes and a number of the table, and returns the sum and the place of the first zero.
const SUM: DeviceFunction = DeviceFunction {
    name: "sum",
    source: "uint2 sum(global uchar *bytes, uint len, uint2 argument, global const uchar *table) {
        uint sum = table[argument.x], first = len;
        for (uint at = 0; at < len; at++) {
            sum += bytes[at];
            if (bytes[at] == 0 && first == len) first = at;
            bytes[at] = (uchar)(bytes[at] + argument.y);
        }
        return (uint2)(sum, first);
    }",
    near: 0,
    split: None,
    changes: true,
    scalar: |bytes, argument, table| {
        let sum = u32::from(table[argument[0] as usize])
            + bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let first = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(argument[1] as u8));
        [sum, first as u32]
    },
};

/// Counts the bytes that the part of the table in local memory has as odd, and all bytes; in pieces.
const ODD: DeviceFunction = DeviceFunction {
    name: "odd",
    source: "uint2 odd(global uchar *bytes, uint len, uint2 argument, global const uchar *table,
                       local const uchar *near) {
        uint odd = 0;
        for (uint at = 0; at < len; at++) odd += near[bytes[at]] & 1;
        return (uint2)(odd, len);
    }",
    near: 256,
    split: Some(Split { piece: 400, overlap: 0, join: |a, b| [a[0] + b[0], a[1] + b[1]] }),
    changes: false,
    scalar: |bytes, _, table| {
        let odd = bytes.iter().filter(|byte| table[usize::from(**byte)] & 1 == 1).count();
        [odd as u32, bytes.len() as u32]
    },
};

/// A pool in memory of the device.
fn pool(backend: &dyn Backend, frames: usize) -> Arc<Pool> {
    let memory = backend.allocate(Pool::region_len(frames, 2048)).unwrap();
    Arc::new(Pool::new(memory, 2048).unwrap())
}

fn partition(function: DeviceFunction, work_groups: usize) -> Partition {
    Partition { function, table: (0..=255).collect::<Vec<u8>>().into(), work_groups }
}

/// A packet to send: the partition, the bytes, where they begin in the frame, and the argument.
type Sent = (usize, Vec<u8>, usize, [u32; 2]);

fn packets() -> impl Strategy<Value = Vec<Sent>> {
    let packet = (0..2usize, prop::collection::vec(any::<u8>(), 0..1500), 0..500usize);
    let argument = (0..256u32, any::<u32>());
    let sent = (packet, argument).prop_map(|((to, bytes, at), (x, y))| (to, bytes, at, [x, y]));
    prop::collection::vec(sent, 1..200)
}

/// Sends packets through a syncer; checks that each comes back once, with the bytes and the result of
/// its function.
fn send(syncer: &mut Syncer<usize>, pool: &Pool, packets: &[Sent]) {
    send_to([REFLECT, SUM], syncer, pool, packets);
}

/// The same for these functions, by partition.
fn send_to(
    functions: [DeviceFunction; 2],
    syncer: &mut Syncer<usize>,
    pool: &Pool,
    packets: &[Sent],
) {
    let table: Vec<u8> = (0..=255).collect();
    let mut waiting: VecDeque<usize> = (0..packets.len()).collect();
    let mut back = vec![false; packets.len()];
    let mut left = packets.len();
    while left > 0 {
        while let Some(number) = waiting.pop_front() {
            let Some(mut frame) = pool.take() else {
                waiting.push_front(number);
                break;
            };
            let (to, bytes, at, argument) = &packets[number];
            let place = *at..at + bytes.len();
            pool.bytes_mut(&mut frame)[place.clone()].copy_from_slice(bytes);
            let job = Job { frame, bytes: place, argument: *argument, tag: number };
            if let Err(job) = syncer.submit(*to, job) {
                pool.give_back([job.frame]);
                waiting.push_front(number);
                break;
            }
        }
        let moved = syncer.poll(|done| {
            let (to, bytes, at, argument) = &packets[done.tag];
            let mut expected = bytes.clone();
            let result = (functions[*to].scalar)(&mut expected, *argument, &table);
            assert_eq!(done.result, result, "packet {} to {to}", done.tag);
            assert!(pool.bytes(&done.frame)[*at..].starts_with(&expected), "packet {}", done.tag);
            assert!(!std::mem::replace(&mut back[done.tag], true), "packet {} twice", done.tag);
            pool.give_back([done.frame]);
        });
        match moved.expect("the device answers") {
            0 => thread::yield_now(),
            moved => left -= moved,
        }
    }
    assert_eq!(syncer.under_way(), 0);
}

#[test]
fn packets_come_back_once_as_their_function_leaves_them() {
    let devices = backends();
    for backend in &devices.all {
        let pool = pool(&**backend, 256);
        // Small queues, which are full again and again.
        let options =
            Options { lanes: 4, rows: 2, patience: Duration::from_secs(20), ..Options::default() };
        let partitions = vec![partition(REFLECT, 1), partition(SUM, 1)];
        let mut accelerator =
            Accelerator::start(&**backend, partitions, options, pool.clone()).unwrap();
        let mut syncers = accelerator.syncers(1).unwrap();
        let cases = ProptestConfig::with_cases(thalweg_testkit::cases(20));
        let syncer = std::cell::RefCell::new(&mut syncers[0]);
        proptest!(cases, |(packets in packets())| send(&mut syncer.borrow_mut(), &pool, &packets));
        assert!(accelerator.stop(), "{} ends", backend.name());
        assert_eq!(pool.in_use(), 0, "{}", backend.name());
    }
}

#[test]
fn pieces_of_a_packet_and_tables_in_local_memory_change_no_result() {
    // The second has at most as many pieces as a row has slots.
    let short = Split { piece: 5, ..ODD.split.unwrap() };
    let functions = [ODD, DeviceFunction { split: Some(short), ..ODD }];
    let devices = backends();
    for backend in &devices.all {
        let pool = pool(&**backend, 256);
        let options =
            Options { lanes: 8, rows: 2, patience: Duration::from_secs(20), ..Options::default() };
        let partitions = functions.map(|function| partition(function, 1)).to_vec();
        let mut accelerator =
            Accelerator::start(&**backend, partitions, options, pool.clone()).unwrap();
        let mut syncers = accelerator.syncers(1).unwrap();
        let cases = ProptestConfig::with_cases(thalweg_testkit::cases(20));
        let syncer = std::cell::RefCell::new(&mut syncers[0]);
        proptest!(cases, |(packets in packets())| {
            send_to(functions, &mut syncer.borrow_mut(), &pool, &packets);
        });
        assert!(accelerator.stop(), "{} ends", backend.name());
        assert_eq!(pool.in_use(), 0, "{}", backend.name());
    }
}

#[test]
fn the_function_that_is_faster_on_the_device_is_found() {
    const SLOW: DeviceFunction = DeviceFunction {
        name: "slow",
        source:
            "uint2 slow(global uchar *bytes, uint len, uint2 argument, global const uchar *table) {
            volatile global uchar *read = bytes;
            uint odd = 0;
            for (uint at = 0; at < 1000 * len; at++) odd ^= read[at % len] & 1;
            return (uint2)(odd, len);
        }",
        near: 0,
        ..ODD
    };
    const FAST: DeviceFunction = DeviceFunction {
        name: "fast",
        source:
            "uint2 fast(global uchar *bytes, uint len, uint2 argument, global const uchar *table) {
            return (uint2)(bytes[0] & 1, len);
        }",
        ..SLOW
    };
    let devices = backends();
    for backend in &devices.all {
        for (function, others) in [(SLOW, &[FAST]), (FAST, &[SLOW])] {
            let table: Vec<u8> = (0..=255).collect();
            let samples = vec![(vec![1; 300], [0; 2]), (vec![2; 200], [1; 2])];
            let alternatives =
                Some(Alternatives { functions: others, table: table.clone(), samples });
            let work = DeviceWork { function, table: table.into(), alternatives };
            // Threads run the portable code, whatever the function.
            let expected = if backend.name() == "soft" { function.name } else { "fast" };
            assert_eq!(fastest(&**backend, &work).unwrap().name, expected, "{}", backend.name());
            let alone = DeviceWork { alternatives: None, ..work };
            assert_eq!(fastest(&**backend, &alone).unwrap().name, function.name);
        }
    }
}

#[test]
fn each_partition_has_syncers_of_its_own() {
    let devices = backends();
    let patience = Duration::from_secs(20);
    for backend in &devices.all {
        let pool = pool(&**backend, 256);
        let partitions = vec![partition(REFLECT, 1), partition(SUM, 1)];
        let mut accelerator =
            Accelerator::start(&**backend, partitions, Options::default(), pool.clone()).unwrap();
        let few = accelerator.share::<usize>(1, 2, patience).map(|_| ()).unwrap_err();
        assert!(few.to_string().contains("'sum' has 1"), "{few}");
        let of_sum = accelerator.share::<usize>(1, 1, patience).unwrap().remove(0);
        let of_reflect = accelerator.share::<usize>(0, 1, patience).unwrap().remove(0);
        let function = |mut syncer: Syncer<usize>, function: DeviceFunction| {
            let pool = pool.clone();
            move || {
                assert_eq!(syncer.work_groups(), 1);
                let table: Vec<u8> = (0..=255).collect();
                for round in 0..500u32 {
                    let bytes = vec![round as u8; 64];
                    let mut frame = pool.take().unwrap();
                    pool.bytes_mut(&mut frame)[..64].copy_from_slice(&bytes);
                    let (argument, tag) = ([round % 256, 3], round as usize);
                    syncer.submit(0, Job { frame, bytes: 0..64, argument, tag }).unwrap();
                    let mut expected = bytes;
                    let result = (function.scalar)(&mut expected, argument, &table);
                    let check = |done: thalweg_accel::Done<usize>| {
                        assert_eq!((done.tag, done.result), (tag, result));
                        assert!(pool.bytes(&done.frame).starts_with(&expected));
                        pool.give_back([done.frame]);
                    };
                    while syncer.poll(check).unwrap() == 0 {
                        thread::yield_now();
                    }
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(function(of_sum, SUM));
            function(of_reflect, REFLECT)();
        });
        assert!(accelerator.stop(), "{} ends", backend.name());
        assert_eq!(pool.in_use(), 0, "{}", backend.name());
    }
}

#[test]
fn several_syncers_share_a_device() {
    let devices = backends();
    for backend in &devices.all {
        let pool = pool(&**backend, 512);
        let options =
            Options { lanes: 8, rows: 4, patience: Duration::from_secs(20), ..Options::default() };
        let mut accelerator =
            Accelerator::start(&**backend, vec![partition(SUM, 2)], options, pool.clone()).unwrap();
        let mut syncers = accelerator.syncers::<usize>(2).unwrap();
        let one = |number: usize, syncer: &mut Syncer<usize>, pool: &Pool| {
            for round in 0..2_000usize {
                let bytes = vec![number as u8 + 1; 60 + round % 7];
                let mut left = 3;
                for tag in 0..left {
                    let mut frame = pool.take().unwrap();
                    pool.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
                    let job = Job { frame, bytes: 0..bytes.len(), argument: [tag as u32, 0], tag };
                    syncer.submit(0, job).unwrap();
                }
                while left > 0 {
                    let moved = syncer.poll(|done| {
                        let sum = (number + 1) * bytes.len() + done.tag;
                        assert_eq!(done.result, [sum as u32, bytes.len() as u32]);
                        pool.give_back([done.frame]);
                    });
                    left -= moved.unwrap();
                    thread::yield_now();
                }
            }
            assert_eq!(syncer.counts().packets, 6_000);
        };
        thread::scope(|scope| {
            for (number, syncer) in syncers.iter_mut().enumerate() {
                let pool = &pool;
                scope.spawn(move || one(number, syncer, pool));
            }
        });
        drop(accelerator);
        assert_eq!(pool.in_use(), 0, "{}", backend.name());
    }
}

/// As by reloads: memory is allocated, and a kernel compiled, while another one stays; and memory of one that
/// has ended is freed.
#[test]
fn kernels_come_and_go_while_others_stay() {
    let devices = backends();
    for backend in &devices.all {
        let (name, pool) = (backend.name(), pool(&**backend, 256));
        let options = Options { lanes: 4, rows: 4, ..Options::default() };
        let start = |function| {
            let partitions = vec![partition(function, 1)];
            let mut accelerator =
                Accelerator::start(&**backend, partitions, options, pool.clone()).unwrap();
            let syncer = accelerator.syncers::<usize>(1).unwrap().remove(0);
            (accelerator, syncer, function)
        };
        let table: Vec<u8> = (0..=255).collect();
        let pass = |(_, syncer, function): &mut (Accelerator, Syncer<usize>, DeviceFunction)| {
            for number in 0..50usize {
                let (mut expected, argument) = (vec![number as u8; 64], [number as u32, 3]);
                let mut frame = pool.take().unwrap();
                pool.bytes_mut(&mut frame)[..64].copy_from_slice(&expected);
                let result = (function.scalar)(&mut expected, argument, &table);
                syncer.submit(0, Job { frame, bytes: 0..64, argument, tag: number }).unwrap();
                let check = |done: thalweg_accel::Done<usize>| {
                    assert_eq!((done.tag, done.result), (number, result), "{name}");
                    assert!(pool.bytes(&done.frame).starts_with(&expected), "{name}");
                    pool.give_back([done.frame]);
                };
                while syncer.poll(check).unwrap() == 0 {
                    thread::yield_now();
                }
            }
        };
        let mut now = start(SUM);
        for function in [REFLECT, SUM, REFLECT, REFLECT] {
            pass(&mut now);
            let mut next = start(function);
            pass(&mut next);
            pass(&mut now);
            let (mut before, ..) = std::mem::replace(&mut now, next);
            assert!(before.stop(), "{name} ends");
            drop(before);
            pass(&mut now);
        }
        assert!(now.0.stop(), "{name} ends");
        assert_eq!(pool.in_use(), 0, "{name}");
    }
}

#[test]
fn a_row_that_is_not_full_is_sealed_with_dummies() {
    let devices = backends();
    for backend in &devices.all {
        let pool = pool(&**backend, 8);
        let options =
            Options { lanes: 4, rows: 2, patience: Duration::from_secs(20), ..Options::default() };
        let mut accelerator =
            Accelerator::start(&**backend, vec![partition(REFLECT, 1)], options, pool.clone())
                .unwrap();
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        for tag in 0..5u8 {
            let frame = pool.take().unwrap();
            syncer.submit(0, Job { frame, bytes: 0..64, argument: [0; 2], tag }).unwrap();
        }
        let mut back = Vec::new();
        while back.len() < 5 {
            syncer
                .poll(|done| {
                    back.push(done.tag);
                    pool.give_back([done.frame]);
                })
                .unwrap();
            thread::yield_now();
        }
        assert_eq!(back, [0, 1, 2, 3, 4], "in the order of the queue");
        let counts = syncer.counts();
        let DeviceCounts { packets, rows, slots, dummies, .. } = counts;
        assert_eq!((packets, rows, slots, dummies), (5, 2, 8, 3), "{}", backend.name());
    }
}

/// Polls until there is a fault.
fn fault(syncer: &mut Syncer<()>) -> Fault {
    loop {
        if let Err(fault) = syncer.poll(|_| panic!("a packet is back")) {
            return fault;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_work_group_that_does_not_answer_is_a_fault_and_keeps_its_frames() {
    const STUCK: DeviceFunction = DeviceFunction {
        name: "stuck",
        source: "",
        near: 0,
        split: None,
        changes: false,
        scalar: |_, _, _| {
            thread::sleep(Duration::from_millis(500));
            [0; 2]
        },
    };
    let pool = pool(&Soft, 8);
    let options = Options { patience: Duration::from_millis(50), ..Options::default() };
    let mut accelerator =
        Accelerator::start(&Soft, vec![partition(STUCK, 1)], options, pool.clone()).unwrap();
    let mut syncer = accelerator.syncers(1).unwrap().remove(0);
    let frame = pool.take().unwrap();
    syncer.submit(0, Job { frame, bytes: 0..64, argument: [0; 2], tag: () }).unwrap();
    let fault = fault(&mut syncer);
    assert!(matches!(fault, Fault::Stalled { work_group: 0, .. }), "{fault}");
    let mut lost = Vec::new();
    syncer.abandon(|(), frame: Option<Frame>| lost.push(frame));
    assert_eq!(lost, [None], "the device may still write the frame");
    assert_eq!(pool.in_use(), 1);
}

#[test]
fn a_device_that_was_stopped_is_a_fault_and_gives_its_frames_back() {
    let pool = pool(&Soft, 8);
    let mut accelerator =
        Accelerator::start(&Soft, vec![partition(REFLECT, 1)], Options::default(), pool.clone())
            .unwrap();
    let mut syncer = accelerator.syncers(1).unwrap().remove(0);
    assert!(accelerator.stop());
    let frame = pool.take().unwrap();
    syncer.submit(0, Job { frame, bytes: 0..64, argument: [0; 2], tag: () }).unwrap();
    assert_eq!(fault(&mut syncer), Fault::Ended { work_group: 0 });
    syncer.abandon(|(), frame| pool.give_back(frame));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_a_device_cannot_do_is_refused_before_it_starts() {
    let start = |backend: &dyn Backend, partition, options, pool| {
        Accelerator::start(backend, vec![partition], options, pool)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let devices = backends();
    for backend in &devices.all {
        let backend = &**backend;
        let options = Options { rows: 3, ..Options::default() };
        let error = start(backend, partition(REFLECT, 1), options, pool(backend, 8));
        assert!(error.contains("3 rows: at most 4096"), "{error}");
        let mut accelerator = Accelerator::start(
            backend,
            vec![partition(REFLECT, 1)],
            Options::default(),
            pool(backend, 8),
        )
        .unwrap();
        let error = accelerator.syncers::<()>(2).unwrap_err().to_string();
        assert!(error.contains("'reflect' has 1"), "{error}");
        if backend.name() == "soft" {
            continue;
        }
        let memory = PacketMemory::anonymous(Pool::region_len(8, 2048)).unwrap();
        // One that takes over memory of ours reaches that of any pool.
        if let Err(error) = backend.adopt(memory) {
            assert!(error.to_string().contains("shares only memory that it has allocated"));
            let anonymous = Arc::new(Pool::anonymous(8, 2048).unwrap());
            let error = start(backend, partition(REFLECT, 1), Options::default(), anonymous);
            assert!(error.starts_with("the packets are not in memory that"), "{error}");
        }
        let broken = DeviceFunction { source: "uint2 reflect(", ..REFLECT };
        let error = start(backend, partition(broken, 1), Options::default(), pool(backend, 8));
        assert!(error.contains("does not compile on") && error.contains("error"), "{error}");
        // Large ones, of which a GPU has few at the same time, too.
        let start_within = Duration::from_secs(2);
        let options = Options { lanes: 1024, rows: 2, start: start_within, ..Options::default() };
        if backend.way() != Way::Resident {
            // Launches need no room for work-groups at the same time.
            let (pool, partitions) = (pool(backend, 8), vec![partition(REFLECT, 500)]);
            assert!(Accelerator::start(backend, partitions, options, pool).unwrap().stop());
            continue;
        }
        let error = start(backend, partition(REFLECT, 500), options, pool(backend, 8));
        assert!(error.contains("needs 500 resident work-groups"), "{error}");
    }
}
