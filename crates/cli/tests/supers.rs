//! NFs that process super-packets make of one what they make of its segments.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use thalweg_cli::built_in_kinds;
use thalweg_nf::{Blueprint, Context, Emitted, Environment, Kind, NetworkFunction, Verdict};
use thalweg_packet::wire::tcp_flags::{ACK, PSH, SYN};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{Batch, Decapsulate, Lanes, Nanoseconds, Pool};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// Addresses of client and server.
const V4: [&str; 2] = ["10.1.0.2", "203.0.113.2"];
const V6: [&str; 2] = ["fd01::2", "2001:db8::2"];
/// Their ports.
const PORTS: [u16; 2] = [40_000, 80];
/// Bytes of payload in a segment.
const SIZE: u16 = 1000;

/// What a test sends: by IPv6, by TCP, and a long packet of the client instead of the server.
#[derive(Clone, Copy, Debug)]
struct Case {
    is_v6: bool,
    is_tcp: bool,
    to_server: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let of = |n: u32| Self { is_v6: n & 1 > 0, is_tcp: n & 2 == 0, to_server: n & 4 == 0 };
        (0..8).map(of)
    }

    /// A packet between client and server; TCP with these numbers and flags.
    fn packet(self, to_server: bool, (seq, ack, flags): (u32, u32, u8), payload: &[u8]) -> Vec<u8> {
        let (from, to) = if to_server { (0, 1) } else { (1, 0) };
        let ips = (if self.is_v6 { V6 } else { V4 }).map(|ip| ip.parse().unwrap());
        let builder = PacketBuilder::new(MACS[from], MACS[to]).ip(ips[from], ips[to]);
        let builder = builder.ipv4_id(7, true);
        let (src_port, dst_port, window) = (PORTS[from], PORTS[to], u16::MAX);
        let tcp = TcpSegment { src_port, dst_port, seq, ack, flags, window };
        if self.is_tcp { builder.tcp(tcp) } else { builder.udp(src_port, dst_port) }.build(payload)
    }

    /// A handshake, or first datagrams, and a long packet with `payload`.
    fn packets(self, payload: &[u8]) -> ([Vec<u8>; 3], Vec<u8>) {
        let first = if self.is_tcp { b"".as_slice() } else { b"hello" };
        let first = [
            self.packet(true, (100, 0, SYN), first),
            self.packet(false, (500, 101, SYN | ACK), first),
            self.packet(true, (101, 501, ACK), first),
        ];
        let numbers = if self.to_server { (101, 501) } else { (501, 101) };
        (first, self.packet(self.to_server, (numbers.0, numbers.1, ACK | PSH), payload))
    }
}

/// An NF, and the packets on the wire that have left it.
struct Way {
    nf: Box<dyn NetworkFunction>,
    pool: Arc<Pool>,
    left: Vec<Vec<u8>>,
}

impl Way {
    fn new(blueprint: &dyn Blueprint) -> Self {
        let pool = Arc::new(Pool::anonymous_with(256, 2048, 4).unwrap());
        Self { nf: blueprint.instance(), pool, left: Vec::new() }
    }

    /// Sends packets, and a super-packet or its segments with them.
    fn send(&mut self, packets: &[Vec<u8>], long: Option<(&[u8], bool)>) {
        for packet in packets {
            let mut batch = Batch::new(self.pool.clone());
            batch.push_bytes(packet).unwrap();
            self.process(batch);
        }
        let Some((long, is_whole)) = long else { return };
        let mut batch = Batch::new(self.pool.clone());
        let lane = batch.push_super(long.len(), SIZE).unwrap();
        batch.bytes_mut(lane).copy_from_slice(long);
        batch.parse(Lanes::ALL, Decapsulate::No);
        if is_whole && self.nf.takes_whole(&batch, lane) {
            self.process(batch);
        } else {
            let mut of_wire = Batch::new(self.pool.clone());
            let mut segments = batch.segments(lane).unwrap();
            while of_wire.push_segment(&mut segments, &batch, lane).is_some() {}
            assert!(segments.is_empty());
            self.process(of_wire);
        }
    }

    fn process(&mut self, mut batch: Batch) {
        batch.parse(Lanes::ALL, Decapsulate::No);
        let lanes = batch.lanes();
        let mut emitted = Emitted::new(self.pool.clone());
        let mut context = Context::new(Nanoseconds(1_000_000), &mut emitted, None);
        self.nf.process(&mut batch, lanes, &mut context);
        let passed = lanes.into_iter().filter(|lane| context.verdict(*lane) == Verdict::Forward);
        let mut of_wire = Batch::new(self.pool.clone());
        for lane in passed {
            let Some(mut segments) = batch.segments(lane) else {
                self.left.push(batch.bytes(lane).to_vec());
                continue;
            };
            while let Some(piece) = of_wire.push_segment(&mut segments, &batch, lane) {
                self.left.push(of_wire.bytes(piece).to_vec());
            }
            assert!(segments.is_empty());
            of_wire.release(Lanes::ALL);
        }
    }
}

/// The options of an NF of each kind that takes super-packets, if this build has its library; files are in `folder`.
fn options(folder: &Path, kind: &str) -> Option<String> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    Some(match kind {
        "acl" => "default = 'permit'\nrules = ['deny tcp,tp_dst=81', 'deny udp,tp_dst=81']".into(),
        "filter" => "rules = ['drop tcp,tp_dst=81']".into(),
        "nat" => "inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1']".into(),
        "monitor" => format!("json = '{}'", folder.join("flows.json").display()),
        "defrag" | "refrag" => String::new(),
        "tunnel" => "[[tunnel]]\nname = 'a'\nprotocol = 'vxlan'\nid = 7\nlocal = '192.0.2.1'\n\
            remote = '192.0.2.2'\nmatch = 'ip'\n"
            .into(),
        "router" => {
            format!(
                "routes = '{}'\n[ports.out]\nmac = '02:00:00:00:00:09'\n",
                write(
                    "table.txt",
                    "0.0.0.0/0 192.0.2.9 out\n192.0.2.9/32 direct out\n\
                     ::/0 fd09::9 out\nfd09::9/128 direct out\n"
                )
            ) + "neighbors = { '192.0.2.9' = '02:00:00:00:00:0a', 'fd09::9' = '02:00:00:00:00:0a' }"
        }
        "nids" => format!(
            "rules = ['{}']\nalerts = '{}'",
            write(
                "a.rules",
                "alert ip any any -> any any (content:\"needle\"; sid:1;)\n\
                 alert udp any any -> any any (content:\"begin\"; depth:5; dsize:<1001; sid:2;)\n"
            ),
            folder.join("alerts.json").display()
        ),
        "assets" => format!("inventory = '{}'", folder.join("assets.json").display()),
        "l7fw" if cfg!(feature = "ndpi") => format!(
            "flows = '{}'\n[[rule]]\naction = 'block'\nhost = ['b.example.com']\n",
            folder.join("l7.json").display()
        ),
        _ => return None,
    })
}

/// What an NF of a kind has written about hosts or flows.
fn told(folder: &Path, kind: &str) -> String {
    let name = match kind {
        "assets" => "assets.json",
        "l7fw" => "l7.json",
        _ => return String::new(),
    };
    fs::read_to_string(folder.join(name)).unwrap()
}

fn blueprint(kind: &Kind, folder: &Path) -> Option<Box<dyn Blueprint>> {
    let outputs = ["out".to_owned()];
    let environment = Environment { outputs: &outputs, ..Environment::default() };
    let built = kind.build_in(&options(folder, kind.name)?, &environment);
    Some(built.unwrap_or_else(|e| panic!("{}: {e:?}", kind.name)))
}

#[test]
fn a_super_packet_and_its_segments_leave_alike() {
    let mut payload = vec![b'.'; 20_500];
    payload[..19].copy_from_slice(b"GET / HTTP/1.1\r\nX: ");
    payload[1_985..2_011].copy_from_slice(b"\r\nHost: a.example.com\r\n\r\n.");
    payload[4_000..4_023].copy_from_slice(b"SSH-2.0-OpenSSH_9.2p1\r\n");
    // Across the border of two segments, and at the start of two.
    payload[2997..3003].copy_from_slice(b"needle");
    payload[5000..5005].copy_from_slice(b"begin");
    payload[7000..7005].copy_from_slice(b"begin");
    for case in Case::all() {
        let (first, long) = case.packets(&payload);
        let mut tried = Vec::new();
        for kind in built_in_kinds().nfs.iter().filter(|kind| kind.takes_supers) {
            let what = (kind.name, case);
            let figures = [true, false].map(|is_whole| {
                let folder = tempfile::tempdir().unwrap();
                let mut way = Way::new(&*blueprint(kind, folder.path())?);
                way.send(&first, Some((&long, is_whole)));
                way.nf.flush().unwrap();
                Some((way.left, way.nf.figures(), told(folder.path(), kind.name)))
            });
            let [Some((whole, of_whole, of_file)), Some((pieces, of_pieces, expected))] = figures
            else {
                continue;
            };
            assert_eq!(of_file, expected, "{what:?}");
            let has = |text: &str| expected.contains(text);
            match kind.name {
                // In the fifth payload of TCP; of UDP, only a server says so.
                "assets" => assert_eq!(has("OpenSSH"), case.is_tcp, "{case:?}: {expected}"),
                // Across the border of two payloads, whichever side has sent them.
                "l7fw" => assert_eq!(has("a.example.com"), case.is_tcp, "{case:?}: {expected}"),
                _ => {}
            }
            // Packets from outside are for the inside only by the external address.
            if kind.name != "nat" || case.is_v6 {
                assert_eq!(whole.len(), 3 + 21, "{what:?}");
            }
            assert_eq!(whole, pieces, "{what:?}");
            if kind.name == "monitor" {
                assert_eq!(of_whole, of_pieces, "{case:?}: it counts what is on the wire");
            }
            if kind.name == "nids" {
                // A stream has what is across a border, and datagrams begin with what they begin with.
                let alerts = |of: &[(&str, u64)]| of.iter().find(|f| f.0 == "alerts").unwrap().1;
                let expected = if case.is_tcp { 1 } else { 2 };
                assert_eq!([&of_whole, &of_pieces].map(|of| alerts(of)), [expected; 2], "{case:?}");
            }
            tried.push(kind.name);
        }
        let mut expected = vec![
            "acl", "assets", "defrag", "filter", "l7fw", "monitor", "nat", "nids", "refrag",
            "router", "tunnel",
        ];
        expected.retain(|kind| *kind != "l7fw" || cfg!(feature = "ndpi"));
        assert_eq!(tried, expected);
    }
}
