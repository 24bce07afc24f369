//! The lookup of next hops on devices: what the portable code returns.

#[path = "../../../accel/tests/common/mod.rs"]
mod common;

use std::thread;
use std::time::Duration;

use common::backends;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use thalweg_accel::{Accelerator, Job, Options, Partition};
use thalweg_packet::Pool;
use thalweg_router::device::{HOP, MOST_BYTES};
use thalweg_router::{NextHop, Prefix, RouteTable, RouterPort};

#[test]
fn next_hops_are_found_as_by_the_portable_code() {
    let mut random = StdRng::seed_from_u64(7);
    let table = RouteTable::new();
    for number in 0..3000u16 {
        let hop = NextHop::Direct { port: RouterPort(number) };
        // Most near each other, so that they lie in each other.
        let v4: u32 = random.random::<u32>() & 0x3f0f_0fff;
        table.add(Prefix::holding(v4, random.random_range(0..=32)), hop.clone()).unwrap();
        let v6: u128 = random.random::<u128>() & 0x3f03_0303_0303_0303_0303 << 48;
        table.add(Prefix::holding(v6, random.random_range(0..=128)), hop).unwrap();
    }
    let (words, _) = table.for_device(MOST_BYTES);
    let devices = backends();
    for backend in &devices.all {
        let pool = Pool::new(backend.allocate(Pool::region_len(128, 2048)).unwrap(), 2048);
        let pool = Arc::new(pool.unwrap());
        let partition = Partition { function: HOP, table: words.clone().into(), work_groups: 1 };
        let options = Options { patience: Duration::from_secs(20), ..Options::default() };
        let mut accelerator =
            Accelerator::start(&**backend, vec![partition], options, pool.clone()).unwrap();
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        let mut hops = std::collections::BTreeSet::new();
        for _ in 0..thalweg_testkit::cases(100) {
            for _ in 0..100 {
                let mut frame = pool.take().unwrap();
                let len = [4, 16, 4, 16, 0, 7][random.random_range(0..6)];
                let bytes = &mut pool.bytes_mut(&mut frame)[131..][..len];
                bytes.iter_mut().for_each(|byte| *byte = random.random::<u8>() & 0x3f);
                let expected = (HOP.scalar)(&mut bytes.to_vec(), [0; 2], &words);
                let job = Job { frame, bytes: 131..131 + len, argument: [0; 2], tag: expected };
                syncer.submit(0, job).unwrap();
            }
            while syncer.under_way() > 0 {
                let moved = syncer.poll(|done| {
                    assert_eq!(done.result, done.tag);
                    hops.insert(done.result[0]);
                    pool.give_back([done.frame]);
                });
                if moved.unwrap() == 0 {
                    thread::yield_now();
                }
            }
        }
        assert!(hops.len() > 50, "many next hops: {}", hops.len());
        drop(syncer);
        assert!(accelerator.stop());
    }
}
