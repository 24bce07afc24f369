//! Rings between threads, and what else the threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use thalweg_packet::{Batch, Packet};

/// Packets a ring holds.
pub(super) const RING: usize = 1024;
/// How often a thread looks for work in vain before it lets others run.
const SPINS: u32 = 64;
/// How often before it sleeps: some milliseconds of silence.
const LOOKS: u32 = 10_000;
/// How long it sleeps. Rings and the receive rings of interfaces hold what comes meanwhile.
const NAP: Duration = Duration::from_micros(50);

/// A ring's sending end, with the queue before it.
pub(super) struct Sender<T> {
    pub(super) ring: Producer<T>,
    pub(super) queue: VecDeque<T>,
}

impl<T> Sender<T> {
    pub(super) fn send(&mut self, item: T) {
        self.queue.push_back(item);
    }

    /// Moves what fits from the queue into the ring; whether anything moved.
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

pub(super) fn ring<T>() -> (Sender<T>, Consumer<T>) {
    let (ring, consumer) = RingBuffer::new(RING);
    (Sender { ring, queue: VecDeque::new() }, consumer)
}

/// Fills `batch` (empty) from a ring; whether there was anything.
pub(super) fn fill(batch: &mut Batch, ring: &mut Consumer<Packet>) -> bool {
    while batch.vacant().is_some() {
        let Ok(packet) = ring.pop() else { break };
        if batch.push(packet).is_err() {
            unreachable!("the batch has an empty lane");
        }
    }
    !batch.is_empty()
}

/// What the threads share beside rings.
pub(super) struct Shared {
    pub(super) end: AtomicBool,
    /// Raised by one for each request to write out.
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

    pub(super) fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn fail(&self, more: Vec<String>) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.extend(more);
    }
}

/// Ends the run when the thread that holds it dies, instead of leaving the
/// others to wait for its packets.
pub(super) struct Alarm(pub(super) Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end.store(true, Ordering::Release);
        }
    }
}

/// Waits a little longer the longer there is nothing to do.
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
