//! The search for literals on devices: what the portable code returns.

#[path = "../../../accel/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::backends;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use thalweg_accel::{Accelerator, Backend, Job, Options, Partition, Syncer};
use thalweg_nf::device::{DeviceFunction, Split};
use thalweg_nids::device::{Automaton, KINDS, LITERALS, Literal};
use thalweg_packet::Pool;

/// A payload and the kind of its packet, which may be none.
type Payload = (Vec<u8>, u32);

/// Where a packet begins in its frame.
const START: usize = 131;

fn bytes(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => b'a'..b'e', 2 => b'A'..b'E', 1 => any::<u8>()];
    proptest::collection::vec(byte, length)
}

fn literals() -> impl Strategy<Value = Vec<Literal>> {
    let literal = (0..KINDS, 0..32u32, prop_oneof![4 => bytes(2..9), 1 => bytes(9..30)]);
    let literal = literal.prop_map(|(kind, group, bytes)| Literal {
        kind,
        groups: 1 << group,
        bytes: bytes.to_ascii_lowercase(),
    });
    proptest::collection::vec(literal, 1..400)
}

/// Payloads with literals in them, short and long.
fn payloads(literals: &[Literal]) -> impl Strategy<Value = Vec<Payload>> + use<> {
    let all: Vec<_> = literals.iter().map(|literal| literal.bytes.clone()).collect();
    let filler = (0..90usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
    let part = prop_oneof![2 => prop::sample::select(all), 1 => filler];
    let parts = proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat());
    let length = prop_oneof![6 => 0..80usize, 1 => 0..1800usize];
    let bytes = prop_oneof![
        length.clone().prop_flat_map(bytes),
        // Random bytes, and what stays in states far from the first.
        length.clone().prop_flat_map(|length| proptest::collection::vec(any::<u8>(), length)),
        (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        parts,
    ];
    proptest::collection::vec((bytes, 0..KINDS as u32 + 1), 100)
}

/// Starts the search with this table on a device, in pieces from more than `piece` bytes on, and a pool in its
/// memory.
fn start(backend: &dyn Backend, table: &[u8], piece: usize) -> (Accelerator, Arc<Pool>) {
    let memory = backend.allocate(Pool::region_len(128, 2048)).unwrap();
    let pool = Arc::new(Pool::new(memory, 2048).unwrap());
    let split = LITERALS.split.map(|split| Split { piece, ..split });
    let function = DeviceFunction { split, ..LITERALS };
    let partition = Partition { function, table: table.to_vec().into(), work_groups: 1 };
    let options = Options { patience: Duration::from_secs(20), ..Options::default() };
    (Accelerator::start(backend, vec![partition], options, pool.clone()).unwrap(), pool)
}

/// Sends all payloads through the device; returns its results.
fn through(syncer: &mut Syncer<usize>, pool: &Pool, payloads: &[Payload]) -> Vec<[u32; 2]> {
    let mut back = vec![None; payloads.len()];
    let mut waiting: VecDeque<Job<usize>> = VecDeque::new();
    for (tag, (bytes, kind)) in payloads.iter().enumerate() {
        let mut frame = pool.take().unwrap();
        pool.bytes_mut(&mut frame)[START..][..bytes.len()].copy_from_slice(bytes);
        let argument = [*kind, 0];
        waiting.push_back(Job { frame, bytes: START..START + bytes.len(), argument, tag });
    }
    while syncer.under_way() + waiting.len() > 0 {
        while let Some(job) = waiting.pop_front() {
            if let Err(job) = syncer.submit(0, job) {
                waiting.push_front(job);
                break;
            }
        }
        let moved = syncer.poll(|done| {
            let (bytes, _) = &payloads[done.tag];
            assert_eq!(pool.bytes(&done.frame)[START..][..bytes.len()], bytes[..], "untouched");
            back[done.tag] = Some(done.result);
            pool.give_back([done.frame]);
        });
        if moved.unwrap() == 0 {
            thread::yield_now();
        }
    }
    back.into_iter().map(Option::unwrap).collect()
}

#[test]
fn literals_are_found_as_by_the_portable_code() {
    let devices = backends();
    let mut random = TestRunner::new(ProptestConfig::default());
    for backend in &devices.all {
        let (mut none, mut some) = (0, 0);
        // A kernel starts with one table, so tables are few and payloads many.
        for piece in [usize::MAX, LITERALS.split.unwrap().piece, 70, 1] {
            let literals = literals().new_tree(&mut random).unwrap().current();
            let automaton = Automaton::new(&literals);
            let (mut accelerator, pool) = start(&**backend, automaton.table(), piece);
            let mut syncer = accelerator.syncers(1).unwrap().remove(0);
            for _ in 0..thalweg_testkit::cases(20) {
                let payloads = payloads(&literals).new_tree(&mut random).unwrap().current();
                let results = through(&mut syncer, &pool, &payloads);
                for ((bytes, kind), result) in payloads.iter().zip(results) {
                    let expected =
                        (LITERALS.scalar)(&mut bytes.clone(), [*kind, 0], automaton.table());
                    assert_eq!(result, expected, "{bytes:?} of kind {kind} for {literals:?}");
                    *(if result[0] == 0 { &mut none } else { &mut some }) += 1;
                }
            }
            drop(syncer);
            assert!(accelerator.stop());
            assert_eq!(pool.in_use(), 0);
        }
        assert!(none > 100 && some > 100, "both happen: {none}, {some}");
    }
}
