//! Intrusion detection and routing on devices: alerts, packets and counts are the same wherever they run.

#[path = "support/controlled.rs"]
mod controlled;
#[path = "support/faulty.rs"]
mod faulty;
#[path = "../../accel/tests/common/hostile.rs"]
mod hostile;
#[path = "support/places.rs"]
mod places;
mod support;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use controlled::Controlled;
use faulty::{AT, HARMS, Record, is_part, lost, records, run};
use places::{devices_of, places};
use serde_json::Value;
use support::{capture, report, thalweg, wait, write};
use thalweg_packet::write::{PacketBuilder, TcpSegment};

/// Contents in payloads, streams and messages, of any port and of some; and rules that change what
/// later packets get.
const RULES: &str = "\
    alert tcp any any -> any any (msg:\"across\"; content:\"an attack in several segments\"; sid:1;)\n\
    alert tcp any any -> any any (msg:\"short\"; content:\"q9\"; sid:2;)\n\
    alert tcp any any -> any 80 (msg:\"to 80\"; content:\"USER-agent: evil\"; nocase; sid:3;)\n\
    alert tcp any 8080 -> any any (msg:\"from 8080\"; content:\"|00 01 02 03|\"; sid:4;)\n\
    alert http any any -> any any (msg:\"uri\"; http.uri; content:\"/secret\"; sid:5;)\n\
    alert tcp any any -> any any (msg:\"two\"; content:\"first\"; content:\"second\"; distance:0; sid:6;)\n\
    alert udp any any -> any 53 (msg:\"to 53\"; content:\"|03|www|04|evil\"; sid:7;)\n\
    alert udp any any -> any any (msg:\"place\"; content:\"abcd\"; offset:4; depth:4; sid:8;)\n\
    alert ip any any -> any any (msg:\"any\"; content:\"everywhere\"; pcre:\"/every(where|one)!/\"; sid:9;)\n\
    drop tcp any any -> any any (msg:\"drop\"; content:\"cut this\"; sid:10;)\n\
    alert tcp any any -> any any (msg:\"set\"; content:\"login\"; flowbits:set,in; noalert; sid:11;)\n\
    alert tcp any any -> any any (msg:\"isset\"; flowbits:isset,in; content:\"data\"; sid:12;)\n\
    alert icmp any any -> any any (msg:\"none\"; itype:8; sid:13;)\n";

/// What the clients of connections send, each split at every length from 1 to 40 bytes.
const TALKS: [&str; 8] = [
    "nothing of interest, only text, for a while, and then more of the same until it ends",
    "here comes an attack in several segments and another ATTACK IN SEVERAL SEGMENTS, no",
    "GET /a/../secret HTTP/1.1\r\nHost: h\r\nUser-Agent: evil\r\nContent-Length: 0\r\n\r\n",
    "xq9x then the first, then, much later, after many other bytes, the second, everywhere!",
    "please cut this connection: it has an attack in several segments that is not seen",
    "login and then data, data; everyone! everywhere",
    "an attack in several segmentx an attack in several segments",
    "GET / HTTP/1.0\r\n\r\n",
];

/// A connection: where it is, and the next sequence numbers of client and server.
struct Connection {
    number: u16,
    port: u16,
    next: [u32; 2],
}

impl Connection {
    fn segment(&self, to_server: bool, flags: u8, ahead: u32, payload: &[u8]) -> Vec<u8> {
        let [_, low] = self.number.to_be_bytes();
        let (mut from, mut to) =
            (([10, 0, 0, low], 2000 + self.number), ([192, 0, 2, 1], self.port));
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        if !to_server {
            (from, to) = (to, from);
        }
        let segment = TcpSegment {
            src_port: from.1,
            dst_port: to.1,
            seq: self.next[own].wrapping_add(ahead),
            ack: self.next[other],
            flags,
            window: u16::MAX,
        };
        PacketBuilder::new([2; 6], [4; 6])
            .ip(from.0.into(), to.0.into())
            .tcp(segment)
            .build(payload)
    }

    /// The handshake, `talk` in segments of `length` bytes, and an answer. With `disordered`, every
    /// second segment comes before the one ahead of it, and then once more.
    fn packets(mut self, talk: &str, length: usize, disordered: bool) -> Vec<Vec<u8>> {
        let mut packets = vec![self.segment(true, 2, 0, b"")];
        self.next[0] += 1;
        packets.push(self.segment(false, 18, 0, b""));
        self.next[1] += 1;
        packets.push(self.segment(true, 16, 0, b""));
        let mut parts: Vec<_> = talk.as_bytes().chunks(length).zip((0..).step_by(length)).collect();
        if disordered {
            parts.chunks_mut(2).for_each(<[_]>::reverse);
            parts.extend(parts.clone());
        }
        packets.extend(parts.iter().map(|(part, at)| self.segment(true, 24, *at as u32, part)));
        self.next[0] = self.next[0].wrapping_add(talk.len() as u32);
        packets.push(self.segment(
            false,
            24,
            0,
            b"\x00\x01\x02\x03 everywhere! an attack in several",
        ));
        self.next[1] += 36;
        packets.push(self.segment(true, 17, 0, b""));
        packets
    }
}

/// The packets of connections and datagrams, in turns.
fn packets() -> Vec<(u64, Vec<u8>)> {
    let mut sources: Vec<std::vec::IntoIter<Vec<u8>>> = Vec::new();
    for (number, length) in (1..=40).enumerate() {
        for (talk, port) in
            [0, 1].map(|more| (TALKS[(2 * number + more) % TALKS.len()], [80, 8080][more]))
        {
            let number = sources.len() as u16;
            let connection = Connection { number, port, next: [u32::MAX - 20, 7000] };
            let packets = connection.packets(talk, length, number.is_multiple_of(3));
            sources.push(packets.into_iter());
        }
    }
    let datagrams = (0..200usize).map(|n| {
        let payload: &[u8] = match n % 5 {
            0 => b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x04evil\x03com\x00\x00\x01\x00\x01",
            1 => b"0123abcd",
            2 => b"01234abcd and an attack in several segments",
            3 => b"",
            _ => &[b'e'; 900],
        };
        let builder = PacketBuilder::new([2; 6], [4; 6]).ip([10, 1, 0, 1].into(), [192, 0, 2, 2].into());
        builder.udp(4000, if n % 2 == 0 { 53 } else { 99 }).build(payload)
    });
    sources.push(datagrams.collect::<Vec<_>>().into_iter());
    let mut packets = Vec::new();
    loop {
        let before = packets.len();
        for source in &mut sources {
            packets.extend(source.next().map(|packet| (packets.len() as u64, packet)));
        }
        if packets.len() == before {
            return packets;
        }
    }
}

/// A chain at this place; a device that shares its cores with other tests may take its time.
fn chain(at: &str) -> String {
    let patience = if at == "cpu" { "" } else { "failed_after_ms = 30000\n" };
    format!(
        "[input.in]\ncapture = 'in.pcap'\n[output.out]\ncapture = 'out.pcap'\n\
         [nf.ids]\nkind = 'nids'\nrules = ['t.rules']\nalerts = 'a.json'\nat = '{at}'\n{patience}\
         [[route]]\npath = ['ingress', 'ids', 'out']\n"
    )
}

#[test]
fn alerts_packets_and_counts_are_the_same_wherever_nids_runs() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    write(f, "t.rules", RULES);
    capture(f, "in.pcap", &packets());
    let (places, _turn) = places();
    let mut first: Option<(String, Vec<u8>, Value)> = None;
    for at in &places {
        for workers in ["1", "2"] {
            write(f, "chain.toml", &chain(at));
            let (report, code, error) =
                report(f, &["run", "chain.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            let nf = &report["nfs"][0];
            let counts = serde_json::json!([
                nf["packets"],
                nf["bytes"],
                nf["drops"],
                nf["figures"],
                report["drops"]
            ]);
            let alerts = fs::read_to_string(f.join("a.json")).unwrap();
            let now = (alerts, fs::read(f.join("out.pcap")).unwrap(), counts);
            let first = first.get_or_insert_with(|| now.clone());
            assert_eq!(now.0, first.0, "alerts at {at} by {workers} workers");
            assert!(now.1 == first.1, "packets at {at} by {workers} workers");
            assert_eq!(now.2, first.2, "counts at {at} by {workers} workers");
        }
    }
    let (alerts, _, counts) = first.unwrap();
    for sid in (1..=12).filter(|sid| *sid != 11) {
        assert!(alerts.contains(&format!("\"signature_id\":{sid}}}")), "rule {sid}: {alerts}");
    }
    assert!(counts[2]["intrusion"].as_u64().unwrap() > 10, "{counts}");
}

/// The two ends of a packet, or of an alert about it, in any order.
fn ends(mut ends: [(String, u64); 2]) -> [(String, u64); 2] {
    ends.sort();
    ends
}

#[test]
fn after_a_failure_a_nids_raises_the_alerts_of_all_connections_that_lost_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    // Rules that drop packets, or note something about a connection, change what later packets get.
    let rules: Vec<_> = RULES
        .lines()
        .filter(|rule| !rule.starts_with("drop") && !rule.contains("flowbits"))
        .collect();
    write(f, "t.rules", &rules.join("\n"));
    // Connections of one packet, most of which arrive after the failure.
    let single = |n: u16| {
        let builder =
            PacketBuilder::new([2; 6], [4; 6]).ip([10, 2, 0, 1].into(), [192, 0, 2, 2].into());
        builder.udp(20_000 + n, 53).build(b"0123abcd")
    };
    let mut packets = packets();
    let first = packets.len() as u64;
    packets.extend((0..400).map(|n| (first + u64::from(n), single(n))));
    capture(f, "in.pcap", &packets);
    let alerts = || -> Vec<([(String, u64); 2], String)> {
        let text = fs::read_to_string(f.join("a.json")).unwrap();
        let alert = |line: &str| {
            let alert: Value = serde_json::from_str(line).unwrap();
            let end = |ip: &str, port: &str| {
                (alert[ip].as_str().unwrap().to_owned(), alert[port].as_u64().unwrap_or(0))
            };
            (ends([end("src_ip", "src_port"), end("dest_ip", "dest_port")]), line.to_owned())
        };
        text.lines().map(alert).collect()
    };
    let of_packet = |(_, bytes): &Record| {
        let ip =
            |at: usize| std::net::Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap());
        let port = |at: usize| u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        ends([(ip(26).to_string(), port(34)), (ip(30).to_string(), port(36))])
    };
    let at = |at: &str| {
        let chain = chain("cpu");
        chain.replace("at = 'cpu'\n", at)
    };
    run(f, &at(""), None, 1);
    let (whole, all) = (records(&f.join("out.pcap")), alerts());
    assert!(all.len() > 100, "{} alerts", all.len());
    for (harm, after) in HARMS {
        for workers in [1, 2] {
            let report = run(f, &at(AT), Some((harm, after)), workers);
            let lost = lost(&report, harm, workers) as usize;
            let part = records(&f.join("out.pcap"));
            assert_eq!(part.len(), whole.len() - lost, "{harm:?}, {workers} workers");
            assert!(is_part(&part, &whole), "{harm:?}, {workers} workers");
            let there: BTreeSet<_> = part.iter().map(|(time, _)| time).collect();
            let gone = whole.iter().filter(|(time, _)| !there.contains(time));
            let torn: BTreeSet<_> = gone.map(of_packet).collect();
            let whole_ones = |alerts: &[([(String, u64); 2], String)]| -> Vec<String> {
                let whole = alerts.iter().filter(|(ends, _)| !torn.contains(ends));
                whole.map(|(_, line)| line.clone()).collect()
            };
            let now = alerts();
            assert_eq!(whole_ones(&now), whole_ones(&all), "{harm:?}, {workers} workers");
            assert!(whole_ones(&all).len() > 300, "{} of {}", torn.len(), all.len());
        }
    }
}

#[test]
fn new_rules_reach_the_device_by_a_reload() {
    let (places, _turn) = places();
    devices_of(&places).for_each(new_rules_reach);
}

fn new_rules_reach(device: &str) {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let rule = |content: &str, sid: u32| {
        format!("alert udp any any -> any any (msg:\"m\"; content:\"{content}\"; sid:{sid};)\n")
    };
    write(f, "t.rules", &rule("not there", 1));
    capture(f, "in.pcap", &packets());
    let looped = |at: &str| {
        let chain = chain(at).replace("'in.pcap'", "'in.pcap'\nmemory = true\nloop = 0\npace = 50");
        let chain = chain.replace("capture = 'out.pcap'", "discard = true");
        format!("[memory]\ndevice = '{device}'\n{chain}")
    };
    write(f, "chain.toml", &looped(device));
    let run = Controlled::start(f, "rules", "chain.toml", &["--control=rules"]);
    let nf = || {
        let nfs: Value =
            serde_json::from_str(&run.succeeds(&["-s", "rules", "nfs", "--json"])).unwrap();
        nfs["nfs"][0].clone()
    };
    let alerts = |sid: u32| {
        let text = fs::read_to_string(f.join("a.json")).unwrap_or_default();
        text.contains(&format!("\"signature_id\":{sid}}}"))
    };
    wait(|| nf()["packets"].as_u64().unwrap() > 1000);
    assert_eq!(nf()["figures"]["alerts"], 0);
    // By new rules at the device, by a move to the processor and back with other rules each time.
    for (sid, (at, content)) in
        (2..).zip([(device, "0123abcd"), ("cpu", "01234abcd"), (device, "eeeeeeee")])
    {
        write(f, "t.rules", &rule(content, sid));
        write(f, "chain.toml", &looped(at));
        run.succeeds(&["-s", "rules", "reload"]);
        wait(|| alerts(sid));
    }
    run.succeeds(&["-s", "rules", "stop"]);
    let report = run.end();
    assert_eq!(report["nfs"][0]["drops"], serde_json::json!({}), "{report}");
    assert_eq!(report["reloads"], 3, "{report}");
}

/// Routes in each other, random ones of both IP versions, and packets to addresses near them.
fn routes_and_packets() -> (String, Vec<(u64, Vec<u8>)>) {
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut routes = String::from("0.0.0.0/1 203.0.113.1 wan\n2000::/3 fe80::1 wan\n");
    let mut known = std::collections::BTreeSet::new();
    let mut packets = Vec::new();
    for number in 0..2000u64 {
        let bits = random() as u32 & 0x3f0f_0f0f | 0x4000_0000;
        let (len, action) = (
            random() % 25 + 8,
            ["192.0.2.254 lan", "203.0.113.1 wan", "blackhole", "unreachable"]
                [random() as usize % 4],
        );
        let first = bits & u32::MAX << (32 - len);
        if known.insert((first, len)) {
            writeln!(routes, "{}/{len} {action}", std::net::Ipv4Addr::from(first)).unwrap();
        }
        let v6 = 0x2001_0db8 << 96 | u128::from(bits) << 64;
        let (len, action) =
            (40 + random() % 60, ["2001:db8:0:1::1 lan", "blackhole"][random() as usize % 2]);
        let first = v6 & u128::MAX << (128 - len);
        if known.insert((first as u32 ^ (first >> 64) as u32, 100 + len)) {
            writeln!(routes, "{}/{len} {action}", std::net::Ipv6Addr::from(first)).unwrap();
        }
        let to = random() as u32 & 0x3f0f_0f0f | 0x4000_0000;
        let builder = PacketBuilder::new([2; 6], [2, 0, 0, 0, 0, 1]);
        let (v4, v6) = (
            builder.ip([10, 0, 0, 9].into(), to.to_be_bytes().into()),
            PacketBuilder::new([2; 6], [2, 0, 0, 0, 0, 1]).ip(
                std::net::Ipv6Addr::from(0x2001_0db8_00ff << 80 | 9).into(),
                std::net::Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(to) << 64).into(),
            ),
        );
        packets.push((2 * number, v4.udp(1000, 53).build(b"to a next hop")));
        packets.push((2 * number + 1, v6.udp(1000, 53).build(&[7; 1300])));
    }
    (routes, packets)
}

/// A chain with a router at this place.
fn routing(at: &str, more: &str) -> String {
    let patience = if at == "cpu" { "" } else { "failed_after_ms = 30000\n" };
    format!(
        "[input.in]\ncapture = 'in.pcap'\n[output.lan]\ncapture = 'lan.pcap'\n\
         [output.wan]\ncapture = 'wan.pcap'\n\
         [nf.r]\nkind = 'router'\n{more}at = '{at}'\n{patience}\
         [nf.r.ports.lan]\nmac = '02:00:00:00:00:01'\nip = '192.0.2.1'\n\
         ipv6 = '2001:db8:0:1::ff'\n\
         neighbors = {{ '192.0.2.254' = '02:00:00:00:01:fe', '2001:db8:0:1::1' = '02:00:00:00:01:fe' }}\n\
         [nf.r.ports.wan]\nmac = '02:00:00:00:00:02'\nip = '203.0.113.2'\n\
         ipv6 = '2001:db8:0:2::ff'\nmtu = 1280\n\
         neighbors = {{ '203.0.113.1' = '02:00:00:00:02:01', 'fe80::1' = '02:00:00:00:02:01' }}\n\
         [[route]]\npath = ['ingress', 'r', 'egress']\n"
    )
}

#[test]
fn packets_and_counts_are_the_same_wherever_a_router_runs() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (routes, packets) = routes_and_packets();
    write(f, "routes.txt", &routes);
    capture(f, "in.pcap", &packets);
    let (places, _turn) = places();
    let mut first: Option<(Vec<u8>, Vec<u8>, Value)> = None;
    for at in &places {
        for workers in ["1", "2"] {
            write(f, "chain.toml", &routing(at, "routes = 'routes.txt'\n"));
            let (report, code, error) =
                report(f, &["run", "chain.toml", "--json", "--workers", workers]);
            assert_eq!((code, &*error), (0, ""), "{at}, {workers} workers");
            let nf = &report["nfs"][0];
            let counts = serde_json::json!([nf["packets"], nf["drops"], nf["figures"]]);
            let bytes = |name: &str| fs::read(f.join(name)).unwrap();
            let now = (bytes("lan.pcap"), bytes("wan.pcap"), counts);
            let first = first.get_or_insert_with(|| now.clone());
            assert!(now.0 == first.0 && now.1 == first.1, "packets at {at} by {workers} workers");
            assert_eq!(now.2, first.2, "counts at {at} by {workers} workers");
        }
    }
    let (lan, wan, counts) = first.unwrap();
    assert!(lan.len() > 50_000 && wan.len() > 50_000, "{} and {} bytes", lan.len(), wan.len());
    assert!(counts[1]["unreachable"].as_u64().unwrap() > 100, "{counts}");
    // Routes of the kernel change without a reload.
    write(f, "chain.toml", &routing("soft", "kernel_table = 254\n"));
    let output = thalweg(f, &["check", "chain.toml"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("a device can do nothing for NF 'r'"), "{error}");
}

#[test]
fn after_a_failure_a_router_sends_on_what_it_would_have_sent() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (routes, packets) = routes_and_packets();
    write(f, "routes.txt", &routes);
    capture(f, "in.pcap", &packets);
    let at = |at: &str| routing("cpu", "routes = 'routes.txt'\n").replace("at = 'cpu'\n", at);
    let outputs = ["lan.pcap", "wan.pcap"];
    let whole_report = run(f, &at(""), None, 1);
    let whole = outputs.map(|name| records(&f.join(name)));
    for (harm, after) in HARMS {
        for workers in [1, 2] {
            let report = run(f, &at(AT), Some((harm, after)), workers);
            let lost = lost(&report, harm, workers);
            for (name, whole) in outputs.iter().zip(&whole) {
                let part = records(&f.join(name));
                assert!(is_part(&part, whole), "{harm:?}, {workers} workers: {name}");
            }
            // Of what was lost, some would have been answered or dropped anyway.
            let out = |report: &Value| report["packets_out"].as_u64().unwrap();
            assert!(out(&whole_report) - out(&report) <= lost, "{harm:?}, {workers} workers");
        }
    }
}
