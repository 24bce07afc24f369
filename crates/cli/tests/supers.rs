//! NFs that process super-packets make of one what they make of its segments.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use thalweg_cli::built_in_kinds;
use thalweg_nf::{Blueprint, Context, Emitted, Environment, Kind, NetworkFunction, Verdict};
use thalweg_packet::wire::tcp_flags::{ACK, PSH, SYN};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{Batch, Decapsulate, Lanes, Nanoseconds, Pool};

const CLIENT: ([u8; 6], &str) = ([2, 0, 0, 0, 0, 1], "10.1.0.2");
const SERVER: ([u8; 6], &str) = ([2, 0, 0, 0, 0, 2], "203.0.113.2");
/// Bytes of payload in a segment.
const SIZE: u16 = 1000;

/// A segment between client and server.
fn segment(to_server: bool, segment: TcpSegment, payload: &[u8]) -> Vec<u8> {
    let ((mac, ip), (to_mac, to_ip)) = if to_server { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let builder = PacketBuilder::new(mac, to_mac).ip(ip.parse().unwrap(), to_ip.parse().unwrap());
    builder.ipv4_id(7, true).tcp(segment).build(payload)
}

/// A handshake, and a request of `payload`.
fn connection(payload: &[u8]) -> ([Vec<u8>; 3], Vec<u8>) {
    let (client, server) = (40_000, 80);
    let of = |src_port, dst_port, seq, ack, flags| TcpSegment {
        src_port,
        dst_port,
        seq,
        ack,
        flags,
        window: u16::MAX,
    };
    let handshake = [
        segment(true, of(client, server, 100, 0, SYN), b""),
        segment(false, of(server, client, 500, 101, SYN | ACK), b""),
        segment(true, of(client, server, 101, 501, ACK), b""),
    ];
    (handshake, segment(true, of(client, server, 101, 501, ACK | PSH), payload))
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
        if is_whole {
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

/// The options of an NF of each kind that takes super-packets and needs no library; files are in
/// `folder`.
fn options(folder: &Path, kind: &str) -> Option<String> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    Some(match kind {
        "acl" => {
            "default = 'deny'\nrules = ['permit tcp,tp_dst=80', 'permit tcp,tp_src=80']".into()
        }
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
                write("table.txt", "0.0.0.0/0 192.0.2.9 out\n192.0.2.9/32 direct out\n")
            ) + "neighbors = { '192.0.2.9' = '02:00:00:00:00:0a' }"
        }
        "nids" => format!(
            "rules = ['{}']\nalerts = '{}'",
            write("a.rules", "alert tcp any any -> any any (content:\"needle\"; sid:1;)\n"),
            folder.join("alerts.json").display()
        ),
        _ => return None,
    })
}

fn blueprint(kind: &Kind, folder: &Path) -> Option<Box<dyn Blueprint>> {
    let outputs = ["out".to_owned()];
    let environment = Environment { outputs: &outputs, ..Environment::default() };
    let built = kind.build_in(&options(folder, kind.name)?, &environment);
    Some(built.unwrap_or_else(|e| panic!("{}: {e:?}", kind.name)))
}

#[test]
fn a_super_packet_and_its_segments_leave_alike() {
    // Across the border of two segments.
    let mut payload = vec![b'.'; 20_500];
    payload[2997..3003].copy_from_slice(b"needle");
    let (handshake, long) = connection(&payload);
    let mut tried = Vec::new();
    for kind in built_in_kinds().nfs.iter().filter(|kind| kind.takes_supers) {
        let figures = [true, false].map(|is_whole| {
            let folder = tempfile::tempdir().unwrap();
            let mut way = Way::new(&*blueprint(kind, folder.path())?);
            way.send(&handshake, Some((&long, is_whole)));
            Some((way.left, way.nf.figures()))
        });
        let [Some((whole, of_whole)), Some((pieces, of_pieces))] = figures else { continue };
        assert_eq!(whole.len(), 3 + 21, "{}", kind.name);
        assert_eq!(whole, pieces, "{}", kind.name);
        if kind.name == "monitor" {
            assert_eq!(of_whole, of_pieces, "it counts what is on the wire");
        }
        if kind.name == "nids" {
            let alerts = |of: &[(&str, u64)]| of.iter().find(|f| f.0 == "alerts").unwrap().1;
            assert_eq!((alerts(&of_whole), alerts(&of_pieces)), (1, 1));
        }
        tried.push(kind.name);
    }
    let expected =
        ["acl", "defrag", "filter", "monitor", "nat", "nids", "refrag", "router", "tunnel"];
    assert_eq!(tried, expected);
}
