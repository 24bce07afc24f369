//! Our server and our client against each other, and each against a peer that lies.

mod hostile;
mod pairs;
mod zero_copy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Pool};

use super::{MemifInput, MemifOutput, MemifSettings, Role};
use crate::port::{Input, Output};

/// Settings of both ends of a connection on a socket of its own.
fn settings(change: impl Fn(&mut MemifSettings)) -> [MemifSettings; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("@thalweg-memif-test-{}-{next}", std::process::id());
    [Role::Server, Role::Client].map(|role| {
        let mut settings = MemifSettings::new(&name, role).unwrap();
        change(&mut settings);
        settings
    })
}

/// A pool for ports that copy packets, and so do not look at it.
fn any_pool() -> Arc<Pool> {
    Arc::new(Pool::anonymous(1, 2048).unwrap())
}

fn input(settings: &MemifSettings) -> MemifInput {
    MemifInput::open(settings, &any_pool(), 1).unwrap().pop().unwrap()
}

fn output(settings: &MemifSettings) -> MemifOutput {
    MemifOutput::open(settings, &any_pool(), 1).unwrap().pop().unwrap()
}

/// A batch whose packets have up to 9 KiB and more.
fn batch() -> Batch {
    Batch::new(Arc::new(Pool::anonymous(4 * BATCH, 16_384).unwrap()))
}

/// A packet with a number.
fn packet(number: u32, len: usize) -> Vec<u8> {
    let mut packet: Vec<_> = (0..len).map(|at| (at as u32 * 7 + number) as u8).collect();
    packet[..4].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Sends one packet; returns why it was dropped, if it was.
fn send(output: &mut MemifOutput, packet: &[u8]) -> Option<DropReason> {
    let (mut batch, mut drops) = (batch(), DropCounts::default());
    batch.push_bytes(packet).unwrap();
    let sent = output.send(&batch, batch.lanes(), &mut drops).unwrap();
    assert_eq!(sent.count() as u64 + drops.total(), 1);
    DropReason::ALL.iter().copied().find(|reason| drops.get(*reason) > 0)
}

/// Sends a packet again and again until the peer is there.
fn send_at_last(output: &mut MemifOutput, packet: &[u8]) {
    until(|| match send(output, packet) {
        None => true,
        Some(reason) => {
            assert_eq!(reason, DropReason::NoPeer);
            false
        }
    });
}

/// What has arrived, and what was dropped.
fn receive(input: &mut MemifInput) -> (Vec<Vec<u8>>, DropCounts) {
    let (mut batch, mut drops, mut packets) = (batch(), DropCounts::default(), Vec::new());
    loop {
        let received = input.receive(&mut batch, BATCH, &mut drops).unwrap();
        assert!(!received.ended, "it waits for another peer");
        packets.extend(batch.lanes().into_iter().map(|lane| batch.bytes(lane).to_vec()));
        batch.release(Lanes::ALL);
        if received.packets == 0 {
            return (packets, drops);
        }
    }
}

/// Waits until a number of packets has arrived.
fn receive_many(input: &mut MemifInput, count: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    until(|| {
        packets.extend(receive(input).0);
        packets.len() >= count
    });
    assert_eq!(packets.len(), count);
    packets
}

fn until(mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(20), "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}
