//! Applications compared with nDPI's own reader, and the rules on them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{Decapsulate, DropReason};

use thalweg_testkit::peer;

use super::*;
use thalweg_nf::state::{StateReader, StateWriter};
use thalweg_nf::{Environment, Verdict};
use thalweg_testkit::Drive;
use thalweg_testkit::data_folder;

mod holds;
mod moving;
mod starts;
mod wire;

struct Bench {
    drive: Drive,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("flows = '{}/f.json'\n{options}", folder.path().display());
        let blueprint = KIND.build_in(&text, &Environment::default());
        let blueprint = blueprint.unwrap_or_else(|e| panic!("{e}"));
        Self { drive: Drive::new(blueprint.instance()), folder }
    }

    /// Packets one by one, as time passes between them.
    fn capture(&mut self, path: &Path) {
        self.drive.capture(path, 1).1.unwrap();
    }

    fn send(&mut self, packet: &[u8]) -> Verdict {
        self.drive.send(&[packet.to_vec()])[0]
    }

    fn figure(&self, name: &str) -> u64 {
        self.drive.figure(name)
    }

    fn flows(&mut self) -> Vec<Value> {
        self.drive.nf.flush().unwrap();
        let text = std::fs::read_to_string(self.folder.path().join("f.json")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Both ends of a flow in a fixed order, and its protocol.
type Ends = (SocketAddr, SocketAddr, String);
type Applications = BTreeMap<Ends, Vec<String>>;

fn ends(a: SocketAddr, b: SocketAddr, protocol: &str) -> Ends {
    (a.min(b), a.max(b), protocol.to_owned())
}

/// The output of nDPI's reader for a capture.
fn reader(path: &Path) -> Applications {
    let output = Command::new("ndpiReader").args(["-v", "2", "-i"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut flows = Applications::new();
    for line in text.lines() {
        let Some((flow, rest)) = line.trim_start().split_once("[proto: ") else { continue };
        let words: Vec<_> = flow.split_whitespace().collect();
        let &[number, protocol, a, _, b, ..] = &words[..] else { continue };
        let (Ok(_), Ok(a), Ok(b)) = (number.parse::<u32>(), address(a), address(b)) else {
            continue;
        };
        let name = rest.split_once(']').unwrap().0.split_once('/').unwrap().1;
        flows.entry(ends(a, b, protocol_name(protocol))).or_default().push(name.to_owned());
    }
    flows.values_mut().for_each(|names| names.sort());
    flows
}

/// The name of an IP protocol by its number, where the reader or the published results have one.
fn protocol_name(number: &str) -> &str {
    match number {
        "1" => "ICMP",
        "2" => "IGMP",
        "6" => "TCP",
        "17" => "UDP",
        "50" => "ESP",
        "58" => "ICMPV6",
        "89" => "OSPF",
        "47" => "GRE",
        "112" => "VRRP",
        "132" => "SCTP",
        other => other,
    }
}

/// Whether nDPI's reader is installed.
fn has_reader() -> bool {
    peer::is_there("ndpiReader", &["-h"])
}

fn address(text: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    text.parse()
}

fn ours(path: &Path) -> Applications {
    let mut bench = Bench::new("idle_timeout_s = 100000");
    // nDPI's reader looks into IP in IP, but into no other tunnels.
    let name = path.file_name().unwrap().to_string_lossy();
    if matches!(&*name, "6in4tunnel.pcap" | "syslog.pcap") {
        bench.drive.decapsulate = Decapsulate::Yes;
    }
    bench.capture(path);
    let mut flows = Applications::new();
    for flow in bench.flows() {
        let end = |address: &str, port: &str| {
            let address = flow[address].as_str().unwrap().parse().unwrap();
            // The reader reports no ports of SCTP.
            let port = flow[port].as_u64().filter(|_| flow["protocol"] != "sctp");
            SocketAddr::new(address, port.unwrap_or(0) as u16)
        };
        let (a, b) = (end("src", "src_port"), end("dst", "dst_port"));
        let protocol = flow["protocol"].as_str().unwrap().to_uppercase();
        let protocol = protocol_name(&protocol);
        let name = flow["application"].as_str().unwrap().to_owned();
        flows.entry(ends(a, b, protocol)).or_default().push(name);
    }
    flows.values_mut().for_each(|names| names.sort());
    flows
}

/// Captures in which we differ, and why.
const EXPLAINED: &[(&str, &str)] =
    &[("fuzz-2020-02-16-11740.pcap", "the reader continues where lengths contradict each other")];

fn captures(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e != "out" && e != "json"));
    paths.sort();
    paths
}

/// The applications of a capture: ours, and those of the reader.
type Recognised = (Applications, Applications);

/// Recognises each `nth` capture of the shared data, by its name; `None` without data or reader.
fn recognised(nth: usize) -> Option<BTreeMap<String, Recognised>> {
    let folder = data_folder()?.join("l7");
    let of = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, (ours(&path), reader(&path)))
    };
    has_reader().then(|| captures(&folder).into_iter().step_by(nth).map(of).collect())
}

#[test]
fn applications_of_every_fifth_capture_are_those_of_ndpi() {
    compare(5);
}

#[test]
#[ignore = "takes some seconds; CI runs it"]
fn applications_are_those_of_ndpi() {
    compare(1);
}

/// Compares each `nth` capture with nDPI's reader and with the published results.
fn compare(nth: usize) {
    let Some(recognised) = recognised(nth) else { return };
    agree_with_the_reader(&recognised);
    agree_with_what_is_published(&recognised);
}

fn agree_with_the_reader(recognised: &BTreeMap<String, Recognised>) {
    let (mut differ, mut count) = (Vec::new(), 0);
    for (name, (ours, theirs)) in recognised {
        for (ends, applications) in theirs {
            count += applications.len();
            let own = ours.get(ends);
            if own != Some(applications) {
                differ.push(format!("{name}: {ends:?}: {own:?}, not {applications:?}"));
            }
        }
        for (ends, own) in ours.iter().filter(|(ends, _)| !theirs.contains_key(*ends)) {
            differ.push(format!("{name}: {ends:?}: {own:?} is new"));
        }
    }
    println!("{count} flows, {} differ", differ.len());
    differ.retain(|d| !EXPLAINED.iter().any(|(capture, _)| d.starts_with(capture)));
    assert!(differ.is_empty(), "{} of {count} differ:\n{}", differ.len(), differ.join("\n"));
}

/// Names of services rather than of what is on the wire.
const BRANDS: [&str; 4] = ["Discord", "TeamViewer", "WhatsApp", "Zoom"];

/// Published results are of a later version of nDPI. Where ours differ, the reader of this version
/// agrees with us, or the flow is in a tunnel that is not decapsulated here.
fn agree_with_what_is_published(recognised: &BTreeMap<String, Recognised>) {
    let folder = data_folder().unwrap().join("l7");
    let index = std::fs::read_to_string(folder.join("index.json")).unwrap();
    let index: Vec<Value> = serde_json::from_str(&index).unwrap();
    let (mut right, mut count, mut versions) = (0, 0, BTreeMap::<String, usize>::new());
    let mut differ = Vec::new();
    for capture in &index {
        let name = capture["pcap"].as_str().unwrap();
        let Some((ours, theirs)) = recognised.get(name) else { continue };
        for flow in capture["flows"].as_array().unwrap() {
            let text = |name: &str| flow[name].as_str().unwrap();
            let published = text("proto");
            let (Ok(a), Ok(b)) = (address(text("a")), address(text("b"))) else { continue };
            // Carried applications are recognised by lists of hosts and addresses.
            if published.contains('.') || published == "Unknown" || BRANDS.contains(&published) {
                continue;
            }
            count += 1;
            let ends = ends(a, b, text("l4"));
            let own = ours.get(&ends);
            let is_it =
                |name: &String| name.split('.').any(|part| part.eq_ignore_ascii_case(published));
            if own.is_some_and(|names| names.iter().any(is_it)) {
                right += 1;
            } else if own.is_some() && own == theirs.get(&ends) {
                let pair = format!("{published}, here {}", own.map_or("", |n| &n[0]));
                *versions.entry(pair).or_default() += 1;
            } else {
                differ.push(format!(
                    "{name}: {ends:?}: {own:?}, not {published}, {}",
                    text("proto_id")
                ));
            }
        }
    }
    println!("{right} of {count} flows; by version {versions:#?}; {differ:#?}");
    let by_version: usize = versions.values().sum();
    assert_eq!(right + by_version + differ.len(), count);
    assert!(differ.len() * 10 <= count, "{} of {count}: {differ:#?}", differ.len());
}

/// A segment of a client (to port 80) or of its server, at an offset in its stream. The number of
/// the SYN is 100.
fn segment(client: u16, by_client: bool, flags: u8, at: u32, payload: &str) -> Vec<u8> {
    let (a, b) = ([10, 0, (client >> 8) as u8, client as u8].into(), [192, 0, 2, 1].into());
    let (from, to, ports) = if by_client { (a, b, (40_000, 80)) } else { (b, a, (80, 40_000)) };
    let (src_port, dst_port) = ports;
    let seq = 100 + u32::from(flags & 2 == 0) + at;
    let segment = TcpSegment { src_port, dst_port, seq, ack: 101, flags, window: 64_240 };
    PacketBuilder::new([2; 6], [4; 6]).ip(from, to).tcp(segment).build(payload.as_bytes())
}

/// A handshake, a request for `host`, and what follows it.
fn exchange(client: u16, host: &str) -> [Vec<u8>; 6] {
    let get = format!("GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: x\r\n\r\n");
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    [
        segment(client, true, 2, 0, ""),
        segment(client, false, 0x12, 0, ""),
        segment(client, true, 0x10, 0, ""),
        segment(client, true, 0x18, 0, &get),
        segment(client, false, 0x18, 0, response),
        segment(client, true, 0x10, get.len() as u32, ""),
    ]
}

/// The verdicts on such an exchange.
fn request(bench: &mut Bench, client: u16, host: &str) -> Vec<bool> {
    exchange(client, host).iter().map(|packet| bench.send(packet) == Verdict::Forward).collect()
}

const PASSED: [bool; 6] = [true; 6];
const STOPPED: [bool; 6] = [true, true, true, false, false, false];

#[test]
fn what_is_behind_labels_and_in_sessions_is_blocked_too() {
    let options = "rule = [{ action = 'block', host = ['bad.example'] }]";
    let labels: &[u8] = &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 0x11, 64];
    let session = |length: u8| [0x88, 0x64, 0x11, 0, 0, 9, 0, length + 2, 0, 0x21];
    for kind in 0..2 {
        let mut bench = Bench::new(options);
        let verdicts = exchange(1, "bad.example").map(|packet| {
            let (addresses, ip) = (&packet[..12], &packet[14..]);
            let head = if kind == 0 { labels } else { &session(ip.len() as u8) };
            bench.send(&[addresses, head, ip].concat()) == Verdict::Forward
        });
        assert_eq!(verdicts, STOPPED);
        assert_eq!(bench.figure("flows"), 1);
    }
}

#[test]
fn the_first_rule_that_fits_counts() {
    let mut bench = Bench::new(
        "rule = [{ action = 'allow', host = ['good.example'] },\n\
         { action = 'block', application = ['http'], host = ['*.example'] },\n\
         { action = 'block', category = ['Game'] }]",
    );
    assert_eq!(request(&mut bench, 1, "good.example"), PASSED);
    assert_eq!(request(&mut bench, 2, "bad.example"), STOPPED);
    assert_eq!(request(&mut bench, 3, "elsewhere.test"), PASSED);
    assert_eq!(bench.figure("packets_blocked"), 3);
    let flows = bench.flows();
    let blocked = flows.iter().find(|f| f["src"] == "10.0.0.2").unwrap();
    assert_eq!((&blocked["verdict"], &blocked["rule"]), (&"block".into(), &2.into()));
    assert_eq!(
        (&blocked["application"], &blocked["host"]),
        (&"HTTP".into(), &"bad.example".into())
    );
}

#[test]
fn the_default_and_what_is_undecided_may_be_blocked() {
    let mut bench =
        Bench::new("default = 'block'\nrule = [{ action = 'allow', application = ['HTTP'] }]");
    assert_eq!(request(&mut bench, 1, "a.test"), PASSED);
    let mut bench = Bench::new("undecided = 'block'");
    assert_eq!(bench.send(&segment(1, true, 2, 0, "")), Verdict::Drop(DropReason::Application));
}

#[test]
fn a_verdict_moves_with_its_flow() {
    let options = "rule = [{ action = 'block', host = ['bad.example'] }]";
    let mut first = Bench::new(options);
    assert_eq!(request(&mut first, 1, "bad.example"), STOPPED);
    first.send(&segment(2, true, 2, 0, ""));
    let mut bytes = Vec::new();
    let mut writer = StateWriter::new(&mut bytes, "l7fw", 2).unwrap();
    first.drive.nf.export_state(&mut writer).unwrap();
    assert_eq!(writer.finish().unwrap(), 1, "what is not decided begins anew");
    let mut second = Bench::new(options);
    second
        .drive
        .nf
        .import_state(&mut StateReader::new(&mut &bytes[..], "l7fw", 2).unwrap())
        .unwrap();
    assert_eq!(
        second.send(&segment(1, true, 0x18, 70, "more")),
        Verdict::Drop(DropReason::Application)
    );
    let mut third = Bench::new("");
    for cut in 0..bytes.len() {
        let mut rest = &bytes[..cut];
        let reader = StateReader::new(&mut rest, "l7fw", 2);
        assert!(reader.and_then(|mut reader| third.drive.nf.import_state(&mut reader)).is_err());
    }
    assert_eq!(third.figure("flows"), 0);
}

#[test]
fn flows_stay_within_their_number_and_none_is_lost_untold() {
    let mut bench = Bench::new("max_flows = 100");
    for client in 0..2_000 {
        bench.send(&segment(client, true, 2, 0, ""));
        assert!(bench.figure("flows") <= 100);
    }
    assert!(bench.figure("flows_evicted") >= 1_900);
    let mut clients: Vec<_> = bench.flows().iter().map(|f| f["src"].to_string()).collect();
    clients.sort();
    clients.dedup();
    assert_eq!(clients.len(), 2_000);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let told = |text: &str| {
        let built = KIND.build_alone(text);
        built.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let wrong = told("rule = [{ action = 'block', application = ['Bittorent'] }]");
    assert!(wrong.contains("chain.toml:1:44: unknown application: ''Bittorent''"), "{wrong}");
    assert!(wrong.contains("BitTorrent"), "{wrong}");
    assert!(told("rule = [{ action = 'block', category = ['x'] }]").contains("unknown category"));
    assert!(told("rule = [{ action = 'block', host = ['a b'] }]").contains("not a host name"));
    assert!(told("rule = [{ action = 'stop' }]").contains("unknown variant `stop`"));
    assert!(told("max_flows = 1").contains("chain.toml:1:13: out of range: '1'"));
}
