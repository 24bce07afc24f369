//! A hostile peer, as the bytes of a fuzzer act it out: its messages, and what it writes into the
//! shared memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, eventfd};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds, PacketMemory, Pool};

use super::endpoint::Endpoint;
use super::handshake::{ClientSide, ServerSide};
use super::message::{LEN, Message};
use super::receiver::{Receiver, Sink};
use super::region::Region;
use super::ring::Ring;
use super::sender::Sender;
use super::settings::{MemifSettings, Role};
use super::shared::{Bell, Channel, Measures, Shared};
use crate::intake::Intake;
use crate::port::Received;

/// The most steps of one peer.
const STEPS: usize = 64;
const FRAME_SIZE: usize = 2048;
const FRAMES: usize = 256;

/// Acts out a peer. The first byte chooses its part, the others are what it does.
///
/// # Panics
/// If a packet or a frame is lost, or anything else goes wrong on our side.
pub fn replay(data: &[u8]) {
    let Some((part, data)) = data.split_first() else { return };
    let memory = PacketMemory::shared(Pool::region_len(FRAMES, FRAME_SIZE));
    let pool = Arc::new(Pool::new(memory.expect("memory"), FRAME_SIZE).expect("frames"));
    let data = &mut &*data;
    match part % 5 {
        0 => talk_to_server(data, &pool),
        1 => talk_to_client(data, &pool),
        part => use_rings(part - 2, data, &pool),
    }
    assert_eq!(pool.in_use(), 0, "frames return");
}

/// The next `N` bytes; zeros after the last one.
fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let (there, rest) = data.split_at(N.min(data.len()));
    bytes[..there.len()].copy_from_slice(there);
    *data = rest;
    bytes
}

fn settings(role: Role) -> MemifSettings {
    let mut settings = MemifSettings::new("@replay", role).expect("a name");
    (settings.ring_size, settings.queues) = (5, 2);
    settings
}

/// What comes with a message: nothing, an eventfd, or regions.
fn descriptor(kind: u8, region: &Region) -> Option<OwnedFd> {
    match kind % 4 {
        0 => None,
        1 => eventfd(0, EventfdFlags::empty()).ok(),
        2 => rustix::fs::memfd_create("replay", rustix::fs::MemfdFlags::CLOEXEC).ok(),
        _ => region.file().try_clone_to_owned().ok(),
    }
}

/// A client's messages, and then its rings.
fn talk_to_server(data: &mut &[u8], pool: &Arc<Pool>) {
    let hub = Arc::new(Bell::new().expect("an eventfd"));
    let endpoint = Endpoint::new(settings(Role::Server), None, hub).expect("an endpoint");
    let (endpoint, mut side) = (Arc::new(endpoint), ServerSide::default());
    let region = Arc::new(Region::new(1 << 16).expect("memory"));
    for at in 0..8 {
        Ring::create(region.clone(), at * 4096, 5);
    }
    for _ in 0..STEPS {
        if data.is_empty() {
            return;
        }
        let ([with], message) = (take(data), take::<LEN>(data));
        let Ok(message) = Message::decode(&message) else { continue };
        let answer = side.answer(message, descriptor(with, &region), |_| Ok(endpoint.clone()));
        let Ok(answer) = answer else { return };
        if let Some(shared) = answer.shared {
            assert!(shared.receive.len() <= 2 && shared.transmit.len() <= 2);
            let channels: Vec<_> = shared.receive.iter().chain(&shared.transmit).collect();
            return write_and_look(data, &channels, &region, pool);
        }
    }
}

/// A server's messages, and then what it does with our rings.
fn talk_to_client(data: &mut &[u8], pool: &Arc<Pool>) {
    let [zero_copy] = take(data);
    let lends = zero_copy.is_multiple_of(2);
    let hub = Arc::new(Bell::new().expect("an eventfd"));
    let pool_of = lends.then(|| pool.clone());
    let endpoint = Endpoint::new(settings(Role::Client), pool_of, hub).expect("an endpoint");
    let mut side = ClientSide::new(Arc::new(endpoint));
    for _ in 0..STEPS {
        if data.is_empty() {
            return;
        }
        let Ok(message) = Message::decode(&take::<LEN>(data)) else { continue };
        let Ok(answer) = side.answer(message) else { return };
        if let Some(shared) = answer.shared {
            assert_eq!(shared.lends(), lends);
            return;
        }
    }
}

/// What a peer does with the rings of one kind: its own, ours with buffers, ours with frames.
fn use_rings(kind: u8, data: &mut &[u8], pool: &Arc<Pool>) {
    let lends = kind == 2;
    let buffer_size = if lends { 0 } else { 256 };
    let measures = Measures { transmit: 1, receive: 1, ring_size: 5, buffer_size };
    let (shared, region) = Shared::create(measures, lends.then_some(pool)).expect("memory");
    shared.receive.iter().for_each(Channel::offer_all);
    if kind > 0 {
        return write_and_look(data, &[&shared.receive[0], &shared.transmit[0]], &region, pool);
    }
    let regions: Arc<[_]> = [region.clone()].into();
    let of_peer = |channel: &Channel| {
        let ring = Ring::of_peer(region.clone(), channel.ring.offset() as u32, 5).ok()?;
        Some(Channel::of_peer(ring, Bell::new().ok()?, regions.clone()))
    };
    let (to_us, from_us) = (of_peer(&shared.transmit[0]), of_peer(&shared.receive[0]));
    write_and_look(data, &[&to_us.expect("a ring"), &from_us.expect("a ring")], &region, pool);
}

/// Writes words into a region, and receives and sends by `channels` in between, until the data end or
/// the peer is to be disconnected. Frames that are lent return with the channels.
fn write_and_look(data: &mut &[u8], channels: &[&Channel], region: &Region, pool: &Arc<Pool>) {
    let mut ends: Vec<_> = channels.iter().map(|c| (Receiver::new(c), Sender::new(c))).collect();
    let mut batch = Batch::new(pool.clone());
    for _ in 0..4 * STEPS {
        if data.is_empty() {
            return;
        }
        let [what, which] = take(data);
        let at = usize::from(which) % channels.len();
        let (channel, (receiver, sender)) = (channels[at], &mut ends[at]);
        let is_sound = match what % 4 {
            0 => {
                let ([high, low], word) = (take(data), take(data));
                let place = usize::from(u16::from_be_bytes([high, low])) * 4 % region.len();
                region.u32(place / 4 * 4).store(u32::from_ne_bytes(word), Ordering::Relaxed);
                true
            }
            1 => {
                let index = u16::from_ne_bytes(take(data));
                if what & 4 == 0 {
                    channel.ring.set_head(index);
                } else {
                    channel.ring.set_tail(index);
                }
                true
            }
            2 => receive(receiver, channel, &mut batch),
            _ => {
                let len = 14 + usize::from(u16::from_ne_bytes(take(data))) % 1800;
                send(sender, channel, &mut batch, len)
            }
        };
        if !is_sound {
            return;
        }
    }
}

/// Receives once; whether the peer has kept to the rules so far.
fn receive(receiver: &mut Receiver, channel: &Channel, batch: &mut Batch) -> bool {
    let (mut received, mut drops) = (Received::default(), DropCounts::default());
    let (mut intake, now, most) = (Intake::default(), Nanoseconds(1), BATCH);
    receiver.replenish(channel);
    let (into, drops, counted) = (&mut *batch, &mut drops, &mut received);
    let mut sink = Sink { batch: into, drops, received: counted, intake: &mut intake, most, now };
    let outcome = receiver.receive(channel, &mut sink);
    assert_eq!(batch.len() as u64 + drops.total(), received.packets as u64);
    assert!(received.packets <= BATCH);
    batch.release(Lanes::ALL);
    outcome.is_ok()
}

/// Sends a packet; whether the peer has kept to the rules so far.
fn send(sender: &mut Sender, channel: &Channel, batch: &mut Batch, len: usize) -> bool {
    let Some(lane) = batch.push_blank(len) else { return false };
    batch.bytes_mut(lane).fill(0x5A);
    let outcome = match channel.loans() {
        None => sender.put(channel, batch.bytes(lane)).map(drop),
        Some(loans) => sender
            .put_frame(channel, loans, batch, lane)
            .and_then(|_| sender.reap(channel, loans, &mut loans.frames())),
    };
    sender.publish(channel);
    batch.release(Lanes::ALL);
    outcome.is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_a_peer_that_does_harm(
            part in 0..5_u8,
            bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            replay(&[&[part], &*bytes].concat());
        }
    }
}
