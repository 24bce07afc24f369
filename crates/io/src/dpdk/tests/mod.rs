//! Virtual devices of DPDK, those with an interface in a network namespace of the test's own thread.
//!
//! `unsafe` here: unshare(2), for a thread that no other test uses.
#![allow(unsafe_code)]

mod faults;
mod interfaces;
mod rings;

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Pool};
use thalweg_testkit::peer;

use super::eal;
use super::input::DpdkInput;
use super::output::DpdkOutput;
use super::settings::{Device, DpdkSettings};
use crate::port::{Input, Output};

/// One test at a time: devices are found by their names.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a test with DPDK, which has the drivers of virtual devices.
fn with_dpdk(test: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    eal::start().unwrap();
    test();
}

/// Runs a test in a new network namespace with a veth pair, `near` and `far`, or reports that this
/// user may not.
fn laboratory(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: takes no pointer; only this thread, which ends with the test, changes its namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            peer::missing("devices of DPDK with interfaces: root");
            return;
        }
        ip("link add near type veth peer name far");
        for name in ["near", "far"] {
            ip(&format!("link set {name} addrgenmode none"));
            ip(&format!("link set {name} up"));
        }
        test();
    };
    with_dpdk(|| {
        if let Err(panic) = thread::spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs ip(8); it is in the namespace of the thread.
fn ip(arguments: &str) {
    let ip =
        ["/usr/sbin/ip", "/sbin/ip"].into_iter().find(|path| std::path::Path::new(path).exists());
    let status = Command::new(ip.unwrap_or("ip")).args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::anonymous_with(4096, 2048, 4).unwrap())
}

fn settings(device: &str) -> DpdkSettings {
    DpdkSettings {
        device: Device::read(device).unwrap(),
        queues: 1,
        descriptors: 256,
        mtu: None,
        promiscuous: true,
        drop_bad_checksums: false,
        complete_checksums: None,
        idle_sleep_us: 50,
        force: false,
    }
}

fn input(settings: &DpdkSettings, pool: &Arc<Pool>) -> DpdkInput {
    DpdkInput::open(settings, pool, 1).unwrap().remove(0)
}

fn output(settings: &DpdkSettings, pool: &Arc<Pool>) -> DpdkOutput {
    DpdkOutput::open(settings, pool, 1).unwrap().remove(0)
}

/// A packet of `len` bytes that differs from those with other numbers.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    bytes.extend(
        (0..).map(|at: usize| (at.wrapping_mul(31) ^ number.wrapping_mul(7)) as u8).take(len - 14),
    );
    bytes
}

/// The batch of packets.
fn filled(pool: &Arc<Pool>, packets: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new(pool.clone());
    for bytes in packets {
        batch.push_bytes(bytes).expect("the batch has room");
    }
    batch
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

/// The places of a batch's packets in memory.
fn places(batch: &Batch) -> Vec<*const u8> {
    batch.lanes().into_iter().map(|lane| batch.bytes(lane).as_ptr()).collect()
}
