//! Hosts and next hops whose MAC addresses are resolved.

use std::net::IpAddr;

use super::*;
use thalweg_nf::Emitted;
use thalweg_testkit::peer::scapy;

const OPTIONS: &str = r#"
[ports.lan]
mac = "02:00:00:00:00:01"
ip = "192.0.2.1"
ipv6 = "2001:db8:0:1::ff"
resolve = true
neighbors = { "192.0.2.5" = "02:00:00:00:01:05" }
[ports.wan]
output = "out"
mac = "02:00:00:00:00:02"
ip = "203.0.113.2"
mtu = 600
resolve = true
"#;

const ROUTES: &str = "\
192.0.2.0/24       direct       lan
2001:db8:0:1::/64  direct       lan
198.51.100.0/24    203.0.113.1  wan
10.0.0.0/8         192.0.2.5    lan
";

/// A router and its clock.
struct Live {
    _folder: tempfile::TempDir,
    router: Box<dyn NetworkFunction>,
    pool: Arc<Pool>,
    tenths: u64,
}

/// A packet that left, and its output.
type Left = (Vec<u8>, PortIndex);

impl Live {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table.txt");
        fs::write(&file, ROUTES).unwrap();
        let blueprint = built(&format!("routes = '{}'\n{OPTIONS}", file.display())).unwrap();
        let router = blueprint.instance();
        let pool = Arc::new(Pool::anonymous(64, 16384).unwrap());
        Self { _folder: folder, router, pool, tenths: 1000 }
    }

    /// Sends a packet; returns its outcome, and the packets that the router generated.
    fn send(&mut self, packet: &[u8]) -> (Result<Left, DropReason>, Vec<Left>) {
        let (mut batch, mut emitted) =
            (Batch::new(self.pool.clone()), Emitted::new(self.pool.clone()));
        batch.push_bytes(packet).unwrap();
        batch.meta.packet_type[0] = thalweg_packet::PacketType(7);
        batch.parse(Lanes::ALL, Decapsulate::No);
        let now = Nanoseconds(self.tenths * 100_000_000);
        batch.meta.timestamp[0] = now;
        let mut context = Context::new(now, &mut emitted, None);
        self.router.process(&mut batch, Lanes::ALL, &mut context);
        let left = |batch: &Batch, lane| (batch.bytes(lane).to_vec(), batch.meta.out_port[lane]);
        let fate = match context.verdict(0) {
            Verdict::Drop(reason) => Err(reason),
            _ => Ok(left(&batch, 0)),
        };
        let made = &emitted.batches()[0];
        (fate, made.lanes().into_iter().map(|lane| left(made, lane)).collect())
    }

    fn figure(&self, name: &str) -> u64 {
        self.router.figures().iter().find(|(n, _)| *n == name).unwrap().1
    }
}

/// The answer of `mac` at `from` to `to`.
fn arp_reply(mac: Mac, from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    [&LAN[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &mac, &from, &LAN, &to].concat()
}

/// Whether a packet leaves to this MAC address with its TTL decremented.
fn goes_to(packet: &[u8], mac: Mac, ttl: u8) -> bool {
    let (key, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
    assert_eq!(verify(packet, &headers), ChecksumStatus::Good);
    packet[..6] == mac && key.get(field::NW_TTL) == u64::from(ttl)
}

#[test]
fn packets_to_a_host_wait_until_it_answers_by_arp() {
    let mut live = Live::new();
    let to_host = udp("10.1.1.1", "192.0.2.9");
    let (fate, made) = live.send(&to_host);
    assert_eq!(fate, Err(DropReason::Unresolved));
    let mut request = [&[0xff; 6][..], &LAN, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &LAN].concat();
    request.extend([192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
    assert_eq!(made, [(request, PortIndex(1))]);
    for _ in 0..3 {
        assert_eq!(live.send(&to_host), (Err(DropReason::Unresolved), vec![]));
    }
    // The answer releases the waiting packets: three of the four.
    let (fate, made) = live.send(&arp_reply(LAN_HOST, [192, 0, 2, 9], [192, 0, 2, 1]));
    assert_eq!((fate, made.len()), (Err(DropReason::Consumed), 3));
    for (packet, output) in &made {
        assert!(goes_to(packet, LAN_HOST, 63) && *output == PortIndex(1));
        assert_eq!((&packet[6..12], &packet[14..]), (&LAN[..], &made[0].0[14..]));
    }
    let (fate, made) = live.send(&to_host);
    let (packet, output) = fate.unwrap();
    assert!(goes_to(&packet, LAN_HOST, 63) && output == PortIndex(1) && made.is_empty());
    let figures = ["neighbors", "neighbor_requests", "resumed"].map(|name| live.figure(name));
    assert_eq!(figures, [1, 1, 3]);
    // A host with a static entry is not requested.
    let (fate, made) = live.send(&udp("192.0.2.9", "10.1.1.1"));
    assert!(goes_to(&fate.unwrap().0, LAN_HOST, 63) && made.is_empty());
}

#[test]
fn a_next_hop_is_asked_for_and_again_when_the_answer_is_old() {
    let mut live = Live::new();
    let packet = udp("10.1.1.1", "198.51.100.7");
    let (fate, made) = live.send(&packet);
    assert_eq!((fate, made.len()), (Err(DropReason::Unresolved), 1));
    assert_eq!((&made[0].0[38..42], made[0].1), (&[203, 0, 113, 1][..], PortIndex(0)));
    let answer = |mac| arp_reply(mac, [203, 0, 113, 1], [203, 0, 113, 2]);
    assert_eq!(live.send(&answer(WAN_ROUTER)).1.len(), 1);
    live.tenths += 301;
    let (fate, made) = live.send(&packet);
    assert!(goes_to(&fate.unwrap().0, WAN_ROUTER, 63));
    assert_eq!(made.len(), 1, "requested again, and used meanwhile");
    assert_eq!(live.send(&answer(LAN_ROUTER)).0, Err(DropReason::Consumed));
    assert!(goes_to(&live.send(&packet).0.unwrap().0, LAN_ROUTER, 63));
    // This answer is unsolicited.
    assert_eq!(live.send(&answer(HOST)).0, Err(DropReason::Consumed));
    assert!(goes_to(&live.send(&packet).0.unwrap().0, LAN_ROUTER, 63));
}

#[test]
fn the_sender_is_told_when_a_host_is_silent() {
    let mut live = Live::new();
    assert!(live.send(&arp_request([192, 0, 2, 1])).0.is_ok());
    let packet = udp("192.0.2.77", "192.0.2.9");
    let mut asked = 0;
    for _ in 0..30 {
        let (fate, made) = live.send(&packet);
        assert_eq!(fate, Err(DropReason::Unresolved));
        asked += made.iter().filter(|(packet, _)| packet[38..] == [192, 0, 2, 9]).count();
        live.tenths += 1;
    }
    assert_eq!(asked, 3);
    let (fate, made) = live.send(&packet);
    assert_eq!(fate, Err(DropReason::Unreachable));
    // Its sender is known, as it has requested the router's address.
    let (error, _) = made.last().unwrap();
    assert!(goes_to(error, HOST, 64) && error[34..36] == [3, 1]);
}

#[test]
fn a_request_is_repeated_while_other_packets_pass() {
    let mut live = Live::new();
    assert_eq!(live.send(&udp("10.1.1.1", "192.0.2.9")).1.len(), 1);
    live.tenths += 11;
    let (fate, made) = live.send(&udp("10.1.1.1", "10.2.2.2"));
    assert!(fate.is_ok());
    assert_eq!((made.len(), &made[0].0[38..42]), (1, &[192, 0, 2, 9][..]));
}

#[test]
fn an_answer_to_a_ping_waits_for_the_one_who_pings() {
    let mut live = Live::new();
    let ping = from_to("192.0.2.9", "192.0.2.1").echo(IcmpEcho::default()).build(b"ping");
    assert_eq!(live.send(&ping).0, Err(DropReason::Unresolved));
    let (_, made) = live.send(&arp_reply(LAN_HOST, [192, 0, 2, 9], [192, 0, 2, 1]));
    assert!(goes_to(&made[0].0, LAN_HOST, 64) && made[0].0[34] == 0);
    assert!(goes_to(&live.send(&ping).0.unwrap().0, LAN_HOST, 64));
}

#[test]
fn who_asks_for_the_router_is_known_if_it_is_on_the_link() {
    let mut live = Live::new();
    assert!(live.send(&arp_request([192, 0, 2, 1])).0.is_ok());
    assert_eq!(live.figure("neighbors"), 1);
    let (fate, made) = live.send(&udp("10.1.1.1", "192.0.2.77"));
    assert!(goes_to(&fate.unwrap().0, HOST, 63));
    assert_eq!(made.len(), 1, "and is requested");
    let mut elsewhere = arp_request([192, 0, 2, 1]);
    elsewhere[28..32].copy_from_slice(&[10, 9, 9, 9]);
    assert!(live.send(&elsewhere).0.is_ok());
    assert_eq!(live.figure("neighbors"), 1);
}

#[test]
fn what_would_be_cut_and_what_has_no_hops_left_does_not_wait() {
    let mut live = Live::new();
    let long = from_to("192.0.2.5", "198.51.100.7").ipv4_id(1, false).udp(1, 2).build(&[0; 700]);
    let (fate, made) = live.send(&long);
    assert_eq!((fate, made.len()), (Err(DropReason::Unresolved), 1));
    let last = from_to("192.0.2.5", "198.51.100.7").ttl(1).udp(1, 2).build(b"x");
    let (fate, made) = live.send(&last);
    assert_eq!((fate, made.len()), (Err(DropReason::TtlExpired), 1));
    let (_, made) = live.send(&arp_reply(WAN_ROUTER, [203, 0, 113, 1], [203, 0, 113, 2]));
    assert_eq!(made, []);
}

#[test]
fn scapy_answers_a_neighbour_solicitation() {
    let mut live = Live::new();
    let to_host = udp("10.1.1.1", "192.0.2.5");
    assert!(live.send(&to_host).0.is_ok());
    let to_host = udp("2001:db8:a::1", "2001:db8:0:1::9");
    let (fate, made) = live.send(&to_host);
    assert_eq!((fate, made.len()), (Err(DropReason::Unresolved), 1));
    let script = r#"
import sys
from scapy.all import *
ns = Ether(bytes.fromhex(sys.stdin.read().strip()))
assert ns.dst == "33:33:ff:00:00:09" and ns[IPv6].dst == "ff02::1:ff00:9" and ns[IPv6].hlim == 255
assert ns[ICMPv6ND_NS].tgt == "2001:db8:0:1::9" and ns[ICMPv6NDOptSrcLLAddr].lladdr == ns.src
given = ns[ICMPv6ND_NS].cksum
del ns[ICMPv6ND_NS].cksum
assert Ether(bytes(ns))[ICMPv6ND_NS].cksum == given
for hops in (254, 255):
    print(bytes(Ether(src="02:00:00:00:01:05", dst=ns.src) / IPv6(src="fe80::9", dst=ns[IPv6].src, hlim=hops)
        / ICMPv6ND_NA(R=0, S=1, O=1, tgt=ns[ICMPv6ND_NS].tgt)
        / ICMPv6NDOptDstLLAddr(lladdr="02:00:00:00:01:05")).hex())
"#;
    let Some(answers) = scapy(script, &hex::encode(&made[0].0)) else { return };
    let answers: Vec<_> = answers.lines().map(|line| hex::decode(line).unwrap()).collect();
    assert_eq!(live.send(&answers[0]).0, Err(DropReason::NotForwardable), "from elsewhere");
    let mut damaged = answers[1].clone();
    damaged[60] ^= 1;
    assert_eq!(live.send(&damaged).0, Err(DropReason::Malformed));
    let (fate, made) = live.send(&answers[1]);
    assert_eq!((fate, made.len()), (Err(DropReason::Consumed), 1));
    assert!(goes_to(&made[0].0, LAN_HOST, 63));
    assert!(goes_to(&live.send(&to_host).0.unwrap().0, LAN_HOST, 63));
}

#[test]
fn ports_that_cannot_ask_are_refused() {
    let port = |options: &str| {
        let text = format!("routes = 'x'\n[ports.lan]\nmac = '02:00:00:00:00:01'\n{options}");
        built(&text).err().unwrap().to_string()
    };
    let error = port("resolve = true");
    assert!(
        error.contains("chain.toml:4:11: a port without an IP address cannot resolve"),
        "{error}"
    );
    let error = port("resolve = true\nip = '10.0.0.1'\ndefault_mac = '02:00:00:00:00:09'");
    assert!(error.contains("`resolve` and `default_mac` exclude each other"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.txt");
    fs::write(&file, "2001:db8::/32 2001:db8::1 wan\n").unwrap();
    let error = built(&format!("routes = '{}'\n{OPTIONS}", file.display())).err().unwrap();
    let error = error.to_string();
    assert!(error.contains("an address of its IP version for port 'wan'"), "{error}");
}

#[test]
fn a_scan_and_any_packet_leave_the_router_whole() {
    let mut live = Live::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut reasons = std::collections::BTreeSet::new();
    for n in 0..3000u32 {
        let [.., b] = n.to_be_bytes();
        let mut packet = match n % 3 {
            0 => udp("10.1.1.1", &IpAddr::from([192, 0, 2, b]).to_string()),
            1 => arp_reply(LAN_HOST, [192, 0, 2, b.wrapping_sub(1)], [192, 0, 2, 1]),
            _ => mutated().new_tree(&mut runner).unwrap().current(),
        };
        if n % 7 == 0 {
            packet.truncate(n as usize % packet.len());
        }
        let (fate, made) = live.send(&packet);
        reasons.extend(fate.err());
        for (packet, output) in made {
            let (_, headers) = parse(&packet, PortIndex::NONE, Decapsulate::No);
            assert_eq!(headers.status, ParseStatus::Complete);
            assert_ne!(verify(&packet, &headers), ChecksumStatus::BadHeader);
            assert_ne!(output, PortIndex::NONE);
        }
        live.tenths += 1;
    }
    assert!(reasons.contains(&DropReason::Unresolved) && reasons.contains(&DropReason::Consumed));
    assert_eq!(live.pool.in_use(), 0);
    assert!(live.figure("neighbors") > 100 && live.figure("resumed") > 0);
}
