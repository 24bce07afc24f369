//! Connections that move to another instance.

use proptest::prelude::*;
use thalweg_testkit::cases;
use thalweg_testkit::fragments::{parts, steps};
use thalweg_testkit::moving::{Moving, Role, assert_reads_recorded};

use super::*;

const RULES: &str = "\
    alert tcp any any -> any any (msg:\"raw\"; content:\"needle\"; sid:1;)\n\
    alert http any any -> any any (msg:\"uri\"; http.uri; content:\"/a\"; flowbits:set,seen; sid:2;)\n\
    alert http any any -> any any (msg:\"later\"; flowbits:isset,seen; file_data; content:\"MALWARE\"; sid:3;)\n\
    alert http any any -> any any (msg:\"host\"; http.host; content:\"evil.example\"; sid:4;)\n\
    drop tcp any any -> any any (msg:\"drop\"; content:\"ATTACK\"; sid:5;)\n\
    alert udp any any -> any any (msg:\"part\"; content:\"|00|\"; sid:6;)\n";

/// A recorded stream: two TCP connections, one of them in an HTTP answer, UDP, ICMP and fragments.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    // The rules to which the recorded connections belong.
    let rules = "alert tcp any any -> any any (msg:\"m\"; content:\"needle\"; sid:1;)\n\
        alert http any any -> any any (msg:\"u\"; http.uri; content:\"/a\"; flowbits:set,seen; sid:2;)\n";
    let mut bench = Bench::new(rules, "");
    assert_reads_recorded(&mut *bench.drive.nf, "nids", FORMAT_2, RECORDED);
    // A connection goes on in the middle of a word.
    let rest = segment_between(([10, 0, 0, 2], 40_001), ([198, 51, 100, 2], 80), 1009, b"dle");
    bench.send(&[rest]);
    assert_eq!(bench.sids(), [1]);
}

const RECORDED: usize = 6;

fn segment_between(from: ([u8; 4], u16), to: ([u8; 4], u16), seq: u32, payload: &[u8]) -> Vec<u8> {
    let segment = TcpSegment {
        src_port: from.1,
        dst_port: to.1,
        seq,
        ack: 5001,
        flags: 24,
        window: u16::MAX,
    };
    PacketBuilder::new([2; 6], [4; 6]).ip(from.0.into(), to.0.into()).tcp(segment).build(payload)
}

/// What a client says, and what its server answers.
const TALKS: [(&[u8], &[u8]); 4] = [
    (
        b"GET /a HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nMALWARE",
    ),
    (
        b"GET /b HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n",
    ),
    (b"some text with a needle in it, and a needle", b"an answer without"),
    (b"begin ATTACK and go on", b"more of the answer"),
];

/// The packets of a connection, whose segments end after each number of bytes.
fn talk(connection: u16, which: usize, cuts: &[usize]) -> Vec<Vec<u8>> {
    let send =
        |up, flags, seq, ack, payload: &[u8]| segment_of(connection, up, flags, seq, ack, payload);
    let mut all = vec![
        send(true, 2, 1000, 0, b""),
        send(false, 18, 5000, 1001, b""),
        send(true, 16, 1001, 5001, b""),
    ];
    let (request, answer) = TALKS[which % TALKS.len()];
    for (up, whole, first, other) in
        [(true, request, 1001, 5001), (false, answer, 5001, 1001 + request.len() as u32)]
    {
        let mut at = 0;
        for cut in cuts.iter().copied().chain([usize::MAX]) {
            let end = whole.len().min(at + cut.min(100) + 1);
            if at < end {
                all.push(send(up, 24, first + at as u32, other, &whole[at..end]));
            }
            at = end;
        }
    }
    let (sent, answered) = (1001 + request.len() as u32, 5001 + answer.len() as u32);
    all.extend([send(true, 17, sent, answered, b""), send(false, 17, answered, sent + 1, b"")]);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(32)))]
    #[test]
    fn connections_move_unit_by_unit_while_packets_flow(
        seed: u64,
        talks in proptest::collection::vec(
            (0usize..4, proptest::collection::vec(0usize..20, 0..5)), 1..16,
        ),
        pieces in proptest::collection::vec((any::<bool>(), 100usize..900, 4usize..40), 0..4),
        order in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..9), 30..200),
        moves in proptest::collection::vec(0u16..32, 0..60),
        batch in 1usize..=BATCH,
    ) {
        // Each packet takes the next of some connection or fragmented packet.
        let mut queues: Vec<std::collections::VecDeque<Vec<u8>>> = (0..)
            .zip(&talks)
            .map(|(n, (which, cuts))| talk(n, *which, cuts).into())
            .collect();
        queues.extend((0..).zip(&pieces).map(|(id, (v6, len, step))| {
            let whole = thalweg_testkit::fragments::packet(*v6, *len, id);
            parts(&whole, id, steps(*len, *step)).into_iter().collect()
        }));
        let mut now = 0;
        let arrivals: Vec<_> = order.into_iter().filter_map(|(of, seconds)| {
            now += seconds;
            let count = queues.len();
            Some((Nanoseconds::from_secs(now), queues[of.index(count)].pop_front()?))
        }).collect();

        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        std::fs::write(folder.path().join("t.rules"), RULES).unwrap();
        let blueprint = |alerts: &str| {
            let text = format!("rules = ['{at}/t.rules']\nalerts = '{at}/{alerts}'\nidle_timeout_s = 60");
            KIND.build_in(&text, &Environment::default()).unwrap()
        };
        // The two instances between which units move write one file.
        let (one, both) = (blueprint("one.json"), blueprint("both.json"));
        let units = Units::new(32, Steering::with_seed(seed)).unwrap();
        let mut moving = Moving::new("nids", units, |role| match role {
            Role::Whole => one.instance(),
            Role::Part => both.instance(),
        });
        drop(moving.send_while_moving(&arrivals, batch, moves, 6));
        moving.end();
        moving.flush();
        let alerts = |file| {
            let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            // Of one batch, one instance writes before the other.
            lines.sort();
            lines
        };
        prop_assert_eq!(alerts("one.json"), alerts("both.json"));
        for name in ["flows", "alerts", "stream_memory", "flows_evicted", "streams_evicted"] {
            let figure = |nf: &dyn NetworkFunction| {
                nf.figures().iter().find(|(known, _)| *known == name).unwrap().1
            };
            let sum = figure(&*moving.old) + figure(&*moving.new);
            prop_assert_eq!(sum, figure(&*moving.whole), "{}", name);
        }
    }
}
