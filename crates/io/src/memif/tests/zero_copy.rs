//! A client whose buffers are the frames of its pool.

use proptest::prelude::*;
use thalweg_packet::{HEADROOM, PacketMemory};

use super::hostile::{SLOTS, changes, receive_hostile};
use super::*;
use crate::memif::handshake::ServerSide;
use crate::memif::receiver::Receiver;
use crate::memif::region::Region;
use crate::memif::sender::{Put, Sender};
use crate::memif::shared::{Channel, Measures, POOL_REGION, Shared};
use crate::memif::socket::{ControlSocket, Heard, Listener};
use crate::memif::{endpoint::Endpoint, registry, shared::Bell};

const FRAMES: usize = 1024;
const FRAME_SIZE: usize = 4096;

fn pool() -> Arc<Pool> {
    let memory = PacketMemory::shared(Pool::region_len(FRAMES, FRAME_SIZE)).unwrap();
    Arc::new(Pool::new(memory, FRAME_SIZE).unwrap())
}

/// Settings of a server, and of a client with zero copy.
fn both(ring_size: u8) -> [MemifSettings; 2] {
    let [server, client] = settings(|s| s.ring_size = ring_size);
    [server, client.with_zero_copy()]
}

/// A client's input and output over a pool.
fn client(settings: &MemifSettings, pool: &Arc<Pool>) -> (MemifInput, MemifOutput) {
    let input = MemifInput::open(settings, pool, 1).unwrap().pop().unwrap();
    (input, MemifOutput::open(settings, pool, 1).unwrap().pop().unwrap())
}

/// Serves a client by hand; returns the socket and the rings.
fn serve(listener: &Listener, server: &MemifSettings) -> (ControlSocket, Shared) {
    let mut socket = None;
    until(|| {
        socket = listener.accept();
        socket.is_some()
    });
    let (socket, mut side) = (socket.unwrap(), ServerSide::default());
    socket.send(&ServerSide::hello(), None).unwrap();
    let hub = Arc::new(Bell::new().unwrap());
    let endpoint = Arc::new(Endpoint::new(server.clone(), None, hub).unwrap());
    let mut shared = None;
    until(|| {
        if let Heard::Message(message, with) = socket.hear().unwrap() {
            let answer = side.answer(message, with, |_| Ok(endpoint.clone())).unwrap();
            if let Some(reply) = answer.reply {
                socket.send(&reply.message, reply.descriptor()).unwrap();
            }
            shared = answer.shared;
        }
        shared.is_some()
    });
    (socket, shared.unwrap())
}

/// Where the packet of a lane is, from the first byte of its pool.
fn place(batch: &Batch, lane: usize) -> usize {
    batch.bytes(lane).as_ptr() as usize - batch.pool().memory().base().as_ptr() as usize
}

#[test]
fn packets_are_processed_where_the_peer_put_them_and_read_where_they_were_processed() {
    let ([server, settings], pool) = (both(6), pool());
    let listener = Listener::bind(&server.address).unwrap();
    let (mut input, mut output) = client(&settings, &pool);
    let (_socket, shared) = serve(&listener, &server);
    let (to_us, from_us) = (&shared.transmit[0], &shared.receive[0]);
    let (mut peer_sends, mut batch) = (Sender::new(to_us), Batch::new(pool.clone()));
    let mut drops = DropCounts::default();
    until(|| registry::link(&settings).unwrap().carrier == Some(true));
    // Offers its frames.
    assert_eq!(input.receive(&mut batch, BATCH, &mut drops).unwrap().packets, 0);
    for round in 0..200_u32 {
        let first = peer_sends.position;
        let rooms: Vec<_> = (0..7).map(|at| to_us.room(first.wrapping_add(at)).unwrap()).collect();
        for at in 0..7 {
            let sent = packet(round + at, 64 + 500 * at as usize);
            assert_eq!(peer_sends.put(to_us, &sent).unwrap(), Put::Done);
        }
        peer_sends.publish(to_us);
        let received = input.receive(&mut batch, BATCH, &mut drops).unwrap();
        assert_eq!((received.packets, batch.len()), (7, 7));
        let places: Vec<_> = (0..7).map(|lane| place(&batch, lane)).collect();
        assert!(rooms.iter().all(|room| room.region == usize::from(POOL_REGION)));
        assert_eq!(places, rooms.iter().map(|room| room.offset).collect::<Vec<_>>());
        let lanes = batch.lanes();
        assert_eq!(output.send_frames(&mut batch, lanes, &mut drops).unwrap(), lanes);
        assert!(batch.is_empty(), "the frames were sent");
        let start = Receiver::new(from_us).position;
        for (at, place) in (0..).zip(&places) {
            let part = from_us.part(start.wrapping_add(at)).unwrap();
            assert_eq!((part.region, part.offset), (usize::from(POOL_REGION), *place));
            assert_eq!(part.len, 64 + 500 * usize::from(at));
            let mut bytes = vec![0; part.len];
            from_us.read(part, &mut bytes);
            assert_eq!(bytes, packet(round + u32::from(at), part.len));
        }
        from_us.ring.set_tail(start.wrapping_add(7));
        from_us.set_position(start.wrapping_add(7));
    }
    assert_eq!((input.copied(), output.copied(), drops.total()), (Some(0), Some(0), 0));
    // A packet that the caller keeps is copied, and counted.
    batch.push_bytes(&packet(1, 64)).unwrap();
    assert_eq!(output.send(&batch, batch.lanes(), &mut drops).unwrap().count(), 1);
    let part = from_us.part(Receiver::new(from_us).position).unwrap();
    assert!(part.offset != place(&batch, 0) && output.copied() == Some(1));
    drop((batch, shared, input, output));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn packets_of_all_sizes_pass_in_order_in_both_directions_without_a_copy_at_the_client() {
    let ([server, settings], pool) = (both(8), pool());
    let (mut from_client, mut to_client) = (input(&server), output(&server));
    let (mut from_server, mut to_server) = client(&settings, &pool);
    let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
    let mut send_frame = |packet: &[u8]| {
        batch.push_bytes(packet).unwrap();
        let lanes = batch.lanes();
        let sent = to_server.send_frames(&mut batch, lanes, &mut drops).unwrap();
        batch.release(Lanes::ALL);
        sent.count() == 1
    };
    let mut into = Batch::new(pool.clone());
    let mut receive = |input: &mut MemifInput| {
        let mut drops = DropCounts::default();
        input.receive(&mut into, BATCH, &mut drops).unwrap();
        let packets: Vec<_> = into.lanes().into_iter().map(|l| into.bytes(l).to_vec()).collect();
        into.release(Lanes::ALL);
        packets
    };
    until(|| send_frame(&packet(0, 64)));
    assert!(receive(&mut from_server).is_empty(), "it offers its frames");
    send_at_last(&mut to_client, &packet(0, 64));
    receive_many(&mut from_client, 1);
    assert_eq!(receive(&mut from_server).len(), 1);
    for number in 0..3000 {
        let sent = packet(number, 14 + (number as usize * 37) % (FRAME_SIZE - HEADROOM - 14));
        assert!(send_frame(&sent));
        assert_eq!(send(&mut to_client, &sent), None);
        assert_eq!(receive_many(&mut from_client, 1), [sent.as_slice()]);
        assert_eq!(receive(&mut from_server), [sent]);
    }
    assert_eq!(from_server.copied(), Some(0));
    assert!(from_client.copied() >= Some(3000), "the server copies");
    assert_eq!(send(&mut to_client, &packet(1, FRAME_SIZE)), None, "in two frames");
    assert!(receive(&mut from_server).is_empty(), "longer than a frame");
    assert_eq!(from_server.shortfall().longest, FRAME_SIZE);
    drop((to_server, from_server, into, batch));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn frames_return_to_the_pool_whichever_end_is_closed() {
    let ([server, settings], pool) = (both(6), pool());
    for _ in 0..10 {
        let (mut from_server, mut to_server) = client(&settings, &pool);
        for _ in 0..3 {
            let mut from_client = input(&server);
            let mut batch = Batch::new(pool.clone());
            until(|| {
                let mut drops = DropCounts::default();
                from_server.receive(&mut batch, BATCH, &mut drops).unwrap();
                batch.push_bytes(&packet(1, 64)).unwrap();
                let lanes = batch.lanes();
                to_server.send_frames(&mut batch, lanes, &mut drops).unwrap();
                batch.release(Lanes::ALL);
                drops.total() == 0
            });
            assert!(pool.in_use() > 0, "some are offered");
            receive_many(&mut from_client, 1);
            // The next one is in the ring when the server goes.
            batch.push_bytes(&packet(2, 64)).unwrap();
            let lanes = batch.lanes();
            to_server.send_frames(&mut batch, lanes, &mut DropCounts::default()).unwrap();
            drop((from_client, batch));
            until(|| registry::link(&settings).unwrap().carrier == Some(false));
            from_server
                .receive(&mut Batch::new(pool.clone()), BATCH, &mut DropCounts::default())
                .unwrap();
            to_server.check().unwrap();
            until(|| pool.in_use() == 0);
        }
    }
}

#[test]
fn packets_in_several_frames_are_joined_and_those_without_end_refused() {
    let ([server, settings], pool) = (both(6), pool());
    let listener = Listener::bind(&server.address).unwrap();
    let (mut input, output) = client(&settings, &pool);
    let (_socket, shared) = serve(&listener, &server);
    let ring = &shared.transmit[0].ring;
    let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
    until(|| {
        input.receive(&mut batch, BATCH, &mut drops).unwrap();
        ring.head() == 64
    });
    let sent = packet(1, 60);
    for (at, bytes) in (0..).zip(sent.chunks(20)) {
        let part = shared.transmit[0].room(at).unwrap().filled(20, at < 2);
        shared.transmit[0].write(part, bytes);
        shared.transmit[0].describe(at, part);
    }
    ring.set_tail(3);
    input.receive(&mut batch, BATCH, &mut drops).unwrap();
    assert_eq!((batch.len(), batch.bytes(0), input.copied()), (1, &sent[..], Some(1)));
    batch.release(Lanes::ALL);
    (0..64).for_each(|at| ring.describe_length(at, 64, true));
    ring.set_tail(64);
    until(|| {
        input.receive(&mut batch, BATCH, &mut drops).unwrap();
        registry::link(&settings).unwrap().carrier == Some(false)
    });
    drop((batch, input, output));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_pool_that_cannot_be_shared_or_is_too_small_is_refused() {
    let [_, settings] = both(10);
    let refusal = |pool: Pool| {
        MemifInput::open(&settings, &Arc::new(pool), 1).err().expect("refused").to_string()
    };
    let private = refusal(Pool::anonymous(4096, 2048).unwrap());
    assert!(private.contains("expected a restart"), "{private}");
    let foreign = crate::foreign::pool(4096, 2048);
    let foreign = MemifOutput::open(&settings, &foreign, 1).err().unwrap().to_string();
    assert!(foreign.contains("since a device has allocated it"), "{foreign}");
    let memory = PacketMemory::shared(Pool::region_len(2303, 2048)).unwrap();
    let small = refusal(Pool::new(memory, 2048).unwrap());
    assert!(small.contains("expected frames = 2304 in [memory]"), "{small}");
    let memory = PacketMemory::shared((1 << 32) + 4096).unwrap();
    let large = refusal(Pool::new(memory, 2048).unwrap());
    assert!(large.contains("at most 4294967296"), "{large}");
}

/// A ring of a client with frames as buffers, and its region.
fn own(pool: &Arc<Pool>) -> (Channel, Arc<Region>) {
    let measures = Measures { transmit: 1, receive: 0, ring_size: SLOTS, buffer_size: 0 };
    let (mut shared, region) = Shared::create(measures, Some(pool)).unwrap();
    (shared.transmit.pop().unwrap(), region)
}

proptest! {
    #[test]
    fn no_ring_makes_a_receiver_lose_frames(changes in changes()) {
        let pool = pool();
        let (channel, region) = own(&pool);
        receive_hostile(Batch::new(pool.clone()), &channel, &region, &changes);
        drop(channel);
        prop_assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn no_ring_makes_a_sender_lose_frames(changes in changes(), len in 14..3000_usize) {
        let pool = pool();
        let (channel, region) = own(&pool);
        let mut sender = Sender::new(&channel);
        let (mut batch, loans) = (Batch::new(pool.clone()), channel.loans().unwrap());
        for changes in changes.chunks(4) {
            for (at, word) in changes {
                region.u32(at * 4).store(*word, Ordering::Relaxed);
            }
            batch.push_bytes(&packet(1, len)).unwrap();
            let put = sender.put_frame(&channel, loans, &mut batch, 0);
            batch.release(Lanes::ALL);
            if put.is_err() || sender.reap(&channel, loans, &mut loans.frames()).is_err() {
                break;
            }
            sender.publish(&channel);
        }
        drop((batch, channel));
        prop_assert_eq!(pool.in_use(), 0);
    }
}
