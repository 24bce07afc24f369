//! Queues of veth pairs, each test in a network namespace of its own thread.
//!
//! `unsafe` here: unshare(2), for a thread that no other test uses.
#![allow(unsafe_code)]

mod faults;
mod packets;
mod programs;

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Pool};
use thalweg_testkit::peer;

use super::*;
use crate::bpf::SocketMap;
use crate::port::{Input, Output};
use crate::{InterfaceInput, InterfaceOutput};

/// One test at a time: indexes of interfaces, by which open queues are found, repeat in namespaces.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a test in a new network namespace with a veth pair, `near` and `far`, or reports that this
/// user may not.
fn laboratory(test: impl FnOnce() + Send + 'static) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let run = move || {
        // SAFETY: takes no pointer; only this thread, which ends with the test, changes its namespace.
        let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        if made != 0 || SocketMap::new(1).is_err() {
            peer::missing("AF_XDP: root, in the first user namespace");
            return;
        }
        ip("link add near type veth peer name far");
        ["near", "far"].into_iter().for_each(up);
        test();
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Sets an interface up, on which the kernel sends nothing by itself.
fn up(name: &str) {
    ip(&format!("link set {name} addrgenmode none"));
    ip(&format!("link set {name} up"));
}

/// Keeps this thread on a processor, if it is there.
fn stay_on(cpu: usize) {
    // SAFETY: zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is far below the size of a set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set has the length passed, and is only read.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Runs ip(8); it is in the namespace of the thread.
fn ip(arguments: &str) {
    let ip =
        ["/usr/sbin/ip", "/sbin/ip"].into_iter().find(|path| std::path::Path::new(path).exists());
    let status = Command::new(ip.unwrap_or("ip")).args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

fn pool(frame_size: usize) -> Arc<Pool> {
    Arc::new(Pool::anonymous(4096, frame_size).unwrap())
}

fn settings(mode: XdpMode) -> XdpSettings {
    XdpSettings::new("near").with_mode(mode).with_ring_size(256).unwrap()
}

/// A packet of `len` bytes that differs from those with other numbers.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    bytes.extend(
        (0..).map(|at: usize| (at.wrapping_mul(31) ^ number.wrapping_mul(7)) as u8).take(len - 14),
    );
    bytes
}

/// Receives into `batch` until it has something, for up to a second.
fn receive(input: &mut dyn Input, batch: &mut Batch, drops: &mut DropCounts) -> usize {
    let since = Instant::now();
    loop {
        let received = input.receive(batch, BATCH, drops).unwrap();
        if received.packets > 0 || since.elapsed() > Duration::from_secs(1) {
            return received.packets;
        }
        thread::yield_now();
    }
}

/// The batch of packets.
fn filled(pool: &Arc<Pool>, packets: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new(pool.clone());
    for bytes in packets {
        batch.push_bytes(bytes).expect("the batch has room");
    }
    batch
}
