//! Peers that lie.

use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::intake::Intake;
use crate::memif::handshake::ServerSide;
use crate::memif::message::{AddRing, ETHERNET, Init, Message, SECRET, VERSION};
use crate::memif::receiver::{Receiver, Sink};
use crate::memif::region::Region;
use crate::memif::ring::Ring;
use crate::memif::sender::Sender;
use crate::memif::shared::{Bell, Channel, Measures, Shared};
use crate::memif::socket::ControlSocket;
use crate::port::Received;
use thalweg_packet::Nanoseconds;

pub(super) const SLOTS: u8 = 4;
const BUFFER: u32 = 256;

/// A ring with 16 buffers as its client has it, and as its server has it; and the region.
fn both_ends() -> (Channel, Channel, Arc<Region>) {
    let measures = Measures { transmit: 1, receive: 0, ring_size: SLOTS, buffer_size: BUFFER };
    let (mut shared, region) = Shared::create(measures, None).unwrap();
    let own = shared.transmit.pop().unwrap();
    let ring = Ring::of_peer(region.clone(), 0, SLOTS).unwrap();
    let of_peer = Channel::of_peer(ring, Bell::new().unwrap(), Arc::new([region.clone()]));
    (own, of_peer, region)
}

/// Changes of the memory: where, and to which word. Most are of the ring; small and large words are
/// as likely as others.
pub(super) fn changes() -> impl Strategy<Value = Vec<(usize, u32)>> {
    let ring = Ring::len(SLOTS) / 4;
    let word = prop_oneof![
        0..20u32,
        any::<u32>(),
        (0..3u32).prop_map(|by| u32::MAX - by),
        (0..400u32, 0..2u32).prop_map(|(high, low)| high << 16 | low),
    ];
    prop::collection::vec((prop_oneof![0..ring, Just(1), Just(16)], word), 0..24)
}

/// Receives a few times, with the changes in between; whatever happens, it ends and stays in bounds.
pub(super) fn receive_hostile(
    mut batch: Batch,
    channel: &Channel,
    region: &Region,
    changes: &[(usize, u32)],
) {
    let mut receiver = Receiver::new(channel);
    receiver.replenish(channel);
    let mut drops = DropCounts::default();
    let mut intake = Intake::default();
    for changes in changes.chunks(4) {
        for (at, word) in changes {
            region.u32(at * 4).store(*word, Ordering::Relaxed);
        }
        let mut received = Received::default();
        let mut sink = Sink {
            batch: &mut batch,
            drops: &mut drops,
            received: &mut received,
            intake: &mut intake,
            most: BATCH,
            now: Nanoseconds(1),
        };
        let outcome = receiver.receive(channel, &mut sink);
        assert!(received.packets <= 1 << SLOTS, "bounded by the ring");
        assert!(batch.len() <= received.packets);
        batch.release(Lanes::ALL);
        if outcome.is_err() {
            return;
        }
    }
}

proptest! {
    #[test]
    fn no_ring_misleads_a_receiver(changes in changes()) {
        let (own, of_peer, region) = both_ends();
        receive_hostile(batch(), &of_peer, &region, &changes);
        receive_hostile(batch(), &own, &region, &changes);
    }

    #[test]
    fn no_ring_misleads_a_sender(changes in changes(), len in 14..6000usize) {
        for is_client in [true, false] {
            let (own, of_peer, region) = both_ends();
            let channel = if is_client { own } else { of_peer };
            let mut sender = Sender::new(&channel);
            for changes in changes.chunks(4) {
                for (at, word) in changes {
                    region.u32(at * 4).store(*word, Ordering::Relaxed);
                }
                if sender.put(&channel, &packet(1, len)).is_err() {
                    break;
                }
                sender.publish(&channel);
            }
        }
    }

    /// Messages in any order, right ones among them, with the right descriptors or others.
    #[test]
    fn no_message_misleads_a_server(
        steps in prop::collection::vec((0..7u8, any::<[u16; 4]>(), 0..4u8), 0..20),
    ) {
        let [server, _] = settings(|s| s.queues = 2);
        let hub = Arc::new(Bell::new().unwrap());
        let endpoint = Arc::new(crate::memif::endpoint::Endpoint::new(server, None, hub).unwrap());
        let mut side = ServerSide::default();
        for (kind, numbers, with) in steps {
            let answer =
                side.answer(message(kind, numbers), descriptor(with), |_| Ok(endpoint.clone()));
            let Ok(answer) = answer else { break };
            if let Some(shared) = answer.shared {
                prop_assert!(shared.receive.len() <= 2 && shared.transmit.len() <= 2);
            }
        }
    }
}

/// Writes words like those of [`changes`] into a ring until it is told to stop; returns how many.
fn disturb(region: &Region, stop: &AtomicBool) -> u64 {
    let words = Ring::len(SLOTS) / 4;
    let (mut random, mut written) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    while !stop.load(Ordering::Relaxed) {
        // xorshift64, of Marsaglia.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let word = match random >> 60 {
            0..8 => (random >> 32) as u32 % 20,
            8..12 => (random >> 32) as u32,
            _ => ((random >> 24) as u32 % 400) << 16,
        };
        let at = if random.is_multiple_of(8) { 16 } else { (random >> 8) as usize % words };
        region.u32(at * 4).store(word, Ordering::Relaxed);
        written += 1;
    }
    written
}

/// What was checked may be another value when it is used: each word is read once.
#[test]
fn a_peer_that_writes_during_calls_misleads_nobody() {
    let stop = AtomicBool::new(false);
    let (own, of_peer, region) = both_ends();
    let written = thread::scope(|scope| {
        let peer = scope.spawn(|| disturb(&region, &stop));
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(300) {
            for channel in [&own, &of_peer] {
                receive_hostile(batch(), channel, &region, &[(1, 7), (16, 3)]);
                let mut sender = Sender::new(channel);
                for len in [60, 1500, 5000] {
                    if sender.put(channel, &packet(1, len)).is_err() {
                        break;
                    }
                    sender.publish(channel);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        peer.join().unwrap()
    });
    assert!(written > 1000, "{written}");
}

/// A message with these numbers, or with the right ones where they are small.
fn message(kind: u8, [a, b, c, d]: [u16; 4]) -> Message {
    let small = |value: u16| if value < 0x8000 { value % 3 } else { value };
    match kind {
        0 | 1 => {
            let (version, mode) = (if a < 0xf000 { VERSION } else { b }, ETHERNET);
            let secret = [0; SECRET];
            Message::Init(Init { version, id: 0, mode, secret, name: "x".into() })
        }
        2 => Message::AddRegion { index: small(a), size: u64::from(b) << (c % 40) },
        3 => Message::AddRing(AddRing {
            to_server: a.is_multiple_of(2),
            index: small(b),
            region: small(c),
            offset: u32::from(small(d)) * 64,
            size: (a >> 8) as u8 % 16,
            private: 0,
        }),
        4 => Message::Connect("x".into()),
        5 => Message::Ack,
        _ => Message::Connected("x".into()),
    }
}

fn descriptor(with: u8) -> Option<OwnedFd> {
    match with {
        0 => None,
        1 => Some(eventfd(0, EventfdFlags::empty()).unwrap()),
        2 => Some(tempfile::tempfile().unwrap().into()),
        _ => {
            let region = Arc::new(Region::new(1 << 16).unwrap());
            Ring::create(region.clone(), 0, 8);
            Some(region.file().try_clone_to_owned().unwrap())
        }
    }
}

/// Connects as a client with a ring each way to the server; returns the socket and the rings.
fn connect_by_hand(server: &MemifSettings) -> (ControlSocket, Shared, Arc<Region>) {
    try_connect_by_hand(server).unwrap()
}

/// Likewise, from a server that may refuse it before it has said all.
fn try_connect_by_hand(server: &MemifSettings) -> io::Result<(ControlSocket, Shared, Arc<Region>)> {
    let measures = Measures { transmit: 1, receive: 1, ring_size: SLOTS, buffer_size: BUFFER };
    let (shared, region) = Shared::create(measures, None).unwrap();
    let socket = ControlSocket::connect(&server.address)?;
    let say = |message, with: Option<BorrowedFd<'_>>| socket.send(&message, with);
    let init = Init {
        version: VERSION,
        id: server.id,
        mode: ETHERNET,
        secret: [0; SECRET],
        name: "by hand".into(),
    };
    say(Message::Init(init), None)?;
    let size = region.len() as u64;
    say(Message::AddRegion { index: 0, size }, Some(region.file()))?;
    for (to_server, channel) in [(true, &shared.transmit[0]), (false, &shared.receive[0])] {
        let offset = channel.ring.offset() as u32;
        let ring = AddRing { to_server, index: 0, region: 0, offset, size: SLOTS, private: 0 };
        say(Message::AddRing(ring), Some(channel.bell.as_fd()))?;
    }
    say(Message::Connect("by hand".into()), None)?;
    Ok((socket, shared, region))
}

#[test]
fn a_peer_that_lies_is_disconnected_and_the_next_one_is_served() {
    let [server, client] = settings(|_| ());
    let mut receiver = input(&server);
    let lies: [fn(&Shared); 4] = [
        // More filled descriptors than the ring has.
        |shared| shared.transmit[0].ring.set_head(17),
        // One packet without end.
        |shared| {
            let ring = &shared.transmit[0].ring;
            (0..16).for_each(|at| ring.describe_length(at, 64, true));
            ring.set_head(16);
        },
        // A buffer behind the end of the region.
        |shared| {
            let ring = &shared.transmit[0].ring;
            ring.describe_length(0, u32::MAX, false);
            ring.set_head(1);
        },
        // A region that was never added.
        |shared| {
            let ring = &shared.transmit[0].ring;
            let descriptor = ring.descriptor(0);
            ring.describe(0, crate::memif::ring::Descriptor { region: 9, ..descriptor });
            ring.set_head(1);
        },
    ];
    for lie in lies {
        let (socket, shared, _region) = connect_by_hand(&server);
        until(|| crate::memif::registry::link(&server).unwrap().carrier == Some(true));
        lie(&shared);
        until(|| {
            assert!(receive(&mut receiver).0.is_empty());
            crate::memif::registry::link(&server).unwrap().carrier == Some(false)
        });
        drop(socket);
    }
    let mut sender = output(&client);
    send_at_last(&mut sender, &packet(5, 64));
    assert_eq!(receive_many(&mut receiver, 1), [packet(5, 64)]);
}

#[test]
fn a_second_client_does_not_disturb_the_first() {
    let [server, client] = settings(|_| ());
    let (mut receiver, mut sender) = (input(&server), output(&client));
    send_at_last(&mut sender, &packet(1, 64));
    let sockets: Vec<_> = (0..20).map(|_| ControlSocket::connect(&server.address)).collect();
    // The server has a client, and may refuse this one before it has said all.
    let second = try_connect_by_hand(&server);
    for number in 2..50 {
        assert_eq!(send(&mut sender, &packet(number, 64)), None);
    }
    assert_eq!(receive_many(&mut receiver, 49).len(), 49);
    drop((second, sockets));
}
