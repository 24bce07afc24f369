//! Our server and our client.

use thalweg_source::poll::wait_readable;

use super::*;
use crate::memif::registry;

/// Each end's input and output.
fn ends(of: &[MemifSettings; 2]) -> [(MemifInput, MemifOutput); 2] {
    [0, 1].map(|at| (input(&of[at]), output(&of[at])))
}

#[test]
fn packets_of_all_sizes_pass_in_order_in_both_directions() {
    for (queues, buffer_size) in [(1, 2048), (4, 2048), (1, 64), (2, 9216)] {
        let of = settings(|s| (s.queues, s.buffer_size, s.ring_size) = (queues, buffer_size, 8));
        let [(mut from_client, mut to_client), (mut from_server, mut to_server)] = ends(&of);
        let sizes = [14, 60, 64, 65, 1514, 2048, 2049, 4096, 8999, 9000];
        for round in 0..40 {
            let packets: Vec<_> =
                (0..).zip(sizes).map(|(at, len)| packet(round * 10 + at, len)).collect();
            for packet in &packets[..2] {
                send_at_last(&mut to_client, packet);
                send_at_last(&mut to_server, packet);
            }
            // One after the other, since two of the longest fill a ring of the smallest buffers.
            let mut there: [Vec<_>; 2] = [Vec::new(), Vec::new()];
            for packet in &packets[2..] {
                assert_eq!(send(&mut to_client, packet), None);
                assert_eq!(send(&mut to_server, packet), None);
                there[0].extend(receive(&mut from_server).0);
                there[1].extend(receive(&mut from_client).0);
            }
            assert_eq!(there[0], packets, "to the client: {queues} {buffer_size}");
            assert_eq!(there[1], packets, "to the server: {queues} {buffer_size}");
        }
    }
}

#[test]
fn several_queues_share_the_rings() {
    let [server, client] = settings(|s| s.queues = 4);
    let mut inputs = MemifInput::open(&server, &any_pool(), 3).unwrap();
    let mut outputs = MemifOutput::open(&client, &any_pool(), 4).unwrap();
    assert_eq!((inputs.len(), outputs.len()), (3, 4));
    for (at, output) in (0..).zip(&mut outputs) {
        send_at_last(output, &packet(at, 64));
    }
    let numbers: Vec<Vec<u8>> =
        inputs.iter_mut().map(|i| receive(i).0.iter().map(|p| p[3]).collect()).collect();
    assert_eq!(numbers, [vec![0, 3], vec![1], vec![2]]);
}

#[test]
fn each_end_connects_again_after_the_other_was_closed() {
    let of = settings(|_| ());
    for closed in [0, 1, 0, 1] {
        let stays = 1 - closed;
        let (mut receives, mut sends) = (input(&of[stays]), output(&of[stays]));
        for number in 0..3 {
            assert_eq!(send(&mut sends, &packet(0, 64)), Some(DropReason::NoPeer));
            let (mut other_receives, mut other_sends) = (input(&of[closed]), output(&of[closed]));
            send_at_last(&mut sends, &packet(number, 64));
            assert_eq!(receive_many(&mut other_receives, 1), [packet(number, 64)]);
            send_at_last(&mut other_sends, &packet(number, 9000));
            assert_eq!(receive_many(&mut receives, 1), [packet(number, 9000)]);
            send_at_last(&mut other_sends, &packet(number, 8000));
            drop((other_receives, other_sends));
            until(|| registry::link(&of[stays]).unwrap().carrier == Some(false));
            assert_eq!(receive(&mut receives).0, [packet(number, 8000)], "its last words");
        }
    }
    assert!(of.iter().all(|settings| registry::link(settings).is_none()), "all is closed");
}

#[test]
fn a_waiting_input_is_woken() {
    for [receiver, sender] in [settings(|_| ()), {
        let [server, client] = settings(|_| ());
        [client, server]
    }] {
        let (mut receiver, mut sender) = (input(&receiver), output(&sender));
        until(|| send(&mut sender, &packet(0, 64)).is_none());
        receive_many(&mut receiver, 1);
        for number in 1..20 {
            let wait = Duration::from_secs(10);
            std::thread::scope(|scope| {
                let sender = &mut sender;
                let descriptor = receiver.descriptor().unwrap();
                scope.spawn(move || assert_eq!(send(sender, &packet(number, 64)), None));
                assert!(wait_readable([descriptor].into_iter(), wait), "it is interrupted");
            });
            assert_eq!(receive(&mut receiver).0, [packet(number, 64)]);
            // Nothing is left that would keep it awake.
            let descriptor = receiver.descriptor().unwrap();
            assert!(!wait_readable([descriptor].into_iter(), Duration::ZERO));
        }
    }
}

#[test]
fn packets_that_do_not_fit_are_dropped_by_name() {
    let of = settings(|s| (s.ring_size, s.buffer_size) = (2, 1024));
    let [(mut input, _), (_, mut output)] = ends(&of);
    assert_eq!(send(&mut output, &[0; 64]), Some(DropReason::NoPeer));
    send_at_last(&mut output, &packet(1, 64));
    assert_eq!(receive_many(&mut input, 1).len(), 1);
    assert_eq!(send(&mut output, &[0; 13]), Some(DropReason::Malformed));
    assert_eq!(send(&mut output, &[0; 4097]), Some(DropReason::TooBig));
    assert_eq!(output.shortfall().longest, 4097);
    assert_eq!(send(&mut output, &packet(2, 4096)), None);
    assert_eq!(send(&mut output, &packet(3, 64)), Some(DropReason::TransmitQueueFull));
    assert_eq!(receive(&mut input).0, [packet(2, 4096)]);
    // Longer than a frame of the receiver.
    assert_eq!(send(&mut output, &packet(4, 4000)), None);
    assert_eq!(send(&mut output, &packet(5, 64)), Some(DropReason::TransmitQueueFull));
    let mut small = Batch::new(Arc::new(Pool::anonymous(BATCH, 2048).unwrap()));
    let mut drops = DropCounts::default();
    let received = input.receive(&mut small, BATCH, &mut drops).unwrap();
    assert_eq!((received.packets, received.bytes, small.len()), (1, 4000, 0));
    assert_eq!(drops.get(DropReason::FrameTooSmall), 1);
    assert_eq!(input.shortfall().longest, 4000);
    assert_eq!(send(&mut output, &packet(6, 64)), None, "there is room again");
}

#[test]
fn a_connection_has_one_input_and_one_output_with_the_same_options() {
    let [server, _] = settings(|_| ());
    let first = input(&server);
    let refusal = |settings: &MemifSettings| {
        MemifInput::open(settings, &any_pool(), 1).err().expect("it is refused").to_string()
    };
    assert!(
        refusal(&server).ends_with(
            "another input has it; expected one input and one output for each connection"
        )
    );
    let other = MemifSettings { buffer_size: 4096, ..server.clone() };
    let refused =
        MemifOutput::open(&other, &any_pool(), 1).err().expect("it is refused").to_string();
    assert!(refused.contains("'buffer_size' is not that of another input"), "{refused}");
    // Another identifier is another connection on the same socket.
    let second = input(&MemifSettings { id: 7, ..server.clone() });
    drop(first);
    let first = input(&server);
    drop((first, second));
    assert!(registry::link(&server).is_none());
}

#[test]
fn a_port_goes_on_where_the_one_before_it_ended() {
    let of = settings(|s| s.ring_size = 4);
    let [(mut from_client, mut to_client), (mut from_server, mut to_server)] = ends(&of);
    for number in 0..70 {
        send_at_last(&mut to_server, &packet(number, 64));
        send_at_last(&mut to_client, &packet(number, 64));
        assert_eq!(receive_many(&mut from_client, 1), [packet(number, 64)]);
        assert_eq!(receive_many(&mut from_server, 1), [packet(number, 64)]);
        if number % 10 == 9 {
            drop((from_client, from_server));
            (from_client, from_server) = (input(&of[0]), input(&of[1]));
            drop((to_client, to_server));
            (to_client, to_server) = (output(&of[0]), output(&of[1]));
        }
    }
}

#[test]
fn a_secret_keeps_others_out() {
    let secret = |text| crate::memif::settings::Secret::new(text).unwrap();
    let [server, mut client] = settings(|s| s.secret = secret("open sesame"));
    let mut receiver = input(&server);
    client.secret = secret("open barley");
    let mut wrong = output(&client);
    for _ in 0..200 {
        assert_eq!(send(&mut wrong, &packet(0, 64)), Some(DropReason::NoPeer));
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(wrong);
    client.secret = server.secret;
    send_at_last(&mut output(&client), &packet(1, 64));
    drop(receive(&mut receiver));
    assert!(!format!("{server:?}").contains("sesame"));
}

#[test]
fn a_file_that_a_server_left_is_replaced_and_a_used_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock");
    let server = MemifSettings::new(path.to_str().unwrap(), Role::Server).unwrap();
    // A listener that ends without removing its file.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let first = input(&server);
    drop(first);
    assert!(!path.exists(), "it removes its own file");
    let _stream = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let refusal = MemifInput::open(&server, &any_pool(), 1).err().unwrap().to_string();
    assert!(refusal.contains("cannot listen there"), "{refusal}");
    assert!(path.exists());
}
