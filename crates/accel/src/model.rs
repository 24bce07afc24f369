//! The protocol under the model checker: a syncer and a work-group, every order of their steps.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::Arc as LoomArc;
use loom::thread;
use thalweg_nf::device::Split;
use thalweg_packet::{PacketMemory, Pool};

use crate::region::{Region, Shape};
use crate::syncer::{Job, Syncer};
use crate::work_group;

/// A region of one work-group with two rows of two slots.
fn region() -> Arc<Region> {
    let shape = Shape { work_groups: 1, lanes: 2, rows: 2 };
    let memory = PacketMemory::anonymous(Region::len_for(shape, &[&[]]).unwrap()).unwrap();
    Arc::new(Region::new(memory, shape, &[0], &[&[]]).unwrap())
}

/// Sends `packets` packets through a work-group on a thread of its own, in a queue of fewer slots.
fn run(packets: u32, split: Option<Split>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let region = LoomArc::new(region());
        let device = {
            let region = region.clone();
            thread::spawn(move || {
                let mut seen = Vec::new();
                let work = |request: crate::slot::Request| {
                    // Once for pieces that follow each other.
                    if seen.last() != Some(&request.argument[0]) {
                        seen.push(request.argument[0]);
                    }
                    [request.argument[0] + 100, request.len]
                };
                work_group::serve(&region, 0, work, thread::yield_now);
                seen
            })
        };
        let pool = Arc::new(Pool::anonymous(packets as usize, 512).unwrap());
        let (region, patience) = ((*region).clone(), Duration::from_secs(3600));
        let mut syncer =
            Syncer::new(region.clone(), pool.clone(), vec![(vec![0], split)], patience);
        let mut back = Vec::new();
        let mut next = 0;
        while back.len() < packets as usize {
            if next < packets {
                let frame = pool.take().unwrap();
                let bytes = 0..next as usize;
                let job = Job { frame, bytes, argument: [next, 0], tag: next };
                match syncer.submit(0, job) {
                    Ok(()) => next += 1,
                    Err(job) => pool.give_back([job.frame]),
                }
            }
            let moved = syncer.poll(|done| {
                assert_eq!(done.result, [done.tag + 100, done.tag], "a result of this packet");
                back.push(done.tag);
                pool.give_back([done.frame]);
            });
            if moved.unwrap() == 0 {
                thread::yield_now();
            }
        }
        region.end();
        let all: Vec<u32> = (0..packets).collect();
        assert_eq!(device.join().unwrap(), all, "each packet once, in order");
        assert_eq!(back, all, "and back in order");
        assert_eq!((syncer.under_way(), pool.in_use()), (0, 0));
    });
}

#[test]
fn packets_reach_the_work_group_once_and_come_back_in_order() {
    run(3, None);
}

#[test]
fn rows_are_used_again_once_they_are_collected() {
    run(5, None);
}

#[test]
fn pieces_of_a_packet_come_back_as_one() {
    // The third packet has two pieces, which are in two rows.
    let join = |a: [u32; 2], b: [u32; 2]| [a[0].max(b[0]), a[1] + b[1]];
    run(4, Some(Split { piece: 1, overlap: 0, join }));
}
