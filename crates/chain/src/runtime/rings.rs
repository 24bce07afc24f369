//! Rings between threads, and the other data that threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use thalweg_packet::{Batch, Lanes, Packet};

/// The capacity of a ring, in packets.
pub(super) const RING: usize = 1024;
/// Polls without work before a thread yields to others.
const SPINS: u32 = 64;
/// Polls without work before it sleeps: some milliseconds of silence.
const LOOKS: u32 = 10_000;
/// The length of its sleep. Rings and the receive rings of interfaces hold the packets that arrive
/// meanwhile.
const NAP: Duration = Duration::from_micros(50);

/// The sending end of a ring, with the queue before it.
pub(super) struct Sender<T> {
    pub(super) ring: Producer<T>,
    pub(super) queue: VecDeque<T>,
}

impl<T> Sender<T> {
    pub(super) fn send(&mut self, item: T) {
        self.queue.push_back(item);
    }

    /// Moves items from the queue into the ring while they fit; returns whether any moved.
    pub(super) fn push(&mut self) -> bool {
        let mut moved = false;
        while let Some(item) = self.queue.pop_front() {
            match self.ring.push(item) {
                Ok(()) => moved = true,
                Err(rtrb::PushError::Full(item)) => {
                    self.queue.push_front(item);
                    break;
                }
            }
        }
        moved
    }
}

impl Sender<Packet> {
    /// Takes the packets of `lanes` out of the batch and queues them.
    pub(super) fn send_from(&mut self, batch: &mut Batch, lanes: Lanes) {
        for packet in lanes.into_iter().filter_map(|lane| batch.take(lane)) {
            self.send(packet);
        }
    }
}

pub(super) fn ring<T>() -> (Sender<T>, Consumer<T>) {
    let (ring, consumer) = RingBuffer::new(RING);
    (Sender { ring, queue: VecDeque::new() }, consumer)
}

/// Fills `batch` (empty) from a ring; returns whether the ring had a packet.
pub(super) fn fill(batch: &mut Batch, ring: &mut Consumer<Packet>) -> bool {
    while batch.vacant().is_some() {
        let Ok(packet) = ring.pop() else { break };
        if batch.push(packet).is_err() {
            unreachable!("the batch has an empty lane");
        }
    }
    !batch.is_empty()
}

/// The data that threads share in addition to rings.
pub(super) struct Shared {
    pub(super) end: AtomicBool,
    /// The number of requests to write out.
    pub(super) exports: AtomicU32,
    pub(super) drops: AtomicU64,
    pub(super) failures: Mutex<Vec<String>>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            end: AtomicBool::new(false),
            exports: AtomicU32::new(0),
            drops: AtomicU64::new(0),
            failures: Mutex::new(Vec::new()),
        }
    }

    /// Whether writing out was requested since `seen` requests; updates `seen`.
    pub(super) fn requests_export(&self, seen: &mut u32) -> bool {
        let requests = self.exports.load(Ordering::Relaxed);
        std::mem::replace(seen, requests) != requests
    }

    pub(super) fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn fail(&self, more: Vec<String>) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.extend(more);
    }
}

/// Ends the run if the thread that holds it panics, so that the others do not wait for its
/// packets forever.
pub(super) struct Alarm(pub(super) Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end.store(true, Ordering::Release);
        }
    }
}

/// Waits longer the longer there is no work.
#[derive(Default)]
pub(super) struct Idle(u32);

impl Idle {
    pub(super) fn worked(&mut self, worked: bool) {
        if worked {
            self.0 = 0;
        } else {
            self.0 = self.0.saturating_add(1);
            match self.0 {
                ..SPINS => std::hint::spin_loop(),
                SPINS..LOOKS => thread::yield_now(),
                LOOKS.. => thread::sleep(NAP),
            }
        }
    }
}
