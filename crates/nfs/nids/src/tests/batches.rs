//! Compares a batch of packets, which are searched ahead, with the same packets one by one.

use proptest::prelude::*;
use thalweg_nf::device::DeviceFunction;
use thalweg_testkit::cases;
use thalweg_testkit::moving::exported;

use super::insertion::{stamps, with_options};
use super::*;

const RULES: &str = "\
    alert tcp any any -> any any (msg:\"three\"; content:\"abc\"; sid:1;)\n\
    alert tcp any any -> any any (msg:\"four\"; content:\"cabd\"; nocase; sid:2;)\n\
    alert tcp any any -> any any (msg:\"both\"; content:\"ab\"; content:\"dc\"; distance:0; sid:3;)\n\
    alert tcp-pkt any any -> any any (msg:\"packet\"; content:\"bb\"; sid:4;)\n\
    alert tcp any any -> any any (msg:\"set\"; flow:to_server; content:\"dd\"; flowbits:set,x; sid:5;)\n\
    alert tcp any any -> any any (msg:\"isset\"; flowbits:isset,x; content:\"aac\"; sid:6;)\n\
    alert tcp any any -> any any (msg:\"none\"; content:!\"a\"; dsize:>3; sid:7;)\n\
    alert tcp any any -> any any (msg:\"size\"; stream_size:client,>,9; content:\"ca\"; sid:8;)\n\
    alert tcp any 1000:1001 -> any 80 (msg:\"begins\"; flags:S,12; sid:11;)\n\
    alert tcp any 1001: <> any [80,!90] (msg:\"ends\"; flags:*FR; flow:established; sid:12;)\n\
    alert tcp any !1002 -> any any (msg:\"short\"; dsize:1; sid:13;)\n\
    alert tcp any any -> any 80 (msg:\"to 80\"; content:\"da\"; sid:14;)\n\
    alert tcp any 80 -> any any (msg:\"from 80\"; content:\"ad\"; sid:15;)\n\
    alert tcp any [1000,1001] <> any any (msg:\"both ways\"; content:\"ccc\"; sid:16;)\n\
    alert tcp any 1002 -> any [80,81] (msg:\"both ends\"; content:\"ba\"; sid:17;)\n\
    alert ip any any -> any [1001:1003,!1002] (msg:\"a hole\"; content:\"bd\"; sid:18;)\n\
    alert tcp any [1:65535] -> any 1000: (msg:\"many\"; content:\"bcd\"; sid:19;)\n\
    alert udp any any -> any 80 (msg:\"another protocol\"; content:\"abc\"; sid:20;)\n";
/// No rule must be evaluated for most packets.
const QUIET: &str = "\
    alert tcp any any -> any any (msg:\"five\"; content:\"abcdb\"; sid:1;)\n\
    alert tcp any any -> any any (msg:\"four\"; content:\"cabd\"; nocase; flowbits:set,x; sid:2;)\n\
    alert tcp any any -> any any (msg:\"both\"; content:\"bbcc\"; content:\"da\"; distance:0; sid:3;)\n";
const HTTP: &str = "\
    alert http any any -> any any (msg:\"uri\"; http.uri; content:\"/ab\"; sid:9;)\n\
    alert http any any -> any any (msg:\"uri and payload\"; http.uri; content:\"/a\"; pkt_data; \
        content:\"GET /a\"; sid:10;)\n";

/// What streams repeat, so that literals reach over several segments.
const VERSE: &[u8] =
    b"Row, row, row your boat gently down the stream; merrily, merrily. \xf1\xf2\xf3\xf4 ";
const VERSES: &str = "\
    alert tcp any any -> any any (msg:\"short\"; content:\"y, me\"; sid:1;)\n\
    alert tcp any any -> any any (msg:\"to the end\"; content:\"boat gently down the stream\"; sid:2;)\n\
    alert tcp any any -> any any (msg:\"runs\"; content:\"eam; merrily, merrily. row, row\"; nocase; sid:3;)\n\
    alert tcp any any -> any any (msg:\"two\"; content:\"row your\"; content:\"merrily. R\"; distance:0; sid:4;)\n\
    alert tcp any 1000 -> any any (msg:\"long\"; content:\"row your boat gently down the stream; merrily,\"; sid:5;)\n";
/// Most segments have nothing of it.
const BY_ITS_END: &str = "\
    alert tcp any any -> any any (msg:\"found by its end\"; \
        content:\"gently down the stream; merrily, merrily. |f1 f2 f3 f4|\"; sid:6;)\n";

/// A segment, described by its difference from its side's next segment.
#[derive(Clone, Debug)]
struct Step {
    connection: u16,
    to_server: bool,
    flags: u8,
    /// Bytes ahead of the next sequence number.
    ahead: i32,
    /// Bytes ahead of what it should acknowledge.
    acknowledged: i32,
    /// How much older its timestamp is than the newest.
    older: u32,
    payload: Vec<u8>,
    /// Its checksum is wrong, and its sender continues as if it had not sent it.
    damaged: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![30 => Just(24u8), 1 => Just(2u8), 1 => Just(18u8), 1 => Just(17u8), 1 => Just(4u8)];
    let offset = || prop_oneof![8 => Just(0), 1 => -4i32..5];
    let older = prop_oneof![8 => Just(0u32), 1 => 1..5u32];
    let letters = proptest::collection::vec(prop_oneof![Just(b'a'), b'a'..b'e', Just(b'C')], 0..7);
    let payload = prop_oneof![20 => letters, 1 => Just(b"GET /abd HTTP/1.1\r\n\r\n".to_vec())];
    let offsets = (offset(), offset(), older);
    (0..3u16, any::<bool>(), flags, offsets, payload, prop::bool::weighted(0.1)).prop_map(
        |(connection, to_server, flags, (ahead, acknowledged, older), payload, damaged)| Step {
            connection,
            to_server,
            flags,
            ahead,
            acknowledged,
            older,
            payload,
            damaged,
        },
    )
}

/// The packets of `steps`, after the handshakes of all but the last connection, with timestamps or
/// without.
fn packets(steps: &[Step], stamped: bool, verses: bool) -> Vec<Vec<u8>> {
    let mut next = [[1001u32, 5001]; 3];
    let mut packets = Vec::new();
    let mut segment_of = {
        let mut clock = 100;
        move |connection, to_server, flags, sequence, acknowledged, older, payload: &[u8]| {
            let packet = segment_of(connection, to_server, flags, sequence, acknowledged, payload);
            clock += 1;
            if stamped { with_options(packet, &stamps(clock - older, 7)) } else { packet }
        }
    };
    for port in 0..2 {
        packets.push(segment_of(port, true, 2, 1000, 0, 0, b""));
        packets.push(segment_of(port, false, 18, 5000, 1001, 0, b""));
        packets.push(segment_of(port, true, 16, 1001, 5001, 0, b""));
    }
    for step in steps {
        let sides = &mut next[usize::from(step.connection)];
        let (own, other) = (usize::from(!step.to_server), usize::from(step.to_server));
        let sequence = sides[own].wrapping_add(step.ahead as u32);
        let acknowledged = sides[other].wrapping_add(step.acknowledged as u32);
        let Step { connection, to_server, flags, older, payload, .. } = step;
        let from = sequence as usize % VERSE.len();
        let verse = VERSE.iter().copied().cycle().skip(from).take(17 * payload.len());
        let payload = if verses { verse.collect() } else { payload.clone() };
        let mut packet =
            segment_of(*connection, *to_server, *flags, sequence, acknowledged, *older, &payload);
        if step.damaged {
            packet[14 + 20 + 16] ^= 1;
        } else if step.ahead == 0 {
            sides[own] += payload.len() as u32;
        }
        packets.push(packet);
    }
    packets
}

/// How a batch is inspected.
#[derive(Clone, Debug)]
struct Case {
    /// Packets of a batch.
    many: usize,
    rules: usize,
    midstream: bool,
    last: bool,
    stamped: bool,
    target: &'static str,
    /// Connections that the table holds.
    most: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let target = prop::sample::select(vec!["linux", "windows", "bsd"]);
    let most = prop::sample::select(vec![2usize, 100_000]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (2usize..=BATCH, 0..6usize, flags, target, most).prop_map(
        |(many, rules, (midstream, last, stamped), target, most)| Case {
            many,
            rules,
            midstream,
            last,
            stamped,
            target,
            most,
        },
    )
}

/// Checks that batches of these packets give the same as the packets one by one, which are not searched
/// ahead.
fn batches_agree(steps: &[Step], case: Case) -> Result<(), TestCaseError> {
    let Case { many, rules, midstream, last, stamped, target, most } = case;
    let verses = matches!(rules, 3 | 4);
    let sets = [&[QUIET][..], &[RULES], &[RULES, HTTP], &[VERSES], &[BY_ITS_END], &[BY_ITS_END]];
    let rules = sets[rules].concat();
    let overlaps = if last { "last" } else { "first" };
    let options = format!(
        "midstream = {midstream}\noverlaps = '{overlaps}'\ntarget = '{target}'\nmax_flows = {most}"
    );
    let packets = packets(steps, stamped, verses);
    let mut bench = Bench::new(&rules, &options);
    let mut run = |many: usize, blind: bool| {
        ahead::BLIND.set(blind);
        bench.begin_again();
        packets.chunks(many).for_each(|packets| drop(bench.send(packets)));
        let state = exported(&*bench.drive.nf, "nids");
        (bench.alerts(), bench.drive.nf.figures(), state)
    };
    let reference = run(1, true);
    prop_assert_eq!(&run(many, false), &reference);
    prop_assert_eq!(&run(1, false), &reference);
    let work = bench.blueprint.device_work().unwrap();
    let mut run_by_device = |many: usize| {
        bench.begin_again();
        for packets in packets.chunks(many) {
            bench.drive.send_by_device(&work, packets);
        }
        let state = exported(&*bench.drive.nf, "nids");
        (bench.alerts(), bench.drive.nf.figures(), state)
    };
    prop_assert_eq!(&run_by_device(many), &reference);
    prop_assert_eq!(&run_by_device(3 * BATCH), &reference);
    // A device that does nothing, and one with the table of other rules, rule out nothing.
    for function in [
        DeviceFunction { scalar: |_, _, _| [0; 2], ..work.function },
        DeviceFunction { scalar: |_, _, _| [0, 77], ..work.function },
    ] {
        bench.begin_again();
        let work = DeviceWork { function, ..work.clone() };
        packets.chunks(many).for_each(|packets| drop(bench.drive.send_by_device(&work, packets)));
        prop_assert_eq!(bench.alerts(), reference.0.clone());
    }
    Ok(())
}

/// Steps of one direction, so that its past is forgotten and its ring goes on at the beginning.
fn one_stream() -> impl Strategy<Value = Vec<Step>> {
    let steps = proptest::collection::vec((step(), 0..12u8), 80..200);
    steps.prop_map(|steps| {
        let of_it = |(step, other): (Step, u8)| {
            if other == 0 { step } else { Step { connection: 0, to_server: true, ..step } }
        };
        steps.into_iter().map(of_it).collect()
    })
}

/// The SYN before it has just begun the stream of a connection that was known without one.
#[test]
fn a_segment_without_data_has_none_of_an_earlier_batch() {
    let rules =
        "alert tcp any any -> any any (msg:\"x\"; content:\"needle in a haystack\"; sid:1;)\n";
    let mut bench = Bench::new(rules, "");
    bench.send(&[
        segment_of(0, true, 2, 1000, 0, b""),
        segment_of(0, false, 18, 5000, 1001, b""),
        segment_of(0, true, 16, 1001, 5001, b""),
        segment_of(1, true, 24, 900, 1, b"without a handshake"),
    ]);
    let data = [b'.'; 51];
    bench.send(&[
        segment_of(0, true, 16, 1001, 5001, b""),
        segment_of(0, true, 24, 1001, 5001, &data),
    ]);
    bench.send(&[segment_of(1, true, 2, 1000, 0, b""), segment_of(1, true, 16, 1001, 5001, b"")]);
    bench.send(&[segment_of(1, true, 24, 1001, 5001, b"a needle in a haystack")]);
    assert_eq!(bench.sids(), [1]);
}

/// Two packets a batch, which have nothing of a literal, so that only the ends of streams are searched again.
const TWO: Case = Case {
    many: 2,
    rules: 5,
    midstream: false,
    last: false,
    stamped: false,
    target: "linux",
    most: 100_000,
};

fn plain_step(to_server: bool, flags: u8, ahead: i32, payload: &[u8]) -> Step {
    let payload = payload.to_vec();
    let (connection, acknowledged, older, damaged) = (1, 0, 0, false);
    Step { connection, to_server, flags, ahead, acknowledged, older, payload, damaged }
}

#[test]
fn a_segment_waits_for_the_fin_before_it_in_the_batch() {
    let data = || plain_step(true, 24, 0, b"more than a seam has");
    let steps = [data(), data(), data(), data(), plain_step(true, 17, 0, b""), data()];
    batches_agree(&steps, TWO).unwrap();
}

/// Also if a packet is late, or later than a connection is kept.
#[test]
fn the_time_of_a_connection_is_that_of_its_packets() {
    let mut bench = Bench::new(BY_ITS_END, "idle_timeout_s = 60");
    for seconds in [0, 59, 60, 61] {
        for late in [Nanoseconds(0), Nanoseconds(1000), Nanoseconds::from_secs(20)] {
            let mut run = |blind: bool| {
                ahead::BLIND.set(blind);
                bench.begin_again();
                let steps = vec![plain_step(true, 24, 0, b"more than a seam has"); 5];
                let packets = packets(&steps, false, false);
                let start = Nanoseconds::from_secs(100);
                bench.drive.now = start;
                bench.send(&packets[..7]);
                bench.send(&packets[7..8]);
                bench.drive.now = start.plus(Nanoseconds::from_secs(seconds));
                bench.send(&packets[8..9]);
                bench.drive.now = Nanoseconds(bench.drive.now.0 - late.0);
                bench.send(&packets[9..]);
                exported(&*bench.drive.nf, "nids")
            };
            let (reference, state) = (run(true), run(false));
            assert_eq!(state, reference, "{seconds} s, {late:?} late");
        }
    }
}

/// In a connection that was reset, so that its phase does not tell.
#[test]
fn data_that_reaches_an_early_fin_ends_its_stream() {
    let steps = [
        plain_step(false, 4, 0, b""),
        plain_step(true, 24, 0, b"a"),
        plain_step(false, 17, 3, b""),
        plain_step(false, 24, 0, b"aaa"),
        plain_step(false, 24, 0, b"beyond the end"),
    ];
    batches_agree(&steps, Case { rules: 0, ..TWO }).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]
    #[test]
    fn a_batch_gives_the_alerts_and_the_state_of_its_packets(
        steps in proptest::collection::vec(step(), 0..100),
        case in case(),
    ) {
        batches_agree(&steps, case)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]
    #[test]
    fn so_does_one_of_long_streams(steps in one_stream(), case in case(), rules in 3..6usize) {
        batches_agree(&steps, Case { rules, ..case })?;
    }
}
