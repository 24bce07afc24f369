//! Patterns across segments and messages, and evasions.

use proptest::prelude::*;
use thalweg_nf::toolkit::output::OutputFile;

use super::*;

const HTTP: &str = "\
    alert http any any -> any any (msg:\"uri\"; http.uri; content:\"/etc/passwd\"; sid:1;)\n\
    alert http any any -> any any (msg:\"host\"; http.host; content:\"evil.example\"; endswith; sid:2;)\n\
    alert http any any -> any any (msg:\"body\"; file_data; content:\"MALWARE\"; sid:3;)\n\
    alert http any any -> any any (msg:\"status\"; http.stat_code; content:\"404\"; sid:4;)\n\
    alert tcp any any -> any any (msg:\"raw\"; content:\"Host: \"; content:\"example\"; distance:0; sid:5;)\n\
    alert http any any -> any any (msg:\"both\"; http.method; content:\"GET\"; http.header; content:\"Accept\"; sid:6;)\n\
    alert tcp-pkt any any -> any any (msg:\"packet\"; content:\"GET /..\"; sid:7;)\n";

const REQUEST: &[u8] =
    b"GET /../x/%2e%2e/etc//passwd HTTP/1.1\r\nHost: WWW.evil.example:80\r\nAccept: */*\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    3\r\nMAL\r\n4;x=y\r\nWARE\r\n0\r\n\r\n\
    HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

fn fired(bench: &mut Bench) -> Vec<u64> {
    let mut sids = bench.sids();
    sids.sort_unstable();
    sids
}

/// A conversation split into segments: direction, sequence number, bytes.
fn segments(cuts: &[usize]) -> Vec<(bool, u32, Vec<u8>)> {
    let mut all = Vec::new();
    for (to_server, first, whole) in [(true, 1001u32, REQUEST), (false, 5001, RESPONSE)] {
        let mut at = 0;
        for cut in cuts.iter().chain([&usize::MAX]) {
            let end = whole.len().min(usize::saturating_add(at, cut.saturating_add(1)));
            if at < end {
                all.push((to_server, first + at as u32, whole[at..end].to_vec()));
            }
            at = end;
        }
    }
    all
}

fn handshake() -> Vec<Vec<u8>> {
    vec![
        segment(true, 2, 1000, 0, b""),
        segment(false, 18, 5000, 1001, b""),
        segment(true, 16, 1001, 5001, b""),
    ]
}

fn packets(segments: &[(bool, u32, Vec<u8>)]) -> Vec<Vec<u8>> {
    // They acknowledge nothing new, so no byte counts as lost.
    let of = |(to_server, sequence, bytes): &(bool, u32, Vec<u8>)| {
        let other = if *to_server { 5001 } else { 1001 };
        segment(*to_server, 24, *sequence, other, bytes)
    };
    segments.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn however_a_conversation_is_cut_and_ordered_the_same_rules_fire(
        cuts in proptest::collection::vec(0usize..60, 0..12),
        swaps in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        again in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        moved in any::<prop::sample::Index>(),
    ) {
        let mut all = segments(&cuts);
        for (a, b) in swaps {
            let (a, b) = (a.index(all.len()), b.index(all.len()));
            // The directions keep their order: responses follow requests.
            if all[a].0 == all[b].0 {
                all.swap(a, b);
            }
        }
        for again in again {
            let copy = all[again.index(all.len())].clone();
            all.push(copy);
        }
        let packets = packets(&all);
        let mut bench = Bench::new(HTTP, "");
        bench.send(&handshake());
        // Halfway, the state moves to another instance with the same rules.
        let moved = moved.index(packets.len() + 1);
        for packet in &packets[..moved] {
            bench.send(std::slice::from_ref(packet));
        }
        let mut other = Bench::new(HTTP, "");
        hand_over(&bench, &mut other);
        for packet in &packets[moved..] {
            other.send(std::slice::from_ref(packet));
        }
        let mut sids = fired(&mut bench);
        sids.extend(other.sids());
        sids.sort_unstable();
        sids.retain(|sid| *sid != 7);
        prop_assert_eq!(sids, [1, 2, 3, 4, 5, 6]);
    }
}

pub(super) fn hand_over(from: &Bench, to: &mut Bench) {
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "nids", 3).unwrap();
    from.drive.nf.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    let mut input = &stream[..];
    to.drive.nf.import_state(&mut StateReader::new(&mut input, "nids", 3).unwrap()).unwrap();
}

proptest! {
    #[test]
    fn rules_that_wait_fire_with_the_last_of_what_they_lack(
        words in proptest::collection::vec(
            prop::sample::select(vec!["first", "second", "Third", "xy", "."]), 1..12),
        cuts in proptest::collection::vec(1usize..9, 1..40),
    ) {
        const RULES: &str = "\
            alert tcp any any -> any any (msg:\"1\"; content:\"first\"; content:\"second\"; distance:0; \
            content:\"third\"; nocase; distance:0; sid:1;)\n\
            alert tcp any any -> any any (msg:\"2\"; content:\"second\"; fast_pattern; content:\"xy\"; \
            content:!\"first\"; sid:2;)\n";
        let text = words.concat();
        let (mut bench, mut packets) = (Bench::new(RULES, ""), handshake());
        let mut at = 0;
        for cut in cuts.iter().cycle() {
            if at == text.len() {
                break;
            }
            let end = text.len().min(at + cut);
            packets.push(segment(true, 24, 1001 + at as u32, 5001, &text.as_bytes()[at..end]));
            at = end;
        }
        bench.send(&packets);
        let after = |at: usize, word: &str| {
            text[at..].to_ascii_lowercase().find(word).map(|found| at + found + word.len())
        };
        let in_order = after(0, "first").and_then(|at| after(at, "second"));
        let in_order = in_order.and_then(|at| after(at, "third")).is_some();
        let fired = fired(&mut bench);
        prop_assert_eq!(fired.contains(&1), in_order, "{}", &text);
        let has_both = after(0, "second").is_some() && after(0, "xy").is_some();
        if has_both && after(0, "first").is_none() {
            prop_assert!(fired.contains(&2), "{text}");
        }
        prop_assert!(has_both || !fired.contains(&2), "{text}");
    }
}

#[test]
fn a_pattern_over_segments_is_found_once() {
    let rules = "alert tcp any any -> any any (msg:\"x\"; content:\"needle\"; sid:1;)\n\
        alert tcp-pkt any any -> any any (msg:\"x\"; content:\"needle\"; sid:2;)\n";
    let mut bench = Bench::new(rules, "");
    let mut talk = Talk::new();
    bench.send(&talk.handshake());
    for piece in [&b"a nee"[..], b"d", b"le and more", b"!"] {
        let packet = talk.send(true, 24, piece);
        // A retransmission adds nothing new.
        bench.send(&[packet.clone(), packet]);
    }
    assert_eq!(bench.sids(), [1]);
}

#[test]
fn what_waits_behind_a_gap_and_what_fills_it_late_are_looked_at() {
    let rules = "alert tcp any any -> any any (msg:\"x\"; content:\"needle\"; sid:1;)\n\
        alert tcp any any -> any any (msg:\"y\"; flow:to_server; content:\"filler\"; sid:2;)\n";
    let mut bench = Bench::new(rules, "");
    bench.send(&handshake());
    bench.send(&[segment(true, 24, 1007, 5001, b"a needle")]);
    assert!(bench.sids().is_empty(), "it waits for six bytes");
    bench.send(&[segment(false, 16, 5001, 1015, b"")]);
    assert_eq!(bench.sids(), [1]);
    bench.send(&[segment(true, 24, 1001, 5001, b"filler")]);
    assert_eq!(bench.sids(), [1, 2]);
    let mut bench = Bench::new(rules, "");
    bench.send(&handshake());
    bench.send(&[segment(false, 16, 5001, 1100, b"")]);
    bench.send(&[segment(true, 24, 1001, 5001, b"filler")]);
    assert_eq!(bench.sids(), [2], "what was acknowledged before it was sent");
}

#[test]
fn of_overlapping_segments_the_configured_one_counts() {
    let rules = "alert tcp any any -> any any (msg:\"a\"; content:\"attack\"; sid:1;)\n\
        alert tcp any any -> any any (msg:\"h\"; content:\"harmle\"; sid:2;)\n";
    for (overlaps, expected) in [("first", 1), ("last", 2)] {
        let mut bench = Bench::new(rules, &format!("overlaps = '{overlaps}'"));
        bench.send(&handshake());
        bench.send(&packets(&[(true, 1002, b"attack".to_vec()), (true, 1002, b"harmle".to_vec())]));
        assert!(bench.sids().is_empty(), "nothing before the first byte");
        bench.send(&packets(&[(true, 1001, b"-".to_vec())]));
        assert_eq!(bench.sids(), [expected], "{overlaps}");
        let figures = bench.drive.nf.figures();
        assert!(figures.contains(&("segments_contradicting", 1)), "{figures:?}");
    }
}

#[test]
fn a_segment_that_would_not_arrive_may_be_left_out() {
    let rules = "alert tcp any any -> any any (msg:\"a\"; content:\"attack\"; sid:1;)\n";
    for (min_ttl, expected) in [(0, 0), (5, 1)] {
        let mut bench = Bench::new(rules, &format!("min_ttl = {min_ttl}\nchecksums = false"));
        bench.send(&handshake());
        let mut decoy = packets(&[(true, 1001, b"harmle".to_vec())]).remove(0);
        decoy[14 + 8] = 2;
        bench.send(&[decoy]);
        bench.send(&packets(&[(true, 1001, b"attack".to_vec())]));
        assert_eq!(bench.sids().len(), expected, "min_ttl {min_ttl}");
    }
}

#[test]
fn a_forged_reset_ends_nothing() {
    let mut bench = Bench::new(HTTP, "");
    bench.send(&handshake());
    bench.send(&[segment(true, 4, 900_000, 0, b"")]);
    bench.send(&packets(&segments(&[10])));
    assert!(bench.sids().contains(&1));
}

#[test]
fn connections_without_a_beginning_are_put_together_where_asked() {
    for (options, expected) in [("", false), ("midstream = true", true)] {
        let mut bench = Bench::new(HTTP, options);
        bench.send(&packets(&segments(&[10])));
        assert_eq!(bench.sids().contains(&1), expected, "{options}");
    }
}

#[test]
fn memory_of_streams_stays_within_its_limit() {
    let rules = "alert http any any -> any any (msg:\"x\"; http.uri; content:\"needle\"; sid:1;)\n";
    let mut bench = Bench::new(rules, "stream_memory_mib = 1\nmidstream = true");
    // Unterminated heads, each on its own connection.
    for port in 0..1500u16 {
        let segment = TcpSegment {
            src_port: 1000 + port,
            dst_port: 80,
            seq: 1,
            flags: 24,
            window: 99,
            ..TcpSegment::default()
        };
        let payload = [b"GET / HTTP/1.1\r\n".as_slice(), &[b'x'; 1200]].concat();
        let packet = PacketBuilder::new([2; 6], [4; 6])
            .ip([10, 0, 0, 1].into(), [192, 0, 2, 1].into())
            .tcp(segment)
            .build(&payload);
        bench.send(&[packet]);
        let figures = bench.drive.nf.figures();
        let memory = figures.iter().find(|(name, _)| *name == "stream_memory").unwrap().1;
        assert!(memory <= 1 << 20, "{memory}");
    }
    assert!(bench.drive.nf.figures().iter().any(|(name, n)| *name == "streams_evicted" && *n > 0));
}

#[test]
fn a_connection_that_holds_all_it_may_moves() {
    let mut bench = Bench::new(HTTP, "");
    bench.send(&handshake());
    // A head and a body of the maximum length, and waiting segments, in both directions.
    let head = |line: &str| {
        let fields = format!("X: {}\r\n", "v".repeat(1200)).repeat(50);
        format!("{line}\r\n{fields}Content-Length: 9999999\r\n\r\n{}", "b".repeat(140_000))
    };
    let sides = [(true, 1001u32, head("POST / HTTP/1.1")), (false, 5001, head("HTTP/1.1 200 OK"))];
    for (to_server, first, text) in &sides {
        let parts = text.as_bytes().chunks(1400).enumerate();
        for (n, part) in parts {
            bench.send(&packets(&[(*to_server, first + 1400 * n as u32, part.to_vec())]));
        }
        let beyond = first + text.len() as u32 + 10;
        for n in 0..40 {
            bench.send(&packets(&[(*to_server, beyond + 1400 * n, vec![7; 1400])]));
        }
    }
    let mut other = Bench::new(HTTP, "");
    hand_over(&bench, &mut other);
    let memory = |b: &Bench| b.drive.nf.figures().into_iter().find(|(n, _)| *n == "stream_memory");
    assert_eq!(memory(&other), memory(&bench));
    assert!(memory(&bench).is_some_and(|(_, bytes)| (400_000..2_000_000).contains(&bytes)));
}

#[test]
fn state_that_nobody_has_is_refused() {
    let forge = |change: &dyn Fn(&mut flow::Tracked)| {
        let mut records = Vec::new();
        let mut table = Flows::new(
            Limits { flows: 9, idle: Nanoseconds::from_secs(9), memory: 1 << 20 },
            Steering::default(),
            1,
        );
        let tuple = thalweg_packet::FiveTuple {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: 6,
            src_port: 1,
            dst_port: 80,
        };
        let id = thalweg_nf::toolkit::conversation::Conversation::of(&tuple);
        let syn = segment::Segment { flags: 2, sequence: 7, ..segment::Segment::default() };
        let arrival = flow::Arrival {
            segment: Some(syn),
            payload: b"",
            missing: 0,
            delivery: arrival::Delivery::default(),
        };
        let how = flow::Handling { target: Target::Linux, midstream: false, streams: true };
        let seen = table.packet(None, id, &arrival, how, Nanoseconds(1)).unwrap();
        let mut tracked = flow::Tracked::default();
        tracked.app.data(true, b"GET / HTTP/1.1\r\n", 80);
        change(&mut tracked);
        seen.flow.tracked = Some(Box::new(tracked));
        records.extend(table.records().map(|(id, flow)| (*id, flow.clone())));
        Flows::check(&mut records, 0, 3)
    };
    assert_eq!(forge(&|_| {}), None);
    assert_eq!(forge(&|t| t.open.add(0, 3, 9, None)), Some(0));
    assert_eq!(forge(&|t| t.app.message(true).unwrap().searched = 1), Some(0));
    assert_eq!(forge(&|t| t.app.message(false).unwrap().fired.push(7)), Some(0));
    let mut bench = Bench::new(HTTP, "");
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "nids", 3).unwrap();
    writer.record([], &"no connection").unwrap();
    writer.finish().unwrap();
    let mut input = &stream[..];
    let read = bench.drive.nf.import_state(&mut StateReader::new(&mut input, "nids", 3).unwrap());
    assert!(matches!(read, Err(StateError::Record { index: 0, .. })), "{read:?}");
}

/// An NF whose rules are replaced as it runs, its files and its configuration.
struct Reloading(Bench, Vec<OutputFile>, String);

impl Reloading {
    fn new(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.rules"), rules).unwrap();
        let at = folder.path().display();
        let text = format!("rules = ['{at}/t.rules']\nalerts = '{at}/a.json'");
        let built = thalweg_testkit::build(&KIND, &text, &Environment::default());
        let (blueprint, files) = built.unwrap();
        let drive = Drive::new(blueprint.instance());
        Self(Bench { drive, blueprint, folder, earlier: 0 }, files, text)
    }

    fn reload(&mut self, rules: &str) {
        let Self(bench, files, text) = self;
        std::fs::write(bench.folder.path().join("t.rules"), rules).unwrap();
        let environment = Environment { open_files: files, ..Environment::default() };
        let nf = &mut *bench.drive.nf;
        thalweg_testkit::renew(&KIND, text, &environment, &mut bench.blueprint, nf).unwrap();
    }
}

/// The rules before have searched the stream as far as theirs need it.
#[test]
fn other_rules_find_what_began_before_they_came() {
    let rules = |content: &str| {
        format!("alert tcp any any -> any any (msg:\"x\"; content:\"{content}\"; sid:1;)\n")
    };
    // What is rare in it, by which it is found, is at its beginning.
    let literal = b"QZ#9!X~7eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
    for after in 1..literal.len() {
        let mut bench = Reloading::new(&rules("another content of this length is it"));
        bench.0.send(&handshake());
        let (before, rest) = literal.split_at(literal.len() - after);
        let mut sequence = 1001;
        let mut next = |bytes: &[u8]| {
            let packet = packets(&[(true, sequence, bytes.to_vec())]);
            sequence += bytes.len() as u32;
            packet
        };
        for bytes in [&[b'.'; 40][..], before] {
            bench.0.send(&next(bytes));
        }
        bench.reload(&rules(std::str::from_utf8(literal).unwrap()));
        bench.0.send(&next(rest));
        assert_eq!(bench.0.sids(), [1], "{after} bytes after the reload");
    }
}

#[test]
fn other_rules_take_over_a_message_at_hand() {
    let rules = |sid: u32| {
        format!(
            "alert http any any -> any any (msg:\"x\"; http.uri; content:\"passwd\"; \
                 http.header; content:\"Accept\"; sid:{sid};)\n"
        )
    };
    let mut bench = Reloading::new(&[rules(1), rules(2)].concat());
    bench.0.send(&handshake());
    let packets = packets(&segments(&[55]));
    bench.0.send(&packets[..1]);
    bench.reload(&rules(3));
    bench.0.send(&packets[1..]);
    assert_eq!(bench.0.sids(), [3]);
}

#[test]
fn names_that_are_asked_for_are_seen() {
    let rules = "alert dns any any -> any any (msg:\"d\"; dns.query; dotprefix; content:\".evil.example\"; nocase; endswith; sid:1;)\n\
        alert tls any any -> any any (msg:\"t\"; tls.sni; content:\"evil.example\"; bsize:12; sid:2;)\n\
        alert ssh any any -> any any (msg:\"s\"; ssh.software; content:\"bad\"; startswith; sid:3;)\n";
    let mut bench = Bench::new(rules, "");
    let query =
        [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x04eViL\x07example\0\0\x01\0\x01"]
            .concat();
    bench.send(&[udp(&query)]);
    assert_eq!(bench.sids(), [1]);

    let name = b"evil.example";
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let extension = with_length(&[&[0][..], &with_length(name)].concat());
    let extensions = with_length(&[&[0, 0][..], &with_length(&extension)].concat());
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let handshake_message = [&[1, 0][..], &with_length(&hello)].concat();
    let record = [&[22, 3, 1][..], &with_length(&handshake_message)].concat();
    let mut bench = Bench::new(rules, "");
    bench.send(&handshake());
    let (a, b) = record.split_at(30);
    bench.send(&packets(&[(true, 1001, a.to_vec()), (true, 1031, b.to_vec())]));
    assert_eq!(bench.sids(), [2]);

    let mut bench = Bench::new(rules, "");
    bench.send(&handshake());
    bench.send(&packets(&[(false, 5001, b"SSH-2.0-bad_1.0 comment\r\n".to_vec())]));
    assert_eq!(bench.sids(), [3]);
}
