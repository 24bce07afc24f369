//! What the NF records of hosts, from generated packets and from captures.

mod limits;
mod prads;
mod state;

use std::path::Path;

use serde_json::Value;
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{BATCH, Nanoseconds};

use super::*;
use thalweg_nf::Verdict;
use thalweg_testkit::Drive;

/// An asset detection with generated packets.
struct Bench {
    blueprint: Box<dyn Blueprint>,
    drive: Drive,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("inventory = '{}/i.json'\n{options}", folder.path().display());
        let blueprint = KIND.build_in(&text, &Environment::default());
        let blueprint = blueprint.unwrap_or_else(|e| panic!("{e}"));
        let drive = Self::drive(&*blueprint);
        Self { blueprint, drive, folder }
    }

    /// Begins again with an instance that knows no host, without reading the fingerprints again.
    fn begin_again(&mut self) {
        self.drive = Self::drive(&*self.blueprint);
    }

    fn drive(blueprint: &dyn Blueprint) -> Drive {
        let mut drive = Drive::new(blueprint.instance());
        drive.now = Nanoseconds::from_secs(1_000);
        drive
    }

    fn send(&mut self, packets: &[Vec<u8>]) {
        let verdicts = self.drive.send(packets);
        assert!(verdicts.into_iter().all(|verdict| verdict == Verdict::Forward));
    }

    fn capture(&mut self, path: &Path) {
        // The packets of a damaged capture before the damage count.
        let (verdicts, _) = self.drive.capture(path, BATCH);
        assert!(verdicts.into_iter().all(|verdict| verdict == Verdict::Forward));
    }

    fn hosts(&mut self) -> Vec<Value> {
        self.drive.nf.flush().unwrap();
        let text = std::fs::read_to_string(self.folder.path().join("i.json")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn host(&mut self, address: &str) -> Value {
        let mut hosts = self.hosts().into_iter();
        hosts.find(|h| h["address"] == address).unwrap_or_else(|| panic!("no host {address}"))
    }

    fn figure(&self, name: &str) -> u64 {
        self.drive.figure(name)
    }
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
/// Options of Linux's SYN.
const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7];

fn between(from: [u8; 4], to: [u8; 4]) -> PacketBuilder {
    PacketBuilder::new([2; 6], [4; 6]).ip(from.into(), to.into())
}

/// A segment of the client (to port 22), or of the server.
fn segment(by_client: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = if by_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let (src_port, dst_port) = if by_client { (40_000, 22) } else { (22, 40_000) };
    let segment = TcpSegment { src_port, dst_port, seq: 1, ack: 1, flags, window: 64240 };
    between(from, to).tcp(segment).build(payload)
}

/// A SYN with options, of the client or, with an acknowledgement, of the server.
fn syn(by_client: bool, options: &[u8]) -> Vec<u8> {
    let mut packet = segment(by_client, if by_client { 2 } else { 0x12 }, options);
    packet[46] = ((20 + options.len()) / 4 * 16) as u8;
    if by_client {
        // No acknowledgement number.
        packet[42..46].fill(0);
    }
    // Linux sets "don't fragment"; only SYNs have identifications.
    packet[20] = 0x40;
    packet[18..20].copy_from_slice(&[0, u8::from(by_client)]);
    packet
}

#[test]
fn a_connection_tells_of_both_hosts() {
    let mut bench = Bench::new("");
    bench.send(&[
        syn(true, &LINUX),
        syn(false, &LINUX),
        segment(false, 0x18, b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
        segment(true, 0x18, b"SSH-2.0-PuTTY_Release_0.78\r\n"),
    ]);
    let client = bench.host("10.0.0.1");
    let system = &client["systems"][0];
    assert_eq!(system["by"], "syn");
    assert_eq!(system["signature"], "4:64+0:0:1460:mss*44,7:mss,sok,ts,nop,ws:df,id+:0");
    assert_eq!(system["says"]["os.product"], "Linux");
    assert_eq!((&client["mtu"], &client["link"]), (&1500.into(), &"Ethernet or modem".into()));
    let service = &client["services"][0];
    assert_eq!((&service["role"], &service["port"]), (&"client".into(), &22.into()));
    assert_eq!(service["says"]["service.product"], "PuTTY");
    let server = bench.host("192.0.2.1");
    assert_eq!(server["systems"][0]["by"], "syn-ack");
    let service = &server["services"][0];
    assert_eq!((&service["role"], &service["by"]), (&"server".into(), &"pattern".into()));
    assert_eq!(service["says"]["service.product"], "OpenSSH");
    assert_eq!(service["says"]["service.version"], "9.2p1");
    assert_eq!(service["says"]["service.name"], "ssh");
}

#[test]
fn a_server_that_says_nothing_is_named_by_its_port() {
    let mut bench = Bench::new("");
    bench.send(&[syn(false, &LINUX)]);
    let server = bench.host("192.0.2.1");
    assert_eq!(server["services"][0]["by"], "port");
    assert_eq!(server["services"][0]["says"]["service.name"], "ssh");
}

#[test]
fn a_banner_that_no_pattern_knows_is_kept() {
    let mut bench = Bench::new("");
    bench.send(&[segment(false, 0x18, b"SSH-2.0-Unheard_1\r\n")]);
    let says = bench.host("192.0.2.1")["services"][0].clone();
    assert_eq!(says["by"], "protocol");
    assert_eq!(says["says"]["service.banner"], "Unheard_1");
    assert_eq!(bench.figure("texts_unknown"), 1);
}

#[test]
fn network_cards_are_known_by_arp_and_changes_counted() {
    let mut bench = Bench::new("");
    let arp = |card: u8| {
        let mut packet = vec![0xff; 12];
        packet.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 0, 0x0c, 0x29, 0, 0, card, 10, 0, 0, 9]);
        packet.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        packet
    };
    bench.send(&[arp(1), arp(1), arp(2)]);
    let host = bench.host("10.0.0.9");
    assert_eq!(host["hardware"], "00:0c:29:00:00:02");
    assert_eq!(host["hardware_changes"], 1);
    assert_eq!(bench.figure("hardware_changes"), 1);
}

#[test]
fn neighbours_say_their_network_cards() {
    let mut bench = Bench::new("");
    let target = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap();
    let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(target.octets());
    message.extend([2, 1, 0, 0x0c, 0x29, 0, 0, 7]);
    let from = "fe80::1".parse().unwrap();
    let to = "ff02::1".parse().unwrap();
    let packet = PacketBuilder::new([2; 6], [4; 6]).ip(from, to).ttl(255).protocol(58);
    bench.send(&[packet.build(&message)]);
    assert_eq!(bench.host("2001:db8::7")["hardware"], "00:0c:29:00:00:07");
}

#[test]
fn dhcp_clients_are_known_by_what_they_ask_for() {
    let mut bench = Bench::new("");
    let mut message = vec![0; 236];
    message[..3].copy_from_slice(&[1, 1, 6]);
    message[28..34].copy_from_slice(&[0, 0x0c, 0x29, 1, 2, 3]);
    message.extend([99, 130, 83, 99, 53, 1, 3, 50, 4, 10, 0, 0, 50, 12, 4]);
    message.extend(b"work");
    message.extend([60, 8]);
    message.extend(b"MSFT 5.0");
    message.extend([55, 14, 1, 3, 6, 15, 31, 33, 43, 44, 46, 47, 119, 121, 249, 252, 255]);
    bench.send(&[between([0; 4], [255; 4]).udp(68, 67).build(&message)]);
    let host = bench.host("10.0.0.50");
    assert_eq!(host["name"], "work");
    assert_eq!(host["hardware"], "00:0c:29:01:02:03");
    assert_eq!(host["systems"][0]["by"], "dhcp");
    assert_eq!(host["systems"][0]["says"]["os.version"], "10 or newer");
    assert!(bench.hosts().iter().all(|h| h["address"] != "0.0.0.0"));
}

#[test]
fn only_hosts_of_the_named_networks_are_kept() {
    let mut bench = Bench::new("networks = ['10.0.0.0/8']");
    bench.send(&[syn(true, &LINUX), syn(false, &LINUX), segment(false, 0x18, b"SSH-2.0-x_1\r\n")]);
    let hosts = bench.hosts();
    assert_eq!(hosts.len(), 1);
    assert_eq!(hosts[0]["address"], "10.0.0.1");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let told = |text: &str| {
        let built = KIND.build_alone(text);
        built.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.toml");
    let own = |text: &str| {
        std::fs::write(&file, text).unwrap();
        told(&format!("fingerprints = ['{}']", file.display()))
    };
    assert!(told("max_hosts = 1").contains("chain.toml:1:13: out of range: '1'"));
    assert!(told("networks = ['10.0.0.1/8']").contains("bits set past the prefix length"));
    assert!(told("prads = '/nowhere'").contains("none of PRADS's files"));
    assert!(told("recog = ['/nowhere.xml']").contains("cannot read the file"));
    assert!(told("colour = 1").contains("unknown field `colour`"));
    let text = "[[text]]\non = 'ssh.banner'\npattern = '('\nset = {}";
    assert!(own(text).contains("f.toml:3:11: unclosed group: ''('';"), "{}", own(text));
    let text = "[[text]]\non = 'ssh'\npattern = ''\nset = {}";
    assert!(own(text).contains("f.toml:2:6: unknown kind of text: ''ssh''"));
    let text = "[[tcp]]\non = 'syn'\nsignatures = ['*:64:0:*:x,7:mss::0']\nset = {}";
    assert!(own(text).contains("f.toml:3:15: bad window 'x'"), "{}", own(text));
}
