//! Routes and neighbours of the kernel, from recorded netlink messages (`tests/data/record.py`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::file::own_routes;
use crate::forward::Shared;
use crate::kernel::feed::{Dump, Woken};
use crate::kernel::{Feed, Follow};

const PORTS: &str = r#"
kernel_table = 254
[ports.lan]
mac = "02:00:00:00:00:01"
ip = "192.0.2.1"
ipv6 = "2001:db8:0:1::ff"
[ports.wan]
output = "out"
interface = "wan"
mac = "02:00:00:00:00:02"
ip = "10.2.0.1"
default_mac = "02:00:00:00:0d:0d"
"#;

/// A datagram of one message that ends a dump.
const DONE: [u8; 20] = [20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The recorded messages: those of the dumps, and those of each step.
struct Record {
    dumps: HashMap<Dump, Vec<Vec<u8>>>,
    steps: BTreeMap<&'static str, Vec<Vec<u8>>>,
}

fn record() -> &'static Record {
    static RECORD: LazyLock<Record> = LazyLock::new(|| {
        let kinds = [
            Dump::Links,
            Dump::Addresses,
            Dump::Objects,
            Dump::Neighbors,
            Dump::RoutesV4,
            Dump::RoutesV6,
        ];
        let mut record = Record { dumps: HashMap::new(), steps: BTreeMap::new() };
        let lines = include_str!("../../tests/data/kernel.txt").lines();
        for line in lines.filter(|line| !line.starts_with('#')) {
            let words: Vec<_> = line.split(' ').collect();
            let datagram = hex::decode(words[2]).unwrap();
            if words[0] == "dump" {
                let kind = kinds.into_iter().find(|kind| format!("{kind:?}") == words[1]).unwrap();
                record.dumps.entry(kind).or_default().push(datagram);
            } else {
                record.steps.entry(words[1]).or_default().push(datagram);
            }
        }
        record
    });
    &RECORD
}

/// A feed of recorded dumps.
struct Recorded {
    dumps: HashMap<Dump, Vec<Vec<u8>>>,
    left: VecDeque<Vec<u8>>,
}

impl Recorded {
    fn new() -> Self {
        Self { dumps: record().dumps.clone(), left: VecDeque::new() }
    }
}

impl Feed for Recorded {
    fn request(&mut self, dump: Dump) -> io::Result<()> {
        self.left = self.dumps[&dump].clone().into();
        Ok(())
    }

    fn dumped(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        *datagram = self.left.pop_front().ok_or(io::ErrorKind::TimedOut)?;
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> io::Result<Woken> {
        Ok(Woken::Nothing)
    }

    fn receive(&mut self, _: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }
}

/// A router that follows the recorded kernel, and its follower.
struct Followed {
    follow: Follow,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
}

impl Followed {
    fn new() -> Self {
        let outputs = ["out".to_owned(), "lan".to_owned()];
        let environment = Environment { outputs: &outputs, ..Environment::default() };
        let config = Section::parse_text(PORTS, |section| Config::read(section, &environment));
        let ports = config.unwrap().ports;
        let mut fixed = own_routes(&ports).list;
        fixed.push(prefix("10.90.0.0/16"), NextHop::Blackhole);
        fixed.push(prefix("198.51.100.0/25"), NextHop::Blackhole);
        let shared = Arc::new(Shared::new(RouteTable::new(), ports, 1000));
        let mut follow = Follow::new(254, shared.clone(), &fixed);
        follow.synchronize(&mut Recorded::new()).unwrap();
        assert!(!follow.is_doubtful());
        follow.settle();
        let pool = Arc::new(Pool::anonymous(64, 16384).unwrap());
        Self { follow, shared, pool }
    }

    /// Takes the messages of a recorded step; returns whether they leave doubts.
    fn step(&mut self, name: &str) -> bool {
        record().steps[name].iter().for_each(|datagram| self.follow.take(datagram));
        self.follow.publish();
        self.follow.is_doubtful()
    }

    fn hop(&self, address: &str) -> NextHop {
        self.shared.view.load().table.lookup(address.parse().unwrap())
    }

    fn send(&self, packet: &[u8]) -> (Batch, Emitted, Verdict) {
        let mut batch = Batch::new(self.pool.clone());
        batch.push_bytes(packet).unwrap();
        batch.parse(Lanes::ALL, Decapsulate::No);
        let mut emitted = Emitted::new(self.pool.clone());
        let mut router = Router::new(self.shared.clone());
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        router.process(&mut batch, Lanes::ALL, &mut context);
        let verdict = context.verdict(0);
        (batch, emitted, verdict)
    }
}

fn prefix(text: &str) -> IpPrefix {
    let (address, len) = text.split_once('/').unwrap();
    let len = len.parse().unwrap();
    match address.parse().unwrap() {
        IpAddr::V4(address) => Prefix::holding(u32::from(address), len).into(),
        IpAddr::V6(address) => Prefix::holding(u128::from(address), len).into(),
    }
}

fn port(interface: &str) -> RouterPort {
    RouterPort(["lan", "wan"].iter().position(|name| *name == interface).unwrap() as u16)
}

fn direct(interface: &str) -> NextHop {
    NextHop::Direct { port: port(interface) }
}

fn via(gateway: &str, interface: &str) -> NextHop {
    let address = gateway.parse().unwrap();
    NextHop::Gateway { address, port: port(interface), mac: None }
}

/// The next hops of a route, by their shares.
fn ways(hop: &NextHop) -> Vec<NextHop> {
    let NextHop::Multipath(ways) = hop else { panic!("{hop:?}") };
    ways.all().to_vec()
}

#[test]
fn routes_of_every_kind_lead_where_the_kernel_leads_them() {
    let followed = Followed::new();
    let hop = |address| followed.hop(address);
    assert_eq!(hop("10.1.0.7"), direct("lan"));
    assert_eq!(hop("198.51.100.200"), via("10.2.0.9", "wan"));
    assert_eq!(hop("10.66.1.1"), NextHop::Blackhole);
    assert_eq!(hop("10.67.1.1"), NextHop::HostUnreachable);
    assert_eq!(hop("10.68.1.1"), NextHop::Prohibited);
    assert_eq!(hop("10.69.1.1"), NextHop::Unreachable);
    assert_eq!(hop("10.71.1.1"), via("fd02::9", "wan"), "a gateway of the other IP version");
    assert_eq!(hop("10.72.1.1"), via("172.16.0.9", "lan"), "on-link");
    assert_eq!(hop("10.73.1.1"), via("10.2.0.9", "wan"), "the lowest metric");
    assert_eq!(hop("10.74.1.1"), NextHop::Unreachable, "in another table");
    assert_eq!(hop("10.75.1.1"), NextHop::Unreachable, "through a tunnel of the kernel");
    assert_eq!(hop("2001:db8:a::1"), via("fd02::9", "wan"));
    assert_eq!(hop("2001:db8:b::1"), NextHop::Unreachable);
    assert_eq!(hop("2001:db8:c::1"), NextHop::Prohibited);
    let [lan, wan] = [via("10.1.0.9", "lan"), via("10.2.0.9", "wan")];
    assert_eq!(ways(&hop("203.0.113.5")), [lan.clone(), lan.clone(), wan.clone()], "weights 2:1");
    assert_eq!(ways(&hop("10.76.0.1")), [lan, wan.clone(), wan.clone(), wan], "a group: 1:3");
    let v6 = [via("fd01::9", "lan"), via("fd02::9", "wan")];
    assert_eq!(ways(&hop("2001:db8:d::1")), v6);
}

#[test]
fn where_the_router_has_no_port_packets_do_not_leave_by_a_shorter_prefix() {
    let followed = Followed::new();
    // The kernel's default route leads to an interface that is none of the router's.
    assert_eq!(followed.hop("8.8.8.8"), NextHop::Unreachable);
    assert_eq!(followed.hop("10.3.0.7"), NextHop::Unreachable);
    let table = followed.shared.view.load().table.clone();
    assert_eq!(table.matched("8.8.8.8".parse().unwrap()), Some(prefix("0.0.0.0/0")));
}

#[test]
fn own_addresses_win_over_the_file_which_wins_over_the_kernel() {
    let mut followed = Followed::new();
    // The kernel's own addresses, one of which is the router's, too: the kernel answers.
    for own in ["10.1.0.1", "10.2.0.1", "10.3.0.1", "fd01::1"] {
        assert_eq!(followed.hop(own), NextHop::Kernel);
    }
    assert_eq!(followed.hop("192.0.2.1"), NextHop::Local { port: port("lan") });
    assert_eq!(followed.hop("198.51.100.5"), NextHop::Blackhole);
    assert_eq!(followed.hop("198.51.100.200"), via("10.2.0.9", "wan"));
    assert_eq!(followed.hop("10.9.9.9"), NextHop::Unreachable);
    assert!(!followed.step("address"));
    assert_eq!(followed.hop("10.9.9.9"), NextHop::Kernel);
    assert!(followed.step("address-gone"), "routes may have gone with it");
    assert_eq!(followed.hop("10.9.9.9"), NextHop::Unreachable);
}

#[test]
fn changes_of_ipv4_routes_are_applied_in_order() {
    let mut followed = Followed::new();
    let [lan, wan] = [via("10.1.0.9", "lan"), via("10.2.0.9", "wan")];
    let mut hop_after = |step: &str| {
        assert!(!followed.step(step), "{step}");
        followed.hop(if step == "metric" { "10.73.0.1" } else { "10.80.0.1" })
    };
    assert_eq!(hop_after("add"), wan);
    assert_eq!(hop_after("replace"), lan);
    assert_eq!(hop_after("append"), lan);
    assert_eq!(hop_after("del-first"), wan);
    assert_eq!(hop_after("del-last"), NextHop::Unreachable);
    assert_eq!(hop_after("metric"), lan, "the next metric");
}

#[test]
fn next_hops_of_ipv6_routes_come_and_go_one_by_one() {
    let mut followed = Followed::new();
    let [lan, wan] = [via("fd01::9", "lan"), via("fd02::9", "wan")];
    assert!(!followed.step("v6-append"));
    assert_eq!(ways(&followed.hop("2001:db8:a::1")), [lan.clone(), wan.clone()]);
    assert!(!followed.step("v6-del-one"));
    assert_eq!(followed.hop("2001:db8:a::1"), lan);
    assert!(!followed.step("v6-replace"));
    assert_eq!(ways(&followed.hop("2001:db8:a::1")), [lan, wan]);
    assert!(!followed.step("v6-del"));
    assert_eq!(followed.hop("2001:db8:a::1"), NextHop::Unreachable);
}

#[test]
fn a_changed_next_hop_object_changes_the_routes_of_its_groups() {
    let mut followed = Followed::new();
    assert!(!followed.step("nexthop"));
    let wan = via("10.2.0.9", "wan");
    let expected = [via("10.1.0.8", "lan"), wan.clone(), wan.clone(), wan];
    assert_eq!(ways(&followed.hop("10.76.0.1")), expected);
    assert!(followed.step("nexthop-gone"), "the kernel removes its routes silently");
}

#[test]
fn links_that_go_down_are_a_reason_to_dump_again_and_others_that_come_are_not() {
    let mut followed = Followed::new();
    assert!(!followed.step("other-link"));
    assert!(followed.step("down"));
}

#[test]
fn changes_that_were_already_dumped_do_no_harm() {
    let mut followed = Followed::new();
    for step in ["add", "replace", "append", "del-first", "v6-append"] {
        followed.step(step);
    }
    let before = [followed.hop("10.80.0.1"), followed.hop("2001:db8:a::1")];
    followed.follow.synchronize(&mut Recorded::new()).unwrap();
    assert_eq!(followed.hop("10.80.0.1"), NextHop::Unreachable, "it is not in the dump");
    // As if they had waited in the socket during the dump.
    for _ in 0..2 {
        for step in ["add", "replace", "append", "del-first", "v6-append"] {
            assert!(!followed.step(step), "{step}");
        }
    }
    assert_eq!([followed.hop("10.80.0.1"), followed.hop("2001:db8:a::1")], before);
    // But once no change waits, a removal of what is not there is suspicious.
    assert!(!followed.step("del-last"));
    assert!(!followed.step("del-last"));
    followed.follow.settle();
    assert!(followed.step("del-last"));
}

#[test]
fn a_dump_that_fails_leaves_the_routes_as_they_were() {
    let mut followed = Followed::new();
    let mut feed = Recorded::new();
    feed.dumps.get_mut(&Dump::RoutesV6).unwrap().pop();
    followed.follow.synchronize(&mut feed).unwrap_err();
    assert_eq!(followed.hop("198.51.100.200"), via("10.2.0.9", "wan"));
    // EPERM in place of the routes.
    let mut failed = DONE;
    failed[4] = 2;
    failed[16..].copy_from_slice(&(-1i32).to_ne_bytes());
    feed.dumps.insert(Dump::RoutesV4, vec![failed.to_vec()]);
    let error = followed.follow.synchronize(&mut feed).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(1));
}

#[test]
fn a_table_that_is_gone_is_empty() {
    let mut followed = Followed::new();
    let mut feed = Recorded::new();
    let mut failed = DONE;
    failed[4] = 2;
    failed[16..].copy_from_slice(&(-2i32).to_ne_bytes());
    for dump in [Dump::RoutesV4, Dump::RoutesV6, Dump::Objects] {
        feed.dumps.insert(dump, vec![failed.to_vec()]);
    }
    feed.dumps.insert(Dump::Addresses, vec![DONE.to_vec()]);
    followed.follow.synchronize(&mut feed).unwrap();
    // The file's routes and the router's own addresses.
    assert_eq!(followed.shared.view.load().table.len(), (2 + 2, 1));
}

#[test]
fn an_interrupted_dump_is_used_and_repeated() {
    let mut followed = Followed::new();
    let mut feed = Recorded::new();
    // NLM_F_DUMP_INTR.
    feed.dumps.get_mut(&Dump::RoutesV4).unwrap().last_mut().unwrap()[6] |= 0x10;
    followed.follow.synchronize(&mut feed).unwrap();
    assert!(followed.follow.is_doubtful());
    followed.follow.synchronize(&mut Recorded::new()).unwrap();
    assert!(!followed.follow.is_doubtful());
}

#[test]
fn neighbours_of_the_kernel_are_used_before_a_default_and_after_static_ones() {
    let mut followed = Followed::new();
    let mac_of = |followed: &Followed, to: &str| {
        let (batch, _, verdict) = followed.send(&udp("10.2.0.5", to));
        (verdict == Verdict::Forward).then(|| *batch.bytes(0).first_chunk::<6>().unwrap())
    };
    assert_eq!(mac_of(&followed, "198.51.100.200"), Some([2, 0, 0, 0, 2, 9]));
    assert_eq!(mac_of(&followed, "10.71.0.1"), Some([2, 0, 0, 0, 2, 9]), "an IPv6 neighbour");
    assert_eq!(mac_of(&followed, "10.2.0.77"), Some([2, 0, 0, 0, 0xd, 0xd]));
    assert_eq!(mac_of(&followed, "10.1.0.9"), None, "unknown, and not to be resolved");
    followed.step("neighbor");
    assert_eq!(mac_of(&followed, "10.1.0.9"), Some([2, 0, 0, 0, 1, 9]));
    followed.step("neighbor-gone");
    assert_eq!(mac_of(&followed, "10.1.0.9"), None);
}

#[test]
fn what_is_not_forwarded_is_answered_as_by_linux() {
    let followed = Followed::new();
    for (to, reason, code) in [
        ("10.66.0.1", DropReason::Unreachable, None),
        ("10.67.0.1", DropReason::Unreachable, Some(1)),
        ("10.68.0.1", DropReason::Unreachable, Some(13)),
        ("8.8.8.8", DropReason::Unreachable, Some(0)),
        ("10.1.0.1", DropReason::Consumed, None),
    ] {
        let (_, emitted, verdict) = followed.send(&udp("10.2.0.5", to));
        assert_eq!(verdict, Verdict::Drop(reason), "{to}");
        let sent = (!emitted.is_empty()).then(|| emitted.batches()[0].bytes(0)[34..36].to_vec());
        assert_eq!(sent, code.map(|code| vec![3, code]), "{to}");
    }
}

#[test]
fn next_hops_beyond_the_numbers_of_a_table_take_another_table() {
    let mut followed = Followed::new();
    let first = Arc::as_ptr(&followed.shared.view.load().table);
    // Each message has another gateway for the route of the step "replace".
    let replace = record().steps["replace"][0].clone();
    let gateway = [10, 1, 0, 9];
    let at = replace.windows(4).position(|bytes| bytes == gateway).unwrap();
    for n in 0..40_000u32 {
        let mut datagram = replace.clone();
        let [.., high, low] = n.to_be_bytes();
        datagram[at + 2..at + 4].copy_from_slice(&[high, low]);
        followed.follow.take(&datagram);
        followed.follow.publish();
    }
    assert_eq!(followed.hop("10.80.0.1"), via("10.1.156.63", "lan"));
    assert_eq!(followed.hop("198.51.100.200"), via("10.2.0.9", "wan"));
    assert_ne!(Arc::as_ptr(&followed.shared.view.load().table), first);
}

#[test]
fn a_dump_replayed_as_changes_has_the_same_routes() {
    let replayed = record().dumps[&Dump::RoutesV4].iter().map(|dump| crate::replay_netlink(dump));
    // All 15 prefixes but the two of interface 7, the one with an encapsulation, and the one with a
    // next-hop object, which no message of this dump has.
    assert_eq!(replayed.sum::<usize>(), 11);
}

proptest! {
    #[test]
    fn damaged_messages_do_not_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for datagrams in record().steps.values().chain(record().dumps.values()) {
            for datagram in datagrams {
                let mut datagram = datagram.clone();
                for (at, value) in &damage {
                    let at = at.index(datagram.len());
                    datagram[at] = *value;
                }
                datagram.truncate(cut.index(datagram.len() + 1));
                crate::replay_netlink(&datagram);
            }
        }
    }
}

/// The packet path would otherwise be held up by a burst of changes, or by memory that it frees.
#[test]
fn changes_leave_the_packet_path_nothing_to_apply_and_nothing_to_free() {
    let mut followed = Followed::new();
    let mut router = Router::new(followed.shared.clone());
    let before = Arc::as_ptr(&router.view);
    for _ in 0..20_000 {
        // Two changes of one route, and the removal of both.
        for step in ["add", "replace", "append", "del-first", "del-last"] {
            followed.step(step);
        }
        followed.follow.settle();
        router.take_up_view();
    }
    assert_eq!(Arc::as_ptr(&router.view), before, "routes change in place");
    let old = Arc::downgrade(&router.view);
    assert!(!followed.step("neighbor"));
    router.take_up_view();
    assert_ne!(Arc::as_ptr(&router.view), before, "neighbours are another view");
    assert_eq!(old.strong_count(), 1, "the follower still has the former view");
    followed.follow.settle();
    assert_eq!(old.strong_count(), 0, "and frees it");
}
