//! Laws of the route table: it agrees with a plain trie, after any changes and
//! while they happen.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use thalweg_packet::{BATCH, PortIndex};
use thalweg_router::{
    Address, HopId, IpPrefix, NextHop, Port, Ports, Prefix, ReaderV6, RouteList, RouteTable,
    RouterPort, TableError, parse_routes,
};
use thalweg_source::Source;
use thalweg_testkit::{cases, data_folder};

/// The oracle: one node a bit, and nothing clever.
struct PlainTrie {
    /// The first is the root.
    nodes: Vec<Node>,
}

#[derive(Clone, Default)]
struct Node {
    /// The numbers of the nodes below; 0 where there is none.
    children: [u32; 2],
    hop: Option<NextHop>,
}

impl Default for PlainTrie {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl PlainTrie {
    /// `address` is left-aligned in 128 bits.
    fn set(&mut self, address: u128, len: u8, hop: Option<NextHop>) {
        let mut at = 0;
        for bit in 0..len {
            let side = (address << bit >> 127) as usize;
            if self.nodes[at].children[side] == 0 {
                self.nodes[at].children[side] = self.nodes.len() as u32;
                self.nodes.push(Node::default());
            }
            at = self.nodes[at].children[side] as usize;
        }
        self.nodes[at].hop = hop;
    }

    fn lookup(&self, address: u128) -> &NextHop {
        let (mut node, mut rest) = (&self.nodes[0], address);
        let mut best = node.hop.as_ref();
        loop {
            let child = node.children[(rest >> 127) as usize] as usize;
            if child == 0 {
                return best.unwrap_or(&NextHop::Unreachable);
            }
            node = &self.nodes[child];
            rest <<= 1;
            best = node.hop.as_ref().or(best);
        }
    }
}

fn gateway(n: u8, v4: bool) -> NextHop {
    let address = if v4 { IpAddr::from([10, 0, 0, n]) } else { IpAddr::from([n; 16]) };
    NextHop::Gateway { address, port: RouterPort(0), mac: Some([2, 0, 0, 0, 0, n]) }
}

/// One of the two address families.
trait Family: Address {
    const LAST: Self;

    /// Spreads the bits of a seed so that prefixes of every length differ.
    fn spread(seed: u32) -> Self;

    fn next(self) -> Self;

    fn before(self) -> Self;

    /// In the upper bits of 128.
    fn left_aligned(self) -> u128;

    fn hops(table: &RouteTable, addresses: &[Self]) -> Vec<NextHop>;
}

impl Family for u32 {
    const LAST: Self = Self::MAX;

    fn spread(seed: u32) -> Self {
        if seed < 16 { 0x0a00_0000 | (seed & 3) << 22 | (seed & 5) << 6 | seed } else { seed }
    }

    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    fn before(self) -> Self {
        self.wrapping_sub(1)
    }

    fn left_aligned(self) -> u128 {
        u128::from(self) << 96
    }

    fn hops(table: &RouteTable, addresses: &[Self]) -> Vec<NextHop> {
        let mut hops = vec![HopId::NO_ROUTE; addresses.len()];
        table.lookup_v4(addresses, &mut hops);
        hops.into_iter().map(|id| table.hop(id).clone()).collect()
    }
}

impl Family for u128 {
    const LAST: Self = Self::MAX;

    fn spread(seed: u32) -> Self {
        let s = Self::from(seed);
        0x2001 << 112 | (s & 3) << 95 | (s & 7) << 78 | (s & 15) << 62 | (s & 5) << 30 | s
    }

    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    fn before(self) -> Self {
        self.wrapping_sub(1)
    }

    fn left_aligned(self) -> u128 {
        self
    }

    fn hops(table: &RouteTable, addresses: &[Self]) -> Vec<NextHop> {
        read_v6(table, &mut table.reader_v6(), addresses)
    }
}

fn read_v6(table: &RouteTable, reader: &mut ReaderV6, addresses: &[u128]) -> Vec<NextHop> {
    let mut all = Vec::new();
    for addresses in addresses.chunks(BATCH) {
        let mut hops = vec![HopId::NO_ROUTE; addresses.len()];
        reader.lookup(addresses, &mut hops);
        all.extend(hops.into_iter().map(|id| table.hop(id).clone()));
    }
    all
}

/// The addresses at the ends of `prefix` and next to them.
fn edges<A: Family>(prefix: Prefix<A>) -> [A; 4] {
    let (first, last) = (prefix.first(), prefix.last());
    [first, last, first.before(), last.next()]
}

/// Sets or removes a route; few bits vary, so that routes nest and collide.
type Change = (u32, u8, Option<u8>);

fn changes(bits: u8) -> impl Strategy<Value = Vec<Change>> {
    let seed = prop_oneof![0..16u32, any::<u32>()];
    // Seldom short: each change of a default route writes 48 MiB.
    let len = prop_oneof![1 => 0..bits / 8, 19 => bits / 8..=bits];
    let change = (seed, len, proptest::option::weighted(0.7, 1..20u8));
    proptest::collection::vec(change, 1..60)
}

/// One IPv4 table for all cases: it must be as empty at the end of each as it
/// was at the beginning.
fn shared_table() -> &'static Mutex<RouteTable> {
    static TABLE: OnceLock<Mutex<RouteTable>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default)
}

/// Makes the changes one by one, compares with the trie after each, and removes what is left.
fn change_routes<A: Family>(changes: Vec<Change>) -> Result<(), TestCaseError>
where
    Prefix<A>: Into<IpPrefix>,
{
    let table = shared_table().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut oracle = PlainTrie::default();
    let mut routes = BTreeMap::new();
    let mut probes = vec![A::LAST.next(), A::LAST];
    for (seed, len, hop) in changes {
        let prefix = Prefix::holding(A::spread(seed), len);
        let hop = hop.map(|n| gateway(n, A::BITS == 32));
        let old = match hop.clone() {
            Some(hop) => table.add(prefix, hop).unwrap(),
            None => table.remove(prefix),
        };
        let known = match hop.clone() {
            Some(hop) => routes.insert(prefix, hop),
            None => routes.remove(&prefix),
        };
        prop_assert_eq!(old, known);
        oracle.set(prefix.first().left_aligned(), len, hop);
        probes.extend(edges(prefix));
        let expected: Vec<_> = probes.iter().map(|a| oracle.lookup(a.left_aligned())).collect();
        let hops = A::hops(&table, &probes);
        prop_assert_eq!(hops.iter().collect::<Vec<_>>(), expected);
    }
    let (v4, v6) = table.len();
    prop_assert_eq!(if A::BITS == 32 { (v4, v6) } else { (v6, v4) }, (routes.len(), 0));
    for prefix in routes.keys() {
        prop_assert!(table.remove(*prefix).is_some());
    }
    prop_assert!(A::hops(&table, &probes).iter().all(|hop| *hop == NextHop::Unreachable));
    prop_assert!(table.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(30)))]

    #[test]
    fn any_changes_of_ipv4_routes_leave_what_the_plain_trie_says(changes in changes(32)) {
        change_routes::<u32>(changes)?;
    }

    #[test]
    fn any_changes_of_ipv6_routes_leave_what_the_plain_trie_says(changes in changes(128)) {
        change_routes::<u128>(changes)?;
    }

    #[test]
    fn a_replacement_leaves_the_routes_of_the_list_and_no_others(
        before in changes(32), after in changes(32),
    ) {
        let table = shared_table().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let list = |changes: &[Change]| {
            let (mut list, mut routes) = (RouteList::default(), BTreeMap::new());
            for (seed, len, hop) in changes {
                let hop = hop.map_or(NextHop::Blackhole, |n| gateway(n, true));
                let v4 = Prefix::holding(u32::spread(*seed), *len);
                let v6 = Prefix::holding(u128::spread(*seed), len * 4);
                list.push(v4, hop.clone());
                list.push(v6, hop.clone());
                routes.insert(IpPrefix::V4(v4), hop.clone());
                routes.insert(IpPrefix::V6(v6), hop);
            }
            (list, routes)
        };
        let (old, old_routes) = list(&before);
        let (new, new_routes) = list(&after);
        table.replace(RouteList::default()).unwrap();
        let first = table.replace(old).unwrap();
        prop_assert_eq!((first.added, first.removed, first.changed), (old_routes.len(), 0, 0));
        let second = table.replace(new).unwrap();
        let kept = old_routes.iter().filter(|(p, _)| new_routes.contains_key(p)).count();
        let same = old_routes.iter().filter(|(p, hop)| new_routes.get(p) == Some(hop)).count();
        prop_assert_eq!(second.added, new_routes.len() - kept);
        prop_assert_eq!(second.removed, old_routes.len() - kept);
        prop_assert_eq!(second.changed, kept - same);
        let (mut oracle4, mut oracle6) = (PlainTrie::default(), PlainTrie::default());
        for (prefix, hop) in &new_routes {
            match prefix {
                IpPrefix::V4(p) => oracle4.set(u128::from(p.first()) << 96, p.len(), Some(hop.clone())),
                IpPrefix::V6(p) => oracle6.set(p.first(), p.len(), Some(hop.clone())),
            }
        }
        for prefix in old_routes.keys().chain(new_routes.keys()) {
            match prefix {
                IpPrefix::V4(p) => for a in edges(*p) {
                    let expected = oracle4.lookup(u128::from(a) << 96);
                    prop_assert_eq!(&table.lookup(Ipv4Addr::from(a).into()), expected);
                },
                IpPrefix::V6(p) => for a in edges(*p) {
                    let expected = oracle6.lookup(a);
                    prop_assert_eq!(&table.lookup(Ipv6Addr::from(a).into()), expected);
                },
            }
        }
        table.replace(RouteList::default()).unwrap();
        prop_assert!(table.is_empty());
    }
}

#[test]
fn a_table_without_room_says_so_and_stays_as_it_was() {
    let table = RouteTable::new();
    // One /32 in each of as many /24 as there are groups, and one more.
    for i in 0..0x8000u32 {
        assert_eq!(table.add(Prefix::holding(i << 8, 32), gateway(1, true)), Ok(None));
    }
    let extra = Prefix::holding(0xc000_0201u32, 32);
    assert_eq!(table.add(extra, gateway(2, true)), Err(TableError::TooManyGroups));
    assert_eq!(table.lookup(IpAddr::from([192, 0, 2, 1])), NextHop::Unreachable);
    let mut list = RouteList::default();
    list.push(extra, gateway(3, true));
    assert_eq!(table.replace(list), Err(TableError::TooManyGroups));
    assert_eq!(table.len(), (0x8000, 0));
    // A second prefix in a /24 that has a group needs none.
    assert_eq!(table.add(Prefix::holding(7u32, 32), gateway(2, true)), Ok(None));
    // And a freed group is there for another /24.
    assert_eq!(table.remove(Prefix::holding(0x100u32, 32)), Some(gateway(1, true)));
    assert_eq!(table.add(extra, gateway(2, true)), Ok(None));
    assert_eq!(table.lookup(IpAddr::from([192, 0, 2, 1])), gateway(2, true));

    let hop = |i: u32| NextHop::Gateway {
        address: Ipv4Addr::from(i).into(),
        port: RouterPort(0),
        mac: Some([0; 6]),
    };
    let all: Vec<_> = (0..0x8000).map(|i| table.add(Prefix::holding(0u32, 32), hop(i))).collect();
    let refused = all.iter().filter(|r| **r == Err(TableError::TooManyHops)).count();
    // No route and the three gateways have numbers too, once and for all.
    assert_eq!(refused, 4);

    let mut list = RouteList::default();
    (0..=1u128 << 20).for_each(|i| list.push(Prefix::holding(i << 96, 32), gateway(1, true)));
    assert_eq!(table.replace(list), Err(TableError::TooManyRoutes));
    assert_eq!(table.len(), (0x8001, 0));
}

/// Readers look at addresses in and around the prefixes that a writer flaps,
/// and must see one of the two next hops that the address can have.
#[test]
fn readers_see_the_old_or_the_new_next_hop_and_no_other() {
    let table = RouteTable::new();
    let (stop, looked, changed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // Neighbouring /24, each with its own default and its own flapping routes,
    // so that a group that changes hands too early shows at once.
    let base4 = |i: u32| 0x0a00_0000 | i << 8;
    let base6 = |i: u128| 0x2001_0db8 << 96 | i << 80;
    for i in 0..32u8 {
        table.add(Prefix::holding(base4(i.into()), 24), gateway(100 + i, true)).unwrap();
        table.add(Prefix::holding(base6(i.into()), 48), gateway(100 + i, false)).unwrap();
    }
    let flap = |i: u8, up: bool| {
        let v4 = Prefix::holding(base4(i.into()) | 0x40, 26 + i % 7);
        let v6 = Prefix::holding(base6(i.into()) | 0x40 << 64, 58 + i);
        if up {
            table.add(v4, gateway(i, true)).unwrap();
            table.add(v6, gateway(i, false)).unwrap();
        } else {
            table.remove(v4).unwrap();
            table.remove(v6).unwrap();
        }
    };
    let read = |seed: u64| {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut v4, mut v6) = ([0u32; BATCH], [0u128; BATCH]);
        let mut reader = table.reader_v6();
        while !stop.load(Ordering::Relaxed) {
            for i in 0..32u8 {
                v4[i as usize] = base4(i.into()) | u32::from(random.random::<u8>() & 0x7f);
                v6[i as usize] = base6(i.into()) | u128::from(random.random::<u8>() & 0x7f) << 64;
            }
            for (i, hop) in (0..).zip(u32::hops(&table, &v4)) {
                assert!(hop == gateway(i, true) || hop == gateway(100 + i, true), "{i}: {hop:?}");
            }
            for (i, hop) in (0..).zip(read_v6(&table, &mut reader, &v6)) {
                assert!(hop == gateway(i, false) || hop == gateway(100 + i, false), "{i}: {hop:?}");
            }
            looked.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| read(1));
        scope.spawn(|| read(2));
        let mut random = StdRng::seed_from_u64(3);
        let mut up = [false; 32];
        // Until the readers have met many changes, however slow the machine.
        let enough = 40 * u64::from(cases(50));
        while looked.load(Ordering::Relaxed) < 5_000 || changed.load(Ordering::Relaxed) < enough {
            let i = random.random_range(0..32u8);
            up[i as usize] = !up[i as usize];
            flap(i, up[i as usize]);
            changed.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A file of the folder of public test data, when it is there.
fn data(path: &str) -> Option<PathBuf> {
    data_folder().map(|folder| folder.join(path))
}

/// A router port that knows the gateways that `route_file` names.
fn ports() -> Ports {
    let v4 = (1..=64).map(|n| (IpAddr::from([10, 0, 0, n]), [2, 0, 0, 0, 4, n]));
    let v6 =
        (1..=64).map(|n| (IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n.into()]), [2, 0, 0, 0, 6, n]));
    Ports::new(vec![Port {
        name: "eth0".into(),
        mac: [2, 0, 0, 0, 0, 1],
        ip: None,
        ipv6: None,
        output: PortIndex(0),
        output_name: "eth0".into(),
        interface: None,
        mtu: 1500,
        default_mac: None,
        resolve: false,
        neighbors: v4.chain(v6).collect(),
    }])
}

/// A next hop that depends on every bit of the prefix.
fn derived(prefix: &str) -> u8 {
    let hash = prefix
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (hash >> 32) as u8 % 64 + 1
}

/// The route file of the prefix list `text`, with the derived next hops.
fn route_file(text: &str) -> String {
    let mut file = String::with_capacity(text.len() * 3);
    for prefix in text.lines() {
        let n = derived(prefix);
        let gateway =
            if prefix.contains(':') { format!("fd00::{n:x}") } else { format!("10.0.0.{n}") };
        file.extend([prefix, " ", &gateway, " eth0\n"]);
    }
    file
}

/// Looks the addresses up together, and gives them to `check` in their order: so the oracle finds most
/// of the nodes of an address in the processor's caches.
fn each_answer<A: Family>(
    table: &RouteTable,
    addresses: Vec<A>,
    mut check: impl FnMut(A, NextHop),
) {
    let hops = A::hops(table, &addresses);
    let mut answers: Vec<_> = addresses.into_iter().zip(hops).collect();
    answers.sort_unstable_by_key(|(address, _)| *address);
    answers.into_iter().for_each(|(address, hop)| check(address, hop));
}

/// Loads the prefixes `text` by way of a route file, and holds the table
/// against a plain trie on `n` addresses drawn at random and `n` in prefixes.
fn agrees_with_a_plain_trie(text: &str, n: usize) {
    let source = Source::new("routes.txt", route_file(text));
    let ports = ports();
    let parsed = parse_routes(&source, &ports).unwrap();
    let table = RouteTable::new();
    table.replace(parsed.list).unwrap();

    let (mut oracle4, mut oracle6) = (PlainTrie::default(), PlainTrie::default());
    let (mut all4, mut all6) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (address, len) = line.split_once('/').unwrap();
        let (len, n) = (len.parse::<u8>().unwrap(), derived(line));
        let port = RouterPort(0);
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            let hop = NextHop::Gateway {
                address: [10, 0, 0, n].into(),
                port,
                mac: Some([2, 0, 0, 0, 4, n]),
            };
            oracle4.set(u128::from(u32::from(address)) << 96, len, Some(hop));
            all4.push(Prefix::holding(u32::from(address), len));
        } else {
            let address: Ipv6Addr = address.parse().unwrap();
            let gateway = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into());
            let hop =
                NextHop::Gateway { address: gateway.into(), port, mac: Some([2, 0, 0, 0, 6, n]) };
            oracle6.set(address.into(), len, Some(hop));
            all6.push(Prefix::holding(u128::from(address), len));
        }
    }
    assert_eq!(table.len(), (all4.len(), all6.len()));

    let mut random = StdRng::seed_from_u64(7);
    let mut found = [0usize; 4];
    let mut check4 = |address: u32, hop: NextHop, kind: usize| {
        assert_eq!(&hop, oracle4.lookup(u128::from(address) << 96), "{}", Ipv4Addr::from(address));
        found[kind] += usize::from(hop != NextHop::Unreachable);
    };
    let anywhere: Vec<u32> = (0..n).map(|_| random.next_u32()).collect();
    let inside: Vec<u32> = (0..n)
        .map(|_| {
            let p = all4[random.random_range(0..all4.len())];
            p.first() | random.next_u32() & (p.first() ^ p.last())
        })
        .collect();
    let ends: Vec<u32> =
        all4.iter().step_by(all4.len().div_ceil(n)).flat_map(|p| edges(*p)).collect();
    for (kind, addresses) in [(0, anywhere), (1, inside), (0, ends)] {
        each_answer(&table, addresses, |address, hop| check4(address, hop, kind));
    }
    let mut check6 = |address: u128, hop: NextHop, kind: usize| {
        assert_eq!(&hop, oracle6.lookup(address), "{}", Ipv6Addr::from(address));
        found[kind] += usize::from(hop != NextHop::Unreachable);
    };
    let wide =
        |random: &mut StdRng| u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let anywhere: Vec<u128> = (0..n).map(|_| 0x2 << 124 | wide(&mut random) >> 4).collect();
    let inside: Vec<u128> = (0..n)
        .map(|_| {
            let p = all6[random.random_range(0..all6.len())];
            p.first() | wide(&mut random) & (p.first() ^ p.last())
        })
        .collect();
    let ends: Vec<u128> =
        all6.iter().step_by(all6.len().div_ceil(n)).flat_map(|p| edges(*p)).collect();
    for (kind, addresses) in [(2, anywhere), (3, inside), (2, ends)] {
        each_answer(&table, addresses, |address, hop| check6(address, hop, kind));
    }
    assert_eq!((found[1], found[3]), (n, n), "every address inside a prefix has a route");
    assert!(found[0] > n / 4 && found[2] > 0, "vacuous run: {found:?}");
}

#[test]
fn a_full_internet_table_agrees_with_a_plain_trie() {
    let Some(path) = data("routing/prefixes-2024.txt.gz") else { return };
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    // As many addresses for each case that is wanted.
    agrees_with_a_plain_trie(&text, 5000 * cases(50) as usize);
}

#[test]
fn a_small_table_agrees_with_a_plain_trie() {
    agrees_with_a_plain_trie(include_str!("data/prefixes.txt"), 20_000);
}
