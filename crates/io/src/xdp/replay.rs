//! A hostile kernel, or driver, as the bytes of a fuzzer act it out: what it writes into the rings.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds, Pool};

use super::lent::Lent;
use super::receiver::{Receiver, Sink};
use super::ring::{Consumer, Entry, Producer};
use super::sender::Sender;
use super::settings::{Obtained, XdpMode};
use super::socket::XdpSocket;
use crate::port::Received;

/// The most steps.
const STEPS: usize = 256;
/// Frames of two chunks, so that packets may have several buffers.
const FRAME_SIZE: usize = 8192;
const CHUNK: u32 = 4096;
const FRAMES: usize = 32;
/// Entries of each ring.
const SIZE: u32 = 16;
/// Where a ring has its words and entries.
const PLACES: libc::xdp_ring_offset =
    libc::xdp_ring_offset { producer: 0, consumer: 64, flags: 128, desc: 192 };

/// A ring whose other side is played: a file in memory.
struct Played(OwnedFd);

impl Played {
    fn new() -> Self {
        let file = memfd_create("replay", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 4096).expect("memory");
        Self(file)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        pwrite(&self.0, bytes, at).expect("the file has the bytes");
    }

    fn word(&self, at: u64, value: u32) {
        self.write(at, &value.to_ne_bytes());
    }

    fn entry(&self, slot: u8, bytes: &[u8]) {
        let slot = u64::from(slot) % u64::from(SIZE);
        self.write(PLACES.desc + slot * bytes.len() as u64, bytes);
    }

    fn producer<T: Entry>(&self) -> Producer<T> {
        Producer::map(self.0.as_raw_fd(), 0, PLACES, SIZE).expect("a ring")
    }

    fn consumer<T: Entry>(&self) -> Consumer<T> {
        Consumer::map(self.0.as_raw_fd(), 0, PLACES, SIZE).expect("a ring")
    }
}

/// The rings of a socket, and how far the kernel has come in those that it fills.
struct Kernel {
    fill: Played,
    receive: Played,
    transmit: Played,
    completion: Played,
    received: u32,
    completed: u32,
}

/// Acts out a kernel.
///
/// # Panics
/// If a packet or a frame is lost, or anything else goes wrong on our side.
pub fn replay(data: &[u8]) {
    let data = &mut &*data;
    let pool = Arc::new(Pool::anonymous_with(FRAMES, FRAME_SIZE, 1).expect("frames"));
    let new = Played::new;
    let mut kernel = Kernel {
        fill: new(),
        receive: new(),
        transmit: new(),
        completion: new(),
        received: 0,
        completed: 0,
    };
    let socket = Arc::new(XdpSocket::played(Played::new().0));
    let obtained = Obtained {
        mode: XdpMode::Copy,
        multi_buffer: true,
        shares_memory: false,
        ring_size: SIZE,
        busy_poll_us: 0,
        completes_checksums: true,
        queue: 0,
        available: None,
    };
    let (fill, receive) = (kernel.fill.producer(), kernel.receive.consumer());
    let (transmit, completion) = (kernel.transmit.producer(), kernel.completion.consumer());
    let lent = || Lent::new(pool.clone());
    let mut receiver = Receiver::new(socket.clone(), fill, receive, lent(), obtained);
    let mut sender = Sender::new(socket, transmit, completion, lent(), CHUNK, obtained);
    let mut batch = Batch::new(pool.clone());
    receiver.refill();
    for _ in 0..STEPS {
        if data.is_empty() {
            break;
        }
        step(data, &mut kernel, (&mut receiver, &mut sender), &mut batch);
    }
    drop(batch);
    receiver.into_lent().give_back();
    sender.into_lent().give_back();
    assert_eq!(pool.in_use(), 0, "frames return");
}

/// What the kernel does next, or we.
fn step(
    data: &mut &[u8],
    kernel: &mut Kernel,
    (receiver, sender): (&mut Receiver, &mut Sender),
    batch: &mut Batch,
) {
    let [what] = take(data);
    match what % 8 {
        0 => {
            let ([slot], address) = (take(data), address(data));
            let [len, options] = [take(data), take(data)].map(u32::from_ne_bytes);
            let (len, options) = (len >> (what >> 3 & 15), options & 1);
            let descriptor =
                [&address.to_ne_bytes()[..], &len.to_ne_bytes(), &options.to_ne_bytes()];
            kernel.receive.entry(slot, &descriptor.concat());
        }
        1 => {
            kernel.received = advance(kernel.received, data);
            kernel.receive.word(PLACES.producer, kernel.received);
        }
        2 => {
            let ([slot], address) = (take(data), address(data));
            kernel.completion.entry(slot, &address.to_ne_bytes());
        }
        3 => {
            kernel.completed = advance(kernel.completed, data);
            kernel.completion.word(PLACES.producer, kernel.completed);
        }
        4 => {
            let ring = if what & 8 == 0 { &kernel.fill } else { &kernel.transmit };
            ring.word(PLACES.consumer, u32::from_ne_bytes(take(data)));
            ring.word(PLACES.flags, u32::from(what >> 4));
        }
        5 | 6 => take_in(receiver, batch),
        _ => {
            let [high, low] = take(data);
            let len = 14 + usize::from(u16::from_be_bytes([high, low])) % (FRAME_SIZE - 300);
            send(kernel, sender, batch, len);
        }
    }
}

/// The next `N` bytes; zeros after the last one.
fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let (there, rest) = data.split_at(N.min(data.len()));
    bytes[..there.len()].copy_from_slice(there);
    *data = rest;
    bytes
}

/// An index after another one: a few entries further, or anywhere.
fn advance(index: u32, data: &mut &[u8]) -> u32 {
    match take(data) {
        [255] => u32::from_ne_bytes(take(data)),
        [by] => index.wrapping_add(u32::from(by) % (SIZE + 2)),
    }
}

/// An address: in a frame, with the place as part of it or apart, or anything.
fn address(data: &mut &[u8]) -> u64 {
    let [form, frame] = take(data);
    let start = u64::from(frame) % (FRAMES as u64 + 1) * Pool::region_len(1, FRAME_SIZE) as u64;
    let place = u64::from(u16::from_ne_bytes(take(data)));
    match form % 4 {
        0 => start | 258 << 48,
        1 => start | place << 48,
        2 => start + place,
        _ => u64::from_ne_bytes(take(data)),
    }
}

/// Receives once.
fn take_in(receiver: &mut Receiver, batch: &mut Batch) {
    let (mut received, mut drops) = (Received::default(), DropCounts::default());
    let mut sink = Sink { batch, drops: &mut drops, received: &mut received, now: Nanoseconds(1) };
    receiver.receive(BATCH, &mut sink);
    receiver.refill();
    assert_eq!(batch.len() as u64 + drops.total(), received.packets as u64);
    batch.release(Lanes::ALL);
}

/// Sends a packet of this length; the kernel has taken what was sent before.
fn send(kernel: &Kernel, sender: &mut Sender, batch: &mut Batch, len: usize) {
    let Some(lane) = batch.push_blank(len) else { return };
    batch.bytes_mut(lane).fill(0x5A);
    // Otherwise it would wait for room.
    if sender.is_waiting() {
        kernel.transmit.word(PLACES.consumer, sender.published());
    }
    let _ = sender.put_frame(batch, lane);
    let _ = sender.send();
    sender.reap();
    batch.release(Lanes::ALL);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_a_kernel_that_does_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..1500),
        ) {
            replay(&bytes);
        }
    }
}
