//! Rules against packets, and against Suricata's own tests.

use std::fmt::Write;
use std::path::Path;

use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{BATCH, DropReason};

use super::*;
use thalweg_nf::Verdict;
use thalweg_testkit::Drive;

struct Bench {
    blueprint: Box<dyn Blueprint>,
    drive: Drive,
    folder: tempfile::TempDir,
    /// Bytes of the alerts of instances before.
    earlier: usize,
}

impl Bench {
    fn new(rules: &str, options: &str) -> Self {
        Self::try_new(rules, options).unwrap_or_else(|e| panic!("{e}")).0
    }

    fn try_new(rules: &str, options: &str) -> Result<(Self, Vec<String>), BuildError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.rules"), rules).unwrap();
        let at = folder.path().display();
        let text = format!("rules = ['{at}/t.rules']\nalerts = '{at}/a.json'\n{options}");
        let blueprint = KIND.build_in(&text, &Environment::default())?;
        let warnings = blueprint.warnings().iter().map(ToString::to_string).collect();
        let drive = Drive::new(blueprint.instance());
        Ok((Self { blueprint, drive, folder, earlier: 0 }, warnings))
    }

    /// Begins again with an instance that has seen no packet, without compiling the rules again.
    fn begin_again(&mut self) {
        self.earlier = self.text().len();
        self.drive = Drive::new(self.blueprint.instance());
    }

    fn send(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict> {
        self.drive.send(packets)
    }

    fn capture(&mut self, path: &Path) {
        self.drive.capture(path, BATCH).1.unwrap();
    }

    fn alerts(&mut self) -> Vec<serde_json::Value> {
        let text = self.text();
        text[self.earlier..].lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// The alerts of all instances.
    fn text(&mut self) -> String {
        self.drive.nf.flush().unwrap();
        std::fs::read_to_string(self.folder.path().join("a.json")).unwrap()
    }

    fn sids(&mut self) -> Vec<u64> {
        self.alerts().iter().map(|a| a["alert"]["signature_id"].as_u64().unwrap()).collect()
    }
}

fn udp(payload: &[u8]) -> Vec<u8> {
    PacketBuilder::new([2; 6], [4; 6])
        .ip([10, 0, 0, 1].into(), [192, 0, 2, 1].into())
        .udp(1000, 53)
        .build(payload)
}

/// A TCP connection whose packets a test builds.
struct Talk {
    /// The next sequence number of client and server.
    next: [u32; 2],
}

impl Talk {
    fn new() -> Self {
        Self { next: [u32::MAX - 10, 5000] }
    }

    /// A segment with the next sequence numbers.
    fn send(&mut self, to_server: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let sequence = self.next[own];
        let taken = payload.len() as u32 + u32::from(flags & 3 != 0);
        self.next[own] = sequence.wrapping_add(taken);
        segment(to_server, flags, sequence, self.next[other], payload)
    }

    /// The three packets of a handshake.
    fn handshake(&mut self) -> Vec<Vec<u8>> {
        vec![self.send(true, 2, b""), self.send(false, 18, b""), self.send(true, 16, b"")]
    }
}

fn segment(
    to_server: bool,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    payload: &[u8],
) -> Vec<u8> {
    segment_of(0, to_server, flags, sequence, acknowledged, payload)
}

/// The same for one of several connections.
fn segment_of(
    connection: u16,
    to_server: bool,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    payload: &[u8],
) -> Vec<u8> {
    let (mut a, mut b) = (([10, 0, 0, 1], 1000 + connection), ([192, 0, 2, 1], 80));
    if !to_server {
        (a, b) = (b, a);
    }
    let segment = TcpSegment {
        src_port: a.1,
        dst_port: b.1,
        seq: sequence,
        ack: acknowledged,
        flags,
        window: u16::MAX,
    };
    PacketBuilder::new([2; 6], [4; 6]).ip(a.0.into(), b.0.into()).tcp(segment).build(payload)
}

/// The numbers of the rules with these bodies that fire on one datagram.
fn fires(bodies: &[&str], payload: &[u8]) -> Vec<u64> {
    let mut rules = String::new();
    for (i, body) in bodies.iter().enumerate() {
        writeln!(rules, "alert udp any any -> any any (msg:\"m\"; {body} sid:{};)", i + 1).unwrap();
    }
    let mut bench = Bench::new(&rules, "");
    bench.send(&[udp(payload)]);
    let mut sids = bench.sids();
    sids.sort_unstable();
    sids
}

#[test]
fn contents_match_where_their_modifiers_say() {
    let bodies = [
        "content:\"GET\"; depth:3;",                                     // 1
        "content:\"get\";",                                              // no: case
        "content:\"get\"; nocase;",                                      // 3
        "content:\"/etc\"; offset:4; depth:4;",                          // 4
        "content:\"/etc\"; offset:5;",                                   // no
        "content:\"GET\"; content:\"passwd\"; distance:6;",              // 6
        "content:\"GET\"; content:\"passwd\"; distance:7;",              // no
        "content:\"GET\"; content:\"/etc\"; within:5;",                  // 8
        "content:\"GET\"; content:\"/etc\"; within:4;",                  // no
        "content:!\"POST\";",                                            // 10
        "content:\"|47 45 54|\"; content:\"|20|/etc|2f|\"; distance:0;", // 11
        "content:\"HTTP/1.1\"; endswith;",                               // 12
        "content:\"a\\;b\\\"c\\|d\";",                                   // no
    ];
    assert_eq!(fires(&bodies, b"GET /etc/passwd HTTP/1.1"), [1, 3, 4, 6, 8, 10, 11, 12]);
    assert_eq!(fires(&bodies[12..], b"xa;b\"c|dx"), [1]);
}

#[test]
fn the_other_payload_tests_match_as_documented() {
    let bodies = [
        "pcre:\"/^\\x01.{3}B/s\";",                               // 1
        "content:\"B\"; pcre:\"/^C\\d+/R\";",                     // 2
        "pcre:!\"/zebra/i\";",                                    // 3
        "byte_test:2,=,0x0102,0;",                                // 4
        "byte_test:2,=,0x0201,0,little;",                         // 5
        "byte_test:2,>,12,0,relative,string,dec; content:\"x\";", // no: string at 0
        "content:\"C\"; byte_test:2,=,42,0,relative,string,dec;", // 7
        "byte_jump:1,0; content:\"|03|\"; distance:0; within:1;", // 8: over one byte
        "isdataat:8; isdataat:!9;",                               // 9
        "dsize:9;",                                               // 10
        "dsize:3<>9;",                                            // no: without the ends
        "byte_test:1,!&,0x80,0;",                                 // 12
    ];
    let payload = b"\x01\x02\x03\x04BC42!";
    assert_eq!(fires(&bodies, payload), [1, 2, 3, 4, 5, 7, 8, 9, 10, 12]);
}

#[test]
fn what_changes_a_content_may_stand_behind_other_tests() {
    let bodies = [
        "content:\"abc\"; isdataat:!1,relative; nocase;", // 1
        "content:\"ABC\"; pcre:\"/b/\"; depth:3;",        // no: case
        "content:\"bc\"; isdataat:!1,relative; depth:2;", // no: not at the beginning
        "content:\"x\"; byte_test:0,>,4000,0,string,relative;", // 4
        "content:\"x\"; byte_jump:0,0,relative,post_offset -1; content:\"x\"; distance:0;", // 5
    ];
    assert_eq!(fires(&bodies[..3], b"aBC"), [1]);
    assert_eq!(fires(&bodies[3..], b"x4001\xff"), [1, 2]);
}

#[test]
fn flow_and_flowbits_follow_the_connection() {
    let rules = "\
        alert tcp any any -> any any (msg:\"login\"; flow:to_server,established; content:\"USER\"; flowbits:set,user; flowbits:noalert; sid:1;)\n\
        alert tcp any any -> any any (msg:\"answer\"; flow:to_client,established; content:\"OK\"; flowbits:isset,user|admin; sid:2;)\n\
        alert tcp any any -> any any (msg:\"no handshake\"; flow:not_established; content:\"USER\"; sid:3;)\n";
    let mut bench = Bench::new(rules, "");
    bench.send(&[Talk::new().send(true, 24, b"USER")]); // from the middle
    assert_eq!(bench.sids(), [3]);
    let mut bench = Bench::new(rules, "");
    let mut talk = Talk::new();
    bench.send(&talk.handshake());
    bench.send(&[
        talk.send(false, 24, b"OK"),
        talk.send(true, 24, b"USER"),
        talk.send(false, 24, b"OK"),
    ]);
    assert_eq!(bench.sids(), [2]);
}

#[test]
fn state_taken_over_gives_the_same_verdicts() {
    let rules = "\
        alert tcp any any -> any any (msg:\"s\"; flow:established; content:\"A\"; flowbits:set,a; sid:1;)\n\
        drop tcp any any -> any any (msg:\"d\"; flow:established; content:\"B\"; flowbits:isset,a; sid:2;)\n";
    let mut talk = Talk::new();
    let mut before = talk.handshake();
    before.push(talk.send(true, 24, b"A"));
    let after = [talk.send(true, 24, b"B"), talk.send(false, 24, b"A")];
    let mut whole = Bench::new(rules, "");
    whole.send(&before);
    let expected = whole.send(&after);
    assert_eq!(expected[0], Verdict::Drop(DropReason::Intrusion));
    let mut first = Bench::new(rules, "");
    first.send(&before);
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "nids", 3).unwrap();
    first.drive.nf.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    let mut second = Bench::new(rules, "");
    let mut input = &stream[..];
    second.drive.nf.import_state(&mut StateReader::new(&mut input, "nids", 3).unwrap()).unwrap();
    assert_eq!(second.send(&after), expected);
    assert_eq!(second.sids(), whole.sids()[1..]);
}

#[test]
fn unsupported_rules_are_named_once_and_wrong_ones_refused() {
    let rules = "alert ftp any any -> any any (msg:\"a\"; content:\"x\"; sid:1;)\n\
        alert tcp any any -> any any (msg:\"b\"; content:\"x\"; ftp.command; sid:2;)\n\
        alert tcp any any -> any any (msg:\"c\"; content:\"x\"; sid:3;)\n";
    let (_, warnings) = Bench::try_new(rules, "").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains("t.rules:1:7: protocol 'ftp' is not supported"),
        "{}",
        warnings[0]
    );
    assert!(warnings[1].contains("t.rules:2:") && warnings[1].contains("'ftp.command'"));
    assert!(warnings.iter().all(|w| w.contains("; 1 rule is skipped")), "{warnings:?}");
    let refused = Bench::try_new(rules, "unsupported = 'refuse'").err().unwrap().to_string();
    assert_eq!(refused.matches(" is not supported: '").count(), 2, "{refused}");
    assert!(!refused.contains("skipped"), "{refused}");
    let wrong = [
        "alert tcp any any -> any any (msg:\"a\"; content:\"x; sid:1;)",
        "alert tcp any any -> any any (msg:\"a\"; content:\"x\";)",
        "alert tcp any any -- any any (sid:1;)",
        "alert tcp any -> any any (sid:1;)",
        "alert tcp 10.0.0.0/99 any -> any any (sid:1;)",
        "alert tcp $NOWHERE any -> any any (sid:1;)",
        "alert tcp any 70000 -> any any (sid:1;)",
        "alert tcp any any -> any any (nocase; sid:1;)",
        "alert tcp any any -> any any (content:\"a\"; nocase:x; sid:1;)",
        "alert tcp any any -> any any (http.uri:x; content:\"a\"; sid:1;)",
        "alert tcp any any -> any any (content:\"|0g|\"; sid:1;)",
        "alert tcp any any -> any any (pcre:\"/(/\"; sid:1;)",
        "what is this",
    ];
    for rule in wrong {
        let error = Bench::try_new(rule, "").err().unwrap_or_else(|| panic!("accepted: {rule}"));
        assert!(error.to_string().contains("t.rules:1:"), "{error}");
    }
}

#[test]
fn an_alert_tells_what_suricata_tells() {
    let rule = "alert udp $HOME_NET any -> $EXTERNAL_NET 53 (msg:\"q\\; r\"; content:\"q\"; classtype:trojan-activity; sid:7; rev:3;)";
    let mut bench = Bench::new(rule, "");
    bench.send(&[udp(b"q")]);
    let alert = &bench.alerts()[0];
    assert_eq!(alert["src_ip"], "10.0.0.1");
    assert_eq!(alert["dest_port"], 53);
    assert_eq!(alert["proto"], "UDP");
    assert_eq!(alert["alert"]["signature"], "q; r");
    assert_eq!(alert["alert"]["category"], "A Network Trojan was detected");
    assert_eq!(
        (alert["alert"]["severity"].as_u64(), alert["alert"]["rev"].as_u64()),
        (Some(1), Some(3))
    );
}

#[test]
fn numbers_at_the_ends_of_their_range_are_survived() {
    let most = i64::MAX;
    for options in [
        format!("content:\"a\"; content:\"y\"; distance:{most};"),
        format!("content:\"a\"; content:\"y\"; distance:1; within:{most};"),
        format!("content:\"a\"; isdataat:{most},relative;"),
        format!("content:\"a\"; isdataat:{most};"),
        format!("content:\"a\"; byte_test:1,=,1,{most},relative;"),
        format!("tos:{}<>5; content:\"a\";", u64::MAX),
    ] {
        let rule = format!("alert udp any any -> any any ({options} sid:1;)");
        if let Ok((mut bench, _)) = Bench::try_new(&rule, "") {
            bench.send(&[udp(b"xxay")]);
        }
    }
}

#[test]
fn a_rule_goes_on_behind_a_backslash() {
    for end in ["\\\n", "\\\r\n"] {
        let rule = format!(
            "alert udp any any -> any any (msg:\"m\"; {end}  content:\"a\"; {end}{end} sid:7;{end})\n"
        );
        let mut bench = Bench::new(&rule, "");
        bench.send(&[udp(b"xxay")]);
        assert_eq!(bench.sids(), [7]);
    }
}

#[test]
fn a_rules_own_priority_counts_before_that_of_its_class() {
    for options in ["priority:1; classtype:misc-activity;", "classtype:misc-activity; priority:1;"]
    {
        let rule = format!("alert udp any any -> any any (content:\"a\"; {options} sid:1;)");
        let mut bench = Bench::new(&rule, "");
        bench.send(&[udp(b"a")]);
        assert_eq!(bench.alerts()[0]["alert"]["severity"], 1, "{options}");
    }
}

mod batches;
mod contradictions;
mod dear;
mod insertion;
mod moving;
mod oddities;
mod sets;
mod streams;
mod suricata;
mod typos;
mod verdicts;
