//! Packets through a router, as a chain would send them.

mod fragments;
mod kernel;
mod local;
mod multipath;
mod resolve;

use std::fs;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use thalweg_packet::checksum::{ChecksumStatus, verify};
use thalweg_packet::write::{IcmpEcho, PacketBuilder, TcpSegment};
use thalweg_packet::{
    Batch, Decapsulate, DropReason, FlowKey, Headers, Lanes, Nanoseconds, ParseStatus, Pool,
    PortIndex, field, parse,
};

use super::*;
use local::{arp_request, solicitation};
use thalweg_nf::{Context, Emitted, Verdict};

const HOST: Mac = [2, 0, 0, 0, 0, 0x99];
const LAN: Mac = [2, 0, 0, 0, 0, 1];
const WAN: Mac = [2, 0, 0, 0, 0, 2];
const LAN_ROUTER: Mac = [2, 0, 0, 0, 1, 0xfe];
const WAN_ROUTER: Mac = [2, 0, 0, 0, 2, 1];
const LAN_HOST: Mac = [2, 0, 0, 0, 1, 5];

const OPTIONS: &str = r#"
[ports.lan]
mac = "02:00:00:00:00:01"
ip = "192.0.2.1"
ipv6 = "2001:db8:0:1::ff"
neighbors = { "192.0.2.254" = "02:00:00:00:01:fe", "192.0.2.5" = "02:00:00:00:01:05",
              "2001:db8:0:1::1" = "02:00:00:00:01:fe" }
[ports.wan]
output = "out"
mac = "02:00:00:00:00:02"
ip = "203.0.113.2"
ipv6 = "2001:db8:0:2::ff"
mtu = 1400
neighbors = { "203.0.113.1" = "02:00:00:00:02:01", "fe80::1" = "02:00:00:00:02:01" }
"#;

const ROUTES: &str = "\
198.51.100.0/24  203.0.113.1     wan
192.0.2.0/24     direct          lan
10.0.0.0/8       192.0.2.254     lan
10.66.0.0/16     blackhole
10.67.0.0/16     unreachable
2001:db8:a::/48  2001:db8:0:1::1 lan
2001:db8:b::/48  fe80::1         wan
";

/// A router in its folder, with the pool that a chain would provide.
struct Bench {
    folder: tempfile::TempDir,
    blueprint: Box<dyn Blueprint>,
    pool: Arc<Pool>,
}

/// The outcome of one packet.
struct Fate {
    verdict: Verdict,
    batch: Batch,
    emitted: Emitted,
    trace: Vec<(usize, String)>,
    figures: Vec<(&'static str, u64)>,
}

impl Bench {
    fn new(routes: &str) -> Self {
        Self::with_options(routes, "")
    }

    fn with_options(routes: &str, options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let blueprint = build_in(&folder, routes, options).unwrap();
        Self { folder, blueprint, pool: Arc::new(Pool::anonymous(64, 16384).unwrap()) }
    }

    fn write(&self, routes: &str) {
        fs::write(self.folder.path().join("table.txt"), routes).unwrap();
    }

    fn reload(&mut self, router: &mut dyn NetworkFunction) -> Result<(), BuildError> {
        let text = text_in(&self.folder, "");
        thalweg_testkit::renew(&KIND, &text, &environment(), &mut self.blueprint, router)
    }

    fn send(&self, packet: &[u8]) -> Fate {
        self.send_as(packet, Decapsulate::No)
    }

    fn send_as(&self, packet: &[u8], decapsulate: Decapsulate) -> Fate {
        let mut batch = Batch::new(self.pool.clone());
        batch.push_bytes(packet).unwrap();
        batch.parse(Lanes::ALL, decapsulate);
        let (mut emitted, mut trace) = (Emitted::new(self.pool.clone()), Vec::new());
        let mut router = self.blueprint.instance();
        let mut context = Context::new(Nanoseconds(0), &mut emitted, Some(&mut trace));
        router.process(&mut batch, Lanes::ALL, &mut context);
        batch.parse_changed();
        let verdict = context.verdict(0);
        Fate { verdict, batch, emitted, trace, figures: router.figures() }
    }
}

fn build_in(
    folder: &tempfile::TempDir,
    routes: &str,
    options: &str,
) -> Result<Box<dyn Blueprint>, BuildError> {
    fs::write(folder.path().join("table.txt"), routes).unwrap();
    built(&text_in(folder, options))
}

fn text_in(folder: &tempfile::TempDir, options: &str) -> String {
    let file = folder.path().join("table.txt");
    format!("routes = '{}'\n{options}\n{OPTIONS}", file.display())
}

fn built(text: &str) -> Result<Box<dyn Blueprint>, BuildError> {
    KIND.build_in(text, &environment())
}

fn environment() -> Environment<'static> {
    static OUTPUTS: LazyLock<[String; 2]> = LazyLock::new(|| ["out".into(), "lan".into()]);
    Environment { outputs: &*OUTPUTS, ..Environment::default() }
}

impl Fate {
    /// The forwarded packet, which must be complete and agree with the batch's metadata.
    fn forwarded(&self) -> (&[u8], FlowKey, Headers) {
        assert_eq!(self.verdict, Verdict::Forward, "{:?}", self.trace);
        whole(&self.batch, 0)
    }

    fn dropped(&self) -> DropReason {
        match self.verdict {
            Verdict::Drop(reason) => reason,
            other => panic!("{other:?}: {:?}", self.trace),
        }
    }

    /// The one packet that the router generated.
    fn error(&self) -> (&[u8], FlowKey, Headers) {
        assert_eq!(self.emitted.len(), 1, "{:?}", self.trace);
        whole(&self.emitted.batches()[0], 0)
    }

    fn figure(&self, name: &str) -> u64 {
        self.figures.iter().find(|(n, _)| *n == name).unwrap().1
    }
}

/// The packet of `lane`, whose key is fresh and whose checksums are right.
fn whole(batch: &Batch, lane: usize) -> (&[u8], FlowKey, Headers) {
    let bytes = batch.bytes(lane);
    let (key, headers) = parse(bytes, batch.meta.in_port[lane], Decapsulate::No);
    assert_eq!(headers.status, ParseStatus::Complete);
    assert_eq!((key, &headers), (batch.key(lane), batch.headers(lane)), "parsed again");
    let sums = verify(bytes, &headers);
    assert!(matches!(sums, ChecksumStatus::Good | ChecksumStatus::Unchecked), "{sums:?}");
    assert_eq!(batch.meta.wire_len[lane] as usize, bytes.len());
    (bytes, key, headers)
}

fn from_to(src: &str, dst: &str) -> PacketBuilder {
    PacketBuilder::new(HOST, LAN).ip(src.parse().unwrap(), dst.parse().unwrap())
}

fn udp(src: &str, dst: &str) -> Vec<u8> {
    from_to(src, dst).udp(1000, 2000).build(b"payload")
}

#[test]
fn a_packet_leaves_to_its_next_hop_with_one_hop_less_and_its_tags() {
    let bench = Bench::new(ROUTES);
    let tcp = TcpSegment { src_port: 1, dst_port: 2, ..TcpSegment::default() };
    let packet = from_to("10.1.1.1", "198.51.100.7").vlan(10).ttl(2).tcp(tcp).build(b"x");
    let fate = bench.send(&packet);
    let (bytes, key, _) = fate.forwarded();
    assert_eq!((&bytes[..6], &bytes[6..12]), (&WAN_ROUTER[..], &WAN[..]));
    assert_eq!(key.get(field::NW_TTL), 1);
    assert_eq!(key.get(field::VLAN_TCI), 0x100a);
    assert_eq!(fate.batch.meta.out_port[0], PortIndex(0));
    // Nothing else changed: TTL and header checksum lie at 26 and 28.
    assert_eq!((&bytes[12..26], &bytes[30..]), (&packet[12..26], &packet[30..]));
    assert!(fate.emitted.is_empty());
}

#[test]
fn an_ipv6_packet_leaves_by_a_link_local_next_hop() {
    let bench = Bench::new(ROUTES);
    let packet = from_to("2001:db8:a::1", "2001:db8:b::2").ttl(64).udp(1, 2).build(b"x");
    let fate = bench.send(&packet);
    let (bytes, key, _) = fate.forwarded();
    assert_eq!((&bytes[..6], &bytes[6..12]), (&WAN_ROUTER[..], &WAN[..]));
    assert_eq!(key.get(field::NW_TTL), 63);
    assert_eq!((&bytes[12..21], &bytes[22..]), (&packet[12..21], &packet[22..]));
}

#[test]
fn a_host_on_a_direct_link_is_reached_or_reported() {
    let bench = Bench::new(ROUTES);
    let fate = bench.send(&udp("10.1.1.1", "192.0.2.5"));
    assert_eq!(fate.forwarded().0[..6], LAN_HOST);
    assert_eq!(fate.batch.meta.out_port[0], PortIndex(1));
    let fate = bench.send(&udp("10.1.1.1", "192.0.2.6"));
    assert_eq!(fate.dropped(), DropReason::Unreachable);
    let (bytes, ..) = fate.error();
    assert_eq!(bytes[34..36], [3, 1]);
}

#[test]
fn what_a_router_must_not_forward_is_dropped_silently() {
    let bench = Bench::new(&format!("0.0.0.0/0 203.0.113.1 wan\n::/0 fe80::1 wan\n{ROUTES}"));
    let good = udp("10.1.1.1", "198.51.100.7");
    let with = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        packet
    };
    let cases = [
        (udp("10.1.1.1", "224.0.0.5"), DropReason::NotForwardable),
        (udp("10.1.1.1", "255.255.255.255"), DropReason::NotForwardable),
        (udp("10.1.1.1", "240.1.1.1"), DropReason::NotForwardable),
        (udp("10.1.1.1", "127.0.0.1"), DropReason::NotForwardable),
        (udp("10.1.1.1", "0.0.0.1"), DropReason::NotForwardable),
        (udp("10.1.1.1", "169.254.3.3"), DropReason::NotForwardable),
        (udp("127.0.0.1", "198.51.100.7"), DropReason::NotForwardable),
        (udp("224.0.0.5", "198.51.100.7"), DropReason::NotForwardable),
        (udp("2001:db8::1", "ff02::5"), DropReason::NotForwardable),
        (udp("2001:db8::1", "fe80::5"), DropReason::NotForwardable),
        (udp("fe80::5", "2001:db8:b::1"), DropReason::NotForwardable),
        (udp("2001:db8::1", "::1"), DropReason::NotForwardable),
        (udp("::", "2001:db8:b::1"), DropReason::NotForwardable),
        (with(0, 0xff), DropReason::NotForwardable),
        (with(24, 0x77), DropReason::BadChecksum),
        (good[..30].to_vec(), DropReason::Malformed),
        (good[..good.len() - 1].to_vec(), DropReason::Malformed),
        (good[..10].to_vec(), DropReason::Malformed),
        (with(14, 0x41), DropReason::Malformed),
        (with(12, 0x99), DropReason::UnsupportedProtocol),
        (PacketBuilder::new(HOST, LAN).build(b"no IP"), DropReason::UnsupportedProtocol),
    ];
    for (packet, reason) in cases {
        let fate = bench.send(&packet);
        assert_eq!(fate.dropped(), reason, "{packet:02x?}");
        assert!(fate.emitted.is_empty() && fate.figure("icmp_sent") == 0, "{packet:02x?}");
    }
    // A router ignores the transport header.
    let fate = bench.send(&with(38, 0));
    assert_eq!(fate.verdict, Verdict::Forward);
}

#[test]
fn a_packet_that_its_capture_cut_is_forwarded() {
    let bench = Bench::new(ROUTES);
    let packet = udp("10.1.1.1", "198.51.100.7");
    let mut batch = Batch::new(bench.pool.clone());
    batch.push_bytes(&packet[..40]).unwrap();
    batch.meta.wire_len[0] = packet.len() as u32;
    batch.parse(Lanes::ALL, Decapsulate::No);
    let mut emitted = Emitted::new(bench.pool.clone());
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    bench.blueprint.instance().process(&mut batch, Lanes::ALL, &mut context);
    assert_eq!(context.verdict(0), Verdict::Forward);
    assert_eq!(batch.bytes(0)[22], 63);
}

#[test]
fn a_sender_is_told_when_its_packet_lived_too_long() {
    let bench = Bench::new(ROUTES);
    for ttl in [0, 1] {
        let packet = from_to("10.1.1.1", "198.51.100.7").ttl(ttl).udp(1, 2).build(b"x");
        let fate = bench.send(&packet);
        assert_eq!(fate.dropped(), DropReason::TtlExpired);
        let (bytes, key, _) = fate.error();
        assert_eq!(bytes[34..36], [11, 0]);
        assert_eq!((&bytes[..6], &bytes[6..12]), (&LAN_ROUTER[..], &LAN[..]));
        assert_eq!(key.get(field::NW_SRC), 0xc000_0201, "the address of the port it leaves by");
        assert_eq!(key.get(field::NW_DST), 0x0a01_0101);
        assert_eq!(fate.emitted.batches()[0].meta.out_port[0], PortIndex(1));
        assert_eq!(bytes[42..], packet[14..], "quoted as it came");
        assert_eq!((fate.figure("icmp_sent"), fate.figure("icmp_suppressed")), (1, 0));
    }
    let packet = from_to("2001:db8:a::1", "2001:db8:b::2").ttl(1).udp(1, 2).build(b"x");
    let fate = bench.send(&packet);
    assert_eq!(fate.dropped(), DropReason::TtlExpired);
    let (bytes, key, _) = fate.error();
    assert_eq!(bytes[54..56], [3, 0]);
    assert_eq!(key.get128(field::IPV6_SRC), 0x2001_0db8_0000_0001_0000_0000_0000_00ff);
}

#[test]
fn no_route_is_told_and_a_black_hole_is_not() {
    let bench = Bench::new(ROUTES);
    for dst in ["8.8.8.8", "10.67.1.1"] {
        let fate = bench.send(&udp("10.1.1.1", dst));
        assert_eq!(fate.dropped(), DropReason::Unreachable);
        assert_eq!(fate.error().0[34..36], [3, 0]);
    }
    let fate = bench.send(&udp("2001:db8:a::1", "2001:db8:c::1"));
    assert_eq!(fate.dropped(), DropReason::Unreachable);
    assert_eq!(fate.error().0[54..56], [1, 0]);

    let fate = bench.send(&udp("10.1.1.1", "10.66.1.1"));
    assert_eq!(fate.dropped(), DropReason::Unreachable);
    assert!(fate.emitted.is_empty());
    // Without a route to the sender no ICMP error is possible.
    let fate = bench.send(&udp("9.9.9.9", "8.8.8.8"));
    assert_eq!(fate.dropped(), DropReason::Unreachable);
    assert_eq!((fate.figure("icmp_sent"), fate.figure("icmp_suppressed")), (0, 1));
}

#[test]
fn a_packet_too_long_that_must_not_be_cut_is_reported_with_the_mtu() {
    let bench = Bench::new(ROUTES);
    let sized = |ip: usize| from_to("10.1.1.1", "198.51.100.7").udp(1, 2).build(&vec![0; ip - 28]);
    bench.send(&sized(1400)).forwarded();
    let fate = bench.send(&sized(1401));
    assert_eq!(fate.dropped(), DropReason::TooBig);
    let (bytes, ..) = fate.error();
    assert_eq!((&bytes[34..36], &bytes[38..42]), (&[3, 4][..], &[0, 0, 5, 0x78][..]));

    let sized =
        |ip: usize| from_to("2001:db8:a::1", "2001:db8:b::2").udp(1, 2).build(&vec![0; ip - 48]);
    bench.send(&sized(1400)).forwarded();
    let fate = bench.send(&sized(1401));
    assert_eq!(fate.dropped(), DropReason::TooBig);
    let (bytes, ..) = fate.error();
    assert_eq!((bytes[54], &bytes[58..62]), (2, &[0, 0, 5, 0x78][..]));
}

#[test]
fn a_tunnel_is_routed_by_its_outer_header() {
    let bench = Bench::new(ROUTES);
    let inner = udp("1.1.1.1", "8.8.8.8");
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat();
    let packet = from_to("10.1.1.1", "198.51.100.7").udp(5555, 4789).build(&vxlan);
    let fate = bench.send_as(&packet, Decapsulate::Yes);
    let (bytes, key, _) = fate.forwarded();
    assert_eq!(bytes[..6], WAN_ROUTER);
    assert_eq!(key.get(field::NW_TTL), 63);
    assert!(bytes.ends_with(&inner));
}

#[test]
fn lanes_of_other_branches_stay_untouched() {
    let bench = Bench::new(ROUTES);
    let packet = udp("10.1.1.1", "198.51.100.7");
    let mut batch = Batch::new(bench.pool.clone());
    for _ in 0..32 {
        batch.push_bytes(&packet).unwrap();
    }
    batch.parse(Lanes::ALL, Decapsulate::No);
    let mine = Lanes(0xff00_0f0f);
    let mut emitted = Emitted::new(bench.pool.clone());
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    bench.blueprint.instance().process(&mut batch, mine, &mut context);
    assert!(context.dropped().is_empty());
    for lane in 0..32 {
        let (out, ttl) =
            if mine.contains(lane) { (PortIndex(0), 63) } else { (PortIndex::NONE, 64) };
        assert_eq!((batch.meta.out_port[lane], batch.bytes(lane)[22]), (out, ttl), "{lane}");
        assert_eq!(batch.bytes(lane) == packet, !mine.contains(lane));
    }
}

#[test]
fn reloading_changes_the_running_router_and_a_bad_file_changes_nothing() {
    let mut bench = Bench::new(ROUTES);
    let mut router = bench.blueprint.instance();
    let reached = |bench: &Bench, router: &mut Box<dyn NetworkFunction>| {
        let mut batch = Batch::new(bench.pool.clone());
        batch.push_bytes(&udp("10.1.1.1", "198.51.100.7")).unwrap();
        batch.parse(Lanes::ALL, Decapsulate::No);
        let mut emitted = Emitted::new(bench.pool.clone());
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        router.process(&mut batch, Lanes::ALL, &mut context);
        (context.verdict(0) == Verdict::Forward).then(|| batch.meta.out_port[0].0)
    };
    assert_eq!(reached(&bench, &mut router), Some(0));
    bench.write(&ROUTES.replace("203.0.113.1     wan", "192.0.2.254 lan"));
    bench.reload(&mut *router).unwrap();
    assert_eq!(reached(&bench, &mut router), Some(1));
    bench.write("nonsense\n");
    let error = bench.reload(&mut *router).unwrap_err().to_string();
    assert!(error.contains("table.txt:1:1: a prefix without a length: 'nonsense'"), "{error}");
    assert_eq!(reached(&bench, &mut router), Some(1));
    bench.write(&ROUTES.replace("198.51.100.0/24", "198.51.101.0/24"));
    bench.reload(&mut *router).unwrap();
    assert_eq!(reached(&bench, &mut router), None);
    assert!(bench.blueprint.describe().starts_with("7 IPv4 and 4 IPv6 routes"));
}

#[test]
fn a_trace_tells_the_route_and_the_way_out() {
    let bench = Bench::new(ROUTES);
    let fate = bench.send(&udp("10.1.1.1", "198.51.100.7"));
    let lines: Vec<_> = fate.trace.iter().map(|(_, line)| line.as_str()).collect();
    let expected = [
        "198.51.100.7: route 198.51.100.0/24 via 203.0.113.1 dev wan",
        "TTL or hop limit 64 -> 63",
        "leaves from 02:00:00:00:00:02 to 02:00:00:00:02:01 by output 'out'",
    ];
    assert_eq!(lines, expected);
    let fate = bench.send(&udp("10.1.1.1", "8.8.8.8"));
    assert_eq!(fate.trace[0].1, "8.8.8.8: no route, unreachable");
    assert_eq!(fate.trace[1].1, "sends NetUnreachable from 192.0.2.1 to 10.1.1.1");
}

#[test]
fn routes_are_counted_and_errors_can_be_turned_off() {
    let bench = Bench::with_options(ROUTES, "icmp_rate = 0");
    let figures = bench.blueprint.instance().figures();
    assert_eq!(figures[..2], [("routes_v4", 7), ("routes_v6", 4)]);
    let fate = bench.send(&udp("10.1.1.1", "8.8.8.8"));
    assert_eq!((fate.figure("icmp_sent"), fate.figure("icmp_suppressed")), (0, 1));
}

#[test]
fn a_missing_file_and_a_wrong_route_are_errors_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let error = build_in(&folder, "10.0.0.0/8 192.0.2.9 lan", "").err().unwrap().to_string();
    assert!(error.contains("table.txt:1:12: the MAC address of this next hop"), "{error}");
    let text = "routes = 'none.txt'\nports = {}";
    let error = KIND.build_alone(text).err().unwrap();
    assert!(error.to_string().contains("a router without ports"), "{error}");
}

/// Packets of every kind that the router handles, with up to three bytes overwritten.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let long = || from_to("10.1.1.1", "198.51.100.7").ipv4_id(1, false).udp(1, 2).build(&[0; 1500]);
    let echo = |src, dst| from_to(src, dst).echo(IcmpEcho::default()).build(b"ping");
    let kinds = vec![
        udp("10.1.1.1", "198.51.100.7"),
        udp("10.1.1.1", "8.8.8.8"),
        udp("2001:db8:a::1", "2001:db8:b::2"),
        long(),
        echo("10.1.1.1", "192.0.2.1"),
        echo("2001:db8:a::1", "2001:db8:0:1::ff"),
        arp_request([192, 0, 2, 1]),
        solicitation("fe80::9", "ff02::1:ff00:ff", true),
        solicitation("::", "2001:db8:0:1::ff", false),
    ];
    let edits = proptest::collection::vec((0..90usize, any::<u8>()), 0..4);
    (proptest::sample::select(kinds), edits, 0..200usize).prop_map(|(mut packet, edits, cut)| {
        for (at, value) in edits {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        // Often the IPv4 checksum is corrected, to pass more checks.
        let (_, headers) = parse(&packet, PortIndex::NONE, Decapsulate::No);
        if cut % 2 == 0 {
            thalweg_packet::checksum::fill(&mut packet, &headers);
        }
        packet.truncate(if cut < 100 { packet.len() } else { cut });
        packet
    })
}

#[test]
fn no_packet_breaks_the_router_and_what_leaves_is_sound() {
    let bench = Bench::new(ROUTES);
    let (mut forwarded, mut dropped, mut emitted) = (0, 0, 0);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..3000 {
        let packet = mutated().new_tree(&mut runner).unwrap().current();
        let fate = bench.send(&packet);
        match fate.verdict {
            Verdict::Forward => {
                forwarded += 1;
                let batch = &fate.batch;
                let (key, headers) = parse(batch.bytes(0), PortIndex::NONE, Decapsulate::No);
                assert_eq!((key, &headers), (batch.key(0), batch.headers(0)));
                assert_ne!(batch.meta.out_port[0], PortIndex::NONE);
                assert_ne!(verify(batch.bytes(0), &headers), ChecksumStatus::BadHeader);
            }
            Verdict::Drop(_) => dropped += 1,
            Verdict::Punt => panic!("a router has no controller"),
        }
        emitted += fate.emitted.len();
        for emitted in fate.emitted.batches() {
            emitted.lanes().into_iter().for_each(|lane| _ = whole(emitted, lane));
        }
    }
    assert!(forwarded > 500 && dropped > 500 && emitted > 200, "{forwarded} {dropped} {emitted}");
    assert_eq!(bench.pool.in_use(), 0);
}
