//! That the checks can fail: each kind of fault of a run is found, and named.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::chain::{ARRIVING, Frame, Generation};
use super::ledger::Ledger;
use super::outcome::check;
use super::packet::{FLOWS, Packet};
use super::pipes::{Pipe, Shared, open, read};
use super::random::Random;
use crate::support::pipe;

/// Packets of each flow.
const EACH: usize = 20;

/// The ledger of packets that were sent to a gate, and those that it lets pass, in the order of their sending.
fn sent() -> (Ledger, Vec<Vec<u8>>) {
    let (frame, mut random) = (Frame::of_rings(), Random::new(7));
    let mut ledger = Ledger::new(frame.streams(), Generation::gate());
    let mut packets = Vec::new();
    for number in 0..EACH * FLOWS {
        let flow = number % FLOWS;
        let stream = frame.stream(frame.place_of(flow));
        // The last one of each flow passes.
        let is_kept = number >= (EACH - 1) * FLOWS;
        packets.push(ledger.send(stream, flow, is_kept, &mut random));
    }
    let is_low = |packet: &Vec<u8>| packet[15] == 32;
    assert!(packets.iter().any(is_low), "the gate drops some");
    packets.retain(|packet| !is_low(packet));
    (ledger, packets)
}

/// Lets packets arrive; returns what is found.
fn arrive(ledger: &mut Ledger, packets: &[Vec<u8>]) -> Result<(), String> {
    packets.iter().try_for_each(|packet| ledger.arrive(packet))
}

/// What a run reports that has received all packets in `ledger`.
fn report(ledger: &Ledger) -> Value {
    let (all, frame) = (ledger.sent(), Frame::of_rings());
    let mut queues = vec![0; frame.streams()];
    for flow in 0..FLOWS {
        queues[frame.stream(frame.place_of(flow))] += EACH as u64;
    }
    let input = |queues: &[u64]| {
        let of_queues: Vec<_> =
            queues.iter().map(|packets| json!({ "packets": packets })).collect();
        json!({ "packets": queues.iter().sum::<u64>(), "queues": of_queues })
    };
    let inputs: Vec<_> = queues.chunks(frame.queues()).map(input).collect();
    json!({
        "inputs": inputs,
        "packets_in": all,
        "packets_out": ledger.arrived,
        "packets_dropped": all - ledger.arrived,
        "leaked_frames": 0,
        "conserved": true,
        "failures": [],
    })
}

#[test]
fn a_run_without_faults_passes_all_checks() {
    let (mut ledger, packets) = sent();
    arrive(&mut ledger, &packets).unwrap();
    assert!(ledger.has_all());
    let counts = check(&report(&ledger), &Frame::of_rings(), &ledger).unwrap();
    assert_eq!(counts.received, (EACH * FLOWS) as u64);
    assert_eq!(counts.dropped, counts.received - packets.len() as u64);
    assert!(counts.dropped > 0);
}

/// Where the second packet is of the flow of packet number `at`.
fn next_of_flow(packets: &[Vec<u8>], at: usize) -> usize {
    let flow = |packet: &[u8]| Packet::claimed(packet).unwrap().0;
    let of_flow = |packet: &Vec<u8>| flow(packet) == flow(&packets[at]);
    at + 1 + packets[at + 1..].iter().position(of_flow).unwrap()
}

/// A fault of a run: changes the packets that leave it.
type Fault = fn(&mut Vec<Vec<u8>>);

#[test]
fn each_fault_in_the_packets_that_arrive_is_found() {
    let faults: [(&str, Fault, &str); 9] = [
        ("lost", |packets| drop(packets.remove(100)), "did not arrive before"),
        (
            "doubled",
            |packets| {
                let packet = packets[100].clone();
                packets.insert(105, packet);
            },
            "arrived twice",
        ),
        (
            "in another order",
            |packets| {
                let next = next_of_flow(packets, 100);
                packets.swap(100, next);
            },
            "did not arrive before",
        ),
        ("a bit of the payload is another one", |packets| packets[100][60] ^= 1, "arrived as"),
        ("a bit of the header is another one", |packets| packets[100][29] ^= 1, "arrived as"),
        ("too short", |packets| packets[100].truncate(52), "arrived as"),
        ("to another hop", |packets| packets[100][5] ^= 1, "arrived to"),
        ("still sealed", |packets| packets[100][23] = 50, "not clear"),
        ("of no one", |packets| packets[100][48] ^= 1, "was never sent"),
    ];
    for (what, fault, expected) in faults {
        let (mut ledger, mut packets) = sent();
        fault(&mut packets);
        let found = arrive(&mut ledger, &packets).unwrap_err();
        assert!(found.contains(expected), "{what}: {found}");
    }
}

/// A packet that the gate drops, and that of its flow after it.
#[test]
fn packets_that_an_nf_may_drop_arrive_in_their_order_or_to_the_right_hop_too() {
    let mut random = Random::new(11);
    let mut ledger = Ledger::new(1, Generation::gate());
    let packets: Vec<_> = (0..200).map(|_| ledger.send(0, 0, false, &mut random)).collect();
    let low = packets.iter().position(|packet| packet[15] == 32).unwrap();
    arrive(&mut ledger, &packets[..low]).unwrap();
    let found = ledger.arrive(&packets[low]).unwrap_err();
    assert!(found.contains("expected one of [None]"), "{found}");
    let after = low + 1 + packets[low + 1..].iter().position(|packet| packet[15] == 0).unwrap();
    ledger.arrive(&packets[after]).unwrap();
    let found = ledger.arrive(&packets[low]).unwrap_err();
    assert!(found.contains("arrived out of order"), "{found}");
}

/// Both generations may have had what was sent before a reload was done; only the next one what was sent
/// after it.
#[test]
fn the_routes_before_a_reload_are_wrong_after_it() {
    let mut random = Random::new(13);
    let open = |random: &mut Random| loop {
        let generation = Generation::random(random, &Frame::of_rings());
        if (0..FLOWS).all(|flow| generation.fate(flow, super::packet::Mark::Low) == Some(ARRIVING))
        {
            return generation;
        }
    };
    let mut ledger = Ledger::new(1, open(&mut random));
    ledger.requested(Generation::gate());
    let is_low = |packet: &Vec<u8>| packet[15] == 32;
    let before: Vec<_> = (0..100).map(|_| ledger.send(0, 0, false, &mut random)).collect();
    ledger.reloaded();
    let after: Vec<_> = (0..100).map(|_| ledger.send(0, 0, false, &mut random)).collect();
    let (first, second) = (before.iter().position(is_low), after.iter().position(is_low));
    arrive(&mut ledger, &before[..=first.unwrap()]).unwrap();
    arrive(&mut ledger, &before[first.unwrap() + 1..]).unwrap();
    arrive(&mut ledger, &after[..second.unwrap()]).unwrap();
    let found = ledger.arrive(&after[second.unwrap()]).unwrap_err();
    assert!(found.contains("expected one of [None]"), "{found}");
}

#[test]
fn packets_that_are_missing_at_the_end_are_found() {
    let (mut ledger, packets) = sent();
    arrive(&mut ledger, &packets[..packets.len() - 1]).unwrap();
    let found = check(&report(&ledger), &Frame::of_rings(), &ledger).unwrap_err();
    assert!(found.contains("is lost: no NF drops it"), "{found}");
}

/// A wrong report: changes one that is right.
type Wrong = fn(&mut Value);

fn more(value: &mut Value, by: i64) {
    *value = (value.as_i64().unwrap() + by).into();
}

#[test]
fn each_wrong_count_of_a_report_is_found() {
    let (mut ledger, packets) = sent();
    arrive(&mut ledger, &packets).unwrap();
    let wrongs: [(Wrong, &str); 12] = [
        (|report| more(&mut report["packets_in"], 1), "do not balance"),
        (|report| more(&mut report["packets_out"], -1), "do not balance"),
        (|report| more(&mut report["packets_dropped"], 1), "do not balance"),
        (|report| more(&mut report["leaked_frames"], 1), "do not balance"),
        (|report| drop(report["packets_in"].take()), "do not balance"),
        (|report| more(&mut report["inputs"][1]["packets"], 1), "do not balance"),
        (|report| more(&mut report["inputs"][1]["queues"][0]["packets"], 1), "packets of"),
        // The first packets, and no others, must have been received.
        (|report| more(&mut report["inputs"][1]["queues"][0]["packets"], -1), "not received"),
        (|report| drop(report["inputs"][0]["queues"][0].take()), "packets of"),
        (|report| drop(report["inputs"][0].take()), "queues instead of"),
        (|report| report["conserved"] = false.into(), "a failure"),
        (|report| report["failures"] = json!(["a device"]), "a failure"),
    ];
    for (number, (wrong, expected)) in wrongs.into_iter().enumerate() {
        let mut report = report(&ledger);
        wrong(&mut report);
        let found = check(&report, &Frame::of_rings(), &ledger).unwrap_err();
        assert!(found.contains(expected), "{number}: {found}");
    }
}

/// A run that takes no packets, and one that has them and returns none.
#[test]
fn a_run_that_stands_still_is_found() {
    let folder = tempfile::tempdir().unwrap();
    pipe(folder.path(), "in.pcap");
    pipe(folder.path(), "out.pcap");
    let (ledger, packets) = sent();
    let mut shared = Shared::new(ledger);
    shared.patience = Duration::from_millis(50);
    let (_unread, unwritten) =
        (open(&folder.path().join("in.pcap")), open(&folder.path().join("out.pcap")));
    let mut feed = Pipe::open(&folder.path().join("in.pcap"), &shared).unwrap();
    let mut random = Random::new(1);
    let found = thread::scope(|scope| {
        scope.spawn(|| read(unwritten, &shared));
        let sends = (0..100).try_for_each(|_| feed.send(&packets, &mut random, &shared));
        let waits = shared.await_all(|| Ok(()));
        shared.over.store(true, Ordering::Release);
        [sends, waits].map(Result::unwrap_err)
    });
    assert!(found[0].contains("no packet was received for 50ms"), "{found:?}");
    assert!(found[1].contains("stands for 50ms: 0 of 480 have arrived"), "{found:?}");
}
