//! Longest-prefix match in the router's table.
//!
//! `make PREFIXES FOLDER` writes the routes of a list of prefixes, with next hops, and the
//! addresses that are looked up, for ours and for bench/peers/rte_route.c. `run FOLDER BURST...`
//! measures, and prints a line of JSON for each burst and kind of addresses: nanoseconds a
//! lookup, and the sum of the next hops' numbers, which has to be that of the peers.
//! `bench/route.py` does both.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use serde_json::json;
use thalweg_router::{HopId, IpPrefix, NextHop, Prefix, RouteList, RouteTable, RouterPort};

/// Addresses of each kind.
const ADDRESSES: usize = 1 << 20;
/// Next hops.
const HOPS: u64 = 64;
/// Rounds; the shortest counts.
const ROUNDS: usize = 100;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The next of a sequence of numbers: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A route: the prefix's bits, from the top, its length, the number of its next hop.
struct Route {
    bits: u128,
    len: u32,
    hop: u16,
}

/// Reads prefixes, one a line; returns those of IPv4 and of IPv6.
fn routes(path: &Path) -> Outcome<[Vec<Route>; 2]> {
    let (mut v4, mut v6, mut state) = (Vec::new(), Vec::new(), 1);
    for line in fs::read_to_string(path)?.lines() {
        let (address, len) = line.split_once('/').ok_or("a prefix has a length")?;
        let (hop, len) = ((splitmix64(&mut state) % HOPS + 1) as u16, len.parse()?);
        match address.parse()? {
            IpAddr::V4(a) => v4.push(Route { bits: u128::from(a.to_bits()) << 96, len, hop }),
            IpAddr::V6(a) => v6.push(Route { bits: a.to_bits(), len, hop }),
        }
    }
    Ok([v4, v6])
}

/// Numbers below `n`, the more often the smaller: with the exponent 1 (Zipf).
fn zipf(n: usize, state: &mut u64) -> Vec<usize> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=n)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let draw = |_| {
        let at = (splitmix64(state) >> 11) as f64 / (1u64 << 53) as f64 * sum;
        sums.partition_point(|other| *other < at).min(n - 1)
    };
    (0..ADDRESSES).map(draw).collect()
}

/// An address within a route's prefix.
fn within(route: &Route, state: &mut u64) -> u128 {
    let random = u128::from(splitmix64(state)) << 64 | u128::from(splitmix64(state));
    route.bits | random.checked_shr(route.len).unwrap_or(0)
}

fn make(prefixes: &Path, folder: &Path) -> Outcome<()> {
    let mut state = 2;
    for (name, routes) in ["4", "6"].into_iter().zip(routes(prefixes)?) {
        let write = |file: String, bits: &mut dyn Iterator<Item = u128>| {
            let bytes: Vec<u8> = match name {
                "4" => bits.flat_map(|bits| ((bits >> 96) as u32).to_le_bytes()).collect(),
                _ => bits.flat_map(u128::to_be_bytes).collect(),
            };
            fs::write(folder.join(file), bytes)
        };
        write(format!("prefixes{name}"), &mut routes.iter().map(|route| route.bits))?;
        let rest = routes.iter().flat_map(|r| [r.len as u16, r.hop]).flat_map(u16::to_le_bytes);
        fs::write(folder.join(format!("hops{name}")), rest.collect::<Vec<u8>>())?;
        let n = routes.len() as u64;
        let mut random = (0..ADDRESSES).map(|_| {
            let route = &routes[(splitmix64(&mut state) % n) as usize];
            // IPv4 addresses lie anywhere; IPv6 ones in a prefix, as most of IPv6 is empty.
            within(if name == "4" { &Route { bits: 0, len: 0, hop: 0 } } else { route }, &mut state)
        });
        write(format!("random{name}"), &mut random)?;
        // Which prefixes are looked up most does not depend on where they lie.
        let mut order: Vec<usize> = (0..routes.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, (splitmix64(&mut state) % (last as u64 + 1)) as usize);
        }
        let ranks = zipf(routes.len(), &mut state);
        let mut zipf = ranks.into_iter().map(|rank| within(&routes[order[rank]], &mut state));
        write(format!("zipf{name}"), &mut zipf)?;
    }
    Ok(())
}

/// The routes that [`make`] has written.
fn table(folder: &Path) -> Outcome<RouteTable> {
    let mut list = RouteList::default();
    for name in ["4", "6"] {
        let hops = fs::read(folder.join(format!("hops{name}")))?;
        let hops = hops.as_chunks::<4>().0.iter();
        let addresses: Vec<u128> = match name {
            "4" => v4(&folder.join("prefixes4"))?.into_iter().map(u128::from).collect(),
            _ => v6(&folder.join("prefixes6"))?,
        };
        for (address, [len, _, hop, _]) in addresses.into_iter().zip(hops) {
            let prefix = match name {
                "4" => Prefix::new(address as u32, *len).map(IpPrefix::V4),
                _ => Prefix::new(address, *len).map(IpPrefix::V6),
            };
            let prefix = prefix.ok_or("a prefix has no bits behind it")?;
            // The number of a next hop is its gateway's last byte.
            let gateway = IpAddr::from([10, 0, 0, *hop]);
            list.push(
                prefix,
                NextHop::Gateway { address: gateway, port: RouterPort(0), mac: Some([*hop; 6]) },
            );
        }
    }
    let table = RouteTable::new();
    table.replace(list)?;
    Ok(table)
}

fn v4(path: &Path) -> Outcome<Vec<u32>> {
    Ok(fs::read(path)?.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

fn v6(path: &Path) -> Outcome<Vec<u128>> {
    Ok(fs::read(path)?.as_chunks().0.iter().map(|bytes| u128::from_be_bytes(*bytes)).collect())
}

/// Nanoseconds a lookup, and the sum of the next hops.
fn measure<A>(
    table: &RouteTable,
    addresses: &[A],
    burst: usize,
    mut lookup: impl FnMut(&[A], &mut [HopId]),
) -> (f64, u64) {
    let mut hops = vec![HopId::NO_ROUTE; burst];
    let number = |hop: &HopId| match table.hop(*hop) {
        NextHop::Gateway { mac: Some(mac), .. } => u64::from(mac[0]),
        _ => 0,
    };
    let sums = addresses.chunks(burst).map(|addresses| {
        let hops = &mut hops[..addresses.len()];
        lookup(addresses, hops);
        hops.iter().map(number).sum::<u64>()
    });
    let sum = sums.sum();
    let mut shortest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for addresses in addresses.chunks(burst) {
            lookup(black_box(addresses), &mut hops[..addresses.len()]);
        }
        shortest = shortest.min(start.elapsed().as_nanos() as f64 / addresses.len() as f64);
    }
    (shortest, sum)
}

fn run(folder: &Path, bursts: &[usize]) -> Outcome<()> {
    let table = table(folder)?;
    let mut reader = table.reader_v6();
    for kind in ["random", "zipf"] {
        let (v4, v6) =
            (v4(&folder.join(format!("{kind}4")))?, v6(&folder.join(format!("{kind}6")))?);
        for burst in bursts {
            let (ns4, sum4) = measure(&table, &v4, *burst, |a, h| table.lookup_v4(a, h));
            let (ns6, sum6) = measure(&table, &v6, *burst, |a, h| reader.lookup(a, h));
            for (version, ns, sum) in [(4, ns4, sum4), (6, ns6, sum6)] {
                let line = json!({"table": "ours", "version": version, "addresses": kind,
                    "burst": burst, "ns": ns, "sum": sum});
                println!("{line}");
            }
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", prefixes, folder] => make(Path::new(prefixes), Path::new(folder)),
        ["run", folder, ref bursts @ ..] => {
            let bursts = bursts.iter().map(|burst| burst.parse()).collect::<Result<Vec<_>, _>>()?;
            run(Path::new(folder), &bursts)
        }
        _ => Err("make PREFIXES FOLDER, or run FOLDER BURST...".into()),
    }
}
