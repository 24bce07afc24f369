//! Links against a clock that the tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Nanoseconds, Pool};

use super::input::ModelledLink;
use super::{LinkModel, LinkState, ModelledInput};
use crate::MemoryInput;
use crate::port::Input;

const MICROSECOND: u64 = 1_000_000;

/// An input of packets of 1,226 bytes, 1,250 on the wire, by a link; and its clock, in picoseconds.
fn input(model: LinkModel, packets: u64) -> (ModelledInput, Arc<AtomicU64>, Batch) {
    let pool = Arc::new(Pool::anonymous(4096, 2048).unwrap());
    let packet = |number: u64| {
        let mut bytes = vec![0; 1226];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        (Nanoseconds(number), bytes)
    };
    let packets = MemoryInput::from_packets((0..packets).map(packet), 1);
    let clock = Arc::new(AtomicU64::new(0));
    let reads = clock.clone();
    let link = ModelledLink::new(model);
    let by = move || reads.load(Ordering::Relaxed);
    let input = ModelledInput::with_clock(Box::new(packets), link, pool.clone(), by);
    (input, clock, Batch::new(pool))
}

/// The numbers of the packets that are received now.
fn receive(input: &mut ModelledInput, batch: &mut Batch, drops: &mut DropCounts) -> Vec<u64> {
    let before = drops.total();
    let received = input.receive(batch, BATCH, drops).unwrap();
    assert_eq!(received.packets as u64, batch.len() as u64 + drops.total() - before);
    assert_eq!(received.bytes, 1226 * received.packets as u64);
    let number = |lane| u64::from_be_bytes(*batch.bytes(lane).first_chunk().unwrap());
    let numbers = batch.lanes().into_iter().map(number).collect();
    batch.release(Lanes::ALL);
    numbers
}

#[test]
fn packets_arrive_by_bandwidth_latency_and_core() {
    // 1,250 bytes take 1 us at 10 Gbit/s, and 2 us of the core.
    let model = LinkModel { bandwidth_mbps: 10_000, latency_us: 50, ..LinkModel::default() };
    for (model, first, step) in [(model, 51, 1), (LinkModel { packet_ns: 2000, ..model }, 53, 2)] {
        let (mut input, clock, mut batch) = input(model, 20);
        let mut drops = DropCounts::default();
        let mut arrivals = Vec::new();
        for now in 0..200 {
            clock.store(now * MICROSECOND, Ordering::Relaxed);
            let numbers = receive(&mut input, &mut batch, &mut drops);
            arrivals.extend(numbers.into_iter().map(|number| (number, now)));
        }
        let expected: Vec<_> = (0..20).map(|number| (number, first + step * number)).collect();
        assert_eq!(arrivals, expected);
        assert!(input.receive(&mut batch, BATCH, &mut drops).unwrap().ended);
    }
}

#[test]
fn a_burst_passes_at_once_after_a_pause() {
    let burst_bytes = 5 * 1250;
    let model = LinkModel { bandwidth_mbps: 10_000, burst_bytes, ..LinkModel::default() };
    let mut state = LinkState::default();
    let sent: Vec<_> = (0..8).map(|_| state.pass(&model, 0, 1226) / MICROSECOND).collect();
    assert_eq!(sent, [0, 0, 0, 0, 0, 1, 2, 3]);
    let later = 100 * MICROSECOND;
    let sent: Vec<_> = (0..6).map(|_| state.pass(&model, later, 1226) / MICROSECOND).collect();
    assert_eq!(sent, [100, 100, 100, 100, 100, 101], "the tokens are full again, and no fuller");
}

#[test]
fn what_finds_the_queue_full_is_dropped_and_counted() {
    let model = LinkModel { latency_us: 10, queue: 100, ..LinkModel::default() };
    let (mut input, clock, mut batch) = input(model, 256);
    let pool = batch.pool().clone();
    let mut drops = DropCounts::default();
    assert!(receive(&mut input, &mut batch, &mut drops).is_empty());
    assert_eq!(drops.get(DropReason::ReceiveRingFull), 156);
    assert!(input.descriptor().is_none(), "it does not sleep");
    clock.store(10 * MICROSECOND, Ordering::Relaxed);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        numbers.extend(receive(&mut input, &mut batch, &mut drops));
    }
    assert_eq!(numbers, (0..96).collect::<Vec<_>>());
    drop((input, batch));
    assert_eq!(pool.in_use(), 0, "those under way are given back");
}

#[test]
fn values_out_of_range_are_named() {
    let wrong = LinkModel { latency_us: 10_000_001, ..LinkModel::default() };
    assert_eq!(wrong.mistake(), Some(("latency_us", 10_000_001, "0 to 10000000")));
    let wrong = LinkModel { queue: 0, ..LinkModel::default() };
    assert_eq!(wrong.mistake(), Some(("queue", 0, "1 to 65536")));
    assert_eq!(LinkModel::default().mistake(), None);
}

proptest! {
    /// Never faster than the bandwidth with its burst, never sooner than the latency, in order.
    #[test]
    fn no_traffic_is_faster_than_its_link(
        (bandwidth_mbps, burst_bytes) in (1..100_000_u32, 0..20_000_u32),
        (latency_us, packet_ns) in (0..1000_u32, 0..5000_u32),
        packets in proptest::collection::vec((0..50 * MICROSECOND, 14..9000_usize), 1..200),
    ) {
        let model = LinkModel { bandwidth_mbps, burst_bytes, latency_us, packet_ns, queue: 1 };
        let (mut state, mut now, mut last) = (LinkState::default(), 0, 0);
        let (mut bytes, latency) = (0, u64::from(latency_us) * MICROSECOND);
        for (at, (pause, len)) in (1..).zip(&packets) {
            now += pause;
            let due = state.pass(&model, now, *len);
            prop_assert!(due >= now + latency + u64::from(packet_ns) * 1000);
            prop_assert!(due >= last + u64::from(packet_ns) * 1000);
            prop_assert!(due >= latency + at * u64::from(packet_ns) * 1000);
            bytes += *len as u64 + 24;
            let least = model.time_of(bytes.saturating_sub(burst_bytes.into()));
            // Each packet's time is rounded down.
            prop_assert!(due + at + 1 >= latency + least, "{} {}", due, least);
            last = due;
        }
    }
}
