//! ESP on devices: what the portable code returns, byte for byte.

#[path = "../../../accel/tests/common/mod.rs"]
mod common;

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::backends;
use proptest::prelude::*;
use thalweg_accel::{Accelerator, Backend, Job, Options, Partition, Syncer};
use thalweg_ipsec::device::{DONE, ESP, ESP_SLICED, REFUSED, argument, table};
use thalweg_nf::device::DeviceFunction;
use thalweg_packet::Pool;

/// A packet: the association, the blocks of the body, the upper half of the number, what fills it, and
/// a byte to be changed before it is opened.
type Packet = (usize, usize, Option<u32>, u8, Option<usize>);

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let blocks = prop_oneof![4 => 1usize..12, 1 => 1usize..90];
    let changed = proptest::option::weighted(0.2, 0usize..2000);
    let packet = (0..3usize, blocks, proptest::option::of(any::<u32>()), any::<u8>(), changed);
    proptest::collection::vec(packet, 1..100)
}

/// The keys of the associations.
fn keys() -> Vec<([u8; 16], [u8; 20])> {
    let keys = |n: u8| {
        (std::array::from_fn(|at| n * 7 + at as u8), std::array::from_fn(|at| n + at as u8))
    };
    (0..3).map(keys).collect()
}

/// Starts a form of ESP with this table on a device, and a pool in its memory.
fn start(
    backend: &dyn Backend,
    function: DeviceFunction,
    table: &[u8],
) -> (Accelerator, Arc<Pool>) {
    let memory = backend.allocate(Pool::region_len(128, 2048)).unwrap();
    let pool = Arc::new(Pool::new(memory, 2048).unwrap());
    let partition = Partition { function, table: table.to_vec().into(), work_groups: 1 };
    let options = Options { patience: Duration::from_secs(20), ..Options::default() };
    (Accelerator::start(backend, vec![partition], options, pool.clone()).unwrap(), pool)
}

/// Sends all packets through the device; returns their results and bytes.
fn through(
    syncer: &mut Syncer<usize>,
    pool: &Pool,
    packets: &[(Vec<u8>, [u32; 2])],
) -> Vec<(u32, Vec<u8>)> {
    let mut back = vec![None; packets.len()];
    for (tag, (bytes, argument)) in packets.iter().enumerate() {
        let mut frame = pool.take().unwrap();
        pool.bytes_mut(&mut frame)[130..][..bytes.len()].copy_from_slice(bytes);
        let job = Job { frame, bytes: 130..130 + bytes.len(), argument: *argument, tag };
        syncer.submit(0, job).unwrap();
    }
    while syncer.under_way() > 0 {
        let moved = syncer.poll(|done| {
            let bytes = pool.bytes(&done.frame)[130..][..packets[done.tag].0.len()].to_vec();
            back[done.tag] = Some((done.result[0], bytes));
            pool.give_back([done.frame]);
        });
        if moved.unwrap() == 0 {
            thread::yield_now();
        }
    }
    back.into_iter().map(Option::unwrap).collect()
}

#[test]
fn packets_are_sealed_and_opened_as_by_the_portable_code() {
    sealed_and_opened(ESP);
}

#[test]
fn an_aes_in_planes_of_bits_seals_and_opens_the_same() {
    sealed_and_opened(ESP_SLICED);
}

/// Compares a form with the portable code, on all devices.
fn sealed_and_opened(form: DeviceFunction) {
    let keys = keys();
    let associations: Vec<_> = keys.iter().map(|(key, auth_key)| (key, auth_key)).collect();
    let table = table(&associations);
    let devices = backends();
    for backend in &devices.all {
        let (mut accelerator, pool) = start(&**backend, form, &table);
        let syncer = RefCell::new(accelerator.syncers(1).unwrap().remove(0));
        let cases = ProptestConfig::with_cases(thalweg_testkit::cases(30));
        let (sealed, refused) = (RefCell::new(0), RefCell::new(0));
        proptest!(cases, |(packets in packets())| {
            let clear = |(sa, blocks, high, fill, _): &Packet| {
                let bytes = (0..24 + 16 * blocks + 12).map(|at| fill.wrapping_add((at * at) as u8));
                (bytes.collect::<Vec<u8>>(), argument(*sa, false, *high))
            };
            let clear: Vec<_> = packets.iter().map(clear).collect();
            let there = through(&mut syncer.borrow_mut(), &pool, &clear);
            let mut arriving = Vec::new();
            for ((result, bytes), ((before, to), packet)) in there.into_iter().zip(clear.iter().zip(&packets)) {
                let mut expected = before.clone();
                prop_assert_eq!((ESP.scalar)(&mut expected, *to, &table)[0], DONE);
                prop_assert_eq!((result, &bytes), (DONE, &expected));
                let (sa, _, high, _, changed) = packet;
                let mut bytes = bytes;
                if let Some(at) = changed {
                    let at = at % bytes.len();
                    bytes[at] ^= 1;
                }
                arriving.push((bytes, argument(*sa, true, *high)));
            }
            let back = through(&mut syncer.borrow_mut(), &pool, &arriving);
            for ((result, bytes), ((before, to), packet)) in back.into_iter().zip(arriving.iter().zip(&packets)) {
                let mut expected = before.clone();
                let right = (ESP.scalar)(&mut expected, *to, &table)[0];
                prop_assert_eq!(right, if packet.4.is_some() { REFUSED } else { DONE });
                prop_assert_eq!((result, bytes), (right, expected));
                *(if right == DONE { &sealed } else { &refused }).borrow_mut() += 1;
            }
        });
        assert!(*sealed.borrow() > 100 && *refused.borrow() > 10, "both happen");
        assert!(accelerator.stop());
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn bytes_that_are_no_packet_stay_as_they_are() {
    let keys = keys();
    let table = table(&[(&keys[0].0, &keys[0].1)]);
    let devices = backends();
    for (backend, form) in
        devices.all.iter().flat_map(|backend| [(backend, ESP), (backend, ESP_SLICED)])
    {
        let (mut accelerator, pool) = start(&**backend, form, &table);
        let mut syncer = accelerator.syncers(1).unwrap().remove(0);
        let packets: Vec<_> = (0..80)
            .flat_map(|len| [(vec![7u8; len], argument(0, len % 2 == 0, None))])
            .filter(|(bytes, _)| bytes.len() < 52 || (bytes.len() - 36) % 16 != 0)
            .chain([
                (vec![7; 52], argument(1, false, None)),
                (vec![7; 52], argument(9999, true, Some(1))),
            ])
            .collect();
        for ((result, bytes), (before, to)) in
            through(&mut syncer, &pool, &packets).into_iter().zip(&packets)
        {
            assert_eq!((result, &bytes), (0, before), "{to:?}");
            assert_eq!((ESP.scalar)(&mut before.clone(), *to, &table), [0, 0]);
        }
    }
}
