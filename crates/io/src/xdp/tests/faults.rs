//! Interfaces that go, are taken, or do not have what was requested.

use super::*;

fn refusal(settings: &XdpSettings, pool: &Arc<Pool>) -> String {
    XdpInput::open(settings, pool).err().expect("it is refused").to_string()
}

#[test]
fn what_cannot_be_had_is_named() {
    laboratory(|| {
        let pool = pool(2048);
        for (settings, what) in [
            (XdpSettings::new("nowhere"), "interface nowhere: there is no such interface"),
            (settings(XdpMode::ZeroCopy), "needs frames in huge pages; expected huge_pages = true"),
            (XdpSettings { queue: 7, ..settings(XdpMode::Auto) }, "it has no queue 7"),
            (XdpSettings::new("near"), "expected a smaller ring_size, or frames = 8192 or more"),
        ] {
            let refused = refusal(&settings, &pool);
            assert!(refused.contains(what), "{refused}");
        }
        let small = Arc::new(Pool::anonymous(4096, 1024).unwrap());
        let refused = refusal(&settings(XdpMode::Auto), &small);
        assert!(refused.contains("frames of 1024 bytes are too small for AF_XDP"), "{refused}");
        assert_eq!((pool.in_use(), small.in_use()), (0, 0));
    });
}

/// The pages of such memory may lie apart, and the kernel may be unable to pin them.
#[test]
fn what_memory_of_another_owner_cannot_do_is_named() {
    laboratory(|| {
        let (foreign, unpinnable) =
            (crate::foreign::pool(4096, 2048), crate::foreign::unpinnable_pool(4096, 2048));
        let refused = refusal(&settings(XdpMode::ZeroCopy), &foreign);
        assert!(refused.contains("and a device has allocated packet memory"), "{refused}");
        for mode in [XdpMode::Auto, XdpMode::Copy, XdpMode::Generic] {
            let refused = refusal(&settings(mode), &unpinnable);
            let expected = "the kernel cannot receive into the packet memory that a device has";
            assert!(refused.contains(expected), "{refused}");
        }
        assert_eq!((foreign.in_use(), unpinnable.in_use()), (0, 0));
    });
}

#[test]
fn an_interface_that_the_host_needs_is_taken_only_by_force() {
    laboratory(|| {
        ip("addr add 10.0.0.1/24 dev near");
        ip("route add default via 10.0.0.2");
        let pool = pool(2048);
        let refused = refusal(&settings(XdpMode::Auto), &pool);
        assert!(refused.contains("the host's default route") && refused.contains("force = true"));
        XdpInput::open(&XdpSettings { force: true, ..settings(XdpMode::Auto) }, &pool).unwrap();
    });
}

#[test]
fn a_queue_belongs_to_one_input_and_one_output() {
    laboratory(|| {
        let pool = pool(2048);
        let auto = settings(XdpMode::Auto);
        let input = XdpInput::open(&auto, &pool).unwrap();
        let refused = refusal(&auto, &pool);
        assert!(refused.contains("another input has it"), "{refused}");
        let other = XdpOutput::open(&settings(XdpMode::Copy), &pool).err().unwrap().to_string();
        assert!(other.contains("'mode' is not that of another input"), "{other}");
        let output = XdpOutput::open(&auto, &pool).unwrap();
        drop(input);
        // The output keeps the socket, and the next input has it again.
        let input = XdpInput::open(&auto, &pool).unwrap();
        drop((output, input));
        assert_eq!(pool.in_use(), 0);
        // The queue is free at once.
        drop(XdpInput::open(&settings(XdpMode::Generic), &pool).unwrap());
        drop(XdpInput::open(&settings(XdpMode::Copy), &pool).unwrap());
    });
}

/// The program of another process is in the way, and so is its socket.
#[test]
fn what_another_program_has_is_named() {
    laboratory(|| {
        let pool = pool(2048);
        let (_, index) = crate::interface::open("near").unwrap();
        let other = interface::Redirection::attach(&settings(XdpMode::Auto), index as u32).unwrap();
        for mode in [XdpMode::Auto, XdpMode::Copy, XdpMode::Generic] {
            let refused = refusal(&settings(mode), &pool);
            assert!(refused.contains("another XDP program is attached to it"), "{refused}");
        }
        drop(other);
        let taken = socket::XdpSocket::new().unwrap();
        let chunks = socket::Chunks { size: 2048, headroom: 0 };
        taken.register(pool.memory(), chunks).unwrap();
        let _rings = taken.make_rings(64).unwrap();
        taken.bind(index as u32, 0, socket::Binding::Own(libc::XDP_COPY)).unwrap();
        let refused = refusal(&settings(XdpMode::Auto), &pool);
        assert!(refused.contains("its queue 0 is taken by another AF_XDP socket"), "{refused}");
    });
}

/// Two ports share one registration of packet memory, and packets go from one to the other in their
/// frames.
#[test]
fn ports_share_packet_memory() {
    laboratory(|| {
        ip("link add left type veth peer name right");
        ["left", "right"].into_iter().for_each(up);
        let (ours, theirs) = (pool(2048), pool(2048));
        let left = XdpSettings { interface: "left".into(), ..settings(XdpMode::Auto) };
        let mut input = XdpInput::open(&settings(XdpMode::Auto), &ours).unwrap();
        let mut output = XdpOutput::open(&left, &ours).unwrap();
        assert!(!input.mode().contains("shared"));
        assert!(output.mode().contains("shared memory registration"), "{}", output.mode());
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let mut right_in = InterfaceInput::open("right", true, None).unwrap();
        let (mut batch, mut drops) = (Batch::new(ours.clone()), DropCounts::default());
        for number in 0..200 {
            let one = filled(&theirs, &[packet(number, 1000)]);
            far_out.send(&one, one.lanes(), &mut drops).unwrap();
            assert_eq!(receive(&mut input, &mut batch, &mut drops), 1);
            output.send_frames(&mut batch, Lanes::first(1), &mut drops).unwrap();
            let mut back = Batch::new(theirs.clone());
            assert_eq!(receive(&mut right_in, &mut back, &mut drops), 1);
            assert!(back.bytes(0) == packet(number, 1000));
        }
        assert_eq!((input.copied(), output.copied(), drops.total()), (Some(0), Some(0), 0));
        // The first one registered the memory; the other one keeps it.
        drop(input);
        let more = filled(&ours, &[packet(1, 60)]);
        output.send(&more, more.lanes(), &mut drops).unwrap();
        drop((output, more, batch));
        assert_eq!(ours.in_use(), 0);
    });
}

#[test]
fn an_interface_that_is_removed_under_traffic_returns_all_frames() {
    laboratory(|| {
        let (ours, theirs) = (pool(2048), pool(2048));
        let mut input = XdpInput::open(&settings(XdpMode::Auto), &ours).unwrap();
        let mut output = XdpOutput::open(&settings(XdpMode::Auto), &ours).unwrap();
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let mut drops = DropCounts::default();
        let some = filled(&theirs, &(0..32).map(|n| packet(n, 700)).collect::<Vec<_>>());
        for _ in 0..5 {
            far_out.send(&some, some.lanes(), &mut drops).unwrap();
            let more = filled(&ours, &[packet(1, 60)]);
            output.send(&more, more.lanes(), &mut drops).unwrap();
        }
        ip("link del near");
        let mut batch = Batch::new(ours.clone());
        let (since, mut received) = (Instant::now(), 0);
        let failure = loop {
            assert!(since.elapsed() < Duration::from_secs(5), "it hangs");
            match input.receive(&mut batch, BATCH, &mut drops) {
                Ok(more) => received += more.packets,
                Err(error) => break error.to_string(),
            }
            batch.release(Lanes::ALL);
        };
        assert_eq!(failure, "interface near: it was removed");
        assert!(received > 0, "what had arrived is received");
        assert!(input.receive(&mut batch, BATCH, &mut drops).unwrap().ended);
        assert_eq!(output.check().unwrap_err().to_string(), failure);
        let more = filled(&ours, &[packet(1, 60), packet(2, 60)]);
        let mut losses = DropCounts::default();
        let sent = output.send(&more, more.lanes(), &mut losses).unwrap_err();
        assert_eq!(sent.error.to_string(), failure);
        // Those that the ring had are reported as sent, and as lost since.
        let in_ring = sent.sent.count() as u64;
        assert_eq!((sent.lost.packets, sent.lost.bytes), (in_ring, 60 * in_ring));
        assert_eq!(losses.total() + in_ring, 2);
        drop((input, output, more, batch));
        assert_eq!(ours.in_use(), 0);
    });
}

#[test]
fn an_interface_that_is_down_loses_packets_by_name_and_comes_back() {
    laboratory(|| {
        let (ours, theirs) = (pool(2048), pool(2048));
        let mut input = XdpInput::open(&settings(XdpMode::Auto), &ours).unwrap();
        let mut output = XdpOutput::open(&settings(XdpMode::Auto), &ours).unwrap();
        let mut drops = DropCounts::default();
        ip("link set near down");
        let more = filled(&ours, &[packet(1, 60)]);
        output.send(&more, more.lanes(), &mut drops).unwrap();
        assert_eq!(drops.get(DropReason::OutputFailed), 1);
        let mut batch = Batch::new(ours.clone());
        assert_eq!(receive(&mut input, &mut batch, &mut drops), 0);
        ip("link set near up");
        thread::sleep(Duration::from_millis(100));
        assert_eq!(output.send(&more, more.lanes(), &mut drops).unwrap(), more.lanes());
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let one = filled(&theirs, &[packet(3, 80)]);
        far_out.send(&one, one.lanes(), &mut drops).unwrap();
        assert_eq!(receive(&mut input, &mut batch, &mut drops), 1);
        assert!(batch.bytes(0) == packet(3, 80));
    });
}
