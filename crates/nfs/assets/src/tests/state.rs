//! State that moves between instances.

use std::cell::RefCell;

use proptest::prelude::*;

use super::*;
use thalweg_nf::Units;
use thalweg_nf::state::{StateReader, StateWriter};
use thalweg_testkit::moving::{Moving, assert_reads_recorded};

fn exported(bench: &Bench) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer =
        StateWriter::new(&mut bytes, "assets", bench.drive.nf.state_version()).unwrap();
    bench.drive.nf.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    bytes
}

/// The records of the state in an order of their own.
fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = bytes;
    let mut reader = StateReader::new(&mut bytes, "assets", 1).unwrap();
    let mut records: Vec<_> = std::iter::from_fn(|| reader.record::<Record>().unwrap())
        .map(|record| postcard::to_stdvec(&record).unwrap())
        .collect();
    records.sort();
    records
}

fn import(bench: &mut Bench, mut bytes: &[u8]) -> Result<usize, StateError> {
    let mut reader = StateReader::new(&mut bytes, "assets", bench.drive.nf.state_version())?;
    bench.drive.nf.import_state(&mut reader)
}

/// One of the packets of several conversations.
fn packet(kind: u8, host: u8) -> Vec<u8> {
    let mut packet = match kind {
        0 => syn(true, &LINUX),
        1 => syn(false, &LINUX),
        2 => segment(false, 0x18, b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
        3 => segment(true, 0x18, b"SSH-2.0-PuTTY_Release_0.78\r\n"),
        4 => segment(true, 0x10, b""),
        5 => segment(false, 0x18, b"nothing that is known"),
        6 => between(CLIENT, SERVER)
            .udp(5060, 5060)
            .build(b"OPTIONS sip:a SIP/2.0\r\nUser-Agent: x/1\r\n\r\n"),
        _ => between(SERVER, CLIENT).udp(53, 3000).build(&[0, 1, 0x81, 0x80, 0, 1, 0, 1, 0, 0]),
    };
    let client_at = if matches!(kind, 0 | 3 | 4 | 6) { 29 } else { 33 };
    packet[client_at] = host;
    packet
}

#[test]
fn who_takes_over_tells_the_same() {
    // Reading the fingerprints takes longer than a case.
    let benches = RefCell::new([Bench::new(""), Bench::new("")]);
    proptest!(ProptestConfig::with_cases(60), |(
        before in proptest::collection::vec((0u8..8, 1u8..5), 0..80),
        after in proptest::collection::vec((0u8..8, 1u8..5), 0..80),
    )| {
        let [first, second] = &mut *benches.borrow_mut();
        first.begin_again();
        second.begin_again();
        let packets = |list: &[(u8, u8)]| list.iter().map(|(k, h)| packet(*k, *h)).collect::<Vec<_>>();
        first.send(&packets(&before));
        let bytes = exported(first);
        import(second, &bytes).unwrap();
        second.drive.now = first.drive.now;
        prop_assert_eq!(records(&exported(second)), records(&bytes));
        first.send(&packets(&after));
        second.send(&packets(&after));
        prop_assert_eq!(records(&exported(second)), records(&exported(first)));
        prop_assert_eq!(second.hosts(), first.hosts());
    });
}

#[test]
fn damaged_state_leaves_everything_as_it_was() {
    let mut first = Bench::new("");
    first.send(&[syn(true, &LINUX), segment(false, 0x18, b"SSH-2.0-OpenSSH_9.2p1\r\n")]);
    let good = exported(&first);
    let mut second = Bench::new("built_in = false");
    for cut in 0..good.len() {
        assert!(import(&mut second, &good[..cut]).is_err(), "cut at {cut}");
        assert_eq!(second.figure("hosts"), 0);
    }
    import(&mut second, &good).unwrap();
    assert_eq!(records(&exported(&second)), records(&good));
}

#[test]
fn state_that_no_instance_can_have_is_refused() {
    let mut bytes = Vec::new();
    let mut writer = StateWriter::new(&mut bytes, "assets", 1).unwrap();
    let mut host = Host::new(Nanoseconds(1));
    host.name = Some("x".repeat(10_000));
    let id = HostId::new(0, std::net::IpAddr::from(CLIENT));
    writer.record([], &RecordRef::Host(&id, &host)).unwrap();
    writer.finish().unwrap();
    let mut bench = Bench::new("built_in = false");
    let error = import(&mut bench, &bytes).unwrap_err().to_string();
    assert_eq!(error, "state record 0: invalid host or conversation");
    assert_eq!(bench.figure("hosts"), 0);
}

#[test]
fn what_is_known_there_already_stays() {
    let mut first = Bench::new("");
    first.send(&[syn(true, &LINUX)]);
    let state = exported(&first);
    let mut second = Bench::new("");
    second.send(&[segment(false, 0x18, b"SSH-2.0-OpenSSH_9.2p1\r\n")]);
    for _ in 0..2 {
        import(&mut second, &state).unwrap();
        assert_eq!(["hosts", "conversations"].map(|name| second.figure(name)), [2, 1]);
        assert_eq!(second.host("10.0.0.1")["systems"][0]["by"], "syn");
        let says = &second.host("192.0.2.1")["services"][0]["says"];
        assert_eq!(says["service.product"], "OpenSSH");
    }
}

#[test]
fn findings_about_a_host_that_is_known_there_are_merged() {
    let mut first = Bench::new("");
    first.send(&[syn(true, &LINUX)]);
    let state = exported(&first);
    let mut second = Bench::new("");
    second.send(&[syn(true, &LINUX), segment(true, 0x18, b"SSH-2.0-PuTTY_Release_0.78\r\n")]);
    import(&mut second, &state).unwrap();
    let client = second.host("10.0.0.1");
    assert_eq!(client["systems"][0]["seen"], 2);
    assert_eq!(client["services"].as_array().unwrap().len(), 1);
    assert_eq!(client["services"][0]["says"]["service.product"], "PuTTY");
}

#[test]
fn state_of_more_than_may_be_there_stays_within_the_limits() {
    let mut first = Bench::new("");
    for host in 0..4_000 {
        first.drive.now.0 += 1;
        first.send(&[limits::from(host)]);
    }
    let state = exported(&first);
    let mut few = Bench::new("max_hosts = 1000\nmax_conversations = 500");
    assert_eq!(import(&mut few, &state).unwrap(), 8_000);
    assert!((1..=1000).contains(&few.figure("hosts")));
    assert!((1..=500).contains(&few.figure("conversations")));
    assert_eq!(few.figure("hosts") + few.figure("hosts_evicted"), 4_000);
    let mut small = Bench::new("memory_mib = 1");
    import(&mut small, &state).unwrap();
    assert!(small.figure("hosts_evicted") > 0, "they take more than 1 MiB");
    assert!((1..=1 << 20).contains(&small.figure("host_memory")));
    assert_eq!(small.figure("hosts") + small.figure("hosts_evicted"), 4_000);
}

/// A recorded stream of the format before: hosts and conversations.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    let mut bench = Bench::new("");
    assert_reads_recorded(&mut *bench.drive.nf, "assets", FORMAT_2, 13);
}

#[test]
fn all_hosts_move_at_once_while_packets_flow() {
    let bench = Bench::new("");
    proptest!(ProptestConfig::with_cases(30), |(
        packets in proptest::collection::vec((0u8..8, 1u8..5, 0u64..9), 1..120),
        moved in any::<prop::sample::Index>(),
    )| {
        let mut now = 0;
        let arrivals: Vec<_> = packets.iter().map(|(kind, host, seconds)| {
            now += seconds;
            (Nanoseconds::from_secs(now), packet(*kind, *host))
        }).collect();
        let mut moving = Moving::new("assets", Units::whole(), |_| bench.blueprint.instance());
        let (before, after) = arrivals.split_at(moved.index(arrivals.len()));
        before.chunks(7).for_each(|packets| moving.send(packets));
        prop_assert_eq!(moving.move_all(), 0);
        after.chunks(7).for_each(|packets| moving.send(packets));
        moving.end();
        // Each flush replaces the file.
        let [whole, old, new] = [moving.whole, moving.old, moving.new].map(|mut nf| {
            nf.flush().unwrap();
            std::fs::read_to_string(bench.folder.path().join("i.json")).unwrap()
        });
        prop_assert_eq!(old, "");
        prop_assert_eq!(new, whole);
    });
}
