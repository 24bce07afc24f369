//! Hostile devices: each costs at most the packets that it has, and never memory.

#[path = "common/hostile.rs"]
mod hostile;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hostile::{ERROR, Harm, Hostile};
use thalweg_accel::{Accelerator, Backend, Fault, Job, Options, Partition, REFLECT, Syncer};
use thalweg_packet::Pool;

const OPTIONS: Options = Options {
    lanes: 4,
    rows: 8,
    start: Duration::from_secs(2),
    patience: Duration::from_millis(200),
    stop: Duration::from_secs(5),
};
/// More than a queue has slots.
const PACKETS: usize = 48;

fn pool(device: &Hostile) -> Arc<Pool> {
    let memory = device.allocate(Pool::region_len(64, 2048)).unwrap();
    Arc::new(Pool::new(memory, 2048).unwrap())
}

fn start(device: &Hostile, pool: &Arc<Pool>) -> Result<Accelerator, String> {
    let table = vec![7; 64].into();
    let partition = Partition { function: REFLECT, table, work_groups: 1 };
    Accelerator::start(device, vec![partition], OPTIONS, pool.clone()).map_err(|e| e.to_string())
}

/// What packet number `n` is when it is submitted, and when the function has worked on it.
fn bytes(number: usize) -> (Vec<u8>, Vec<u8>) {
    let sent: Vec<u8> = (0..64).map(|at| (number * 31 + at) as u8).collect();
    let mut worked = sent.clone();
    worked[..12].rotate_left(6);
    (sent, worked)
}

/// Submits packets as far as there is room, from number `from` on; returns the next number.
fn submit(syncer: &mut Syncer<(usize, usize)>, pool: &Pool, mut from: usize) -> usize {
    while from < PACKETS {
        let Some(mut frame) = pool.take() else { break };
        let all = pool.bytes_mut(&mut frame);
        all.fill(0xee);
        all[64..128].copy_from_slice(&bytes(from).0);
        let tag = (from, pool.offset_of(&frame));
        let job = Job { frame, bytes: 64..128, argument: [from as u32, 0], tag };
        if let Err(job) = syncer.submit(0, job) {
            pool.give_back([job.frame]);
            break;
        }
        from += 1;
    }
    from
}

#[test]
fn a_device_that_breaks_the_protocol_costs_the_packets_that_it_has() {
    for harm in [Harm::CountsAhead, Harm::CountsBack, Harm::Ends, Harm::Stalls] {
        for after in [0, 1, 5, 11] {
            let case = format!("{harm:?} after {after} rows");
            let device = Hostile::new(harm, after);
            let pool = pool(&device);
            let mut accelerator = start(&device, &pool).unwrap();
            let mut syncer = accelerator.syncers(1).unwrap().remove(0);
            let (mut next, mut fates) = (0, BTreeMap::new());
            let fault = loop {
                next = submit(&mut syncer, &pool, next);
                let polled = syncer.poll(|done| {
                    let (number, offset) = done.tag;
                    assert_eq!(offset, pool.offset_of(&done.frame), "{case}: its own frame");
                    assert_eq!(done.result, [number as u32, 64], "{case}");
                    assert_eq!(pool.bytes(&done.frame)[64..128], bytes(number).1, "{case}");
                    assert!(fates.insert(number, true).is_none(), "{case}: {number} twice");
                    pool.give_back([done.frame]);
                });
                match polled {
                    Err(fault) => break fault,
                    Ok(_) => thread::yield_now(),
                }
            };
            let is_it = match harm {
                Harm::CountsAhead | Harm::CountsBack => matches!(fault, Fault::Index { .. }),
                Harm::Ends => matches!(fault, Fault::Ended { .. }),
                _ => matches!(fault, Fault::Stalled { .. }),
            };
            assert!(is_it, "{case}: {fault}");
            let (under_way, mut kept) = (syncer.under_way(), 0);
            syncer.abandon(|(number, _), frame| {
                assert!(fates.insert(number, false).is_none(), "{case}: {number} twice");
                kept += usize::from(frame.is_none());
                pool.give_back(frame);
            });
            // Each has come back, or is lost with the device; frames are kept that it may still write to.
            assert_eq!(fates.len(), next, "{case}");
            assert_eq!(fates.values().filter(|is_back| !**is_back).count(), under_way, "{case}");
            assert_eq!(kept, if harm == Harm::Ends { 0 } else { under_way }, "{case}");
            assert_eq!(pool.in_use(), kept, "{case}");
            let begin = Instant::now();
            drop(accelerator);
            assert!(begin.elapsed() < OPTIONS.stop / 2, "{case}: waited for it again");
        }
    }
}

#[test]
fn what_a_device_writes_into_slots_and_tables_changes_results_alone() {
    for after in [0, 3] {
        let device = Hostile::new(Harm::Scribbles, after);
        let pool = pool(&device);
        let mut accelerator = start(&device, &pool).unwrap();
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        let (mut next, mut order, mut wrong) = (0, Vec::new(), 0);
        while order.len() < PACKETS {
            next = submit(&mut syncer, &pool, next);
            let polled = syncer.poll(|done| {
                let (number, offset) = done.tag;
                // The processor has kept offset and length: the frame, and which of its bytes were there.
                assert_eq!(offset, pool.offset_of(&done.frame), "packet {number}");
                let all = pool.bytes(&done.frame);
                let (sent, worked) = bytes(number);
                assert!([sent, worked].iter().any(|it| all[64..128] == it[..]), "packet {number}");
                assert!(all[..64].iter().chain(&all[128..]).all(|byte| *byte == 0xee));
                wrong += usize::from(done.result != [number as u32, 64]);
                order.push(number);
                pool.give_back([done.frame]);
            });
            polled.unwrap();
            thread::yield_now();
        }
        assert_eq!(order, (0..PACKETS).collect::<Vec<_>>());
        assert!(wrong >= PACKETS - 4 * after as usize, "{wrong} results");
        assert!(accelerator.stop(), "it ends in order");
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn a_device_that_does_not_start_is_refused_with_what_its_driver_reports() {
    for (harm, expected) in [
        (Harm::Absent, "needs 1 resident work-groups, hostile runs 0".to_owned()),
        (Harm::FailsAtStart, format!("hostile: the kernel: {ERROR}")),
    ] {
        let device = Hostile::new(harm, 0);
        let pool = pool(&device);
        let error = start(&device, &pool).map(|_| ()).unwrap_err();
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(pool.in_use(), 0);
    }
}
